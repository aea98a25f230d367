"""Books of options: 20–100 positions on correlated assets, revalued at a horizon.

θ holds the prices at the horizon and x those at maturity, both log-normal with a one-factor
correlation; half of the books are written in uniforms instead of normals. The loss is today's
value less the payoffs, so J is today's value less a sum of Black–Scholes prices. Books with
barriers decide in half of the cases by a further uniform of each asset whether a path met its
barrier, and weight the payoff by the probability of survival in the other half.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

import nestquad as nq
from nestquad.distributions import Law
from studies.families._books import _KINDS, _SPOT, Book, _Option
from studies.families._sketch import base, choice, correlated
from studies.families._truth import Sum
from studies.risk._case import Sketch, law_of, levels_of, tail_draws


@dataclass(frozen=True)
class Family:
    """Assets of its books, the share of digitals and barriers, and what is known of x."""

    assets: int
    exotic: float = 0.0
    sampled: bool = False

    def sketch(self, rng: np.random.Generator) -> Sketch:
        outer_base, inner_base, simulated = base(rng), base(rng), rng.random() < 0.5
        while True:
            book = _drawn(rng, self.assets, self.exotic)
            total = _loss_of_value(book)
            j = tail_draws(total)
            if j is not None:
                break
        simulated = simulated and any(one.has_barrier for mine in book.options for one in mine)
        inner = _Inner(book, total.correlation, inner_base, simulated)
        problem = nq.NestedExpectation(
            outer=_prices(
                np.log(_SPOT) - book.near**2 / 2, book.near, inner.correlation, outer_base
            ),
            inner=inner.sampler if self.sampled else inner,
            g=_Loss(book, simulated, _today(book)),
        )
        count = sum(map(len, book.options))
        drivers = "samples" if self.sampled else f"{inner_base} drivers of x"
        about = f"{count} positions, {outer_base} drivers of θ, {drivers}"
        about += ", simulated barriers" if simulated else ""
        return Sketch(problem, law_of(total), levels_of(j), about)


def _drawn(rng: np.random.Generator, n: int, exotic: float) -> Book:
    volatility = rng.uniform(0.15, 0.5, n)
    # Every asset has a position.
    where = np.concatenate([np.arange(n), rng.integers(n, size=int(rng.integers(20, 101)) - n)])
    tilt = rng.normal(scale=0.5)  # books are long or short on the whole
    options: list[list[_Option]] = [[] for _ in range(n)]
    for asset in where:
        odd = rng.random() < exotic
        kind = _KINDS[int(rng.integers(2, 5) if odd else rng.integers(2))]
        strike = _SPOT * rng.uniform(0.8, 1.2)
        gap = rng.uniform(0.05, 0.25)
        barrier = strike * (1 - gap if "down" in kind else 1 + gap)
        options[asset].append(_Option(kind, float(tilt + rng.normal()), strike, barrier))
    return Book(
        tuple(map(tuple, options)),
        volatility * math.sqrt(choice(rng, 0.04, 0.1, 0.25)),
        volatility * np.sqrt(rng.uniform(0.1, 1.0, n)),
        rng.uniform(-0.3, 0.9, n),
        -1.0,
    )


def _today(book: Book) -> float:
    spot = np.array(_SPOT)
    return float(
        sum(
            one.size * one.price(spot, math.hypot(near, far))
            for mine, near, far in zip(book.options, book.near, book.far, strict=True)
            for one in mine
        )
    )


def _loss_of_value(book: Book) -> Sum:
    """J = today's value − Σ prices at the horizon."""
    total, today = book.sum(), _today(book) / book.n
    parts = tuple(lambda z, part=part: today + part(z) for part in total.parts)
    return Sum(parts, total.loadings)


def _prices(log_mean: np.ndarray, sd: np.ndarray, correlation: np.ndarray, how: str) -> Law:
    """Correlated log-normal prices, as a law of its own or written in uniforms."""
    if how == "normal":
        return nq.LogNormal(log_mean, cov=sd[:, None] * correlation * sd)
    factor, n = np.linalg.cholesky(correlation), len(sd)

    def from_uniform(u: np.ndarray) -> np.ndarray:
        return np.exp(log_mean[..., None, :] + sd * correlated(factor, ndtri(u)))

    batch = len(log_mean) if log_mean.ndim == 2 else None
    return nq.Transport(from_uniform, dim=n, out_dim=n, batch=batch)


@dataclass(frozen=True)
class _Inner:
    """The law of prices at maturity (and of one uniform an asset) given those at the horizon."""

    book: Book
    correlation: np.ndarray
    how: str
    simulated: bool

    def __call__(self, theta: np.ndarray) -> Law:
        law = _prices(
            np.log(theta) - self.book.far**2 / 2, self.book.far, self.correlation, self.how
        )
        return nq.Independent(law, nq.Uniform(dim=self.book.n)) if self.simulated else law

    def sampler(self, theta: np.ndarray) -> nq.Sampler:
        law = self(theta)
        draws: Callable[..., np.ndarray] = lambda n, rng: law.sample(n, rng)  # noqa: E731
        return nq.Sampler(draws, dim=law.dim, batch=len(theta))


@dataclass(frozen=True)
class _Loss:
    """g: today's value less the payoffs."""

    book: Book
    simulated: bool
    today: float

    def __call__(self, x: np.ndarray, theta: np.ndarray) -> np.ndarray:
        n, paid = self.book.n, 0.0
        for i, mine in enumerate(self.book.options):
            price, start, far = x[..., i], theta[..., i], self.book.far[i]
            for one in mine:
                payoff = one.size * one.payoff(price)
                if one.has_barrier:
                    alive = one.survival(start, price, far)
                    payoff = payoff * (x[..., n + i] < alive if self.simulated else alive)
                paid = paid + payoff
        return self.today - paid
