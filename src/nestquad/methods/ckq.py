"""Conditional kernel quadrature: learn J, then average f(J) for free."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from nestquad._typing import Array
from nestquad.errors import InputError, unknown_name
from nestquad.evaluate import Design, Evaluations, Grid, OuterPoints, call_f
from nestquad.methods._dense import scores_of
from nestquad.methods._inner_means import MOST_KERNEL_NODES, InnerMeans, inner_means
from nestquad.methods._method import Goal, Method
from nestquad.methods._surrogate_answer import SurrogateAnswers
from nestquad.methods._surrogate_choice import choose_surrogate
from nestquad.points import Sequence, as_sequence
from nestquad.problem import NestedExpectation
from nestquad.result import Estimate, OuterSample

__all__ = ["CKQ"]

# More design points than this make the surrogate dearer than most g.
_MOST_OUTER = 256
# Kernel weights need few different point sets to be affordable.
_POOL = 32
# By how much a turn of a fixed budget grows, at most.
_FACTOR = 9.0


@dataclass(frozen=True)
class CKQ(Method):
    """Conditional kernel quadrature with a dense outer average.

    J is smooth even where f has kinks or jumps. So J is estimated well at a few θ, a Gaussian
    process with nugget learns it over all θ, and f(Ĵ) is averaged over as many θ as one likes,
    which costs no evaluation of g.

    Parameters
    ----------
    n_outer, n_inner
        T and N; where None, both grow where the error is predicted to fall most.
    inflation
        How far the design stretches the normal scores of θ; default 1 + 0.4/√d_θ. Without it the
        surrogate extrapolates in the tails, and that is where the error then comes from.
    positive
        Model log J (True), J (False), or whichever predicts left-out points better (None).
    noise
        How stage II sees the errors of stage I. ``"fitted"``: a nugget found by likelihood, its
        shape over θ from what halving the inner points changes. ``"stage1"``: the posterior
        variances of Bayesian quadrature at each θ, as in conditional Bayesian quadrature (CBQ),
        which the paper compares with; stage I then is kernel quadrature and nothing else.
    outer_points, inner_points
        Sequences; ``"auto"`` takes a shifted grid in one dimension and Sobol points beyond.

    Examples
    --------
    >>> import nestquad as nq
    >>> problem = nq.problems.finance()
    >>> est = nq.estimate(problem, method="ckq", budget=2048, rng=0)
    >>> bool(abs(est.value - problem.exact) < 0.02)
    True
    """

    name: ClassVar[str] = "ckq"
    sequential: ClassVar[bool] = True

    n_outer: int | None = None
    n_inner: int | None = None
    inflation: float | None = None
    positive: bool | None = None
    noise: Literal["fitted", "stage1"] = "fitted"
    outer_points: str | Sequence = "auto"
    inner_points: str | Sequence = "auto"

    def __post_init__(self) -> None:
        for argument, least in (("n_outer", 6), ("n_inner", 2)):
            size = getattr(self, argument)
            if size is not None and (not isinstance(size, int | np.integer) or size < least):
                raise InputError(argument, repr(size), f"an integer of at least {least}")
        if self.inflation is not None and not self.inflation >= 1:
            raise InputError("inflation", repr(self.inflation), "a factor of at least 1, or None")
        if self.noise not in ("fitted", "stage1"):
            raise unknown_name("noise", self.noise, ("fitted", "stage1"))

    def plan(
        self,
        problem: NestedExpectation,
        goal: Goal,
        so_far: tuple[Design, Estimate] | None = None,
    ) -> Design | None:
        if so_far is not None:
            return self._grown(goal, *so_far)
        pooled = problem.inner_base_dim <= 3  # refuses laws that can only be sampled
        dim = problem.outer_law.base_dim
        n_outer = self.n_outer or _first_outer(dim)
        n_inner = self.n_inner or 8
        if goal.budget is not None:
            if self.n_inner is None:
                n_inner = max(2, min(n_inner, goal.budget // n_outer))
            if n_outer * n_inner > goal.budget:
                raise InputError(
                    "budget",
                    f"{goal.budget} evaluations",
                    f"at least {n_outer * n_inner} for method 'ckq' on this problem "
                    f"({n_outer} outer × {n_inner} inner)",
                )
        inflation = 1.0 + 0.4 / np.sqrt(dim) if self.inflation is None else self.inflation
        grid = Grid(
            n_outer,
            n_inner,
            _sequence(self.outer_points, dim),
            _sequence(self.inner_points, problem.inner_base_dim),
            _POOL if pooled else None,
            goal.stream,
            outer_scale=float(inflation),
        )
        return Design((grid,))

    def _grown(self, goal: Goal, design: Design, estimate: Estimate) -> Design | None:
        (grid,) = design.grids
        target = _next_size(grid.span.size, goal, estimate)
        if target is None:
            return None
        sizes = self._sizes(grid, target, estimate)
        if sizes[0] * sizes[1] < 1.1 * grid.span.size:
            return None
        return Design((replace(grid, n_outer=sizes[0], n_inner=sizes[1]),))

    def _sizes(self, grid: Grid, target: int, estimate: Estimate) -> tuple[int, int]:
        """T and N, whose product is about the target and whose predicted error is least."""
        if self.n_outer is not None and self.n_inner is not None:
            return grid.n_outer, grid.n_inner
        if self.n_outer is not None:
            return grid.n_outer, target // grid.n_outer
        if self.n_inner is not None:
            return max(grid.n_outer, min(target // grid.n_inner, _MOST_OUTER)), grid.n_inner
        factor = target / grid.span.size
        product = 2 if factor < 4 else 8
        forecast = [f for f in estimate.diagnostics["forecast"] if f[0] * f[1] == product]
        kernel = str(estimate.diagnostics["inner"]["rule"]).startswith("kernel")
        for outer, inner, _ in sorted(forecast, key=_dearness):
            # Inner points double, since sequences are even at powers of two; T takes what is left.
            n_inner = grid.n_inner * inner
            if kernel and outer == 1:
                n_inner = target // grid.n_outer  # weights make up for uneven points
            if kernel and n_inner > MOST_KERNEL_NODES:
                continue
            n_outer = target // n_inner
            if grid.n_outer <= n_outer <= _MOST_OUTER:
                return n_outer, n_inner
        n_outer = min(max(grid.n_outer, target // grid.n_inner), _MOST_OUTER)
        return n_outer, target // n_outer

    def analyze(self, evaluations: Evaluations) -> Estimate:
        problem = evaluations.problem
        (grid,) = evaluations.design.grids
        outer = evaluations.outer()
        assert outer.uniform is not None
        scalar = evaluations.values(1).ndim == 2
        answers = SurrogateAnswers(problem, grid, scalar)
        means = inner_means(
            evaluations,
            answers.design_weights(outer.uniform),
            answers.accepts,
            bayesian=self.noise == "stage1",
        )
        rows = means.j.shape[1]
        z = scores_of(problem.outer_law, outer.uniform[:rows])
        memo = evaluations.evaluator.memo(grid.stream)
        chosen = choose_surrogate(z, means, answers, self.positive, memo)
        if chosen is None:
            return self._without_surrogate(evaluations, answers, means, outer)
        surrogate = memo["surrogate"] = chosen.surrogate
        memo["j"] = lambda uniform: surrogate.mean(scores_of(problem.outer_law, uniform))
        final = answers.answer(surrogate, chosen.sceptic, means, outer.uniform[:rows])
        value, std_error = final.value, final.std_error
        single = problem.finish(np.zeros(final.answers.size)).ndim == 0
        j_hat = surrogate.mean(z)
        return Estimate(
            value=float(value[0]) if single else value,
            std_error=float(std_error[0]) if single else std_error,
            n_evaluations=rows * grid.n_inner,
            n_outer=rows,
            n_inner=grid.n_inner,
            method=self.name,
            diagnostics={
                "answers": final.answers,
                "error_inner": final.error_inner,
                "error_outer": final.error_outer,
                "error_parts": final.parts,
                "inner": {"rule": means.rule, "rate": means.rate},
                "surrogate": str(surrogate.kind),
                "lengthscales": [gp.parameters.lengthscale for gp in surrogate.outputs],
                "noise_sd": [float(gp.noise_sd.mean()) for gp in surrogate.outputs],
                "forecast": answers.forecast(surrogate, means, final),
                "notes": [f"J at each theta by {means.rule}", chosen.reason],
            },
            covariance=None if single else final.covariance,
            problem=problem.label,
            exact=_float_or_array(problem.exact),
            sample=OuterSample(
                outer.theta[:rows],
                j_hat[:, 0] if scalar else j_hat,
                answers.apply_f(j_hat),
                np.tile(
                    answers.design_weights(outer.uniform[:rows])[:, None], (1, final.answers.size)
                ),
            ),
        )

    def _without_surrogate(
        self,
        evaluations: Evaluations,
        answers: SurrogateAnswers,
        means: InnerMeans,
        outer: OuterPoints,
    ) -> Estimate:
        """The plain weighted mean, with no claim to accuracy: a sign to spend more inside."""
        problem = evaluations.problem
        (grid,) = evaluations.design.grids
        assert outer.uniform is not None
        rows = means.j.shape[1]
        weights = answers.design_weights(outer.uniform[:rows])
        j = means.j[0][:, 0] if answers.scalar else means.j[0]
        f_values = call_f(problem, j, outer.theta[:rows])
        value = problem.finish(weights @ f_values)
        return Estimate(
            value=float(value) if value.ndim == 0 else value,
            std_error=np.inf if value.ndim == 0 else np.full(value.shape, np.inf),
            n_evaluations=rows * grid.n_inner,
            n_outer=rows,
            n_inner=grid.n_inner,
            method=self.name,
            diagnostics={
                "inner": {"rule": means.rule},
                "forecast": [(1, 2, 0.0), (1, 4, 0.0)],  # a surrogate needs better values first
                "notes": [
                    "no surrogate of J was plausible with these sizes, so there is no error bar; "
                    "use a larger budget, or method='nkq'"
                ],
            },
            problem=problem.label,
            exact=_float_or_array(problem.exact),
        )


def _next_size(size: int, goal: Goal, estimate: Estimate) -> int | None:
    """How many evaluations the next design may have; None if that is no more worth a turn.

    Few turns save the time of fitting, several let the sizes follow what was learned: each has
    up to nine times the evaluations of the last. Near a tolerance steps are shorter.
    """
    ratio = np.inf if goal.budget is None else goal.budget / size
    if ratio < 1.1:
        return None
    if not goal.adaptive:
        return int(size * ratio ** (1.0 / max(np.ceil(np.log(ratio) / np.log(_FACTOR) - 0.2), 1.0)))
    half = 1.96 * float(np.max(estimate.std_error))
    near = goal.half_width is not None and half <= 3.0 * goal.half_width
    return int(size * min(2.0 if near else 4.0, ratio))


def _first_outer(dim: int) -> int:
    """How many θ to begin with: few enough to leave most of a small budget to the inner stage."""
    return 12 if dim == 1 else 2 ** int(np.ceil(np.log2(2 * dim + 12)))


def _dearness(forecast: tuple[int, int, float]) -> float:
    """The predicted error; outer points, whose surrogate takes time, have to earn it."""
    outer, _, error = forecast
    return float(error * (1.0 + 0.05 * np.log2(outer)))


def _sequence(points: str | Sequence, dim: int) -> Sequence:
    if points == "auto":
        return as_sequence("lattice" if dim == 1 else "sobol")
    return as_sequence(points)


def _float_or_array(value: Any) -> float | Array | None:
    if value is None:
        return None
    array = np.asarray(value, dtype=float)
    return float(array) if array.ndim == 0 else array
