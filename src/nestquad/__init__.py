"""Nested expectations with few evaluations and honest error bars.

>>> import nestquad as nq
>>> problem = nq.problems.finance()
>>> est = nq.estimate(problem, budget=4096, rng=0)
>>> low, high = est.interval()
>>> bool(low < problem.exact < high)
True
"""

from nestquad import problems
from nestquad.accuracy import Allocation, allocate
from nestquad.compare import Comparison, compare
from nestquad.conditional import ConditionalEstimate, conditional
from nestquad.distributions import (
    Empirical,
    Independent,
    LogNormal,
    MultivariateT,
    Normal,
    Sampler,
    Transport,
    Uniform,
)
from nestquad.errors import (
    EvaluationError,
    InputError,
    MissingExtraError,
    NestquadError,
    NestquadWarning,
    NumericalError,
    OutsideDomainError,
    UnsupportedError,
)
from nestquad.estimate import estimate
from nestquad.expectation import expectation
from nestquad.kernels import (
    Additive,
    Anova,
    Gaussian,
    Matern,
    PeriodicSobolev,
    Scaled,
    Sobolev,
    Stein,
    Sum,
    Tensor,
)
from nestquad.methods import CKQ, LSMC, MLKQ, MLMC, NKQ, NMC, NQMC, Auto, JointLattice
from nestquad.plan import Plan, analyze, plan
from nestquad.points import IID, Given, Halton, Lattice, Sobol
from nestquad.problem import NestedExpectation
from nestquad.quadrature import KernelQuadrature
from nestquad.result import Estimate
from nestquad.rules import Jitter, Schedule

__version__ = "0.1.0"

__all__ = [
    "CKQ",
    "LSMC",
    "MLKQ",
    "MLMC",
    "IID",
    "NKQ",
    "NMC",
    "NQMC",
    "Additive",
    "Allocation",
    "Anova",
    "Auto",
    "Comparison",
    "ConditionalEstimate",
    "Empirical",
    "Estimate",
    "EvaluationError",
    "Gaussian",
    "Given",
    "Halton",
    "Independent",
    "InputError",
    "Jitter",
    "JointLattice",
    "KernelQuadrature",
    "Lattice",
    "LogNormal",
    "Matern",
    "MissingExtraError",
    "MultivariateT",
    "NestedExpectation",
    "NestquadError",
    "NestquadWarning",
    "Normal",
    "NumericalError",
    "OutsideDomainError",
    "PeriodicSobolev",
    "Plan",
    "Sampler",
    "Scaled",
    "Schedule",
    "Sobol",
    "Sobolev",
    "Stein",
    "Sum",
    "Tensor",
    "Transport",
    "Uniform",
    "UnsupportedError",
    "allocate",
    "analyze",
    "compare",
    "conditional",
    "estimate",
    "expectation",
    "plan",
    "problems",
]
