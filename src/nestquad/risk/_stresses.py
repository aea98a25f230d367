"""Named stress scenarios: J at a θ with an interval, its place in the law of J, contributions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import ndtri, stdtrit

from nestquad import clock
from nestquad._checks import numbers, shown
from nestquad._typing import Array
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
    tolerances: Sequence[float | None],
    max_seconds: float | None = None,
    settings: StressSettings | None = None,
) -> dict[str, Stress]:
    """J at each scenario by randomized quasi-Monte Carlo over x: no model takes part."""
    chosen = settings or StressSettings()
    theta = np.stack([*points.values()])
    rows, n = chosen.replicates * len(theta), chosen.first
    if max_seconds is not None:
        n = chosen.hurried
    if budget is not None:
        n = max(1 << max(int(chosen.share * budget / rows).bit_length() - 1, 0), 2)
    given = Given(np.repeat(theta, chosen.replicates, axis=0), "native")
    sampled = not evaluator.problem.inner_law(theta[:1]).has_transport
    sequence = IID() if sampled else Sobol()
    factor = stdtrit(chosen.replicates - 1, 0.975) / NORMAL_95
    tol, rtol = (one or 0.0 for one in tolerances)
    # Twice the points take twice the seconds so far.
    seconds = np.inf if max_seconds is None else 0.5 * chosen.share * max_seconds
    started = clock.now()
    while True:
        grid = Grid(rows, n, given, sequence, None, stream)
        values = Evaluations(evaluator, Design((grid,))).values(rows)
        if len(values) < rows:
            advice = "Raise max_seconds, or ask for fewer stresses."
            raise OutOfTimeError("time ran out at the stress scenarios", advice=advice)
        means = values.reshape(rows, n, -1).mean(axis=1)
        sets = means.reshape(len(theta), chosen.replicates, -1)
        total = sets.sum(axis=2)
        halves = NORMAL_95 * factor * total.std(axis=1, ddof=1) / np.sqrt(chosen.replicates)
        close = (halves <= np.maximum(tol, rtol * np.abs(total.mean(axis=1)))).all()
        late = clock.now() - started > seconds
        if budget is not None or close or late or 2 * n > chosen.most:
            break
        n *= 2
    fields: dict[str, Any] = {
        "problem": evaluator.given.label,
        "n_evaluations": chosen.replicates * n,
        "n_outer": 1,
        "n_inner": chosen.replicates * n,
        "method": "draws at the scenario",
    }
    found = {}
    for name, at, one in zip(points, theta, sets, strict=True):
        away = factor * (one - one.mean(axis=0)) / np.sqrt(len(one) * (len(one) - 1.0))
        parts = Estimate.from_directions(one.mean(axis=0), away.T, **fields)
        loss = Estimate.from_directions(one.mean(axis=0).sum(), away.sum(axis=1)[None], **fields)
        found[name] = Stress(at, loss, parts)
    return found
