"""Least-squares Monte Carlo: regress g on θ, then average f of the regression."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar, Literal

import numpy as np

from nestquad._typing import Array
from nestquad.errors import InputError, NumericalError
from nestquad.evaluate import Design, Evaluations, Grid
from nestquad.methods._method import Goal, Method
from nestquad.methods._regression_average import RegressionAverage
from nestquad.methods._shared import assembled, require_transports, size_of
from nestquad.methods._siblings import final_changes, replicate_errors, trust
from nestquad.points import Given, Stream, as_sequence
from nestquad.points import Sequence as PointSequence
from nestquad.problem import NestedExpectation
from nestquad.regression import (
    Link,
    Regression,
    Score,
    ScoreTable,
    choose_scores,
    regress,
    regress_log,
)
from nestquad.result import Estimate

__all__ = ["LSMC"]

_FEWEST, _START, _MOST = 32, 512, 1 << 20
# Draws of the coefficients.
_DRAWS = 24
# What more terms and the second half of the points change, counted as errors.
_DEGREE_FACTOR, _HALF_FACTOR = 1.0, 0.5


@dataclass(frozen=True)
class LSMC(Method):
    """Least-squares Monte Carlo, the practitioners' choice.

    Each θ has a single x, both from one low-discrepancy point. g is regressed on polynomials in
    θ, which estimates J, and at the same time on polynomials in x and θ that have mean zero given
    θ (control variates), which takes out most of the noise. f(Ĵ) is averaged over a dense set of
    θ, free of g.

    The regression has a bias that more points do not cure unless the degree grows: an f with
    kinks or a logarithm, or a J that no polynomial follows, are better left to other methods. The
    error bar contains an estimate of that bias, but cannot see what no term of the basis sees.

    Parameters
    ----------
    n_outer
        M, the number of points; where None, the budget or the tolerance decides.
    degree
        Total degree of the polynomials; None grows them term by term while the leave-one-out
        error falls.
    control_variates
        Whether terms in x take part.
    link
        ``"log"`` regresses log J, for g > 0. ``"auto"`` does so if g > 0 and the plain regression
        is not positive wherever f is to be averaged.
    outer_points
        The sequence in (θ, x).

    Examples
    --------
    >>> import nestquad as nq
    >>> problem = nq.problems.health()
    >>> est = nq.estimate(problem, method=nq.LSMC(), budget=2048, rng=0)
    >>> bool(abs(est.value - problem.exact) < 2)
    True
    """

    name: ClassVar[str] = "lsmc"
    n_inner: ClassVar[int] = 1

    n_outer: int | None = None
    degree: int | None = None
    control_variates: bool = True
    link: Link | Literal["auto"] = "auto"
    outer_points: str | PointSequence = "sobol"

    def __post_init__(self) -> None:
        for argument, least in (("n_outer", _FEWEST), ("degree", 1)):
            number = getattr(self, argument)
            if number is not None and (not isinstance(number, int | np.integer) or number < least):
                raise InputError(argument, repr(number), f"an integer of at least {least}, or None")
        if self.link not in ("auto", "identity", "log"):
            raise InputError("link", repr(self.link), "'auto', 'identity' or 'log'")
        if isinstance(as_sequence(self.outer_points), Given):
            raise InputError("outer_points", "given points", "a sequence such as 'sobol' or 'iid'")

    def plan(
        self,
        problem: NestedExpectation,
        goal: Goal,
        so_far: tuple[Design, Estimate] | None = None,
    ) -> Design | None:
        if so_far is not None:
            (grid,) = so_far[0].grids
            step = 2 * grid.n_outer if goal.adaptive or goal.budget is None else goal.budget
            larger = min(step, goal.budget or _MOST, _MOST)
            if self.n_outer is not None or larger < 1.25 * grid.n_outer:
                return None
            return Design((replace(grid, n_outer=larger),))
        require_transports(problem, self.name)
        if self.n_outer is not None:
            size = int(self.n_outer)
        else:
            start = goal.pilot or _START
            size = min(goal.budget or start, start if goal.adaptive else _MOST)
        if size < _FEWEST or (goal.budget is not None and size > goal.budget):
            raise InputError(
                "budget",
                f"{goal.budget} evaluations",
                f"at least {self.n_outer or _FEWEST} for method {self.name!r}",
            )
        points = as_sequence(self.outer_points)
        return Design((Grid(size, 1, points, points, None, goal.stream, joint=True),))

    def analyze(self, evaluations: Evaluations) -> Estimate:
        problem = evaluations.problem
        (grid,) = evaluations.design.grids
        raw = evaluations.values(grid.n_outer)
        n, scalar = raw.shape[0], raw.ndim == 2
        values = raw[:, 0].reshape(n, -1)
        n_theta = problem.outer_law.base_dim
        dim = n_theta + problem.inner_base_dim
        uniform = grid.outer_points.uniforms(grid.outer_stream, dim, (0, 1), (0, n))[0]
        scores = _scores(problem, values, uniform)
        table = ScoreTable(uniform, scores)
        dense = RegressionAverage(
            problem, scalar, scores[:n_theta], grid.stream.child(grid.level, 4)
        )
        models, notes = self._models(values, table, n_theta, dense)
        evaluations.evaluator.memo(grid.stream)["j"] = partial(dense.conditional_at, models)

        by_set = dense.answers(models)
        answers = by_set.mean(axis=0)
        stream = grid.stream.child(grid.level, 5)
        parts = self._errors(models, values, table, dense, answers, stream)
        finals = np.stack([dense.final(one) for one in by_set], axis=1)
        parts["average"] = replicate_errors(finals)
        sizes = {name: size_of(part) for name, part in parts.items()}
        return assembled(
            problem,
            answers,
            parts,
            {
                "error_inner": float(np.hypot(sizes["coefficients"], sizes["half"])),
                "error_outer": sizes["average"],
                "outputs": [_described(model) for model in models],
                "notes": notes,
            },
            n_evaluations=n,
            n_outer=n,
            n_inner=1,
            method=self.name,
            sample=dense.sample(models),
        )

    def _models(
        self, values: Array, table: ScoreTable, n_theta: int, dense: RegressionAverage
    ) -> tuple[list[Regression], list[str]]:
        models, notes = [], []
        for c, column in enumerate(values.T):
            model = None
            options: dict[str, Any] = {
                "degree": self.degree,
                "control_variates": self.control_variates,
            }
            why = ""
            if self.link != "log":
                model = regress(column, table, n_theta, **options)
                if self.link == "auto" and column.min() > 0 and not dense.positive(model):
                    model, why = None, ", since the plain regression is not positive everywhere"
            elif not column.min() > 0:
                raise InputError(
                    "link",
                    f"'log', but output {c + 1} of g has the value {column.min():g}",
                    "values above zero",
                    "Use link='identity'.",
                )
            if model is None:
                model = regress_log(column, table, n_theta, **options)
            models.append(model)
            controls = len(model.fit.terms) - len(model.theta_terms)
            what = "log J" if model.link == "log" else "J"
            notes.append(
                f"output {c + 1}: {what} by {len(model.theta_terms)} polynomials of degree "
                f"{model.degree} in theta, with {controls} control variates{why}"
            )
        return models, notes

    def _errors(
        self,
        models: Sequence[Regression],
        values: Array,
        table: ScoreTable,
        dense: RegressionAverage,
        answers: Array,
        stream: Stream,
    ) -> dict[str, Array]:
        """Directions (k, m) of the error by what causes it."""
        center = dense.sketch(models)

        final = partial(final_changes, dense.problem.finish, answers)
        n = values.shape[0]
        multipliers = stream.generator().standard_normal((n, _DRAWS))
        history, draws = [center], [final(_drawn(models, table, dense, center, multipliers))]
        for size in (n // 2, n // 4):
            part = table.first(size)
            try:
                fewer = [m.refitted(y[:size], part) for m, y in zip(models, values.T, strict=True)]
            except NumericalError:  # too few points for so many terms
                break
            history.append(dense.sketch(fewer))
            changed = _drawn(fewer, part, dense, history[-1], multipliers[:size])
            draws.append(final(changed))
        steps = [final(a - b) for a, b in pairwise(history)]
        factor = trust(steps, [np.mean(draw**2, axis=0) for draw in draws])
        raised = final(center[0] - dense.sketch([model.raised(table) for model in models])[0])
        half = steps[0][0] if steps else np.full_like(raised, np.nan)
        return {
            "coefficients": factor[:, None] * draws[0][:, 0].T / np.sqrt(_DRAWS),
            "degree": _DEGREE_FACTOR * raised[:, None],
            "half": _HALF_FACTOR * half[:, None],
        }


def _drawn(
    models: Sequence[Regression],
    table: ScoreTable,
    dense: RegressionAverage,
    center: Array,
    multipliers: Array,
) -> Array:
    """What coefficients that other noise would have given change in the sketch, (m, S, q)."""
    drawn = [model.perturbed(table, multipliers) for model in models]
    changed = [dense.sketch(models, [c[:, s] for c in drawn]) for s in range(_DRAWS)]
    return np.nan_to_num(np.stack(changed) - center)


def _scores(problem: NestedExpectation, values: Array, uniform: Array) -> tuple[Score, ...]:
    outer = problem.outer_law
    inner = problem.inner_law(outer.from_uniform(uniform[:1, : outer.base_dim]))
    groups: list[tuple[int, Score]] = [(outer.base_dim, outer.base), (inner.base_dim, inner.base)]
    some = slice(0, 1 << 13)
    return choose_scores(values[some], uniform[some], groups)


def _described(model: Regression) -> dict[str, Any]:
    return {
        "link": model.link,
        "degree": model.degree,
        "terms": len(model.theta_terms),
        "control_variates": len(model.fit.terms) - len(model.theta_terms),
        "leave_one_out": float(np.sqrt(model.fit.loo)),
    }
