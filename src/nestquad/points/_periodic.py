"""Periodization: lattices transformed so that integrands become periodic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

import numpy as np

from nestquad._typing import Array
from nestquad.errors import unknown_name
from nestquad.points._lattice import Lattice
from nestquad.points._sequence import Sequence
from nestquad.points._stream import Stream

Periodization: TypeAlias = Literal["tent", "cubic", "quintic"]
PERIODIZATIONS: tuple[Periodization, ...] = ("tent", "cubic", "quintic")

# The open interval in which quantile functions are finite.
_LOWEST, _HIGHEST = 2.0**-54, 1.0 - 2.0**-53
_STEPS = 8


def moved(periodization: Periodization, v: Array) -> Array:
    """The point u in (0, 1) of a periodic variable v in [0, 1].

    The tent runs through the interval and back, so any function becomes continuous on the circle;
    the cubic and the quintic run through it once and slow down at both ends.
    """
    if periodization == "tent":
        u = 1.0 - np.abs(2.0 * v - 1.0)
    else:
        # From the nearer end, where u is small and its digits count.
        u = _rising(periodization, np.minimum(v, 1.0 - v))
        u = np.where(v <= 0.5, u, 1.0 - u)
    return np.asarray(np.clip(u, _LOWEST, _HIGHEST))


def periodic(periodization: Periodization, u: Array) -> Array:
    """The v in [0, ½] or [0, 1] with ``moved(periodization, v) == u``."""
    if periodization == "tent":
        return np.asarray(u / 2.0)
    near = np.minimum(u, 1.0 - u)
    # Both maps are convex up to the middle, so Newton's steps from an upper bound decrease to the
    # root, and eight reach the last digit. Square roots are exact, so no bit depends on how an
    # array is cut: (near/4)^(5/16) stands for the cubic root.
    cubic = periodization == "cubic"
    v = np.sqrt(near / 2.0) if cubic else np.sqrt(np.sqrt(near / 4.0))
    if not cubic:
        v = v * np.sqrt(np.sqrt(v))
    for _ in range(_STEPS):
        if cubic:
            v = v - (v * (3.0 - 2.0 * v) - near / v) / (6.0 * (1.0 - v))
        else:
            value = v * (10.0 - 15.0 * v + 6.0 * v**2)
            v = v - (value - near / v**2) / (30.0 * (1.0 - v) ** 2)
    return np.where(u <= 0.5, v, 1.0 - v)


def _rising(periodization: Periodization, v: Array) -> Array:
    """The cubic or the quintic of v up to ½."""
    if periodization == "cubic":
        return v * v * (3.0 - 2.0 * v)
    return v * v * v * (10.0 + v * (6.0 * v - 15.0))


def density(periodization: Periodization, v: Array) -> Array:
    """Weight of a point, ∏_j du/dv_j, for v (…, d) → (…).

    ∫ h(u) du = ∫ h(u(v)) density(v) dv, and the integrand on the right vanishes at the ends with
    as many derivatives as the density does: none, one, two.
    """
    if periodization == "tent":
        return np.ones(v.shape[:-1])
    bump = v * (1.0 - v)
    return np.asarray(np.prod(6.0 * bump if periodization == "cubic" else 30.0 * bump**2, axis=-1))


@dataclass(frozen=True)
class PeriodicLattice(Sequence):
    """A periodized, shifted lattice in van der Corput order.

    Examples
    --------
    >>> from nestquad.points import Stream
    >>> points = PeriodicLattice(10, "tent")
    >>> points.uniforms(Stream.from_rng(0), dim=3, sets=(0, 1), indices=(0, 8)).shape
    (1, 8, 3)
    """

    log2_max: int = 16
    periodization: Periodization = "tent"

    name: ClassVar[str] = "lattice"

    def __post_init__(self) -> None:
        if self.periodization not in PERIODIZATIONS:
            raise unknown_name("periodization", self.periodization, PERIODIZATIONS)

    @property
    def max_points(self) -> int:
        return 1 << self.log2_max

    def periodic(self, stream: Stream, dim: int, n_points: int) -> Array:
        """The lattice itself, (n, d), before periodization."""
        return np.asarray(Lattice(self.log2_max).uniforms(stream, dim, (0, 1), (0, n_points))[0])

    def _uniforms(
        self, stream: Stream, dim: int, sets: tuple[int, int], indices: tuple[int, int]
    ) -> Array:
        return moved(
            self.periodization, Lattice(self.log2_max).uniforms(stream, dim, sets, indices)
        )
