"""Value of information by multilevel Monte Carlo: EVPI − EVPPI of three published decisions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import stats
from scipy.stats import qmc

import nestquad as nq
from studies.published.problem import Printed, PublishedProblem

_SOURCE = (
    "Giles and Goda, Decision-making under uncertainty: using MLMC for efficient estimation of "
    "EVPPI (2019); repository Goda-Research-Group/mlmc-evppi-cpp"
)
_ABOUT = (
    "The quantity is EVPI − EVPPI = E[max_d U_d] − E[max_d E[U_d | θ]], as in the source. With "
    "D = U_2 − U_1, g has the outputs D and max(D, 0), and f(J) = J_2 − max(J_1, 0)."
)


def _with_best(difference: np.ndarray) -> np.ndarray:
    """Outputs D and max(D, 0) of g."""
    return np.stack([difference, np.maximum(difference, 0.0)], axis=-1)


def _regret(j: np.ndarray) -> np.ndarray:
    """f: expected loss of deciding on θ alone."""
    return j[..., 1] - np.maximum(j[..., 0], 0.0)


def _problem(outer: Any, inner: Any, difference: Any, name: str) -> nq.NestedExpectation:
    return nq.NestedExpectation(
        outer, inner, lambda x, theta: _with_best(difference(x, theta)), _regret, name=name
    )


def _case(
    problem: nq.NestedExpectation,
    title: str,
    about: str,
    truth: tuple[float, float],
    printed: tuple[tuple[float, float, float], ...],
    budgets: tuple[int, ...],
) -> PublishedProblem:
    """PublishedProblem whose printed rows are (target RMSE, multilevel, nested) evaluations."""
    rows = [Printed("multilevel Monte Carlo", mlmc, error) for error, mlmc, _ in printed]
    rows += [Printed("nested Monte Carlo", nested, error) for error, _, nested in printed]
    return PublishedProblem(
        name=problem.label.replace(" ", "-"),
        title=title,
        source=_SOURCE,
        about=f"{about} {_ABOUT}",
        measure="EVPI − EVPPI",
        exact=truth[0],
        exact_error=truth[1],
        unit="absolute",
        budgets=budgets,
        printed=tuple(rows),
        solve=lambda budget, seed: nq.estimate(problem, budget=budget, rng=seed),
    )


def _two_options() -> PublishedProblem:
    problem = _problem(
        nq.Normal(), nq.Normal(), lambda x, theta: x[..., 0] + theta[..., 0], "two options"
    )
    exact = (math.sqrt(2) - 1) / math.sqrt(2 * math.pi)
    return _case(
        problem,
        "Two options: 0 and x + y",
        "Two options with the values 0 and θ + x, both standard normal.",
        (exact, 0.0),
        ((2e-3, 3.90e5, 5.70e5), (1e-3, 1.99e6, 9.56e6), (1e-4, 2.57e8, 7.26e9)),
        (1_000, 10_000),
    )


# Chemotherapy: outer laws of π₀, ρ, γ₁, γ₂, λ₁, λ₂, inner laws of q₁, q₂, q₃, c₁, c₂, c₄.
_CHEMO_OUTER = (
    stats.beta(28, 85),
    stats.norm(0.65, 0.1),
    stats.beta(11, 18, scale=1 / 15),
    stats.beta(2, 17, scale=1 / 15),
    stats.beta(5.12, 6.26),
    stats.beta(3.63, 6.74),
)
_CHEMO_INNER = (
    stats.beta(5.75, 5.75),
    stats.beta(0.87, 3.47),
    stats.beta(18.23, 0.372),
    stats.lognorm(0.039, scale=math.exp(7.74)),
    stats.lognorm(0.15, scale=math.exp(8.77)),
    stats.lognorm(0.13, scale=math.exp(8.33)),
)
_QALY = 30_000.0


def _chemo_occupancy(theta: np.ndarray) -> list[np.ndarray]:
    """Mean share of 16 dates at home, in hospital, recovered and dead, from home."""
    gamma1, gamma2, lambda1, lambda2 = (theta[..., i] for i in range(2, 6))
    home, hospital, recovered, dead = (np.zeros(gamma1.shape) for _ in range(4))
    home = home + 1.0
    total = [home, hospital, recovered, dead]
    for _ in range(15):
        recovered = recovered + home * lambda1 * (1 - gamma1) + hospital * lambda2 * (1 - gamma2)
        dead = dead + hospital * gamma2
        hospital, home = (
            home * gamma1 + hospital * (1 - lambda2) * (1 - gamma2),
            home * (1 - lambda1) * (1 - gamma1),
        )
        total = [t + s for t, s in zip(total, (home, hospital, recovered, dead), strict=True)]
    return [t / 16 for t in total]


def chemotherapy_difference(x: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """Net benefit of the new treatment less that of the old one, linear in x."""
    q1, q2, q3, c1, c2, c4 = (x[..., i] for i in range(6))
    home, hospital, recovered, dead = _chemo_occupancy(theta)
    side_effects = _QALY * (home * q1 + hospital * q2 + (recovered - 1.0) * q3)
    side_effects = side_effects - home * c1 - hospital * c2 - dead * c4
    fewer = theta[..., 0] * (theta[..., 1] - 1.0)  # change of the share with side effects
    return fewer * side_effects - (420.0 - 110.0)


def _chemotherapy() -> PublishedProblem:
    problem = _problem(_CHEMO_OUTER, _CHEMO_INNER, chemotherapy_difference, "chemotherapy")
    return _case(
        problem,
        "Chemotherapy",
        "θ: π₀ ~ Beta(28, 85), ρ ~ N(0.65, 0.1²), γ₁ ~ Beta(11, 18)/15, γ₂ ~ Beta(2, 17)/15, "
        "λ₁ ~ Beta(5.12, 6.26), λ₂ ~ Beta(3.63, 6.74). x: q₁ ~ Beta(5.75, 5.75), "
        "q₂ ~ Beta(0.87, 3.47), q₃ ~ Beta(18.23, 0.372), ln c₁ ~ N(7.74, 0.039²), "
        "ln c₂ ~ N(8.77, 0.15²), ln c₄ ~ N(8.33, 0.13²) (standard deviations, as in the code). "
        "A share p = π₀ (or π₀ρ) starts at home with side effects; home stays "
        "(1 − λ₁)(1 − γ₁), to hospital γ₁, to recovered λ₁(1 − γ₁); hospital stays "
        "(1 − λ₂)(1 − γ₂), to recovered λ₂(1 − γ₂), to dead γ₂. Utilities (q₁, q₂, q₃, 0) and "
        "costs (c₁, c₂, 0, c₄) are averaged over 16 dates; the others have q₃. The treatments cost "
        "110 and 420, a QALY is worth 30,000.",
        CHEMOTHERAPY,
        ((0.1, 2.92e5, 4.66e5), (0.05, 1.33e6, 3.99e6), (0.01, 5.31e7, 1.57e9)),
        (1_000, 10_000, 100_000),
    )


# Chronic pain: outer laws of costs and utilities, inner laws of probabilities.
_PAIN_OUTER = (
    stats.gamma(100, scale=0.0226),  # comedication with morphine
    stats.gamma(100, scale=0.00030137),  # comedication with oxycodone
    stats.gamma(100, scale=0.06991),  # adverse events
    stats.gamma(100, scale=1.0691),  # withdrawal
    stats.gamma(100, scale=0.185),  # discontinuation
    stats.beta(29.805, 13.0799),  # utility without adverse events
    stats.beta(41.117, 29.4096),  # with adverse events
    stats.beta(49.197, 48.6102),  # withdrawal due to adverse events
    stats.beta(59.095, 86.8186),  # withdrawal for other reasons
)
_PAIN_INNER = (
    stats.beta(55.9479, 72.3261),  # adverse events, morphine
    stats.beta(94.3703, 1598.69),  # withdrawal due to them
    stats.beta(98.7131, 7648.68),  # withdrawal for other reasons
    stats.beta(53.1865, 61.5632),  # the same for oxycodone
    stats.beta(96.6874, 2851.30),
    stats.beta(99.8371, 61818.2),
    stats.beta(94.9500, 1804.05),  # discontinuation
)


def _pain_visits(
    first: tuple[np.ndarray, np.ndarray, np.ndarray], x: np.ndarray
) -> list[np.ndarray]:
    """Weeks (of 52, halves at the ends) in each of the states that are reached.

    States: without and with adverse events on the first and on the second treatment, the two
    withdrawals from each, and discontinuation.
    """
    event, due, other = first
    event2, due2, other2, stop = x[..., 3], x[..., 4], x[..., 5], x[..., 6]
    on, on2 = 1.0 - due - other, 1.0 - due2 - other2
    zero = np.zeros(x.shape[:-1])
    state = [zero + 1.0, *[zero] * 8]
    total = [0.5 * s for s in state]
    for week in range(51):
        a, b, w1, w2, c, d, v1, v2, out = state
        treated, left, second = a + b, w1 + w2, c + d
        well2 = left * (1 - stop) * (1 - event2) + second * on2 * (1 - event2)
        ill2 = left * (1 - stop) * event2 + second * on2 * event2
        state = [
            treated * on * (1 - event),
            treated * on * event,
            treated * due,
            treated * other,
            well2,
            ill2,
            second * due2,
            second * other2,
            out + left * stop + v1 + v2,
        ]
        # Half-cycle correction; the source adds the last state once more in full.
        last = 1.5 if week == 50 else 1.0
        total = [t + last * s for t, s in zip(total, state, strict=True)]
    return total


def _pain_weeks(x: np.ndarray) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Weeks in each state with morphine and with the novel therapy first."""
    old = (x[..., 0], x[..., 1], x[..., 2])
    new = (0.7 * x[..., 3], 0.7 * x[..., 4], 0.7 * x[..., 5])
    return _pain_visits(old, x), _pain_visits(new, x)


def _pain_benefit(weeks: list[np.ndarray], theta: np.ndarray, price: Any) -> np.ndarray:
    """Discounted net benefit, linear in costs and utilities."""
    oxycodone, event, leave, stop = (theta[..., i] for i in (1, 2, 3, 4))
    well, ill, due, other = (theta[..., i] * 7 / 365.25 for i in (5, 6, 7, 8))
    utilities = [well, ill, due, other, 0.9 * well, 0.9 * ill, 0.9 * due, 0.9 * other, 0.8 * other]
    second = 9.20 + oxycodone
    costs = [price, price + event, leave, leave, second, second + event, leave, leave, stop]
    worth = [20_000.0 * u - c for u, c in zip(utilities, costs, strict=True)]
    return 12.5174 * sum(w * v for w, v in zip(weeks, worth, strict=True))


def pain_difference(x: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """Net benefit of the novel therapy less that of morphine."""
    old, new = _pain_weeks(x)
    ours = _pain_benefit(new, theta, 55.21 + 0.7 * theta[..., 1])
    return ours - _pain_benefit(old, theta, 2.63 + theta[..., 0])


def _pain() -> PublishedProblem:
    problem = _problem(_PAIN_OUTER, _PAIN_INNER, pain_difference, "chronic pain")
    return _case(
        problem,
        "Chronic pain",
        "Markov model of 52 weeks and ten states, all constants as in the folder chronic_pain of "
        "the repository. θ: five costs, Gamma(100) with means 2.26, 0.030137, 6.991, 106.91 and "
        "18.5, and four utilities, Beta(29.805, 13.0799), Beta(41.117, 29.4096), "
        "Beta(49.197, 48.6102), Beta(59.095, 86.8186). x: probabilities of adverse events, of "
        "withdrawal due to them and for other reasons with morphine, Beta(55.9479, 72.3261), "
        "Beta(94.3703, 1598.69), Beta(98.7131, 7648.68), with oxycodone, Beta(53.1865, 61.5632), "
        "Beta(96.6874, 2851.30), Beta(99.8371, 61818.2), and of discontinuation, "
        "Beta(94.95, 1804.05). The novel therapy multiplies those of oxycodone by 0.7; a QALY is "
        "worth 20,000, benefits are multiplied by 12.5174.",
        CHRONIC_PAIN,
        ((5.0, 4.83e4, 6.96e4), (1.0, 1.61e6, 6.81e6), (0.2, 5.43e7, 1.51e9)),
        (1_000, 10_000, 40_000, 100_000),
    )


def regret_truth(name: str, log2_n: int, seed: int) -> float:
    """EVPI − EVPPI over Sobol points of (θ, x), as the expected loss of a wrong decision.

    E[max(D, 0) − max(J, 0)] = E[|D|; D and J have other signs], since E[D − J | θ] = 0. J has a
    closed form: D is linear in x (chemotherapy), or in θ with mean weeks in each state (pain).
    """
    outer, inner = {
        "chemotherapy": (_CHEMO_OUTER, _CHEMO_INNER),
        "chronic pain": (_PAIN_OUTER, _PAIN_INNER),
    }[name]
    sampler, total = qmc.Sobol(len(outer) + len(inner), seed=seed), 0.0
    size = 1 << 15
    if name == "chronic pain":
        u = np.clip(qmc.Sobol(len(inner), seed=seed).random(1 << 16), 1e-12, 1 - 1e-12)
        x = np.stack([law.ppf(u[:, i]) for i, law in enumerate(inner)], axis=-1)
        weeks = [[np.asarray(s.mean()) for s in own] for own in _pain_weeks(x)]
    for _ in range(max(1, (1 << log2_n) // size)):
        u = np.clip(sampler.random(min(size, 1 << log2_n)), 1e-12, 1 - 1e-12)
        draws = [law.ppf(u[:, i]) for i, law in enumerate((*outer, *inner))]
        theta = np.stack(draws[: len(outer)], axis=-1)
        x = np.stack(draws[len(outer) :], axis=-1)
        if name == "chemotherapy":
            full = chemotherapy_difference(x, theta)
            j = chemotherapy_difference(np.array([law.mean() for law in inner]), theta)
        else:
            full = pain_difference(x, theta)
            j = _pain_benefit(weeks[1], theta, 55.21 + 0.7 * theta[..., 1])
            j = j - _pain_benefit(weeks[0], theta, 2.63 + theta[..., 0])
        total += float(np.where((full > 0) != (j > 0), np.abs(full), 0.0).mean())
    return total / max(1, (1 << log2_n) // size)


# Means and standard errors over the seeds 0 to 7: regret_truth("chemotherapy", 18, seed) and
# regret_truth("chronic pain", 20, seed). The source prints 5.045 and 113.6.
CHEMOTHERAPY = (5.0504, 0.0025)
CHRONIC_PAIN = (113.865, 0.055)


def cases() -> list[PublishedProblem]:
    """All cases of this module."""
    return [_two_options(), _chemotherapy(), _pain()]
