"""BLAS threads: what an installation costs whose user set no environment variable."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import numpy as np

from studies.runner.result import Result, Table, Verdict, columns
from studies.runner.study import Settings, Study
from studies.runner.text import times

_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_CALLS = {
    "auto": "nq.estimate(finance, budget=10_000, rng=0)",
    "auto, a tolerance": "nq.estimate(finance, tol=1e-3, budget=100_000, rng=0)",
    "ckq": "nq.estimate(health, budget=4_000, method='ckq', rng=0)",
    "nkq": "nq.estimate(health, budget=40_000, method='nkq', rng=0)",
    "mlkq": "nq.estimate(finance, budget=10_000, method='mlkq', rng=0)",
    "lsmc": "nq.estimate(health, budget=10_000, method='lsmc', rng=0)",
    "conditional": "nq.conditional(finance, budget=2_000, rng=0)",
}
_SCRIPT = """
import json, time
import nestquad as nq
finance, health = nq.problems.finance(), nq.problems.health()
nq.estimate(finance, budget=200, rng=0)  # imports
found = {{}}
for name, call in json.loads({calls!r}).items():
    cpu, wall = time.process_time(), time.perf_counter()
    eval(call)
    found[name] = time.process_time() - cpu, time.perf_counter() - wall
print(json.dumps(found))
"""


def _run(settings: Settings) -> Result:
    repeats = 2 if settings.quick else 5
    free: list[dict[str, Any]] = []
    one: list[dict[str, Any]] = []
    for _ in range(repeats):  # in turn, so that a busy minute hits both
        free.append(_fresh({}))
        one.append(_fresh({"OMP_NUM_THREADS": "1"}))
    rows = []
    for name in _CALLS:
        row: dict[str, Any] = {"what": name}
        for k, clock in enumerate(("cpu", "wall")):
            # The least of several: what others do on the machine only adds.
            ours, least = (min(run[name][k] for run in runs) for runs in (free, one))
            row |= {f"{clock}_free": ours, f"{clock}_one": least, clock: ours / least}
        rows.append(row)
    totals = {
        clock: sum(row[f"{clock}_free"] for row in rows) / sum(row[f"{clock}_one"] for row in rows)
        for clock in ("cpu", "wall")
    }
    worst = {clock: max(rows, key=lambda row, c=clock: row[c]) for clock in ("cpu", "wall")}
    heads = columns(
        "what = call; cpu_one = CPU time, one thread: seconds; "
        "cpu_free = CPU time, nothing set: seconds; wall_one = wall time, one thread: seconds; "
        "wall_free = wall time, nothing set: seconds"
    )
    note = f"Least of {repeats} fresh processes each, taking turns, on {os.cpu_count()} CPUs."
    return Result(
        tables=(Table("threads", note, heads, tuple(rows)),),
        verdicts=tuple(
            Verdict.of(
                f"{words} of all calls with no environment variable set, beside OMP_NUM_THREADS=1",
                "≤ 1.2 ×",
                f"{times(totals[clock])}; worst: {worst[clock]['what']} "
                f"{times(float(np.round(worst[clock][clock], 2)))}",
                totals[clock] <= 1.2,
            )
            for clock, words in (("cpu", "CPU time"), ("wall", "wall time"))
        ),
    )


def _fresh(variables: dict[str, str]) -> dict[str, Any]:
    env = {name: value for name, value in os.environ.items() if name not in _VARIABLES}
    code = _SCRIPT.format(calls=json.dumps(_CALLS))
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        text=True,
        env={**env, **variables},
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


STUDY = Study(
    name="threads",
    title="BLAS threads",
    about="""
The matrices here are small, and BLAS libraries give them all cores by default: threads then wait
for each other by spinning. nestquad limits BLAS to one thread while it analyses, and lifts the
limit while g runs. Typical calls in fresh processes, with and without `OMP_NUM_THREADS=1`.
""",
    run=_run,
)
