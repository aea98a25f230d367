"""Study of repeated expectations: families on odd seeds, known cases, and READ beside them."""

from __future__ import annotations

import csv
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np

import nestquad as nq
from studies.repeated.cases import CASES
from studies.repeated.families import draw
from studies.repeated.read import Read

METHODS = ("auto", "nmc", "read")
_BEGIN, _END = "<!-- study:begin -->", "<!-- study:end -->"


@dataclass(frozen=True)
class Run:
    """One run: error, half-width of the 95 % interval, evaluations used and seconds of CPU."""

    problem: str
    method: str
    seed: int
    budget: int
    evaluations: int
    exact: float
    error: float
    half_width: float
    inside: bool
    seconds: float

    @property
    def key(self) -> tuple[str, str, int, int]:
        return self.problem, self.method, self.seed, self.budget


def problem_of(name: str) -> nq.RepeatedExpectation:
    """A case by its name, or a member of a family as ``walk-3/5``."""
    family, _, seed = name.partition("/")
    return draw(family, int(seed)) if seed else CASES[name]()


def run(name: str, method: str, seed: int, budget: int) -> Run:
    problem, started = problem_of(name), time.process_time()
    exact = float(np.asarray(problem.exact))
    if method == "read":
        mean, error, n = Read(problem, np.random.default_rng(seed)).estimate(budget)
        value, half = float(mean), float(1.96 * error)
        low, high = value - half, value + half
    else:
        est = nq.estimate(problem, budget=budget, method=method, rng=seed)
        value, half, n = float(est.value), float(est.half_width), est.n_evaluations
        low, high = est.interval()
    seconds = time.process_time() - started
    return Run(
        name,
        method,
        seed,
        budget,
        n,
        exact,
        value - exact,
        half,
        bool(low <= exact <= high),
        round(seconds, 3),
    )


def report(
    names: Sequence[str],
    cases: Sequence[str],
    budgets: Sequence[int],
    rival_budget: int,
    runs: int,
    out: Path,
    command: str,
    tell: Callable[[str], None] = print,
) -> Path:
    """Run what is missing, keep every run as CSV, and write the tables into the page."""
    wanted = [(name, "auto", int(name.rpartition("/")[2]), n) for name in names for n in budgets]
    for case in cases:
        seeds = [2 * i + 1 for i in range(runs)]
        wanted += [(case, "auto", seed, n) for seed in seeds for n in budgets]
        wanted += [(case, m, seed, rival_budget) for seed in seeds for m in ("nmc", "read")]
    file = out / "data" / "repeated_runs.csv"
    known = {one.key: one for one in _read(file)}
    for key in wanted:
        if key not in known:
            known[key] = run(*key)
            _append(file, known[key])
            tell(f"{known[key]}")
    page = out / "more-than-two-levels.md"
    text = page.read_text(encoding="utf-8")
    before, _, rest = text.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    found = [known[key] for key in wanted]
    body = f"{_BEGIN}\n{_tables(found, command)}\n{_END}"
    page.write_text(f"{before}{body}{after}", encoding="utf-8")
    return page


def _tables(runs: Sequence[Run], command: str) -> str:
    drawn = [one for one in runs if "/" in one.problem]
    lines = [f"`{command}`", ""]
    if drawn:
        lines += [
            "| family | evaluations | problems | intervals that hold | median error |"
            " median half-width | CPU seconds |",
            "| --- | --- | --- | --- | --- | --- | --- |",
        ]
        groups = sorted({(one.problem.partition("/")[0], one.budget) for one in drawn})
        for family, budget in groups:
            some = [one for one in drawn if one.problem.startswith(f"{family}/")]
            some = [one for one in some if one.budget == budget]
            lines.append(_row(family, budget, some, f"{len(some)} |"))
        inside = sum(one.inside for one in drawn)
        lines += [
            "",
            f"Of all {len(drawn)} intervals {inside} hold ({inside / len(drawn):.1%}).",
            "",
        ]
    known = [one for one in runs if "/" not in one.problem]
    if known:
        lines += [
            "| problem | method | evaluations | intervals that hold | median error |"
            " median half-width | CPU seconds |",
            "| --- | --- | --- | --- | --- | --- | --- |",
        ]
        kinds = dict.fromkeys((one.problem, one.method, one.budget) for one in known)
        for problem, method, budget in kinds:
            some = [one for one in known if one.key[:2] == (problem, method)]
            some = [one for one in some if one.budget == budget]
            name = {"auto": "nestquad", "nmc": "nested Monte Carlo", "read": "READ"}[method]
            lines.append(_row(f"{problem} | {name}", budget, some, ""))
    return "\n".join(lines)


def _row(name: str, budget: int, some: Sequence[Run], more: str) -> str:
    inside = sum(one.inside for one in some)
    error = float(np.median([abs(one.error) for one in some]))
    half = float(np.median([one.half_width for one in some]))
    seconds = float(np.median([one.seconds for one in some]))
    return (
        f"| {name} | {budget:,} | {more} {inside} of {len(some)} | {error:.1e} | {half:.1e} | "
        f"{seconds:.1f} |"
    )


def _read(file: Path) -> list[Run]:
    if not file.exists():
        return []
    with file.open(encoding="utf-8", newline="") as stream:
        return [
            Run(
                row["problem"],
                row["method"],
                int(row["seed"]),
                int(row["budget"]),
                int(row["evaluations"]),
                float(row["exact"]),
                float(row["error"]),
                float(row["half_width"]),
                row["inside"] == "True",
                float(row["seconds"]),
            )
            for row in csv.DictReader(stream)
        ]


def _append(file: Path, one: Run) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    new = not file.exists()
    with file.open("a", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, [f.name for f in fields(Run)], lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(asdict(one))
