"""Rank-1 lattices with a random shift: generating vectors, and periodization.

Vectors are by fast component-by-component construction. The criterion is the squared worst-case
error of the shift-averaged lattice with n points in the weighted Sobolev space of mixed first
derivatives,

    e²(z) = -1 + 1/n Σ_{i<n} Π_j (1 + γ_j ω({i z_j / n})),   ω = B_2.

With n = 2**m the points i/n fall into levels u/2**l, u odd. Up to sign, which ω does not see, the
odd residues modulo 2**l are the powers of 5, so in terms of exponents the sum over a level is a
cyclic correlation for all candidates z at once: one FFT (Nuyens and Cools, 2006). Sums over the
levels up to k are the criteria of the embedded lattices with 2**k points, which are balanced as in
Cools, Kuo and Nuyens (2006): least worst ratio to the best vector for that size.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from nestquad._checks import choice, whole
from nestquad._typing import Array
from nestquad.clock import tick
from nestquad.errors import InputError
from nestquad.points._sequence import SMALLEST, Sequence, Stream, set_shifts, shifted_modulo_one


@dataclass(frozen=True)
class Lattice(Sequence):
    """Rank-1 lattice points in van der Corput order, with a random shift for each set.

    The first 2**m points of a set are a shifted lattice for every m up to
    `log2_max`, with a generating vector made to be good at all of these sizes
    (see `lattice_vector`). All sets share the vector.

    Parameters
    ----------
    log2_max
        Base-2 logarithm of the largest number of points. Another value gives
        other points, as the vector is made for it.

    Notes
    -----
    Cost: O(1) for each number; the vector is made once in a process.

    Examples
    --------
    >>> import numpy as np
    >>> points = Lattice().uniforms(Stream.from_rng(0), dim=2, sets=(0, 1), indices=(0, 4))
    >>> np.diff(np.sort(points[0], axis=0), axis=0)  # quarters in each coordinate
    array([[0.25, 0.25], [0.25, 0.25], [0.25, 0.25]])
    """

    log2_max: int = 16

    name: ClassVar[str] = "lattice"
    _more_points: ClassVar[str] = "Raise log2_max, as in Lattice(log2_max=20), or use more sets."

    def __post_init__(self) -> None:
        _check_log2_size("log2_max", self.log2_max)

    @property
    def max_points(self) -> int:
        return 1 << self.log2_max

    def _uniforms(
        self, stream: Stream, dim: int, sets: tuple[int, int], indices: tuple[int, int]
    ) -> Array:
        return self.shifted(set_shifts(stream, dim, sets), indices)

    def shifted(self, shifts: Array, indices: tuple[int, int]) -> Array:
        """Points (S, n, d) with given shifts (S, d), n from the first to before the last index."""
        vector = lattice_vector(shifts.shape[1], self.log2_max)
        multiples = reversed_bits(indices[1], self.log2_max, indices[0])
        residues = multiples[:, None] * vector & (self.max_points - 1)
        return shifted_modulo_one(residues / self.max_points, shifts)


def reversed_bits(stop: int, n_bits: int, start: int = 0) -> NDArray[np.int64]:
    """`start` … `stop` - 1 with their `n_bits` binary digits mirrored: van der Corput order.

    Prefixes of 2**k are evenly spread.
    """
    index = np.arange(start, stop, dtype=np.int64)
    mirrored = np.zeros_like(index)
    for bit in range(n_bits):
        mirrored |= (index >> bit & 1) << (n_bits - 1 - bit)
    return mirrored


# The order of a user's coordinates is not their importance, so all have the same weight. A
# small weight puts projections to a few coordinates first: among 19 coordinates at 2**10 points
# the worst pair is nine times better than with the customary 1/j**2.
_WEIGHT = 0.1


def lattice_vector(dim: int, log2_size: int) -> NDArray[np.int64]:
    """Generating vector of a rank-1 lattice that is good for every size 2**k, k <= log2_size.

    The vector (dim,) has odd entries below 2**log2_size; that for fewer coordinates is its
    beginning.

    Notes
    -----
    Cost: O(dim m 2**m) for m = `log2_size`, then cached.

    Examples
    --------
    >>> vector = lattice_vector(3, 10)
    >>> vector.shape, int(vector[0]), bool((vector % 2 == 1).all())
    ((3,), 1, True)
    """
    if dim < 1:
        raise InputError("dim", str(dim), "at least one coordinate")
    _check_log2_size("log2_size", log2_size)
    return _embedded_cbc(log2_size, dim)


def _check_log2_size(argument: str, size: int) -> None:
    whole(argument, size, "an integer from 0 to 24", least=0, below=25)


@lru_cache(maxsize=128)
def _embedded_cbc(log2_size: int, dim: int) -> NDArray[np.int64]:
    levels = _levels(log2_size)
    best = [_smallest_errors(levels[: k + 1], dim) for k in range(1, log2_size + 1)]
    lattice = _Construction(levels)
    exponents = []
    for j in range(dim):
        tick()
        worst_ratio = np.zeros(1)
        for errors, smallest in zip(lattice.squared_errors(), best, strict=True):
            worst_ratio = _repeat_to(worst_ratio, len(errors))
            np.maximum(worst_ratio, errors / smallest[j], out=worst_ratio)
        exponents.append(_first_smallest(worst_ratio))
        lattice.append(exponents[-1])
    vector = _powers_of_five(log2_size)[exponents]
    vector.flags.writeable = False
    return vector


def _smallest_errors(levels: list[_ResidueLevel], dim: int) -> list[float]:
    """Squared error after each component of the plain construction for one size."""
    lattice = _Construction(levels)
    smallest = []
    for _ in range(dim):
        tick()
        errors = lattice.squared_errors()[-1]
        exponent = _first_smallest(errors)
        smallest.append(float(errors[exponent]))
        lattice.append(exponent)
    return smallest


@dataclass(frozen=True)
class _ResidueLevel:
    """ω at u / 2**l for the odd u, up to sign: u = 5**b with b the position in `omega`."""

    size: int  # 2**l
    multiplicity: int  # how many u there are for each power of 5
    omega: Array
    transform: NDArray[Any]


def _levels(log2_size: int) -> list[_ResidueLevel]:
    powers = _powers_of_five(log2_size)
    levels = []
    for log2 in range(log2_size + 1):
        size = 1 << log2
        x = (powers[: max(size // 4, 1)] % size) / size
        omega = x * (x - 1.0) + 1.0 / 6.0
        levels.append(_ResidueLevel(size, 2 if log2 > 1 else 1, omega, np.fft.rfft(omega)))
    return levels


class _Construction:
    """A lattice that grows by components, all of its levels at once."""

    def __init__(self, levels: list[_ResidueLevel]) -> None:
        self._levels = levels
        # The product over components minus 1. The errors are tiny sums of these, which would drown
        # in the rounding of the products themselves.
        self._excess = [np.zeros_like(level.omega) for level in levels]

    def squared_errors(self) -> list[Array]:
        """e² with one more component 5**a, for all a: an array for each size 2, 4, 8, …."""
        errors = []
        total = np.zeros(1)
        for level, excess in zip(self._levels, self._excess, strict=True):
            spectrum = level.transform * np.fft.rfft(excess).conj()
            correlation = np.fft.irfft(spectrum, n=len(excess))
            increment = excess.sum() + _WEIGHT * (level.omega.sum() + correlation)
            total = _repeat_to(total, len(increment)) + level.multiplicity * increment
            errors.append(total / level.size)
        return errors[1:]

    def append(self, exponent: int) -> None:
        """Add the component 5**exponent."""
        for level, excess in zip(self._levels, self._excess, strict=True):
            omega = np.roll(level.omega, -exponent)
            excess += _WEIGHT * omega * (1.0 + excess)


def _powers_of_five(log2_size: int) -> NDArray[np.int64]:
    """5**b modulo 2**log2_size for all b below the order 2**(log2_size - 2)."""
    modulus = 1 << log2_size
    powers = np.ones(1, dtype=np.int64)
    while len(powers) < modulus // 4:
        powers = np.concatenate([powers, powers * pow(5, len(powers), modulus) % modulus])
    return powers


def _repeat_to(values: Array, length: int) -> Array:
    # A power of 5 modulo 2**(l-1) depends on its exponent modulo half the order: the coarser level
    # repeats along the candidates of the finer one.
    return np.tile(values, length // len(values))


def _first_smallest(values: Array) -> int:
    # Candidates closer than 1e-6 are equally good (some are exactly, by symmetry). Taking the first
    # of them makes the vector independent of the rounding of the FFT.
    return int(np.argmax(values <= values.min() * (1.0 + 1e-6)))


Periodization: TypeAlias = Literal["tent", "cubic", "quintic"]
PERIODIZATIONS: tuple[Periodization, ...] = ("tent", "cubic", "quintic")


def moved(periodization: Periodization, v: Array) -> Array:
    """The point u in (0, 1) of a periodic variable v in [0, 1].

    The tent (baker's transformation: Hickernell 2002, Obtaining O(N^(-2+ε)) convergence for lattice
    quadrature rules) runs through the interval and back, so any function becomes continuous on the
    circle; the cubic and the quintic (Laurie 1996, Periodizing transformations) run through it once
    and slow down at both ends.
    """
    if periodization == "tent":
        u = 1.0 - np.abs(2.0 * v - 1.0)
    else:
        # From the nearer end, where u is small and its digits count.
        u = _rising(periodization, np.minimum(v, 1.0 - v))
        u = np.where(v <= 0.5, u, 1.0 - u)
    # Up to the largest number below 1, where quantile functions are finite.
    return np.asarray(np.clip(u, SMALLEST, 1.0 - 2.0**-53))


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
    for _ in range(8):
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
    its first derivatives as the density does: none, one, two of them.
    """
    if periodization == "tent":
        return np.ones(v.shape[:-1])
    bump = v * (1.0 - v)
    return np.asarray(np.prod(6.0 * bump if periodization == "cubic" else 30.0 * bump**2, axis=-1))


@dataclass(frozen=True)
class PeriodicLattice(Sequence):
    """Interleaved random shifts of a lattice in van der Corput order, periodized.

    Points i, i + R, i + 2R, … belong to shift i of `n_shifts` R: a prefix of R 2**k points has R
    randomizations of the same size (Cranley and Patterson 1976, Randomization of number theoretic
    methods), which are independent unless `log2_strata` is given.

    Parameters
    ----------
    log2_max
        Base-2 logarithm of the largest size of each lattice.
    periodization
        How g becomes periodic, see `moved`.
    n_shifts
        R.
    log2_strata
        Base-2 logarithm of the size at which shifts are stratified; None leaves them independent.
        Shift r is coset r of the lattice with R times the points, or the next power of
        two, moved at random within a cell of that lattice. So all points together are nearly as
        even as one lattice, and phases of its dual vectors are independent between shifts, as in
        stratified sampling (Cochran 1977, Sampling techniques, chapter 5).

    Examples
    --------
    >>> points = PeriodicLattice(10, "tent", n_shifts=4)
    >>> points.uniforms(Stream.from_rng(0), dim=3, sets=(0, 1), indices=(0, 8)).shape
    (1, 8, 3)
    """

    log2_max: int = 16
    periodization: Periodization = "tent"
    n_shifts: int = 1
    log2_strata: int | None = None

    name: ClassVar[str] = "lattice"

    def __post_init__(self) -> None:
        choice("periodization", self.periodization, PERIODIZATIONS)
        whole("n_shifts", self.n_shifts, "a number of shifts, at least 1", least=1)

    @property
    def max_points(self) -> int:
        return self.n_shifts << self.log2_max

    def periodic(self, stream: Stream, dim: int, n_points: int) -> Array:
        """Lattice points (n, d) before periodization."""
        return np.asarray(self._interleaved(stream, dim, (0, 1), (0, n_points))[0])

    def _uniforms(
        self, stream: Stream, dim: int, sets: tuple[int, int], indices: tuple[int, int]
    ) -> Array:
        return moved(self.periodization, self._interleaved(stream, dim, sets, indices))

    def _interleaved(
        self, stream: Stream, dim: int, sets: tuple[int, int], indices: tuple[int, int]
    ) -> Array:
        n, (start, stop) = self.n_shifts, indices
        rows = start // n, -(-stop // n)
        shifts = set_shifts(stream, dim, (n * sets[0], n * sets[1]))
        shifted = Lattice(self.log2_max).shifted(self._stratified(shifts), rows)
        by_set = shifted.reshape(sets[1] - sets[0], n, -1, dim).swapaxes(1, 2)
        first = start - n * rows[0]
        flat = by_set.reshape(len(by_set), -1, dim)
        return np.ascontiguousarray(flat[:, first : first + stop - start])

    def _stratified(self, shifts: Array) -> Array:
        """Shifts (S R, d) of cosets, from independent uniforms (S R, d); the first moves all."""
        if self.log2_strata is None:
            return shifts
        dim, bits = shifts.shape[1], (self.n_shifts - 1).bit_length()
        size = float(1 << (self.log2_strata + bits))
        cosets = reversed_bits(self.n_shifts, bits)[:, None] * lattice_vector(dim, self.log2_max)
        by_set = shifts.reshape(-1, self.n_shifts, dim)
        within_cell = size ** (-1.0 / dim) * (by_set - 0.5)
        return np.asarray((by_set[:, :1] + cosets / size + within_cell).reshape(-1, dim) % 1.0)
