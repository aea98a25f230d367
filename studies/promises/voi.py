"""Value of information from tables: bias, coverage and flags over fresh tables, and time."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import norm

import nestquad as nq
from nestquad import voi
from nestquad.plots import new_axes, series_styles
from nestquad.result import NORMAL_95
from studies.runner.figures import BAND, name_axis
from studies.runner.result import Drawing, Figure, Result, Table, Verdict, columns
from studies.runner.study import Settings, Study

_NOTHING = "not distinguishable"
WTP = 1e4
_SIZES = (1_000, 10_000)
EXACT = {
    "5,14": 247.912,
    "7,16": 536.520,
    "5,6,14,15": 841.23,
    "5": 22.46,
    "6": 611.80,
    "1,2,3,12": 0.0,
    "5,14 and 1,2,3,12,13": 247.912,
}
# The 19 parameters in the order of the published table: mean and standard deviation.
_LAWS = (
    *((1000, 1), (0.1, 0.02), (5.2, 1), (400, 200), (0.7, 0.1), (0.3, 0.1), (3, 0.5)),
    *((0.25, 0.1), (-0.1, 0.02), (0.5, 0.2), (1500, 1), (0.08, 0.02), (6.1, 1), (0.8, 0.1)),
    *((0.3, 0.05), (3, 1), (0.2, 0.05), (-0.1, 0.02), (0.5, 0.2)),
)
_CORRELATED = (5, 7, 14, 16)
_FIRST_SEED = 5_001


def odd_seeds(count: int) -> range:
    """Odd seeds: even ones are to develop on."""
    return range(_FIRST_SEED, _FIRST_SEED + 2 * count, 2)


def names(text: str) -> list[str]:
    return [f"theta{k.strip()}" for k in text.replace(" and ", ",").split(",")]


def _benefit(t: Any) -> list[Any]:
    effects, costs = _effects_and_costs(t)
    return [WTP * e - c for e, c in zip(effects, costs, strict=True)]


def _effects_and_costs(t: Any) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    v = {k: t[f"theta{k}"] for k in range(1, 20)}
    old = v[5] * v[6] * v[7] + v[8] * v[9] * v[10], v[1] + v[2] * v[3] * v[4]
    new = v[14] * v[15] * v[16] + v[17] * v[18] * v[19], v[11] + v[12] * v[13] * v[4]
    return (old[0], new[0]), (old[1], new[1])


MODEL = voi.Model(
    parameters={f"theta{k}": nq.Normal(*law) for k, law in enumerate(_LAWS, start=1)},
    net_benefit=_benefit,
    correlations={tuple(f"theta{k}" for k in _CORRELATED): 0.6},
    name="brennan",
)


def _run(settings: Settings) -> Result:
    count = settings.seeds if settings.quick else 4 * settings.seeds
    rows = _fresh(count, _SIZES[:1] if settings.quick else _SIZES)
    null = _balanced(count)
    analytic = _analytic(count)
    verdicts = (
        *_fresh_verdicts(rows, count),
        Verdict.of(
            "false “distinguishable” flags, irrelevant parameters and a balanced decision",
            "≤ 5 %",
            ", ".join(f"{100 * r['distinguished']:.1f} % of {count} ({r['set']})" for r in null),
            all(r["distinguished"] <= 0.05 for r in null),
        ),
        *_analytic_verdicts(analytic),
    )
    heads = columns(
        "set = parameters; n = rows: count; exact: number; bias: error; "
        "rmse = RMSE: error; se = mean standard error: error; "
        "coverage = 95 % interval covers: percent; half = median half-width: error; "
        "width = half-width / 1.96 RMSE: number; "
        "distinguished = distinguished from 0: percent; misfit: percent; "
        "seconds = median CPU time: seconds"
    )
    few = tuple(c for c in heads if c.key not in ("n", "misfit", "seconds", "distinguished"))
    return Result(
        (
            Table("fresh", f"EVPPI from {count} fresh tables of each size.", heads, rows),
            Table(
                "analytic",
                f"INB = p1 − p2 with p1 ~ N(1, 1), p2 ~ N(0, 4): {count} tables of 1,000 rows; "
                "EVSI is that of a trial that measures p2, with variance 16 between people.",
                few,
                analytic,
            ),
        ),
        verdicts,
        (
            "A null set is one of irrelevant parameters; a balanced decision is one whose options "
            "are equally good on average, where any noise changes the choice.",
        ),
    )


def fresh_table(n: int, seed: int) -> tuple[voi.Outputs, pd.DataFrame]:
    _, inputs = MODEL.sample(n, seed)
    effects, costs = _effects_and_costs(inputs)
    return voi.Outputs(np.column_stack(costs), np.column_stack(effects), WTP), inputs


def _fresh(count: int, sizes: tuple[int, ...]) -> tuple[dict[str, Any], ...]:
    rows = []
    for n in sizes:
        found: dict[str, list[Any]] = {label: [] for label in EXACT}
        spent: dict[str, list[float]] = {label: [] for label in EXACT}
        for seed in odd_seeds(count):
            outputs, inputs = fresh_table(n, seed)
            for label in EXACT:
                start = time.process_time()
                found[label].append(voi.evppi(outputs, inputs, names(label)).iloc[0])
                spent[label].append(time.process_time() - start)
        rows += [
            {"n": n, **_scores(label, found[label], "evppi", exact)}
            | {"seconds": float(np.median(spent[label]))}
            for label, exact in EXACT.items()
        ]
    return tuple(rows)


def _scores(label: str, found: list[Any], value: str, exact: float) -> dict[str, Any]:
    table = pd.DataFrame(found)
    errors = table[value] - exact
    flags = table["flags"] if "flags" in table else pd.Series("", index=table.index)
    covered = (table.lower <= exact) & (exact <= table.upper)
    rmse = float(np.sqrt(np.square(errors).mean()))
    half = float(((table.upper - table.lower) / 2).median())
    return {
        "set": label,
        "exact": exact,
        "bias": float(errors.mean()),
        "bias_se": float(errors.std() / np.sqrt(len(errors))),
        "rmse": rmse,
        "se": float(table.se.mean()),
        "coverage": float(covered.mean()),
        "half": half,
        "width": half / (NORMAL_95 * rmse) if exact > 0 else np.nan,
        "distinguished": float((~flags.str.contains(_NOTHING)).mean()),
        "misfit": float(flags.str.contains("misfit").mean()),
    }


def _fresh_verdicts(rows: tuple[dict[str, Any], ...], count: int) -> tuple[Verdict, ...]:
    worst = max(rows, key=lambda r: abs(r["bias"]) / max(2.0, r["rmse"] / 4))
    least = min(rows, key=lambda r: r["coverage"])
    null = [r for r in rows if r["exact"] == 0]
    return (
        Verdict.of(
            f"bias of EVPPI over {count} fresh tables, worst of {len(rows)} cases",
            "below a quarter of the RMSE, or 2",
            f"{worst['bias']:.2f} ± {worst['bias_se']:.2f}, RMSE {worst['rmse']:.1f} "
            f"({{{worst['set']}}}, {worst['n']:,} rows)",
            abs(worst["bias"]) < max(2.0, worst["rmse"] / 4),
        ),
        Verdict.of(
            f"coverage of the 95 % interval, least of {len(rows)} cases",
            "92–100 %",
            f"{100 * least['coverage']:.1f} % ({{{least['set']}}}, {least['n']:,} rows)",
            least["coverage"] >= 0.92,
        ),
        Verdict.of(
            "false “distinguishable” flags, {1,2,3,12}",
            "≤ 5 %",
            ", ".join(f"{100 * r['distinguished']:.1f} % at {r['n']:,} rows" for r in null),
            all(r["distinguished"] <= 0.05 for r in null),
        ),
    )


def _balanced(count: int) -> list[dict[str, Any]]:
    rows = []
    for d in (1, 4):
        found = []
        for seed in odd_seeds(count):
            rng = np.random.default_rng(seed)
            benefits = np.column_stack((np.zeros(1000), rng.normal(0.0, 1000.0, 1000)))
            inputs = pd.DataFrame(rng.normal(size=(1000, d)), columns=[f"z{k}" for k in range(d)])
            found.append(voi.evppi(benefits, inputs, list(inputs)).iloc[0])
        words = f"{d} parameter{'s' if d > 1 else ''}"
        rows.append(_scores(words, found, "evppi", 0.0))
    return rows


def _gain(mean: float, sd: float) -> float:
    """The value of knowing a normal incremental net benefit."""
    return float(mean * norm.cdf(mean / sd) + sd * norm.pdf(mean / sd) - max(mean, 0.0))


def _analytic(count: int) -> tuple[dict[str, Any], ...]:
    exact = {
        "EVPI": _gain(1.0, np.sqrt(5.0)),
        "EVPPI of p1": _gain(1.0, 1.0),
        "EVPPI of p2": _gain(1.0, 2.0),
        "EVSI of p2, n = 4": _gain(1.0, np.sqrt(2.0)),
        "EVSI of p2, n = 36": _gain(1.0, np.sqrt(3.6)),
    }
    found: dict[str, list[Any]] = {name: [] for name in exact}
    for seed in odd_seeds(count):
        rng = np.random.default_rng(seed)
        inputs = pd.DataFrame({"p1": rng.normal(1, 1, 1000), "p2": rng.normal(0, 2, 1000)})
        benefits = np.column_stack((np.zeros(1000), inputs.p1 - inputs.p2))
        found["EVPI"].append(voi.evpi(benefits).rename(columns={"evpi": "value"}).iloc[0])
        table = voi.evppi(benefits, inputs).rename(columns={"evppi": "value"})
        found["EVPPI of p1"].append(table.iloc[0])
        found["EVPPI of p2"].append(table.iloc[1])
        trial = voi.NormalTrial("p2", sd=4.0)
        table = voi.evsi(benefits, inputs, trial, [4, 36], rng=seed)
        table = table.rename(columns={"evsi": "value"})
        found["EVSI of p2, n = 4"].append(table.iloc[0])
        found["EVSI of p2, n = 36"].append(table.iloc[1])
    return tuple(_scores(name, rows, "value", exact[name]) for name, rows in found.items())


def _analytic_verdicts(rows: tuple[dict[str, Any], ...]) -> tuple[Verdict, ...]:
    worst = max(rows, key=lambda r: abs(r["bias"]) / r["rmse"])
    least = min(rows, key=lambda r: r["coverage"])
    return (
        Verdict.of(
            "analytic case, bias of EVPI, EVPPI and EVSI, worst of five",
            "below a quarter of the RMSE",
            f"{worst['bias']:.4f}, RMSE {worst['rmse']:.4f} ({worst['set']})",
            abs(worst["bias"]) < worst["rmse"] / 4,
        ),
        Verdict.of(
            "analytic case, coverage, least of five",
            "92–100 %",
            f"{100 * least['coverage']:.1f} % ({least['set']})",
            least["coverage"] >= 0.92,
        ),
    )


def _draw(result: Result) -> Figure:
    rows = result.table("fresh").rows
    sizes = sorted({row["n"] for row in rows})
    labels = list(dict.fromkeys(row["set"] for row in rows))[::-1]
    figure, (left, right) = new_axes(12.0, 3.6, columns=2)
    for n, look in zip(sizes, series_styles(len(sizes)), strict=True):
        shift = 0.12 if n == sizes[0] else -0.12
        for row in rows:
            if row["n"] != n:
                continue
            y = labels.index(row["set"]) + shift
            scale = max(row["rmse"], 1e-9)
            left.errorbar(
                row["bias"] / scale,
                y,
                xerr=1.96 * row["bias_se"] / scale,
                color=look.color,
                marker=look.marker,
                capsize=3,
            )
            right.plot(100 * row["coverage"], y, look.marker, color=look.color, markersize=6.5)
        left.plot([], [], look.marker, color=look.color, label=f"{n:,} rows")
    left.axvspan(-0.25, 0.25, color=BAND, alpha=0.5, zorder=0)
    right.axvspan(92, 100, color=BAND, alpha=0.5, zorder=0)
    left.set_xlabel("bias / RMSE, with its 95 % interval", fontsize=9)
    right.set_xlabel("tables whose 95 % interval covers the exact value (%)", fontsize=9)
    right.set_xlim(88, 100.8)
    for ax in (left, right):
        name_axis(ax, labels, shown=ax is left)
    figure.legend(
        *left.get_legend_handles_labels(), loc="outside upper left", ncols=2, frameon=False
    )
    return figure


STUDY = Study(
    name="voi",
    title="Value of information from tables",
    about="""
`voi.evppi` on tables freshly drawn from the 19-parameter model of the paper's health problem (θ5
and θ14 are the response probabilities, θ7 and θ16 the durations), against exact values. Sets are
listed by the numbers of their parameters; in the last one five irrelevant parameters are added.
Seeds are odd. Then the analytic case, for EVSI too. A half-width of 1.96 RMSE is the narrowest 95 %
interval of a normal estimate.

""",
    run=_run,
    drawings=(Drawing("", "Bias and coverage of EVPPI; the bands are what is asked for.", _draw),),
)
