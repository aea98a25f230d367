"""Sensitivities on random books: coverage of derivatives, and the time of a hundred parameters.

A book is a put sold today, looked at after a part of its life: J is its Black–Scholes value, a
decreasing function of the price, so that exact answers are integrals on a line and derivatives are
differences of them. Even seeds are to develop on, odd seeds to report.
"""

from __future__ import annotations

import csv
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

import nestquad as nq
from nestquad._tangent_problem import with_tangents
from studies.runner.text import of_parity

KINDS = ("excess", "square", "probability")
_BUDGET, _HUNDRED = 3_000, 2_000
# Midpoints of the law of θ: kinks between two of them are wrong by the square of their distance.
_Z = ndtri((np.arange(400_000) + 0.5) / 400_000)
# Relative step of differences of exact answers.
_STEP = 1e-4


def put(price: np.ndarray, vol: float, strike: float, years: float) -> np.ndarray:
    """Black–Scholes value without interest."""
    sd = vol * np.sqrt(years)
    d = (np.log(price / strike) + 0.5 * sd**2) / sd
    return strike * ndtr(sd - d) - price * ndtr(-d)


@dataclass(frozen=True)
class Book:
    """A random problem of parameters vol, spot, strike and limit, with its exact answer."""

    kind: str
    years: tuple[float, float]
    at: dict[str, float]

    def make(self, vol: float, spot: float, strike: float, limit: float) -> nq.NestedExpectation:
        def after(start: np.ndarray | float, years: float) -> nq.LogNormal:
            return nq.LogNormal(np.log(start) - vol**2 * years / 2, vol * np.sqrt(years))

        return nq.NestedExpectation(
            outer=after(spot, self.years[0]),
            inner=lambda price: after(price, self.years[1]),
            g=lambda x, price: np.maximum(strike - x[..., 0], 0.0),
            f=lambda j: self.f(j, limit),
            name=f"sensitivities, {self.kind}",
        )

    def f(self, j: np.ndarray, limit: float) -> np.ndarray:
        if self.kind == "probability":
            return (j > limit).astype(float)
        return np.maximum(j - limit, 0.0) if self.kind == "excess" else (j - limit) ** 2

    def exact(self, vol: float, spot: float, strike: float, limit: float) -> float:
        sd = vol * np.sqrt(self.years[0])

        def j(z: np.ndarray) -> np.ndarray:
            return put(spot * np.exp(sd * z - sd**2 / 2), vol, strike, self.years[1])

        if self.kind == "probability":  # J falls with the price
            return float(ndtr(brentq(lambda z: float(j(np.array(z)) - limit), -9.0, 9.0)))
        return float(self.f(j(_Z), limit).mean())

    def slope(self, name: str) -> float:
        h = _STEP * self.at[name]
        up, down = (self.exact(**{**self.at, name: self.at[name] + s * h}) for s in (1, -1))
        return (up - down) / (2.0 * h)


def draw(seed: int, kind: str) -> Book:
    """The book of a seed; the limit is a random quantile of J."""
    rng = np.random.default_rng([31, seed, KINDS.index(kind)])
    vol, spot = float(rng.uniform(0.15, 0.4)), 100.0
    strike, years = float(rng.uniform(85.0, 115.0)), (float(rng.uniform(0.1, 0.6)), 0.5)
    z, sd = float(ndtri(rng.uniform(0.1, 0.5))), vol * np.sqrt(years[0])
    limit = float(put(np.array(spot * np.exp(sd * z - sd**2 / 2)), vol, strike, years[1]))
    return Book(kind, years, {"vol": vol, "spot": spot, "strike": strike, "limit": limit})


@dataclass(frozen=True)
class Run:
    """One derivative (or the value): error, half-width of its 95 % interval, and CPU seconds."""

    seed: int
    kind: str
    answer: str
    exact: float
    error: float
    half_width: float
    inside: bool
    seconds: float


def runs(seed: int, kind: str) -> list[Run]:
    """All answers of one book."""
    book, started = draw(seed, kind), time.process_time()
    found = nq.sensitivity(book.make, book.at, budget=_BUDGET, rng=seed)
    seconds = time.process_time() - started
    rows = []
    for answer in ("value", *book.at):
        est = found.value if answer == "value" else found[answer]
        exact = book.exact(**book.at) if answer == "value" else book.slope(answer)
        # Differences and midpoints of the exact answer have errors of their own.
        slack, (low, high) = 1e-6 * abs(exact) + 1e-9, est.interval()
        inside = bool(low - slack <= exact <= high + slack)
        half = float(est.half_width)
        rows.append(Run(seed, kind, answer, exact, est.value - exact, half, inside, seconds))
    return rows


def hundred() -> dict[str, float]:
    """Seconds of a book of 100 options: g alone, g with all derivatives, and the whole call."""
    jax = __import__("jax")
    strikes = np.linspace(80.0, 120.0, 100)

    def book(weights: np.ndarray) -> nq.NestedExpectation:
        def g(x, theta):  # type: ignore[no-untyped-def]
            price = 100.0 * jax.numpy.exp(0.2 * theta[..., :1] + 0.2 * x[..., :1])
            losses = jax.numpy.logaddexp(0.0, (strikes - price) / 4.0)
            return jax.numpy.sum(weights * losses, axis=-1)

        return nq.NestedExpectation(
            nq.Normal(), nq.Normal(), g, lambda j: np.maximum(j - 500.0, 0.0), arrays="jax"
        )

    at = {"weights": np.linspace(0.5, 1.5, 100)}
    tangents = with_tangents(book, at, budget=_HUNDRED, derivative="jax").tangents
    rng = np.random.default_rng(0)
    w, v = rng.standard_normal((4096, 16, 1)), rng.standard_normal((4096, 1, 1))
    problem = tangents.problem

    def timed(call: Callable[[], object]) -> float:
        call()  # compiled
        started = time.process_time()
        for _ in range(3):
            call()
        return (time.process_time() - started) / 3.0

    alone, both = timed(lambda: tangents.values(problem, w, v)), timed(lambda: tangents(w, v))
    started = time.process_time()
    nq.estimate(book(**at), budget=_HUNDRED, rng=1)
    value = time.process_time() - started
    started = time.process_time()
    nq.sensitivity(book, at, budget=_HUNDRED, rng=1, derivative="jax")
    gradient = time.process_time() - started
    return {"alone": alone, "both": both, "value": value, "gradient": gradient}


def run(out: Path, seeds: Sequence[int], parity: str, line: str) -> None:
    """Run all, and write page and data."""
    chosen = of_parity(seeds, parity)
    rows = [row for kind in KINDS for seed in chosen for row in runs(seed, kind)]
    suffix = "" if parity == "odd" else f"_{parity}"
    (out / "data").mkdir(parents=True, exist_ok=True)
    with (out / "data" / f"sensitivities{suffix}.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(asdict(rows[0])), lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)
    text = page(rows, hundred(), line)
    (out / f"sensitivities_study{suffix}.md").write_text(text, encoding="utf-8")
    print(text)


def page(rows: Sequence[Run], seconds: dict[str, float], line: str) -> str:
    """The page with coverage and times."""
    lines = [
        "# Sensitivities on random books",
        "",
        f"Books of one put with {_BUDGET:,} evaluations for the value and four derivatives by "
        f"differences, the pilot included; exact answers by integrals on a line. Made by `{line}`, "
        f"{len({row.seed for row in rows})} books of each kind.",
        "",
        "| f | answer | 95 % covers | median error / exact | half-width / error | CPU seconds |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for kind in KINDS:
        for answers in (("value",), ("vol", "spot", "strike", "limit")):
            some = [row for row in rows if row.kind == kind and row.answer in answers]
            error = np.median([abs(row.error / row.exact) for row in some])
            ratio = np.median([row.half_width / max(abs(row.error), 1e-12) for row in some])
            inside = sum(row.inside for row in some)
            name = "value" if answers == ("value",) else "derivatives"
            lines.append(
                f"| {kind} | {name} | {inside} of {len(some)} | {error:.1e} | {ratio:.1f} | "
                f"{np.median([row.seconds for row in some]):.1f} |"
            )
    inside = sum(row.inside for row in rows)
    lines += [
        "",
        f"Of all {len(rows)} intervals {inside} hold ({inside / len(rows):.1%}).",
        "",
        "## A hundred parameters",
        "",
        f"A book of 100 smoothed puts by JAX: g with all 100 derivatives takes "
        f"{seconds['both'] / seconds['alone']:.1f} times the CPU of g alone at the same points. "
        f"The whole call with {_HUNDRED:,} evaluations takes {seconds['gradient']:.1f} s of CPU, "
        f"that of the value alone {seconds['value']:.1f} s.",
        "",
    ]
    return "\n".join(lines)
