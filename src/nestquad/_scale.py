"""Scale of values whose squares, and fourth powers, may be out of range."""

from __future__ import annotations

import numpy as np

from nestquad._typing import Array
from nestquad.errors import EvaluationError

# Sizes whose fourth powers, in variances of variances, are within 2^±1022.
SIZES = (1e-60, 1e60)


def scale_of(values: Array) -> Array:
    """Power of two (p,) of the size of each column of values (n, p): division is exact."""
    exponents = np.frexp(np.abs(values).max(axis=0, initial=0.0))[1]
    return np.asarray(np.ldexp(1.0, exponents - 1))


def require_size(values: Array) -> None:
    """Refuse values of g that are not all zero, and whose fourth powers are out of range."""
    size = float(np.abs(values).max(initial=0.0))
    if size and not SIZES[0] < size < SIZES[1]:
        raise EvaluationError(
            f"g has values of size {size:.2g}; expected between {SIZES[0]:g} and {SIZES[1]:g}",
            advice="State them in another unit.",
        )
