"""Laws given by the user's own functions: a simulator, or a sampler."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy.special import ndtri

from nestquad._checks import choice, numbers, whole
from nestquad._typing import Array, ArrayLike
from nestquad.distributions._law import Law, read_only
from nestquad.errors import InputError, UnsupportedError, calling


@dataclass(frozen=True, init=False, eq=False, repr=False)
class _UserLaw(Law):
    """Base of both laws: binding to a batch, and checks of results."""

    fn: Callable[..., ArrayLike]

    def _set_function(self, fn: Callable[..., ArrayLike], batch: int | None) -> None:
        if not callable(fn):
            raise InputError("fn", type(fn).__name__, "a function")
        if batch is not None:
            batch = whole("batch", batch, "a whole number of at least 1", below=np.inf)
        vars(self).update(fn=fn, batch=batch)

    def _for_batch(self, batch: int | None, argument: str) -> Law:
        if self.batch is not None or batch is None:
            return super()._for_batch(batch, argument)
        # A function made for T values of theta returns T laws at once, which its
        # author should not have to say twice.
        bound = copy.copy(self)
        vars(bound).update(batch=batch)
        return bound

    def _called(self, lead: tuple[int, ...], *args: Any) -> Array:
        """Result of the user's function for rows of shape `lead`, checked."""
        shape = np.shape(args[0]) if np.ndim(args[0]) else args[0]
        with calling(f"fn of {type(self).__name__}", f" for {shape}"):
            value = self.fn(*args)
        out, size = numbers("fn", value, copy=False), self.dim
        full = lead if self.batch is None else (self.batch, *lead[1:])
        if out.shape[:-1] not in (lead, full) or (out.shape[-1] != size and size is not None):
            wanted = ", ".join(map(str, (*full, "out" if size is None else size)))
            advice = "Keep the leading axes, and return one coordinate as [..., None]."
            raise InputError("fn", f"a result of shape {out.shape}", f"shape ({wanted})", advice)
        if not np.isfinite(out).all():
            at = np.argwhere(~np.isfinite(out))[0].tolist()
            raise InputError("fn", f"a result that is not finite at index {at}", "finite draws")
        return np.broadcast_to(out, (*full, out.shape[-1]))


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Transport(_UserLaw):
    """The law of ``fn(u)``: any simulator driven by uniforms or normals.

    Parameters
    ----------
    fn
        Takes driving variables (..., N, dim) and returns draws (..., N, out), each
        row from its own row alone. Its input is read-only, as points are shared.
    dim
        Number of driving variables of one draw. (It becomes `base_dim`; the
        attribute `dim` is that of the draws.)
    base
        Driving variables: ``"uniform"`` on (0, 1), or standard ``"normal"``.
    out_dim
        Number of coordinates of a draw, if known; it is then checked.
    batch
        T, if `fn` holds the parameters of T laws: it then takes (1, N, dim) or
        (T, N, dim) and returns (T, N, out). As the result of a function of theta
        a law is bound to T without it.

    Examples
    --------
    A random walk of three steps, seen at its end and its maximum:

    >>> import numpy as np
    >>> from nestquad.distributions import Transport
    >>> def walk(z):
    ...     path = np.cumsum(z, axis=-1)
    ...     return np.stack([path[..., -1], path.max(axis=-1)], axis=-1)
    >>> law = Transport(walk, dim=3, base="normal", out_dim=2)
    >>> law.from_normal([[1.0, 1.0, -1.0]])
    array([[1., 2.]])
    """

    def __init__(
        self,
        fn: Callable[[Array], ArrayLike],
        dim: int,
        base: Literal["uniform", "normal"] = "uniform",
        out_dim: int | None = None,
        batch: int | None = None,
    ) -> None:
        choice("base", base, ("uniform", "normal"))
        self._set_function(fn, batch)
        vars(self).update(
            dim=None if out_dim is None else whole("out_dim", out_dim),
            base_dim=whole("dim", dim),
            base=base,
        )

    def _from_uniform(self, u: Array) -> Array:
        return self._run(u if self.base == "uniform" else ndtri(u))

    def _from_normal(self, z: Array) -> Array:
        return self._run(z) if self.base == "normal" else super()._from_normal(z)

    def _run(self, points: Array) -> Array:
        return self._called(points.shape[:-1], read_only(points))


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Sampler(_UserLaw):
    """A law that can only be sampled.

    Methods that place their points (Sobol, lattices, kernel quadrature on the
    cube) need a transport, and refuse it.

    Parameters
    ----------
    fn
        ``fn(n, rng)`` returns n independent draws, (n, dim), or (T, n, dim) for a
        batch. It takes its randomness from the generator `rng` only.
    dim
        Number of coordinates.
    batch
        T, if `fn` holds the parameters of T laws. As the result of a function of
        theta a law is bound to T without it.

    Examples
    --------
    >>> import numpy as np
    >>> from nestquad.distributions import Sampler
    >>> law = Sampler(lambda n, rng: rng.dirichlet([1.0, 2.0, 3.0], size=n), dim=3)
    >>> law.sample(4, np.random.default_rng(0)).sum(axis=-1)
    array([1., 1., 1., 1.])
    """

    has_transport = False
    base_dim = 0

    def __init__(
        self,
        fn: Callable[[int, np.random.Generator], ArrayLike],
        dim: int,
        batch: int | None = None,
    ) -> None:
        self._set_function(fn, batch)
        vars(self).update(dim=whole("dim", dim))

    def _sample(self, n: int, rng: np.random.Generator) -> Array:
        lead = (n,) if self.batch is None else (self.batch, n)
        return self._called(lead, n, rng)

    def _from_uniform(self, u: Array) -> Array:
        raise UnsupportedError(f"{self!r} can only be sampled.")
