"""Proxies planted wrong: coverage of certified intervals, and verdicts, on random problems.

A problem has a θ of two or three normal coordinates, J a sum of random functions of them and a
product, g = J plus noise of two x, and a random f. Exact values are averages of f(J) over 16
scrambled sets of 2^14 Sobol points, and three standard errors of them are allowed for. Proxies are
J with a fault: a shift, a coordinate averaged out, predictions cut off above a quantile, or rough
noise. Validations are of J cut off above a quantile, where all measures look, with exact measures
from four scrambled sets of 2^20 Sobol points. Tables are random skewed books with a few draws for
each scenario. Even seeds are to develop on, odd seeds to report.
"""

from __future__ import annotations

import csv
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import ndtri
from scipy.stats import qmc

import nestquad as nq
from nestquad import risk
from studies.runner.text import of_parity

FAULTS = ("good", "shift", "missing factor", "flattened tail", "overfit")
_BUDGET = 1_500
_SHAPES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "linear": lambda z: z,
    "square": lambda z: (z**2 - 1.0) / np.sqrt(2.0),
    "exponential": lambda z: np.exp(0.5 * z - 0.125) - 1.0,
    "bounded": np.tanh,
}


@dataclass(frozen=True)
class Case:
    """A random problem with closed-form J, and the error `slack` of its exact value."""

    problem: nq.NestedExpectation
    j: Callable[[np.ndarray], np.ndarray]
    parts: tuple[Callable[[np.ndarray], np.ndarray], ...]
    sd: float
    sample: np.ndarray
    slack: float

    def proxy(self, fault: str, seed: int) -> tuple[Callable[[np.ndarray], np.ndarray], int | None]:
        """A proxy with the fault, and the coordinate that it lacks."""
        rng = np.random.default_rng([seed, FAULTS.index(fault)])
        if fault == "good":
            return (lambda theta: self.j(theta)), None
        if fault == "shift":
            off = float(rng.choice([-1, 1]) * rng.uniform(0.15, 0.4)) * self.sd
            return (lambda theta: self.j(theta) + off), None
        if fault == "missing factor":
            sizes = [self.parts[k](self.sample).std() for k in range(len(self.parts))]
            k = int(rng.choice(np.flatnonzero(np.array(sizes) > 0.25 * self.sd)))
            mean = float(self.parts[k](self.sample).mean())
            return (lambda theta: self.j(theta) - self.parts[k](theta) + mean), k
        if fault == "flattened tail":
            top = float(np.quantile(self.j(self.sample), rng.uniform(0.9, 0.95)))
            return (lambda theta: np.minimum(self.j(theta), top)), None
        # Noise on a scale that no regression on a few coordinates follows.
        waves = 6.0 * rng.standard_normal((16, self.sample.shape[1]))
        phases = rng.uniform(0.0, 2.0 * np.pi, 16)

        def overfit(theta: np.ndarray) -> np.ndarray:
            noise = np.cos(theta @ waves.T + phases).sum(axis=1) / np.sqrt(8.0)
            return self.j(theta) + 0.4 * self.sd * noise

        return overfit, None


def draw(seed: int) -> Case:
    """The problem of a seed."""
    rng = np.random.default_rng([7, seed])
    dim = int(rng.integers(2, 4))
    shapes = [_SHAPES[name] for name in rng.choice(list(_SHAPES), dim)]
    sizes, cross = rng.uniform(0.4, 1.2, dim), rng.uniform(-0.15, 0.15)
    noise = rng.uniform(0.3, 1.5)

    def part(k: int) -> Callable[[np.ndarray], np.ndarray]:
        return lambda theta: sizes[k] * shapes[k](theta[..., k])

    parts = tuple(part(k) for k in range(dim))

    def j(theta: np.ndarray) -> np.ndarray:
        return sum(one(theta) for one in parts) + cross * theta[..., 0] * theta[..., 1]

    def g(x: np.ndarray, theta: np.ndarray) -> np.ndarray:
        own = x[..., 0] * (1.0 + 0.2 * theta[..., 0]) + 0.4 * (x[..., 1] ** 2 - 1.0)
        return j(theta) + noise * own

    sets = [qmc.Sobol(dim, seed=1000 * seed + k).random_base2(14) for k in range(16)]
    sample = ndtri(np.clip(np.concatenate(sets), 1e-12, 1.0 - 1e-12))
    values = j(sample)
    kind, level = int(rng.integers(3)), float(np.quantile(values, 0.8))
    functions: list[Callable[[np.ndarray], np.ndarray]] = [
        lambda v: np.maximum(v - level, 0.0),
        np.square,
        lambda v: v,
    ]
    f = functions[kind]
    means = f(values).reshape(16, -1).mean(axis=1)
    problem = nq.NestedExpectation(
        nq.Normal(np.zeros(dim)),
        nq.Normal(np.zeros(2)),
        g,
        f,
        exact=float(means.mean()),
        name=f"proxies-{seed}",
    )
    slack = 3.0 * float(means.std(ddof=1)) / 4.0
    return Case(problem, j, parts, float(values.std()), sample, slack)


@dataclass(frozen=True)
class Run:
    """One check: half-width, error, and whether interval and verdict were right."""

    seed: int
    fault: str
    covers: bool
    covers_half: bool
    half_width: float
    error: float
    own_half_width: float
    first: str
    named: bool
    seconds: float


def check(seed: int, fault: str, budget: int = _BUDGET) -> Run:
    """Certify one proxy of one problem."""
    case = draw(seed)
    proxy, coordinate = case.proxy(fault, seed)
    started = time.process_time()
    found = nq.certify(case.problem, proxy, budget=budget, rng=seed)
    seconds = time.process_time() - started
    est, exact = found.estimate, float(np.asarray(case.problem.exact))
    low, high = est.interval(0.5)
    own = np.nan
    if fault == "good":
        certified = nq.estimate(case.problem, budget=budget, rng=seed, certify=True).certified
        assert certified is not None
        own = float(np.asarray(certified.half_width))
    first = found.faults[0] if found.faults else "none"
    named = first == ("none" if fault == "good" else fault)
    if coordinate is not None and named:
        named = found.diagnosis.faults[0][0].coordinate == coordinate
    if fault == "good":
        named = named or found.is_good
    error = abs(float(np.asarray(est.value)) - exact)
    half = float(np.asarray(est.half_width))
    # The exact value has an error of its own.
    covers = error <= half + case.slack
    inner = bool(low - case.slack <= exact <= high + case.slack)
    return Run(seed, fault, covers, inner, half, error, own, first, named, seconds)


CAPS, _VAR, _ES = (0.5, 0.9, 0.99), 0.995, 0.99


@dataclass(frozen=True)
class Validation:
    """VaR 99.5 or ES 99 of a J that the proxy cuts off: relative error, half-width, verdicts."""

    seed: int
    cap: float
    measure: str
    error: float
    half_width: float
    covers: bool
    proxy: float
    refused: bool
    seconds: float


def validations(seed: int, budget: int = 2 * _BUDGET) -> list[Validation]:
    """Validate one problem's J cut off at each cap."""
    case, rows = draw(seed), []
    problem = replace(case.problem, f=None, exact=None)
    sets = [
        qmc.Sobol(case.sample.shape[1], seed=7000 * seed + k).random_base2(20) for k in range(4)
    ]
    values = [np.sort(case.j(ndtri(np.clip(one, 1e-12, 1.0 - 1e-12)))) for one in sets]
    exact = {
        "var": np.array([np.quantile(one, _VAR) for one in values]),
        "es": np.array([one[int(_ES * len(one)) :].mean() for one in values]),
    }
    for cap in CAPS:
        top, started = float(np.quantile(values[0], cap)), time.process_time()
        found = risk.validate(
            problem,
            lambda theta, top=top: np.minimum(case.j(theta), top),
            var=_VAR,
            es=_ES,
            budget=budget,
            rng=seed,
        )
        seconds = time.process_time() - started
        for row, (name, truths) in zip(found.rows(), exact.items(), strict=True):
            truth, slack = float(truths.mean()), 1.5 * float(truths.std(ddof=1))
            rows.append(
                Validation(
                    seed,
                    cap,
                    name,
                    row["value"] / truth - 1.0,
                    (row["high"] - row["low"]) / (2.0 * abs(truth)),
                    bool(row["low"] - slack <= truth <= row["high"] + slack),
                    row["proxy"] / truth - 1.0,
                    not row["holds"],
                    seconds,
                )
            )
    return rows


def book(seed: int, n: int, k: int) -> tuple[dict[str, np.ndarray], np.ndarray, float]:
    """A table of n scenarios with k draws each of a skewed book, J there, and VaR 99 of its law."""
    rng = np.random.default_rng([11, seed])
    kind, size = int(rng.integers(3)), rng.uniform(0.3, 0.6)

    def j_of(z: np.ndarray) -> np.ndarray:
        if kind == 0:
            return z[:, 0] ** 2 + size * z[:, 1]
        if kind == 1:
            return np.exp(0.6 * z[:, 0] + 0.5 * size * z[:, 1])
        return np.maximum(z[:, 0], 0.0) ** 1.5 + size * np.abs(z[:, 1])

    exact = float(np.quantile(j_of(np.random.default_rng(3).standard_normal((1 << 20, 2))), 0.99))
    z = rng.standard_normal((n, 2))
    j = j_of(z)
    losses = j[:, None] + 1.5 * j.std() * rng.standard_normal((n, k))
    table = {
        "scenario": np.repeat(np.arange(n), k),
        "loss": losses.ravel(),
        "rate": np.repeat(z[:, 0], k),
        "equity": np.repeat(z[:, 1], k),
    }
    return table, j, exact


@dataclass(frozen=True)
class TableRun:
    """VaR 99 of a table: relative errors with factors, without, and if J were known there."""

    seed: int
    draws: int
    error: float
    without: float
    known: float
    covers: bool


def table_run(seed: int, k: int, n: int = 10_000) -> TableRun:
    """Measure one table."""
    table, j, exact = book(seed, n, k)
    found = risk.from_table(table, factors=["rate", "equity"], rng=seed).var[0.99]
    plain = risk.from_table(table, rng=seed).var[0.99]
    low, high = found.interval()
    error, without = (float(np.asarray(one.value)) / exact - 1.0 for one in (found, plain))
    known = float(np.quantile(j, 0.99)) / exact - 1.0
    return TableRun(seed, k, error, without, known, bool(low <= exact <= high))


def run(out: Path, seeds: Sequence[int], parity: str, line: str) -> None:
    """Run all, and write page and data."""
    chosen = of_parity(seeds, parity)
    runs = list(_said(check(seed, fault) for seed in chosen for fault in FAULTS))
    tables = list(_said(table_run(seed, k) for seed in chosen for k in (2, 5, 10)))
    checked = list(_said(one for seed in chosen for one in validations(seed)))
    suffix = "" if parity == "odd" else f"_{parity}"
    folder = out / "data"
    folder.mkdir(parents=True, exist_ok=True)
    kept = {"proxies": runs, "proxy_tables": tables, "proxy_validations": checked}
    for name, rows in kept.items():
        with (folder / f"{name}{suffix}.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(asdict(rows[0])), lineterminator="\n")
            writer.writeheader()
            writer.writerows(asdict(one) for one in rows)
    (out / f"proxies{suffix}.md").write_text(page(runs, checked, tables, line), encoding="utf-8")


def _said(rows: Iterable[Any]) -> Iterable[Any]:
    for row in rows:
        print(row, flush=True)
        yield row


def page(
    runs: Sequence[Run], checked: Sequence[Validation], tables: Sequence[TableRun], line: str
) -> str:
    """The page with all tables."""
    lines = [
        "# Proxies planted wrong",
        "",
        "Proxies of J with a known fault, on random problems that nothing was tuned on. "
        f"A run is `nq.certify` with {_BUDGET:,} evaluations. “Half covers” is the share of 50 % "
        "intervals that hold the exact value: bars that are too wide for their level hold it more "
        f"often. Made by `{line}`, {len({one.seed for one in runs})} problems for each fault.",
        "",
        "| proxy | runs | 95 % covers | half covers | half-width / error | fault named first |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for fault in (*FAULTS, "all"):
        some = [one for one in runs if fault in (one.fault, "all")]
        ratio = np.exp(np.median(np.log([one.half_width / max(one.error, 1e-12) for one in some])))
        cells = [
            fault,
            str(len(some)),
            f"{np.mean([one.covers for one in some]):.0%}",
            f"{np.mean([one.covers_half for one in some]):.0%}",
            f"{ratio:.1f}",
            f"{np.mean([one.named for one in some]):.0%}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    good = [one for one in runs if one.fault == "good"]
    beside = float(np.median([one.half_width / one.own_half_width for one in good]))
    lines += [
        "",
        f"With good proxies the half-width is {beside:.2f} times (median) that of "
        "`nq.estimate(certify=True)`, nestquad's own model, at the same evaluations. For a good "
        "proxy, “named” means that no fault was, or that the proxy was called good.",
        "",
        "## Validation of a proxy that is cut off",
        "",
        f"VaR 99.5 and ES 99 by `risk.validate` with {2 * _BUDGET:,} evaluations, of J cut off "
        "above a quantile. Errors are relative to the exact measures. “Refused” counts measures of "
        "the proxy that are outside of their interval.",
        "",
        "| cut off above | measures | error of the proxy | 95 % covers | median error | "
        "median half-width | refused |",
        "| ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
        *map(_validation_row, CAPS, [[one for one in checked if one.cap == cap] for cap in CAPS]),
        "",
        "## Tables with few draws for each scenario",
        "",
        "VaR 99 of random skewed books, 10,000 scenarios with 2, 5 or 10 draws each, by "
        "`risk.from_table` with `factors=` and without. Errors are relative to the exact value, "
        "and contain the sampling error of the scenarios: “J known” is the quantile of the exact J "
        "of the same scenarios, which no regression can be asked to beat.",
        "",
        "| draws | tables | mean error | largest | mean, J known | largest | "
        "largest distance to it | 95 % covers | mean, no factors |",
        "| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for k in sorted({one.draws for one in tables}):
        some_tables = [one for one in tables if one.draws == k]
        both = (np.array([getattr(one, key) for one in some_tables]) for key in ("error", "known"))
        cells = [
            str(k),
            str(len(some_tables)),
            *(text for e in both for text in (f"{e.mean():+.1%}", f"{np.abs(e).max():.1%}")),
            f"{max(abs(one.error - one.known) for one in some_tables):.1%}",
            f"{np.mean([one.covers for one in some_tables]):.0%}",
            f"{np.mean([one.without for one in some_tables]):+.1%}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def _validation_row(cap: float, some: Sequence[Validation]) -> str:
    cells = [
        f"{cap:.0%}",
        str(len(some)),
        f"{np.mean([one.proxy for one in some]):+.1%}",
        f"{sum(one.covers for one in some)} of {len(some)}",
        f"{np.median([abs(one.error) for one in some]):.2%}",
        f"{np.median([one.half_width for one in some]):.2%}",
        f"{sum(one.refused for one in some)} of {len(some)}",
    ]
    return f"| {' | '.join(cells)} |"
