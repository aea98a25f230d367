"""Experiments from Pyro models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import special

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
    chosen = [targets] if isinstance(targets, str) else targets
    adapter = _probed(model, named) if design is None else _Adapter(model, design, named)
    for argument, names, known in (
        ("observations", named, adapter.names),
        ("targets", chosen or [], adapter.latents),
    ):
        for name in names:
            if name not in known:
                raise unknown_name(argument, name, known)
    starts = np.cumsum([0, *(adapter.sizes[name] for name in adapter.latents)])
    indices = None
    if chosen is not None:
        places = zip(adapter.latents, starts, strict=False)
        indices = [
            int(start) + i
            for name, start in places
            if name in chosen
            for i in range(adapter.sizes[name])
        ]
    n_y = sum(adapter.sizes[name] for name in adapter.observed)
    return Experiment(
        prior=Transport(adapter.theta, dim=int(starts[-1]), out_dim=int(starts[-1])),
        log_prob=adapter.log_prob,
        simulate=adapter.simulate,
        noise=Uniform(np.zeros(n_y), 1.0),
        target=indices,
        name=getattr(model, "__name__", None),
    )


def _probed(model: Any, observations: Sequence[str]) -> _Adapter:
    """The adapter with the shortest vector of zeros that the model takes as a design."""
    for size in range(1, 9):
        try:
            return _Adapter(model, np.zeros(size), observations)
        except (RuntimeError, ValueError, IndexError, TypeError) as error:
            reason = error
    raise InputError(
        "design",
        "None, and the model took no vector of up to eight zeros",
        "a design that the model takes",
        f"The last attempt ended with: {reason}",
    )


class _Adapter:
    """A model's sites driven by uniforms, or conditioned on values."""

    def __init__(self, model: Any, design: Any, observations: Sequence[str]) -> None:
        import torch

        self.model, self.example, self.torch = model, np.asarray(design, dtype=float), torch
        self.sizes: dict[str, int] = {}
        trace = self._trace(2, self.example, {}, None)
        for name, site in trace.nodes.items():
            if site["type"] == "sample" and type(site["fn"]).__name__ != "_Subsample":
                shape = tuple(site["value"].shape)
                if not shape or shape[0] != 2:
                    raise InputError(
                        "model",
                        f"the site {name!r} of shape {shape} for two designs",
                        "a leading axis of size 2",
                        "Put sites in pyro.plate_stack('plate', design.shape[:-1]).",
                    )
                self.sizes[name] = int(np.prod(shape[1:], dtype=int))
        self.names = list(self.sizes)
        self.observed = [name for name in self.names if name in observations]
        self.latents = [name for name in self.names if name not in observations]

    def theta(self, u: Array) -> Array:
        flat = u.reshape(-1, u.shape[-1])
        trace = self._trace(len(flat), self.example, self._split(flat, self.latents), {})
        return self._joined(trace, self.latents).reshape(u.shape)

    def simulate(self, theta: Array, e: Array, d: Any) -> Array:
        values = self._split(theta, self.latents)
        return self._joined(
            self._trace(len(theta), d, self._split(e, self.observed), values), self.observed
        )

    def log_prob(self, y: Array, theta: Array, d: Any) -> Array:
        shape = np.broadcast_shapes(y.shape[:-1], theta.shape[:-1])
        rows = [
            np.broadcast_to(a, (*shape, a.shape[-1])).reshape(-1, a.shape[-1]) for a in (y, theta)
        ]
        values = {**self._split(rows[0], self.observed), **self._split(rows[1], self.latents)}
        trace = self._trace(len(rows[0]), d, {}, values)
        total = np.zeros(len(rows[0]))
        for name in self.observed:
            site = trace.nodes[name]
            log = site["fn"].log_prob(site["value"])
            total += log.reshape(len(total), -1).sum(-1).detach().numpy()
        return total.reshape(shape)

    def _split(self, rows: Array, names: Sequence[str]) -> dict[str, Array]:
        ends = np.cumsum([self.sizes[name] for name in names])[:-1]
        return dict(zip(names, np.split(rows, ends, axis=-1), strict=True))

    def _joined(self, trace: Any, names: Sequence[str]) -> Array:
        parts = [trace.nodes[n]["value"].detach().double().numpy() for n in names]
        return np.concatenate([part.reshape(len(part), -1) for part in parts], axis=1)

    def _trace(
        self, n: int, design: Any, uniforms: dict[str, Array], values: dict[str, Array] | None
    ) -> Any:
        """Run the model for n rows; sites take values, quantiles of uniforms, or draws."""
        import pyro

        torch = self.torch

        class Driven(pyro.poutine.messenger.Messenger):  # type: ignore[misc, unused-ignore]
            def _pyro_sample(self, msg: Any) -> None:
                name, law = msg["name"], msg["fn"]
                if values is not None and name in values:
                    value = torch.as_tensor(np.array(values[name]))
                elif name in uniforms:
                    u = uniforms[name].reshape(tuple(law.shape()))
                    value = torch.as_tensor(_quantile(law, u, torch))
                else:
                    return
                msg["value"] = value.reshape(tuple(law.shape())).double()
                msg["done"] = True

        one = torch.as_tensor(np.asarray(design, dtype=float))
        # Validation is of the user's model, once; here values are conditioned in all shapes.
        quiet = pyro.validation_enabled(False)
        with torch.no_grad(), quiet, pyro.poutine.trace() as tracer, Driven():
            self.model(one.expand(n, *one.shape))
        return tracer.trace


def _quantile(law: Any, u: Array, torch: Any) -> Any:
    """Quantiles of a Pyro distribution at uniforms of the shape of its draws."""
    while type(law).__name__ in ("Independent", "ExpandedDistribution", "MaskedDistribution"):
        law = law.base_dist
    kind = type(law).__name__

    def of(name: str) -> Array:
        return np.asarray(getattr(law, name).detach().double().numpy())

    if kind == "Bernoulli":
        return (u < of("probs")).astype(float)
    if kind in ("Binomial", "Poisson"):
        from scipy.stats import binom, poisson

        if kind == "Poisson":
            return poisson.ppf(u, of("rate"))
        return binom.ppf(u, of("total_count"), of("probs"))
    if kind == "Gamma":
        return special.gammaincinv(of("concentration"), u) / of("rate")
    if kind == "Beta":
        return special.betaincinv(of("concentration1"), of("concentration0"), u)
    if kind == "MultivariateNormal":
        z = special.ndtri(u)
        return of("loc") + np.einsum("...ij,...j->...i", of("scale_tril"), z)
    try:
        return law.icdf(torch.as_tensor(np.array(u)))
    except (NotImplementedError, AttributeError) as error:
        raise UnsupportedError(
            f"Quantiles of {kind} are not known. Write the experiment with design.Experiment."
        ) from error
