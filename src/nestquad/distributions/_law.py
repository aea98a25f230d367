"""Base class of all laws, transports of the unit cube, and validation of their parameters."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Literal

import numpy as np
from scipy.special import ndtr

from nestquad._checks import generator, numbers, whole
from nestquad._typing import Array, ArrayLike, RNGLike
from nestquad.errors import InputError, UnsupportedError


class Law(ABC):
    """One law, or a batch of `T` laws of the same family (one for each theta).

    A user-defined law needs `dim`, `base_dim` and `_from_uniform` (its Rosenblatt transform:
    Rosenblatt 1952, Remarks on a multivariate transformation); `batch` may stay None.
    `from_uniform`, `from_normal` and `sample` then check their input and call it.

    Attributes
    ----------
    dim
        Number of coordinates of x; None for a `Transport` that did not say.
    base_dim
        Number of uniforms (or normals) that drive one draw.
    batch
        `T` for a batch of laws, None for a single law.
    base
        The driving variables that the law is written in, ``"uniform"`` or
        ``"normal"``. Both `from_uniform` and `from_normal` work with either.
    has_transport
        False for a law that can only be sampled.

    Notes
    -----
    Shapes: a single law maps (..., N, base_dim) to (..., N, dim). A batch of T
    laws maps (N, base_dim) or (1, N, base_dim), shared by all laws, or
    (T, N, base_dim) to (T, N, dim).

    A coordinate of x depends on its own row of driving variables only, to the
    last bit: chunks of any size give the same numbers.

    Examples
    --------
    >>> import numpy as np
    >>> from nestquad.distributions import Law
    >>> class Triangular(Law):
    ...     dim = base_dim = 1
    ...
    ...     def _from_uniform(self, u):
    ...         return np.sqrt(u)
    >>> Triangular().from_uniform([[0.25], [0.81]])
    array([[0.5],
           [0.9]])
    """

    dim: int | None
    base_dim: int
    batch: int | None = None
    base: Literal["uniform", "normal"] = "uniform"
    has_transport: bool = True

    # Attributes that repr shows while they are short.
    _shown: ClassVar[tuple[str, ...]] = ()

    def from_uniform(self, u: ArrayLike) -> Array:
        """Map points strictly inside the unit cube to draws; see the class for the shapes."""
        points, low, high = self._driving(u, "u")
        if not (low > 0.0 and high < 1.0):
            advice = "Quantiles at 0 and 1 may be infinite; shift the points inside."
            expected = "values strictly between 0 and 1"
            raise InputError("u", f"values from {low:g} to {high:g}", expected, advice)
        return self._from_uniform(points)

    def from_normal(self, z: ArrayLike) -> Array:
        """Map independent standard normals to draws of the law.

        It is ``from_uniform(ndtr(z))``, computed without the detour where the
        law is written in normals.
        """
        points, low, high = self._driving(z, "z")
        if not (np.isfinite(low) and np.isfinite(high)):
            raise InputError("z", f"values from {low:g} to {high:g}", "finite numbers")
        return self._from_normal(points)

    def sample(self, n: int, rng: RNGLike = None) -> Array:
        """Draw independently: (n, dim), or (T, n, dim) for a batch.

        Parameters
        ----------
        n
            Number of draws (of each law of a batch).
        rng
            Argument of `numpy.random.default_rng`.
        """
        count = whole("n", n, "a whole number of at least 1", below=np.inf)
        return self._sample(count, generator(rng))

    def middle(self) -> Array:
        """Draw at uniforms ½, (1, dim) for a single law; any draw if it can only be sampled."""
        if not self.has_transport:
            return self.sample(1, 0)
        return self.from_uniform(np.full((1, self.base_dim), 0.5))

    @abstractmethod
    def _from_uniform(self, u: Array) -> Array:
        """Implement `from_uniform`; `u` is checked, and 3-d for a batch."""

    def _from_normal(self, z: Array) -> Array:
        # ndtr rounds to 1 from z = 8.3 on. Clipping keeps such a point inside the cube, where every
        # quantile function is finite.
        inside = np.clip(ndtr(z), np.nextafter(0.0, 1.0), np.nextafter(1.0, 0.0))
        return self._from_uniform(inside)

    def _sample(self, n: int, rng: np.random.Generator) -> Array:
        shape = (n, self.base_dim) if self.batch is None else (self.batch, n, self.base_dim)
        if self.base == "normal":
            return self._from_normal(rng.standard_normal(shape))
        # Generator.random may return 0, once in 2**53 numbers.
        return self._from_uniform(np.maximum(rng.random(shape), 2.0**-54))

    def _to_uniform(self, x: Array) -> Array:
        """Invert `_from_uniform` for a single law at x (N, dim)."""
        raise UnsupportedError(
            f"The transport of {self!r} cannot be inverted, so a point of it has no known place in "
            "the unit cube. Known for Uniform, Normal, LogNormal, MultivariateT, "
            "scipy.stats distributions with a cdf, and Independent of those."
        )

    def _for_batch(self, batch: int | None, argument: str) -> Law:
        """Return the law as one that a function of `batch` values of theta gave."""
        if self.batch not in (None, batch):
            expected = "a single law" if batch is None else f"a single law or a batch of {batch}"
            advice = "Parameters of shape (d,) are the coordinates of one law, (T, d) make T laws."
            raise InputError(argument, f"a batch of {self.batch} laws", expected, advice)
        return self

    def _driving(self, values: ArrayLike, argument: str) -> tuple[Array, float, float]:
        if not self.has_transport:
            raise UnsupportedError(
                f"{self!r} can only be sampled: no map from uniforms to its draws is known, so "
                "Sobol points, lattices and kernel quadrature on the cube cannot drive it. Use "
                "method='nmc', or write the simulator as a nestquad.Transport of its noise."
            )
        points = self._align(numbers(argument, values, copy=False), argument, self.base_dim)
        if not points.size:
            return points, 0.5, 0.5
        return points, float(points.min()), float(points.max())

    def _align(self, points: Array, argument: str, size: int | None) -> Array:
        """Check the shape, and give points that a batch shares a leading axis."""
        last = "dim" if size is None else str(size)
        if points.ndim < 2 or (size is not None and points.shape[-1] != size):
            advice = "For one coordinate add a last axis: [..., None]." if size == 1 else ""
            expected = f"shape (..., N, {last})"
            raise InputError(argument, f"an array of shape {points.shape}", expected, advice)
        if self.batch is None:
            return points
        if points.ndim == 2:
            return points[None]
        if points.ndim != 3 or points.shape[0] not in (1, self.batch):
            shapes = f"shape (N, {last}), (1, N, {last}) or ({self.batch}, N, {last})"
            expected = f"{shapes} for a batch of {self.batch} laws"
            raise InputError(argument, f"an array of shape {points.shape}", expected)
        return points

    def _set(self, **named: Array) -> None:
        """Set parameters, all of shape (d,) or (T, d), and the sizes that follow from them."""
        shape = next(iter(named.values())).shape
        vars(self).update(
            named, dim=shape[-1], base_dim=shape[-1], batch=shape[0] if len(shape) == 2 else None
        )

    def __repr__(self) -> str:
        parts = []
        for name in self._shown:
            value = getattr(self, name)
            if value is not None and np.size(value) <= 6:
                parts.append(f"{name}={np.asarray(value).tolist()}")
        if not parts:
            parts.append(f"dim={self.dim}")
            if self.batch is not None:
                parts.append(f"batch={self.batch}")
        return f"{type(self).__name__}({', '.join(parts)})"


def frozen_array(value: Array) -> Array:
    """Copy to a contiguous read-only array: a law never changes after it was made."""
    array = np.array(value, dtype=np.float64, order="C")
    array.flags.writeable = False
    return array


def read_only(points: Array) -> Array:
    """A view that a function cannot write to: points are shared, nodes of a rule, and cached."""
    view = points.view()
    view.flags.writeable = False
    return view


def parameters(dim: int | None, **named: ArrayLike) -> tuple[Array, ...]:
    """Broadcast parameters to one shape, (d,) for a single law or (T, d) for a batch.

    A scalar goes to every coordinate, a 1-d array is always coordinates and a
    2-d array always (T, d).
    """
    values = {name: numbers(name, value, copy=False) for name, value in named.items()}
    for name, value in values.items():
        check_parameter(name, value)
        if value.ndim > 2:
            expected = "a scalar, (d,) for one law, or (T, d) for T laws"
            raise InputError(name, f"shape {value.shape}", expected)
    shapes = [value.shape for value in values.values()]
    wanted = (1,) if dim is None else (whole("dim", dim),)
    try:
        shape = np.broadcast_shapes(wanted, *shapes)
    except ValueError:
        shape = ()
    if not shape or (dim is not None and shape[-1] != dim):
        said = "" if dim is None else f" with dim={dim}"
        given = f"shapes {' and '.join(map(str, shapes))}{said}"
        expected = "shapes that broadcast to (d,) for one law or (T, d) for T laws"
        advice = "1-d arrays are coordinates; T univariate laws have parameters of shape (T, 1)."
        raise InputError(" and ".join(values), given, expected, advice)
    return tuple(frozen_array(np.broadcast_to(value, shape)) for value in values.values())


def check_parameter(name: str, value: Array) -> None:
    """Refuse an empty array, NaN and infinity."""
    if not value.size:
        raise InputError(name, f"an empty array of shape {value.shape}", "at least one number")
    if not np.isfinite(value).all():
        bad = np.argwhere(~np.isfinite(np.atleast_1d(value)))[0].tolist()
        raise InputError(name, f"a value that is not finite at index {bad}", "finite numbers")


def common_batch(argument: str, batches: list[int | None]) -> int | None:
    """Return the batch that all of `batches` broadcast to."""
    sizes = {size for size in batches if size is not None}
    if not sizes:
        return None
    if len(sizes - {1}) > 1:
        raise InputError(
            argument, f"batches of {sorted(sizes)} laws", "batches of one size T, or single laws"
        )
    return max(sizes)


def to_uniform(law: Law, x: Array) -> Array:
    """Uniforms (N, d) with ``law.from_uniform(uniforms) == x``, for a single law.

    Points outside the support end up at the border of the cube, just inside.

    Examples
    --------
    >>> import numpy as np
    >>> from nestquad.distributions import LogNormal
    >>> law = LogNormal(1.0, 0.5)
    >>> u = np.array([[0.1], [0.9]])
    >>> to_uniform(law, law.from_uniform(u)).round(12)
    array([[0.1],
           [0.9]])
    """
    return np.clip(law._to_uniform(np.asarray(x, dtype=float)), 2.0**-54, 1.0 - 2.0**-53)
