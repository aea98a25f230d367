"""Nested expectations with few evaluations and honest error bars.

Public names are imported on first use (PEP 562), so that ``import nestquad`` takes a fraction of
a second. ``nq.voi``, ``nq.risk``, ``nq.design`` and ``nq.botorch`` are imported in the same way.

>>> import nestquad as nq
>>> problem = nq.problems.finance()
>>> est = nq.estimate(problem, budget=4096, rng=0)
>>> low, high = est.interval()
>>> bool(low < problem.exact < high)
True
"""

import importlib as _importlib
import logging as _logging
import sys as _sys
from types import ModuleType as _ModuleType
from typing import TYPE_CHECKING
from typing import Any as _Any

if TYPE_CHECKING:  # the same names as in _HOMES, for type checkers and editors
    from nestquad import botorch as botorch
    from nestquad import design as design
    from nestquad import problems
    from nestquad import risk as risk
    from nestquad import voi as voi
    from nestquad.accuracy import Allocation, allocate
    from nestquad.certify import ProxyCheck, certify
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
        DiscontinuityError,
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
    from nestquad.methods import (
        CKQ,
        LSMC,
        MLKQ,
        MLMC,
        NKQ,
        NMC,
        NQMC,
        Auto,
        JointLattice,
        JointProcess,
    )
    from nestquad.plan import Plan, analyze, plan
    from nestquad.points import IID, Given, Halton, Lattice, Sobol
    from nestquad.problem import NestedExpectation
    from nestquad.quadrature import KernelQuadrature
    from nestquad.repeated import RepeatedExpectation
    from nestquad.result import Estimate
    from nestquad.rules import Jitter, Schedule
    from nestquad.sensitivity import Sensitivities, sensitivity

__version__ = "0.2.0"

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
    "DiscontinuityError",
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
    "JointProcess",
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
    "RepeatedExpectation",
    "ProxyCheck",
    "Sampler",
    "Scaled",
    "Schedule",
    "Sensitivities",
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
    "certify",
    "compare",
    "conditional",
    "estimate",
    "expectation",
    "plan",
    "problems",
    "sensitivity",
]

# Public names by the module that defines them.
_HOMES = {
    "accuracy": "Allocation allocate",
    "certify": "ProxyCheck certify",
    "compare": "Comparison compare",
    "conditional": "ConditionalEstimate conditional",
    "distributions": (
        "Empirical Independent LogNormal MultivariateT Normal Sampler Transport Uniform"
    ),
    "errors": (
        "DiscontinuityError EvaluationError InputError MissingExtraError NestquadError "
        "NestquadWarning NumericalError OutsideDomainError UnsupportedError"
    ),
    "estimate": "estimate",
    "expectation": "expectation",
    "kernels": "Additive Anova Gaussian Matern PeriodicSobolev Scaled Sobolev Stein Sum Tensor",
    "methods": "CKQ LSMC MLKQ MLMC NKQ NMC NQMC Auto JointLattice JointProcess",
    "plan": "Plan analyze plan",
    "points": "IID Given Halton Lattice Sobol",
    "problem": "NestedExpectation",
    "quadrature": "KernelQuadrature",
    "repeated": "RepeatedExpectation",
    "result": "Estimate",
    "rules": "Jitter Schedule",
    "sensitivity": "Sensitivities sensitivity",
}
_SUBPACKAGES = ("botorch", "design", "problems", "risk", "voi")
_MODULE_OF = {name: home for home, names in _HOMES.items() for name in names.split()}


class _Package(_ModuleType):
    """Package whose functions keep their names when modules of the same name are imported.

    Python binds ``nestquad.estimate`` to the module as soon as anything imports it; users mean the
    function.
    """

    def __setattr__(self, name: str, value: _Any) -> None:
        if isinstance(value, _ModuleType) and _MODULE_OF.get(name) == name:
            value = getattr(value, name)
        super().__setattr__(name, value)

    def __reduce__(self) -> tuple[_Any, tuple[str]]:
        """By name, as other modules travel with a function to another process."""
        return _importlib.import_module, (self.__name__,)


def __getattr__(name: str) -> _Any:
    if name in _SUBPACKAGES:
        return _importlib.import_module(f"{__name__}.{name}")
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = _importlib.import_module(f"{__name__}.{_MODULE_OF[name]}")
    value = globals()[name] = getattr(module, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_SUBPACKAGES})


_sys.modules[__name__].__class__ = _Package
# Silent until an application configures logging (see nestquad._log).
_logging.getLogger(__name__).addHandler(_logging.NullHandler())
