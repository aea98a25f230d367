"""J(θ) as a function: the model of any learner."""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from nestquad import clock
from nestquad._checks import numbers, whole
from nestquad._notebook import pairs
from nestquad._typing import Array, ArrayLike, RNGLike
from nestquad.clock import Lateness
from nestquad.distributions import Law, to_uniform
from nestquad.errors import InputError, NumericalError, UnsupportedError
from nestquad.estimate import DEFAULT_BUDGET, Loop, check_evaluation, validated
from nestquad.evaluate import Evaluator, OutOfTimeError, Store
from nestquad.methods import CKQ, Goal, Learned, LearnedMethod, Method, ModelOfJ, as_method
from nestquad.points import Stream
from nestquad.problem import NestedExpectation
from nestquad.result import sizes

__all__ = ["ConditionalEstimate", "conditional"]

Answers: TypeAlias = "Array | float | tuple[Array | float, Array | float]"


@dataclass(frozen=True)
class ConditionalEstimate:
    """An estimate of the function J(θ) = E[g(x, θ) | θ].

    Call it with θ (n, d_θ), or (d_θ,) for one point; returns (n,), or (n, p) for p outputs. A law
    whose transport has no inverse takes uniforms of θ instead: `at_uniform`.

    Attributes
    ----------
    problem, method
        Names of the problem and of the method that learned J.
    model
        The model of J, on uniforms of θ and x.
    """

    problem: str
    method: str
    n_evaluations: int
    n_outer: int
    n_inner: int
    seconds: float
    diagnostics: Mapping[str, Any]
    model: ModelOfJ = field(repr=False)
    _law: Law = field(repr=False)
    _scalar: bool = field(repr=False)
    _unit: Array = field(repr=False)

    def __call__(self, theta: ArrayLike, return_std: bool = False) -> Answers:
        """J at θ, and its standard deviation if asked for."""
        points = _as_points("theta", theta, self._law.dim)
        try:
            uniform = to_uniform(self._law, np.atleast_2d(points))
        except UnsupportedError as error:
            advice = "Call J.at_uniform(u) instead, for theta = law.from_uniform(u)."
            raise UnsupportedError(f"{error} {advice}") from error
        back = self._law.from_uniform(uniform)
        outside = ~np.isclose(back, np.atleast_2d(points), rtol=1e-6, atol=1e-9).all(axis=1)
        if outside.any():
            raise InputError(
                "theta",
                f"{np.atleast_2d(points)[np.argmax(outside)]}",
                "points where the outer law has some probability",
                "A model of J knows nothing of the others.",
            )
        return self._predict(uniform, points.ndim, return_std)

    def at_uniform(self, uniform: ArrayLike, return_std: bool = False) -> Answers:
        """J at the θ that uniforms (n, d) or (d,) in the open unit cube are transported to."""
        points = _as_points("uniform", uniform, self._law.base_dim)
        if not ((points > 0) & (points < 1)).all():
            raise InputError("uniform", "coordinates outside (0, 1)", "uniforms behind theta")
        return self._predict(np.atleast_2d(points), points.ndim, return_std)

    def __str__(self) -> str:
        size = sizes(self.n_evaluations, self.n_outer, self.n_inner)
        return (
            f"J of {self.problem} from {self.n_evaluations:,} evaluations{size}, "
            f"{self.method}, {self.seconds:.2g} s"
        )

    def _repr_html_(self) -> str:
        notes = self.diagnostics.get("notes", ())
        size = sizes(self.n_evaluations, self.n_outer, self.n_inner)
        rows = {
            "θ": f"{self._law.dim} coordinate{'s' if self._law.dim != 1 else ''}",
            "method": self.method,
            "model": str(self.diagnostics.get("surrogate", "")),
            "evaluations of g": f"{self.n_evaluations:,}{size}",
            "seconds": f"{self.seconds:.3g}",
            "notes": " ".join(f"{note}." for note in notes),
        }
        return pairs(f"J(θ) of {self.problem}", rows)

    @property
    def n_coordinates(self) -> int:
        """Coordinates of the cube behind θ."""
        return self._law.base_dim

    def plot(self, ax: Any = None, coordinate: int = 0) -> Any:
        """Draw Ĵ ± 1.96 standard deviations; needs the extra ``plot``. Returns the axes.

        With several coordinates of θ one of them varies, and the others are at their medians.
        """
        from nestquad.plots import plot_conditional

        return plot_conditional(self, ax, coordinate)

    def curve(self, coordinate: int = 0, points: int = 200) -> tuple[Array, Array, Array]:
        """θ along one coordinate (n,), the others at their medians; Ĵ there and its sd, (n, p)."""
        dim = self.n_coordinates
        expected = f"a whole number from 0 to {dim - 1}"
        whole("coordinate", coordinate, expected, least=0, below=dim)
        uniform = np.full((points, dim), 0.5)
        # Between the quantiles where 99 % of θ are: a model knows little of the rest.
        uniform[:, coordinate] = np.linspace(0.005, 0.995, points)
        theta = self._law.from_uniform(uniform)
        along = theta[:, coordinate] if theta.shape[1] == dim else uniform[:, coordinate]
        return along, self.model.mean(uniform), self.model.sd(uniform)

    def to_inference_data(self, draws: int = 200, rng: RNGLike = None) -> Any:
        """ArviZ ``InferenceData`` of posterior draws of J (group ``posterior``, one chain).

        They are at the θ of a lattice, which are coordinates ``theta_1``, …; needs ``labels``.
        """
        from nestquad._labels import posterior_tree

        sketch = self.model.sketch
        errors = self.model.paths(draws, np.random.default_rng(rng)).errors
        values = (sketch.j + errors) * self._unit
        axes = {"point": np.arange(len(sketch.j)), "output": np.arange(sketch.j.shape[1])}
        if self._scalar:
            values = values[..., 0]
            axes.pop("output")
        theta = self._law.from_uniform(sketch.uniform)
        columns = {f"theta_{i}": ("point", column) for i, column in enumerate(theta.T, 1)}
        facts = {"problem": self.problem, "method": self.method, "created_by": "nestquad"}
        return posterior_tree("J", values, axes, facts, columns)

    def _predict(self, uniform: Array, n_axes: int, return_std: bool) -> Answers:
        def shaped(values: Array) -> Array | float:
            out = (values * self._unit)[:, 0] if self._scalar else values * self._unit
            if n_axes == 2:
                return out
            return float(out[0]) if self._scalar else np.asarray(out[0])

        mean = shaped(self.model.mean(uniform))
        return (mean, shaped(self.model.sd(uniform))) if return_std else mean


def conditional(
    problem: NestedExpectation,
    *,
    budget: int | None = None,
    method: str | Method[Any] | None = None,
    rng: RNGLike = None,
    executor: Executor | None = None,
    store: str | os.PathLike[str] | None = None,
    store_check: bool = True,
    max_seconds: float | None = None,
) -> ConditionalEstimate:
    """Learn J(θ) = E[g(x, θ) | θ].

    Parameters
    ----------
    problem
        Its f only decides where accuracy pays; leave it out to learn J evenly.
    budget
        The most evaluations of g.
    max_seconds
        Limit on seconds, as in :func:`nestquad.estimate`; alone, it asks for the best model in
        that time.
    method
        A method that learns J: ``"ckq"`` (the default), ``"joint"``, ``"process"`` or ``"lsmc"``,
        or a configured one such as ``nq.CKQ(n_outer=32)``.
    rng, executor, store, store_check
        As in :func:`nestquad.estimate`.

    Examples
    --------
    >>> import nestquad as nq
    >>> problem = nq.problems.synthetic()
    >>> J = nq.conditional(problem, budget=1024, rng=0)
    >>> bool(abs(J([0.25]) - (2 / 7 + 0.25**2.5)) < 1e-3)
    True
    """
    started = clock.now()
    if budget is None and max_seconds is None:
        raise InputError(
            "budget", "neither a budget nor a time", "one of them", "For instance max_seconds=10."
        )
    hurried = budget is None
    budget = validated(problem, budget, None, None, max_seconds) or DEFAULT_BUDGET
    check_evaluation(problem, executor, 0)
    chosen = CKQ() if method is None else as_method(method)
    if not isinstance(chosen, LearnedMethod):
        raise InputError(
            "method", repr(chosen.name), "a method that learns J: 'ckq', 'joint' or 'lsmc'"
        )
    opened = None if store is None else Store.open(store, problem, rng, store_check)
    deadline = np.inf if max_seconds is None else started + max_seconds
    evaluator = Evaluator(problem, executor, keep=True, store=opened, deadline=deadline)
    stream = Stream.from_rng(rng) if opened is None else opened.stream
    goal = Goal(stream, budget, adaptive=hurried, hurried=hurried, seconds=max_seconds)
    loop = Loop(chosen, goal, evaluator)
    if max_seconds is not None:
        loop.limit = Lateness().end(started, max_seconds)
    try:
        estimate = loop.run()
    finally:
        evaluator.close()
    if loop.last is None:
        raise OutOfTimeError(
            "time ran out before the first model of J",
            n_completed=evaluator.n_evaluations,
            advice="Raise max_seconds, or lower the budget.",
        )
    learned: Learned[Any] = loop.last.state
    if not np.isfinite(estimate.std_error).all():
        raise NumericalError(
            "No model of J was plausible with these evaluations. Use a larger budget, or fix "
            "method=nq.CKQ(n_inner=...) to estimate J better at each theta."
        )
    return ConditionalEstimate(
        problem.label,
        chosen.name,
        evaluator.n_evaluations,
        estimate.n_outer,
        estimate.n_inner,
        clock.now() - started,
        estimate.diagnostics,
        learned.model.as_function(),
        problem.outer_law,
        learned.scalar,
        evaluator.units.j_or_one,
    )


def _as_points(name: str, given: ArrayLike, dim: int | None) -> Array:
    points = numbers(name, given, "numbers")
    if not np.isfinite(points).all():
        raise InputError(name, "values that are not finite", "finite numbers")
    if points.ndim not in (1, 2) or points.shape[-1] != (dim or points.shape[-1]):
        raise InputError(
            name,
            f"an array of shape {points.shape}",
            f"shape (n, {dim}), or ({dim},) for one point",
            f"Several points of one coordinate are {name}[:, None]." if dim == 1 else "",
        )
    return points
