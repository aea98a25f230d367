"""Pilot of derivatives: the step of differences of g, jumps of g, and parameters that act on it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from nestquad._typing import Array
from nestquad.errors import DiscontinuityError, InputError, NestquadError, NumericalError
from nestquad.evaluate._tangents import Driving, Tangents

__all__ = ["Pilot", "PilotSettings"]


@dataclass(frozen=True)
class PilotSettings:
    """Tuning numbers of the pilot.

    Attributes
    ----------
    steps
        Candidate steps of central differences, relative to the scale of a parameter: those at which
        neighbors agree best balance rounding ε/h and curvature h². ε^(1/3) = 6e-6 is the optimum
        for an analytic g in double precision (Press and others 2007, Numerical recipes, section
        5.7); a solver with errors of 1e-8 needs 2e-3.
    agreement, disagreement
        Relative difference of slopes at two steps that is small beside any error of sampling, and
        one beyond which g is refused as too rough.
    n_ladder
        Points at which steps are compared.
    share, fewest, most
        Share of a budget for the pilot, and limits of its number of points. A jump that one point
        in a hundred meets is missed by 256 points with probability e^-2.6 = 7 %.
    wide
        Relative step that looks for jumps of g: 5 % of a strike or a volatility carries several
        percent of the points across the jump of a digital option.
    candidates, halvings
        Points at which a jump is confirmed by bisection, and its depth: a continuous g has changed
        by 2^-16 of the step's change on the last interval if it is linear.
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
    wide: float = 0.05
    candidates: int = 6
    halvings: int = 16
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
        each = 7 + (2 * k if tangents.derivative == "difference" else 0)
        n = own.most if budget is None else int(own.share * budget / each)
        n = int(np.clip(n, own.fewest, own.most))
        problem, rng = tangents.problem, np.random.default_rng(0)
        laws = Driving(tangents.inner_law), Driving(problem.outer_law)
        self.w, self.v = (
            law.from_uniform(rng.uniform(1e-9, 1.0 - 1e-9, (n, 1, law.base_dim))) for law in laws
        )
        self.tangents, self.n_spent = tangents, 0
        signs = np.random.default_rng(1).choice([-1.0, 1.0], size=(2, k))
        step, self.disagreement = self._step(signs[0])
        in_laws = frozenset(i for i in range(k) if self._moves_points(i, step))
        self.tangents = replace(tangents, step=step, in_laws=in_laws, active=tuple(range(k)))
        values, slopes = self.tangents(self.w, self.v)
        self.n_spent += n * self.tangents.cost
        self.values, self.slopes = values[:, 0], slopes[:, 0]
        for direction in signs:
            self._check(direction)
        active = [i for i in range(k) if self.slopes[..., i].any() or self._acts_beyond(i)]
        self.tangents = replace(self.tangents, active=tuple(active))

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
                "g is random, or too rough in the parameters. Fix its noise, or give gradient=."
            )
        return float(np.sqrt(steps[best] * steps[best + 1])), gaps[best]

    def _moves_points(self, k: int, step: float) -> bool:
        """Whether component k moves θ or x."""
        tangents = self.tangents
        here = tangents.points(tangents.problem, self.w, self.v)
        beside = (tangents.points(side, self.w, self.v) for side in tangents.sides(k, step))
        return any(not all(map(np.array_equal, here, there)) for there in beside)

    def _acts_beyond(self, k: int) -> bool:
        """Whether g changes at a point if component k moves by a wide step."""
        wide = self.settings.wide * np.eye(len(self.tangents.phi))[k]
        return any(
            there is not None and not np.array_equal(there, self.values)
            for there in (self._tried(wide), self._tried(-wide))
        )

    def _tried(self, steps: Array) -> Array | None:
        """g (n, p) at φ + s · steps; None where there is no such problem."""
        try:
            return self._at(steps)
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
        for side in (1.0, -1.0):
            widths = own.wide * 0.5 ** np.arange(6)
            reached = ((h, self._tried(side * h * signs)) for h in widths)
            step, there = next(((h, g) for h, g in reached if g is not None), (0.0, None))
            if there is None:
                continue
            rest = np.abs(there - self.values - side * step * along)
            limit = np.maximum(2.0 * step * (np.abs(along) + mean) + 1e-9 * size, 1e-300)
            ratio = rest / limit
            for at in np.argsort(-ratio.max(axis=1))[: own.candidates]:
                if ratio[at].max() > 1.0:
                    self._bisect(int(at), int(np.argmax(ratio[at])), side * step * signs)

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

    def _bisect(self, at: int, c: int, reach: Array) -> None:
        """Raise if output c of g, at one point, jumps between φ and φ + s · reach."""
        row = slice(at, at + 1)

        def g(steps: Array) -> float:
            return float(self._at(steps, row)[0, c])

        low, high = 0.0, 1.0
        g_low, g_high = g(low * reach), g(reach)
        first = abs(g_high - g_low)
        for _ in range(self.settings.halvings):
            middle = 0.5 * (low + high)
            g_middle = g(middle * reach)
            if abs(g_middle - g_low) > abs(g_high - g_middle):
                high, g_high = middle, g_middle
            else:
                low, g_low = middle, g_middle
        jump = abs(g_high - g_low)
        if not first or jump < 0.5 * first:
            return

        def crossing() -> Iterator[str]:
            """Names of parameters that cross the jump alone."""
            for k, label in enumerate(self.tangents.family.labels()):
                alone = low * reach + 2.0**-6 * reach * np.eye(len(reach))[k]
                if abs(g(alone) - g_low) > 0.5 * jump:
                    yield label

        names = ", ".join(crossing()) or ", ".join(self.tangents.family.names)
        problem: Any = self.tangents.moved(low * reach)
        x, theta = self.tangents.points(problem, self.w[row], self.v[row])
        verb = "move" if "," in names else "moves"
        raise DiscontinuityError(
            f"g jumps by {jump:.4g} where {names} {verb} by {low * np.abs(reach).max():.2%}, at "
            f"theta = {theta[0].tolist()}, x = {x[0, 0].tolist()}: the derivative of J is not the "
            "mean of that of g. Replace the jump by its mean over a part of x (for a digital "
            "option, its probability given the step before), or by a steep ramp; or difference "
            "two estimates with the same seed."
        )


def _relative_gap(a: Array, b: Array) -> float:
    """Mean difference of slopes (n, p) relative to their mean size, the largest over outputs."""
    size = 0.5 * (np.abs(a) + np.abs(b)).mean(axis=0)
    return float((np.abs(a - b).mean(axis=0) / np.where(size > 0, size, 1.0)).max())
