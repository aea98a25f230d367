"""Named stress scenarios: J at a θ with an interval, its place in the law of J, contributions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import ndtri

from nestquad import clock
from nestquad._checks import numbers, shown
from nestquad._typing import Array
from nestquad.accuracy import replicate_errors
from nestquad.errors import InputError
from nestquad.evaluate import Design, Evaluations, Evaluator, Grid, OutOfTimeError
from nestquad.points import IID, Given, Sobol, Stream
from nestquad.problem import NestedExpectation
from nestquad.result import NORMAL_95, Estimate
from nestquad.risk._contributions import as_estimate
from nestquad.risk._law import LawOfJ


@dataclass(frozen=True)
class StressSettings:
    """Tuning numbers of stress scenarios.

    Attributes
    ----------
    share
        Share of the budget, or of the seconds, for all stresses: one of many measures.
    replicates
        Independent randomizations of x, whose spread is the error: Student's factor is 1.2.
    first, most
        Points of a randomization at first, and the most towards a tolerance.
    hurried
        Points of a randomization at first where seconds are limited: the fewest that have a mean.
    """

    share: float = 0.1
    replicates: int = 8
    first: int = 16
    most: int = 4096
    hurried: int = 2


STRESSES = StressSettings()


@dataclass(frozen=True, eq=False)
class Stress:
    """J at a stress scenario, by draws of x there alone.

    Attributes
    ----------
    theta
        The scenario (d,).
    loss
        J(θ).
    contributions
        J of each output, which add up to it.
    place
        P(J ≤ J(θ)) over the law of the scenarios; None until the law is known.
    """

    theta: Array
    loss: Estimate
    contributions: Estimate
    place: Estimate | None = None

    def row(self, name: str) -> dict[str, Any]:
        """J, its interval, and its place with an interval."""
        low, high = self.loss.interval()
        row = {"stress": name, "loss": self.loss.value, "low": low, "high": high}
        place = (None,) * 3 if self.place is None else (self.place.value, *self.place.interval())
        return row | dict(zip(("place", "place_low", "place_high"), place, strict=True))

    def placed(self, law: LawOfJ) -> Stress:
        """With the place in each draw of a law, at a draw of J(θ)."""
        if law.pairs is None:
            return self
        n, error = len(law.samples) - 1, float(self.loss.std_error)
        away = ndtri((np.random.default_rng(6).permutation(n) + 0.5) / n)
        losses = float(self.loss.value) + error * np.concatenate([[0.0], away])
        each = zip(law.samples, losses, strict=True)
        place = np.array([1.0 - sample.exceedance(float(loss)) for sample, loss in each])
        return replace(self, place=as_estimate(place, self.loss))


def stress_points(problem: NestedExpectation, stresses: object) -> dict[str, Array]:
    """Scenarios by name, checked."""
    dim = problem.outer_law.dim or problem.outer_law.base_dim
    expected = f"a mapping from names to scenarios of {dim} coordinates"
    if not isinstance(stresses, Mapping):
        raise InputError("stresses", shown(stresses), expected, "Such as {'rates +200': theta}.")
    found = {str(k): np.atleast_1d(numbers("stresses", v, expected)) for k, v in stresses.items()}
    for name, theta in found.items():
        if theta.shape != (dim,) or not np.isfinite(theta).all():
            raise InputError("stresses", f"{name!r}: {shown(stresses[name])}", expected)
    return found


def run_stresses(
    evaluator: Evaluator,
    points: Mapping[str, Array],
    stream: Stream,
    budget: int | None,
    tol: float,
    rtol: float,
    max_seconds: float | None,
) -> dict[str, Stress]:
    """J at each scenario by randomized quasi-Monte Carlo over x: no model takes part.

    Points are doubled until the tolerance is met or time is up, unless a budget says how many.
    """
    theta, replicates = np.stack([*points.values()]), STRESSES.replicates
    rows = replicates * len(theta)
    n = STRESSES.first if max_seconds is None else STRESSES.hurried
    # Twice the points take twice the seconds so far.
    late = np.inf if max_seconds is None else clock.now() + 0.5 * STRESSES.share * max_seconds
    if budget is not None:
        n = max(1 << max(int(STRESSES.share * budget / rows).bit_length() - 1, 0), 2)
    given = Given(np.repeat(theta, replicates, axis=0), "native")
    sampled = not evaluator.problem.inner_law(theta[:1]).has_transport
    while True:
        grid = Grid(rows, n, given, IID() if sampled else Sobol(), None, stream)
        values = Evaluations(evaluator, Design((grid,))).values(rows)
        if len(values) < rows:
            advice = "Raise max_seconds, or ask for fewer stresses."
            raise OutOfTimeError("time ran out at the stress scenarios", advice=advice)
        sets = values.reshape(len(theta), replicates, n, -1).mean(axis=2)
        center = sets.mean(axis=1)
        away = np.stack([replicate_errors(one.T) for one in sets])
        half = NORMAL_95 * np.linalg.norm(away.sum(axis=1), axis=1)
        close = (half <= np.maximum(tol, rtol * np.abs(center.sum(axis=1)))).all()
        if budget is not None or close or clock.now() > late or 2 * n > STRESSES.most:
            break
        n *= 2
    fields: dict[str, Any] = {"problem": evaluator.given.label, "n_outer": 1}
    fields |= {"n_evaluations": replicates * n, "n_inner": replicates * n}
    fields["method"] = "draws at the scenario"
    found = {}
    for name, at, mean, errors in zip(points, theta, center, away, strict=True):
        parts = Estimate.from_directions(mean, errors, **fields)
        loss = Estimate.from_directions(mean.sum(), errors.sum(axis=0)[None], **fields)
        found[name] = Stress(at, loss, parts)
    return found
