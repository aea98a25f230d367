"""Interface of a learned model of J."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from nestquad import limits
from nestquad._typing import Array, Indices
from nestquad.clock import tick
from nestquad.points import Lattice, PeriodicLattice, Periodization, Stream, density, moved


@dataclass(frozen=True, eq=False)
class DenseSet:
    """θ as uniforms (M, d_θ) with weights (M,), and Ĵ (M, p) there; parts (M,) of several sets."""

    uniform: Array
    weights: Array
    j: Array
    owner: Indices | None = None


@dataclass(frozen=True, eq=False)
class Paths:
    """Posterior errors of a model, and its changes when a group of points is deleted.

    The observed changes, relative to the posterior's expectation, calibrate the errors
    (delete-a-group jackknife: Kott 2001, The delete-a-group jackknife).

    Attributes
    ----------
    errors
        Draws (K, M, p) of J − Ĵ at the θ of the sketch.
    observed
        Ĵ without group r, less Ĵ: (R, M, p).
    expected
        Posterior draws (R, K', M, p) of these changes. Only their mean square over groups
        enters, so that K' = `n_expected` are enough.
    shared
        Draws (K, M, p) of an error that all groups share, such as truncation of a series, which no
        deletion shows; None if there is none.
    held_out
        Values of the points of each group less the prediction of the model that has not seen the
        group, (R, M, p): R times as large where the sketch is made of the group, zero elsewhere.
    """

    errors: Array
    observed: Array
    expected: Array
    shared: Array | None = None
    held_out: Array | None = None


def n_expected(n_paths: int) -> int:
    """Number of draws of the change by each deleted group, for n paths."""
    return max(n_paths // 4, min(n_paths, 4))


class ModelOfJ(ABC):
    """A model of J(θ) = E[g | θ], learned from evaluations of g.

    A model has these attributes as well.

    Attributes
    ----------
    dim
        d_θ, the number of uniforms behind θ.
    n_points
        Number of points of the fit.
    cost
        Numbers that are computed for Ĵ at one θ.
    sketch
        θ with Ĵ on which paths are drawn.
    design
        θ of the fit with Ĵ, and weights that make them a sample of their law.
    """

    @property
    def dim(self) -> int:
        raise NotImplementedError

    @property
    def n_points(self) -> int:
        raise NotImplementedError

    @property
    def cost(self) -> int:
        raise NotImplementedError

    @property
    def sketch(self) -> DenseSet:
        raise NotImplementedError

    @property
    def design(self) -> DenseSet:
        raise NotImplementedError

    @property
    def periodization(self) -> Periodization:
        """Periodization of x in `at`. Where its density vanishes, ĝ has no variance over x."""
        return "tent"

    @property
    def logarithmic(self) -> bool:
        """Whether log J was learned, so that errors of Ĵ are relative."""
        return False

    def as_function(self) -> ModelOfJ:
        """The model with one value of Ĵ for nearby θ, for people."""
        return self

    @property
    def best(self) -> ModelOfJ:
        """The model of J that is known to be nearer: that behind a proxy, else this."""
        return self

    @abstractmethod
    def mean(self, uniform: Array) -> Array:
        """Ĵ at uniforms (T, d_θ) of θ: (T, p)."""

    @abstractmethod
    def sd(self, uniform: Array) -> Array:
        """Posterior standard deviation of J there, (T, p)."""

    @abstractmethod
    def at(self, uniform: Array, inner: Array, *, cautious: bool = False) -> Array:
        """ĝ (T, p) at uniforms (T, d_θ) of θ and (T, d_x) of x, whose mean over x is Ĵ.

        A control variate: g − ĝ + Ĵ has the mean of g and little of its noise. A cautious one has
        errors of finite variance, also where the model knows little.
        """

    @abstractmethod
    def paths(self, n_paths: int, rng: np.random.Generator) -> Paths:
        """Posterior errors and delete-a-group changes at the θ of the sketch."""

    @abstractmethod
    def residuals(self) -> Array:
        """Values at the θ of the design less their leave-one-out predictions, (n, p)."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Description of the fit for `diagnostics`; sentences under ``"notes"``."""

    def unexplained(self) -> tuple[Array, Array]:
        """Residuals of g at θ of the fit, (t[, N], p), and weights (t,)."""
        return self.residuals(), self.design.weights

    def bounded(self, j: Array, uniform: Array) -> Array:
        """Other J (T, p) at uniforms (T, d_θ) of θ, clipped to the range of a mean of g."""
        return j

    def replicates(self, n: int, log2_size: int, stream: Stream) -> Iterator[DenseSet]:
        """Blocks of n independently shifted lattices of θ with Ĵ, each a sample of their law."""
        size, periodization = 1 << log2_size, periodization_for(self.dim)
        if self.dim == 1:
            # Two jumps of f may be a multiple of the step apart, and the error of all grids with
            # that step is then the same. So the steps of grids differ.
            sizes = list(range(size, size + n))
            shifts = stream.generator().random(n)
        else:
            lattice, sizes = Lattice(max(16, log2_size)), [size] * n
        for owner, m in enumerate(sizes):
            for start in range(0, m, limits.AVERAGE_POINTS):
                some = (start, min(start + limits.AVERAGE_POINTS, m))
                if self.dim == 1:
                    v = ((np.arange(*some) + shifts[owner]) / m % 1.0)[:, None]
                else:
                    v = lattice.uniforms(stream, self.dim, (owner, owner + 1), some)[0]
                u, weights = moved(periodization, v), density(periodization, v)
                yield DenseSet(u, weights, self.mean(u), np.full(len(v), owner))


def control_at(model: ModelOfJ, uniform: Array, inner: Array, *, cautious: bool = False) -> Array:
    """ĝ (n, m, p) at n θ with m x each: uniforms (n, d_θ) and (n, m, d_x)."""
    n, m, dim = inner.shape
    # All x of a θ follow each other: models compute functions of θ alone once.
    theta, x = np.repeat(uniform, m, axis=0), inner.reshape(n * m, dim)
    blocks: list[Array] = []
    for start in range(0, n * m, limits.PREDICTED_POINTS):
        tick()
        rows = slice(start, start + limits.PREDICTED_POINTS)
        blocks.append(model.at(theta[rows], x[rows], cautious=cautious))
    return np.concatenate(blocks).reshape(n, m, -1)


def periodization_for(dim: int) -> Periodization:
    """Default periodization by the number of coordinates.

    The smoother maps have a density that vanishes at the ends of each coordinate; in many
    coordinates it is all peak.
    """
    return "quintic" if dim <= 2 else "cubic" if dim <= 4 else "tent"


def lowest_mean(values: Array, *, signed: bool) -> Array:
    """Least J (p,) that is allowed: half a range below the values (n, p) of g.

    Where g is never negative and f takes no negative J (not `signed`), it is zero at least.
    Elsewhere a bound of zero would move the mean of Ĵ upwards: where J is about zero, Ĵ is as often
    below as above.
    """
    low = values.min(axis=0)
    lowest = low - 0.5 * np.ptp(values, axis=0)
    return np.asarray(lowest if signed else np.where(low < 0, lowest, np.maximum(lowest, 0.0)))


def mean_range(values: Array, *, signed: bool = False) -> tuple[Array, Array]:
    """Least and largest J (p,): the range of the values (n, p) of g and half a range around it."""
    highest = values.max(axis=0) + 0.5 * np.ptp(values, axis=0)
    return lowest_mean(values, signed=signed), highest


def sketch_points(dim: int, size: int) -> Array:
    """Uniforms (size, d) that fill the cube evenly, always the same."""
    lattice = PeriodicLattice(16, "tent")
    return np.asarray(lattice.uniforms(Stream.from_rng(0), dim, (0, 1), (0, size))[0])
