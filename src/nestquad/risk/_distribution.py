"""Distribution of the loss J with a band: quantiles, probabilities, samples, exceedance curve."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from scipy.special import ndtr

from nestquad._checks import generator, number, numbers, shown
from nestquad._typing import Array, ArrayLike, RNGLike
from nestquad.errors import InputError
from nestquad.functionals import WeightedSample
from nestquad.plots import axes_or_new, series_styles
from nestquad.result import NORMAL_95
from nestquad.risk._targets import Kind, Targets

# Losses of the curve with its band, evenly in normal scores up to a probability of 3e-7.
_PLACES, _REACH = 150, 5.0
# Beyond all losses that are analyzed.
_LARGEST = 1e300
_LEVELS = "probabilities strictly between 0 and 1"


class LossLaw(Protocol):
    """Law of J with intervals; `steps` says whether J has given values, with none between them."""

    @property
    def center(self) -> WeightedSample: ...

    @property
    def steps(self) -> bool: ...

    def ends(self, targets: Targets, level: float) -> tuple[Array, Array]:
        """Ends (k,) of intervals of measures."""


@dataclass(frozen=True, eq=False)
class LossDistribution:
    """The law of J, from which value at risk and exceedance probabilities are read.

    Attributes
    ----------
    law
        Where its numbers come from.

    Examples
    --------
    >>> import numpy as np
    >>> from nestquad import risk
    >>> j = np.arange(100.0).repeat(2)
    >>> law = risk.from_table({"scenario": j, "loss": j}).distribution
    >>> law.quantile(0.25), round(law.cdf(49.5), 12)
    (24.0, 0.5)
    """

    law: LossLaw

    def cdf(self, loss: ArrayLike, return_std: bool = False) -> Any:
        """P(J ≤ loss), and its standard error if asked for."""
        at = numbers("loss", loss, "numbers")
        if np.isnan(at).any():
            raise InputError("loss", shown(loss), "numbers")
        above, error = self._measured("exceed", np.clip(at, -_LARGEST, _LARGEST), return_std)
        return _plain(1.0 - above, None if error is None else np.where(np.isinf(at), 0.0, error))

    def quantile(self, p: ArrayLike, return_std: bool = False) -> Any:
        """The loss that J stays below with probability p, and its standard error if asked for."""
        level = numbers("p", p, _LEVELS)
        if not ((level > 0) & (level < 1)).all():
            raise InputError("p", shown(p), _LEVELS)
        return _plain(*self._measured("var", level, return_std))

    def _measured(self, kind: Kind, at: Array, with_error: bool) -> tuple[Array, Array | None]:
        """Measures of one kind at many levels, and their standard errors."""
        targets = Targets(tuple((kind, float(level)) for level in at.ravel()))
        value = targets.values(self.law.center).reshape(at.shape)
        if not with_error:
            return value, None
        low, high = self.law.ends(targets, 0.95)
        return value, ((high - low) / (2.0 * NORMAL_95)).reshape(at.shape)

    def sample(self, n: int, rng: RNGLike = None) -> Array:
        """n independent losses J."""
        if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 0:
            raise InputError("n", shown(n), "a number of losses, an integer from 0 on")
        return self.law.center.quantiles(generator(rng).random(n))

    @cached_property
    def losses(self) -> Array:
        """Losses in increasing order, for a curve."""
        return np.unique(self.law.center.quantiles(ndtr(np.linspace(-_REACH, _REACH, _PLACES))))

    def band(self, level: float = 0.95) -> tuple[Array, Array]:
        """Lower and upper ends of intervals for P(J ≤ loss) at each of `losses`."""
        level = number("level", level, "a probability strictly between 0 and 1", below=1.0)
        targets = Targets(tuple(("exceed", float(c)) for c in self.losses))
        low, high = (np.clip(1.0 - end, 0.0, 1.0) for end in self.law.ends(targets, level))
        return np.maximum.accumulate(high), np.maximum.accumulate(low)

    def plot(self, ax: Any = None) -> Any:
        """Draw P(J > loss) on a logarithmic scale with its 95 % band; returns the axes."""
        ax = axes_or_new(ax)
        low, high = self.band()
        above = 1.0 - self.cdf(self.losses)
        shown_ = (above > 2e-4) & (above < 0.999)
        look = series_styles(1)[0]
        x = self.losses[shown_]
        ends = np.maximum(1.0 - high[shown_], 1e-5), 1.0 - low[shown_]
        step, line = ("post", "steps-post") if self.law.steps else (None, "default")
        ax.fill_between(x, *ends, color=look.color, alpha=0.25, linewidth=0, step=step)
        ax.plot(x, above[shown_], color=look.color, linewidth=1.6, drawstyle=line)
        ax.set_yscale("log")
        ax.set_ylim(2e-4, 1.2)
        ax.set_xlabel("loss")
        ax.set_ylabel("probability of a larger loss")
        return ax


def _plain(value: Array, error: Array | None) -> Any:
    """Numbers for a number, arrays for arrays."""
    each = [one if one.ndim else float(one) for one in (value, error) if one is not None]
    return each[0] if error is None else tuple(each)
