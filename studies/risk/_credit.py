"""A book of loans: names that default by the horizon make J jump, others may default a year later.

θ holds a common factor and one more for each of 3–20 names, which has defaulted where its asset
value is below a threshold. x holds the losses given default, and who of the others defaults in the
year after the horizon, with a probability that the common factor moves.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import ndtr, ndtri
from scipy.stats import qmc

import nestquad as nq
from studies.families._sketch import base, written
from studies.risk._case import Sketch, levels_of
from studies.risk._truth import MEASURES, Dense


@dataclass(frozen=True)
class _Loans:
    exposures: np.ndarray
    thresholds: np.ndarray
    loadings: np.ndarray
    drift: float
    """Weight of the common factor in defaults of the year after."""
    random_loss: bool
    """Whether losses given default are uniform on (0, 1), or all one half."""

    def defaulted(self, theta: np.ndarray) -> np.ndarray:
        own = np.sqrt(1 - self.loadings**2) * theta[..., 1:]
        return self.loadings * theta[..., :1] + own < self.thresholds

    def later(self, theta: np.ndarray) -> np.ndarray:
        """Probabilities of default in the year after."""
        moved = self.thresholds - self.drift * theta[..., :1]
        return ndtr(moved / np.sqrt(1 - self.drift**2))

    def loss(self, x: np.ndarray, theta: np.ndarray) -> np.ndarray:
        n = len(self.exposures)
        lost = x[..., n:] if self.random_loss else 0.5
        out = self.defaulted(theta) | (x[..., :n] < self.later(theta))
        return (self.exposures * lost * out).sum(axis=-1)

    def __call__(self, theta: np.ndarray) -> np.ndarray:
        """J."""
        chance = np.where(self.defaulted(theta), 1.0, self.later(theta))
        return 0.5 * (self.exposures * chance).sum(axis=-1)

    def draws(self, log2: int, seed: object) -> np.ndarray:
        points = qmc.Sobol(len(self.exposures) + 1, rng=np.random.default_rng(seed))
        return self(ndtri(np.clip(points.random_base2(log2), 1e-15, 1 - 1e-15)))


@dataclass(frozen=True)
class _LawOfJ(Dense):
    """Measures of J at independently scrambled Sobol points."""

    total: _Loans

    @cached_property
    def _rows(self) -> np.ndarray:
        return np.array([np.sort(self.total.draws(19, [19, scramble])) for scramble in range(16)])


def sketch(rng: np.random.Generator) -> Sketch:
    outer_base = base(rng)
    while True:
        n = int(rng.integers(3, 21))
        loans = _Loans(
            exposures=rng.uniform(10.0, 30.0, n),
            thresholds=ndtri(np.exp(rng.uniform(np.log(0.005), np.log(0.04), n))),
            loadings=np.full(n, rng.uniform(0.3, 0.6)),
            drift=float(rng.uniform(0.2, 0.5)),
            random_loss=bool(rng.random() < 0.7),
        )
        j = loans.draws(17, 0)
        heavy = [(j > c).mean() / MEASURES[name][1] for name, c in levels_of(j).items()]
        if min(heavy) > 0.7:
            break
    dim = n * (1 + loans.random_loss)
    problem = nq.NestedExpectation(
        written(lambda z: z, n + 1, n + 1, outer_base),
        nq.Uniform(np.zeros(dim), np.ones(dim)),
        loans.loss,
    )
    losses = "random" if loans.random_loss else "known"
    return Sketch(
        problem,
        _LawOfJ(loans),
        levels_of(j),
        f"{n} names, {losses} losses given default, {outer_base} drivers of θ",
    )
