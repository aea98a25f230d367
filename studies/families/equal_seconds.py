"""Errors at equal seconds, for a g of any cost: `auto` beside brute force, regression and trees.

Seconds are those of a simulated clock: CPU time of this process, and the cost of each evaluation
of g. A g of a second a point is then no slower to study than one of a microsecond, and other
programs on the machine do not count.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import nestquad as nq
from nestquad.clock import use_clock
from studies import families
from studies.promises.cells import provenance
from studies.promises.measure import warm_up
from studies.runner.ledger import Outcome, Run, Task
from studies.runner.result import Drawing, Figure, Result, Table, Verdict, columns
from studies.runner.study import Settings, Study
from studies.runner.text import geometric

COSTS = (1e-7, 1e-6, 1e-4, 1e-2, 1.0)
METHODS = ("auto", "nmc", "nqmc", "mlmc", "lsmc", "trees")
_WORDS = {"nmc": "nested Monte Carlo", "nqmc": "NQMC", "mlmc": "MLMC", "lsmc": "regression"}
# Errors relative to the exact value below this are equally good for anybody.
_SMALLEST = 1e-6
# Fewer evaluations than this are no estimation: such cells are left out.
_FEWEST = 16
# The late answer that is allowed, and the promises of the study.
_LATE = (1.1, 0.3)
_SHARE, _WORST = 0.8, 2.0
_TREES_SHARE, _TREES_EACH, _DENSE = 0.6, 2e-5, 1 << 14


@dataclass(frozen=True)
class Selection:
    """Problems, costs of an evaluation of g in seconds, limits on seconds, runs of each."""

    problems: tuple[str, ...]
    parity: str = "odd"
    costs: tuple[float, ...] = COSTS
    limits: tuple[float, ...] = (1.0, 5.0)
    runs: int = 1

    def tasks(self) -> Iterator[Task]:
        for replicate in range(self.runs):
            for limit in self.limits:
                for name in self.problems:
                    for cost in self.costs:
                        for method in METHODS if limit >= _FEWEST * cost else ():
                            yield Task(name, f"{method} {cost:g}", limit, replicate)


class SimulatedClock:
    """CPU time, and the cost of the evaluations so far."""

    def __init__(self, cost: float) -> None:
        self.cost, self.evaluations = cost, 0

    def __call__(self) -> float:
        return time.process_time() + self.cost * self.evaluations

    def charged(self, g: Callable[..., Any]) -> Callable[..., Any]:
        def charge(x: np.ndarray, theta: np.ndarray) -> Any:
            self.evaluations += math.prod(np.broadcast_shapes(x.shape[:-1], theta.shape[:-1]))
            return g(x, theta)

        return charge


def _problem(name: str) -> nq.NestedExpectation:
    shipped = name in nq.problems.names()
    return nq.problems.get(name) if shipped else families.problem_of(name)


def report(selection: Selection, out: Path, jobs: int, fresh: bool, command: str) -> None:
    """Run what the ledger lacks, and write page, figure and data."""
    settings = Settings(jobs=jobs, data=out / "data")
    name = "equal_seconds" if selection.parity == "odd" else f"equal_seconds_{selection.parity}"
    study = Study(
        name=name,
        title="Errors at equal seconds",
        about=_ABOUT,
        run=lambda settings: _run(selection, settings, fresh),
        drawings=(Drawing("", "Error by the cost of g: geometric mean over problems.", _draw),),
        command=command,
    )
    study.write(settings, out / f"{name}.md", _HEAD)


def _run(selection: Selection, settings: Settings, fresh: bool) -> Result:
    tasks = selection.tasks()
    runs = settings.runs_of("equal_seconds", tasks, measure, fresh=fresh, warm_up=warm_up)
    return tabulate(runs, selection)


def measure(task: Task) -> Outcome:
    """One estimate in limited time, on the simulated clock."""
    problem = _problem(task.problem)
    method, _, cost = task.method.partition(" ")
    clock = SimulatedClock(float(cost))
    charged = replace(problem, g=clock.charged(problem.g))
    begin = clock()
    with use_clock(clock):
        try:
            value, half = _answer(charged, method, task.goal, task.seed, clock)
        except Exception as error:
            return Outcome.failure(error, clock.evaluations, seconds=clock() - begin)
    error = abs(value - float(problem.exact))
    return Outcome(
        error=error,
        evaluations=clock.evaluations,
        value=value,
        half_width=half,
        covered=float(error <= half),
        seconds=clock() - begin,
    )


def _answer(
    problem: nq.NestedExpectation, method: str, limit: float, seed: int, clock: SimulatedClock
) -> tuple[float, float]:
    if method == "trees":
        return _trees(problem, limit, seed, clock), math.nan
    found = nq.estimate(problem, method=method, max_seconds=limit, rng=seed)
    return float(found.value), float(found.half_width)


def _trees(problem: nq.NestedExpectation, limit: float, seed: int, clock: SimulatedClock) -> float:
    """Boosted trees of g on θ, from one x for each θ, averaged over dense θ."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    rng, end = np.random.default_rng(seed), clock() + _TREES_SHARE * limit
    each = clock.cost + _TREES_EACH
    n = int(np.clip((end - clock()) / each, 20, 200_000))
    law = problem.outer_law
    theta = law.sample(n, rng)
    x = problem.inner_law(theta).sample(1, rng)
    values = np.asarray(problem.g(x, theta[:, None])).reshape(n, -1)
    dense = law.sample(_DENSE, rng)
    j = np.stack(
        [
            HistGradientBoostingRegressor(random_state=seed).fit(theta, column).predict(dense)
            for column in values.T
        ],
        axis=1,
    )
    f = problem.apply_f(j[:, 0] if values.shape[1] == 1 else j)
    return float(np.ravel(problem.finish(np.nanmean(f, axis=0)))[0])


def tabulate(runs: Iterable[Run], selection: Selection) -> Result:
    """Errors of each method by cost and limit, and of auto over the best rival."""
    runs = list(runs)
    rows, ratios, late = [], [], 0
    for limit in selection.limits:
        for cost in selection.costs:
            mine = [r for r in runs if r.goal == limit and r.method.endswith(f" {cost:g}")]
            if not mine:
                continue
            row: dict[str, Any] = {"limit": f"{limit:g} s", "cost": f"{cost:g}"}
            row |= {m: geometric(_errors(mine, m).values()) for m in METHODS}
            best = [
                (min(e for m in METHODS[1:] if (e := _errors(mine, m).get(key)) is not None), error)
                for key, error in _errors(mine, "auto").items()
            ]
            ratios += [error / rival for rival, error in best]
            row["ratio"] = geometric(error / rival for rival, error in best)
            row["wins"] = sum(error <= rival for rival, error in best)
            row["of"] = len(best)
            autos = [r for r in mine if r.method.startswith("auto ")]
            row["covered"] = float(np.mean([r.covered for r in autos])) if autos else math.nan
            late += sum(r.seconds > _LATE[0] * limit + _LATE[1] for r in autos)
            rows.append(row)
    share = float(np.mean(np.array(ratios) <= 1.0)) if ratios else math.nan
    heads = "limit; cost = seconds of g; " + "; ".join(
        f"{m} = {_WORDS.get(m, m)}: error" for m in METHODS
    )
    heads += "; ratio = auto / best rival: number; wins = auto best: count; of: count"
    heads += "; covered = auto covers: percent"
    caption = (
        "Relative root mean square error over runs, geometric mean over problems; an error below a "
        "millionth counts as that."
    )
    return Result(
        tables=(
            Table("errors", caption, columns(heads), tuple(rows)),
            _single_rivals(runs, selection),
        ),
        verdicts=(
            Verdict.of("auto at most the error of the best rival", f"≥ {_SHARE:.0%}",
                       f"{share:.0%} of {len(ratios)}", share >= _SHARE),
            Verdict.of("error of auto over that of the best rival, worst", f"≤ {_WORST:g} ×",
                       f"{max(ratios, default=math.nan):.3g} ×",
                       max(ratios, default=math.inf) <= _WORST),
            Verdict.of("runs of auto later than 1.1 × the limit + 0.3 s", "0", str(late), not late),
        ),
        notes=tuple(f"{r.method} failed on {r.problem}: {r.chosen}" for r in runs if r.failed),
        **provenance(runs),
    )  # fmt: skip


def _single_rivals(runs: Iterable[Run], selection: Selection) -> Table:
    """Errors of auto over those of each rival, over problems, costs and limits."""
    runs, rows = list(runs), []
    for rival in METHODS[1:]:
        ratios = []
        for limit in selection.limits:
            for cost in selection.costs:
                mine = [r for r in runs if r.goal == limit and r.method.endswith(f" {cost:g}")]
                theirs = _errors(mine, rival)
                ratios += [e / theirs[p] for p, e in _errors(mine, "auto").items() if p in theirs]
        if ratios:
            rows.append({
                "rival": _WORDS.get(rival, rival),
                "ratio": geometric(ratios),
                "wins": float(np.mean(np.array(ratios) <= 1.0)),
                "twice": float(np.mean(np.array(ratios) <= 2.0)),
                "of": len(ratios),
            })  # fmt: skip
    heads = (
        "rival; ratio = auto / rival: number; wins = auto at most its error: percent; "
        "twice = at most twice: percent; of: count"
    )
    caption = "Auto beside each rival alone, over all problems, costs and limits."
    return Table("rivals", caption, columns(heads), tuple(rows))


def _errors(runs: Iterable[Run], method: str) -> dict[str, float]:
    """Relative root mean square error of a method by problem, over runs that have not failed."""
    squares: dict[str, list[float]] = {}
    for run in runs:
        if run.method.split()[0] == method and math.isfinite(run.error):
            error = run.error / abs(float(_problem(run.problem).exact))
            squares.setdefault(run.problem, []).append(max(error, _SMALLEST) ** 2)
    return {name: math.sqrt(float(np.mean(found))) for name, found in squares.items()}


def _draw(result: Result) -> Figure:
    """One panel for each limit, with the costs of g at which auto begins to win."""
    import matplotlib.pyplot as plt

    rows = result.tables[0].rows
    limits = list(dict.fromkeys(row["limit"] for row in rows))
    figure, axes = plt.subplots(1, len(limits), figsize=(5.2 * len(limits), 3.8), squeeze=False)
    for ax, limit in zip(axes[0], limits, strict=True):
        mine = [row for row in rows if row["limit"] == limit]
        costs = [float(row["cost"]) for row in mine]
        for method in METHODS:
            style = {"lw": 2.4, "color": "k"} if method == "auto" else {"lw": 1.2}
            label = _WORDS.get(method, method)
            ax.loglog(costs, [row[method] for row in mine], marker="o", ms=4, label=label, **style)
        ax.set(xlabel="seconds of an evaluation of g", title=f"{limit} in all")
    axes[0][0].set_ylabel("relative error")
    axes[0][-1].legend(fontsize=8)
    figure.tight_layout()
    return figure


_HEAD = (
    "<!-- Written by `python -m studies seconds`; change studies/families, not this. -->\n"
    "# Errors at equal seconds\n"
)
_ABOUT = """
`nq.estimate(problem, max_seconds=…)` beside nested Monte Carlo, NQMC, MLMC, regression and boosted
trees in the same seconds, for a g of .1 µs to 1 s. Seconds are CPU time of one core plus the cost
of each evaluation of g, on a simulated clock. The best rival is the one with the smallest error on
that problem, known afterwards: the smallest of five errors, which is smaller than that of any one
of them by chance alone. Trees have at least 20 evaluations.
"""


def default_problems(parity: str) -> tuple[str, ...]:
    """Two problems of each family but the noisy one, whose g differ from one another."""
    seeds = (5, 7) if parity == "odd" else (2, 4)
    names = [name for name in families.families() if name != "noisy"]
    return tuple(f"{name}-{seed}" for seed in seeds for name in names)
