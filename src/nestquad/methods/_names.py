"""Methods by name."""

from __future__ import annotations

import numpy as np

from nestquad.errors import InputError, unknown_name
from nestquad.methods._method import Method
from nestquad.methods.ckq import CKQ
from nestquad.methods.joint import JointLattice
from nestquad.methods.lsmc import LSMC
from nestquad.methods.mlkq import MLKQ
from nestquad.methods.mlmc import MLMC
from nestquad.methods.nkq import NKQ
from nestquad.methods.nmc import NMC
from nestquad.methods.nqmc import NQMC
from nestquad.problem import NestedExpectation

__all__ = ["METHODS", "as_method", "choose_method"]

_KINDS: tuple[type[Method], ...] = (NMC, NQMC, MLMC, LSMC, NKQ, MLKQ, CKQ, JointLattice)
METHODS = {kind.name: kind for kind in _KINDS}


def as_method(method: str | Method) -> Method:
    """A method from its lower-case name, or the method itself.

    Examples
    --------
    >>> as_method("nmc").name
    'nmc'
    """
    if isinstance(method, Method):
        return method
    if isinstance(method, str):
        if method.lower() in METHODS:
            return METHODS[method.lower()]()
        raise unknown_name("method", method, ["auto", *METHODS])
    raise InputError(
        "method",
        f"{getattr(method, '__name__', type(method).__name__)}",
        "a name such as 'nkq', or an instance such as nq.NKQ()",
    )


def choose_method(problem: NestedExpectation) -> tuple[Method, str]:
    """The method that ``"auto"`` stands for, and why.

    Kernel quadrature needs to know how points come about; a law that can only be sampled leaves
    nested Monte Carlo.
    """
    if problem.outer_law.has_transport:
        theta = problem.outer_law.from_uniform(np.full((1, problem.outer_law.base_dim), 0.5))
        if problem.inner_law(theta).has_transport:
            return NKQ(), "auto chose nkq: both laws are transports, so optimal weights exist"
        return NMC(), "auto chose nmc: the inner law can only be sampled"
    return NMC(), "auto chose nmc: the outer law can only be sampled"
