"""Rivals: nested Monte Carlo, adaptive multilevel Monte Carlo, least-squares Monte Carlo.

A rival spends a budget in each of several settings, and returns the answers of all. The best of
them is chosen in hindsight, which is more than a user can do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations_with_replacement

import numpy as np
from scipy.linalg import cho_factor, cho_solve

import nestquad as nq
from studies.risk._truth import MEASURES

Answers = dict[str, dict[str, float]]  # by measure and setting
_BLOCK = 2**16  # evaluations at once: a few megabytes


def losses(
    problem: nq.NestedExpectation, theta: np.ndarray, n: int, rng: np.random.Generator
) -> np.ndarray:
    """The loss at n independent draws of x for each theta, (T, n)."""
    rows = []
    for part in np.array_split(theta, -(-len(theta) * n // _BLOCK)):
        law = problem.inner_law(part)
        if law.batch is None:
            x = law.sample(len(part) * n, rng).reshape(len(part), n, -1)
        else:
            x = law.sample(n, rng)
        rows.append(np.asarray(problem.g(x, part[:, None, :])))
    return np.concatenate(rows)


def measured(j: np.ndarray, levels: Mapping[str, float]) -> dict[str, float]:
    """All measures of a sample of J."""
    j = np.sort(j)
    found = {}
    for name, (kind, p) in MEASURES.items():
        first = min(int(p * j.size), j.size - 1)
        if kind == "p":
            found[name] = float((j > levels[name]).mean())
        else:
            found[name] = float(j[first] if kind == "var" else j[first:].mean())
    return found


def nested(
    problem: nq.NestedExpectation, levels: Mapping[str, float], budget: int, seed: int
) -> tuple[Answers, int]:
    """Nested Monte Carlo for inner sizes 1, 2, 4, …, as long as there are 32 scenarios."""
    answers: Answers = {name: {} for name in MEASURES}
    sizes = [2**k for k in range(20) if 2**k * 32 <= budget]
    for n in sizes:
        rng = np.random.default_rng([seed, n])
        theta = problem.outer_law.sample(budget // n, rng)
        j = losses(problem, theta, n, rng).mean(axis=1)
        for name, value in measured(j, levels).items():
            answers[name][f"N = {n}"] = value
    return answers, len(sizes)


_DEGREES = (1, 2, 3)
_DENSE = 2**16


def least_squares(
    problem: nq.NestedExpectation, levels: Mapping[str, float], budget: int, seed: int
) -> tuple[Answers, int]:
    """Least-squares Monte Carlo: one loss a scenario, all polynomials of a degree in θ."""
    answers: Answers = {name: {} for name in MEASURES}
    rng = np.random.default_rng(seed)
    theta = problem.outer_law.sample(budget, rng)
    y = losses(problem, theta, 1, rng)[:, 0]
    center, scale = theta.mean(axis=0), theta.std(axis=0)
    dense = (problem.outer_law.sample(_DENSE, rng) - center) / scale
    for degree in _DEGREES:
        basis = Monomials(theta.shape[1], degree)
        if basis.size > budget // 2:
            break
        coefficients = basis.fit((theta - center) / scale, y)
        for name, value in measured(basis.predict(dense, coefficients), levels).items():
            answers[name][f"degree {degree}"] = value
    return answers, 1


@dataclass(frozen=True)
class Monomials:
    """All monomials of d variables up to a degree."""

    d: int
    degree: int

    @property
    def size(self) -> int:
        return len(self._terms)

    @property
    def _terms(self) -> list[tuple[int, ...]]:
        orders = range(self.degree + 1)
        return [t for k in orders for t in combinations_with_replacement(range(self.d), k)]

    def __call__(self, z: np.ndarray) -> np.ndarray:
        return np.stack([z[:, list(term)].prod(axis=1) for term in self._terms], axis=1)

    def fit(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        gram, moment = np.zeros((self.size, self.size)), np.zeros(self.size)
        for part, values in zip(
            *(np.array_split(a, -(-len(z) // 8192)) for a in (z, y)), strict=True
        ):
            columns = self(part)
            gram += columns.T @ columns
            moment += columns.T @ values
        # Monomials of degree three in standardized variables lose six digits at most.
        gram[np.diag_indices_from(gram)] *= 1 + 1e-12
        return cho_solve(cho_factor(gram), moment)

    def predict(self, z: np.ndarray, coefficients: np.ndarray) -> np.ndarray:
        return np.concatenate([self(part) @ coefficients for part in np.array_split(z, 16)])


# Constants of the paper's numerical section: confidence C and exponent r of the adaptive rule.
_CONFIDENCE, _EXPONENT = 3.0, 1.5
_FIRST, _LEVELS = (8, 32), (0, 1, 2, 3, 4)
_PILOT = 0.2  # of the budget, to learn variances and costs of levels


def multilevel(
    problem: nq.NestedExpectation, levels: Mapping[str, float], budget: int, seed: int
) -> tuple[Answers, int]:
    """Multilevel Monte Carlo for P(J > c) with adaptive inner sampling (Giles, Haji-Ali 2019).

    Answers exceedances only, for N_0 of 8 and 32 (the paper's) and a finest level of 0–4. Costs
    of a level are random: it may spend more than its budget, which is in its favor.
    """
    answers: Answers = {name: {} for name in levels}
    settings = [(first, last) for first in _FIRST for last in _LEVELS]
    for name, threshold in levels.items():
        for first, last in settings:
            if 64 * first * 2**last <= budget:  # a few scenarios of the finest level
                rng = np.random.default_rng([seed, first, last, round(1e6 * MEASURES[name][1])])
                run = Multilevel(problem, threshold, first, rng)
                answers[name][f"N_0 = {first}, L = {last}"] = run.estimate(last, budget)
    return answers, max(len(of) for of in answers.values()) * len(levels) or 1


@dataclass
class Multilevel:
    """One estimate of P(J > threshold).

    Level ℓ decides for each θ how many draws of x to take, between N_0 2^ℓ and N_0 4^ℓ: few where
    the estimated distance of J from the threshold is many standard deviations of a draw. N doubles
    until it is at least

        N_0 4^ℓ max(2^−ℓ, min(1, (√N_0 2^ℓ δ / C)^−r)),    δ = |Ĵ − c| / σ̂.

    The correction is antithetic: two streams of draws give a coarse estimate each, and both
    together the fine one, each by its own rule. So a coarse estimate has the law of the fine one a
    level below, and the sum telescopes exactly.
    """

    problem: nq.NestedExpectation
    threshold: float
    first: int
    rng: np.random.Generator
    cost: int = 0
    _corrections: dict[int, list[np.ndarray]] = field(default_factory=dict)
    _costs: dict[int, int] = field(default_factory=dict)

    def estimate(self, last: int, budget: int) -> float:
        """Σ_ℓ E[1{J_ℓ > c} − 1{J_{ℓ−1} > c}] with a pilot, then Giles' optimal allocation."""
        for level in range(last + 1):
            share = _PILOT * budget / (last + 1)
            self._draw(level, max(int(share / (2 * self.first * 2**level)), 8))
        spread, each = np.empty(last + 1), np.empty(last + 1)
        for level in range(last + 1):
            values = np.concatenate(self._corrections[level])
            # A pilot without any event has a variance all the same (Laplace's rule).
            mean = (np.abs(values).sum() + 1) / (values.size + 2)
            spread[level] = mean * (1 - mean)
            each[level] = self._costs[level] / values.size
        left = max(budget - self.cost, 0)
        ideal = np.sqrt(spread / each) * budget / np.sqrt(spread * each).sum()
        wanted = np.maximum(ideal - [self._count(level) for level in range(last + 1)], 0.0)
        wanted *= min(1.0, left / max(float(wanted @ each), 1.0))
        for level, count in enumerate(wanted.astype(int)):
            if count:
                self._draw(level, count)
        return float(sum(np.concatenate(values).mean() for values in self._corrections.values()))

    def _count(self, level: int) -> int:
        return sum(map(len, self._corrections[level]))

    def _draw(self, level: int, count: int) -> None:
        values, cost = self.corrections(level, count)
        self._corrections.setdefault(level, []).append(values)
        self._costs[level] = self._costs.get(level, 0) + cost
        self.cost += cost

    def corrections(self, level: int, count: int) -> tuple[np.ndarray, int]:
        """Corrections of a level at independent θ, and the evaluations that they cost."""
        theta = self.problem.outer_law.sample(count, self.rng)
        half = self.first * 2**level // 2  # draws of each stream
        total, squares = np.zeros((count, 2)), np.zeros((count, 2))
        # −1: not decided yet. On level 0 there is no coarse estimate.
        fine, coarse = np.full((count, 1), -1.0), np.full((count, 2), -1.0 if level else 0.0)
        active, drawn, cost = np.arange(count), 0, 0
        while active.size:
            draws = losses(self.problem, theta[active], 2 * (half - drawn), self.rng)
            draws = draws.reshape(len(active), 2, -1) - self.threshold
            total[active] += draws.sum(axis=-1)
            squares[active] += np.square(draws).sum(axis=-1)
            cost, drawn = cost + draws.size, half
            sums, powers = total[active], squares[active]
            self._decide(fine, active, level, sums.sum(1, keepdims=True),
                         powers.sum(1, keepdims=True), 2 * half)  # fmt: skip
            if level:
                self._decide(coarse, active, level - 1, sums, powers, half)
            active = active[(fine[active, 0] < 0) | (coarse[active] < 0).any(axis=1)]
            half *= 2
        return fine[:, 0] - coarse.mean(axis=1), cost

    def _decide(
        self,
        found: np.ndarray,
        active: np.ndarray,
        level: int,
        sums: np.ndarray,
        squares: np.ndarray,
        n: int,
    ) -> None:
        """Set indicators where n draws are enough for a level."""
        mean = sums / n
        variance = np.maximum(squares / n - mean**2, 0.0) * n / (n - 1)
        distance = np.abs(mean) / np.maximum(np.sqrt(variance), 1e-300)
        ready = (n >= self._needed(level, distance)) & (found[active] < 0)
        found[active] = np.where(ready, mean > 0, found[active])

    def _needed(self, level: int, distance: np.ndarray) -> np.ndarray:
        near = np.maximum(np.sqrt(self.first) * 2**level * distance / _CONFIDENCE, 1e-300)
        share = np.clip(near**-_EXPONENT, 2.0**-level, 1.0)
        return self.first * 4**level * share


RIVALS = {"nmc": nested, "mlmc": multilevel, "lsmc": least_squares}
