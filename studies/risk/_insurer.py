"""An insurer's book: lines of gamma and log-normal claims, whose scales move with risk indices.

A line pays a layer of each of its one to four claims. θ holds the risk indices of 2–8 lines
(one-factor correlation), x the claims, 2–30 of them. The loss is claims less the premium, which is
what the layers cost at average indices.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtr

import nestquad as nq
from studies.families._insurance import _gamma, _Line, _lognormal
from studies.families._sketch import base, choice, correlated, written
from studies.families._truth import Sum
from studies.risk._case import Sketch, law_of, levels_of, tail_draws


def sketch(rng: np.random.Generator) -> Sketch:
    outer_base, inner_base = base(rng), base(rng)
    while True:
        n = int(rng.integers(2, 9))
        lines = [_line(rng) for _ in range(n)]
        claims = rng.integers(1, 5, n)
        premium = [c * float(one.mean(np.array(0.0))) for c, one in zip(claims, lines, strict=True)]
        parts = tuple(
            lambda z, c=c, one=one, due=due: c * one.mean(z) - due
            for c, one, due in zip(claims, lines, premium, strict=True)
        )
        total = Sum(parts, rng.uniform(0.0, 0.8, n))
        j = tail_draws(total)
        if j is not None:
            break
    factor, line_of = np.linalg.cholesky(total.correlation), np.repeat(np.arange(n), claims)
    dim = len(line_of)

    def inner(theta: np.ndarray) -> nq.Transport:
        scales = np.stack([lines[i].scale(theta[:, i]) for i in line_of], axis=-1)

        def amounts(u: np.ndarray) -> np.ndarray:
            u = np.clip(ndtr(u) if inner_base == "normal" else u, 1e-16, 1 - 1e-16)
            y = [lines[i].claim.quantile(u[..., k]) for k, i in enumerate(line_of)]
            return scales[:, None, :] * np.stack(y, axis=-1)

        return nq.Transport(amounts, dim=dim, base=inner_base, out_dim=dim, batch=len(theta))

    def loss(x: np.ndarray, theta: np.ndarray) -> np.ndarray:
        return sum(lines[i].paid(x[..., k]) for k, i in enumerate(line_of)) - sum(premium)

    problem = nq.NestedExpectation(
        written(lambda z: correlated(factor, z), n, n, outer_base), inner, loss
    )
    return Sketch(
        problem,
        law_of(total),
        levels_of(j),
        f"{n} lines, {dim} claims, {outer_base} drivers of θ, {inner_base} drivers of x",
    )


def _line(rng: np.random.Generator) -> _Line:
    """A layer that begins between the 30 % and 90 % quantile, with or without a top."""
    claim = choice(rng, _gamma, _lognormal)(rng)
    low = 0.0 if rng.random() < 0.3 else float(claim.quantile(np.array(rng.uniform(0.3, 0.9))))
    high = float(claim.quantile(np.array(rng.uniform(0.95, 0.999))))
    sensitivity, top = float(rng.uniform(0.1, 0.5)), choice(rng, high, math.inf)
    unit = _Line(claim, 1.0, sensitivity, low, top)
    volume = rng.uniform(0.5, 2.0) / float(unit.mean(np.array(0.0)))
    return _Line(claim, volume, sensitivity, low, top)
