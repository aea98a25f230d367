"""Pilot of derivatives: the step of differences of g, jumps of g, and parameters that act on it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from nestquad._typing import Array
from nestquad.errors import DiscontinuityError, InputError, NestquadError, NumericalError
from nestquad.evaluate._call import f_or_nan
from nestquad.evaluate._tangents import Driving, Tangents

__all__ = ["Pilot", "PilotSettings"]


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
    wide
        Relative steps that look for jumps of g: 5 % of a strike or a volatility carries several
        percent of the points across the jump of a digital option, 20 % carries three times more.
    far
        Relative steps of a component with slope zero at all points: it acts by jumps, beyond kinks,
        or not at all.
    suspicious
        Distance of g to its tangent, relative to twice the sum of its own and of the mean slope
        times the step, beyond which a jump is looked for.
    candidates, halvings
        Points of each step at which a jump is looked for by bisection, and its depth.
    left
        Share of the change of g that a jump leaves on the last interval. A smooth g leaves 2^-26,
        and a root 2^-13.
    wrong_slope, wrong_share
        Relative error of a given derivative at a point that counts as wrong, and the share of wrong
        points from which on it is refused: a few may lie at a kink.
    """

    steps: tuple[float, ...] = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7)
    agreement: float = 1e-8
    disagreement: float = 0.02
    n_ladder: int = 32
    share: float = 0.1
    fewest: int = 8
    most: int = 256
    small: float = 1e-2
    resolved: float = 1e-7
    wide: tuple[float, ...] = (0.05, 0.2)
    far: tuple[float, ...] = (50.0, 2.0, 0.5)
    suspicious: float = 0.25
    candidates: int = 4
    halvings: int = 26
    left: float = 2.0**-7
    wrong_slope: float = 0.01
    wrong_share: float = 0.05


class Pilot:
    """Points at which derivatives of g are checked.

    Attributes
    ----------
    tangents
        Derivatives, with the step that was chosen.
    w, v
        Driving variables (n, 1, ·) of x and θ.
    n_spent
        Evaluations of g so far.
    disagreement
        Relative difference of slopes at two steps.
    values, slopes
        g (n, p) and its scaled derivatives (n, p, K) at the points.
    """

    settings = PilotSettings()

    def __init__(self, tangents: Tangents, budget: int | None) -> None:
        own, k = self.settings, len(tangents.phi)
        each = 3 + 4 * len(own.wide) + (2 * k if tangents.derivative == "difference" else 0)
        n = own.most if budget is None else int(own.share * budget / each)
        n = int(np.clip(n, own.fewest, own.most))
        problem, rng = tangents.problem, np.random.default_rng(0)
        laws = Driving(tangents.inner_law), Driving(problem.outer_law)
        self.w, self.v = (
            law.from_uniform(rng.uniform(1e-9, 1.0 - 1e-9, (n, 1, law.base_dim))) for law in laws
        )
        self.tangents, self.n_spent = tangents, 0
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
        for direction in signs:
            self._check(direction)
        still = [i for i in range(k) if not self.slopes[..., i].any()]
        beyond = [i for i in still if self._acts_beyond(i)]
        active = tuple(i for i in range(k) if i not in still or i in beyond)
        self.tangents = replace(self.tangents, active=active)

    def _at(self, steps: Array, rows: slice = slice(None)) -> Array:
        """g (n, p) at φ + s · steps."""
        w, v = self.w[rows], self.v[rows]
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
        """Whether g changes at a point, or points move, if component k of slope zero moves far.

        Raises where g jumps.
        """
        own, unit = self.settings, np.eye(len(self.tangents.phi))[k]
        for step in own.far:
            reached = ((side * unit, self._tried(side * unit)) for side in (step, -step))
            known = [(reach, np.abs(g - self.values)) for reach, g in reached if g is not None]
            for reach, change in known:
                self._look_for_jumps(change, reach)
            if any(change.any() for _, change in known):
                return True
        return k in self.tangents.in_laws

    def _tried(self, steps: Array, rows: slice = slice(None)) -> Array | None:
        """g (n, p) at φ + s · steps; None where there is no such problem."""
        try:
            with np.errstate(all="ignore"):
                return self._at(steps, rows)
        except NestquadError:  # such as a correlation beyond 1
            return None

    def _check(self, signs: Array) -> None:
        """Compare slopes with differences of g along a direction, small and wide.

        A wide step that disagrees with the slope at a point may have met a jump of g, a kink or
        curvature. Bisection tells: the change of g across a jump does not shrink.
        """
        own, along = self.settings, self.slopes @ signs  # (n, p)
        if self.tangents.derivative != "difference" or self.tangents.gradient is not None:
            self._check_given(along, signs)
        mean, size = np.abs(along).mean(axis=0), np.abs(self.values).max()
        for step in (side * wide for wide in own.wide for side in (1.0, -1.0)):
            reached = ((h, self._tried(h * signs)) for h in step * 0.5 ** np.arange(6.0))
            step, there = next(((h, g) for h, g in reached if g is not None), (step, None))
            if there is None:
                continue
            rest = np.abs(there - self.values - step * along)
            limit = 2.0 * abs(step) * (np.abs(along) + mean) + 1e-9 * size
            ratio = rest / np.maximum(limit, 1e-300)
            self._look_for_jumps(np.where(ratio > own.suspicious, ratio, 0.0), step * signs)

    def _look_for_jumps(self, suspicion: Array, reach: Array) -> None:
        """Raise if g jumps between φ and φ + s · reach, at points of the largest suspicion (n, p).

        A jump at the same parameters for all points, such as a change of regime, is none in x.
        """
        order = np.argsort(-suspicion.max(axis=1))[: self.settings.candidates]
        jumps = []
        for at in order[suspicion[order].max(axis=1) > 0]:
            jump = self._bisected(int(at), int(np.argmax(suspicion[at])), reach)
            if jump is not None:
                jumps.append((int(at), *jump))
        places = [place for _, _, place, _ in jumps]
        if len(jumps) == 1 or np.ptp(places or [0.0]) > 1e-3:
            self._refuse(*jumps[int(np.argmin(places))], reach)

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

    def _bisected(self, at: int, c: int, reach: Array) -> tuple[int, float, float] | None:
        """Output, place between 0 and 1 and size of a jump of g at one point; None without one."""
        row = slice(at, at + 1)
        low, high, g_low = 0.0, 1.0, self.values[at, c]
        g_high = self._at(reach, row)[0, c]
        first = abs(g_high - g_low)
        for _ in range(self.settings.halvings):
            middle = 0.5 * (low + high)
            g_middle = self._at(middle * reach, row)[0, c]
            if abs(g_middle - g_low) > abs(g_high - g_middle):
                high, g_high = middle, g_middle
            else:
                low, g_low = middle, g_middle
            if abs(g_high - g_low) <= self.settings.left * first:
                return None
        return c, low, float(abs(g_high - g_low))

    def _refuse(self, at: int, c: int, low: float, jump: float, reach: Array) -> None:
        """Name the jump of output c of g at a point, and parameters that cross it alone."""
        row, labels = slice(at, at + 1), self.tangents.family.labels()
        before, here = self._at(low * reach, row)[0, c], np.eye(len(reach))

        def crosses(k: int) -> bool:
            there = self._tried(low * reach + 2.0**-6 * reach * here[k], row)
            return there is not None and bool(abs(there[0, c] - before) > 0.5 * jump)

        names = [label for k, label in enumerate(labels) if reach[k] and crosses(k)]
        names = names or [label for label, move in zip(labels, reach, strict=True) if move]
        problem = self.tangents.moved(low * reach)
        x, theta = self.tangents.points(problem, self.w[row], self.v[row])
        raise DiscontinuityError(
            f"g jumps by {jump:.4g} where {', '.join(names)} {'move' if names[1:] else 'moves'} by "
            f"{low * np.abs(reach).max():.2%}, at theta = {theta[0].tolist()}, "
            f"x = {x[0, 0].tolist()}: the derivative of J is not the mean of that of g. Replace "
            "the jump by its mean over a part of x (for a digital option, its probability given "
            "the step before), or by a steep ramp; or difference two estimates with the same seed."
        )


def _relative_gap(a: Array, b: Array) -> float:
    """Mean difference of slopes (n, p) relative to their mean size, the largest over outputs."""
    size = 0.5 * (np.abs(a) + np.abs(b)).mean(axis=0)
    return float((np.abs(a - b).mean(axis=0) / np.where(size > 0, size, 1.0)).max())
