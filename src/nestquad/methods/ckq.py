"""Conditional kernel quadrature: learn J, then average f(J) for free."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from nestquad._typing import Array
from nestquad.errors import InputError
from nestquad.evaluate import Design, Evaluations, Grid, OuterPoints, call_f, outer_points
from nestquad.methods._dense import scores_of
from nestquad.methods._inner_means import InnerMeans, inner_means
from nestquad.methods._method import Goal, Method
from nestquad.methods._surrogate_answer import Answer, SurrogateAnswers
from nestquad.points import Sequence, as_sequence
from nestquad.problem import NestedExpectation
from nestquad.result import Estimate, OuterSample
from nestquad.surrogate import Surrogate, SurrogateKind, candidate_kinds, fit_surrogate

__all__ = ["CKQ", "chosen_surrogate"]

# More design points than this make the surrogate dearer than most g.
_MOST_OUTER = 512
# Kernel weights need few different point sets to be affordable.
_POOL = 32


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
    outer_points: str | Sequence = "auto"
    inner_points: str | Sequence = "auto"

    def __post_init__(self) -> None:
        for argument, least in (("n_outer", 6), ("n_inner", 2)):
            size = getattr(self, argument)
            if size is not None and (not isinstance(size, int | np.integer) or size < least):
                raise InputError(argument, repr(size), f"an integer of at least {least}")
        if self.inflation is not None and not self.inflation >= 1:
            raise InputError("inflation", repr(self.inflation), "a factor of at least 1, or None")

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
        n_outer = self.n_outer or 2 ** int(np.ceil(np.log2(max(16, 2 * dim + 8))))
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
        order = ["n_inner", "n_outer"]
        if estimate.diagnostics["grow"] == "outer":
            order.reverse()
        limits = {"n_inner": np.inf, "n_outer": _MOST_OUTER}
        for side in order:
            if getattr(self, side) is not None:
                continue
            size = getattr(grid, side)
            other = grid.span.size // size
            larger = 2 * size
            if goal.budget is not None and larger * other > goal.budget:
                # The last step takes what is left, if that is worth another turn.
                larger = goal.budget // other
                if larger < 1.15 * size:
                    continue
            if larger <= limits[side]:
                sizes = {"n_outer": grid.n_outer, "n_inner": grid.n_inner, side: int(larger)}
                return Design((replace(grid, n_outer=sizes["n_outer"], n_inner=sizes["n_inner"]),))
        return None

    def analyze(self, evaluations: Evaluations) -> Estimate:
        problem = evaluations.problem
        (grid,) = evaluations.design.grids
        outer = evaluations.outer()
        assert outer.uniform is not None
        scalar = evaluations.values(1).ndim == 2
        answers = SurrogateAnswers(problem, grid, scalar)
        means = inner_means(evaluations, answers.design_weights(outer.uniform), answers.accepts)
        rows = means.j.shape[1]
        z = scores_of(problem.outer_law, outer.uniform[:rows])
        memo = evaluations.evaluator.memo(grid.stream)
        chosen = chosen_surrogate(z, means, answers, self.positive, memo)
        if chosen is None:
            return self._without_surrogate(evaluations, answers, means, outer)
        surrogate, sceptic, reason = chosen
        memo["surrogate"] = surrogate
        final = answers.answer(surrogate, sceptic, means, outer.uniform[:rows])
        grow = self._side(problem, grid, surrogate, means, answers, final)
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
                "grow": grow,
                "notes": [f"J at each theta by {means.rule}", reason],
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
                "grow": "inner",
                "notes": [
                    "no surrogate of J was plausible with these sizes, so there is no error bar; "
                    "use a larger budget, or method='nkq'"
                ],
            },
            problem=problem.label,
            exact=_float_or_array(problem.exact),
        )

    def _side(
        self,
        problem: NestedExpectation,
        grid: Grid,
        surrogate: Surrogate,
        means: InnerMeans,
        answers: SurrogateAnswers,
        final: Answer,
    ) -> Literal["inner", "outer"]:
        """Whether twice as many inner or outer points are predicted to lower the error more."""
        if grid.n_outer >= _MOST_OUTER:
            return "inner"
        more = replace(grid, n_outer=2 * grid.n_outer)
        points = outer_points(problem, more, 0, more.n_outer)
        assert points.uniform is not None
        design = scores_of(problem.outer_law, points.uniform)
        shrink = 2.0**-means.rate
        noisier = answers.predicted_variance(surrogate, noise_ratio=shrink**-2)
        # Half as many inner points also have more noise; only the rest of the change is bias.
        bias = max(final.error_inner**2 - noisier, 0.0)
        misfit = max(final.parts["misfit"] ** 2 - noisier, 0.0)
        with_outer = answers.predicted_variance(surrogate, design=design) + misfit / 4.0 + bias
        with_inner = answers.predicted_variance(surrogate, noise_ratio=shrink**2)
        with_inner += misfit + shrink**2 * bias
        return "inner" if with_inner < with_outer else "outer"


def chosen_surrogate(
    z: Array,
    means: InnerMeans,
    answers: SurrogateAnswers,
    positive: bool | None,
    memo: dict[str, Any],
) -> tuple[Surrogate, Surrogate, str] | None:
    """The candidate that predicts left-out points best, the best rough one, and why.

    `memo` keeps hyperparameters between turns: the next fit starts where the last one ended.
    """
    j = means.j[0]
    can_be_log = bool((means.j[:2] > 0).all())
    if positive and not can_be_log:
        raise InputError(
            "positive",
            "True, but some estimates of J are not positive",
            "a problem whose J is positive",
            "Use more inner points (n_inner), or positive=None.",
        )
    kinds = candidate_kinds(
        z.shape[1],
        z.shape[0],
        positive=can_be_log and positive is not False,
        only=(lambda kind: kind.logarithm) if positive else None,
    )
    behind: set[SurrogateKind] = memo.setdefault("behind", set())
    starts: dict[SurrogateKind, Any] = memo.setdefault("starts", {})
    fitted: list[tuple[float, float, Surrogate]] = []
    for kind in kinds:
        if kind in behind and len(kinds) > 2:
            continue
        surrogate = fit_surrogate(kind, z, j, means.change, starts.get(kind, ()))
        if surrogate is None:
            continue
        starts[kind] = tuple((gp.parameters,) for gp in surrogate.outputs)
        if not answers.plausible(surrogate, j):
            continue
        error_of_f = float(
            np.sqrt(np.mean((answers.apply_f(surrogate.leave_one_out()) - answers.apply_f(j)) ** 2))
        )
        if np.isfinite(error_of_f):
            fitted.append((surrogate.log_predictive_density(j), error_of_f, surrogate))
    if not fitted:
        return None
    smallest = min(error for _, error, _ in fitted)
    sound = [entry for entry in fitted if entry[1] <= 3.0 * smallest]
    best = max(sound, key=lambda entry: entry[0])
    rough = [entry for entry in sound if entry[2].kind.shape == "matern52"]
    sceptic = max(rough, key=lambda entry: entry[0], default=best)[2]
    if z.shape[0] >= 24:
        # Hopeless kinds are not fitted again: ten nats a point set apart do not come back.
        limit = best[0] - 10.0 - 0.5 * z.shape[0]
        behind |= {s.kind for score, _, s in fitted if score < limit and s is not sceptic}
    return (
        best[2],
        sceptic,
        f"surrogate of {best[2].kind}, the best of {len(fitted)} at left-out points",
    )


def _sequence(points: str | Sequence, dim: int) -> Sequence:
    if points == "auto":
        return as_sequence("lattice" if dim == 1 else "sobol")
    return as_sequence(points)


def _float_or_array(value: Any) -> float | Array | None:
    if value is None:
        return None
    array = np.asarray(value, dtype=float)
    return float(array) if array.ndim == 0 else array
