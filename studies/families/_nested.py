"""Tails of sums of functions of correlated normals to ten digits, by nested quadrature.

`_truth.Sum` has five digits in two and more dimensions. Here every integral is cut where the next
one inside is not smooth: where the level left over is a turning value of what remains. Between the
cuts a substitution removes square roots at the ends, and Gauss–Legendre rules converge fast.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce

import numpy as np
from scipy.special import ndtr

from studies.families._truth import Function, Sum, Truth
from studies.quadrature import FAR, legendre, normal_density, normal_nodes

_ORDERS = (10, 14, 20, 28, 40)
_TARGET = 1e-10  # change with the order, a part of the value


@dataclass(frozen=True)
class _Pieces:
    """A smooth function on [-FAR, FAR], cut at its turning points; `values` are those at `ends`."""

    part: Function
    ends: np.ndarray
    values: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", self.part(self.ends))

    @classmethod
    def of(cls, part: Function, n: int = 40_001) -> _Pieces:
        grid = np.linspace(-FAR, FAR, n)
        values = part(grid)
        # Steps in units of rounding: flat ends turn nowhere.
        steps = np.rint(np.diff(values) / (1e-12 * np.ptp(values)))
        moving = np.flatnonzero(steps)
        at = np.flatnonzero(np.sign(steps[moving][1:]) != np.sign(steps[moving][:-1]))
        low, high = grid[moving[at]], grid[moving[at + 1] + 1]
        rising = steps[moving[at]] > 0
        for _ in range(40):
            middle, gap = (low + high) / 2, 1e-5
            before = (part(middle + gap) > part(middle - gap)) == rising
            low, high = np.where(before, middle, low), np.where(before, high, middle)
        return cls(part, np.concatenate([[-FAR], (low + high) / 2, [FAR]]))

    def above(self, level: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Ends (pieces, m) of where each piece exceeds the levels (m,); equal ends if nowhere."""
        shape = (self.ends.size - 1, level.size)
        left, right = (
            np.broadcast_to(end[:, None], shape) for end in (self.ends[:-1], self.ends[1:])
        )
        rising = (self.values[1:] > self.values[:-1])[:, None]
        low, high = left, right
        for _ in range(56):
            middle = (low + high) / 2
            beyond = (self.part(middle) > level) == rising
            low, high = np.where(beyond, low, middle), np.where(beyond, middle, high)
        root = (low + high) / 2
        return np.where(rising, root, left), np.where(rising, right, root)


@dataclass(frozen=True)
class _Tail:
    """E f(J) of a sum J for an exceedance or an expected excess over a level."""

    pieces: tuple[_Pieces, ...]
    factor: np.ndarray
    order: int
    is_excess: bool

    def beyond(self, level: float, z: tuple[float, ...] = ()) -> float:
        """The mean given the first independent normals z; `level` is less their parts of J."""
        i, n = len(z), len(self.pieces)
        mean, sd = float(self.factor[i, :i] @ z), self.factor[i, i]
        if i == n - 1:
            return float(self._last(np.array([level]), np.array([mean]))[0])
        turning = reduce(np.add.outer, (one.values for one in self.pieces[i + 1 :])).ravel()
        cuts = (np.stack(self.pieces[i].above(level - turning)).ravel() - mean) / sd
        nodes, weight = _graded(cuts, self.order)
        left = level - self.pieces[i].part(mean + sd * nodes)
        if i == n - 2:
            means = self.factor[n - 1, :i] @ np.array(z) + self.factor[n - 1, i] * nodes
            return float(weight @ self._last(left, means))
        inside = [self.beyond(one, (*z, node)) for one, node in zip(left, nodes, strict=True)]
        return float(weight @ inside)

    def _last(self, level: np.ndarray, mean: np.ndarray) -> np.ndarray:
        one, sd = self.pieces[-1], self.factor[-1, -1]
        low, high = (np.clip((end - mean) / sd, -FAR, FAR) for end in one.above(level))
        if not self.is_excess:
            # Differences on the side where ndtr is small keep the digits of rare events.
            mass = np.where(low > 0, ndtr(-low) - ndtr(-high), ndtr(high) - ndtr(low))
            return mass.sum(axis=0)
        total, panels = np.zeros(level.size), 6 if len(self.pieces) > 1 else 48
        for k in range(panels):
            step = (high - low) / panels
            e, weight = legendre(low + k * step, low + (k + 1) * step, self.order)
            gain = one.part(mean[:, None] + sd * e) - level[:, None]
            total += (gain * normal_density(e) * weight).sum(axis=(0, 2))
        return total


def tail(total: Sum, level: float, is_excess: bool) -> Truth:
    """P(J > level), or E max(J − level, 0); the scale is the value."""
    pieces = tuple(_Pieces.of(part) for part in total.parts)
    factor = np.linalg.cholesky(total.correlation)
    before = _Tail(pieces, factor, _ORDERS[0], is_excess).beyond(level)
    for order in _ORDERS[1:]:
        value = _Tail(pieces, factor, order, is_excess).beyond(level)
        error, before = abs(value - before), value
        if error <= _TARGET * value:
            break
    return Truth(value, error + 1e-12 * value, value)


def smooth_mean(total: Sum, f: Function) -> Truth:
    """E f(J) for a smooth f, by a product rule; the scale is the sd of f(J)."""
    factor, n = np.linalg.cholesky(total.correlation), len(total.parts)
    values = []
    for nodes in (300, 400) if n < 3 else (100, 130):
        z, weight = normal_nodes(nodes)
        grids = np.meshgrid(*[z] * n, indexing="ij")
        normals = np.stack([sum(row[k] * grids[k] for k in range(n)) for row in factor], axis=-1)
        mass = reduce(np.multiply.outer, [weight] * n)
        image = f(total(normals))
        values.append(mean := float((mass * image).sum()))
    spread = float(np.sqrt((mass * (image - mean) ** 2).sum()))
    return Truth(mean, abs(values[1] - values[0]) + 1e-14 * spread, spread)


def _graded(cuts: np.ndarray, order: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and normal weights on panels between the cuts, each with smooth ends of slope zero."""
    inside = cuts[np.abs(cuts) < FAR]
    ends = np.unique(np.concatenate([np.linspace(-FAR, FAR, 19), inside]))
    t, weight = legendre(0.0, 1.0, order)
    width = np.diff(ends)[:, None]
    z = ends[:-1, None] + width * (t**2 * (3 - 2 * t))
    return z.ravel(), (width * weight * 6 * t * (1 - t) * normal_density(z)).ravel()
