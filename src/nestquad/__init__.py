"""Nested expectations with few evaluations and honest error bars.

I = E[f(E[g(x, θ) | θ])] is stated by `NestedExpectation(outer, inner, g, f)` and estimated by
`estimate(problem, budget=…)`, or with ``tol=``, ``rtol=`` or ``max_seconds=``.

* ``g(x, theta)`` takes x (…, d_x) and theta (…, d_θ), whose leading axes broadcast, and returns
  (…) or (…, p). Index the last axis: ``x[..., 0]``.
* ``inner`` is a law, or a function of theta (T, d_θ) that returns a law batched over T. Keep the
  last axis: ``theta[:, :1]``.
* ``f(j)`` takes J (T,) or (T, p) and returns (T,) or (T, q).

`conditional` learns J as a function, `compare` runs methods side by side, `plan` and `analyze`
serve simulators that cannot be called, `sensitivity` adds gradients, `certify` checks a model of J.
Applications: ``nq.voi`` (value of information), ``nq.risk``, ``nq.design`` (experiments) and
``nq.botorch``. All names are imported on first use (PEP 562).

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
    from nestquad import problems as problems
    from nestquad import risk as risk
    from nestquad import voi as voi
    from nestquad.accuracy import Allocation as Allocation
    from nestquad.accuracy import allocate as allocate
    from nestquad.certify import ProxyCheck as ProxyCheck
    from nestquad.certify import certify as certify
    from nestquad.compare import Comparison as Comparison
    from nestquad.compare import compare as compare
    from nestquad.conditional import ConditionalEstimate as ConditionalEstimate
    from nestquad.conditional import conditional as conditional
    from nestquad.distributions import Empirical as Empirical
    from nestquad.distributions import Independent as Independent
    from nestquad.distributions import LogNormal as LogNormal
    from nestquad.distributions import MultivariateT as MultivariateT
    from nestquad.distributions import Normal as Normal
    from nestquad.distributions import Sampler as Sampler
    from nestquad.distributions import Transport as Transport
    from nestquad.distributions import Uniform as Uniform
    from nestquad.errors import DiscontinuityError as DiscontinuityError
    from nestquad.errors import EvaluationError as EvaluationError
    from nestquad.errors import InputError as InputError
    from nestquad.errors import MissingExtraError as MissingExtraError
    from nestquad.errors import NestquadError as NestquadError
    from nestquad.errors import NestquadWarning as NestquadWarning
    from nestquad.errors import NumericalError as NumericalError
    from nestquad.errors import OutsideDomainError as OutsideDomainError
    from nestquad.errors import UnsupportedError as UnsupportedError
    from nestquad.estimate import estimate as estimate
    from nestquad.expectation import expectation as expectation
    from nestquad.kernels import Anova as Anova
    from nestquad.kernels import Gaussian as Gaussian
    from nestquad.kernels import Matern as Matern
    from nestquad.methods import CKQ as CKQ
    from nestquad.methods import LSMC as LSMC
    from nestquad.methods import MLKQ as MLKQ
    from nestquad.methods import MLMC as MLMC
    from nestquad.methods import NKQ as NKQ
    from nestquad.methods import NMC as NMC
    from nestquad.methods import NQMC as NQMC
    from nestquad.methods import Auto as Auto
    from nestquad.methods import JointLattice as JointLattice
    from nestquad.methods import JointProcess as JointProcess
    from nestquad.plan import Plan as Plan
    from nestquad.plan import analyze as analyze
    from nestquad.plan import plan as plan
    from nestquad.points import IID as IID
    from nestquad.points import Given as Given
    from nestquad.points import Lattice as Lattice
    from nestquad.points import Sobol as Sobol
    from nestquad.problem import NestedExpectation as NestedExpectation
    from nestquad.quadrature import KernelQuadrature as KernelQuadrature
    from nestquad.repeated import RepeatedExpectation as RepeatedExpectation
    from nestquad.result import Estimate as Estimate
    from nestquad.rules import Jitter as Jitter
    from nestquad.rules import Schedule as Schedule
    from nestquad.sensitivity import Sensitivities as Sensitivities
    from nestquad.sensitivity import sensitivity as sensitivity

__version__ = "0.3.0.dev0"

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
    "kernels": "Anova Gaussian Matern",
    "methods": "CKQ LSMC MLKQ MLMC NKQ NMC NQMC Auto JointLattice JointProcess",
    "plan": "Plan analyze plan",
    "points": "IID Given Lattice Sobol",
    "problem": "NestedExpectation",
    "quadrature": "KernelQuadrature",
    "repeated": "RepeatedExpectation",
    "result": "Estimate",
    "rules": "Jitter Schedule",
    "sensitivity": "Sensitivities sensitivity",
}
_SUBPACKAGES = ("botorch", "design", "problems", "risk", "voi")
_MODULE_OF = {name: home for home, names in _HOMES.items() for name in names.split()}
__all__ = sorted([*_MODULE_OF, "problems"])


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
