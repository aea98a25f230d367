"""Laws from frozen distributions of scipy.stats, and independent products of laws."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from nestquad._typing import Array
from nestquad.distributions._families import LogNormal, MultivariateT, Normal, Uniform
from nestquad.distributions._law import Law, common_batch
from nestquad.errors import InputError


@dataclass(frozen=True, init=False, eq=False, repr=False)
class ScipyLaw(Law):
    """A frozen univariate distribution of scipy.stats, continuous or discrete.

    Users pass the distribution itself; `as_law` makes this of it. Parameters of shape () or (d,)
    are one law; with a `batch` T, parameters of shape (T,) or (T, d) are T laws. Errors call it
    `argument`.

    Notes
    -----
    Cost: one call of the quantile function; scipy inverts some of them
    numerically, at several microseconds a point.

    Examples
    --------
    >>> from scipy import stats
    >>> from nestquad.distributions import as_law
    >>> law = as_law(stats.expon(scale=[1.0, 2.0, 3.0]), batch=3)
    >>> law
    ScipyLaw(expon, dim=1, batch=3)
    >>> law.from_uniform([[0.5]]).ravel().round(6)
    array([0.693147, 1.386294, 2.079442])
    """

    frozen: Any
    shape: tuple[int, ...]

    def __init__(self, frozen: Any, batch: int | None = None, argument: str = "frozen") -> None:
        vars(self).update(frozen=frozen)
        # The median tells the shape of the parameters and whether they are valid.
        try:
            median = self._quantile(np.array(0.5))
        except InputError as error:
            raise InputError(argument, error.given, error.expected, error.advice) from None
        except (TypeError, ValueError) as error:
            given = f"scipy.stats {self._name}, whose quantile function fails ({error})"
            expected = "a frozen distribution with all its parameters, of shapes that broadcast"
            raise InputError(argument, given, expected) from error
        shape = median.shape
        accepted = [(), shape[:1]] if batch is None else [(), (batch,), (batch, *shape[1:2])]
        if shape not in accepted or 0 in shape:
            raise InputError(
                argument,
                f"scipy.stats {self._name} with parameters of shape {shape}",
                "() or (d,) for one law"
                if batch is None
                else f"(), ({batch},) or ({batch}, d) for {batch} laws",
                "Give other arrangements as a tuple of distributions, one for each coordinate.",
            )
        shared = batch is None or shape == ()
        dim = 1 if not shape or (not shared and len(shape) == 1) else shape[-1]
        vars(self).update(shape=shape, dim=dim, base_dim=dim, batch=None if shared else batch)

    def closed_form(self) -> Law:
        """Return the law as one of our own where there is one: it is faster and has embeddings."""
        dist = getattr(self.frozen, "dist", None)
        kind = type(dist).__name__ if type(dist).__module__.startswith("scipy.stats") else ""
        if kind not in ("norm_gen", "uniform_gen", "lognorm_gen"):
            return self
        order = ("s", "loc", "scale") if kind == "lognorm_gen" else ("loc", "scale")
        given = dict(zip(order, self.frozen.args, strict=False)) | self.frozen.kwds
        loc, scale = self._arrange(given.get("loc", 0.0)), self._arrange(given.get("scale", 1.0))
        if kind == "norm_gen":
            return Normal(loc, sd=scale)
        if kind == "uniform_gen":
            return Uniform(loc, loc + scale)
        return self if loc.any() else LogNormal(np.log(scale), self._arrange(given["s"]))

    def _arrange(self, value: Any) -> Array:
        """Bring one number for each parameter to (d,) or (T, d)."""
        full = np.broadcast_to(np.asarray(value, dtype=np.float64), self.shape)
        lead = () if self.batch is None else (self.batch,)
        return full.reshape(*lead, self.base_dim)

    def _from_uniform(self, u: Array) -> Array:
        if self.batch is None:
            return self._quantile(u)
        # The parameters stand last, so the points go first: (N, T, d) against (T, d).
        levels = np.moveaxis(u, -2, 0)
        if len(self.shape) == 1:
            return np.ascontiguousarray(self._quantile(levels[..., 0]).T)[..., None]
        return np.ascontiguousarray(np.moveaxis(self._quantile(levels), 0, -2))

    def _quantile(self, u: Array) -> Array:
        quantile: Callable[[Array], Any] = getattr(self.frozen, "ppf", None) or self.frozen.icdf
        with np.errstate(all="ignore"):
            x = np.asarray(quantile(u), dtype=np.float64)
        if not np.isfinite(x).all():
            given = f"scipy.stats {self._name}, whose quantiles (ppf) inside (0, 1) are nan or inf"
            advice = "Check the parameters: scipy returns nan where they are out of range."
            raise InputError("distribution", given, "finite quantiles", advice)
        return x

    def _to_uniform(self, x: Array) -> Array:
        if not callable(getattr(self.frozen, "cdf", None)):
            return super()._to_uniform(x)
        return np.asarray(self.frozen.cdf(x))

    @property
    def _name(self) -> str:
        dist = getattr(self.frozen, "dist", self.frozen)
        return str(getattr(dist, "name", None) or type(dist).__name__)

    def __repr__(self) -> str:
        batch = "" if self.batch is None else f", batch={self.batch}"
        return f"ScipyLaw({self._name}, dim={self.dim}{batch})"


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Independent(Law):
    """Independent laws whose coordinates stand side by side.

    Parameters
    ----------
    *laws
        Laws; batches have the same T, single laws and batches of one are shared
        by all T. An `Independent` among them is taken apart.

    Attributes
    ----------
    laws
        The parts, none of them an `Independent`.

    Notes
    -----
    `dim` and `base_dim` are sums over the parts, and the
    driving variables are dealt out in the order of the parts.

    Examples
    --------
    >>> from nestquad.distributions import Independent, Normal, Uniform
    >>> law = Independent(Uniform(0, 4), Normal([1.0, 2.0]))
    >>> law.from_uniform([[0.25, 0.5, 0.5]])
    array([[1., 1., 2.]])
    """

    laws: tuple[Law, ...]

    def __init__(self, *laws: Any) -> None:
        parts: list[Law] = []
        for i, given in enumerate(laws):
            law = given if isinstance(given, Law) else as_law(given, argument=f"laws[{i}]")
            parts.extend(law.laws if isinstance(law, Independent) else [law])
        if not parts:
            raise InputError("laws", "none", "at least one law")
        dims = [law.dim for law in parts]
        vars(self).update(
            laws=tuple(parts),
            dim=None if None in dims else sum(d for d in dims if d is not None),
            base_dim=sum(law.base_dim for law in parts),
            batch=common_batch("laws", [law.batch for law in parts]),
            base="normal" if all(law.base == "normal" for law in parts) else "uniform",
            has_transport=all(law.has_transport for law in parts),
        )

    def _for_batch(self, batch: int | None, argument: str) -> Law:
        super()._for_batch(batch, argument)
        bound = [law if law.batch else law._for_batch(batch, argument) for law in self.laws]
        return Independent(*bound)

    def _from_uniform(self, u: Array) -> Array:
        return self._split_and_join(u, lambda law, part: law._from_uniform(part))

    def _from_normal(self, z: Array) -> Array:
        return self._split_and_join(z, lambda law, part: law._from_normal(part))

    def _sample(self, n: int, rng: np.random.Generator) -> Array:
        parts = []
        for law in self.laws:
            if self.batch is None or law.batch == self.batch:
                parts.append(law._sample(n, rng))
            else:
                # The draws of a shared part differ from law to law of the batch.
                draws = law._sample(self.batch * n, rng)
                parts.append(draws.reshape(self.batch, n, draws.shape[-1]))
        return _side_by_side(parts)

    def _to_uniform(self, x: Array) -> Array:
        if self.dim is None:
            return super()._to_uniform(x)
        return self._split_and_join(x, lambda law, part: law._to_uniform(part), points=True)

    def _split_and_join(
        self, rows: Array, each: Callable[[Law, Array], Array], *, points: bool = False
    ) -> Array:
        """Apply `each` part to its columns of the driving variables, or of the points."""
        widths = [(law.dim if points else law.base_dim) or 0 for law in self.laws]
        columns = np.split(rows, np.cumsum(widths)[:-1], axis=-1)
        return _side_by_side([each(*pair) for pair in zip(self.laws, columns, strict=True)])

    def __repr__(self) -> str:
        return f"Independent({', '.join(map(repr, self.laws))})"


def _side_by_side(parts: list[Array]) -> Array:
    lead = np.broadcast_shapes(*(part.shape[:-1] for part in parts))
    return np.concatenate(
        [np.broadcast_to(part, (*lead, part.shape[-1])) for part in parts], axis=-1
    )


_ACCEPTED = (
    "a law of nestquad (Uniform, Normal, LogNormal, MultivariateT, Independent, Transport, "
    "Sampler, Empirical), a frozen scipy.stats distribution, or a tuple of those for independent "
    "coordinates"
)


def as_law(obj: Any, *, batch: int | None = None, argument: str = "inner") -> Law:
    """Convert the user's argument to a law.

    Parameters
    ----------
    obj
        A `Law`; a frozen univariate distribution of scipy.stats with scalar or
        array parameters; a frozen ``multivariate_normal`` or ``multivariate_t``; a
        tuple or list of these for independent coordinates.
    batch
        None where one law is needed: parameters of shape (d,) are d independent
        coordinates. T where `obj` was returned by a function of T values of
        theta: parameters of shape (T,) are T univariate laws, (T, d) are T laws
        of d coordinates, and a law without a batch is shared by all. A `Transport`
        or `Sampler` that did not say its batch is then taken to return T laws.
    argument
        The name that errors call it by.

    Returns
    -------
    law
        With ``law.batch`` None or `batch`.

    Notes
    -----
    scipy's norm, uniform and lognorm become `Normal`, `Uniform` and `LogNormal`,
    which have closed forms. scipy.stats itself is not imported.

    Examples
    --------
    >>> from scipy import stats
    >>> from nestquad.distributions import Uniform, as_law
    >>> as_law(stats.norm(1.0, 2.0))
    Normal(loc=[1.0], sd=[2.0])
    >>> as_law((stats.gamma(2.0), Uniform()))
    Independent(ScipyLaw(gamma, dim=1), Uniform(low=[0.0], high=[1.0]))
    """
    if isinstance(obj, Law):
        return obj._for_batch(batch, argument)
    if isinstance(obj, tuple | list) and obj:
        parts = [
            as_law(part, batch=batch, argument=f"{argument}[{i}]") for i, part in enumerate(obj)
        ]
        return parts[0] if len(parts) == 1 else Independent(*parts)
    if isinstance(obj, type):
        raise InputError(
            argument, f"the class {obj.__name__}", _ACCEPTED, "Make an instance of it."
        )
    from_scipy = type(obj).__module__.startswith("scipy.stats")
    free = getattr(obj, "numargs", None)  # only families that are not frozen have it
    if free == 0:
        obj = obj()
    elif free:
        raise InputError(
            argument,
            f"scipy.stats {obj.name} without its parameters",
            _ACCEPTED,
            f"Freeze it, as in stats.{obj.name}({obj.shapes}).",
        )
    if callable(getattr(obj, "ppf", None)) or callable(getattr(obj, "icdf", None)):
        return ScipyLaw(obj, batch, argument).closed_form()
    if from_scipy and type(obj).__name__ == "multivariate_normal_frozen":
        return Normal(obj.mean, cov=obj.cov)
    if from_scipy and type(obj).__name__ == "multivariate_t_frozen":
        return MultivariateT(obj.loc, obj.shape, obj.df)
    if from_scipy:
        raise InputError(
            argument,
            f"scipy.stats {type(obj).__name__}, which has no quantile function (ppf)",
            _ACCEPTED,
            "Wrap it: nestquad.Sampler(lambda n, rng: law.rvs(n, random_state=rng), dim) for "
            "samples only, or a nestquad.Transport that builds a draw from uniforms or normals.",
        )
    advice = "A function of theta has to be called before." if callable(obj) else ""
    raise InputError(argument, f"an object of type {type(obj).__name__}", _ACCEPTED, advice)
