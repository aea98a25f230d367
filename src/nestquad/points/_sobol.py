"""Scrambled Sobol' points, in integer arithmetic."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from nestquad._typing import Array
from nestquad.errors import InputError
from nestquad.points._sequence import Sequence, blocks, set_shifts
from nestquad.points._stream import Stream

_BITS = 32
_MAX_DIM = 21201  # of the direction numbers of Joe and Kuo that scipy ships
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
        if dim > _MAX_DIM:
            raise InputError(
                "dim", str(dim), f"at most {_MAX_DIM} coordinates", "Use iid or lattice points."
            )
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
