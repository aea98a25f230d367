"""Any kernel under weighted samples: a finite sum."""

from __future__ import annotations

import numpy as np

from nestquad._typing import Array
from nestquad.distributions import Empirical
from nestquad.kernels import Kernel

__all__ = ["empirical_embedding"]

# Kernel values held at a time: 32 MB of them.
_BLOCK = 2**22


def empirical_embedding(kernel: Kernel, law: Empirical, x: Array | None) -> Array:
    """Σ_i w_i k(x, t_i), or Σ_ij w_i w_j k(t_i, t_j) where x is None.

    Cost
    ----
    O(T N n) kernel evaluations, O(T N) memory beyond a block of fixed size.
    """
    if x is None:
        return np.asarray(np.sum(law.weights * _mean(kernel, law, law.samples), axis=-1))
    return _mean(kernel, law, x)


def _mean(kernel: Kernel, law: Empirical, x: Array) -> Array:
    n = law.samples.shape[-2]
    lead = np.broadcast_shapes(x.shape[:-2], law.samples.shape[:-2])
    step = max(1, _BLOCK // max(1, x.shape[-2] * int(np.prod(lead))))
    total: Array | None = None
    for start in range(0, n, step):
        part = slice(start, start + step)
        values = kernel.evaluate(x, law.samples[..., part, :])
        sums = np.matmul(values, law.weights[..., part, None])[..., 0]
        total = sums if total is None else total + sums
    assert total is not None  # an Empirical has at least one sample
    return total
