"""Accuracy: error propagation, calibration of bars, smoothness of f, sample sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import stdtrit

from nestquad._checks import choice, number, numbers, whole
from nestquad._typing import Array
from nestquad.errors import InputError
from nestquad.evaluate import call_f, f_or_nan
from nestquad.problem import NestedExpectation
from nestquad.result import NORMAL_95, Estimate


def linearized_covariance(
    finish: Callable[[Array], Array], answers: Array, covariance: Array
) -> Array:
    """Directions (k, q) of the final answers whose products give their covariance.

    The q expectations have the given covariance; `finish` (the problem's combine) is linearised
    over one standard deviation in each principal direction, which for a maximum says more than
    its derivative at the point.
    """
    eigenvalues, vectors = np.linalg.eigh(covariance)
    steps = vectors * np.sqrt(np.maximum(eigenvalues, 0.0))
    columns = [
        np.atleast_1d(finish(answers + step) - finish(answers - step)) / 2.0 for step in steps.T
    ]
    return np.stack(columns, axis=1)


def size_of(directions: Array) -> float:
    """The largest standard deviation that directions (k, m) of an error add up to."""
    return float(np.sqrt((directions**2).sum(axis=1)).max(initial=0.0))


def finite_average(f: Array, weights: Array) -> Array:
    """Weighted average (q,) of f (M, q) over the rows in which f is finite.

    Draws of J that only serve an error bar may leave the domain of f.
    """
    usable = np.isfinite(f).all(axis=1)
    if usable.all():
        return np.asarray(weights @ f / weights.sum())
    if not usable.any():
        return np.full(f.shape[1], np.nan)
    return np.asarray(weights[usable] @ f[usable] / weights[usable].sum())


def replicate_errors(finals: Array) -> Array:
    """Directions (k, R) of the error of a mean over R independent replicates (k, R)."""
    n = finals.shape[1]
    deviations = finals - finals.mean(axis=1, keepdims=True)
    # Student's t: the standard error has few degrees of freedom.
    few = stdtrit(n - 1, 0.975) / stdtrit(np.inf, 0.975)
    return np.asarray(few * deviations / np.sqrt(n * (n - 1)))


def propagated(problem: NestedExpectation, answers: Array, changes: Array) -> Array:
    """Changes (…, q) of the q expectations as changes (…, k) of the final answers."""
    if problem.combine is None:
        return changes
    center = np.atleast_1d(problem.finish(answers))
    rows = [problem.finish(answers + row) - center for row in changes.reshape(-1, answers.size)]
    return np.reshape(rows, (*changes.shape[:-1], center.size))


def range_of(problem: NestedExpectation, j: Array) -> tuple[Any, Any]:
    """Ends of the range of f where it saturates far from J (T,) on a side, infinite elsewhere.

    For a single output and no `combine`; f may have several answers.
    """
    if problem.f is None or problem.combine is not None or j.ndim != 1:
        return -np.inf, np.inf
    far = max(1.0, float(np.abs(j).max())) * 2.0 ** np.arange(0.0, 60.0, 3.0)
    sides = [f_or_nan(problem, side) for side in (far, -far)]
    values = np.concatenate([f_or_nan(problem, j), *sides])
    ends = []
    for sign in (-1.0, 1.0):
        end = sign * np.max(sign * np.nan_to_num(values, nan=-sign * np.inf), axis=0)
        flat = [(side[-4:] == end).all(axis=0) & np.isfinite(end) for side in sides]
        ends.append(np.where(np.any(flat, axis=0), end, sign * np.inf))
    low, high = (end if end.size > 1 else float(end[0]) for end in ends)
    return low, high


def tail_shape(values: Array) -> float:
    """Shape k of the Pareto law of the largest sizes of values (n, p), the largest over outputs.

    Moments of order 1/k and more do not exist; from k = 0.7 on, means of fewer than very many
    values are not reliable, and k = 1 has no mean. The posterior mean of Zhang and Stephens (2009,
    A new and efficient estimation method for the generalized Pareto distribution), for the tail and
    with the prior of Vehtari and others (2024, Pareto smoothed importance sampling). At most 0 for
    fewer than 25 values.
    """
    n, shapes = len(values), [0.0]
    for sizes in np.sort(np.abs(values), axis=0).T:
        tail = sizes[n - int(min(n / 5, 3.0 * np.sqrt(n))) :]
        excess = tail[tail > tail[0]] - tail[0] if len(tail) else tail
        if (m := len(excess)) < 5:
            continue
        grid = np.arange(1, 31 + int(np.sqrt(m))) - 0.5
        quartile = excess[int(m / 4 + 0.5) - 1]
        inverse = 1.0 / excess[-1] + (1.0 - np.sqrt((len(grid)) / grid)) / (3.0 * quartile)
        k = np.log1p(-inverse[:, None] * excess).mean(axis=1)
        likelihood = m * (np.log(-inverse / k) - k)
        weights = np.exp(likelihood - likelihood.max())
        k_mean = np.log1p(-(weights @ inverse / weights.sum()) * excess).mean()
        shapes.append(float((m * k_mean + 5.0) / (m + 10.0)))
    return max(shapes)


def degrees_of_freedom(influence: Sequence[Array]) -> float:
    """Degrees of freedom of a sum of means of draws, from their influences (k, n) on the answers.

    The variance estimate of n draws with kurtosis κ has a relative variance of (κ − 1)/n, a χ²
    variable with ν degrees of freedom one of 2/ν. Few draws, and few that carry all the variance,
    both mean few degrees of freedom (Satterthwaite 1946, An approximate distribution of estimates
    of variance components). The least over the answers.
    """
    total = sum((part**2).sum(axis=1) for part in influence)
    excess = sum(
        np.maximum((part**4).sum(axis=1) - (part**2).sum(axis=1) ** 2 / part.shape[1], 0.0)
        for part in influence
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        freedom = np.where(excess > 0, 2.0 * total**2 / excess, np.inf)
    return float(np.clip(np.min(freedom), 2.0, 1e9))


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


_METHODS = ("nmc", "nqmc", "nkq", "mlmc", "mlkq")


class Level(NamedTuple):
    """One level of a multilevel method: N inner points at each of T outer points."""

    n_inner: int
    n_outer: int


@dataclass(frozen=True)
class Allocation:
    """How many outer and inner points a method needs for an error of `delta`.

    Attributes
    ----------
    method, delta
        Lower-case name of the method, and the error that was asked for.
    n_outer, n_inner
        T and N; None for a multilevel method, whose sizes are in `levels`.
    levels
        From the coarsest to the finest; empty for a method without levels.
    exponent
        r in cost ∝ Δ^−r, up to logarithms.
    """

    method: str
    delta: float
    n_outer: int | None
    n_inner: int | None
    levels: tuple[Level, ...]
    exponent: float

    @property
    def n_evaluations(self) -> int:
        """Evaluations of g in total."""
        levels = self.levels or ((self.n_inner or 0, self.n_outer or 0),)
        return sum(n_inner * n_outer for n_inner, n_outer in levels)

    def __str__(self) -> str:
        head = f"{self.method} for an error of {self.delta:g}: "
        growth = f"∝ Δ^-{self.exponent:.4g}" if self.exponent else "a power of log(1/Δ)"
        tail = f"{self.n_evaluations:,} evaluations (cost {growth})"
        if not self.levels:
            return f"{head}T = {self.n_outer:,} outer, N = {self.n_inner:,} inner, {tail}"
        sizes = ", ".join(f"{level.n_outer:,} × {level.n_inner:,}" for level in self.levels)
        return f"{head}{len(self.levels)} levels, {tail}\n  T × N by level: {sizes}"


def allocate(
    delta: float,
    method: str = "nkq",
    *,
    dim_x: int = 1,
    dim_theta: int = 1,
    s_x: float | None = None,
    s_theta: float | Sequence[float] | None = None,
    regime: str = "smooth",
    constant: float = 1.0,
) -> Allocation:
    """The theory's N and T (or levels) for an error of `delta`.

    ====== =============================== ====================== ========================
    method N (inner)                       T (outer)              cost
    ====== =============================== ====================== ========================
    nmc    Δ^-1, or Δ^-2 if f is Lipschitz Δ^-2                   Δ^-3, or Δ^-4
    nqmc   Δ^-½                            Δ^-2                   Δ^-2.5
    nkq    Δ^(-d_x/s_x)                    Δ^(-d_θ/s_θ)           Δ^(-d_x/s_x-d_θ/s_θ)
    mlmc   2^l                             (2^l Δ)^-2             Δ^-2
    mlkq   (2^-l Δ^½)^(-d_x/s_x)           (2^l Δ^½)^(-2-d_θ/s_θ) Δ^(-1-d_x/2s_x-d_θ/2s_θ)
    ====== =============================== ====================== ========================

    Levels run up to 2^-L ≈ Δ (mlmc) or Δ^½ (mlkq), where the bias of the finest level is Δ and T
    has come down to 1.

    Parameters
    ----------
    delta
        The error wanted, 0 < delta < `constant`.
    method
        ``"nmc"``, ``"nqmc"``, ``"nkq"``, ``"mlmc"`` or ``"mlkq"``.
    dim_x, dim_theta
        Dimensions; only the kernel methods depend on them.
    s_x, s_theta
        Sobolev smoothness of g in x and of f∘J in θ, larger than half the dimension; needed by the
        kernel methods only. Of several (one an answer), the smallest counts. ``inf`` is allowed.
    regime
        ``"smooth"`` (f has a bounded second derivative) or ``"lipschitz"``. Only nested Monte
        Carlo has an allocation for the latter.
    constant
        The constant in front of the rates, which theory does not know: sizes are for
        ``delta / constant``. The scale of f(J) is a first guess.

    Notes
    -----
    *Sources.* nmc: Rainforth et al. (2018), Theorem 3. mlmc: Giles (2015). nkq and mlkq: the
    paper's Corollary 1 and the allocation after its multilevel theorem; logarithms are left out.
    nqmc: the cost of Bartuska et al. (2023), Proposition 4, if only the inner stage gains: the bias
    of f at a randomized quasi-Monte Carlo mean is of the order of its variance, N^-2, so that
    N = Δ^-½, and the rest of the cost is the Monte Carlo size T = Δ^-2.

    *Infinite smoothness.* The rate is exponential, about exp(−N^(1/d)), so the size is
    log(1/Δ)^d, and at most Δ^-2, which the least smoothness (s → d/2) reaches already. It counts
    as exponent 0.

    *Rounding.* Sizes are rounded up, to at least 1 inner and 2 outer points, and each level has
    more inner points than the last.

    Examples
    --------
    >>> from nestquad.accuracy import allocate
    >>> print(allocate(0.01, s_x=2, s_theta=2))
    nkq for an error of 0.01: T = 10 outer, N = 10 inner, 100 evaluations (cost ∝ Δ^-1)
    >>> print(allocate(0.1, "mlmc"))
    mlmc for an error of 0.1: 5 levels, 226 evaluations (cost ∝ Δ^-2)
      T × N by level: 100 × 1, 25 × 2, 7 × 4, 2 × 8, 2 × 16
    """
    name = str(method).lower()
    choice("method", name, _METHODS)
    choice("regime", regime, ("smooth", "lipschitz"))
    if regime == "lipschitz" and name != "nmc":
        advice = "Only nested Monte Carlo has an allocation for an f that is only Lipschitz."
        raise InputError("regime", f"'lipschitz' for {name}", "'smooth'", advice)
    error = _relative_error(delta, constant)
    sizes: list[tuple[float, float]]  # (N, T) of each level
    if name == "nmc":
        power = 1.0 if regime == "smooth" else 2.0
        sizes, exponent = [(error**-power, error**-2.0)], power + 2.0
    elif name == "nqmc":
        sizes, exponent = [(error**-0.5, error**-2.0)], 2.5
    elif name == "mlmc":
        sizes = [(2.0**level, (2.0**level * error) ** -2.0) for level in _levels(error)]
        exponent = 2.0
    else:
        d_x, d_theta = whole("dim_x", dim_x), whole("dim_theta", dim_theta)
        rate_x = d_x / _smoothness("s_x", s_x, d_x, name)
        rate_theta = d_theta / _smoothness("s_theta", s_theta, d_theta, name)
        sizes = [(_size(error, d_x, rate_x), _size(error, d_theta, rate_theta))]
        exponent = rate_x + rate_theta
        if name == "mlkq":
            root, exponent = math.sqrt(error), 1.0 + exponent / 2.0
            sizes = [
                (_size(root / 2.0**level, d_x, rate_x), (2.0**level * root) ** (-2.0 - rate_theta))
                for level in _levels(root)
            ]
    levels: list[Level] = []
    for n_inner, n_outer in sizes:
        # A level with no more inner points than the last corrects no bias.
        fewest = levels[-1].n_inner + 1 if levels else 1
        levels.append(Level(max(_whole(n_inner), fewest), max(_whole(n_outer), 2)))
    if name in ("mlmc", "mlkq"):
        return Allocation(name, float(delta), None, None, tuple(levels), exponent)
    return Allocation(name, float(delta), levels[0].n_outer, levels[0].n_inner, (), exponent)


def _size(error: float, dim: int, rate: float) -> float:
    """Nodes of kernel quadrature in `dim` dimensions at rate d/s, 0 for infinite smoothness."""
    if rate == 0.0:
        return float(min(math.log(1.0 / error) ** dim, error**-2.0))
    return float(error**-rate)


def _levels(finest: float) -> range:
    """Levels 0, …, L with 2^-L at most `finest`."""
    return range(_whole(math.log2(1.0 / finest)) + 1)


def _whole(size: float) -> int:
    # 0.01**-2.0 is a hair above 10,000: rounding errors must not add a point.
    return math.ceil(size * (1.0 - 1e-12))


def _relative_error(delta: float, constant: float) -> float:
    constant, delta = number("constant", constant), number("delta", delta)
    if delta >= constant:
        expected = f"an error between 0 and {constant:g}, both excluded"
        advice = "Where answers are large, give their scale as constant=."
        raise InputError("delta", repr(delta), expected, advice)
    if delta / constant < 1e-15:
        expected = f"at least {1e-15 * constant:g}"
        advice = "Double precision has no digits below that."
        raise InputError("delta", repr(delta), expected, advice)
    return delta / constant


def _smoothness(
    argument: str, given: float | Sequence[float] | None, dim: int, method: str
) -> float:
    if given is None:
        expected = f"a Sobolev smoothness, which the rate of {method} depends on"
        advice = "The shipped problems have it in problem.smoothness; math.inf is allowed."
        raise InputError(argument, "None", expected, advice)
    values = numbers(argument, given, "a Sobolev smoothness, or several")
    s = float(values.min(initial=np.inf)) if values.size else 0.0
    if not s > dim / 2:
        expected = f"a smoothness larger than half the dimension, {dim / 2:g}"
        advice = "Rougher integrands are outside the theory of kernel quadrature."
        raise InputError(argument, f"{s:g}", expected, advice)
    return s
