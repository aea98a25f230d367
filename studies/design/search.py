"""Regret of `design.optimize` on random problems, errors at equal seconds, and differences.

``python -m studies.design.search regret``, ``… seconds`` and ``… differences`` print tables in
Markdown. Odd seeds report, even seeds are to develop on.
"""

from __future__ import annotations

import argparse
import itertools
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, gammaln, log_expit, xlogy
from scipy.stats import binom, norm

import nestquad as nq
from nestquad import design
from nestquad.clock import use_clock
from studies.design import problems, rivals
from studies.quadrature import normal_nodes

Gain = Callable[[np.ndarray], float]
_NODES = normal_nodes(160)  # 100 nodes differ by 4e-3 nats at the steepest designs
Drawn = tuple[str, design.Experiment, list[tuple[float, float]], Gain]


def _features(kind: str, rng: np.random.Generator) -> tuple[int, Callable[[Any], np.ndarray]]:
    """Number of coefficients, and the features (points, coefficients) of a design."""
    if kind == "polynomial":
        p = int(rng.integers(2, 5))
        return p, lambda d: np.asarray(d)[:, None] ** np.arange(p)
    p = int(rng.integers(1, 4))
    rate, phase = rng.uniform(0.5, 4.0, p), rng.uniform(0.0, 6.0, p)
    return p, lambda d: np.sin(np.asarray(d)[:, None] * rate + phase)


def _regression(kind: str, rng: np.random.Generator, k: int) -> Drawn:
    """Linear in normal coefficients: the gain has a closed form."""
    p, features = _features(kind, rng)
    sd, noise = rng.uniform(0.5, 1.5, p), float(10 ** rng.uniform(-1.0, -0.2))

    def mean(theta: np.ndarray, d: Any) -> np.ndarray:
        return np.einsum("...j,ij->...i", theta, features(d))

    def gain(d: np.ndarray) -> float:
        x = features(d) * sd / noise
        return float(0.5 * np.linalg.slogdet(np.eye(len(x)) + x @ x.T)[1])

    experiment = design.Experiment(
        prior=nq.Normal(np.zeros(p), sd),
        log_prob=lambda y, theta, d: norm.logpdf(y, mean(theta, d), noise).sum(axis=-1),
        simulate=lambda theta, e, d: mean(theta, d) + noise * e,
        noise=nq.Normal(np.zeros(k)),
    )
    return kind, experiment, [(-1.0, 1.0)] * k, gain


def _logistic(rng: np.random.Generator, k: int) -> Drawn:
    """Binomial responses at k doses: all outcomes and tensor quadrature."""
    n, mean, sd = int(rng.integers(5, 20)), rng.normal(0.0, 0.7, 2), rng.uniform(0.4, 1.5, 2)
    outcomes = np.array(list(itertools.product(range(n + 1), repeat=k)), dtype=float)
    ways = (gammaln(n + 1) - gammaln(outcomes + 1) - gammaln(n - outcomes + 1)).sum(axis=-1)
    # Far from zero, logits have standard deviations of 6: 40 nodes are wrong by up to 0.2 nats.
    z, w = (part[_NODES[1] > 1e-13] for part in _NODES)
    theta = mean + sd * np.stack(np.meshgrid(z, z, indexing="ij"), axis=-1).reshape(-1, 2)
    weight = np.outer(w, w).ravel()

    def log_prob(y: np.ndarray, theta: np.ndarray, d: Any) -> np.ndarray:
        t = theta[..., :1] + theta[..., 1:2] * d
        return (y * log_expit(t) + (n - y) * log_expit(-t)).sum(axis=-1)

    def gain(d: np.ndarray) -> float:
        t = theta[:, :1] + theta[:, 1:] * np.asarray(d)
        logs = ways[:, None] + outcomes @ log_expit(t).T + (n - outcomes) @ log_expit(-t).T
        mass = np.exp(logs) @ weight
        return float(((np.exp(logs) * logs) @ weight).sum() - xlogy(mass, mass).sum())

    experiment = design.Experiment(
        prior=nq.Normal(mean, sd),
        log_prob=log_prob,
        simulate=lambda t, e, d: binom.ppf(e, n, expit(t[..., :1] + t[..., 1:2] * d)),
        noise=nq.Uniform(np.zeros(k), 1.0),
    )
    return "logistic", experiment, [(-4.0, 4.0)] * k, gain


def draw(seed: int) -> Drawn:
    """The random problem of a seed: polynomial, sines or logistic, one to three points."""
    rng = np.random.default_rng([seed, 77])
    k = int(rng.integers(1, 4))
    if (kind := ("polynomial", "sines", "logistic")[seed // 2 % 3]) == "logistic":
        return _logistic(rng, min(k, 2))
    return _regression(kind, rng, k)


def optimum(gain: Gain, bounds: list[tuple[float, float]], seed: int) -> float:
    """Largest gain, by local searches from the best of 60 random designs."""
    ends = np.array(bounds)
    points = np.random.default_rng(seed).uniform(ends[:, 0], ends[:, 1], (60, len(ends)))
    starts = sorted(points, key=lambda d: -gain(d))[:6]
    found = [minimize(lambda d: -gain(d), d, bounds=bounds, method="L-BFGS-B") for d in starts]
    return max(-float(one.fun) for one in found)


def regret(first: int, last: int, kinds: list[str], budgets: list[int]) -> None:
    """Print the regret and the limit that `optimize` reports, by kind of problem and budget."""
    print("| problems | likelihoods | number | limit holds | regret ≤ 1e-3 | median regret | "
          "largest | median limit | CPU s |")  # fmt: skip
    print("| --- |" + " ---: |" * 8)
    for kind, budget in itertools.product(kinds, budgets):
        rows = []
        for seed in range(first, last, 2):
            known, experiment, bounds, gain = draw(seed)
            if known != kind:
                continue
            started = time.process_time()
            best = design.optimize(experiment, bounds, budget=budget, rng=seed, simulations=16_384)
            seconds = time.process_time() - started
            lost = max(optimum(gain, bounds, seed) - gain(best.design), 0.0)
            rows.append((lost, best.regret, seconds))
        lost, limit, seconds = np.array(rows).T
        held, near = np.mean(lost <= limit + 1e-6), np.mean(lost <= 1e-3)
        print(
            f"| {kind} | {budget:,} | {len(rows)} | {100 * held:.0f} % | {100 * near:.0f} % | "
            f"{np.median(lost):.1e} | {lost.max():.1e} | {np.median(limit):.1e} | "
            f"{seconds.mean():.1f} |",
            flush=True,
        )


def _waves() -> problems.Case:
    """Frequency of a wave seen at eight times: many narrow modes, gain by a grid."""
    times, sd = np.linspace(0.3, 4.0, 8), 0.1
    experiment = design.Experiment(
        prior=nq.Normal(6.0, 3.0),
        log_prob=lambda y, theta, d: norm.logpdf(y, np.sin(theta * d), sd).sum(axis=-1),
        simulate=lambda theta, e, d: np.sin(theta * d) + sd * e,
        noise=nq.Normal(np.zeros(8)),
    )
    grid = np.linspace(-12.0, 24.0, 6001)
    prior = norm.logpdf(grid, 6.0, 3.0) + np.log(grid[1] - grid[0])
    rng, gains = np.random.default_rng(1), []
    for _ in range(300):
        theta = rng.normal(6.0, 3.0, (100, 1))
        y = np.sin(theta * times) + sd * rng.standard_normal((100, 8))
        # The square of the distance by products: means over a grid of frequencies.
        wave = np.sin(grid[:, None] * times)
        logs = -0.5 * ((y**2).sum(1)[:, None] - 2 * y @ wave.T + (wave**2).sum(1)) / sd**2 + prior
        evidence = np.logaddexp.reduce(logs, axis=1)
        gains.append((np.exp(logs - evidence[:, None]) * (logs - prior)).sum(axis=1) - evidence)
    return problems.Case(experiment, times, float(np.concatenate(gains).mean()))


_RIVALS = ("nmc", "laplace is", "pyro nmc")


def _at_seconds(rival: str, name: str, case: problems.Case, limit: float, seed: int) -> float:
    """Error of the largest run of a rival within a CPU time; NaN where it is not written."""
    if rival.startswith("pyro") and (name == "waves" or not rivals.fits(rival, name, 1e4)):
        return math.nan
    budget, spent, value = 30_000, 0.0, math.nan
    while spent < 0.5 * limit and budget < 2e8:
        started = time.process_time()
        value = float(rivals.run(rival, name, case, budget, seed).value)
        spent = time.process_time() - started
        budget = int(budget * min(max(0.9 * limit / max(spent, 1e-3), 1.5), 30.0))
    return abs(value - case.exact)


def seconds(limits: tuple[float, ...], seeds: tuple[int, ...]) -> None:
    """Print mean errors of nestquad and of rivals at equal CPU seconds."""
    cases = {name: problems.case(name) for name in ("linear", "psychometric", "pharmacokinetics")}
    cases["waves"] = _waves()
    print("| problem | CPU s | nestquad | half-width | nested Monte Carlo | Laplace | Pyro nmc |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for (name, case), limit in itertools.product(cases.items(), limits):
        rows = []
        for seed in seeds:
            with use_clock(time.process_time):
                est = design.eig(case.experiment, case.design, max_seconds=limit, rng=seed)
            others = [_at_seconds(rival, name, case, limit, seed) for rival in _RIVALS]
            rows.append([abs(float(est.value) - case.exact), float(est.half_width), *others])
        cells = ["–" if math.isnan(x) else f"{x:.1e}" for x in np.mean(rows, axis=0)]
        print(f"| {name} | {limit:g} | {' | '.join(cells)} |", flush=True)


def _neighbors() -> dict[str, tuple[design.Experiment, list[Any]]]:
    """Ten designs in a row of three experiments with smooth data and one with counts."""
    counts, ends = problems.case("psychometric"), np.linspace(0.8, 1.6, 10)
    return {
        "one blood time": (problems._drug(1), [np.array([t]) for t in np.linspace(1.0, 6.0, 10)]),
        "five blood times": (problems._drug(5), [problems._PK_TIMES * x for x in ends]),
        "linear": (
            problems.case("linear").experiment,
            [problems.case("linear").design * x for x in ends],
        ),
        "psychometric": (counts.experiment, [counts.design + x for x in np.linspace(0.0, 1.0, 10)]),
    }


def differences(seeds: tuple[int, ...]) -> None:
    """Print bars of differences of neighboring designs over bars of single ones, and decisions."""
    print("| ten designs, 2,000 likelihoods each | bar of a difference over a single bar | CPU s |")
    print("| --- | ---: | ---: |")
    for name, (experiment, designs) in _neighbors().items():
        ratios, started = [], time.process_time()
        for seed in seeds:
            found = design.compare(experiment, designs, budget=20_000, rng=seed)
            bars = [float(est.std_error) for est in found.estimates]
            ratios += [found.difference(i, i + 1).std_error / bars[i] for i in range(9)]
        spent = (time.process_time() - started) / len(seeds)
        print(f"| {name} | {np.median(ratios):.2f} | {spent:.1f} |", flush=True)
    print("\n| a decision, likelihoods | mean error | half-width |\n| --- | ---: | ---: |")
    sd = 0.5
    line = design.Experiment(
        prior=nq.Normal(np.zeros(2)),
        log_prob=lambda y, t, d: norm.logpdf(y, t.sum(axis=-1, keepdims=True), sd)[..., 0],
        simulate=lambda t, e, d: t.sum(axis=-1, keepdims=True) + sd * e,
        noise=nq.Normal(),
    )
    # The posterior mean of the sum has variance 4 / (2 + sd²), and E max(X, 0) = sd(X) / √(2π).
    exact = math.sqrt(4.0 / (2.0 + sd**2) / (2.0 * math.pi))

    def payoff(theta: np.ndarray) -> np.ndarray:
        total = theta.sum(axis=-1)
        return np.stack([total, np.zeros_like(total)], axis=-1)

    for budget in (5_000, 50_000):
        answers = [
            design.decision_value(line, None, payoff, budget=budget, rng=seed) for seed in seeds
        ]
        error = np.mean([abs(float(est.value) - exact) for est in answers])
        half = np.mean([float(est.half_width) for est in answers])
        print(f"| {budget:,} | {error:.1e} | {half:.1e} |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", choices=("regret", "seconds", "differences"))
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--last", type=int, default=105)
    parser.add_argument("--kinds", default="polynomial,sines,logistic")
    parser.add_argument("--budgets", default="5000")
    args = parser.parse_args()
    if args.table == "regret":
        budgets = [int(budget) for budget in args.budgets.split(",")]
        regret(args.first, args.last, args.kinds.split(","), budgets)
    elif args.table == "seconds":
        seconds((1.0, 2.0, 10.0), (1,))
    else:
        differences((1, 3, 5))
