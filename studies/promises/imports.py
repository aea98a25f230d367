"""``import nestquad``: how long it takes and what it brings along."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import numpy as np

from studies.runner.result import Result, Table, Verdict, columns
from studies.runner.study import Settings, Study
from studies.runner.text import seconds

_STATEMENTS = {
    "numpy": "import numpy",
    "scipy.stats": "import scipy.stats",
    "nestquad": "import numpy, nestquad",
    "estimate": "import nestquad; nestquad.estimate",  # and all that it imports on first use
}
_MOST_SECONDS = 0.3  # of CPU beyond numpy
_REPORT = """
import json, sys, time
start = time.process_time()
{statement}
elapsed = time.process_time() - start
# `multiprocessing` gives the main module a second name.
known = {{"__main__", "__mp_main__", *sys.stdlib_module_names}}
tops = sorted({{name.partition(".")[0] for name in sys.modules}} - known)
print(json.dumps([elapsed, len(sys.modules), tops]))
"""


def _run(settings: Settings) -> Result:
    repeats = 3 if settings.quick else 11
    runs: dict[str, list[list[Any]]] = {name: [] for name in _STATEMENTS}
    for _ in range(repeats):
        for name, statement in _STATEMENTS.items():
            runs[name].append(json.loads(_fresh(_REPORT.format(statement=statement))))
    cpu = {name: float(np.median([run[0] for run in own])) for name, own in runs.items()}
    rows = tuple(
        {
            "what": f'python -c "{statement}"',
            "cpu": cpu[name],
            "beyond": cpu[name] - cpu["numpy"] if name != "numpy" else None,
            "modules": runs[name][0][1],
        }
        for name, statement in _STATEMENTS.items()
    )
    heads = columns(
        "what = fresh process; cpu = CPU time of the statement: seconds; "
        "beyond = beyond numpy: seconds; modules = modules loaded: count"
    )
    beyond = cpu["nestquad"] - cpu["numpy"]
    extra = set(runs["estimate"][0][2]) - set(runs["scipy.stats"][0][2]) - {"nestquad"}
    return Result(
        tables=(Table("imports", f"Medians of {repeats}.", heads, rows),),
        verdicts=(
            Verdict.of(
                "`import nestquad`, CPU time beyond numpy",
                f"≤ {_MOST_SECONDS} s",
                seconds(beyond),
                beyond <= _MOST_SECONDS,
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
Fresh interpreters that run one statement, taking turns. Names of `nestquad` are imported on first
use, so the last row is the time until an estimation can start. Everything heavier than NumPy and
SciPy (matplotlib, pandas, torch) stays out until somebody asks for it.
""",
    run=_run,
)
