"""All methods with multilevel kernel quadrature, published and ours, on the three problems."""

from __future__ import annotations

from studies.paper import verdicts
from studies.paper.applications import (
    application_tasks,
    mlmc_budgets,
    nested_sizes,
    nqmc_sizes,
)
from studies.paper.curves import Curve
from studies.paper.figures import error_figure, look
from studies.paper.part import Effort, Part, Runs
from studies.runner.ledger import Task, cells
from studies.runner.result import Drawing, Finding, Verdict

PROBLEMS = ("synthetic", "finance", "health")
COMPARED = {
    "nmc N=√T": "NMC",
    "nqmc N=√T": "NQMC",
    "mlmc antithetic": "MLMC",
    "mlmc plain": "MLMC, plain",
    "nkq N=T": "NKQ",
    "mlkq published": "MLKQ",
    "mlkq": "MLKQ, ours",
    "auto": "ours (auto)",
}


def comparison_tasks(effort: Effort) -> list[Task]:
    """The three problems with every method; most runs are those of the other figures."""
    reps, budgets = effort.runs(36), effort.sizes(256, 1024, 4096, 16384)
    levels, own = ("mlmc antithetic", "mlmc plain"), "synthetic"
    return [
        *cells(own, "nkq N=T", nested_sizes("health", effort), reps),
        *cells(own, "nmc N=√T", effort.sizes(5, 10, 18, 32, 56, 100), reps),
        *cells(own, "nqmc N=√T", nqmc_sizes(own, effort), reps),
        *cells(own, levels, mlmc_budgets(own, effort), reps),
        *cells(own, "auto", budgets, effort.runs(10)),
        *application_tasks("finance", effort),
        *application_tasks("health", effort),
        *(
            task
            for problem in PROBLEMS
            for task in cells(problem, ("mlkq published", "mlkq"), budgets, effort.runs(8))
        ),
    ]


def _analyze(runs: Runs) -> list[Finding]:
    curves = {
        problem: {label: runs.curve(problem, series) for series, label in COMPARED.items()}
        for problem in PROBLEMS
    }
    looks = {label: look(series) for series, label in COMPARED.items()}
    result: list[Verdict] = []
    for problem, by_method in curves.items():
        result += _verdicts(problem, by_method)
    result.append(_beats_mlmc(curves))
    return [
        Finding(
            drawing=Drawing(
                "multilevel",
                "Mean absolute error against evaluations of g on the three problems, bands "
                "from the 25 % to the 75 % quantile; r is fitted to cost ∝ Δ^−r.",
                lambda: error_figure(
                    {
                        problem: [
                            (label, curve, looks[label]) for label, curve in by_method.items()
                        ]
                        for problem, by_method in curves.items()
                    },
                    height=4.2,
                ),
            ),
            verdicts=tuple(result),
        )
    ]


def _verdicts(problem: str, curves: dict[str, Curve]) -> list[Verdict]:
    cost = float(curves["MLKQ"].costs[-1])
    results = [
        verdicts.outperforms(
            f"{problem}: NKQ outperforms the published MLKQ",
            _cut(curves["NKQ"], cost),
            curves["MLKQ"],
            "“outperformed by NKQ by a huge margin”",
        )
    ]
    if problem == "synthetic":
        claim = "synthetic: published MLKQ has cost ∝ Δ^−1.5"
        results.append(verdicts.exponent(claim, curves["MLKQ"], 1.5, "theory 1.5"))
    results.append(
        verdicts.improvement(
            f"{problem}: our MLKQ has a smaller error than the published one",
            curves["MLKQ, ours"],
            curves["MLKQ"],
        )
    )
    return results


def _beats_mlmc(curves: dict[str, dict[str, Curve]]) -> Verdict:
    def found(rival: str) -> Verdict:
        pairs = {problem: (own["MLKQ"], own[rival]) for problem, own in curves.items()}
        claim = "The published MLKQ has a smaller error than MLMC in some settings"
        return verdicts.somewhere(claim, pairs, "better in some settings")

    return verdicts.with_sensitivity(found("MLMC"), "plain MLMC", found("MLMC, plain"))


def _cut(curve: Curve, most: float) -> Curve:
    """The part of a curve up to a cost."""
    keep = [i for i, cost in enumerate(curve.costs) if cost <= most]
    return Curve(curve.costs[keep], tuple(curve.errors[i] for i in keep))


PARTS = (
    Part(
        name="multilevel",
        title="Multilevel methods beside all others",
        source="Appendix, figure “Comparison of all the methods including MLKQ”",
        about=(
            "MLKQ as published: the allocation of its theorem, points of its own for each level "
            "and θ. Ours shares nested points, so that what a level changes is smooth in θ. MLMC "
            "is the antithetic one of the appendix, with the plain one of the main text beside it."
        ),
        tasks=comparison_tasks,
        analyze=_analyze,
    ),
)
