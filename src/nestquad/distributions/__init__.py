"""Laws of theta and x: each a transport of the unit cube, batched over theta."""

from __future__ import annotations

from nestquad.distributions._empirical import Empirical
from nestquad.distributions._independent import Independent
from nestquad.distributions._law import Law, read_only, to_uniform
from nestquad.distributions._normal import LogNormal, MultivariateT, Normal, standard_deviation
from nestquad.distributions._scipy import ScipyLaw, as_law
from nestquad.distributions._uniform import Uniform
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
