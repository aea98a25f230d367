"""Shared type aliases."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["Array", "ArrayLike", "RNGLike"]

Array: TypeAlias = NDArray[np.float64]
RNGLike: TypeAlias = Any  # whatever numpy.random.default_rng accepts
