"""Point sequences: random streams, independent, Sobol' and given points."""

from __future__ import annotations

import operator
import threading
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from nestquad import limits
from nestquad._checks import choice, generator, numbers
from nestquad._typing import Array, ArrayLike, RNGLike
from nestquad.errors import InputError

# How far apart runs begin on the circle of 2**128 states: the golden section of it, since states
# that are a power of two apart share their lower bits.
_STRIDE = 0x9E3779B97F4A7C15F39CC0605CEDC835


@dataclass(frozen=True)
class Stream:
    """A name for an infinite supply of random numbers.

    A stream holds no state: asking twice gives the same numbers twice. It is a
    few integers, so a plan that refers to random points can travel to a worker
    instead of the points themselves.

    Parameters
    ----------
    entropy
        Integers in [0, 2**64) that identify the stream. Different tuples give
        independent streams, also for different lengths.

    Examples
    --------
    >>> stream = Stream.from_rng(7)
    >>> stream == Stream.from_rng(7)
    True
    >>> bool(stream.generator().random() == stream.generator().random())
    True
    >>> stream.child(3).child(5) == stream.child(3, 5)
    True
    """

    entropy: tuple[int, ...]

    def __post_init__(self) -> None:
        # Plain integers, so that a stream can be written to JSON wherever its parts came from.
        entropy = tuple(operator.index(number) for number in self.entropy)
        if any(not 0 <= number < 2**64 for number in entropy):
            raise InputError("entropy", repr(entropy), "integers in [0, 2**64)")
        object.__setattr__(self, "entropy", entropy)

    @classmethod
    def from_rng(cls, rng: RNGLike = None) -> Stream:
        """Stream from anything that `numpy.random.default_rng` takes.

        An integer (or SeedSequence) gives the same stream each time, None a new
        one, and a Generator is advanced, so that it gives another one next time.
        """
        if isinstance(rng, Stream):
            return rng
        return cls(tuple(int(n) for n in generator(rng).integers(2**64, size=2, dtype=np.uint64)))

    def child(self, *path: int) -> Stream:
        """Independent stream named by a path of non-negative integers."""
        return Stream(self.entropy + path)

    def generator(self) -> np.random.Generator:
        """Fresh PCG-64 DXSM generator at the beginning of the stream (O'Neill 2014, PCG).

        Notes
        -----
        Cost: about 30 µs.
        """
        # SeedSequence pads with zeros and spells large integers with more words, so that (1,) and
        # (1, 0), or 2**32 and (0, 1), would coincide: hence the length and two words for each.
        words = [len(self.entropy)]
        for number in self.entropy:
            words += [number & 0xFFFFFFFF, number >> 32]
        return np.random.Generator(np.random.PCG64DXSM(np.random.SeedSequence(words)))


class RandomRuns:
    """Random access to the uniforms of a stream.

    The stream is cut into runs of numbers, each long enough never to meet another.
    Any stretch of any run is filled by moving one generator, which is ten times
    cheaper than making a generator for it. One object serves one thread.
    """

    def __init__(self, stream: Stream) -> None:
        self._generator = stream.generator()
        self._start = self._generator.bit_generator.state
        self._position: int | None = 0

    @classmethod
    def of(cls, stream: Stream) -> RandomRuns:
        """The runs of a stream, with the generator that this thread has for it."""
        return _KEPT.runs(stream)

    def fill(self, run: int, offset: int, out: Array) -> None:
        """Write numbers `offset`, `offset` + 1, … of a run into a contiguous array.

        Notes
        -----
        Cost: a jump of about 3 µs, then some 3 ns for each number. Zeros occur.
        """
        target = run * _STRIDE + offset
        # Where the generator is is not known while it moves: Ctrl-C may come in between.
        position, self._position = self._position, None
        if position is None:
            self._generator.bit_generator.state = self._start
            position = 0
        self._generator.bit_generator.advance(  # type: ignore[attr-defined]
            (target - position) % 2**128
        )
        self._generator.random(out=out)
        self._position = target + out.size


class _Kept(threading.local):
    """The generators that a thread used last, since chunks of a grid share theirs."""

    def __init__(self) -> None:
        self.runs = lru_cache(maxsize=8)(RandomRuns)


_KEPT = _Kept()


class Sequence(ABC):
    """A rule that places points in the open unit cube.

    Points come in sets (one for each θ, say), and a set is an infinite sequence
    of which the first N are used. Point `index` of set `set` is a pure function
    of (stream, set, index): it does not matter in which chunk it is made, nor by
    which worker. Sets of one stream are independent given the scramble or generating
    vector that they share.

    Sequences are immutable, comparable and hashable.
    """

    name: ClassVar[str]

    @property
    def space(self) -> str:
        """Where the points live: "uniform" (the unit cube) or "native" (the law's own space)."""
        return "uniform"

    @property
    def max_points(self) -> int | None:
        """How many points a set has at most; None where there is no limit."""
        return None

    def uniforms(
        self, stream: Stream, dim: int, sets: tuple[int, int], indices: tuple[int, int]
    ) -> Array:
        """Points strictly inside (0, 1), a new array that the caller may change.

        `sets` (a, b) and `indices` (i, j) are half-open ranges, which give (b - a, j - i, dim).

        Examples
        --------
        >>> from nestquad.points import Sobol
        >>> stream = Stream.from_rng(0)
        >>> whole = Sobol().uniforms(stream, dim=2, sets=(0, 3), indices=(0, 8))
        >>> part = Sobol().uniforms(stream, dim=2, sets=(1, 2), indices=(4, 8))
        >>> bool((whole[1:2, 4:8] == part).all())
        True
        """
        if dim < 1:
            raise InputError("dim", str(dim), "at least one coordinate")
        for argument, (first, last) in (("sets", sets), ("indices", indices)):
            if not 0 <= first <= last:
                expected = "a half-open range (a, b) with 0 <= a <= b"
                raise InputError(argument, f"({first}, {last})", expected)
        if self.max_points is not None and indices[1] > self.max_points:
            given = f"a request for {indices[1]} points a set"
            expected = f"at most {self.max_points}, all that {self.name!r} points have here"
            raise InputError("indices", given, expected, self._more_points)
        return self._uniforms(stream, dim, sets, indices)

    @abstractmethod
    def _uniforms(
        self, stream: Stream, dim: int, sets: tuple[int, int], indices: tuple[int, int]
    ) -> Array:
        """`uniforms` with arguments that are known to be valid."""

    # Advice when there are too few points.
    _more_points: ClassVar[str] = ""


# Replaces a zero. Random doubles are multiples of 2**-53, so this is the middle of the first cell.
SMALLEST = 2.0**-54


def set_shifts(stream: Stream, dim: int, sets: tuple[int, int]) -> Array:
    """One uniform in [0, 1) for each set (a ≤ s < b) and coordinate, (b - a, dim)."""
    a, b = sets
    shifts = np.empty((b - a, dim))
    RandomRuns.of(stream).fill(0, a * dim, shifts)
    return shifts


def blocks(n_sets: int, numbers_per_set: int) -> list[slice]:
    """Cut sets into slices small enough for the cache, where several passes follow."""
    step = max(1, limits.CACHE_NUMBERS // max(1, numbers_per_set))
    return [slice(i, min(i + step, n_sets)) for i in range(0, n_sets, step)]


def shifted_modulo_one(points: Array, shifts: Array) -> Array:
    """Points (N, d) shifted by each of (S, d), wrapped into the open unit cube: (S, N, d)."""
    out = np.empty((len(shifts), *points.shape))
    for block in blocks(len(shifts), points.size):
        part = out[block]
        np.add(points, shifts[block, None], out=part)
        part -= part >= 1.0  # exact, unlike a remainder
        np.maximum(part, SMALLEST, out=part)
    return out


# Points [first, stop) of `together` neighbouring sets share a run of random numbers and its jump:
# Monte Carlo asks for many sets of a few points, an outer stage for one long set.
_TILES = ((0, 64, 64), (64, 512, 16), (512, 4096, 4), (4096, None, 1))


@dataclass(frozen=True)
class IID(Sequence):
    """Independent uniform points: Monte Carlo.

    Notes
    -----
    Cost: about 5 ns for each number and 5 µs for each jump, of which there is one
    for 64 sets (their first 64 points), for 16 (up to 512), for 4 (up to 4096)
    and for each set (later points). Numbers of the other sets of a tile are
    thrown away, so a single set of a few points costs more.

    Examples
    --------
    >>> IID().uniforms(Stream.from_rng(0), dim=2, sets=(0, 5), indices=(0, 10)).shape
    (5, 10, 2)
    """

    name: ClassVar[str] = "iid"

    def _uniforms(
        self, stream: Stream, dim: int, sets: tuple[int, int], indices: tuple[int, int]
    ) -> Array:
        (a, b), (start, stop) = sets, indices
        out = np.empty((b - a, stop - start, dim))
        if out.size == 0:
            return out
        runs = RandomRuns.of(stream)
        for level, (first, end, together) in enumerate(_TILES):
            lo, hi = max(start, first), stop if end is None else min(stop, end)
            if lo >= hi:
                continue
            for group in range(a // together, (b - 1) // together + 1):
                base = group * together
                first_set, last = max(a, base), min(b, base + together)
                tile = np.empty((hi - lo, together, dim))
                runs.fill(len(_TILES) * group + level, (lo - first) * together * dim, tile)
                here = tile[:, first_set - base : last - base].swapaxes(0, 1)
                out[first_set - a : last - a, lo - start : hi - start] = here
        return np.maximum(out, SMALLEST, out=out)


_BITS = 32
_PLACES = np.uint32(1) << np.arange(_BITS - 1, -1, -1, dtype=np.uint32)  # leading bit first
Integers: TypeAlias = NDArray[np.uint32]


@dataclass(frozen=True)
class Sobol(Sequence):
    """Sobol' points with a random linear scramble and a digital shift for each set.

    Direction numbers of Joe and Kuo (2008), Constructing Sobol sequences with better
    two-dimensional projections, as shipped with scipy.

    The first 2**m points of every set, and every later run of 2**m points that
    starts at a multiple of 2**m, are a digital net. All sets of a stream share
    the scramble, a random lower triangular matrix for each coordinate, and each
    has its own uniform shift, so each point is uniform and each set gives an
    unbiased mean.

    Notes
    -----
    Cost: O(1) for each number; the direction numbers for 2**m points cost
    O(2**m) once in a process. The first use imports `scipy.stats`.

    Examples
    --------
    >>> import numpy as np
    >>> points = Sobol().uniforms(Stream.from_rng(0), dim=3, sets=(0, 2), indices=(0, 8))
    >>> np.sort((8 * points[1, :, 2]).astype(int))  # one point in each eighth
    array([0, 1, 2, 3, 4, 5, 6, 7])
    """

    name: ClassVar[str] = "sobol"
    _more_points: ClassVar[str] = "Use more sets, or iid points."

    @property
    def max_points(self) -> int:
        return 1 << _BITS

    def _uniforms(
        self, stream: Stream, dim: int, sets: tuple[int, int], indices: tuple[int, int]
    ) -> Array:
        net = _span(_scrambled(_basis(dim, indices[1]), stream.child(0)), indices)
        shifts = (set_shifts(stream.child(1), dim, sets) * 2.0**_BITS).astype(np.uint32)
        out = np.empty((len(shifts), *net.shape))
        for block in blocks(len(shifts), net.size):
            # The middle of the cell of 2**-32, which is never 0 or 1.
            np.add(net ^ shifts[block, None], 0.5, out=out[block])
            out[block] *= 2.0**-_BITS
        return out


def _basis(dim: int, n_points: int) -> Integers:
    """Sobol' points number 1, 2, 4, 8, … that generate the first `n_points`, shape (k, dim).

    The first 2**k points are the span of the first k of these by exclusive or.
    """
    log2_size = max(n_points - 1, 1).bit_length()
    return _sobol_basis(dim, max(log2_size, 12))[:log2_size]


@lru_cache(maxsize=64)
def _sobol_basis(dim: int, log2_size: int) -> Integers:
    from scipy.stats import qmc  # a second to import, so only where it is needed

    if dim > qmc.Sobol.MAXDIM:  # of the direction numbers that scipy ships
        most = f"at most {qmc.Sobol.MAXDIM} coordinates"
        raise InputError("dim", str(dim), most, "Use iid or lattice points.")
    engine = qmc.Sobol(dim, scramble=False, bits=_BITS)
    basis = np.empty((log2_size, dim), dtype=np.uint32)
    for k in range(log2_size):
        engine.fast_forward(2**k - engine.num_generated)
        basis[k] = engine.random(1)[0] * 2.0**_BITS
    basis.flags.writeable = False
    return basis


def _scrambled(basis: Integers, stream: Stream) -> Integers:
    """Multiply by a random lower triangular binary matrix with ones on its diagonal.

    The k leading bits of the result depend on the k leading bits of the input,
    one to one, so that nets remain nets (Matoušek 1998, On the L2-discrepancy for anchored boxes).
    """
    dim = basis.shape[1]
    places = _PLACES[:, None]
    random = stream.generator().integers(2**_BITS, size=(_BITS, dim), dtype=np.uint32)
    columns = places | (random & (places - np.uint32(1)))
    is_set = (basis[:, None] & places) != 0
    scrambled: Integers = np.bitwise_xor.reduce(np.where(is_set, columns, np.uint32(0)), axis=1)
    return scrambled


def _span(basis: Integers, indices: tuple[int, int]) -> Integers:
    """Point i is the exclusive or of the basis at the binary digits of i, shape (n, dim)."""
    start, stop = indices
    log2_block = max(stop - start - 1, 0).bit_length()
    block = np.zeros((1, basis.shape[1]), dtype=np.uint32)
    for vector in basis[:log2_block]:
        block = np.concatenate([block, block ^ vector])
    size = len(block)
    parts = []
    for number in range(start // size, -(-stop // size)):
        origin = np.zeros(basis.shape[1], dtype=np.uint32)
        for k, vector in enumerate(basis[log2_block:]):
            if number >> k & 1:
                origin ^= vector
        lo, hi = max(start - number * size, 0), min(stop - number * size, size)
        parts.append(block[lo:hi] ^ origin)
    return np.concatenate([block[:0], *parts])


@dataclass(frozen=True, eq=False, init=False, repr=False)
class Given(Sequence):
    """Points of the user's own, used in the order in which they come.

    Parameters
    ----------
    points
        One set shared by all, or one for each set. Copied.
    space
        "uniform": points of the open unit cube, transported by the law.
        "native": points of the law itself, used as they are.

    Notes
    -----
    Shapes: (N, d) or (S, N, d).

    Examples
    --------
    >>> midpoints = Given([[0.25], [0.75]])
    >>> midpoints.uniforms(Stream.from_rng(0), dim=1, sets=(0, 3), indices=(0, 2)).shape
    (3, 2, 1)
    """

    points: Array
    space: str = "uniform"

    name: ClassVar[str] = "given"
    _more_points: ClassVar[str] = "Give more points, or ask for fewer."

    def __init__(self, points: ArrayLike, space: str = "uniform") -> None:
        choice("space", space, ("uniform", "native"))
        object.__setattr__(self, "points", _checked(points, space))
        object.__setattr__(self, "space", space)

    @property
    def max_points(self) -> int:
        return int(self.points.shape[-2])

    @property
    def max_sets(self) -> int | None:
        """How many sets there are; None where all share the points."""
        return None if self.points.ndim == 2 else len(self.points)

    def _uniforms(
        self, stream: Stream, dim: int, sets: tuple[int, int], indices: tuple[int, int]
    ) -> Array:
        if dim != self.points.shape[-1]:
            expected = f"{dim}, the number of variables that drive the law"
            raise InputError("points", f"{self.points.shape[-1]} coordinates", expected)
        if self.max_sets is not None and sets[1] > self.max_sets:
            expected = f"at least {sets[1]}, one for each set asked for"
            advice = "Points of shape (N, d) are shared by all sets."
            raise InputError("points", f"{self.max_sets} sets", expected, advice)
        (a, b), (start, stop) = sets, indices
        if self.points.ndim == 2:
            return np.repeat(self.points[None, start:stop], b - a, axis=0)
        return self.points[a:b, start:stop].copy()

    def __repr__(self) -> str:
        return f"Given(<points of shape {self.points.shape}>, space={self.space!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Given):
            return NotImplemented
        return self.space == other.space and np.array_equal(self.points, other.points)

    def __hash__(self) -> int:
        # Adding 0 turns -0.0, which equals 0.0, into the same bytes.
        return hash((self.space, self.points.shape, (self.points + 0.0).tobytes()))


def _checked(points: ArrayLike, space: str) -> Array:
    array = numbers("points", points, "an array of numbers, (N, d) or (S, N, d)")
    if array.ndim not in (2, 3) or array.size == 0:
        expected = "shape (N, d), shared by all sets, or (S, N, d)"
        advice = "Write points[:, None] for a single coordinate." if array.ndim == 1 else ""
        raise InputError("points", f"an array of shape {array.shape}", expected, advice)
    usable = (array > 0.0) & (array < 1.0) if space == "uniform" else np.isfinite(array)
    if not usable.all():
        row = tuple(int(i) for i in np.argwhere(~usable)[0][:-1])
        where = f"row {row[-1]}" if len(row) == 1 else f"row {row[1]} of set {row[0]}"
        expected, advice = "finite numbers", ""
        if space == "uniform":
            expected = "numbers strictly between 0 and 1"
            advice = 'Use space="native" for points of the law itself.'
        raise InputError("points", f"{array[row].tolist()} in {where}", expected, advice)
    array.flags.writeable = False
    return array
