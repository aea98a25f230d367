"""Value of information from published tables and from a model: values, time and model runs."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pandas as pd

from nestquad import voi
from studies.promises.voi import EXACT, MODEL, WTP, fresh_table, names
from studies.runner.result import Result, Table, Verdict, columns
from studies.runner.study import Settings, Study
from studies.runner.text import seconds

_PRINTED = {"5,14": (276.0, 20.0), "7,16": (546.0, 19.0), "5,6,14,15": (863.0, 18.0)}
_CHEMO_GROUPS = {
    "side effects": ["p_side_effects_t1", "p_side_effects_t2"],
    "costs": ["c_home_care", "c_hospital", "c_death"],
    "utilities": ["u_recovery", "u_home_care", "u_hospital"],
    "transitions": ["p_hospitalised_total", "p_died", "lambda_home", "lambda_hosp"],
    "seven": [
        *("logor_side_effects", "p_side_effects_t1", "u_home_care", "u_hospital"),
        *("p_hospitalised_total", "p_died", "rate_longterm"),
    ],
}


def _run(settings: Settings) -> Result:
    timings, timed = _times(settings.quick)
    runs, models = _models()
    return Result(
        (
            Table(
                "times",
                "Time of whole calls, standard errors and intervals included.",
                columns("what; seconds = time: seconds; cpu = CPU time: seconds"),
                timings,
            ),
            Table(
                "model",
                "EVPPI of the response probabilities from the model, ± 1 asked for.",
                columns(
                    "method; value: number; half = half-width: error; runs = model runs: count; "
                    "seconds = time: seconds"
                ),
                runs,
            ),
        ),
        (*_printed_verdicts(), *timed, *models),
    )


def _shared(*parts: str) -> pd.DataFrame | None:
    """A published table, where the data are beside the clone or where the environment says."""
    beside = Path(__file__).resolve().parents[3] / "shared" / "data"
    path = Path(os.environ.get("NESTQUAD_DATA", beside)).joinpath(*parts)
    return pd.read_csv(path) if path.is_file() else None


def _printed_verdicts() -> tuple[Verdict, ...]:
    files = ("costs_2d.csv", "effects_2d.csv", "parameters.csv")
    costs, effects, inputs = (_shared("brennan", name) for name in files)
    verdicts = []
    for label, (value, within) in _PRINTED.items():
        measured, met = "–", None
        if costs is not None and effects is not None and inputs is not None:
            row = voi.evppi((costs, effects, WTP), inputs, names(label)).iloc[0]
            measured = f"{row.evppi:.1f}, standard error {row.se:.1f}"
            met = bool(abs(row.evppi - value) <= within)
        verdicts.append(
            Verdict.of(
                f"published table of 10,000 rows, {{{label}}}",
                f"{value:.0f} ± {within:.0f}",
                measured,
                met,
            )
        )
    return tuple(verdicts)


def _times(quick: bool) -> tuple[tuple[dict[str, Any], ...], tuple[Verdict, ...]]:
    rows: list[dict[str, Any]] = []
    parts = (_shared("chemo", f"chemo_{name}.csv") for name in ("costs", "effects", "pars"))
    costs, effects, inputs = parts
    measured, met = "–", None
    if costs is not None and effects is not None and inputs is not None:
        outputs = voi.Outputs(costs, effects, 2e4)
        rows = [
            _timed("chemo, 10,000 rows: 14 parameters one by one", outputs, inputs, "all singles"),
            _timed("chemo: five groups of 2, 3, 3, 4 and 7", outputs, inputs, _CHEMO_GROUPS),
        ]
        spent, cpu = (sum(row[key] for row in rows) for key in ("seconds", "cpu"))
        measured, met = f"{seconds(spent)} ({seconds(cpu)} of CPU time)", spent < 20
    if not quick:
        outputs, inputs = fresh_table(100_000, 0)
        for label in ("5,14", "5,6,7,8,9,10,14,15,16,17"):
            what = f"100,000 rows, {len(names(label))} parameters"
            rows.append(_timed(what, outputs, inputs, names(label)))
    verdict = Verdict.of(
        "chemo, 14 singles and five groups up to 7 with standard errors, one process",
        "< 20 s",
        measured,
        met,
    )
    return tuple(rows), (verdict,)


def _timed(what: str, outputs: voi.Outputs, inputs: pd.DataFrame, pars: Any) -> dict[str, Any]:
    start, start_cpu = time.perf_counter(), time.process_time()
    voi.evppi(outputs, inputs, pars)
    spent, cpu = time.perf_counter() - start, time.process_time() - start_cpu
    return {"what": what, "seconds": spent, "cpu": cpu}


def _models() -> tuple[tuple[dict[str, Any], ...], tuple[Verdict, ...]]:
    rows, verdicts = [], []
    for method in ("auto", "joint"):
        est = MODEL.evppi(["theta5", "theta14"], tol=1.0, method=method, rng=0)
        value, half, runs = float(est.value), 1.959964 * float(est.std_error), est.n_evaluations
        used = method if est.method == method else f"{method} ({est.method})"
        row = {"method": used, "value": value, "half": half, "runs": runs}
        rows.append({**row, "seconds": est.seconds})
        verdicts.append(
            Verdict.of(
                f"`voi.Model`, EVPPI of {{5,14}} to ± 1, method `{method}`",
                "≤ 20,000 model runs",
                f"{value:.2f} ± {half:.2f} (exact {EXACT['5,14']}) in {runs:,} runs",
                runs <= 20_000 and abs(value - EXACT["5,14"]) < 1.0,
            )
        )
    return tuple(rows), tuple(verdicts)


STUDY = Study(
    name="voi_model",
    title="Value of information from published tables and from a model",
    about="""
Published tables of 10,000 draws, where they are beside the clone or where `NESTQUAD_DATA` says;
tables of 100,000 draws, for time; and `voi.Model` on the paper's health problem.
""",
    run=_run,
)
