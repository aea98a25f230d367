"""Value of information of sets: interactions that splines are blind to, and false alarms."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from nestquad import voi
from nestquad._typing import Array
from studies.promises.voi import EXACT, fresh_table, names, odd_seeds
from studies.runner.result import Result, Table, Verdict, columns
from studies.runner.study import Settings, Study

_FEW_ROWS, _ROWS = 1_000, 10_000
# The mean of the incremental net benefit given independent standard normals, and their number;
# noise of standard deviation 1 is added.
_HARD: dict[str, tuple[Callable[[Array], Array], int]] = {
    "12 products of two of 24": (lambda x: (x[:, ::2] * x[:, 1::2]).sum(axis=1) / 8.5**0.5, 24),
    "product of four": (lambda x: np.prod(x, axis=1), 4),
    "step in two": (lambda x: 1.2 * ((x[:, 0] > 0.5) & (x[:, 1] > 0)) - 0.25, 2),
    "maximum of four": (lambda x: x.max(axis=1) - 1.1, 4),
    "sign of a product of three": (lambda x: 0.8 * np.sign(np.prod(x, axis=1)), 3),
}


def _truth(mean: Callable[[Array], Array], d: int) -> float:
    """EVPPI from two million conditional means: a standard error of 0.0005 at most."""
    rng = np.random.default_rng(12345)
    draws = [mean(rng.standard_normal((100_000, d))) for _ in range(20)]
    best, plain = np.mean([(np.maximum(m, 0.0).mean(), m.mean()) for m in draws], axis=0)
    return float(best - max(plain, 0.0))


def _hard(count: int, n: int) -> tuple[dict[str, Any], ...]:
    rows = []
    for label, (mean, d) in _HARD.items():
        exact, found, spent = _truth(mean, d), [], []
        for seed in odd_seeds(count):
            rng = np.random.default_rng(seed)
            x = rng.standard_normal((n, d))
            gain = mean(x) + rng.standard_normal(n)
            inputs = pd.DataFrame(x, columns=[f"x{j}" for j in range(d)])
            start = time.process_time()
            table = voi.evppi(np.column_stack((0.0 * gain, gain)), inputs, list(inputs))
            spent.append(time.process_time() - start)
            found.append(table.iloc[0])
        seconds = float(np.median(spent))
        rows.append({"set": label, "n": n, **_scores(found, exact), "seconds": seconds})
    return tuple(rows)


def _fresh(count: int, n: int) -> list[dict[str, Any]]:
    found: dict[str, list[Any]] = {label: [] for label in EXACT}
    for seed in odd_seeds(count):
        outputs, inputs = fresh_table(n, seed)
        sets = {label: names(label) for label in EXACT}
        for _, row in voi.evppi(outputs, inputs, sets).iterrows():
            found[row.pars].append(row)
    return [
        {"set": f"{{{label}}}", "n": n, "tables": count, **_scores(rows, EXACT[label])}
        for label, rows in found.items()
    ]


def _scores(found: list[Any], exact: float) -> dict[str, Any]:
    table = pd.DataFrame(found)
    covered = (table.lower <= exact) & (exact <= table.upper)
    alarmed = table["flags"].str.contains("misfit|interactions")
    return {
        "exact": exact,
        "mean": float(table.evppi.mean()),
        "coverage": float(covered.mean()),
        "flagged": float(alarmed.mean()),
        "safe": float((covered | alarmed).mean()),
        "nothing": float(table["flags"].str.contains("not distinguishable").mean()),
    }


def _run(settings: Settings) -> Result:
    hard = _hard(settings.seeds, _FEW_ROWS) + _hard(settings.share(0.2), _ROWS)
    fresh = _fresh(settings.seeds, _FEW_ROWS)
    if not settings.quick:
        fresh += _fresh(settings.share(0.4), _ROWS)
    safest = min(hard, key=lambda r: r["safe"])
    total = sum(r["tables"] for r in fresh)
    alarms = sum(r["flagged"] * r["tables"] for r in fresh) / total
    covered = {
        n: float(np.mean([r["coverage"] for r in fresh if r["n"] == n]))
        for n in sorted({r["n"] for r in fresh})
    }
    common = (
        "exact: number; mean = mean estimate: number; coverage = 95 % interval covers: percent; "
        "flagged = misfit or interactions: percent; nothing = not distinguishable from 0: percent"
    )
    return Result(
        (
            Table(
                "hard",
                f"Hard sets, {settings.seeds} tables of {_FEW_ROWS:,} rows each, "
                f"{settings.share(0.2)} of {_ROWS:,} rows.",
                columns(f"set; n = rows: count; {common}; seconds = median CPU time: seconds"),
                hard,
            ),
            Table(
                "fresh",
                "The same code on tables of the health problem, where splines are enough.",
                columns(f"set; n = rows: count; tables: count; {common}"),
                tuple(fresh),
            ),
        ),
        (
            Verdict.of(
                "hard sets, covered or flagged, least of ten",
                "≥ 85 %",
                f"{100 * safest['safe']:.0f} % ({safest['set']}, {safest['n']:,} rows)",
                safest["safe"] >= 0.85,
            ),
            Verdict.of(
                "coverage of the 95 % interval over all sets",
                "≥ 93 %",
                ", ".join(f"{100 * v:.1f} % at {n:,} rows" for n, v in covered.items()),
                min(covered.values()) >= 0.93,
            ),
            Verdict.of(
                "false flags “misfit” and “interactions”",
                "≤ 2 %",
                f"{100 * alarms:.1f} % of {total:,} numbers",
                alarms <= 0.02,
            ),
        ),
    )


STUDY = Study(
    name="voi_sets",
    title="Value of information of sets with interactions",
    about="""
Conditional means that the spline basis of `voi.evppi` cannot express, alone or in sums: the second
opinion by boosted trees (extra `boost`) has to find them, or residuals of neighboring draws to show
that something was missed. The same code on the health problem shows what it costs where nothing is
hidden: coverage, and flags without a reason.

""",
    run=_run,
)
