"""Scale of values whose squares may be out of range."""

from __future__ import annotations

import numpy as np

from nestquad._typing import Array


def scale_of(values: Array) -> Array:
    """Power of two (p,) of the size of each column of values (n, p): division is exact."""
    exponents = np.frexp(np.abs(values).max(axis=0, initial=0.0))[1]
    return np.asarray(np.ldexp(1.0, exponents - 1))
