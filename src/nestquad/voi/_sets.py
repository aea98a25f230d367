"""Which parameters: one set, several, or each by itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from nestquad.errors import InputError, unknown_name

__all__ = ["parameter_sets"]

ALL_SINGLES = "all singles"


def parameter_sets(pars: Any, known: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Named sets of parameters.

    Parameters
    ----------
    pars
        A name; names, for one set; a list of sets; a mapping from labels to sets; or
        ``"all singles"``, which None stands for too.
    known
        The parameters that there are.

    Examples
    --------
    >>> parameter_sets(["a", "b"], "abc")
    {'a + b': ('a', 'b')}
    >>> parameter_sets([["a", "b"], "c"], "abc")
    {'a + b': ('a', 'b'), 'c': ('c',)}
    >>> parameter_sets({"costs": ["a", "b"]}, "abc")
    {'costs': ('a', 'b')}
    >>> list(parameter_sets("all singles", "abc"))
    ['a', 'b', 'c']
    """
    names = list(known)
    if pars is None or (isinstance(pars, str) and pars == ALL_SINGLES and pars not in names):
        return {name: (name,) for name in names}
    if isinstance(pars, Mapping):
        if not pars:
            _refuse(pars)
        return {str(label): _members(one, names) for label, one in pars.items()}
    if isinstance(pars, str):
        return {pars: _members(pars, names)}
    if not isinstance(pars, Iterable):
        _refuse(pars)
    listed = list(pars)
    if not listed:
        _refuse(pars)
    if all(isinstance(one, str) for one in listed):
        listed = [listed]
    sets = [_members(one, names) for one in listed]
    return {" + ".join(members): members for members in sets}


def _members(one: Any, known: list[str]) -> tuple[str, ...]:
    members = (one,) if isinstance(one, str) else tuple(one) if isinstance(one, Iterable) else ()
    if not members or not all(isinstance(member, str) for member in members):
        _refuse(one)
    for member in members:
        if member not in known:
            raise unknown_name("pars", member, known)
    return tuple(dict.fromkeys(members))


def _refuse(pars: Any) -> NoReturn:
    raise InputError(
        "pars",
        repr(pars),
        "a parameter's name, a list of names, a list of such lists, a mapping from labels to "
        "lists, or 'all singles'",
    )
