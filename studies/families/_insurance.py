"""Insurance and heavy tails: layers of gamma, log-normal, Pareto and Student claims.

A portfolio has 1–4 lines. Line i has a risk index z_i (one-factor correlation), which moves the
scale of its claims; the mean of a layer of a claim has a closed form in z_i. J is the sum over
lines, and f an exceedance, an expected excess, a logarithm or a power.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import special, stats
from scipy.special import ndtr

import nestquad as nq
from studies.families._sketch import (
    EXCEEDANCE,
    EXCESS,
    Sketch,
    base,
    choice,
    correlated,
    tail_f,
    written,
)
from studies.families._truth import Sum, Truth, moments

LEVELS = (0.9, 0.95, 0.99, 0.995)


@dataclass(frozen=True)
class _Claim:
    """A claim = scale · y; the quantile of y, and E max(y − k, 0)."""

    name: str
    quantile: Callable[[np.ndarray], np.ndarray]
    stop_loss: Callable[[np.ndarray], np.ndarray]


def _gamma(rng: np.random.Generator) -> _Claim:
    shape = rng.uniform(0.5, 4.0)

    def stop_loss(k: np.ndarray) -> np.ndarray:
        k = np.maximum(k, 0.0)
        return shape * special.gammaincc(shape + 1, k) - k * special.gammaincc(shape, k)

    return _Claim(f"gamma {shape:.1f}", lambda u: special.gammaincinv(shape, u), stop_loss)


def _lognormal(rng: np.random.Generator) -> _Claim:
    sd = rng.uniform(0.5, 2.0)

    def stop_loss(k: np.ndarray) -> np.ndarray:
        d = -np.log(np.maximum(k, 1e-300)) / sd
        return math.exp(sd**2 / 2) * ndtr(d + sd) - k * ndtr(d)

    return _Claim(f"lognormal {sd:.1f}", lambda u: np.exp(sd * special.ndtri(u)), stop_loss)


def _pareto(rng: np.random.Generator) -> _Claim:
    tail = rng.uniform(1.6, 4.0)

    def stop_loss(k: np.ndarray) -> np.ndarray:
        beyond = np.maximum(k, 1.0) ** (1 - tail) / (tail - 1)
        return beyond + np.maximum(1.0 - k, 0.0)

    # 1 − u loses its digits near 1, but a uniform has them only to 1e-16 anyway.
    return _Claim(f"Pareto {tail:.1f}", lambda u: (1 - u) ** (-1 / tail), stop_loss)


def _student(rng: np.random.Generator) -> _Claim:
    df, shift = rng.uniform(2.2, 6.0), rng.uniform(0.0, 1.0)

    def stop_loss(k: np.ndarray) -> np.ndarray:
        a = k - shift
        return (df + a**2) / (df - 1) * stats.t.pdf(a, df) - a * stats.t.sf(a, df)

    return _Claim(f"Student {df:.1f}", lambda u: shift + special.stdtrit(df, u), stop_loss)


@dataclass(frozen=True)
class _Line:
    claim: _Claim
    volume: float
    sensitivity: float
    retention: float
    top: float  # infinite for a cover without limit

    def scale(self, z: np.ndarray) -> np.ndarray:
        return np.exp(self.sensitivity * z)

    def paid(self, amount: np.ndarray) -> np.ndarray:
        return self.volume * np.clip(amount - self.retention, 0.0, self.top - self.retention)

    def mean(self, z: np.ndarray) -> np.ndarray:
        scale = self.scale(z)
        value = self.claim.stop_loss(self.retention / scale)
        if math.isfinite(self.top):
            value = value - self.claim.stop_loss(self.top / scale)
        return self.volume * scale * value


def _line(rng: np.random.Generator) -> _Line:
    claim = choice(rng, _gamma, _lognormal, _pareto, _student)(rng)
    low, high = np.sort(rng.uniform(0.3, 0.99, 2))
    retention = 0.0 if rng.random() < 0.2 and "S" not in claim.name else low
    retention = float(claim.quantile(np.array(retention))) if retention else 0.0
    top = float(claim.quantile(np.array(max(high, low + 0.2) if low < 0.79 else 0.999)))
    unlimited = rng.random() < 0.5
    # The mean of a Pareto layer grows with a power of the scale.
    sensitivity = float(rng.uniform(0.1, 0.6)) * (0.5 if "Pareto" in claim.name else 1.0)
    line = _Line(claim, 1.0, sensitivity, retention, math.inf if unlimited else top)
    volume = rng.uniform(0.5, 2.0) / float(line.mean(np.array(0.0)))
    return _Line(claim, volume, sensitivity, retention, line.top)


_SMOOTH = {
    "log": np.log,
    "root": np.sqrt,
    "square": np.square,
    "utility": lambda j: -np.exp(-j),
}


def sketch(rng: np.random.Generator) -> Sketch:
    n = int(rng.integers(1, 5))
    lines = [_line(rng) for _ in range(n)]
    total = Sum(tuple(line.mean for line in lines), rng.uniform(0.0, 0.8, n))
    kind = choice(rng, EXCEEDANCE, EXCESS, *_SMOOTH)
    level, outer_base, inner_base = choice(rng, *LEVELS), base(rng), base(rng)
    limit = float(f"{np.quantile(total.draws(14), level):.6g}")
    factor = np.linalg.cholesky(total.correlation)

    def inner(theta: np.ndarray) -> nq.Transport:
        scales = np.stack([line.scale(theta[:, i]) for i, line in enumerate(lines)], axis=-1)

        def claims(u: np.ndarray) -> np.ndarray:
            u = np.clip(ndtr(u) if inner_base == "normal" else u, 1e-16, 1 - 1e-16)
            y = np.stack([line.claim.quantile(u[..., i]) for i, line in enumerate(lines)], axis=-1)
            return scales[:, None, :] * y

        return nq.Transport(claims, dim=n, base=inner_base, out_dim=n)

    def truth() -> Truth:
        if kind == EXCEEDANCE:
            return total.exceedance(limit)
        if kind == EXCESS:
            return total.excess(limit)
        if kind == "square" and n > 1:
            return total.square()
        f = _SMOOTH[kind]
        if n == 1:
            # A Pareto layer has a kink where the smallest claim reaches one of its ends.
            ends = (lines[0].retention, lines[0].top)
            kinks = [math.log(one) / lines[0].sensitivity for one in ends if 0 < one < math.inf]
            return moments(lambda z: f(lines[0].mean(z)), kinks)
        return total.mean(f)

    tail = f" at {100 * level:g} %" if kind in (EXCEEDANCE, EXCESS) else ""
    return Sketch(
        nq.NestedExpectation(
            outer=written(lambda z: correlated(factor, z), n, n, outer_base),
            inner=inner,
            g=lambda x, theta: sum(line.paid(x[..., i]) for i, line in enumerate(lines)),
            f=_SMOOTH[kind] if kind in _SMOOTH else tail_f(kind, limit),
        ),
        truth,
        f"{kind}{tail}, {', '.join(line.claim.name for line in lines)}",
        positive=kind in ("log", "root"),
    )
