"""Methods by name."""

from __future__ import annotations

from dataclasses import MISSING, fields, is_dataclass
from typing import Any

from nestquad import limits
from nestquad._checks import choice, shown
from nestquad.errors import InputError, unknown_name
from nestquad.methods._method import Method
from nestquad.methods.auto import Auto
from nestquad.methods.learned import CKQ, LSMC, JointLattice, JointProcess, RepeatedLattice
from nestquad.methods.multilevel import MLKQ, MLMC
from nestquad.methods.nested import NKQ, NMC, NQMC, RepeatedNMC
from nestquad.quadrature import KernelQuadrature
from nestquad.repeated import RepeatedExpectation

_KINDS: tuple[type[Method[Any]], ...] = (
    NMC,
    NQMC,
    MLMC,
    LSMC,
    NKQ,
    MLKQ,
    CKQ,
    JointLattice,
    JointProcess,
)
METHODS = {kind.name: kind for kind in _KINDS}


def as_method(method: str | Method[Any]) -> Method[Any]:
    """A method from its lower-case name, or the method itself.

    Examples
    --------
    >>> as_method("nmc").name
    'nmc'
    """
    if isinstance(method, Method):
        _check_settings(method)
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


def as_repeated(method: str | Method[Any], problem: RepeatedExpectation) -> Method[Any]:
    """A method for all levels of a repeated expectation, from that of its innermost two."""
    chosen = as_method(method)
    if isinstance(chosen, Auto) and chosen.candidates is None:
        return RepeatedLattice(problem)
    if isinstance(chosen, JointLattice):
        return RepeatedLattice(problem, chosen)
    if isinstance(chosen, NMC):
        return RepeatedNMC(problem)
    raise InputError(
        "method",
        repr(chosen.name),
        "'auto', 'joint' or 'nmc' for a repeated expectation",
        "'auto' and 'joint' learn each level, 'nmc' nests loops.",
    )


def _check_settings(method: Method[Any]) -> None:
    """Refuse settings of another kind than their defaults: sizes, flags and recipes."""
    if not is_dataclass(method):
        return
    for setting in fields(method):
        value = getattr(method, setting.name)
        default = setting.default if setting.default is not MISSING else None
        if setting.default_factory is not MISSING:
            default = setting.default_factory()
        if isinstance(default, bool) or setting.name == "positive":
            choice(setting.name, value, (True, False, *([None] if default is None else [])))
        elif isinstance(default, KernelQuadrature):
            recipes = value if isinstance(value, tuple) and value else (value,)
            if not all(isinstance(recipe, KernelQuadrature) for recipe in recipes):
                raise InputError(setting.name, shown(value), "a nq.KernelQuadrature")
        elif (
            isinstance(value, int) and not isinstance(value, bool) and abs(value) > limits.GRID_SIZE
        ):
            raise InputError(setting.name, shown(value), f"at most {limits.GRID_SIZE:,}")
