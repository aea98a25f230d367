"""Weighted samples as a law."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nestquad._checks import numbers
from nestquad._typing import Array, ArrayLike
from nestquad.distributions._law import Law, check_parameter, frozen_array
from nestquad.errors import InputError


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Empirical(Law):
    """The discrete law of weighted samples.

    Parameters
    ----------
    samples
        (n, d) for one law, (T, n, d) for a batch of T laws.
    weights
        (n,), shared by a batch, or (T, n); not negative, normalised to sum 1.
        Equal if not given.

    Attributes
    ----------
    samples, weights
        As given, weights of shape (n,) or (T, n). Samples of one coordinate are
        sorted (their weights with them), so that the transport is the quantile
        function.

    Notes
    -----
    There is one driving variable: ``base_dim == 1``. In several coordinates the
    samples keep their order, as there is no natural one.

    Cost: O(log n) for each point.

    Examples
    --------
    >>> from nestquad.distributions import Empirical
    >>> law = Empirical([[3.0], [1.0], [2.0]], weights=[2, 1, 1])
    >>> law.from_uniform([[0.2], [0.4], [0.9]]).ravel()
    array([1., 2., 3.])
    >>> law.mean()
    array([2.25])
    """

    samples: Array
    weights: Array
    _cumulative: Array

    def __init__(self, samples: ArrayLike, weights: ArrayLike | None = None) -> None:
        values = numbers("samples", samples, copy=False)
        if values.ndim not in (2, 3):
            raise InputError(
                "samples",
                f"shape {values.shape}",
                "(n, d) for one law or (T, n, d) for T laws",
                "For samples of one coordinate add a last axis: samples[:, None].",
            )
        check_parameter("samples", values)
        mass = _masses(weights, values.shape)
        if values.shape[-1] == 1:
            order = np.argsort(values[..., 0], axis=-1, kind="stable")
            values = np.take_along_axis(values, order[..., None], axis=-2)
            if weights is not None:
                mass = np.take_along_axis(np.broadcast_to(mass, values.shape[:-1]), order, axis=-1)
        # Dividing the running sum by its last term makes it end at exactly 1, also
        # before trailing samples of weight 0, which are never drawn.
        cumulative = np.cumsum(mass, axis=-1)
        total = cumulative[..., -1:]
        vars(self).update(
            samples=frozen_array(values),
            weights=frozen_array(np.broadcast_to(mass / total, values.shape[:-1])),
            dim=values.shape[-1],
            base_dim=1,
            batch=values.shape[0] if values.ndim == 3 else None,
            _cumulative=frozen_array(cumulative / total),
        )

    def mean(self) -> Array:
        """Return the weighted mean, (d,) or (T, d)."""
        total: Array = np.einsum("...n,...nd->...d", self.weights, self.samples)
        return total

    def _from_uniform(self, u: Array) -> Array:
        levels = u[..., 0]
        if self._cumulative.ndim == 1:
            index = np.searchsorted(self._cumulative, levels)
            if self.batch is None:
                return self.samples[index]
        else:
            rows = np.broadcast_to(levels, (len(self._cumulative), levels.shape[-1]))
            index = np.array(
                [np.searchsorted(c, row) for c, row in zip(self._cumulative, rows, strict=True)]
            )
        return self.samples[np.arange(len(self.samples))[:, None], index]


def _masses(weights: ArrayLike | None, shape: tuple[int, ...]) -> Array:
    """Check the weights; (n,) or (T, n)."""
    if weights is None:
        return np.ones(shape[-2])
    mass = numbers("weights", weights, copy=False)
    if mass.shape not in (shape[-2:-1], shape[:-1]):
        accepted = " or ".join(dict.fromkeys([str(shape[-2:-1]), str(shape[:-1])]))
        raise InputError("weights", f"shape {mass.shape}", f"{accepted} for samples of {shape}")
    check_parameter("weights", mass)
    if (mass < 0).any():
        at = np.argwhere(mass < 0)[0].tolist()
        raise InputError("weights", f"a negative weight at index {at}", "weights of at least 0")
    sums = mass.sum(axis=-1)
    if not (np.isfinite(sums) & (sums > 0)).all():
        raise InputError("weights", "a sum that is zero or overflows", "a positive finite sum")
    return mass
