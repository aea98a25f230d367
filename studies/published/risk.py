"""Risk measures of published books: quantiles, tails and exceedances of J(θ) = E[loss | θ]."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

import nestquad as nq
from nestquad import risk
from studies.published.problem import Printed, PublishedProblem, Solver
from studies.quadrature import call, increasing_root, legendre, normal_density


def call_value(spot: Any, strike: float, rate: float, vol: float, time: float) -> np.ndarray:
    """Black–Scholes value of a European call, with interest."""
    discount = np.exp(-rate * time)
    return np.asarray(discount * call(spot / discount, strike, vol * np.sqrt(time)))


def put_value(spot: Any, strike: float, rate: float, vol: float, time: float) -> np.ndarray:
    """Value of a European put, by put–call parity."""
    bond = strike * np.exp(-rate * time)
    return call_value(spot, strike, rate, vol, time) - np.asarray(spot) + bond


def prices(start: Any, drift: float, vol: float, time: float, correlation: float = 0.0) -> Any:
    """Law of prices (…, d) after some time, with one pairwise correlation."""
    start = np.asarray(start, dtype=float)
    d = start.shape[-1]
    cov = vol**2 * time * ((1 - correlation) * np.eye(d) + correlation)
    return nq.LogNormal(np.log(start) + (drift - vol**2 / 2) * time, cov=cov)


# Life insurance: arXiv 2510.18995.
_VOL, _RATE, _DRIFT = 0.15, 0.05, 0.08
_SHARE, _SURRENDER, _YEARS = 0.85, 0.02, 10
_RESERVE, _UNITS, _START = 1000.0, 10.0, 100.0
_OFFSET = 166.25032


def insurance_loss(x: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """Loss of own funds: θ is the normal of year 1, x (…, 9) are those of years 2 to 10."""
    shape = np.broadcast_shapes(x.shape[:-1], theta.shape[:-1])
    growth = np.broadcast_to(_DRIFT - _VOL**2 / 2 + _VOL * theta[..., 0], shape)
    price, units, reserve = np.full(shape, _START), np.full(shape, _UNITS), np.full(shape, _RESERVE)
    for year in range(1, _YEARS + 1):
        if year > 1:
            growth = _RATE - _VOL**2 / 2 + _VOL * x[..., year - 2]
        price = price * np.exp(growth)
        reserve = reserve * (1 + np.maximum(_SHARE * growth, 0.0))
        if year < _YEARS:
            units = units - _SURRENDER * reserve / price
            reserve = (1 - _SURRENDER) * reserve
        else:
            units = units - reserve / price
    return -_OFFSET - math.exp(-_RATE * (_YEARS - 1)) * units * price


def insurance_mean(theta: np.ndarray) -> np.ndarray:
    """J in closed form: discounted prices are martingales, and yearly bonuses are independent."""
    kink = -(_RATE - _VOL**2 / 2) / _VOL
    z, weight = legendre(kink, 12.0, 200)
    bonus = _SHARE * (_RATE - _VOL**2 / 2 + _VOL * z)
    factor = 1 + float((weight * normal_density(z) * bonus).sum())  # E[1 + bonus] of a year
    discount = math.exp(-_RATE)
    paid, kept = 0.0, 1.0
    for _ in range(2, _YEARS):
        kept *= discount * factor
        paid += _SURRENDER * kept
        kept *= 1 - _SURRENDER
    paid += kept * discount * factor
    growth = _DRIFT - _VOL**2 / 2 + _VOL * theta
    reserve = _RESERVE * (1 + np.maximum(_SHARE * growth, 0.0))
    stock = _UNITS * _START * np.exp(growth) - _SURRENDER * reserve
    return -_OFFSET - stock + (1 - _SURRENDER) * reserve * paid


def _insurance() -> PublishedProblem:
    problem = nq.NestedExpectation(
        nq.Normal(), nq.Normal(np.zeros(_YEARS - 1)), insurance_loss, name="life insurance"
    )
    return PublishedProblem(
        name="insurance",
        title="Life insurance: value at risk 99.5 % of own funds (SCR)",
        source=(
            "Boumezoued, Cherchali, Lemaire, Pagès and Truc, Optimized multi-level Monte Carlo "
            "parametrization and antithetic sampling for nested simulations (2025), arXiv "
            "2510.18995; repository MTruc/optimized_mlmc_nested_sim"
        ),
        about=(
            "One outer and nine inner normals. S₀ = 100, S₁ = 100 exp(0.08 − 0.15²/2 + 0.15 Z₁), "
            "Sₜ = Sₜ₋₁ exp(0.05 − 0.15²/2 + 0.15 Zₜ) for t = 2, …, 10. Reserve 1000, 10 units "
            "of the asset. Each year the reserve M grows by max(0.85 ln(Sₜ/Sₜ₋₁), 0); for "
            "t < 10 a share 0.02 of it is paid by selling units, at t = 10 all of it. "
            "g = −166.25032 − exp(−0.45) φ S₁₀ with the units φ that are left."
        ),
        measure="VaR 99.5 %",
        # J decreases in θ where the first bonus is zero, which is so at this quantile.
        exact=float(insurance_mean(ndtri(0.005))),
        unit="absolute",
        budgets=(1_000, 8_192, 100_000),
        printed=(
            Printed("LSMC", 8_192, 5.14),
            Printed("LSMC", 5.2e5, 2.16),
            Printed("LSMC", 6.7e7, 1.14),
            Printed("multilevel (ML2R)", 1e4, 23.1),
            Printed("multilevel (ML2R)", 1e6, 5.35),
            Printed("multilevel (ML2R)", 1e8, 0.663),
            Printed("nested Monte Carlo", 6.8e8, 0.595),
        ),
        solve=_var(problem, 0.995),
    )


# Calls: arXiv 2201.02958.
_STRIKES, _HORIZON = (90.0, 100.0, 110.0), 3 / 50


def _call_book(assets: int) -> tuple[nq.NestedExpectation, Callable[[np.ndarray], np.ndarray]]:
    now = sum(float(call_value(100.0, k, 0.05, 0.1, 1.0)) for k in _STRIKES) * assets
    discount = math.exp(-0.05 * (1 - _HORIZON))

    def loss(x: np.ndarray, theta: np.ndarray) -> np.ndarray:
        payoff = sum(np.maximum(x - k, 0.0).sum(axis=-1) for k in _STRIKES)
        return now - discount * payoff + 0.0 * theta[..., 0]

    def mean(theta: np.ndarray) -> np.ndarray:
        values = [call_value(theta, k, 0.05, 0.1, 1 - _HORIZON).sum(axis=-1) for k in _STRIKES]
        return now - np.sum(values, axis=0)

    problem = nq.NestedExpectation(
        prices(np.full(assets, 100.0), 0.08, 0.1, _HORIZON, 0.3),
        lambda theta: prices(theta, 0.05, 0.1, 1 - _HORIZON, 0.3),
        loss,
        name=f"calls on {assets} assets",
    )
    return problem, mean


def calls_exact(assets: int, log2_n: int = 20, seed: int = 0) -> float:
    """VaR 90 %: closed form of J at a quantile (one asset), or over Sobol points (several)."""
    problem, mean = _call_book(assets)
    law = problem.outer_law
    if assets == 1:
        return float(mean(law.from_uniform(np.array([[0.1]])))[0])
    from scipy.stats import qmc

    sampler = qmc.Sobol(assets, seed=seed)
    parts = [mean(law.from_uniform(sampler.random(1 << 16))) for _ in range(1 << (log2_n - 16))]
    return float(np.quantile(np.concatenate(parts), 0.9))


# Mean and standard error of calls_exact(20, 20, seed) over the seeds 0 to 7.
CALLS_20_EXACT, CALLS_20_ERROR = 63.4995, 0.0102


def _calls(assets: int) -> PublishedProblem:
    problem, _ = _call_book(assets)
    several = assets > 1
    printed = {
        1: (
            Printed("kernel ridge regression", 1_600, 0.076),
            Printed("likelihood ratio", 6.4e4, 0.0228),
            Printed("regression", 1.02e6, 0.0084),
        ),
        20: (
            Printed("likelihood ratio", 6.4e4, 0.0154),
            Printed("nearest neighbors", 1.02e5, 0.078),
            Printed("regression", 1.02e6, 0.0062),
            Printed("nested Monte Carlo", 1.02e7, 0.0169),
        ),
    }[assets]
    return PublishedProblem(
        name=f"calls-{assets}",
        title=f"Calls on {assets} asset{'s' if several else ''}: value at risk 90 %",
        source=(
            "Wang, Wang and Zhang, Smooth nested simulation: bridging cubic and square root "
            "convergence rates in high dimensions (2024), arXiv 2201.02958; repository "
            "xintong0087/nestedSimulation"
        ),
        about=(
            f"{assets} geometric Brownian motion{'s' if several else ''} from 100 with drift 0.08, "
            "interest 0.05, volatility 0.1"
            + (" and pairwise correlation 0.3" if several else "")
            + ", horizon 3/50, maturity 1; one call at each of the strikes 90, 100 and 110 on "
            "every asset; the loss is today's value less the value at the horizon."
        ),
        measure="VaR 90 %",
        exact=CALLS_20_EXACT if several else calls_exact(1),
        exact_error=CALLS_20_ERROR if several else 0.0,
        unit="relative",
        budgets=(1_600, 10_000, 64_000) if several else (1_600, 10_000),
        printed=printed,
        solve=_var(problem, 0.9),
    )


# Straddle: Feng and Song, arXiv 2008.13087.
_STRIKE, _MATURITY, _TAU = 110.0, 2.0, 0.25
_LIMIT, _SCENARIOS = 49.0, 1_000


def straddle_mean(spot: np.ndarray) -> np.ndarray:
    """Value of the straddle at the horizon."""
    rest = (0.02, 0.3, _MATURITY - _TAU)
    return call_value(spot, _STRIKE, *rest) + put_value(spot, _STRIKE, *rest)


def straddle_exceedance(limit: float) -> float:
    """P(J > limit): J is convex in the price, so the event is two tails."""
    drift, sd = (0.05 - 0.3**2 / 2) * _TAU, 0.3 * math.sqrt(_TAU)

    def above(z: np.ndarray) -> np.ndarray:
        return straddle_mean(100.0 * np.exp(drift + sd * z)) - limit

    z = np.linspace(-9.0, 9.0, 20_001)
    lowest = float(z[np.argmin(above(z))])
    zero = np.zeros(1)
    upper = increasing_root(lambda s: np.where(s > lowest, above(s), -1.0), zero)[0]
    lower = -increasing_root(lambda s: np.where(-s < lowest, above(-s), -1.0), zero)[0]
    return float(ndtr(lower) + ndtr(-upper))


def _straddle() -> PublishedProblem:
    rng = np.random.default_rng(200813087)
    drift, sd = (0.05 - 0.3**2 / 2) * _TAU, 0.3 * math.sqrt(_TAU)
    scenarios = 100.0 * np.exp(drift + sd * rng.normal(size=(_SCENARIOS, 1)))
    discount = math.exp(-0.02 * (_MATURITY - _TAU))
    problem = nq.NestedExpectation(
        nq.Empirical(scenarios),
        lambda theta: prices(theta, 0.02, 0.3, _MATURITY - _TAU),
        lambda x, theta: discount * np.abs(x[..., 0] - _STRIKE) + 0.0 * theta[..., 0],
        lambda j: np.maximum(j - _LIMIT, 0.0),
        name="straddle",
    )
    excess = np.maximum(straddle_mean(scenarios[:, 0]) - _LIMIT, 0.0)
    return PublishedProblem(
        name="straddle",
        title="Straddle at 1,000 given scenarios: mean excess over 49",
        source=(
            "Feng and Song, Efficient nested simulation experiment design via the likelihood "
            "ratio method (2020), arXiv 2008.13087"
        ),
        about=(
            "S₀ = 100, drift 0.05, interest 0.02, volatility 0.3; a call and a put with strike 110 "
            "and maturity 2, seen at 1/4. The 1,000 scenarios are given: drawn once with the NumPy "
            "seed 200813087. J is the value at the horizon; the measure is "
            "the mean of max(J − 49, 0) over the scenarios, 49 being close to the 99 % quantile "
            "(P(J > 49) = 0.009827 under the law of the scenarios)."
        ),
        measure="mean of max(J − 49, 0)",
        exact=float(excess.mean()),
        unit="relative",
        budgets=(1_000, 10_000),
        printed=(
            Printed("likelihood ratio design", math.nan),
            Printed("regression", math.nan),
        ),
        solve=_estimate(problem),
        remark="The source draws errors in figures and prints no numbers.",
    )


def _option(name: str, measure: str, exact: float, solve: Solver) -> PublishedProblem:
    return PublishedProblem(
        name=name,
        title=f"½ (Y² − 1): {measure}",
        source=(
            "Crépey, Frikha and Louzi, A multilevel stochastic approximation algorithm for "
            "value-at-risk and expected shortfall estimation (2025), arXiv 2304.01207"
        ),
        about=(
            "J = ½ (Y² − 1) of a standard normal Y, seen through "
            "g = (√½ Y + √½ Z)² − 1 with Z standard normal."
        ),
        measure=measure,
        exact=exact,
        unit="absolute",
        budgets=(1_000, 10_000),
        printed=(Printed("multilevel stochastic approximation", math.nan),),
        solve=solve,
        remark="The source draws errors against seconds in figures and prints no numbers.",
    )


def _options() -> tuple[PublishedProblem, PublishedProblem]:
    problem = nq.NestedExpectation(
        nq.Normal(),
        nq.Normal(),
        lambda x, theta: 0.5 * (theta[..., 0] + x[..., 0]) ** 2 - 1.0,
        name="option",
    )
    z = float(ndtri(1 - 0.025 / 2))
    density = float(normal_density(np.asarray(z)))
    return (
        _option("option-var", "VaR 97.5 %", 0.5 * (z**2 - 1), _var(problem, 0.975)),
        _option("option-es", "ES 97.5 %", z * density / 0.025, _es(problem, 0.975)),
    )


# Put: Broadie, Du and Moallemi.
_PUT = {"strike": 95.0, "rate": 0.03, "vol": 0.2}
_WEEK = 1 / 52


def put_loss_exceedance(limit: float) -> float:
    """P(loss > limit): the loss of a put that is held increases with the price."""
    now = float(put_value(100.0, time=0.25, **_PUT))
    drift, sd = (0.08 - 0.2**2 / 2) * _WEEK, 0.2 * math.sqrt(_WEEK)

    def above(z: np.ndarray) -> np.ndarray:
        return now - put_value(100.0 * np.exp(drift + sd * z), time=0.25 - _WEEK, **_PUT) - limit

    return float(ndtr(-increasing_root(above, np.zeros(1))[0]))


def _put(limit: float, tail: str) -> PublishedProblem:
    now = float(put_value(100.0, time=0.25, **_PUT))
    discount = math.exp(-0.03 * (0.25 - _WEEK))
    problem = nq.NestedExpectation(
        prices(np.full(1, 100.0), 0.08, 0.2, _WEEK),
        lambda theta: prices(theta, 0.03, 0.2, 0.25 - _WEEK),
        lambda x, theta: now - discount * np.maximum(95.0 - x[..., 0], 0.0) + 0.0 * theta[..., 0],
        name="put",
    )
    return PublishedProblem(
        name=f"put-{tail}",
        title=f"A put: probability of a loss above {limit}",
        source=(
            "Broadie, Du and Moallemi, Efficient risk estimation via nested sequential simulation "
            "(2011), and Risk estimation via regression (2015)"
        ),
        about=(
            "A put with strike 95 and maturity 1/4 is held over 1/52. S₀ = 100, drift 0.08, "
            f"interest 0.03, volatility 0.2. A loss above {limit} has a probability of about "
            f"{tail.replace('p', '.')} %."
        ),
        measure=f"P(loss > {limit})",
        exact=put_loss_exceedance(limit),
        unit="relative",
        budgets=(1_000, 10_000),
        printed=(Printed("sequential; regression", math.nan),),
        solve=_exceed(problem, limit),
        remark="The sources draw errors in figures; their thresholds are those printed there.",
    )


_NOISE = 10.0


def nested_error(evaluations: float, level: float, noise: float = _NOISE) -> float:
    """RMSE of VaR by nested Monte Carlo at the best split, for J normal and normal noise.

    With N inner draws the estimate tends to √(1 + s²/N) z; T = evaluations / N scenarios add the
    variance p (1 − p) / (T φ(z)²) of an empirical quantile, both to first order as in Gordy and
    Juneja (2010), Propositions 2 and 3.
    """
    z = float(ndtri(level))
    n = np.unique(np.geomspace(1, evaluations / 2, 2_000).astype(int))
    spread = np.sqrt(1 + noise**2 / n)
    height = normal_density(np.asarray(z)) / spread
    variance = level * (1 - level) * n / (evaluations * height**2)
    return float(np.sqrt(((spread - 1) * z) ** 2 + variance).min())


def _gordy() -> PublishedProblem:
    problem = nq.NestedExpectation(
        nq.Normal(),
        nq.Normal(),
        lambda x, theta: theta[..., 0] + _NOISE * x[..., 0],
        name="Gaussian book",
    )
    level = 0.99
    return PublishedProblem(
        name="gaussian",
        title="Gaussian book: value at risk 99 %",
        source="Gordy and Juneja, Nested simulation in portfolio risk measurement (2010)",
        about=(
            "The normal portfolio on which the source derives its formulas: J is standard normal, "
            f"and an inner draw is J plus independent normal noise of standard deviation {_NOISE:g}"
            ", that of a book of 100 positions with one draw for each."
        ),
        measure="VaR 99 %",
        exact=float(ndtri(level)),
        unit="absolute",
        budgets=(1_000, 10_000),
        printed=tuple(
            Printed("nested Monte Carlo, best split", n, nested_error(n, level))
            for n in (1e4, 1e6, 1e8)
        ),
        solve=_var(problem, level),
        remark="Errors of the source are its formulas for bias and variance, evaluated here.",
    )


def _var(problem: nq.NestedExpectation, level: float) -> Solver:
    def solve(budget: int, seed: np.random.SeedSequence) -> nq.Estimate:
        # Without the shortfall all pairs are drawn near the quantile.
        return risk.measure(problem, var=level, es=(), budget=budget, rng=seed).var[level]

    return solve


def _es(problem: nq.NestedExpectation, level: float) -> Solver:
    return lambda budget, seed: risk.measure(problem, es=level, budget=budget, rng=seed).es[level]


def _exceed(problem: nq.NestedExpectation, limit: float) -> Solver:
    def solve(budget: int, seed: np.random.SeedSequence) -> nq.Estimate:
        return risk.measure(problem, exceed=limit, budget=budget, rng=seed).exceed[limit]

    return solve


def _estimate(problem: nq.NestedExpectation) -> Solver:
    return lambda budget, seed: nq.estimate(problem, budget=budget, rng=seed)


def cases() -> list[PublishedProblem]:
    """All cases of this module."""
    return [
        _insurance(),
        _calls(1),
        _calls(20),
        _straddle(),
        *_options(),
        _put(0.859, "10"),
        _put(1.221, "1"),
        _put(1.390, "0p1"),
        _gordy(),
    ]
