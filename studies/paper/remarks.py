"""What the paper remarks without an experiment: infinite smoothness, and weights for large N."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from time import process_time
from typing import Any, NamedTuple

import numpy as np
from scipy.integrate import quad
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.special import erf

from nestquad import NKQ, Gaussian, Matern, NestedExpectation, Uniform
from nestquad.embeddings import mean_embedding
from nestquad.kernels import Kernel
from nestquad.plots import End, MethodStyle, label_ends, new_axes, title
from nestquad.rules import Jitter, scheduled_lambda
from studies.paper.curves import Array, Curve, Interval
from studies.paper.figures import line_looks, look
from studies.paper.part import Effort, Part, Runs, Series
from studies.paper.series import run_method
from studies.paper.verdicts import above_one, with_sensitivity
from studies.runner.figures import line_figure
from studies.runner.ledger import Outcome, Task, cells
from studies.runner.result import Drawing, Figure, Finding, Status, Verdict
from studies.runner.text import factor

# Infinite smoothness: a problem in the Gaussian spaces, with kernels whose spaces contain it.

# J² is a mixture of Gaussians of width 1/√2: the space of this lengthscale contains it.
_LENGTHSCALE = 0.7
# Beyond this N, rounding and the ridge that it needs end the decay.
_ROUNDING = 16
_ANALYTIC = {
    "remark gaussian": "Gaussian, i.i.d.",
    "remark gaussian qmc": "Gaussian, QMC",
    "remark matern": "Matérn-3/2 as published",
}


@lru_cache
def analytic() -> NestedExpectation:
    """θ and x uniform, g = exp(−(x − θ)²/2), f = z²: J is a difference of error functions."""

    def j(theta: float) -> float:
        root = math.sqrt(0.5)
        return math.sqrt(math.pi / 2) * float(erf(root * (1 - theta)) + erf(root * theta))

    return NestedExpectation(
        outer=Uniform(0.0, 1.0),
        inner=lambda theta: Uniform(0.0, 1.0),
        g=lambda x, theta: np.exp(-0.5 * (x[..., 0] - theta[..., 0]) ** 2),
        f=lambda values: values**2,
        exact=quad(lambda theta: j(theta) ** 2, 0.0, 1.0, epsabs=1e-14, epsrel=1e-14)[0],
    )


def _analytic_run(points: str, gaussian: bool, task: Task, rng: np.random.SeedSequence) -> Outcome:
    problem, n = analytic(), task.size
    method = NKQ.as_published(n_outer=n, n_inner=n, points=points)
    if gaussian:  # the smallest ridge with which the matrix factorizes, whatever the weights
        ridge = Jitter(1e-15, limit=math.inf)
        recipe = replace(
            method.inner,
            kernel=Gaussian(_LENGTHSCALE),
            lengthscale="fixed",
            regularization=ridge,
        )
        method = replace(method, inner=recipe, outer=recipe)
    return run_method(task, rng, method, problem=problem)


def exponential(claim: str, curve: Curve, typical: Callable[..., Any] = np.median) -> Verdict:
    """Whether the log of a typical error is straight in N rather than in log N; N = T = √cost."""
    n, rng = np.sqrt(curve.costs), np.random.default_rng(0)
    draws = np.log([typical(rng.choice(e, (1000, e.size)), axis=1) for e in curve.errors]).T
    straight, bent = _misfit(n, draws), _misfit(np.log(n), draws)
    share = float((straight < bent).mean())
    rate = -np.polyfit(n, np.log([typical(e) for e in curve.errors]), 1)[0]
    words = f"error ∝ e^(−{rate:.2f} N)"
    reason = (
        f"From N = {n[0]:.0f} to {n[-1]:.0f} log error is straighter in N than in log N in "
        f"{100 * share:.0f} % of bootstrap samples."
    )
    status: Status = "cannot tell"
    if len(n) > 3 and rate > 0:  # two parameters are fitted
        status = "holds" if share >= 0.975 else "does not hold" if share <= 0.025 else status
    return Verdict(claim, "exponential rate", words, status, reason)


def _misfit(x: Array, y: Array) -> Array:
    """Residual sum of squares of a straight line, for each row of y."""
    centred = x - x.mean()
    deviation = y - y.mean(axis=1, keepdims=True)
    slope = deviation @ centred / (centred @ centred)
    result: Array = ((deviation - slope[:, None] * centred) ** 2).sum(axis=1)
    return result


# Weights for large N: the inner integral of the synthetic problem, E x^2.5 = 2/7.

Weights = Callable[[Kernel, Array, float, int, np.random.Generator], Array]
"""Kernel, nodes (N, 1), ridge and rank → weights (N,)."""

_KERNEL, _LAW = Matern(1.5, 0.3), Uniform(0.0, 1.0)


def full_weights(
    kernel: Kernel, nodes: Array, ridge: float, rank: int, rng: np.random.Generator
) -> Array:
    """(K + ridge I)⁻¹ μ, in O(N³)."""
    gram = kernel(nodes, nodes)
    gram[np.diag_indices(len(nodes))] += ridge
    factor = cho_factor(gram, lower=True, overwrite_a=True)
    return np.asarray(cho_solve(factor, mean_embedding(kernel, _LAW, nodes)))


def nystrom_weights(
    kernel: Kernel, nodes: Array, ridge: float, rank: int, rng: np.random.Generator
) -> Array:
    """Ridge regression on the span of `rank` nodes, drawn uniformly, in O(N rank²)."""
    chosen = nodes[rng.choice(len(nodes), rank, replace=False)]
    gram = kernel(chosen, chosen)
    gram[np.diag_indices(rank)] += 1e-12  # nodes that nearly coincide
    lower = np.linalg.cholesky(gram)
    columns_ = solve_triangular(lower, kernel(chosen, nodes), lower=True).T
    means = solve_triangular(lower, mean_embedding(kernel, _LAW, chosen), lower=True)
    return _low_rank(columns_, means, ridge)


def pivoted_weights(
    kernel: Kernel, nodes: Array, ridge: float, rank: int, rng: np.random.Generator
) -> Array:
    """The same on nodes chosen by randomly pivoted Cholesky: where the residual is large."""
    n = len(nodes)
    columns_, residual, chosen = np.zeros((n, rank)), np.ones(n), []
    for i in range(rank):
        pivot = int(rng.choice(n, p=residual / residual.sum()))
        column = kernel(nodes, nodes[[pivot]])[:, 0] - columns_[:, :i] @ columns_[pivot, :i]
        columns_[:, i] = column / math.sqrt(column[pivot])
        residual = np.maximum(residual - columns_[:, i] ** 2, 0.0)
        residual[pivot] = 0.0
        chosen.append(pivot)
    embedded = mean_embedding(kernel, _LAW, nodes[chosen])
    means = solve_triangular(columns_[chosen], embedded, lower=True)
    return _low_rank(columns_, means, ridge)


def _low_rank(columns_: Array, means: Array, ridge: float) -> Array:
    """F (FᵀF + ridge I)⁻¹ b for K ≈ F Fᵀ and the embedding b in the coordinates of F."""
    normal = columns_.T @ columns_
    normal[np.diag_indices(len(normal))] += ridge
    return np.asarray(columns_ @ cho_solve(cho_factor(normal, lower=True), means))


class _Rule(NamedTuple):
    label: str
    weights: Weights
    look: MethodStyle


_RULES = {
    "full": _Rule("all N", full_weights, look("nkq")),
    "nystrom": _Rule("Nyström", nystrom_weights, look("nqmc")),
    "pivoted": _Rule("pivoted Cholesky", pivoted_weights, line_looks(4)[3]),
}
_INTEGRAL = "x^2.5"
# Ranks in units of `effective_rank`; the verdicts are for the one that should be enough.
_RANKS, _ENOUGH = (0.5, 1.0, 2.0, 4.0), 4.0
_CONFIGURATIONS = [("full", 1.0), *((rule, r) for rule in ("nystrom", "pivoted") for r in _RANKS)]


def effective_rank(n: int) -> float:
    """N / (log N)^1.5, the order of Σ σ_m / (σ_m + λ): σ_m ∝ m⁻⁴, λ = N⁻⁴ (log N)⁶."""
    return float(n / math.log(n) ** 1.5)


def _rank(share: float, n: int) -> int:
    return max(round(share * effective_rank(n)), 1)


def _series_name(rule: str, rank: float) -> str:
    return f"weights {rule} {rank:g}"


def _weights_run(weights: Weights, rank: float, task: Task, rng: np.random.SeedSequence) -> Outcome:
    generator, n = np.random.default_rng(rng), task.size
    nodes = generator.random((n, 1))
    ridge = n * scheduled_lambda(1.0, n, smoothness=2.0, dim=1)
    start = process_time()
    result = weights(_KERNEL, nodes, ridge, _rank(rank, n), generator)
    seconds = process_time() - start
    values = nodes[:, 0] ** 2.5
    value = float(values.mean() + result @ (values - values.mean()))
    return Outcome(abs(value - 2 / 7), n, value, seconds=seconds)


def keeps_error(claim: str, cheap: Array, full: Array, time: float) -> Verdict:
    """Whether cheaper weights have at most 1.5 times the error, on the same nodes."""
    drawn = np.random.default_rng(0).integers(0, len(full), (1000, len(full)))
    low, high = np.quantile(full[drawn].mean(axis=1) / cheap[drawn].mean(axis=1), [0.025, 0.975])
    ratio = float(cheap.mean() / full.mean())
    words = f"{factor(ratio)} the error in {factor(time)} the time"
    reason = f"95 % interval {factor(1 / high)} to {factor(1 / low)}; kept is at most 1.5×."
    margin = Interval(1.5 / ratio, 1.5 * float(low), 1.5 * float(high))
    return above_one(claim, "reduces the cost", words, margin, reason)


# The part.


def _tasks(effort: Effort) -> list[Task]:
    sizes, large = effort.sizes(4, 6, 8, 10, 12, 14, 16, 20, 24), effort.sizes(316, 1000, 3162)
    weights = [_series_name(*one) for one in _CONFIGURATIONS]
    return [
        *cells("analytic", tuple(_ANALYTIC), sizes, effort.runs(100)),
        *cells(_INTEGRAL, weights, large, effort.runs(20)),
    ]


def _analyze(runs: Runs) -> list[Finding]:
    return [_infinite(runs), _weights(runs)]


def _infinite(runs: Runs) -> Finding:
    curves = {label: runs.curve("analytic", series) for series, label in _ANALYTIC.items()}
    theirs = curves["Gaussian, i.i.d."]
    decaying = [i for i, cost in enumerate(theirs.costs) if cost <= _ROUNDING**2]
    before = Curve(theirs.costs[decaying], tuple(theirs.errors[i] for i in decaying))
    return Finding(
        title="Infinite smoothness",
        text=(
            "g = exp(−(x − θ)²/2) with θ and x uniform on [0, 1] and f = z²: integrands and "
            f"kernels are of Gaussian spaces (lengthscale {_LENGTHSCALE:g}, N = T, no more ridge "
            "than a Cholesky factor needs). Errors are medians: without a ridge, a few sets with "
            "points close together decide the mean. The decay is fitted up to "
            f"N = {_ROUNDING}; beyond, rounding ends it. Matérn-3/2 as published is drawn beside."
        ),
        drawing=Drawing(
            "remarks_infinite",
            "Median absolute error against N = T, bands from the 25 % to the 75 % quantile. On "
            "these axes an exponential rate is a straight line.",
            lambda: _draw_infinite(curves),
        ),
        verdicts=(
            with_sensitivity(
                exponential("With s = ∞ the error decays exponentially (until rounding)", before),
                "means instead of medians",
                exponential("", before, np.mean),
            ),
        ),
    )


def _draw_infinite(curves: Mapping[str, Curve]) -> Figure:
    figure, (ax,) = new_axes(8.0, 4.2)
    ax.set_yscale("log")
    ends = []
    looks = (look("nkq"), look("nkq-qmc"), line_looks(5)[4])
    for (label, curve), style in zip(curves.items(), looks, strict=True):
        n = np.sqrt(curve.costs)
        low, middle, high = map(curve.quantiles, (0.25, 0.5, 0.75))
        ax.plot(n, middle, **style.line, markersize=5, linewidth=1.4, zorder=3)
        ax.fill_between(n, low, high, color=style.color, alpha=0.13, linewidth=0)
        ends.append(End(float(middle[-1]), label, style.color))
    label_ends(ax, ends)
    ax.set_xticks([int(size) for size in n])
    ax.set_xlabel("N = T")
    ax.set_ylabel("median |error| (log scale)")
    title(ax, "", "an analytic problem")
    return figure


def _weights(runs: Runs) -> Finding:
    largest = runs.sizes(_INTEGRAL, _series_name("full", 1.0))[-1]
    lines = []
    for name, rule in _RULES.items():
        ranks = [rank for other, rank in _CONFIGURATIONS if other == name]
        cells_ = [runs.of_cell(_INTEGRAL, _series_name(name, rank), largest) for rank in ranks]
        x = [largest if name == "full" else _rank(rank, largest) for rank in ranks]
        y = [float(np.mean([run.error for run in cell])) for cell in cells_]
        lines.append((rule.label, x, y, rule.look))
    return Finding(
        title="Weights for large N",
        text=(
            "Weights of N nodes take O(N³); with a matrix of rank M they take O(N M²). The rank "
            "that is needed is the effective dimension of λ. With λ = N⁻⁴ (log N)⁶, which is the "
            "schedule for Matérn-3/2 on a line, that is of order N / (log N)^1.5. So as long as λ "
            "follows the theorem, low rank saves a power of log N, not of N. Measured on "
            "E x^2.5 = 2/7 with i.i.d. nodes, λ_0 = 1 and lengthscale 0.3; nodes for the low rank "
            "are drawn uniformly (Nyström) or by randomly pivoted Cholesky."
        ),
        drawing=Drawing(
            "remarks_weights",
            f"Mean absolute error with N = {largest:,} nodes against the rank of their weights.",
            lambda: line_figure(
                {f"N = {largest:,} nodes": lines}, "rank", "mean |error|", width=8.0, height=4.2
            ),
        ),
        verdicts=tuple(
            with_sensitivity(
                _kept(runs, rule, _ENOUGH, largest),
                f"rank {_rank(_ENOUGH / 2, largest)}",
                _kept(runs, rule, _ENOUGH / 2, largest),
            )
            for rule in ("nystrom", "pivoted")
        ),
    )


def _kept(runs: Runs, rule: str, rank: float, n: int) -> Verdict:
    series = (_series_name(rule, rank), _series_name("full", 1.0))
    results = [runs.of_cell(_INTEGRAL, name, n) for name in series]
    cheap, full = (np.array([run.error for run in cell]) for cell in results)
    times = [float(np.median([run.seconds for run in cell])) for cell in results]
    claim = f"{_RULES[rule].label}, rank {_rank(rank, n)}: the error of N = {n:,} nodes is kept"
    return keeps_error(claim, cheap, full, times[0] / times[1])


PARTS = (
    Part(
        name="remarks",
        title="Infinite smoothness and large N",
        source="the remark on s = ∞ after Theorem 1, and the remedies for O(N³) in the section "
        "on kernel quadrature",
        about="The paper names these without an experiment; here each is measured once.",
        tasks=_tasks,
        analyze=_analyze,
        series=(
            Series("remark gaussian", partial(_analytic_run, "iid", True)),
            Series("remark gaussian qmc", partial(_analytic_run, "sobol", True)),
            Series("remark matern", partial(_analytic_run, "iid", False)),
            *(
                Series(
                    _series_name(rule, rank),
                    partial(_weights_run, _RULES[rule].weights, rank),
                    stream="weights",
                )
                for rule, rank in _CONFIGURATIONS
            ),
        ),
    ),
)
