"""CPU time of a whole estimate over that of g alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

import nestquad as nq
from nestquad.plots import method_styles
from studies.runner.figures import line_figure
from studies.runner.result import Drawing, Figure, Result, Table, Verdict, columns
from studies.runner.study import Settings, Study
from studies.runner.text import times

_BLOCK = 65_536
# How often g repeats itself, what that should cost a point in seconds, and the largest N = T. Names
# are rough; the table says what a point was measured to cost.
_COSTS = {"0.1 µs": (3, 1e-7, 10_000), "1 µs": (25, 1e-6, 1_000), "10 µs": (250, 1e-5, 316)}
_SIZES = (10, 32, 100, 316, 1_000, 3_162, 10_000)
# Seconds of all repeats of a task, and the least and the most repeats.
_SECONDS, _LEAST_REPEATS, _MOST_REPEATS = 4.0, 2, 30
_METHODS = ("nmc", "nqmc", "nkq")
_FROM = 100_000


def costly(repeats: int, x: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """Some work for each point, several times over."""
    value = x[..., 0] + theta[..., 0]
    for _ in range(repeats):
        value = np.arctan(np.exp(np.sin(value)) + np.cos(value) * value)
    return value


def _problem(repeats: int) -> nq.NestedExpectation:
    return nq.NestedExpectation(nq.Uniform(), nq.Uniform(), partial(costly, repeats), np.square)


def _run(settings: Settings) -> Result:
    ratios = _ratios(settings)
    targets = {"nmc": 1.1, "nkq": 1.2}
    verdicts = [
        _verdict(ratios, method, cost, target, settings)
        for cost in ("0.1 µs", "1 µs")
        for method, target in targets.items()
    ]
    return Result((ratios,), tuple(verdicts))


def _ratios(settings: Settings) -> Table:
    rows = []
    for cost, (repeats, per_point, most) in _COSTS.items():
        g = partial(costly, repeats)
        for n in _SIZES[:3] if settings.quick else _SIZES:
            if n > most:
                continue
            problem = _problem(repeats)
            methods = {
                "nmc": nq.NMC(n, n),
                "nqmc": nq.NQMC(n, n),
                "nkq": nq.NKQ(n, n, sharing="shared"),
            }
            tasks: dict[str, Callable[[int], Any]] = {
                name: partial(_estimated, problem, method) for name, method in methods.items()
            }
            tasks["g alone"] = _alone(g, n)
            often = _SECONDS / (n * n * per_point)
            least = _least_seconds(tasks, int(np.clip(often, _LEAST_REPEATS, _MOST_REPEATS)))
            alone = least.pop("g alone")
            rows += [
                {
                    "cost": cost,
                    "method": name,
                    "evaluations": n * n,
                    "ratio": seconds / alone,
                    "alone": alone,
                    "per_point": alone / n**2 * 1e9,
                }
                for name, seconds in least.items()
            ]
    heads = columns(
        "cost = g; method; evaluations = N·T: count; "
        "per_point = g alone, ns a point: number; alone = g alone: seconds; "
        "ratio = whole estimate over g alone: times"
    )
    caption = (
        "CPU time of a whole estimate (T = N; `nkq` with shared weights) over that of g alone on "
        "points that are there already, in blocks that fit the cache. Each is the least of its "
        "repeats, since other load on the machine only adds; some percent of it remain, "
        "so that a ratio may come out below 1."
    )
    return Table("ratios", caption, heads, tuple(rows))


def _least_seconds(tasks: Mapping[str, Callable[[int], Any]], repeats: int) -> dict[str, float]:
    """Least CPU time of each task, after a round that warms up.

    Tasks take turns. Each gets the number of the repeat as its seed: the same seed again would
    find its weights in a cache.
    """
    spent: dict[str, list[float]] = {name: [] for name in tasks}
    for repeat in range(repeats + 1):
        for name, task in tasks.items():
            start = time.process_time()
            task(repeat)
            spent[name].append(time.process_time() - start)
    return {name: min(seconds[1:]) for name, seconds in spent.items()}


def _estimated(problem: nq.NestedExpectation, method: Any, repeat: int) -> None:
    nq.estimate(problem, method=method, rng=repeat)


def _alone(g: Callable[..., Any], n: int) -> Callable[[int], None]:
    """A task: g on n × n points that are there already, block by block."""
    rng = np.random.default_rng(n)
    rows = max(1, min(n, _BLOCK // n))
    x, theta = rng.random((rows, n, 1)), rng.random((rows, 1, 1))

    def task(repeat: int) -> None:
        left = n
        while left:
            some = min(rows, left)
            g(x[:some], theta[:some])
            left -= some

    return task


def _verdict(ratios: Table, method: str, cost: str, target: float, settings: Settings) -> Verdict:
    chosen = [
        row
        for row in ratios.rows
        if (row["method"], row["cost"]) == (method, cost) and row["evaluations"] >= 0.99 * _FROM
    ]
    name = "NKQ with shared weights" if method == "nkq" else method.upper()
    cheapest = min((row["per_point"] for row in chosen), default=0.0)
    what = f"{cost} ({cheapest:.0f} ns measured)"
    return Verdict.of(
        f"{name}, whole estimate over g alone, N·T ≥ 1e5, g of {what} a point",
        f"≤ {target:g} ×",
        _measured(chosen, target),
        None if not chosen or settings.quick else all(row["ratio"] <= target for row in chosen),
    )


def _measured(rows: Sequence[Mapping[str, Any]], target: float) -> str:
    """The worst ratio, that at the largest size, and the size from which on the target holds."""
    if not rows:
        return "–"
    rows = sorted(rows, key=lambda row: row["evaluations"])
    worst = max(rows, key=lambda row: row["ratio"])
    text = f"{times(worst['ratio'])} at worst (N·T = {_power(worst)})"
    if worst is not rows[-1]:
        text += f", {times(rows[-1]['ratio'])} at {_power(rows[-1])}"
    if worst["ratio"] <= target:
        return text
    above = max(i for i, row in enumerate(rows) if row["ratio"] > target)
    if above + 1 == len(rows):
        return f"{text}; still above {target:g} × there" if worst is not rows[-1] else text
    return f"{text}; within {target:g} × from {_power(rows[above + 1])} on"


def _power(row: Mapping[str, Any]) -> str:
    return f"1e{round(np.log10(row['evaluations']))}"


def _draw_ratios(result: Result) -> Figure:
    styles, panels = method_styles(_METHODS), {}
    for cost in _COSTS:
        rows = [row for row in result.table("ratios").rows if row["cost"] == cost]
        panels[f"g of {cost}"] = _lines(rows, "ratio", styles)
    return line_figure(panels, "evaluations of g", "whole estimate over g alone", width=5.0)


def _lines(rows: Sequence[Mapping[str, Any]], key: str, styles: Mapping[str, Any]) -> list[Any]:
    results = []
    for method, look in styles.items():
        mine = [row for row in rows if row["method"] == method]
        if mine:
            x, y = [row["evaluations"] for row in mine], [row[key] for row in mine]
            results.append((method, x, y, look))
    return results


STUDY = Study(
    name="overhead",
    title="Time around g",
    about="""
A whole `nq.estimate` makes points, calls g in blocks, reduces, tunes, weighs and estimates the
error. How much that is beside g alone depends on how much g costs, so there are three of them. NMC
and NQMC cost a little for each point. NKQ tunes and weighs in N and in T on top: milliseconds that
small designs do not repay. Its weights cost N³ beside N² evaluations; these runs are of earlier
code, with weights in O(N log N) on a line. The cheapest g is run up to N·T = 1e8, the others as far
as seconds allow.
""",
    run=_run,
    drawings=(Drawing("ratios", "Time of a whole estimate over that of g alone.", _draw_ratios),),
)
