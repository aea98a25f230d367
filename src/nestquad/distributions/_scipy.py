"""Frozen univariate distributions of scipy.stats as laws."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from nestquad._typing import Array
from nestquad.distributions._law import Law
from nestquad.distributions._normal import LogNormal, Normal
from nestquad.distributions._uniform import Uniform
from nestquad.errors import InputError, UnsupportedError


@dataclass(frozen=True, init=False, eq=False, repr=False)
class ScipyLaw(Law):
    """A frozen univariate distribution of scipy.stats, continuous or discrete.

    Users pass the distribution itself; `as_law` makes this of it. Parameters of shape () or (d,)
    are one law; with a `batch` T, parameters of shape (T,) or (T, d) are T laws. Errors call it
    `argument`.

    Notes
    -----
    Cost: one call of the quantile function; scipy inverts some of them
    numerically, at several microseconds a point.

    Examples
    --------
    >>> from scipy import stats
    >>> from nestquad.distributions import as_law
    >>> law = as_law(stats.expon(scale=[1.0, 2.0, 3.0]), batch=3)
    >>> law
    ScipyLaw(expon, dim=1, batch=3)
    >>> law.from_uniform([[0.5]]).ravel().round(6)
    array([0.693147, 1.386294, 2.079442])
    """

    frozen: Any
    shape: tuple[int, ...]

    def __init__(self, frozen: Any, batch: int | None = None, argument: str = "frozen") -> None:
        vars(self).update(frozen=frozen)
        # The median tells the shape of the parameters and whether they are valid,
        # whatever the names that this distribution has for them.
        try:
            median = self._quantile(np.array(0.5))
        except InputError as error:
            raise InputError(argument, error.given, error.expected, error.advice) from None
        except (TypeError, ValueError) as error:
            raise InputError(
                argument,
                f"scipy.stats {self._name}, whose quantile function fails ({error})",
                "a frozen distribution with all its parameters, of shapes that broadcast",
            ) from error
        shape = median.shape
        accepted = [(), shape[:1]] if batch is None else [(), (batch,), (batch, *shape[1:2])]
        if shape not in accepted or 0 in shape:
            raise InputError(
                argument,
                f"scipy.stats {self._name} with parameters of shape {shape}",
                "() or (d,) for one law"
                if batch is None
                else f"(), ({batch},) or ({batch}, d) for {batch} laws",
                "Give other arrangements as a tuple of distributions, one for each coordinate.",
            )
        shared = batch is None or shape == ()
        dim = 1 if not shape or (not shared and len(shape) == 1) else shape[-1]
        vars(self).update(shape=shape, dim=dim, base_dim=dim, batch=None if shared else batch)

    def mean(self) -> Array:
        """Return scipy's mean, (d,) or (T, d); `UnsupportedError` where it is not finite."""
        mean = self._arrange(self.frozen.mean())
        if not np.isfinite(mean).all():
            raise UnsupportedError(f"The mean of {self!r} is not finite.")
        return mean

    def closed_form(self) -> Law:
        """Return the law as one of our own where there is one: it is faster and has embeddings."""
        dist = getattr(self.frozen, "dist", None)
        kind = type(dist).__name__ if type(dist).__module__.startswith("scipy.stats") else ""
        if kind not in ("norm_gen", "uniform_gen", "lognorm_gen"):
            return self
        order = ("s", "loc", "scale") if kind == "lognorm_gen" else ("loc", "scale")
        given = dict(zip(order, self.frozen.args, strict=False)) | self.frozen.kwds
        loc, scale = self._arrange(given.get("loc", 0.0)), self._arrange(given.get("scale", 1.0))
        if kind == "norm_gen":
            return Normal(loc, sd=scale)
        if kind == "uniform_gen":
            return Uniform(loc, loc + scale)
        return self if loc.any() else LogNormal(np.log(scale), self._arrange(given["s"]))

    def _arrange(self, value: Any) -> Array:
        """Bring one number for each parameter to (d,) or (T, d)."""
        full = np.broadcast_to(np.asarray(value, dtype=np.float64), self.shape)
        lead = () if self.batch is None else (self.batch,)
        return full.reshape(*lead, self.base_dim)

    def _from_uniform(self, u: Array) -> Array:
        if self.batch is None:
            return self._quantile(u)
        # The parameters stand last, so the points go first: (N, T, d) against (T, d).
        levels = np.moveaxis(u, -2, 0)
        if len(self.shape) == 1:
            return np.ascontiguousarray(self._quantile(levels[..., 0]).T)[..., None]
        return np.ascontiguousarray(np.moveaxis(self._quantile(levels), 0, -2))

    def _quantile(self, u: Array) -> Array:
        quantile: Callable[[Array], Any] = getattr(self.frozen, "ppf", None) or self.frozen.icdf
        with np.errstate(all="ignore"):
            x = np.asarray(quantile(u), dtype=np.float64)
        if not np.isfinite(x).all():
            raise InputError(
                "distribution",
                f"scipy.stats {self._name}, whose quantiles (ppf) inside (0, 1) are nan or inf",
                "finite quantiles",
                "Check the parameters: scipy returns nan where they are out of range.",
            )
        return x

    def _to_uniform(self, x: Array) -> Array:
        if not callable(getattr(self.frozen, "cdf", None)):
            return super()._to_uniform(x)
        return np.asarray(self.frozen.cdf(x))

    @property
    def _name(self) -> str:
        dist = getattr(self.frozen, "dist", self.frozen)
        return str(getattr(dist, "name", None) or type(dist).__name__)

    def __repr__(self) -> str:
        batch = "" if self.batch is None else f", batch={self.batch}"
        return f"ScipyLaw({self._name}, dim={self.dim}{batch})"
