"""Smoothness of f where J can be: jumps, kinks, domain, and the step size that shows them."""

from __future__ import annotations

import numpy as np

from nestquad._typing import Array
from nestquad.evaluate import call_f, f_or_nan
from nestquad.problem import NestedExpectation
from nestquad.result import NORMAL_95, Estimate


def characteristics(problem: NestedExpectation, estimate: Estimate) -> list[str]:
    """Notes for the user on jumps, kinks and the domain of f, and the influence of θ."""
    sample = estimate.sample
    if sample is None or len(sample.j) < 4:
        return []
    half, value = NORMAL_95 * np.asarray(estimate.std_error), np.abs(np.asarray(estimate.value))
    if not (half <= 0.5 * value).all():  # too little is known of J to describe it
        return []
    notes = []
    positive = bool(sample.j.min() > 0) and not takes(problem, -sample.j)
    order = order_of_smoothness(problem, sample.j, logarithmic=positive)
    if order == 0:
        notes.append(
            "f is discontinuous where J can be: quadrature of f(J) would be slow; for P(J > c), "
            "nestquad.risk places evaluations near c"
        )
    elif order == 1:
        notes.append("f has kinks where J can be: quadrature of f(J) would be slow")
    if positive:
        notes.append("f is defined for J > 0 only: errors of J near zero count most")
    j = sample.j.reshape(len(sample.j), -1)
    weights = sample.weights.mean(axis=1) / sample.weights.mean(axis=1).sum()
    mean = weights @ j
    spread = np.sqrt(np.maximum(weights @ (j - mean) ** 2, 0.0))
    if (spread <= 1e-3 * np.maximum(np.abs(mean), 1e-300)).all():
        notes.append("theta has next to no influence on J")
    return notes


def order_of_smoothness(problem: NestedExpectation, j: Array, *, logarithmic: bool = False) -> int:
    """0 if f jumps between values that J (T,) or (T, p) takes, 1 if it has kinks, 2 if neither.

    Along segments between pairs of these values, f is cheap to evaluate. Its largest second
    difference with a step h is of the order of h^0 at a jump, h at a kink, h² where f is smooth;
    two steps tell which. `logarithmic` steps are equal in log J.
    """
    order = np.argsort(j.reshape(len(j), -1)[:, 0], kind="stable")
    picked = np.linspace(0, len(j) - 1, 33).astype(int)
    # Pairs far apart, so that together the segments cross most values of J.
    ends = j[order[picked[:-1]]], j[order[picked[::-1][:-1]]]
    low, high = (np.log(end) for end in ends) if logarithmic else ends
    sizes = [_second_difference(problem, low, high, n, logarithmic) for n in (128, 2048)]
    if not np.isfinite(sizes).all() or sizes[1] <= 0:
        return 2
    exponent = np.log(sizes[0] / sizes[1]) / np.log(16.0)
    return int(np.clip(np.round(exponent), 0, 2))


def order_near(problem: NestedExpectation, j: Array) -> int:
    """Order of smoothness of f where J (T,) or (T, p) can be, and a little beyond, in its tails."""
    wide = np.concatenate([j, 2.0 * j - j.mean(axis=0)])
    positive = j[(j > 0).reshape(len(j), -1).all(axis=1)]
    if j.min() >= 0 and len(positive) > 32 and not takes(problem, -j):
        return order_of_smoothness(problem, positive, logarithmic=True)
    return order_of_smoothness(problem, wide if takes(problem, wide) else j)


def is_discontinuous(problem: NestedExpectation, j: Array) -> bool:
    """Whether f jumps where J (T,) or (T, p) can be, or a little beyond."""
    return order_near(problem, j) == 0


def _second_difference(
    problem: NestedExpectation, low: Array, high: Array, n: int, logarithmic: bool
) -> float:
    """The largest over the segments from low to high in n steps, relative to the range of f."""
    t = np.linspace(0.0, 1.0, n + 1).reshape(-1, *[1] * low.ndim)
    points = low + t * (high - low)
    if logarithmic:
        points = np.exp(points)
    shape = points.shape[:2]
    flat = points.reshape(-1, *points.shape[2:])
    f = call_f(problem, flat, flat.reshape(len(flat), -1), require_finite=False)
    f = f.reshape(*shape, -1)
    with np.errstate(invalid="ignore"):  # infinite values of f are left out
        scale = np.ptp(f, axis=(0, 1))
        size = np.abs(np.diff(f, 2, axis=0)).max(axis=(0, 1)) / np.where(scale > 0, scale, 1.0)
    # Rounding is no kink.
    return float(np.where(size > 1e-11, size, 0.0).max())


def needs_positive(problem: NestedExpectation) -> bool:
    """Whether f takes J = 1 and not J = 0, as a logarithm, for one output or up to eight."""
    shapes = [(1,), *((1, p) for p in range(2, 9))]
    return any(takes(problem, np.ones(s)) and not takes(problem, np.zeros(s)) for s in shapes)


def takes(problem: NestedExpectation, j: Array) -> bool:
    """Whether f is finite at all of J (T,) or (T, p)."""
    return bool(np.isfinite(f_or_nan(problem, j)).all())
