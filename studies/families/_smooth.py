"""Smooth: sums of waves and exponentials, narrow peaks; additive or interacting, up to 12 + 12.

Sums Σ c_k exp(s_k·θ + t_k·x) with complex s_k and t_k are waves, exponentials or both: J is a sum
of the same kind, and every power of it has an exact mean by moment generating functions. Peaks and
other f depend on θ through one normal index and are integrals on a line.
"""

from __future__ import annotations

import itertools
import math

import numpy as np

import nestquad as nq
from studies.families._sketch import Sketch, base, choice, direction, dot, written
from studies.families._truth import Truth, crossings, moments


def sketch(rng: np.random.Generator) -> Sketch:
    return choice(rng, _sum, _sum, _peak, _wave)(rng)


def _generating(s: np.ndarray, uniform: bool) -> complex:
    """E exp(s·v) of independent standard normals, or of uniforms on (−1, 1)."""
    if not uniform:
        return complex(np.exp((s**2).sum() / 2))
    near = np.abs(s) < 1e-8
    safe = np.where(near, 1.0, s)
    return complex(np.prod(np.where(near, 1.0, np.sinh(safe) / safe)))


def _sum(rng: np.random.Generator) -> Sketch:
    d, dx, terms = (int(rng.integers(1, top)) for top in (13, 13, 6))
    uniform, how, additive = rng.random() < 0.5, base(rng), rng.random() < 0.4
    waves, power = rng.random() < 0.7, choice(rng, 2, 2, 3)
    # A wave with this many periods between −1 and 1, or between −2 and 2 standard deviations.
    periods = choice(rng, 1.0, 3.0, 20.0)
    theta_rate = math.pi * periods if uniform else math.pi * periods / 2
    s, t = np.zeros((terms, d), dtype=complex), np.zeros((terms, dx), dtype=complex)
    for k in range(terms):
        for rows, dim, rate in ((s, d, theta_rate), (t, dx, 2.0)):
            used = 1 if additive else int(rng.integers(1, min(dim, 4) + 1))
            at = rng.permutation(dim)[:used]
            size = rng.uniform(0.2, 1.0, used) / math.sqrt(used) * rng.choice([-1, 1], used)
            rows[k, at] = 1j * rate * size if waves else 0.8 * size
    c = rng.normal(size=terms) * np.exp(1j * rng.uniform(0, 2 * math.pi, terms) * waves)
    shift = rng.uniform(-0.5, 0.5)
    damped = c * np.array([_generating(row, uniform) for row in t])
    damped = damped / max(np.abs(damped).max(), 1e-3)
    c = c / max(np.abs(c * np.array([_generating(row, uniform) for row in t])).max(), 1e-3)

    def total(x: np.ndarray, theta: np.ndarray) -> np.ndarray:
        value = shift
        for k in range(terms):
            if waves:
                phase = np.angle(c[k]) + dot(theta, s[k].imag) + dot(x, t[k].imag)
                value = value + abs(c[k]) * np.cos(phase)
            else:
                value = value + c[k].real * np.exp(dot(theta, s[k].real) + dot(x, t[k].real))
        return value

    def law(dim: int):
        if uniform:
            return nq.Uniform(-np.ones(dim), np.ones(dim))
        return written(lambda z: z, dim, dim, how)

    def truth() -> Truth:
        # Re z = (z + z̄)/2, and a constant is a term too.
        size = np.concatenate([[shift], damped / 2, damped.conj() / 2])
        rate = np.concatenate([np.zeros((1, d)), s, s.conj()])

        def moment(p: int) -> float:
            value = 0.0
            for some in itertools.combinations_with_replacement(range(size.size), p):
                chosen = list(some)
                repeats = [math.factorial(chosen.count(one)) for one in set(chosen)]
                ways = math.factorial(p) / math.prod(repeats)
                mean = _generating(rate[chosen].sum(axis=0), uniform)
                value += ways * (np.prod(size[chosen]) * mean).real
            return value

        value = moment(power)
        spread = math.sqrt(moment(2 * power) - value**2)
        return Truth(value, 1e-13 * max(abs(value), spread), spread)

    what = f"waves of {periods:g} periods" if waves else "exponentials"
    how_many = f"{terms} {'additive ' if additive else ''}{what}"
    return Sketch(
        nq.NestedExpectation(
            outer=law(d),
            inner=law(dx),
            g=total,
            f=lambda j: j**power,
        ),
        truth,
        f"{how_many}, {d} + {dx} dimensions, {'uniform' if uniform else 'normal'}, power {power}",
    )


def _peak(rng: np.random.Generator) -> Sketch:
    """A peak of width 0.01–0.3 in an index of θ, blurred by an index of x."""
    d, dx = int(rng.integers(1, 13)), int(rng.integers(1, 13))
    way, across = direction(rng, d), direction(rng, dx)
    width = 10 ** rng.uniform(-2.0, -0.5)
    blur, at = width * rng.uniform(0.3, 3.0), rng.normal() * 0.7
    wide = math.hypot(width, blur)

    def g(x: np.ndarray, theta: np.ndarray) -> np.ndarray:
        gap = dot(theta, way) - at + blur * dot(x, across)
        return np.exp(-0.5 * (gap / width) ** 2)

    def j(w: np.ndarray) -> np.ndarray:
        return width / wide * np.exp(-0.5 * ((w - at) / wide) ** 2)

    kind = choice(rng, "square", "log", "excess", "root")
    level = 0.3 * width / wide
    f = {
        "square": lambda v: v**2,
        "log": lambda v: np.log(0.05 + v),
        "excess": lambda v: np.maximum(v - level, 0.0),
        "root": lambda v: np.sqrt(0.01 + v),
    }[kind]
    breaks = [at + k * wide for k in np.arange(-8, 8.5, 0.5)]
    breaks += [at + sign * wide * math.sqrt(2 * math.log(1 / 0.3)) for sign in (-1, 1)]
    return Sketch(
        nq.NestedExpectation(
            outer=written(lambda z: z, d, d, base(rng)),
            inner=written(lambda z: z, dx, dx, base(rng)),
            g=g,
            f=f,
        ),
        lambda: moments(lambda w: f(j(w)), breaks),
        f"peak of width {width:.2g}, {d} + {dx} dimensions, f = {kind}",
        positive=kind in ("log", "root"),
    )


def _wave(rng: np.random.Generator) -> Sketch:
    """A wave in an index of θ under an f that is no polynomial."""
    d, dx = int(rng.integers(1, 13)), int(rng.integers(1, 13))
    way, across = direction(rng, d), direction(rng, dx)
    rate = math.pi / 2 * choice(rng, 0.5, 1.0, 3.0, 10.0)
    phase, trend, height = (
        rng.uniform(0, 2 * math.pi),
        rng.uniform(-0.3, 0.3),
        rng.uniform(0.2, 0.6),
    )
    blur = rng.uniform(0.3, 1.5)

    def g(x: np.ndarray, theta: np.ndarray) -> np.ndarray:
        w, v = dot(theta, way), dot(x, across)
        return 1.0 + trend * np.tanh(w) + height * np.cos(rate * w + phase + blur * v) + 0.2 * v

    def j(w: np.ndarray) -> np.ndarray:
        damped = height * math.exp(-(blur**2) / 2)
        return 1.0 + trend * np.tanh(w) + damped * np.cos(rate * w + phase)

    kind, level = choice(rng, "exp", "excess", "tanh", "distance"), rng.uniform(0.8, 1.2)
    f, kinked = {
        "exp": (lambda v: np.exp(v), False),
        "excess": (lambda v: np.maximum(v - level, 0.0), True),
        "tanh": (lambda v: np.tanh(5 * (v - level)), False),
        "distance": (lambda v: np.abs(v - level), True),
    }[kind]

    def truth() -> Truth:
        return moments(lambda w: f(j(w)), crossings(lambda w: j(w) - level) if kinked else ())

    return Sketch(
        nq.NestedExpectation(
            outer=written(lambda z: z, d, d, base(rng)),
            inner=written(lambda z: z, dx, dx, base(rng)),
            g=g,
            f=f,
        ),
        truth,
        f"wave of {2 * rate / math.pi:g} periods, {d} + {dx} dimensions, f = {kind}",
    )
