"""J(θ) as a function: the error of conditional kernel quadrature in θ, against N and T."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nestquad import NKQ, KernelQuadrature, conditional
from nestquad.rules import Schedule, factorize, scheduled_lambda
from studies.paper import verdicts
from studies.paper.curves import (
    Array,
    Curve,
    Interval,
    common_cost,
    fit_exponent,
    gain,
)
from studies.paper.figures import error_figure, look
from studies.paper.part import Effort, Part, Runs, Series
from studies.paper.series import problem_named, published_nkq
from studies.runner.ledger import Outcome, Task, cells
from studies.runner.result import Drawing, Finding, Status, Verdict
from studies.runner.text import factor

# The size that is held fixed while the other grows, large enough not to matter.
_FIXED_T, _FIXED_N = 300, 100
_LINES = {"ckq": "CKQ as published", "cbq": "CBQ"}


def _published(kind: str, fixed: str) -> Callable[[Task, np.random.SeedSequence], Outcome]:
    def run(task: Task, rng: np.random.SeedSequence) -> Outcome:
        held = int(fixed.partition("=")[2])
        sizes = (held, task.size) if fixed.startswith("T") else (task.size, held)
        return _two_stages(kind, task, rng, *sizes)

    return run


def _two_stages(
    kind: str, task: Task, rng: np.random.SeedSequence, n_outer: int, n_inner: int
) -> Outcome:
    """CKQ or CBQ on the synthetic problem, with the same first stage and the same kernels.

    They differ in what the second stage adds to the diagonal of its Gram matrix: CKQ the
    scheduled T λ, CBQ the variances that the first stage leaves.
    """
    problem = problem_named(task.problem)
    method: NKQ = published_nkq(problem, n_outer, n_inner)
    generator = np.random.default_rng(rng)
    theta, x = generator.random((n_outer, 1)), generator.random((n_outer, n_inner, 1))
    assert problem.g is not None
    values = problem.g(x, theta[:, None, :])
    first = method.inner.tuned([(x[t], values[t, :, None]) for t in range(min(4, n_outer))])
    rules = [item[0] for item in first.rules_by_set(x, (n_inner,))]
    j = np.array([float(rule.integrate(v)) for rule, v in zip(rules, values, strict=True)])
    assert isinstance(method.outer, KernelQuadrature)
    second = method.outer.tuned([(theta, j[:, None])])
    assert isinstance(second.regularization, Schedule)
    assert second.kernel is not None
    if kind == "ckq":
        lambda0 = second.regularization.grid[0]
        ridge = np.full(n_outer, n_outer * scheduled_lambda(lambda0, n_outer, 2.0, 1))
    else:
        # Posterior variances are for unit amplitude, on both sides of the ratio that matters.
        spread = values.var(axis=1).mean() / max(float(j.var()), 1e-300)
        ridge = spread * np.array([max(rule.posterior_variance, 0.0) for rule in rules])
    grid, weights = np.polynomial.legendre.leggauss(200)
    grid = (grid[:, None] + 1) / 2
    fitted = ridge_regression(second, theta, j, ridge, grid)
    exact = 2 / 7 + grid[:, 0] ** 2.5
    error = float(np.sqrt((weights / 2) @ (fitted - exact) ** 2))
    return Outcome(error, n_outer * n_inner, error)


def ridge_regression(
    recipe: KernelQuadrature, theta: Array, j: Array, ridge: Array, grid: Array
) -> Array:
    """Kernel regression of j at theta (T, d) with a ridge for each of them, at the grid (n, d)."""
    kernel = recipe.kernel
    assert kernel is not None
    mean, scale = j.mean(), max(float(j.std()), 1e-300)
    gram = np.asarray(kernel(theta, theta)) + np.diag(ridge)
    jitter = 0.0
    while (factor := factorize(gram, jitter)) is None:
        jitter = max(10 * jitter, 1e-14)
    coefficients = factor.solve(((j - mean) / scale)[:, None])[:, 0]
    fitted: Array = mean + scale * (np.asarray(kernel(grid, theta)) @ coefficients)
    return fitted


def _ours(task: Task, rng: np.random.SeedSequence) -> Outcome:
    problem = problem_named(task.problem)
    function = conditional(problem, budget=task.size, rng=rng)
    grid, weights = np.polynomial.legendre.leggauss(200)
    theta = (grid[:, None] + 1) / 2
    exact = 2 / 7 + theta[:, 0] ** 2.5
    error = float(np.sqrt((weights / 2) @ (np.asarray(function(theta)) - exact) ** 2))
    return Outcome(error, function.n_evaluations, error)


def _tasks(effort: Effort) -> list[Task]:
    tasks: list[Task] = []
    for kind in _LINES:
        for held, sizes in (("T", (8, 16, 32, 64)), ("N", (8, 16, 32, 64, 128))):
            tasks += cells("synthetic", _name(kind, held), effort.sizes(*sizes), effort.runs(20))
    ours = effort.sizes(256, 1024, 4096)
    return [*tasks, *cells("synthetic", "conditional ours", ours, effort.runs(5))]


def _name(kind: str, held: str) -> str:
    return f"{kind} {held}={_FIXED_T if held == 'T' else _FIXED_N}"


def _analyze(runs: Runs) -> list[Finding]:
    over_n, over_t = (
        {label: runs.curve("synthetic", _name(kind, held)) for kind, label in _LINES.items()}
        for held in "TN"
    )
    ours = runs.curve("synthetic", "conditional ours")
    looks = dict(zip(_LINES.values(), (look("nkq"), look("nqmc")), strict=True))
    by_t = Curve(over_t["CKQ as published"].costs / _FIXED_N, over_t["CKQ as published"].errors)
    by_n = Curve(over_n["CKQ as published"].costs / _FIXED_T, over_n["CKQ as published"].errors)
    cbq = Curve(over_t["CBQ"].costs / _FIXED_N, over_t["CBQ"].errors)
    words = "L2 error of J over θ"
    return [
        Finding(
            text=(
                "The remark's bound is N^(−s_x/d_x) + T^(−s_θ/d_θ), here N⁻² + T⁻², against "
                "N⁻² + T^(−1/4) known for CBQ. One size grows while the other is held fixed; "
                "r is that of cost ∝ error^−r, so a decay of T⁻² is r = 0.5."
            ),
            drawing=Drawing(
                "conditional",
                f"Error of J as a function. Above, N grows at T = {_FIXED_T}; below, T grows at "
                f"N = {_FIXED_N}; our nestquad.conditional chooses both.",
                lambda: error_figure(
                    {
                        f"N grows, T = {_FIXED_T}": [
                            (label, curve, looks[label]) for label, curve in over_n.items()
                        ],
                        f"T grows, N = {_FIXED_N}": [
                            *((label, curve, looks[label]) for label, curve in over_t.items()),
                            ("ours (conditional)", ours, look("auto")),
                        ],
                    },
                    words=words,
                ),
            ),
            verdicts=(
                decay("CKQ decays like T⁻² (up to logarithms)", by_t, 2.0, "T⁻²"),
                decay("CKQ decays like N⁻² (up to logarithms)", by_n, 2.0, "N⁻²"),
                decay(
                    "CBQ decays at least like T^(−1/4)",
                    cbq,
                    0.25,
                    "T^(−1/4) (a bound)",
                    faster="holds",
                ),
                _ckq_beats_cbq(by_t, cbq),
                verdicts.improvement(
                    "nestquad.conditional has a smaller error than the published CKQ",
                    ours,
                    over_t["CKQ as published"],
                ),
            ),
        )
    ]


def decay(
    claim: str, curve: Curve, power: float, paper: str, *, faster: Status = "holds better"
) -> Verdict:
    """Whether errors fall at least like n^-power, up to logarithms; `costs` are the sizes n.

    `faster` is the verdict on a clearly larger power: a bound on a rival merely holds.
    """
    if len(curve.costs) < 3:
        return Verdict(claim, paper, "not fitted", "cannot tell", "Too few sizes.")
    fits = np.array([1 / fit_exponent(curve.costs, means) for means in curve.resampled()])
    low, high = np.quantile(fits, [0.025, 0.975])
    result = Interval(1 / fit_exponent(curve.costs, curve.means), float(low), float(high))
    ours = f"exponent {result.value:.2f}"
    # Logarithms: (log n)^3 alone makes 2 look like 1.3 between 8 and 128.
    slack = 0.75
    reason = f"95 % interval {low:.2f} to {high:.2f}; logarithms may take up to a quarter of it."
    if result.high < slack * power:
        return Verdict(claim, paper, ours, "does not hold", reason)
    if result.low > 1.1 * power:
        return Verdict(claim, paper, ours, faster, reason)
    status = "holds" if result.value >= slack * power else "cannot tell"
    return Verdict(claim, paper, ours, status, reason)


def _ckq_beats_cbq(ckq: Curve, cbq: Curve) -> Verdict:
    cost = common_cost(ckq, cbq)
    ratio = gain(ckq, cbq, cost)
    claim = "CKQ has the faster rate than CBQ"
    ours = f"CBQ has {factor(ratio.value)} the error of CKQ at T = {cost:.0f}"
    rates = [1 / fit_exponent(c.costs, c.means) for c in (ckq, cbq)]
    reason = f"Decays in T: CKQ {rates[0]:.2f}, CBQ {rates[1]:.2f}; ratio of errors {ratio}."
    paper = "T⁻² against T^(−1/4) (bounds)"
    return verdicts.above_one(claim, paper, ours, ratio, reason)


PARTS = (
    Part(
        name="conditional",
        title="Conditional expectations",
        source="Remark “Convergence rate for CKQ”",
        about=(
            "The synthetic problem, J(θ) = 2/7 + θ^2.5. Both methods have the published first "
            "stage; CKQ then regularises by the schedule, CBQ by the variances that the first "
            "stage reports."
        ),
        tasks=_tasks,
        analyze=_analyze,
        series=(
            *(
                Series(_name(kind, held), _published(kind, _name(kind, held).split()[1]))
                for kind in _LINES
                for held in "TN"
            ),
            Series("conditional ours", _ours),
        ),
    ),
)
