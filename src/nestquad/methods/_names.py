"""Methods by name."""

from __future__ import annotations

from typing import Any

from nestquad.errors import InputError, unknown_name
from nestquad.methods._method import Method
from nestquad.methods.auto import Auto
from nestquad.methods.learned import CKQ, LSMC, JointLattice
from nestquad.methods.multilevel import MLKQ, MLMC
from nestquad.methods.nested import NKQ, NMC, NQMC

_KINDS: tuple[type[Method[Any]], ...] = (NMC, NQMC, MLMC, LSMC, NKQ, MLKQ, CKQ, JointLattice)
METHODS = {kind.name: kind for kind in _KINDS}


def as_method(method: str | Method[Any]) -> Method[Any]:
    """A method from its lower-case name, or the method itself.

    Examples
    --------
    >>> as_method("nmc").name
    'nmc'
    """
    if isinstance(method, Method):
        return method
    if isinstance(method, str):
        kinds: dict[str, type[Method[Any]]] = {Auto.name: Auto, **METHODS}
        if method.lower() in kinds:
            return kinds[method.lower()]()
        raise unknown_name("method", method, kinds)
    raise InputError(
        "method",
        f"{getattr(method, '__name__', type(method).__name__)}",
        "a name such as 'nkq', or an instance such as nq.NKQ()",
    )
