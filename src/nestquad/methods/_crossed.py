"""A few more values, each at the θ of one lattice point and the x of another.

One x for each θ cannot tell a J that jumps from θ to θ from noise in x. Two can: what is left of
two values at the same θ, once the model's prediction is taken away, is correlated just by what the
model does not know of J.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from nestquad._typing import Array
from nestquad.methods._joint_model import JointModel
from nestquad.points import PeriodicLattice, Sequence, Stream, moved

__all__ = ["CrossedLattice", "unexplained_variance"]

# How many standard errors from zero a covariance has to be before it counts.
_SIGNIFICANT = 2.0


@dataclass(frozen=True)
class CrossedLattice(Sequence):
    """Point i has θ, the leading coordinates, of lattice point i and x of point i + n_points.

    The lattice is that of another grid, whose stream is given.

    Examples
    --------
    >>> points = CrossedLattice(PeriodicLattice(10, "tent"), Stream.from_rng(0), 1, 8)
    >>> own = points.uniforms(Stream.from_rng(1), dim=2, sets=(0, 1), indices=(0, 8))[0]
    >>> lattice = points.lattice.uniforms(points.stream, dim=2, sets=(0, 1), indices=(0, 16))[0]
    >>> bool((own[:, 0] == lattice[:8, 0]).all() and (own[:, 1] == lattice[8:, 1]).all())
    True
    """

    lattice: PeriodicLattice
    stream: Stream
    n_theta: int
    n_points: int

    name: ClassVar[str] = "crossed lattice"

    @property
    def max_points(self) -> int:
        return self.n_points

    def periodic(self, dim: int) -> Array:
        """All points before they are moved, (n_points, dim)."""
        v = self.lattice.periodic(self.stream, dim, 2 * self.n_points)
        leading, trailing = v[: self.n_points, : self.n_theta], v[self.n_points :, self.n_theta :]
        return np.concatenate([leading, trailing], axis=1)

    def _uniforms(
        self, stream: Stream, dim: int, sets: tuple[int, int], indices: tuple[int, int]
    ) -> Array:
        points = moved(self.lattice.periodization, self.periodic(dim)[slice(*indices)])
        return np.repeat(points[None], sets[1] - sets[0], axis=0)


def unexplained_variance(
    model: JointModel, points: CrossedLattice, values: Array
) -> tuple[Array, Array]:
    """Variance of J about the model, (p,), that noise cannot explain; and what it may well be.

    Values (K, p) are those at the first crossed points. Each is at the θ of a value that the model
    was fitted to, whose residual is what the others predict wrongly.
    """
    n = values.shape[0]
    residuals, every = model.residuals(), model.points.weights**2
    v = points.periodic(model.geometry.vector.size)[:n]
    products = residuals[:n] * (values - model.at(v))
    # θ and both x are where the lattice has them, which the density makes up for.
    weights = model.points.weights[:n] * model.weights(v) / model.weights(v[:, : model.n_theta])
    weights = weights[:, None] / weights.sum()
    mean = (weights * products).sum(axis=0)
    error = np.sqrt((weights**2 * (products - mean) ** 2).sum(axis=0))
    # A few products may all miss the peaks of g, which the residuals of all points show.
    spread = every @ residuals**2 / every.sum()
    error = np.maximum(error, spread * np.sqrt((weights**2).sum()))
    return np.where(mean > _SIGNIFICANT * error, mean, 0.0), np.maximum(mean + error, 0.0)
