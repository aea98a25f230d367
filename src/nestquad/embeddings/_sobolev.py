"""Sobolev kernels on the unit interval: Bernoulli polynomials integrate to zero, leaving 1."""

from __future__ import annotations

import numpy as np

from nestquad._typing import Array
from nestquad.distributions import Uniform
from nestquad.embeddings._closed_forms import ClosedForm, register, unsupported
from nestquad.kernels import Kernel, PeriodicSobolev, Sobolev
from nestquad.kernels._sobolev import check_unit_interval

__all__: list[str] = []


def _mean(kernel: Kernel, law: Uniform, x: Array) -> Array:
    _double(kernel, law)  # for its check of the law
    if isinstance(kernel, Sobolev):
        check_unit_interval(x)
    return np.ones(x.shape)


def _double(kernel: Kernel, law: Uniform) -> Array:
    if np.any(law.low != 0.0) or np.any(law.high != 1.0):
        raise unsupported(kernel, law, "Sobolev kernels live on Uniform(0, 1) only")
    return np.ones(())


register(Sobolev, Uniform, ClosedForm(_mean, _double))
register(PeriodicSobolev, Uniform, ClosedForm(_mean, _double))
