"""Laws of theta and x: each a transport of the unit cube, batched over theta."""

from __future__ import annotations

from nestquad.distributions._families import Empirical as Empirical
from nestquad.distributions._families import LogNormal as LogNormal
from nestquad.distributions._families import MultivariateT as MultivariateT
from nestquad.distributions._families import Normal as Normal
from nestquad.distributions._families import Uniform as Uniform
from nestquad.distributions._families import standard_deviation as standard_deviation
from nestquad.distributions._law import Law as Law
from nestquad.distributions._law import read_only as read_only
from nestquad.distributions._law import to_uniform as to_uniform
from nestquad.distributions._scipy import Independent as Independent
from nestquad.distributions._scipy import ScipyLaw as ScipyLaw
from nestquad.distributions._scipy import as_law as as_law
from nestquad.distributions._user import Sampler as Sampler
from nestquad.distributions._user import Transport as Transport
