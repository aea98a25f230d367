"""Derivatives of g in parameters of a problem, at fixed driving variables of θ and x.

The driving variables v of θ and w of x (uniforms, or normals) have a law that does not depend on
the parameters φ, so that dJ/dφ = E[d/dφ g(Φ_φ(w; θ), θ, φ)] with θ = Ψ_φ(v): the pathwise
derivative (Glasserman 2003, Monte Carlo methods in financial engineering, section 7.2). Parameters
of the laws count through the transports Ψ and Φ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, TypeAlias

import numpy as np

from nestquad._typing import Array
from nestquad.distributions import Law, Normal, Uniform
from nestquad.errors import (
    EvaluationError,
    InputError,
    NestquadError,
    calling,
    optional_module,
)
from nestquad.evaluate._call import CountedG, call_g, jax_in_64_bits
from nestquad.evaluate._traced import Traced, with_face
from nestquad.problem import NestedExpectation

__all__ = ["Derivative", "Parametrized", "TangentG", "Tangents", "driving_law"]

Derivative: TypeAlias = Literal["difference", "jax", "torch"]
Gradient: TypeAlias = Callable[..., Mapping[str, Any]]


def driving_law(law: Law) -> Law:
    """Law of the driving variables of another law: uniforms, or standard normals."""
    return Normal(dim=law.base_dim) if law.base == "normal" else Uniform(dim=law.base_dim)


def _transported(law: Law, driving: Array) -> Array:
    return law.from_normal(driving) if law.base == "normal" else law.from_uniform(driving)


@dataclass(frozen=True)
class Parametrized:
    """A problem as a function of its parameters.

    Attributes
    ----------
    make
        Function of named parameters that returns a `NestedExpectation`.
    names, shapes
        Names and shapes of the parameters; () for a number.
    tensors
        Whether g takes parameters as tensors of PyTorch, whose functions take no numbers.
    """

    make: Callable[..., NestedExpectation]
    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    tensors: bool = False

    @property
    def sizes(self) -> list[int]:
        return [int(np.prod(shape)) for shape in self.shapes]

    def named(self, phi: Any) -> dict[str, Any]:
        """A vector of K components as parameters by name: numbers, and arrays of their shapes."""
        out, start = {}, 0
        for name, shape, size in zip(self.names, self.shapes, self.sizes, strict=True):
            part = phi[start : start + size]
            out[name] = part.reshape(shape) if shape else part[0]
            start += size
        return out

    def labels(self) -> list[str]:
        """Names of the K components, with indices for arrays."""
        out = []
        for name, shape in zip(self.names, self.shapes, strict=True):
            places = np.ndindex(*shape)
            out += [f"{name}[{', '.join(map(str, at))}]" if at else name for at in places]
        return out

    def owners(self) -> list[str]:
        """Name of the parameter of each of the K components."""
        return [
            name for name, size in zip(self.names, self.sizes, strict=True) for _ in range(size)
        ]

    def at(self, phi: Array) -> NestedExpectation:
        """The problem at parameters (K,)."""
        return _made(self, tuple(np.asarray(phi, dtype=float).tolist()))


# Problems at a value of the parameters and one step to either side of each.
@lru_cache(maxsize=1024)
def _made(family: Parametrized, phi: tuple[float, ...]) -> NestedExpectation:
    named = family.named(np.array(phi))
    named = {k: v if np.ndim(v) else float(v) for k, v in named.items()}
    try:
        problem = _with_tensors(family, phi) if family.tensors else family.make(**named)
    except NestquadError:
        raise
    except Exception as error:
        shown = ", ".join(f"{k}={v}" for k, v in named.items())
        given = f"a function that raised {type(error).__name__}: {error} for {shown}"
        raise InputError("make_problem", given, "a function of the named parameters") from error
    if not isinstance(problem, NestedExpectation):
        given = f"a function that returned {type(problem).__name__}"
        raise InputError("make_problem", given, "one that returns a nq.NestedExpectation")
    return problem


def _with_tensors(family: Parametrized, phi: tuple[float, ...]) -> NestedExpectation:
    """The problem with parameters as tensors in g, and as numbers elsewhere."""
    torch = optional_module("torch", "derivative='torch'", "torch")
    traced = Traced(np.array(phi), torch.tensor(phi, dtype=torch.float64), torch)
    problem = family.make(**family.named(traced))
    others = {name: with_face("value", getattr(problem, name)) for name in _OTHERS}
    return replace(problem, g=with_face("variable", problem.g), **others)


# Functions of a problem that take arrays of NumPy.
_OTHERS = ("inner", "f", "combine")


@dataclass(frozen=True)
class Tangents:
    """Derivatives of g in scaled parameters: s_k d/dφ_k at φ.

    Attributes
    ----------
    family, phi, scale
        The problem as a function of its parameters, their values (K,) and scales s (K,).
    step
        Step of central differences, relative to the scale.
    derivative
        Central differences of g, or automatic differentiation by the library of that name.
    gradient
        Function ``gradient(x, theta, **parameters)`` of the user, which returns ∂g/∂φ at fixed x
        and θ by name.
    in_laws
        Components that move θ or x.
    active
        Components on which g depends, at fixed driving variables.
    """

    family: Parametrized
    phi: tuple[float, ...]
    scale: tuple[float, ...]
    step: float
    derivative: Derivative = "difference"
    gradient: Gradient | None = None
    in_laws: frozenset[int] = frozenset()
    active: tuple[int, ...] = ()

    @property
    def problem(self) -> NestedExpectation:
        return self.moved(np.zeros(len(self.phi)))

    @property
    def inner_law(self) -> Law:
        """The law of x at the median of θ."""
        return self.problem.inner_law(self.problem.outer_law.middle())

    def moved(self, steps: Array) -> NestedExpectation:
        """The problem at φ + s · steps (K,)."""
        return self.family.at(np.array(self.phi) + np.array(self.scale) * steps)

    def sides(self, k: int, step: float | None = None) -> tuple[NestedExpectation, ...]:
        """Problems one step to either side in component k."""
        h = self.step if step is None else step
        return tuple(self.moved(sign * h * np.eye(len(self.phi))[k]) for sign in (1.0, -1.0))

    def by_differences(self) -> list[int]:
        """Components whose derivative takes two more evaluations of g at each point."""
        if self.derivative != "difference":
            return []
        return [k for k in self.active if self.gradient is None or k in self.in_laws]

    @property
    def cost(self) -> int:
        """Evaluations of g at each point."""
        return 1 + 2 * len(self.by_differences())

    def points(self, problem: NestedExpectation, w: Array, v: Array) -> tuple[Array, Array]:
        """x (T or 1, N, d_x) and θ (T, d_θ) from driving variables w of x and v (T, 1, ·) of θ."""
        outer, law = problem.outer_law, None
        if outer.base_dim == v.shape[-1]:
            theta = _transported(outer, v[:, 0])
            law = problem.inner_law(theta)
        if law is None or law.base_dim != w.shape[-1]:
            given = "laws whose number of driving variables depends on the parameters"
            raise InputError("make_problem", given, "laws of the same dimension for all parameters")
        return _transported(law, w), theta

    def values(self, problem: NestedExpectation, w: Array, v: Array) -> Array:
        """g (T, N, p) of a problem at driving variables."""
        return _with_outputs(self._raw(problem, *self.points(problem, w, v)))

    def is_scalar(self, problem: NestedExpectation, w: Array, v: Array) -> bool:
        """Whether g has no axis of outputs."""
        return self._raw(problem, *self.points(problem, w, v)).ndim == 2

    def _raw(self, problem: NestedExpectation, x: Array, theta: Array) -> Array:
        try:
            return call_g(problem, CountedG(problem), x, theta)
        except EvaluationError as error:
            if problem is not self.problem:
                error.advice = f"Parameters are beside the given ones there. {error.advice}"
            raise

    def __call__(self, w: Array, v: Array) -> tuple[Array, Array]:
        """Values (T, N, p) of g and derivatives (T, N, p, K)."""
        if self.derivative != "difference":
            return self._automatic(w, v)
        problem = self.problem
        x, theta = self.points(problem, w, v)
        raw = self._raw(problem, x, theta)
        values = _with_outputs(raw)
        out = np.zeros((*values.shape, len(self.phi)))
        for k in self.by_differences():
            up, down = (self._beside(side, w, v) for side in self.sides(k))
            if up.shape != values.shape or down.shape != values.shape:
                raise EvaluationError(
                    f"g has {up.shape[-1]} outputs at other parameters, and {values.shape[-1]} here"
                )
            out[..., k] = (up - down) / (2.0 * self.step)
        if self.gradient is not None:
            out += self._given(x, theta, raw.shape).reshape(out.shape) * np.array(self.scale)
        return values, out

    def _beside(self, side: NestedExpectation, w: Array, v: Array) -> Array:
        """g at points of other parameters; with the user's gradient only points move."""
        if self.gradient is None:
            return self.values(side, w, v)
        return _with_outputs(self._raw(self.problem, *self.points(side, w, v)))

    def _given(self, x: Array, theta: Array, shape: tuple[int, ...]) -> Array:
        """Derivatives of the user's function, of the shape of g and then (K,)."""
        assert self.gradient is not None
        named = self.family.named(np.array(self.phi))
        takes = "It takes x, theta and the parameters by name, and returns a dict."
        with calling("gradient", f" for x of shape {x.shape}", takes):
            returned = self.gradient(np.array(x), np.array(theta[:, None, :]), **named)
            slopes = {str(name): np.asarray(slope, float) for name, slope in returned.items()}
        if set(slopes) != set(self.family.names):
            given = f"derivatives in {sorted(slopes)}"
            raise InputError("gradient", given, f"a dict with {sorted(self.family.names)}")
        parts = []
        for name, own in zip(self.family.names, self.family.shapes, strict=True):
            try:
                part = np.broadcast_to(slopes[name], (*shape, *own))
            except ValueError:
                raise InputError(
                    "gradient",
                    f"shape {slopes[name].shape} for {name!r}",
                    f"shape {(*shape, *own)}: that of g, and then that of the parameter",
                ) from None
            parts.append(part.reshape(*shape, -1))
        return np.concatenate(parts, axis=-1)

    def _automatic(self, w: Array, v: Array) -> tuple[Array, Array]:
        """One reverse pass through g for all parameters; transports by differences."""
        problem = self.problem
        x, theta = self.points(problem, w, v)
        shape = (theta.shape[0], x.shape[1])
        flat = (
            np.broadcast_to(x, (*shape, x.shape[-1])).reshape(-1, x.shape[-1]),
            np.broadcast_to(theta[:, None], (*shape, theta.shape[-1])).reshape(-1, theta.shape[-1]),
        )
        phi = np.array(self.phi)
        advice = (
            f"g has to be written with functions of {self.derivative} for arrays of one point, "
            "x (d_x,) and theta (d_theta,); or use derivative='difference'."
        )
        with calling("g", f" while derivative={self.derivative!r} passed through it", advice):
            values, in_phi, in_x, in_theta = _reverse(self.derivative, self.family, phi, *flat)
        out = in_phi * np.array(self.scale)
        for k in sorted(self.in_laws):
            up, down = (self.points(side, w, v) for side in self.sides(k))
            dx = np.broadcast_to((up[0] - down[0]) / (2.0 * self.step), (*shape, x.shape[-1]))
            dt = (up[1] - down[1]) / (2.0 * self.step)
            dt = np.broadcast_to(dt[:, None], (*shape, theta.shape[-1]))
            out[..., k] += np.einsum("npd,nd->np", in_x, dx.reshape(-1, x.shape[-1]))
            out[..., k] += np.einsum("npd,nd->np", in_theta, dt.reshape(-1, theta.shape[-1]))
        return values.reshape(*shape, -1), out.reshape(*shape, -1, len(phi))


def _with_outputs(values: Array) -> Array:
    """Values (T, N) or (T, N, p) with an axis of outputs."""
    return values[..., None] if values.ndim == 2 else values


@dataclass(frozen=True, eq=False)
class TangentG:
    """Integrand of value and derivatives: g (…, p), then s_k dg/dφ_k of active k (…, p · K).

    With a matrix (K, r) they are r combinations of the derivatives instead.
    """

    tangents: Tangents
    matrix: Array | None = None

    def __call__(self, w: Array, v: Array) -> Array:
        values, slopes = self.tangents(w, v)
        slopes = slopes[..., self.tangents.active]
        if self.matrix is not None:
            slopes = slopes @ self.matrix
        return np.concatenate([values, slopes.reshape(*slopes.shape[:2], -1)], axis=-1)


def _reverse(
    library: Derivative, family: Parametrized, phi: Array, x: Array, theta: Array
) -> list[Array]:
    """g (n, p) at points (n, ·), and its Jacobians in φ, x and θ: one reverse pass for all."""
    if library == "torch":
        torch = optional_module("torch", "derivative='torch'", "torch")
        jacobian = _jacobian(family, phi, torch, torch.func)
        slopes, values = jacobian(*(torch.from_numpy(np.array(part)) for part in (phi, x, theta)))
        return [part.detach().cpu().numpy().astype(float) for part in (values, *slopes)]
    n = len(x)
    # A power of two of points: a program is compiled for each number of them.
    rows = np.arange(max(64, 1 << (n - 1).bit_length())) % n
    jax, enabled = jax_in_64_bits("derivative='jax'")
    with enabled:
        points = map(jax.numpy.asarray, (phi, x[rows], theta[rows]))
        slopes, values = _compiled(family, tuple(phi.tolist()))(*points)
        return [np.array(part, dtype=float)[:n] for part in (values, *slopes)]


@lru_cache(maxsize=8)
def _compiled(family: Parametrized, phi: tuple[float, ...]) -> Any:
    jax = optional_module("jax", "derivative='jax'", "jax")
    return jax.jit(_jacobian(family, np.array(phi), jax.numpy, jax))


def _jacobian(family: Parametrized, phi: Array, library: Any, transforms: Any) -> Any:
    """Function of φ, x (n, ·) and θ (n, ·): Jacobians of g, and g itself."""

    def outputs(phi_: Any, x: Any, theta: Any) -> tuple[Any, Any]:
        g = family.make(**family.named(Traced(phi, phi_, library))).g
        values = with_face("variable", g)(x, theta)
        values = getattr(library, "as_tensor", library.asarray)(values).reshape(-1)
        return values, values

    jacobian = transforms.jacrev(outputs, argnums=(0, 1, 2), has_aux=True)
    return transforms.vmap(jacobian, (None, 0, 0))
