"""Least-squares Monte Carlo: regress g on θ, then average f of the regression."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from nestquad._typing import Array
from nestquad.errors import InputError, NumericalError
from nestquad.evaluate import Design, Evaluations, Grid, call_f
from nestquad.methods._method import Goal, Method
from nestquad.methods._polynomials import Score, ScoreTable
from nestquad.methods._regression import Link, Regression, regress, regress_log
from nestquad.methods._sparse_fit import choose_scores
from nestquad.points import Given, Sobol, Stream, as_sequence
from nestquad.points import Sequence as PointSequence
from nestquad.problem import NestedExpectation
from nestquad.result import Estimate, OuterSample

__all__ = ["LSMC"]

_FEWEST, _START, _MOST = 32, 512, 1 << 20
# f(Ĵ) is averaged over so many scrambles of so many θ.
_SCRAMBLES, _LOG2_DENSE = 4, 14
# Draws of the coefficients, and θ on which they are compared.
_DRAWS, _SKETCH = 32, 4096
# What more terms and the second half of the points change, counted as errors.
_DEGREE_FACTOR, _HALF_FACTOR = 1.0, 0.5
# Student's t for three degrees of freedom over that of the normal law.
_FEW_SCRAMBLES = 1.6
_MOST_SAMPLE_ROWS = 4096


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
            larger = min(2 * grid.n_outer, goal.budget or _MOST, _MOST)
            if self.n_outer is not None or larger < 1.25 * grid.n_outer:
                return None
            return Design((replace(grid, n_outer=larger),))
        _require_transports(problem)
        if self.n_outer is not None:
            size = int(self.n_outer)
        else:
            size = min(goal.budget or _START, _START if goal.adaptive else _MOST)
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
        dense = _Dense(problem, scalar, scores[:n_theta], grid.stream.child(grid.level, 4))
        models, notes = self._models(values, table, n_theta, dense)

        by_set = dense.answers(models)
        answers = by_set.mean(axis=0)
        value = dense.final(answers)
        parts = self._errors(models, values, table, dense, by_set, grid.stream.child(grid.level, 5))
        errors = np.nan_to_num(
            np.concatenate(list(parts.values()), axis=1), nan=float(np.abs(value).max())
        )
        covariance = errors @ errors.T
        std_error = np.sqrt(np.diagonal(covariance))
        sizes = {name: float(np.sqrt((part**2).sum(axis=1)).max()) for name, part in parts.items()}
        single = problem.finish(answers).ndim == 0
        return Estimate(
            value=float(value[0]) if single else value,
            std_error=float(std_error[0]) if single else std_error,
            n_evaluations=n,
            n_outer=n,
            n_inner=1,
            method=self.name,
            diagnostics={
                "answers": answers,
                "error_inner": float(np.hypot(sizes["coefficients"], sizes["half"])),
                "error_outer": sizes["average"],
                "error_parts": sizes,
                "outputs": [_described(model) for model in models],
                "notes": notes,
            },
            covariance=None if single else covariance,
            problem=problem.label,
            exact=None if problem.exact is None else _float_or_array(problem.exact),
            sample=dense.sample(models),
        )

    def _models(
        self, values: Array, table: ScoreTable, n_theta: int, dense: _Dense
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
        dense: _Dense,
        by_set: Array,
        stream: Stream,
    ) -> dict[str, Array]:
        """Directions (k, m) of the error by what causes it."""
        n = values.shape[0]
        center = dense.sketch(models)
        multipliers = stream.generator().standard_normal((n, _DRAWS))
        drawn = [model.perturbed(table, multipliers) for model in models]
        draws = np.stack(
            [dense.sketch(models, [c[:, s] for c in drawn]) for s in range(_DRAWS)], axis=1
        )
        raised = dense.sketch([model.raised(table) for model in models])
        half = table.first(n // 2)
        try:
            fewer = [
                model.refitted(column[: n // 2], half)
                for model, column in zip(models, values.T, strict=True)
            ]
            from_half = dense.sketch(fewer)
        except NumericalError:
            from_half = np.full_like(center, np.nan)
        scrambles = np.stack([dense.final(answers) for answers in by_set], axis=1)
        deviations = scrambles - scrambles.mean(axis=1, keepdims=True)
        return {
            "coefficients": (draws - center[:, None]) / np.sqrt(_DRAWS),
            "degree": _DEGREE_FACTOR * (center - raised)[:, None],
            "half": _HALF_FACTOR * (center - from_half)[:, None],
            "average": _FEW_SCRAMBLES * deviations / np.sqrt(_SCRAMBLES * (_SCRAMBLES - 1)),
        }


@dataclass(frozen=True)
class _Dense:
    """Scrambled Sobol θ over which f(Ĵ) is averaged."""

    problem: NestedExpectation
    scalar: bool
    scores: tuple[Score, ...]
    stream: Stream

    def answers(self, models: Sequence[Regression]) -> Array:
        """The q expectations by each scramble, (scrambles, q)."""
        return np.stack(
            [self._average(models, s, 1 << _LOG2_DENSE, True) for s in range(_SCRAMBLES)]
        )

    def sketch(
        self, models: Sequence[Regression], coefficients: Sequence[Array] | None = None
    ) -> Array:
        """The final answers on fewer θ, perhaps with other coefficients."""
        return self.final(self._average(models, 0, _SKETCH, False, coefficients))

    def positive(self, model: Regression) -> bool:
        return all(
            model.j(ScoreTable(self._uniform(s, 1 << _LOG2_DENSE), self.scores)).min() > 0
            for s in range(_SCRAMBLES)
        )

    def sample(self, models: Sequence[Regression]) -> OuterSample:
        uniform = self._uniform(0, _MOST_SAMPLE_ROWS)
        j = self._j(models, uniform, None)
        theta = self.problem.outer_law.from_uniform(uniform)
        f = call_f(self.problem, j, theta, require_finite=False)
        return OuterSample(theta, j, f, np.full(f.shape, 1.0 / len(f)))

    def final(self, answers: Array) -> Array:
        return np.atleast_1d(self.problem.finish(answers))

    def _uniform(self, scramble: int, size: int) -> Array:
        # Another matrix scramble for each, not only another shift.
        stream = self.stream.child(scramble)
        return np.asarray(Sobol().uniforms(stream, len(self.scores), (0, 1), (0, size))[0])

    def _j(
        self,
        models: Sequence[Regression],
        uniform: Array,
        coefficients: Sequence[Array] | None,
    ) -> Array:
        table = ScoreTable(uniform, self.scores)
        used = [None] * len(models) if coefficients is None else coefficients
        columns = [model.j(table, c) for model, c in zip(models, used, strict=True)]
        return columns[0] if self.scalar else np.stack(columns, axis=1)

    def _average(
        self,
        models: Sequence[Regression],
        scramble: int,
        size: int,
        require_finite: bool,
        coefficients: Sequence[Array] | None = None,
    ) -> Array:
        uniform = self._uniform(scramble, size)
        theta = self.problem.outer_law.from_uniform(uniform)
        j = self._j(models, uniform, coefficients)
        f = call_f(self.problem, j, theta, require_finite=require_finite)
        # Twins that only serve the error bar may leave the domain of f at a few θ.
        return np.asarray(f[np.isfinite(f).all(axis=1)].mean(axis=0))


def _scores(problem: NestedExpectation, values: Array, uniform: Array) -> tuple[Score, ...]:
    outer = problem.outer_law
    inner = problem.inner_law(outer.from_uniform(uniform[:1, : outer.base_dim]))
    groups: list[tuple[int, Score]] = [(outer.base_dim, outer.base), (inner.base_dim, inner.base)]
    some = slice(0, 1 << 13)
    return choose_scores(values[some], uniform[some], groups)


def _require_transports(problem: NestedExpectation) -> None:
    law, role = problem.outer_law, "outer"
    if law.has_transport:
        law, role = problem.inner_law(law.from_uniform(np.full((1, law.base_dim), 0.5))), "inner"
    if not law.has_transport:
        raise InputError(
            role,
            "a law that can only be sampled",
            "a law that is a transport of uniforms, in which method 'lsmc' regresses",
            "Use method='nmc', or describe the simulator by nq.Transport.",
        )


def _described(model: Regression) -> dict[str, Any]:
    return {
        "link": model.link,
        "degree": model.degree,
        "terms": len(model.theta_terms),
        "control_variates": len(model.fit.terms) - len(model.theta_terms),
        "leave_one_out": float(np.sqrt(model.fit.loo)),
    }


def _float_or_array(value: float | Sequence[float]) -> float | Array:
    array = np.asarray(value, dtype=float)
    return float(array) if array.ndim == 0 else array
