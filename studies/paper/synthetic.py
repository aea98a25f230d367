"""The synthetic experiment: error against cost, with the theory's slopes."""

from __future__ import annotations

from nestquad.plots import label_ends, new_axes, title
from studies.paper import verdicts
from studies.paper.curves import Curve
from studies.paper.figures import Line, draw_lines, guide, line_looks, log_axes, look
from studies.paper.part import Effort, Part, Runs
from studies.runner.ledger import Task, cells
from studies.runner.result import Drawing, Figure, Finding, Status, Verdict

# Sizes n by the ratio N : T.
_NKQ = {
    "N=T": (10, 18, 32, 56, 100, 178),
    "N=√T": (5, 8, 12, 18),
    "N=2T": (7, 13, 23, 40, 71),
    "N=T²": (5, 8, 12, 18),
}
_NMC = {
    "N=√T": (5, 10, 18, 32, 56, 100),
    "N=T": (10, 32, 100, 316, 1000),
    "N=2T": (7, 23, 71, 224, 707),
}


def _tasks(effort: Effort) -> list[Task]:
    def fewer(size: int) -> int:
        # One system for each θ is O(N⁴) in all: the largest sizes take most of the time.
        return effort.runs(60 if size <= 100 else 20)

    tasks: list[Task] = []
    for ratio, sizes in _NKQ.items():
        tasks += cells("synthetic", f"nkq {ratio}", effort.sizes(*sizes), fewer)
    for ratio, sizes in _NMC.items():
        tasks += cells("synthetic", f"nmc {ratio}", effort.sizes(*sizes), effort.runs(60))
    budgets = effort.sizes(128, 256, 1024, 4096, 16384)
    return [*tasks, *cells("synthetic", "auto", budgets, effort.runs(10))]


def _analyze(runs: Runs) -> list[Finding]:
    nkq = {ratio: runs.curve("synthetic", f"nkq {ratio}") for ratio in _NKQ}
    nmc = {ratio: runs.curve("synthetic", f"nmc {ratio}") for ratio in _NMC}
    auto = runs.curve("synthetic", "auto")
    return [
        Finding(
            text=(
                "The thin grey lines are the two rates of theory. The theory asks for N = T "
                "with NKQ and for N = √T with NMC: both should be the lowest line of their "
                "panel. Our default is drawn beside."
            ),
            drawing=Drawing(
                "synthetic",
                "Mean absolute error against evaluations of g, bands from the 25 % to the 75 % "
                "quantile; r is fitted to cost ∝ Δ^−r.",
                lambda: _draw(nkq, nmc, auto),
            ),
            verdicts=(
                verdicts.exponent("NKQ with N = T realises cost ∝ Δ⁻¹", nkq["N=T"], 1.0, "r = 1"),
                verdicts.exponent("NMC with N = √T realises cost ∝ Δ⁻³", nmc["N=√T"], 3.0, "r = 3"),
                fastest("The theory's N : T is the fastest for NKQ", nkq, "N=T", ("N=2T",)),
                fastest("The theory's N : T is the fastest for NMC", nmc, "N=√T"),
                verdicts.improvement(
                    "Our default has a smaller error than the published NKQ", auto, nkq["N=T"]
                ),
            ),
        )
    ]


def fastest(
    claim: str, curves: dict[str, Curve], theory: str, same_rate: tuple[str, ...] = ()
) -> Verdict:
    """Whether no other split has a clearly smaller exponent; N = 2T has the same rate as N = T."""
    if any(len(curve.costs) < 3 for curve in curves.values()):
        return Verdict(claim, theory, "not fitted", "cannot tell", "Too few sizes.")
    fits = {name: curve.exponent for name, curve in curves.items()}
    own = fits[theory]
    others = {n: r for n, r in fits.items() if n != theory and n not in same_rate}
    better = [n for n, r in others.items() if r.high < own.low]
    worse = [n for n, r in others.items() if r.low > own.high]
    status: Status = "holds" if len(worse) == len(others) else "cannot tell"
    if better:
        status = "does not hold"
    words = ", ".join(f"{name}: {r.value:.2f}" for name, r in fits.items())
    reason = f"Clearly slower than {theory}: {', '.join(worse) or 'none'}"
    reason += f"; clearly faster: {', '.join(better)}." if better else "; clearly faster: none."
    if same_rate:
        reason += f" {', '.join(same_rate)} has the same rate in theory."
    return Verdict(claim, f"{theory} has the smallest r", f"r = {words}", status, reason)


def _draw(nkq: dict[str, Curve], nmc: dict[str, Curve], auto: Curve) -> Figure:
    figure, axes = new_axes(8.0, 10.8, rows=3)
    looks = line_looks(4)
    first: list[Line] = [
        (r, c, look("nmc") if r == "N=√T" else looks[i + 1]) for i, (r, c) in enumerate(nmc.items())
    ]
    second: list[Line] = [(r, c, looks[i]) for i, (r, c) in enumerate(nkq.items())]
    third: list[Line] = [
        ("NMC, N=√T", nmc["N=√T"], look("nmc")),
        ("NKQ, N=T", nkq["N=T"], look("nkq")),
        ("ours (auto)", auto, look("auto")),
    ]
    for ax, lines, r, heading in (
        (axes[0], first, 3.0, "NMC, by N : T"),
        (axes[1], second, 1.0, "NKQ as published, by N : T"),
        (axes[2], third, None, "the best of both, and our default"),
    ):
        log_axes(ax, [cost for _, curve, _ in lines for cost in curve.costs], "mean |error|")
        ends = draw_lines(ax, lines)
        curve = lines[0][1]
        if r is not None:
            start = (float(curve.costs[0]), 0.4 * float(curve.means[0]))
            guide(ax, start, r, float(curve.costs[-1]), f"theory, r = {r:.0f}")
        label_ends(ax, ends)
        title(ax, "", heading)
    return figure


PARTS = (
    Part(
        name="synthetic",
        title="The synthetic experiment",
        source="Experiments, “Synthetic Experiment”, figure “Top”",
        about=(
            "θ and x uniform on [0, 1], g = x^2.5 + θ^2.5, f = z²; the answer is 121/294. "
            "NKQ as published: i.i.d. points, Matérn-3/2, median lengthscales, scheduled λ."
        ),
        tasks=_tasks,
        analyze=_analyze,
    ),
)
