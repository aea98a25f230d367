"""Conversion of scipy distributions and tuples to laws."""

from __future__ import annotations

from typing import Any

from nestquad.distributions._independent import Independent
from nestquad.distributions._law import Law
from nestquad.distributions._normal import Normal
from nestquad.distributions._scipy import ScipyLaw
from nestquad.distributions._student import MultivariateT
from nestquad.errors import InputError

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
        tuple or list of those for independent coordinates.
    batch
        None where one law is needed: parameters of shape (d,) are d independent
        coordinates. T where `obj` is what a function of T values of theta
        returned: parameters of shape (T,) are T univariate laws, (T, d) are T laws
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
