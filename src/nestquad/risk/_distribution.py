"""Distribution of the loss J with a band: quantiles, probabilities, samples, exceedance curve."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from nestquad._checks import generator
from nestquad._typing import Array, ArrayLike, RNGLike
from nestquad.errors import InputError
from nestquad.plots import axes_or_new, series_styles
from nestquad.risk._law import CorrectedLaw, Pairs
from nestquad.risk._targets import Targets

# Losses at which the distribution is tabulated, evenly in normal scores, and draws for its error.
_PLACES, _DRAWS = 150, 32


@dataclass(frozen=True, eq=False)
class LossDistribution:
    """The law of J, tabulated with its standard error.

    Attributes
    ----------
    losses, probability, std_error
        Losses in increasing order, P(J ≤ loss), and the standard errors of these.

    Examples
    --------
    >>> law = LossDistribution(np.array([0.0, 1.0]), np.array([0.0, 1.0]), np.zeros(2))
    >>> law.quantile(0.25), law.cdf(0.5)
    (0.25, 0.5)
    """

    losses: Array
    probability: Array
    std_error: Array

    def cdf(self, loss: ArrayLike, return_std: bool = False) -> Any:
        """P(J ≤ loss), and its standard error if asked for."""
        at = _array("loss", loss, "numbers")
        value = np.interp(at, self.losses, self.probability, left=0.0, right=1.0)
        return _both(value, np.interp(at, self.losses, self.std_error), return_std)

    def quantile(self, p: ArrayLike, return_std: bool = False) -> Any:
        """The loss that J stays below with probability p, and its standard error if asked for.

        The error is that of the probability over the density.
        """
        level = _array("p", p, "probabilities strictly between 0 and 1")
        if not ((level > 0) & (level < 1)).all():
            raise InputError("p", repr(p), "probabilities strictly between 0 and 1")
        value = np.interp(level, self.probability, self.losses)
        rising = np.maximum.accumulate(self.probability) + 1e-12 * np.arange(len(self.losses))
        errors = self.std_error * np.abs(np.gradient(self.losses, rising))
        return _both(value, np.interp(level, self.probability, errors), return_std)

    def sample(self, n: int, rng: RNGLike = None) -> Array:
        """n independent losses J."""
        return np.asarray(self.quantile(generator(rng).random(n)))

    def band(self, level: float = 0.95) -> tuple[Array, Array]:
        """Lower and upper ends of intervals for P(J ≤ loss) at each of `losses`."""
        if not 0 < level < 1:
            raise InputError("level", repr(level), "a probability strictly between 0 and 1")
        half = ndtri(0.5 + level / 2) * self.std_error
        return np.clip(self.probability - half, 0, 1), np.clip(self.probability + half, 0, 1)

    def plot(self, ax: Any = None) -> Any:
        """Draw P(J > loss) on a logarithmic scale with its 95 % band; returns the axes."""
        ax = axes_or_new(ax)
        low, high = self.band()
        above = 1.0 - self.probability
        shown = (above > 2e-4) & (above < 0.999)
        look = series_styles(1)[0]
        x = self.losses[shown]
        floor = np.maximum(1.0 - high[shown], 1e-5)
        ax.fill_between(x, floor, 1.0 - low[shown], color=look.color, alpha=0.25, linewidth=0)
        ax.plot(x, above[shown], color=look.color, linewidth=1.6)
        ax.set_yscale("log")
        ax.set_ylim(2e-4, 1.2)
        ax.set_xlabel("loss")
        ax.set_ylabel("probability of a larger loss")
        return ax


def _array(argument: str, given: ArrayLike, expected: str) -> Array:
    try:
        found = np.asarray(given, dtype=float)
    except (TypeError, ValueError) as error:
        raise InputError(argument, repr(given), expected) from error
    if np.isnan(found).any():
        raise InputError(argument, repr(given), expected)
    return found


def _both(value: Array, error: Array, return_std: bool) -> Any:
    def plain(one: Array) -> Any:
        return float(one) if one.ndim == 0 else one

    value, error = np.asarray(value), np.asarray(error)
    return (plain(value), plain(error)) if return_std else plain(value)


def tabulated(
    law: CorrectedLaw, pairs: Pairs | None, n_learned: int, dim: float
) -> LossDistribution:
    """The distribution of a corrected law, with the errors that exceedances at its losses have."""
    law = law.few(_DRAWS)
    reach = float(np.abs(law.z).max())
    levels = ndtr(np.linspace(-reach, reach, _PLACES))
    losses = np.interp(levels, np.cumsum(law.weights), np.maximum.accumulate(law.m))
    losses = np.unique(losses + np.linspace(-2.0, 2.0, _PLACES) * float(law.e.mean()))
    targets = Targets(tuple(("exceed", float(c)) for c in losses))
    if pairs is None:  # nothing is known of the correction
        above, error = targets.values(law)[:, 0], np.full(len(losses), np.inf)
    else:
        above, parts = targets.measured(law, pairs, n_learned, dim)
        error = np.sqrt(sum((one**2).sum(axis=1) for one in parts.values()))
    return LossDistribution(losses, np.maximum.accumulate(1.0 - above), error)
