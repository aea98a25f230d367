"""``import nestquad``: how long it takes and what it brings along."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import numpy as np

from studies.promises.measure import interleaved
from studies.runner.result import Result, Table, Verdict, columns
from studies.runner.study import Settings, Study
from studies.runner.text import seconds, times

_STATEMENTS = {"start": "pass", "scipy.stats": "import scipy.stats", "nestquad": "import nestquad"}
_REPORT = """
import json, sys, time
start = time.perf_counter()
{statement}
elapsed = time.perf_counter() - start
# `multiprocessing` gives the main module a second name.
known = {{"__main__", "__mp_main__", *sys.stdlib_module_names}}
tops = sorted({{name.partition(".")[0] for name in sys.modules}} - known)
print(json.dumps([elapsed, len(sys.modules), tops]))
"""


def _run(settings: Settings) -> Result:
    repeats = 3 if settings.quick else 11
    process = interleaved(
        {name: lambda _, s=statement: _fresh(s) for name, statement in _STATEMENTS.items()}, repeats
    )
    inside: dict[str, list[list[Any]]] = {name: [] for name in _STATEMENTS}
    for _ in range(repeats):
        for name, statement in _STATEMENTS.items():
            inside[name].append(json.loads(_fresh(_REPORT.format(statement=statement))))
    alone = {name: np.array([run[0] for run in runs]) for name, runs in inside.items()}
    rows = tuple(
        {
            "what": f'python -c "{statement}"',
            "process": process[name].median,
            "alone": float(np.median(alone[name])) if name != "start" else None,
            "modules": inside[name][0][1],
        }
        for name, statement in _STATEMENTS.items()
    )
    whole = process["nestquad"].over(process["scipy.stats"])
    statement_only = float(np.median(alone["nestquad"] / alone["scipy.stats"]))
    extra = set(inside["nestquad"][0][2]) - set(inside["scipy.stats"][0][2]) - {"nestquad"}
    heads = columns(
        "what = fresh process; process = whole process: seconds; "
        "alone = the import alone: seconds; modules = modules loaded: count"
    )
    ours, theirs = rows[2]["process"], rows[1]["process"]
    return Result(
        tables=(Table("imports", f"Medians of {repeats}.", heads, rows),),
        verdicts=(
            Verdict.of(
                "`import nestquad` beside `import scipy.stats`, whole process",
                "≤ 1.3 ×",
                f"{times(whole)} ({seconds(ours)} and {seconds(theirs)})",
                whole <= 1.3,
            ),
            Verdict.of(
                "the same without the start of Python",
                "≤ 1.3 ×",
                times(statement_only),
                statement_only <= 1.3,
            ),
            Verdict.of(
                "packages loaded besides those of `scipy.stats` and nestquad itself",
                "none",
                ", ".join(sorted(extra)) or "none",
                not extra,
            ),
        ),
    )


def _fresh(code: str) -> str:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


STUDY = Study(
    name="import",
    title="Importing nestquad",
    about="""
Fresh interpreters that do nothing but one import, taking turns. Everything heavier than NumPy and
SciPy (matplotlib, pandas, torch) has to stay out until somebody asks for it.
""",
    run=_run,
)
