"""Experiments from Pyro models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy import stats
from scipy.special import ndtri

from nestquad._typing import Array
from nestquad.design._experiment import Experiment
from nestquad.distributions import Transport, Uniform
from nestquad.errors import InputError, UnsupportedError, optional_module, unknown_name


def from_pyro(
    model: Any,
    observations: Sequence[str] | str,
    targets: Sequence[str] | str | None = None,
    *,
    design: Any = None,
) -> Experiment:
    """An experiment from a Pyro model; needs the extra ``pyro``.

    Parameters
    ----------
    model
        ``model(design)``, vectorized over leading axes of the design as for
        ``pyro.contrib.oed``: sites stand in plates of the shape ``design.shape[:-1]``.
    observations
        Names of the observed sites.
    targets
        Names of the latent sites of interest; the others are nuisance. None: all.
    design
        Any one design, to find the sites and their shapes; None tries vectors of zeros.

    Returns
    -------
    Experiment
        Designs are arrays of the shape that the model takes, without leading axes. Parameters and
        data are the sites in the order of the model, flattened.
    """
    optional_module("pyro", "from_pyro", "pyro")
    named = [observations] if isinstance(observations, str) else list(observations)
    chosen = [targets] if isinstance(targets, str) else list(targets or ())
    example, sizes = _sizes(model, design)
    observed = [name for name in sizes if name in named]
    latent = [name for name in sizes if name not in named]
    for argument, names, known in (
        ("observations", named, list(sizes)),
        ("targets", chosen, latent),
    ):
        for name in names:
            if name not in known:
                raise unknown_name(argument, name, known)

    def split(rows: Array, names: Sequence[str]) -> dict[str, Array]:
        ends = np.cumsum([sizes[name] for name in names])[:-1]
        return dict(zip(names, np.split(rows, ends, axis=-1), strict=True))

    def joined(trace: Any, names: Sequence[str]) -> Array:
        parts = [trace.nodes[name]["value"].detach().double().numpy() for name in names]
        return np.concatenate([part.reshape(len(part), -1) for part in parts], axis=1)

    def theta(u: Array) -> Array:
        flat = u.reshape(-1, u.shape[-1])
        trace = _trace(model, len(flat), example, split(flat, latent), {})
        return joined(trace, latent).reshape(u.shape)

    def simulate(theta: Array, e: Array, d: Any) -> Array:
        values = split(theta, latent)
        return joined(_trace(model, len(theta), d, split(e, observed), values), observed)

    def log_prob(y: Array, theta: Array, d: Any) -> Array:
        shape = np.broadcast_shapes(y.shape[:-1], theta.shape[:-1])
        data, parameters = (
            np.broadcast_to(a, (*shape, a.shape[-1])).reshape(-1, a.shape[-1]) for a in (y, theta)
        )
        values = {**split(data, observed), **split(parameters, latent)}
        trace = _trace(model, len(data), d, {}, values)
        total = np.zeros(len(data))
        for site in map(trace.nodes.get, observed):
            log = site["fn"].log_prob(site["value"])
            total += log.reshape(len(total), -1).sum(-1).detach().numpy()
        return total.reshape(shape)

    owner = [name for name in latent for _ in range(sizes[name])]
    return Experiment(
        prior=Transport(theta, dim=len(owner), out_dim=len(owner)),
        log_prob=log_prob,
        simulate=simulate,
        noise=Uniform(np.zeros(sum(sizes[name] for name in observed)), 1.0),
        target=[i for i, name in enumerate(owner) if name in chosen] if chosen else None,
        name=getattr(model, "__name__", None),
    )


def _sizes(model: Any, design: Any) -> tuple[Array, dict[str, int]]:
    """A design that the model takes, and the sizes of its sites in order."""
    reason: Exception | None = None
    for one in (
        [np.zeros(n) for n in range(1, 9)] if design is None else [np.asarray(design, float)]
    ):
        try:
            trace = _trace(model, 2, one, {}, {})
        except (RuntimeError, ValueError, IndexError, TypeError) as error:
            reason = error
            continue
        sites = {
            name: tuple(site["value"].shape)
            for name, site in trace.nodes.items()
            if site["type"] == "sample" and type(site["fn"]).__name__ != "_Subsample"
        }
        for name, shape in sites.items():
            if shape[:1] != (2,):
                raise InputError(
                    "model",
                    f"the site {name!r} of shape {shape} for two designs",
                    "a leading axis of size 2",
                    "Put sites in pyro.plate_stack('plate', design.shape[:-1]).",
                )
        return one, {name: int(np.prod(shape[1:], dtype=int)) for name, shape in sites.items()}
    given = "None, and the model took no vector of up to eight zeros" if design is None else design
    raise InputError("design", str(given), "a design that the model takes", f"It said: {reason}")


def _trace(
    model: Any, n: int, design: Any, uniforms: Mapping[str, Array], values: Mapping[str, Array]
) -> Any:
    """Run the model for n rows; sites take values, quantiles of uniforms, or draws."""
    import pyro
    import torch

    class Driven(pyro.poutine.messenger.Messenger):  # type: ignore[misc, unused-ignore]
        def _pyro_sample(self, msg: Any) -> None:
            name, law = msg["name"], msg["fn"]
            if name not in values and name not in uniforms:
                return
            shape = tuple(law.shape())
            value = (
                values[name] if name in values else _quantile(law, uniforms[name].reshape(shape))
            )
            msg["value"] = torch.as_tensor(np.array(value)).reshape(shape).double()
            msg["done"] = True

    one = torch.as_tensor(np.asarray(design, dtype=float))
    # Validation is of the user's model, once; here values are conditioned in all shapes.
    quiet = pyro.validation_enabled(False)
    with torch.no_grad(), quiet, pyro.poutine.trace() as tracer, Driven():
        model(one.expand(n, *one.shape))
    return tracer.trace


def _quantile(law: Any, u: Array) -> Any:
    """Quantiles of a Pyro distribution at uniforms of the shape of its draws."""
    import torch

    while type(law).__name__ in ("Independent", "ExpandedDistribution", "MaskedDistribution"):
        law = law.base_dist
    kind = type(law).__name__

    def of(name: str) -> Array:
        return np.asarray(getattr(law, name).detach().double().numpy())

    match kind:
        case "Bernoulli":
            return stats.bernoulli.ppf(u, of("probs"))
        case "Binomial":
            return stats.binom.ppf(u, of("total_count"), of("probs"))
        case "Poisson":
            return stats.poisson.ppf(u, of("rate"))
        case "Gamma":
            return stats.gamma.ppf(u, of("concentration"), scale=1.0 / of("rate"))
        case "Beta":
            return stats.beta.ppf(u, of("concentration1"), of("concentration0"))
        case "MultivariateNormal":
            return of("loc") + np.einsum("...ij,...j->...i", of("scale_tril"), ndtri(u))
    try:
        return law.icdf(torch.as_tensor(np.array(u))).detach().numpy()
    except (NotImplementedError, AttributeError) as error:
        raise UnsupportedError(
            f"Quantiles of {kind} are not known. Write the experiment with design.Experiment."
        ) from error
