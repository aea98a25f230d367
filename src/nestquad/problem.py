"""The problem: a nested expectation, stated once for every method."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from importlib.util import find_spec
from typing import Any, TypeAlias

import numpy as np

from nestquad._checks import choice, instance, numbers
from nestquad._notebook import pairs
from nestquad._typing import Array
from nestquad.distributions import Law, as_law
from nestquad.errors import (
    EvaluationError,
    InputError,
    MissingExtraError,
    NestquadError,
    calling,
)

__all__ = ["NestedExpectation", "best_and_each", "value_of_information"]

Smoothness: TypeAlias = tuple[float, float | tuple[float, ...]]


@dataclass(frozen=True)
class NestedExpectation:
    """The nested expectation I = E_θ[ f( E_{x|θ}[ g(x, θ) ] ) ].

    Parameters
    ----------
    outer
        The law of θ: a law of nestquad, a frozen ``scipy.stats`` distribution, or a tuple of these
        for independent coordinates.
    inner
        The law of x given θ: a callable that takes θ of shape (T, d_θ) and returns a law batched
        over T, or one law if x does not depend on θ (points and weights are then shared).
    g
        ``g(x, theta)`` with x (…, d_x) and theta (…, d_θ), whose leading axes broadcast against
        each other; index the last axis, ``x[..., 0]``. Returns (…) or (…, p) for p outputs, as
        anything that NumPy, JAX or PyTorch makes, or as lists. None if g is not a function: then
        `nestquad.plan` writes the points down, and `nestquad.analyze` reads the values.
    f
        ``f(j)`` with j (T,) or (T, p), returning (T,) or (T, q). Default: the identity.
    combine
        ``combine(I)`` with I (q,), for a final answer that is not itself an expectation, such as
        ``I[0] - max(I[1:])``. Error bars go through it.
    exact
        The true value of the final answer, where it is known.
    name
        For printing and plots.
    tags
        Words that describe the problem, such as ``"smooth"`` or ``"kinked"``.
    smoothness
        ``(s_x, s_θ)``: how many square-integrable derivatives g has in each coordinate of x and
        f∘J in each coordinate of θ (``inf`` is allowed; s_θ may be a tuple, one number an answer).
        Only `NKQ.as_published` and `allocate` use it.
    vectorized
        False for a g that takes one point at a time: x (d_x,) and theta (d_θ,), returning a number
        or p of them. It is called once for each evaluation.
    noisy
        True for a random g: two calls at the same point differ, independently,
        by noise of mean zero. ``"auto"`` then leaves out models of g at single points, except with
        few evaluations, and a store compares averages instead of values.
    arrays
        The library whose arrays g takes: ``"numpy"``, ``"jax"`` or ``"torch"`` (extras of the same
        names). Points share memory with them on a CPU, so g must not write to them; JAX runs with
        64-bit numbers enabled during the call. f and `combine` take NumPy arrays.

    Examples
    --------
    >>> import nestquad as nq
    >>> problem = nq.NestedExpectation(
    ...     outer=nq.Normal(),
    ...     inner=lambda theta: nq.Normal(theta, 1.0),
    ...     g=lambda x, theta: x[..., 0] ** 2,
    ...     f=lambda j: j,
    ...     exact=2.0,
    ... )
    >>> est = nq.estimate(problem, budget=4096, rng=0)
    >>> bool(abs(est.value - 2.0) < 0.02)
    True
    """

    outer: Any
    inner: Any
    g: Callable[[Array, Array], Any] | None = None
    f: Callable[[Array], Any] | None = None
    combine: Callable[[Array], Any] | None = None
    exact: float | Sequence[float] | None = None
    name: str | None = None
    tags: tuple[str, ...] = ()
    smoothness: Smoothness | None = None
    vectorized: bool = True
    noisy: bool = False
    arrays: str = "numpy"

    def __post_init__(self) -> None:
        for argument in ("g", "f", "combine"):
            value = getattr(self, argument)
            if value is not None and not callable(value):
                raise InputError(argument, f"{type(value).__name__}", "a callable, or None")
        for argument in ("vectorized", "noisy"):
            instance(argument, getattr(self, argument), bool, "True or False")
        choice("arrays", self.arrays, ("numpy", "jax", "torch"))
        if find_spec(self.arrays) is None:  # importing it is left to the first call of g
            raise MissingExtraError(f"arrays={self.arrays!r}", self.arrays)
        if self.exact is not None:
            numbers("exact", self.exact, "a number, several of them, or None")
        if self.name is not None:
            instance("name", self.name, str, "text, or None")
        law = self.outer_law  # validate now, where the user can see which line did it
        if law.batch is not None:
            advice = "Parameters of the outer law have shape (d,), not (T, d)."
            raise InputError("outer", f"a batch of {law.batch} laws", "one law of θ", advice)
        if not callable(self.inner) or isinstance(self.inner, Law):
            static = as_law(self.inner, argument="inner")
            if static.batch is not None:
                given = f"a batch of {static.batch} laws that does not depend on θ"
                expected = "one law, or a callable theta -> law batched over theta"
                raise InputError("inner", given, expected)

    @property
    def label(self) -> str:
        return self.name or "nested expectation"

    def _repr_html_(self) -> str:
        outer = self.outer_law
        theta = f"{described_law(outer)}: {_coordinates(outer.dim)}"
        try:
            # At the median of θ; g is not called, since it may be expensive.
            inner = self.inner_law(outer.middle())
            given = "" if self.inner_is_shared else " given θ; shown at its median"
            x = f"{described_law(inner)}: {_coordinates(inner.dim)}{given}"
        except NestquadError as error:
            x = str(error)
        given_g = described_signature(self.g) + ("" if self.vectorized else ", one point at a time")
        rows = {
            "θ": theta,
            "x": x,
            "g(x, θ)": given_g + ("" if self.arrays == "numpy" else f", {self.arrays} arrays"),
            "f(J)": described_signature(self.f, "identity"),
            "combine": described_signature(self.combine, ""),
            "exact": "" if self.exact is None else f"{np.asarray(self.exact)}",
            "tags": ", ".join(self.tags),
        }
        return pairs(f"{self.label}: E[ f( E[ g(x, θ) | θ ] ) ]", rows)

    @cached_property
    def outer_law(self) -> Law:
        return as_law(self.outer, argument="outer")

    @cached_property
    def inner_is_shared(self) -> bool:
        """Whether the law of x is the same for all θ."""
        return isinstance(self.inner, Law) or not callable(self.inner)

    @cached_property
    def inner_base_dim(self) -> int:
        """Number of uniforms that drive one draw of x, for every θ."""
        return self.inner_law(self.outer_law.middle()).base_dim

    def inner_law(self, theta: Array) -> Law:
        """The law of x given each row of theta (T, d_θ)."""
        if self.inner_is_shared:
            return as_law(self.inner, argument="inner")
        n_theta = theta.shape[0]
        law = as_law(self._call_inner(theta), batch=n_theta, argument="inner(theta)")
        if law.batch not in (None, 1, n_theta):
            given = f"a batch of {law.batch} laws for {n_theta} values of theta"
            advice = "Give the parameters shape (T, d): theta has shape (T, d_theta)."
            raise InputError("inner(theta)", given, "one law for each row of theta", advice)
        if law.batch is None and n_theta > 1:
            self._refuse_parameters_without_coordinates(theta, law.dim)
        return law

    def _call_inner(self, theta: Array) -> Any:
        takes = "inner takes theta of shape (T, d_theta) and returns a law."
        point = theta[0] if theta.shape[0] == 1 else None
        with calling("inner", f" for theta of shape {theta.shape}", takes, theta=point):
            return self.inner(np.array(theta))  # a copy, since it may write to it

    def _refuse_parameters_without_coordinates(self, theta: Array, dim: int | None) -> None:
        # Parameters of shape (T,) read as T coordinates: an easy slip with theta[:, 0]. If the
        # dimension follows the number of thetas, that was the slip.
        fewer = as_law(
            self._call_inner(theta[:-1]), batch=theta.shape[0] - 1, argument="inner(theta)"
        )
        if fewer.batch is None and fewer.dim != dim:
            given = f"parameters of shape ({theta.shape[0]},), read as coordinates of one law"
            expected = f"parameters of shape (T, d), here ({theta.shape[0]}, d)"
            advice = "Keep the last axis: theta[:, :1] instead of theta[:, 0]."
            raise InputError("inner(theta)", given, expected, advice)

    def natural_j(self, j: Array) -> Array:
        """J in the units of g, for messages: methods may see it in others."""
        return j

    @property
    def n_answers(self) -> int | None:
        """The number q of answers of f, where it is known from earlier ones."""
        return None

    def apply_f(self, j: Array) -> Array:
        """f at J (T, p), always returned as (T, q); shape checks are the caller's."""
        raw = j if self.f is None else self.f(j)
        # A PyTorch tensor may track gradients.
        values = np.asarray(raw.detach().cpu() if hasattr(raw, "detach") else raw)
        return values[:, None] if values.ndim == 1 else values

    def finish(self, answers: Array) -> Array:
        """The final answer from the q expectations."""
        if self.combine is None:
            return answers if answers.size > 1 else answers.reshape(())
        takes = f"combine takes the {answers.size} expectations as one array."
        with calling("combine", lambda: f" for I = {answers}", takes):
            final = np.array(self.combine(np.array(answers)))
        if final.dtype.kind not in "fiub" or final.ndim > 1 or not final.size:
            raise EvaluationError(
                f"combine returned {final.dtype} of shape {final.shape} for I = {answers}; "
                "expected a real number, or a vector of them"
            )
        return final.astype(float)


def _coordinates(dim: int | None) -> str:
    return "coordinates" if dim is None else f"{dim} coordinate{'s' if dim != 1 else ''}"


def described_law(law: Law, longest: int = 72) -> str:
    """A law in one line."""
    text = " ".join(repr(law).split())
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def described_signature(
    function: Callable[..., Any] | None,
    none: str = "evaluated elsewhere: nq.plan writes the points down",
) -> str:
    """Name and arguments of a function."""
    if function is None:
        return none
    name = getattr(function, "__name__", type(function).__name__)
    try:
        arguments = ", ".join(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # some functions written in C
        arguments = "…"
    return f"lambda {arguments}" if name == "<lambda>" else f"{name}({arguments})"


def best_and_each(j: Array) -> Array:
    """The largest of the p outputs and then each of them, (T, p) → (T, 1 + p): an f."""
    # Option by option: a maximum along so short an axis would take five times as long.
    largest = reduce(np.maximum, np.moveaxis(j, -1, 0))
    return np.concatenate((largest[..., None], j), axis=-1)


def value_of_information(answers: Array) -> Array:
    """E max J − max E J from the expectations of `best_and_each`: a combine."""
    value: Array = answers[..., 0] - np.max(answers[..., 1:], axis=-1)
    return value
