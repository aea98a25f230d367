"""Errors and warnings of nestquad.

A message names the given and the expected value and a remedy, so that a user who has never read
the code can act on it.
"""

from __future__ import annotations

import difflib
import importlib
import re
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

__all__ = [
    "DiscontinuityError",
    "EvaluationError",
    "InputError",
    "MissingExtraError",
    "NestquadError",
    "NestquadWarning",
    "NumericalError",
    "OutsideDomainError",
    "UnsupportedError",
    "calling",
    "optional_module",
    "unknown_name",
]


class NestquadError(Exception):
    """Base class: ``except nq.NestquadError`` catches exactly the errors of nestquad."""


class InputError(NestquadError, ValueError):
    """An argument that cannot be used.

    Parameters
    ----------
    argument
        Name of the argument as the user wrote it.
    given
        Given value, in words.
    expected
        Expected value, in words.
    advice
        Remedy (optional).
    """

    def __init__(self, argument: str, given: str, expected: str, advice: str = "") -> None:
        self.argument, self.given, self.expected, self.advice = argument, given, expected, advice
        super().__init__(argument, given, expected, advice)

    def __str__(self) -> str:
        text = f"{self.argument}: got {self.given}; expected {self.expected}."
        return f"{text} {self.advice}" if self.advice else text


class UnsupportedError(NestquadError, NotImplementedError):
    """A combination that has no implementation, such as an embedding without closed form."""


class DiscontinuityError(UnsupportedError):
    """A derivative in a parameter in which g jumps, as a digital or a barrier option does."""


class NumericalError(NestquadError, ArithmeticError):
    """Linear algebra, or a number range, that failed on valid input."""


class MissingExtraError(NestquadError, ImportError):
    """An optional dependency that is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        self.what, self.extra = what, extra
        super().__init__(what, extra)

    def __str__(self) -> str:
        return (
            f"{self.what} needs an optional dependency that is not installed. "
            f'In a clone of nestquad: pip install ".[{self.extra}]".'
        )


class EvaluationError(NestquadError, RuntimeError):
    """g, f or an objective failed: it raised, or returned something that is not usable.

    Attributes
    ----------
    theta, x
        The point at which it happened, where one could be singled out.
    n_completed
        How many evaluations of g had finished before.
    estimate
        The last complete `Estimate` before the failure, where there was one; None otherwise.
    """

    def __init__(
        self,
        problem: str,
        *,
        theta: np.ndarray[Any, Any] | None = None,
        x: np.ndarray[Any, Any] | None = None,
        n_completed: int = 0,
        advice: str = "",
    ) -> None:
        self.problem, self.theta, self.x = problem, theta, x
        self.n_completed, self.advice = n_completed, advice
        self.estimate: Any = None
        super().__init__(problem)

    def __reduce__(self) -> tuple[Any, ...]:
        # Keyword-only arguments do not survive the default pickling of exceptions,
        # and errors have to travel back from worker processes.
        state = {k: getattr(self, k) for k in ("theta", "x", "n_completed", "advice")}
        return partial(type(self), **state), (self.problem,)

    def __str__(self) -> str:
        parts = [self.problem]
        if self.theta is not None:
            parts.append(f"at theta = {_show(self.theta)}")
        if self.x is not None:
            parts.append(f"x = {_show(self.x)}")
        text = ", ".join(parts) + "."
        if self.n_completed:
            text += f" {self.n_completed} evaluations had finished before."
        return f"{text} {self.advice}" if self.advice else text


class OutsideDomainError(EvaluationError):
    """f is not finite at an estimate of J; another method may avoid this."""


class NestquadWarning(UserWarning):
    """Something was downgraded, dropped or regularised, and it may matter."""


def optional_module(name: str, feature: str, extra: str) -> Any:
    """The module of an optional dependency, or an error that names the extra that brings it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingExtraError(feature, extra) from error


@contextmanager
def calling(
    function: str, where: str | Callable[[], str] = "", advice: str = "", **point: Any
) -> Iterator[None]:
    """Turn exceptions of a function of the user into ours; Ctrl-C is none.

    A text with numbers, which take longer to write than most calls, is written by a function.
    """
    try:
        yield
    except NestquadError:
        raise
    except (Exception, SystemExit) as error:
        said = f"{function} raised {last_line(error)}{where() if callable(where) else where}"
        raise EvaluationError(said, advice=advice, **point) from error


def last_line(error: BaseException) -> str:
    """Type and message of an exception in one line."""
    return traceback.format_exception_only(error)[-1].strip().partition("\n")[0]


def unknown_name(argument: str, given: object, known: Iterable[str]) -> InputError:
    """Error for a name that is not among `known`, with the nearest one as it is written."""
    names = sorted(known)
    bare = {re.sub(r"[\W_]+", "", name).casefold(): name for name in reversed(names)}
    wanted = re.sub(r"[\W_]+", "", str(given)).casefold()
    near = difflib.get_close_matches(wanted, bare, n=1, cutoff=0.4)
    advice = f"Did you mean {bare[near[0]]!r}?" if near else ""
    listed = ", ".join(map(repr, names[:30])) + ", …" * (len(names) > 30)
    return InputError(argument, repr(given), f"one of {listed}", advice)


def _show(point: np.ndarray[Any, Any]) -> str:
    return np.array2string(np.asarray(point), precision=6, threshold=20, separator=", ")
