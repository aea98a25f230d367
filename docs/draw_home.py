"""Draw the first picture of README and site, and write their table: `python docs/draw_home.py`.

The numbers are those of ``docs/data/accuracy_runs.csv``, which
`python -m studies promises --only accuracy` writes.
"""

from __future__ import annotations

import csv
import re
from collections import defaultdict
from pathlib import Path
from statistics import fmean

import numpy as np

import nestquad as nq
from nestquad.plots import End, count_axis, method_styles, new_axes, save

DOCS = Path(__file__).resolve().parent
FIGURE = DOCS / "figures" / "home.png"
PAGES = (DOCS.parent / "README.md", DOCS / "index.md")
METHODS = ("nmc", "mlmc", "nqmc", "lsmc", "nkq", "mlkq", "ckq", "joint", "auto")
# Problem, the question it stands for, and what is used for it.
ROWS = (
    ("finance", "expected loss beyond a limit (risk)", "nested Monte Carlo", "nmc"),
    ("finance", "the same", "nested quasi-Monte Carlo", "nqmc"),
    ("finance", "the same", "multilevel Monte Carlo", "mlmc"),
    ("health", "value of two response rates (EVPPI)", "nested Monte Carlo", "nmc"),
    ("eig-linear", "information gain of an experiment", "nested Monte Carlo", "nmc"),
    ("synthetic10", "smooth benchmark, 10 + 10 dimensions", "nested quasi-Monte Carlo", "nqmc"),
)
MANY, FEW = 100_000, 10_000


def errors() -> dict[tuple[str, str], dict[int, float]]:
    """Mean absolute error by problem and method, at each number of evaluations."""
    runs: dict[tuple[str, str, int], list[float]] = defaultdict(list)
    with (DOCS / "data" / "accuracy_runs.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            key = row["problem"], row["method"], int(float(row["goal"]))
            runs[key].append(float(row["error"]))
    found: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
    for (problem, method, budget), values in sorted(runs.items()):
        found[problem, method][budget] = fmean(values)
    return found


def evaluations_for(curve: dict[int, float], error: float) -> float:
    """Evaluations that a method would need, at the rate of its measured errors."""
    slope, level = np.polyfit(np.log(list(curve)), np.log(list(curve.values())), 1)
    return float(np.exp((np.log(error) - level) / slope))


def main() -> None:
    """Write the figure and the table of both pages."""
    found = errors()
    save(figure(found), FIGURE)
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        page.write_text(with_table(text, table(found)), encoding="utf-8")


def figure(found: dict[tuple[str, str], dict[int, float]]):
    """Error against evaluations on the paper's risk problem."""
    drawn, (ax,) = new_axes(7.4, 4.3)
    ax.set_xscale("log")
    ax.set_yscale("log")
    looks = method_styles(METHODS)
    exact = float(nq.problems.finance().exact)
    ends = []
    for method in METHODS:
        curve = found["finance", method]
        x, y = np.array(list(curve)), np.array(list(curve.values()))
        thick = 2.4 if method == "auto" else 1.4
        ax.plot(x, y, **looks[method].line, markersize=6, linewidth=thick)
        ends.append(End(float(y[-1]), _NAMES[method], looks[method].color))
    goal = found["finance", "auto"][FEW]
    needed = evaluations_for(found["finance", "nmc"], goal)
    nmc = found["finance", "nmc"]
    ax.plot([MANY, needed], [nmc[MANY], goal], color=looks["nmc"].color, linewidth=1.0, alpha=0.7)
    ax.plot([FEW, needed], [goal, goal], color="#222222", linewidth=1.0, linestyle=(0, (8, 3)))
    ax.plot(needed, goal, "o", color=looks["nmc"].color, markersize=8)
    ax.annotate(
        f"the same error by nested Monte Carlo:\n{_power(needed)} evaluations "
        f"({_power(needed / FEW)} × as many)",
        (needed, goal),
        xytext=(0, 14),
        textcoords="offset points",
        ha="right",
        fontsize=9.5,
    )
    count_axis(ax, np.array([1e3, needed]))
    ax.xaxis.set_major_formatter(lambda value, _: _power(value))
    ax.set_xlim(700, 2 * needed)
    _label_inside(ax, ends)
    ax.set_ylabel("mean |error|")
    ax.set_title(
        f"Expected loss beyond a limit: the paper's risk problem, exact value {exact:.4f}",
        loc="left",
        fontsize=10.5,
    )
    return drawn


_NAMES = {
    "nmc": "nested Monte Carlo",
    "mlmc": "multilevel Monte Carlo",
    "nqmc": "nested quasi-Monte Carlo",
    "lsmc": "least-squares regression",
    "nkq": "nested kernel quadrature",
    "mlkq": "multilevel kernel quadrature",
    "ckq": "conditional kernel quadrature",
    "joint": "joint lattice",
    "auto": "nestquad's default",
}


def _label_inside(ax, ends) -> None:
    """Labels right of the last measured point, moved apart."""
    order = sorted(ends, key=lambda end: end.y)
    heights = [np.log10(end.y) for end in order]
    low, high = np.log10(ax.get_ylim())
    gap = 0.043 * (high - low)
    for _ in range(200):
        for i in range(len(heights) - 1):
            lack = gap - (heights[i + 1] - heights[i])
            if lack > 1e-6:
                heights[i] -= lack / 2
                heights[i + 1] += lack / 2
    for end, height in zip(order, heights, strict=True):
        bold = "bold" if "default" in end.text else "normal"
        ax.text(
            1.35 * MANY, 10**height, end.text, color=end.color, fontsize=9, va="center", weight=bold
        )


def table(found: dict[tuple[str, str], dict[int, float]]) -> str:
    """What one is used to beside what it takes here."""
    head = (
        "question",
        "what you are used to",
        f"its error with {MANY:,} evaluations",
        f"error here with {FEW:,}",
        "evaluations for the same error",
    )
    lines = [f"| {' | '.join(head)} |", "| --- | --- | ---: | ---: | ---: |"]
    for problem, question, used_to, method in ROWS:
        scale = abs(float(np.ravel(nq.problems.get(problem).exact)[0]))
        theirs, ours = found[problem, method], found[problem, "auto"]
        ratio = evaluations_for(theirs, ours[FEW]) / FEW
        cells = (
            question,
            used_to,
            f"{_percent(theirs[MANY] / scale)}",
            f"{_percent(ours[FEW] / scale)}",
            f"{_power(ratio)} × fewer",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def with_table(text: str, content: str) -> str:
    """The page with its table made anew."""
    begin, end = "<!-- ratios:begin -->", "<!-- ratios:end -->"
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    if len(pattern.findall(text)) != 1:
        raise SystemExit(f"expected one block {begin} … {end}")
    return pattern.sub(lambda _: f"{begin}\n{content}\n{end}", text)


def _percent(share: float) -> str:
    return f"{100 * share:.1g} %" if share >= 1e-4 else f"{_power(100 * share)} %"


def _power(value: float) -> str:
    """A number, or from a million on, and below a thousandth, its power of ten."""
    exponent = round(np.log10(value))
    if 1e-3 <= value < 1e6:
        digits = 1 - int(np.floor(np.log10(value)))
        return (
            f"{round(value, digits):,.{max(digits, 0)}f}".rstrip(".0")
            if value < 1
            else f"{round(value, digits):,.0f}"
        )
    return "10" + str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


if __name__ == "__main__":
    main()
