"""Draw the first picture of README and site, and write their table: `python docs/draw_home.py`.

Two commands made the data: `python -m studies promises --only accuracy` all methods
(``docs/data/accuracy_runs.csv.gz``), and plain nested Monte Carlo far beyond that
`nestquad compare finance --methods nmc --budget 1e6,1e7,1e8 --replicates 10 --seed 0 --json`
(``docs/data/finance_nmc.json``). Pictures of the doors are those of the gallery.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections import defaultdict
from pathlib import Path
from statistics import fmean

import gallery_pages as gallery
import numpy as np

import nestquad as nq
from nestquad.plots import End, count_axis, method_styles, new_axes, save

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS.parent))

from studies.runner.ledger import Ledger  # noqa: E402

FIGURE = DOCS / "figures" / "home.png"
PAGES = (DOCS.parent / "README.md", DOCS / "index.md")
METHODS = ("nmc", "mlmc", "nqmc", "lsmc", "nkq", "mlkq", "ckq", "joint", "auto")
# Problem, the question it stands for, and the usual method.
ROWS = (
    ("finance", "expected loss beyond a limit (risk)", "nested Monte Carlo", "nmc"),
    ("finance", "the same", "nested quasi-Monte Carlo", "nqmc"),
    ("finance", "the same", "multilevel Monte Carlo", "mlmc"),
    ("health", "value of two response rates (EVPPI)", "nested Monte Carlo", "nmc"),
    ("eig-linear", "information gain of an experiment", "nested Monte Carlo", "nmc"),
    ("synthetic10", "smooth benchmark, 10 + 10 dimensions", "nested quasi-Monte Carlo", "nqmc"),
)
MANY = 100_000
DOORS = {
    "voi": "evppi_from_a_table",
    "risk": "risk_of_a_book",
    "design": "information_gain",
    "botorch": "look_ahead",
}


def errors() -> dict[tuple[str, str], dict[int, float]]:
    """Mean absolute error by problem and method, at each number of evaluations."""
    runs: dict[tuple[str, str, int], list[float]] = defaultdict(list)
    for run in Ledger(DOCS / "data" / "accuracy_runs.csv.gz").runs.values():
        runs[run.problem, run.method, int(run.goal)].append(run.error)
    result: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
    for (problem, method, budget), values in sorted(runs.items()):
        result[problem, method][budget] = fmean(values)
    return result


def main() -> None:
    """Write the figure and the table of both pages."""
    outcome = errors()
    save(figure(outcome), FIGURE)
    for door, name in DOORS.items():
        result, folder = gallery.executed(
            gallery.read(gallery.SCRIPTS / f"{name}.py"), gallery.CACHE
        )
        last = [drawn for output in result["outputs"] for drawn in output["figures"]][-1]
        shutil.copyfile(folder / last, DOCS / "figures" / f"door_{door}.png")
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        page.write_text(with_table(text, table(outcome)), encoding="utf-8")


def figure(found: dict[tuple[str, str], dict[int, float]]):
    """Error against evaluations on the paper's risk problem."""
    drawn, (ax,) = new_axes(6.6, 4.4)
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
    rows = json.loads((DOCS / "data" / "finance_nmc.json").read_text(encoding="utf-8"))["rows"]
    long = {row["budget"]: row["mean_abs_error"] for row in rows}
    nmc = {**found["finance", "nmc"], **long}
    grey = looks["nmc"].color
    ax.plot(list(nmc), list(nmc.values()), **looks["nmc"].line, markersize=6, linewidth=1.4)
    most, goal = max(nmc), nmc[max(nmc)]
    few = _evaluations(found["finance", "auto"], goal)
    ax.annotate(
        "",
        (1.25 * few, goal),
        (0.8 * most, goal),
        arrowprops={"arrowstyle": "->", "color": "#222222", "linewidth": 1.3},
    )
    quasi = _evaluations(found["finance", "nqmc"], goal)
    ax.text(
        0.9 * most,
        0.82 * goal,
        f"the same error with\nabout {_round(most / few):,} ×\nfewer evaluations\n"
        f"than nested Monte\nCarlo, about {_round(quasi / few):,} ×\n"
        "fewer than nested\nquasi-Monte Carlo",
        ha="right",
        va="top",
        fontsize=9,
    )
    ends = [end for end in ends if end.text != _NAMES["nmc"]]
    ax.text(4e6, 0.05, _NAMES["nmc"], color=grey, fontsize=9)
    count_axis(ax, np.array([1e3, 1e8]))
    ax.set_xlim(700, 2e8)
    _label_inside(ax, ends, goal)
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


def _evaluations(curve: dict[int, float], error: float) -> float:
    """Evaluations at which a curve falls to an error, between two that were run."""
    counts, errors = np.log(list(curve)), np.log(list(curve.values()))
    return float(np.exp(np.interp(-np.log(error), -errors, counts)))


def _round(ratio: float) -> int:
    """One significant digit."""
    digits = 10 ** int(np.floor(np.log10(ratio)))
    return int(round(ratio / digits) * digits)


def _label_inside(ax, ends, arrow: float) -> None:
    """Labels right of the last measured point, moved apart and off the height of the arrow."""
    order = sorted(ends, key=lambda end: end.y)
    low, high = np.log10(ax.get_ylim())
    gap = 0.043 * (high - low)
    # Labels of curves that end at the arrow or above it stay above, the others below.
    at = np.log10(arrow)
    heights = [np.log10(end.y) for end in order]
    heights[-1] -= 1.5 * gap  # below the curve that goes on
    for _ in range(400):
        for i in range(len(heights) - 1):
            lack = gap - (heights[i + 1] - heights[i])
            if lack > 1e-6:
                heights[i] -= lack / 2
                heights[i + 1] += lack / 2
        for i, end in enumerate(order):
            if end.y >= 0.99 * arrow:
                heights[i] = max(heights[i], at + 0.75 * gap)
            else:
                heights[i] = min(heights[i], at - 0.75 * gap)
    for end, height in zip(order, heights, strict=True):
        bold = "bold" if "default" in end.text else "normal"
        ax.text(
            1.35 * MANY,
            10**height,
            end.text,
            color=end.color,
            fontsize=9,
            va="center",
            weight=bold,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8},
        )


def table(found: dict[tuple[str, str], dict[int, float]]) -> str:
    """Usual methods and nestquad's default; ratios are those of the printed digits."""
    lines = ["| question | usual method | nestquad |", "| --- | --- | --- |"]
    for problem, question, usual, method in ROWS:
        scale = abs(float(np.ravel(nq.problems.get(problem).exact)[0]))
        theirs, ours = found[problem, method][MANY], found[problem, "auto"]
        few = min(n for n, error in ours.items() if error <= theirs)
        before, after = _percent(theirs / scale), _percent(ours[few] / scale)
        cells = (
            question,
            f"{usual}, {MANY:,} evaluations: error {before} %",
            f"**{few:,} evaluations**: error {after} %, {_times(float(before) / float(after))} "
            "smaller",
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
    """A relative error in percent, with two significant digits."""
    percent = float(f"{100 * share:.1e}")
    decimals = max(0, 1 - int(np.floor(np.log10(percent))))
    return f"{percent:.{decimals}f}"


def _times(ratio: float) -> str:
    """A ratio of printed numbers, with two significant digits."""
    return f"{float(f'{ratio:.1e}'):,.{0 if ratio >= 10 else 1}f} ×"


if __name__ == "__main__":
    main()
