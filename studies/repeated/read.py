"""READ, a recursive randomized multilevel estimator for any depth.

Syed and Wang (2023), Optimal randomized multilevel Monte Carlo for repeatedly nested expectations,
arXiv 2301.04095. Written from the description there: at each level the mean of 2^N unbiased
estimates of the level below enters f, with a random N, and the antithetic difference to the means
of both halves is divided by the probability of N.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

import nestquad as nq


@dataclass
class Read:
    """Unbiased draws of a repeated expectation.

    `rate` is that of the geometric law of N: between 1/2, below which the cost has no mean, and
    1 − 2^(−3/2) = 0.65, above which the variance is infinite for smooth f. The default is the
    middle of the exponents, 1 − 2^(−5/4).
    """

    problem: nq.RepeatedExpectation
    rng: np.random.Generator
    rate: float = 1.0 - 2.0**-1.25
    n_evaluations: int = field(default=0, init=False)

    def estimate(self, budget: int, batch: int = 256) -> tuple[np.ndarray, np.ndarray, int]:
        """Mean of draws until the budget is spent, its standard error, and the evaluations."""
        draws: list[np.ndarray] = []
        while self.n_evaluations < budget:
            draws.append(self._draws(0, [np.empty((batch, 0))]))
        values = np.concatenate(draws)
        error = values.std(axis=0, ddof=1) / np.sqrt(len(values))
        return values.mean(axis=0), error, self.n_evaluations

    def _draws(self, k: int, earlier: list[np.ndarray]) -> np.ndarray:
        """Unbiased draws of J_k at each row of the earlier y (the first entry has their number)."""
        y = [*earlier, self._sample(k, earlier)]
        n = len(y[0])
        if k == self.problem.depth - 1:
            self.n_evaluations += n
            return np.asarray(self.problem.g(y[-1], *y[1:-1]))
        size = self.rng.geometric(self.rate, size=n) - 1
        count = 2**size
        owner = np.repeat(np.arange(n), count)
        below = self._draws(k + 1, [one[owner] for one in y])
        first = np.concatenate([[0], np.cumsum(count)[:-1]])
        second_half = np.arange(len(owner)) - first[owner] >= count[owner] // 2
        flat = below.reshape(len(below), -1)

        def mean(part: np.ndarray) -> np.ndarray:
            total = np.stack([np.bincount(owner[part], c[part], n) for c in flat.T], axis=1)
            number = np.maximum(np.bincount(owner[part], minlength=n), 1)
            return (total / number[:, None]).reshape(n, *below.shape[1:])

        f = [
            self.problem.apply_f(k, mean(part), y[1:])
            for part in (np.ones(len(owner), dtype=bool), ~second_half, second_half)
        ]
        chance = self.rate * (1.0 - self.rate) ** size
        shape = (-1, *[1] * (f[0].ndim - 1))
        single = (size == 0).reshape(shape)
        difference = np.where(single, f[0], f[0] - (f[1] + f[2]) / 2.0)
        return np.asarray(difference / chance.reshape(shape))

    def _sample(self, k: int, earlier: list[np.ndarray]) -> np.ndarray:
        """y_k given each row of the earlier y."""
        n = len(earlier[0])
        chain = self.problem.steps[0].outer_law
        if k == 0:
            return chain.from_uniform(self._uniforms(n, chain.base_dim))
        law = self.problem.steps[k - 1].inner_law(np.concatenate(earlier[1:], axis=1))
        return law.from_uniform(self._uniforms(n, law.base_dim)[:, None])[:, 0]

    def _uniforms(self, n: int, dim: int) -> np.ndarray:
        return np.maximum(self.rng.random((n, dim)), 2.0**-54)
