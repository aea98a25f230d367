"""Rivals at equal CPU seconds: ``python -m studies.risk.seconds``.

Each rival learns from a pilot how many evaluations fit, and then spends them in one run. Runs are
lines of docs/data/risk_seconds.csv; docs/risk_benchmarks.md has a table of their errors, which
`python -m studies risk` writes.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import nestquad as nq
from nestquad.clock import use_clock
from studies import risk
from studies.risk.rivals import Monomials, losses, measured

FILE = Path("docs/data/risk_seconds.csv")
FIELDS = ("family", "seed", "seconds", "method", "evaluations", "spent", *risk.MEASURES)
FAMILIES = ("book5", "book12", "book5-exotic", "insurer", "credit")
_PILOT, _DENSE, _MOST = 2_000, 2**15, 4_000_000

Values = np.ndarray
Fit = Callable[[Values, Values], Callable[[Values], Values]]


def _nested(problem: nq.NestedExpectation, n: int, rng: np.random.Generator) -> Values:
    """J at scenarios with n^(1/3) draws each, as is best for smooth J (Gordy and Juneja 2010)."""
    inner = max(round(n ** (1 / 3)), 2)
    return losses(problem, problem.outer_law.sample(n // inner, rng), inner, rng).mean(axis=1)


def _learned(fit: Fit) -> Callable[[nq.NestedExpectation, int, np.random.Generator], Values]:
    """J as a regression predicts it at dense scenarios, learned from one loss a scenario."""

    def law(problem: nq.NestedExpectation, n: int, rng: np.random.Generator) -> Values:
        theta = problem.outer_law.sample(n, rng)
        y = losses(problem, theta, 1, rng)[:, 0]
        center, scale = theta.mean(axis=0), theta.std(axis=0)
        predict = fit((theta - center) / scale, (y - y.mean()) / y.std())
        dense = (problem.outer_law.sample(_DENSE, rng) - center) / scale
        return y.mean() + y.std() * predict(dense)

    return law


def _quadratic(z: Values, y: Values) -> Callable[[Values], Values]:
    basis = Monomials(z.shape[1], 2)
    coefficients = basis.fit(z, y)
    return lambda new: basis.predict(new, coefficients)


def _boosted(z: Values, y: Values) -> Callable[[Values], Values]:
    from sklearn.ensemble import HistGradientBoostingRegressor

    return HistGradientBoostingRegressor(early_stopping=True, random_state=0).fit(z, y).predict


def _network(z: Values, y: Values) -> Callable[[Values], Values]:
    from sklearn.neural_network import MLPRegressor

    settings = {"batch_size": 512, "early_stopping": True, "max_iter": 30, "random_state": 0}
    model = MLPRegressor(hidden_layer_sizes=(32, 32), **settings)
    return model.fit(z, y).predict


RIVALS = {
    "nested Monte Carlo": _nested,
    "quadratic regression": _learned(_quadratic),
    "boosted trees": _learned(_boosted),
    "neural network": _learned(_network),
}


def _rival(name: str, case: risk.Case, seconds: float) -> tuple[dict[str, float], int]:
    start, n = time.process_time(), _PILOT
    RIVALS[name](case.problem, n, np.random.default_rng(0))
    took = time.process_time() - start
    n = int(np.clip(0.9 * n * (seconds - took) / took, n, _MOST))
    j = RIVALS[name](case.problem, n, np.random.default_rng(1))
    return measured(j, case.levels), n


def _door(case: risk.Case, seconds: float) -> tuple[dict[str, float], int]:
    from nestquad import risk as door

    levels = {k: [p for kind, p in risk.MEASURES.values() if kind == k] for k in ("var", "es")}
    exceed = tuple(case.levels.values())
    with use_clock(time.process_time):
        found = door.measure(case.problem, **levels, exceed=exceed, max_seconds=seconds, rng=1)
    each = {"var": found.var, "es": found.es, "p": found.exceed}
    values = {
        name: float(each[kind][case.levels.get(name, p)].value)
        for name, (kind, p) in risk.MEASURES.items()
    }
    return values, found.n_evaluations


def runs(families: list[str], seeds: list[int], limits: list[float]) -> Iterator[dict[str, Any]]:
    """Relative errors of all measures, by method."""
    for family, seed, seconds in ((f, s, t) for f in families for s in seeds for t in limits):
        case = risk.draw(family, seed)
        for method in ("risk.measure", *RIVALS):
            start = time.process_time()
            run = _door(case, seconds) if method == "risk.measure" else None
            found, n = run or _rival(method, case, seconds)
            row = {"family": family, "seed": seed, "seconds": seconds, "method": method}
            row |= {"evaluations": n, "spent": round(time.process_time() - start, 2)}
            errors = {m: abs(found[m] / case.truth[m].value - 1) for m in risk.MEASURES}
            yield row | {m: float(f"{e:.3g}") for m, e in errors.items()}


def table_rows() -> list[dict[str, Any]]:
    """Root mean square errors by limit and method, of the runs that are kept."""
    if not FILE.exists():
        return []
    with FILE.open(newline="") as file:
        kept = list(csv.DictReader(file))
    out = []
    for limit, method in dict.fromkeys((one["seconds"], one["method"]) for one in kept):
        mine = [one for one in kept if (one["seconds"], one["method"]) == (limit, method)]
        row: dict[str, Any] = {"limit": float(limit), "method": method, "runs": len(mine)}
        for name in ("evaluations", "spent"):
            row[name] = float(np.median([float(one[name]) for one in mine]))
        for k, name in enumerate(risk.MEASURES):
            row[f"m{k}"] = float(np.sqrt(np.mean([float(one[name]) ** 2 for one in mine])))
        out.append(row)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--families", default=",".join(FAMILIES))
    parser.add_argument("--seeds", default="1")
    parser.add_argument("--seconds", default="1,5")
    args = parser.parse_args()
    known = FILE.read_text().splitlines()[1:] if FILE.exists() else []
    done = {tuple(line.split(",")[:4]) for line in known}
    families, seeds = args.families.split(","), [int(one) for one in args.seeds.split(",")]
    limits = [float(one) for one in args.seconds.split(",")]
    found = list(runs(families, seeds, limits))
    with FILE.open("a", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        if not known:
            writer.writeheader()
        new = [one for one in found if tuple(str(one[k]) for k in FIELDS[:4]) not in done]
        writer.writerows(new)


if __name__ == "__main__":
    main()
