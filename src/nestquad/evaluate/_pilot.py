"""Pilot of derivatives: the step of differences of g, jumps of g, and parameters that act on it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from scipy.special import ndtr

from nestquad._typing import Array, Indices
from nestquad.errors import DiscontinuityError, InputError, NestquadError, NumericalError
from nestquad.evaluate._call import f_or_nan
from nestquad.evaluate._tangents import Tangents, driving_law

__all__ = ["Pilot", "PilotSettings"]

# Step relative to a parameter that moves a jump by more than the last interval of its bisection.
_NUDGE = 1e-4


@dataclass(frozen=True)
class PilotSettings:
    """Tuning numbers of the pilot.

    Attributes
    ----------
    steps
        Candidate steps of central differences, relative to the scale of a parameter: the step at
        which neighbors agree best balances rounding ε/h and curvature h². ε^(1/3) = 6e-6 is the
        optimum for an analytic g in double precision (Press and others 2007, Numerical recipes,
        section 5.7); a solver with errors of 1e-8 needs 2e-3.
    agreement, disagreement
        Relative difference of slopes at two steps that is below any error of sampling, and
        one beyond which g is refused as too rough.
    n_ladder
        Points at which steps are compared.
    share, fewest, most
        Share of a budget for the pilot, and limits of its number of points.
    small, resolved
        A parameter below `small` of which 1 % changes neither g nor f by the share `resolved` has a
        larger unit than its own size: differences would be rounding.
    far
        Relative steps of a component with slope zero at all points: it acts by jumps, beyond kinks,
        or not at all.
    wide
        Relative step of the parameters that shows points beside a jump.
    on_line, most_lines, beyond
        Points of a line through θ and x on which jumps of g are looked for, most lines, and how far
        beyond a ball with most of the probability they reach, in standard deviations.
    halvings, left
        Depth of the bisection of a jump, and share of the change of g that a jump leaves on the
        last interval. A smooth g leaves 2^-26, and a root 2^-13.
    material
        Size of a jump relative to the spread of g below which it is an error of a solver.
    wrong_slope, wrong_share
        Relative error of a given derivative at a point that counts as wrong, and the share of wrong
        points from which on it is refused: a few may lie at a kink.
    """

    steps: tuple[float, ...] = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7)
    agreement: float = 1e-8
    disagreement: float = 0.02
    n_ladder: int = 8
    share: float = 0.1
    fewest: int = 8
    most: int = 256
    small: float = 1e-2
    resolved: float = 1e-7
    far: tuple[float, ...] = (50.0, 2.0, 0.5)
    wide: float = 0.2
    on_line: int = 24
    most_lines: int = 64
    beyond: float = 3.0
    halvings: int = 26
    left: float = 2.0**-7
    material: float = 1e-4
    wrong_slope: float = 0.01
    wrong_share: float = 0.05


class Pilot:
    """Points at which derivatives of g are checked.

    Attributes
    ----------
    tangents
        Derivatives, with the step that was chosen.
    z, w, v
        Normal scores (n, d) of x and θ, and their driving variables (n, 1, ·).
    n_spent
        Evaluations of g so far.
    disagreement
        Relative difference of slopes at two steps.
    n_lines
        Lines through θ and x on which jumps of g were looked for.
    values, slopes
        g (n, p) and its scaled derivatives (n, p, K) at the points.
    """

    settings = PilotSettings()

    def __init__(self, tangents: Tangents, budget: int | None) -> None:
        own, k = self.settings, len(tangents.phi)
        each = 3 + (2 * k if tangents.derivative == "difference" else 0)
        n = own.most if budget is None else int(0.3 * own.share * budget / each)
        n = int(np.clip(n, own.fewest, own.most))
        problem, rng = tangents.problem, np.random.default_rng(0)
        dims = [law.base_dim for law in (tangents.inner_law, problem.outer_law)]
        self.tangents, self.z = tangents, rng.standard_normal((n, sum(dims)))
        self.w, self.v = self._driving(self.z)
        self.n_spent = 0
        self.tangents = tangents = replace(tangents, scale=self._scales())
        # Of different lengths: a spot and a strike that move alike meet no jump.
        rng = np.random.default_rng(1)
        signs = rng.choice([-1.0, 1.0], size=(2, k)) * rng.uniform(0.25, 1.0, size=(2, k))
        signs /= np.abs(signs).max(axis=1, keepdims=True)
        step, self.disagreement = self._step(signs[0])
        in_laws = frozenset(i for i in range(k) if self._moves_points(i, step))
        self.tangents = replace(tangents, step=step, in_laws=in_laws, active=tuple(range(k)))
        values, slopes = self.tangents(self.w, self.v)
        self.n_spent += n * self.tangents.cost
        self.values, self.slopes = values[:, 0], slopes[:, 0]
        if tangents.derivative != "difference" or tangents.gradient is not None:
            for direction in signs:
                self._check_given(self.slopes @ direction, direction)
        n = own.most_lines if budget is None else int(0.3 * own.share * budget / own.on_line)
        self.n_lines = int(np.clip(n, 6, own.most_lines))
        self._refuse_jumps(signs)
        still = [i for i in range(k) if not self.slopes[..., i].any()]
        beyond = [i for i in still if self._acts_beyond(i)]
        active = tuple(i for i in range(k) if i not in still or i in beyond)
        self.tangents = replace(self.tangents, active=active)

    def _at(self, steps: Array, at: slice | tuple[Array, Array] = slice(None)) -> Array:
        """g (n, p) at φ + s · steps: at given driving variables, or at rows of the pilot's."""
        w, v = (self.w[at], self.v[at]) if isinstance(at, slice) else at
        self.n_spent += len(w)
        return self.tangents.values(self.tangents.moved(steps), w, v)[:, 0]

    def _slopes(self, steps: Array, size: float, rows: slice = slice(None)) -> Array:
        """Slopes (n, p) of g by central differences of that size along steps."""
        return (self._at(size * steps, rows) - self._at(-size * steps, rows)) / (2.0 * size)

    def _step(self, signs: Array) -> tuple[float, float]:
        """Step whose differences agree with the ones of its neighbor, and how far they disagree."""
        slopes: dict[float, Array] = {}
        failure: NestquadError | None = None
        for step in self.settings.steps:
            try:
                slopes[step] = self._slopes(signs, step, slice(self.settings.n_ladder))
            except NestquadError as error:
                failure = error
        if len(slopes) < 2:
            assert failure is not None
            raise failure
        steps = list(slopes)
        gaps = [_relative_gap(slopes[a], slopes[b]) for a, b in pairwise(steps)]
        # The smallest step that is accurate enough: the fewest points straddle a kink of g.
        enough = max(min(gaps), self.settings.agreement)
        best = max(i for i, gap in enumerate(gaps) if gap <= enough)
        rough = gaps[best] > self.settings.disagreement
        if self.tangents.derivative == "difference" and rough:
            raise NumericalError(
                f"Differences of g at steps of {steps[best]:g} and {steps[best + 1]:g} of the "
                f"parameters differ by {gaps[best]:.0%} of their size, and at other steps by more: "
                "g is random, or too rough in the parameters, or they change it by less than its "
                "rounding. Fix its noise, change the unit of a parameter, or give gradient=."
            )
        return float(np.sqrt(steps[best] * steps[best + 1])), gaps[best]

    def _moves_points(self, k: int, step: float) -> bool:
        """Whether component k moves θ or x."""
        tangents = self.tangents
        here = tangents.points(tangents.problem, self.w, self.v)
        beside = (tangents.points(side, self.w, self.v) for side in tangents.sides(k, step))
        return any(not all(map(np.array_equal, here, there)) for there in beside)

    def _scales(self) -> tuple[float, ...]:
        """Scales of the components: larger than their sizes where 1 % of these has no effect."""
        own, scale = self.settings, np.array(self.tangents.scale)
        rows, eye = slice(own.fewest), np.eye(len(scale))
        here = self._response(np.zeros(len(scale)), rows)
        if here is None:
            return self.tangents.scale
        for k in np.flatnonzero(scale < own.small):
            for factor in 100.0 ** np.arange(0.0, 1.0 - np.log10(scale[k]) / 2.0):
                step = own.steps[0] * factor * eye[k]
                there = self._response(step, rows)
                if there is None or self._response(-step, rows) is None:
                    break
                change = np.abs(there - here) > own.resolved * np.abs(here).max(axis=0)
                if change.any():
                    scale[k] = min(factor * scale[k], 1.0)
                    break
        return tuple(scale.tolist())

    def _response(self, steps: Array, rows: slice) -> Array | None:
        """g and f(g) (n, p + q) at φ + s · steps; None where there is no such problem."""
        g = self._tried(steps, rows)
        if g is None:
            return None
        problem = self.tangents.moved(steps)
        scalar = self.tangents.is_scalar(problem, self.w[:1], self.v[:1])
        f = f_or_nan(problem, g[:, 0] if scalar else g)
        return np.asarray(np.nan_to_num(np.concatenate([g, f], axis=1)))

    def _acts_beyond(self, k: int) -> bool:
        """Whether g changes at a point, or points move, if component k of slope zero moves far."""
        unit = np.eye(len(self.tangents.phi))[k]
        sides = (sign * step * unit for step in self.settings.far for sign in (1.0, -1.0))
        found = (self._tried(side) for side in sides)
        changed = any(g is not None and bool((g != self.values).any()) for g in found)
        return changed or k in self.tangents.in_laws

    def _tried(self, steps: Array, at: slice | tuple[Array, Array] = slice(None)) -> Array | None:
        """g (n, p) at φ + s · steps; None where there is no such problem."""
        try:
            with np.errstate(all="ignore"):
                return self._at(steps, at)
        except NestquadError:  # such as a correlation beyond 1
            return None

    def _refuse_jumps(self, signs: Array) -> None:
        """Raise if g jumps in θ or x at a place that moves with the parameters.

        Lines through the space of normal scores of θ and x reach what few points do not. A jump is
        the change of g that bisection leaves. Where it moves, its two sides are on one side of it
        after a small step along some of `signs`. A jump in the parameters alone is none of J.
        """
        material = self.settings.material * self.values.std(axis=0)
        for low, high, jump, c in zip(*self._jumps(self._near(signs[0])), strict=True):
            ends = np.stack([low, high])

            def moves(steps: Array, ends: Array = ends, jump: float = jump, c: int = c) -> bool:
                g = self._tried(steps, self._driving(ends))
                return g is not None and bool(abs(g[1, c] - g[0, c]) < 0.5 * jump)

            sides = [side * _NUDGE * one for one in signs for side in (1.0, -1.0)]
            if jump > material[c] and any(map(moves, sides)):
                eye, labels = _NUDGE * np.eye(signs.shape[1]), self.tangents.family.labels()
                names = [name for name, e in zip(labels, eye, strict=True) if moves(e) or moves(-e)]
                self._refuse(low, jump, names or labels)

    def _driving(self, z: Array) -> tuple[Array, Array]:
        """Driving variables (n, 1, ·) of x and θ from normal scores (n, d)."""
        u = np.clip(ndtr(z), 1e-15, 1.0 - 1e-15)[:, None]
        inner = driving_law(self.tangents.inner_law)
        w, v = u[..., : inner.dim], u[..., inner.dim :]
        outer = driving_law(self.tangents.problem.outer_law)
        return inner.from_uniform(w), outer.from_uniform(v)

    def _near(self, signs: Array) -> Array:
        """Normal scores (n, d) of the points, first those where g leaves its tangent by most."""
        along, step, away = self.slopes @ signs, self.settings.wide, np.zeros_like(self.values)
        size = (
            step * (np.abs(along) + np.abs(along).mean(axis=0)) + 1e-9 * np.abs(self.values).max()
        )
        for side in (step, -step):
            g = self._tried(side * signs)
            if g is not None:
                away = np.maximum(away, np.abs(g - self.values - side * along) / (size + 1e-300))
        return self.z[np.argsort(-away.max(axis=1), kind="stable")]

    def _jumps(self, near: Array) -> tuple[Array, Array, Array, Indices]:
        """Places (m, d) before and after jumps of g on lines, their sizes and their outputs.

        Two lines are diagonals through the center; others go through points (n, d).
        """
        own, rng = self.settings, np.random.default_rng(2)
        dim, found = near.shape[1], list[tuple[Array, Array, int, float, float]]()
        t = np.linspace(-1.0, 1.0, own.on_line)[:, None] * (np.sqrt(dim) + own.beyond)
        for line in range(self.n_lines):
            any_way = rng.standard_normal(dim)
            along = any_way if line > 1 else np.ones(dim) if line == 0 else np.sign(any_way)
            along = along / np.linalg.norm(along)
            z = t * along + (near[(line - 2) % len(near)] if line > 1 else 0.0)
            g = self._here(z)
            if g is None:
                continue
            change = np.diff(g, axis=0)
            beside = np.pad(change, ((1, 1), (0, 0)), mode="edge")
            trend = 0.5 * (beside[:-2] + beside[2:])
            away = np.abs(change - trend)
            relative = away / (np.abs(beside[:-2]) + np.abs(beside[2:]) + 1e-300)
            for c in range(g.shape[1]):
                places = {int(np.argmax(away[:, c])), int(np.argmax(relative[:, c]))}
                found += [
                    (z[i], z[i + 1] - z[i], c, g[i, c], trend[i, c])
                    for i in sorted(places)
                    if away[i, c]
                ]
        if not found:
            return near[:0], near[:0], np.zeros(0), np.zeros(0, dtype=np.intp)
        starts, steps, outputs, values, trends = map(np.array, zip(*found, strict=True))
        return self._bisected(starts, steps, outputs, values, trends)

    def _bisected(
        self, start: Array, step: Array, c: Indices, g_low: Array, trend: Array
    ) -> tuple[Array, Array, Array, Indices]:
        """Intervals (m, d) at which output c jumps, narrowed, and sizes of the jumps.

        Intervals begin at `start`, where output c is `g_low`; beside a jump, g changes by `trend`.
        """
        own, low = self.settings, np.zeros(len(c))
        ends = self._here(start + step)
        if ends is None:
            return start[:0], start[:0], low[:0], c[:0]
        g_high = ends[np.arange(len(c)), c] - trend
        first = np.abs(g_high - g_low)
        for k in range(1, own.halvings + 1):
            place = low + 0.5**k
            found = self._here(start + place[:, None] * step) if len(c) else None
            if found is None:
                return start[:0], start[:0], low[:0], c[:0]
            g = found[np.arange(len(c)), c] - place * trend
            up = np.abs(g - g_low) <= np.abs(g_high - g)
            low, g_low, g_high = (
                np.where(up, place, low),
                np.where(up, g, g_low),
                np.where(up, g_high, g),
            )
            if k in (4, 8, own.halvings):  # a smooth g leaves 2^-k
                left = np.abs(g_high - g_low) > max(own.left, 2.0 ** (1 - k)) * first
                start, step, c = start[left], step[left], c[left]
                trend, first, low = trend[left], first[left], low[left]
                g_low, g_high = g_low[left], g_high[left]
        high = low + 0.5**own.halvings
        before, after = start + low[:, None] * step, start + high[:, None] * step
        return before, after, np.abs(g_high - g_low), c

    def _here(self, z: Array) -> Array | None:
        """g (n, p) at normal scores (n, d) and the given parameters; None where it fails."""
        return self._tried(np.zeros(self.slopes.shape[-1]), self._driving(z))

    def _check_given(self, along: Array, signs: Array) -> None:
        """Refuse derivatives of others that disagree with differences of g."""
        own, differences = self.settings, self._slopes(signs, self.tangents.step)
        size = np.maximum(np.abs(differences), np.abs(differences).mean(axis=0))
        rounding = 1e-6 * np.abs(self.values).max()
        wrong = np.abs(along - differences) > own.wrong_slope * size + rounding
        if wrong.mean() <= own.wrong_share:
            return
        at = int(np.argmax(wrong.any(axis=1)))
        given = (
            f"a slope of {along[at, 0]:.6g} along all parameters, where differences of g have "
            f"{differences[at, 0]:.6g}"
        )
        argument, advice = "gradient", "Check its formula, and the order of its axes."
        if self.tangents.gradient is None:
            argument = "derivative"
            advice = "math.sqrt, float() and the like cut a parameter off from differentiation."
        raise InputError(argument, given, "derivatives that agree with g", advice)

    def _refuse(self, z: Array, jump: float, names: list[str]) -> None:
        """Name a jump of g at normal scores (d,), and the parameters that move it."""
        x, theta = self.tangents.points(self.tangents.problem, *self._driving(z[None]))
        raise DiscontinuityError(
            f"g jumps by {jump:.4g} where {', '.join(names)} {'move' if names[1:] else 'moves'}, "
            f"at theta = {theta[0].tolist()}, "
            f"x = {x[0, 0].tolist()}: the derivative of J is not the mean of that of g. Replace "
            "the jump by its mean over a part of x (for a digital option, its probability given "
            "the step before), or by a steep ramp; or difference two estimates with the same seed."
        )


def _relative_gap(a: Array, b: Array) -> float:
    """Mean difference of slopes (n, p) relative to their mean size, the largest over outputs."""
    size = 0.5 * (np.abs(a) + np.abs(b)).mean(axis=0)
    return float((np.abs(a - b).mean(axis=0) / np.where(size > 0, size, 1.0)).max())
