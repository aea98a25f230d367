"""Laws of theta and x: each a transport of the unit cube, batched over theta."""

from __future__ import annotations

from nestquad.distributions._families import (
    Empirical,
    Independent,
    LogNormal,
    MultivariateT,
    Normal,
    Uniform,
    standard_deviation,
)
from nestquad.distributions._law import Law, read_only, to_uniform
from nestquad.distributions._scipy import ScipyLaw, as_law
from nestquad.distributions._user import Sampler, Transport

__all__ = [
    "Empirical",
    "Independent",
    "Law",
    "LogNormal",
    "MultivariateT",
    "Normal",
    "Sampler",
    "ScipyLaw",
    "Transport",
    "Uniform",
    "as_law",
    "read_only",
    "standard_deviation",
    "to_uniform",
]
