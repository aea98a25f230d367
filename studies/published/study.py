"""Runs of the published problems, and their page: printed results beside ours."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import nestquad as nq
from studies.published import Printed, PublishedProblem, cases
from studies.runner.collect import collect, say
from studies.runner.ledger import Ledger, Outcome, Run, Task
from studies.runner.page import markdown_table, plain_markdown, slug
from studies.runner.result import Table, columns, environment
from studies.runner.text import count, number, seconds

_METHOD = "nestquad"
_LEVEL = 0.95
# Runs below which a coverage is not judged, and the share of covered truths that 95 % intervals
# must not fall below significantly (one-sided binomial test at 1 %).
_ENOUGH_RUNS, _SIGNIFICANCE = 20, 0.01


@dataclass(frozen=True)
class BudgetErrors:
    """Our runs of a case at one budget."""

    evaluations: float
    error: float
    error_se: float
    seconds: float
    coverage: float
    half_width: float
    runs: int
    failed: int = 0
    sources: str = ""

    @classmethod
    def of(cls, case: PublishedProblem, runs: Sequence[Run]) -> BudgetErrors:
        """Root-mean-square error with the standard error of its delta method, and coverage."""
        kept = [run for run in runs if not run.failed]
        errors = np.array([run.value - case.exact for run in kept]) / case.scale
        squares = errors**2
        rmse = float(np.sqrt(squares.mean())) if kept else math.nan
        se = float(squares.std(ddof=1) / (2 * rmse * np.sqrt(len(kept)))) if len(kept) > 1 else 0.0
        return cls(
            float(np.mean([run.evaluations for run in kept])) if kept else math.nan,
            rmse,
            se,
            float(np.median([run.seconds for run in kept])) if kept else math.nan,
            float(np.mean([run.covered for run in kept])) if kept else math.nan,
            float(np.median([run.half_width for run in kept])) / case.scale if kept else math.nan,
            len(kept),
            len(runs) - len(kept),
            "/".join(sorted({run.sources for run in runs})),
        )

    def below(self, other: BudgetErrors) -> bool:
        """Whether the error is smaller by more than chance (two standard errors of both)."""
        return self.error + 2 * math.hypot(self.error_se, other.error_se) < other.error

    @property
    def undercovers(self) -> bool:
        """Whether coverage is below 95 % by more than chance."""
        if self.runs < _ENOUGH_RUNS:
            return False
        from scipy.stats import binom

        hits = round(self.coverage * self.runs)
        return bool(binom.cdf(hits, self.runs, _LEVEL) < _SIGNIFICANCE)


def run_task(task: Task) -> Outcome:
    """One estimate of a published problem."""
    case = cases()[task.problem]
    seed = np.random.SeedSequence([zlib.crc32(task.problem.encode()), task.size, task.seed])
    try:
        result = case.solve(task.size, seed)
    except nq.NestquadError as error:
        return Outcome.failure(error)
    value, half = float(np.ravel(result.value)[0]), float(np.ravel(result.half_width)[0])
    # The truth itself has an error where it is no closed form.
    wide = math.hypot(half, 1.96 * case.exact_error)
    return Outcome(
        abs(value - case.exact),
        result.n_evaluations,
        value=value,
        half_width=half,
        covered=float(abs(value - case.exact) <= wide),
        status=result.status,
        chosen=result.method,
    )


def report(
    names: Sequence[str],
    runs: int,
    out: Path,
    jobs: int = 1,
    *,
    fresh: bool = False,
    budgets: Sequence[float] = (),
) -> Path:
    """Run what is missing of these problems, and write ``published.md`` from all runs there are.

    `budgets` are those to run, all without them.
    """
    chosen = {name: case for name, case in cases().items() if name in names}
    ledger = Ledger(out / "data" / "published_runs.csv.gz")
    tasks = [
        Task(name, _METHOD, budget, seed)
        for name, case in chosen.items()
        for budget in case.budgets
        if not budgets or budget in budgets
        for seed in range(runs)
    ]
    if fresh:
        wanted = set(tasks)
        ledger.drop(lambda run: run.task in wanted)
    collect(ledger, tasks, run_task, jobs)
    page = out / "published.md"
    page.write_text(page_text(cases().values(), list(ledger.runs.values())), "utf-8")
    say(f"wrote {page}")
    return page


def page_text(known: Iterable[PublishedProblem], runs: Sequence[Run]) -> str:
    """The page: losses first, then a section for each problem."""
    tables = {case.name: rows for case in known if (rows := _rows(case, runs))}
    shown = [case for case in cases().values() if case.name in tables]
    losses = [line for case in shown for line in _losses(case, tables[case.name])]
    heads = columns(
        "problem; ours = RMSE of nestquad at evaluations; coverage = 95 % interval covers: percent;"
        " printed = printed RMSE at evaluations; fewer = fewer evaluations here: cell"
    )
    lines = tuple(_summary(case, tables[case.name]) for case in shown)
    beyond = [line for case in shown for line in _out_of_reach(case, tables[case.name])]
    parts = [_HEAD, "## Where nestquad loses\n"]
    parts += [_list(losses, "Nowhere in these runs."), ""]
    parts += ["Printed errors that none of our budgets, which are smaller, reaches:\n"]
    parts += [_list(beyond, "None in these runs."), ""]
    parts += ["## Summary\n", markdown_table(Table("summary", _SUMMARY, heads, lines))]
    parts += [_section(case, tables[case.name]) for case in shown]
    env = environment()
    parts.append(
        f"Made by `python -m studies published`: Python {env['python']}, NumPy {env['numpy']}, "
        f"SciPy {env['scipy']}, {env['cpus']} CPUs, one thread for each run. Every run is a line "
        "of `data/published_runs.csv.gz`, with the hash of the code that made it.\n"
    )
    return "\n".join(parts)


def _rows(case: PublishedProblem, runs: Sequence[Run]) -> list[BudgetErrors]:
    own = [[r for r in runs if (r.problem, r.goal) == (case.name, n)] for n in case.budgets]
    return [BudgetErrors.of(case, some) for some in own if some]


def _losses(case: PublishedProblem, rows: Sequence[BudgetErrors]) -> list[str]:
    """Errors above printed or cheaper ones, poor coverage, failures."""
    results = []
    for printed in case.printed:
        row = comparable(rows, printed)
        if row is None or printed.error is None or row.evaluations < 0.5 * printed.evaluations:
            continue
        if row.error - 2 * row.error_se > printed.error:
            results.append(
                f"{case.title}: {printed.method} prints an error of {_error(case, printed.error)} "
                f"at {count(printed.evaluations)} evaluations; ours has {_error(case, row.error)} "
                f"at {count(row.evaluations)}."
            )
    for row in rows:
        if row.undercovers:
            results.append(
                f"{case.title}: 95 % intervals at {count(row.evaluations)} evaluations hold the "
                f"truth in {100 * row.coverage:.0f} % of {row.runs} runs."
            )
        smaller = [one for one in rows if one.evaluations < row.evaluations and one.below(row)]
        if smaller:
            best = min(smaller, key=lambda one: one.error)
            results.append(
                f"{case.title}: more evaluations do not help. The error is "
                f"{_error(case, row.error)} at {count(row.evaluations)} and "
                f"{_error(case, best.error)} at {count(best.evaluations)}."
            )
        if row.failed:
            results.append(f"{case.title}: {row.failed} of {row.runs + row.failed} runs failed.")
    return results


def _out_of_reach(case: PublishedProblem, rows: Sequence[BudgetErrors]) -> list[str]:
    """The cheapest printed result with a smaller error than any of our budgets has."""
    best = min(rows, key=lambda row: row.error)
    smaller = [
        one
        for one in case.printed
        if one.error is not None and one.error < best.error - 2 * best.error_se
    ]
    if not smaller:
        return []
    one = min(smaller, key=lambda printed: printed.evaluations)
    return [
        f"{case.title}: {_error(case, one.error)} by {one.method} at {count(one.evaluations)} "
        f"evaluations; ours has {_error(case, best.error)} at {count(best.evaluations)}."
    ]


def _summary(case: PublishedProblem, rows: Sequence[BudgetErrors]) -> dict[str, object]:
    """One line for a case: our cheapest and best rows beside the printed row they are next to."""
    best = min(rows, key=lambda row: row.error)
    line: dict[str, object] = {
        "problem": f"[{case.title}](#{slug(case.title)})",
        "ours": f"{_error(case, best.error)} at {count(best.evaluations)}",
        "coverage": float(np.average([r.coverage for r in rows], weights=[r.runs for r in rows])),
        "printed": "figures only",
        "fewer": None,
    }
    ratios = []
    for printed in case.printed:
        if printed.error is None:
            continue
        good = [row for row in rows if row.error + 2 * row.error_se <= printed.error]
        if good:
            ratios.append((printed.evaluations / good[0].evaluations, printed))
    numbers = [one for one in case.printed if one.error is not None]
    if numbers:
        ratio, shown = max(ratios, key=lambda pair: pair[0]) if ratios else (None, numbers[-1])
        line["printed"] = (
            f"{shown.method}: {_error(case, shown.error)} at {count(shown.evaluations)}"
        )
        line["fewer"] = None if ratio is None else f"{number(ratio)} ×"
    return line


def comparable(rows: Sequence[BudgetErrors], printed: Printed) -> BudgetErrors | None:
    """Our row with the most evaluations that are not more than the printed ones."""
    if printed.error is None or not math.isfinite(printed.evaluations):
        return None
    allowed = [row for row in rows if row.evaluations <= 1.05 * printed.evaluations]
    return max(allowed, key=lambda row: row.evaluations) if allowed else None


def _section(case: PublishedProblem, rows: Sequence[BudgetErrors]) -> str:
    lines = [
        {
            "method": printed.method,
            "evaluations": printed.evaluations,
            "error": _error(case, printed.error),
            "seconds": None if printed.seconds is None else seconds(printed.seconds),
        }
        for printed in case.printed
    ]
    lines += [
        {
            "method": f"**nestquad**, {row.runs} runs",
            "evaluations": row.evaluations,
            "error": f"{_error(case, row.error)} ± {_error(case, row.error_se)}",
            "half": _error(case, row.half_width),
            "coverage": row.coverage,
            "seconds": seconds(row.seconds),
            "sources": row.sources,
        }
        for row in rows
    ]
    heads = columns(
        "method; evaluations: evaluations; error = RMSE: cell; half = median half-width: cell; "
        "coverage = 95 % interval covers: percent; seconds = CPU seconds: cell; "
        "sources = code: cell"
    )
    truth = f"{case.exact:.8g}"
    truth += f" ± {case.exact_error:.1g} (standard error)" if case.exact_error else ""
    parts = [
        f"## {case.title}\n",
        f"{case.source}.\n",
        f"{plain_markdown(case.about)}\n",
        f"{case.measure[0].upper()}{case.measure[1:]}: {truth}. Command: "
        f"`python -m studies published --fresh --only {case.name}`.\n",
    ]
    if case.remark:
        parts.append(f"{case.remark}\n")
    return "\n".join([*parts, markdown_table(Table(case.name, "", heads, tuple(lines))).lstrip()])


def _error(case: PublishedProblem, error: float | None) -> str:
    if error is None or not math.isfinite(error):
        return "–"
    return f"{number(100 * error)} %" if case.unit == "relative" else number(error)


def _list(lines: Sequence[str], nothing: str) -> str:
    return "\n".join(f"* {line}" for line in lines) if lines else nothing


_SUMMARY = (
    "Our smallest error, and the printed result that took the most evaluations beside the cheapest "
    "of our budgets with no larger error."
)
_HEAD = """\
<!-- Written by `python -m studies published`; change studies/published, not this page. -->
# Published problems

Problems of other papers and repositories with their own parameters. The results that the sources
print stand beside ours; facts are theirs, no code is. Truths are recomputed here, by closed forms,
quadrature or dense quasi-Monte Carlo. Errors are root-mean-square over runs with independent seeds,
of the measure itself or in percent of it; seconds are CPU time of one run. A command that names a
problem runs that alone, with `--budgets` at those alone, and writes all of this page.
"""
