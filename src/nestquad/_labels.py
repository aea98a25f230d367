"""Estimates as labeled arrays of xarray, and their posterior draws as InferenceData of ArviZ.

Estimates are read through their attributes, so that `result` may import this module.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nestquad.errors import UnsupportedError, optional_module

__all__ = ["inference_data", "labeled_estimate", "posterior_tree"]


def labeled_estimate(estimate: Any) -> Any:
    """``xarray.Dataset`` of an estimate; needs the extra ``labels``."""
    xarray = optional_module("xarray", "Estimate.to_xarray", "labels")
    own = ("answer",) if np.ndim(estimate.value) else ()
    low, high = estimate.interval()
    variables: dict[str, Any] = {
        "value": (own, np.asarray(estimate.value)),
        "std_error": (own, np.asarray(estimate.std_error)),
        "interval95": (("bound", *own), np.stack([low, high])),
    }
    coordinates: dict[str, Any] = {"bound": ["low", "high"]}
    if own:
        coordinates["answer"] = np.arange(np.size(estimate.value))
    if estimate.exact is not None:
        variables["exact"] = (own, np.broadcast_to(estimate.exact, np.shape(estimate.value)))
    if estimate.covariance is not None:
        variables["covariance"] = (("answer", "other_answer"), estimate.covariance)
        coordinates["other_answer"] = coordinates["answer"]
    if estimate.draws is not None:
        variables["draws"] = (("draw", *own), _draws(estimate))
        coordinates["draw"] = np.arange(len(estimate.draws))
    if estimate.sample is not None:
        sample = estimate.sample
        j = sample.j.reshape(len(sample.theta), -1)
        variables["theta"] = (("point", "coordinate"), sample.theta)
        variables["j"] = (("point", "output"), j)
        variables["f"] = (("point", "expectation"), sample.f)
    return xarray.Dataset(variables, coordinates, _attributes(estimate))


def inference_data(estimate: Any) -> Any:
    """InferenceData (a DataTree from ArviZ 1.0 on) of the draws; needs the extra ``labels``."""
    if estimate.draws is None:
        raise UnsupportedError(
            f"An estimate by {estimate.method!r} has no posterior draws: its error bar is a "
            "standard error. Methods that learn J have draws; to_xarray() labels the others."
        )
    several = {"answer": np.arange(np.size(estimate.value))} if np.ndim(estimate.value) else {}
    return posterior_tree("value", _draws(estimate), several, _attributes(estimate))


def posterior_tree(
    name: str,
    draws: Any,
    coordinates: dict[str, Any],
    attributes: dict[str, Any],
    further: dict[str, Any] | None = None,
) -> Any:
    """InferenceData of independent draws (K, …), with a coordinate for each axis that follows.

    `further` are coordinates along an axis: by name its axis and values.
    """
    arviz = optional_module("arviz", "to_inference_data", "labels")
    posterior = {name: np.asarray(draws)[None]}  # one chain: draws are independent
    how = {"dims": {name: list(coordinates)}, "coords": coordinates}
    if hasattr(arviz, "InferenceData"):  # before ArviZ 1.0
        tree = arviz.from_dict(posterior=posterior, **how)
    else:
        tree = arviz.from_dict({"posterior": posterior}, **how)
    tree["posterior"].attrs.update(attributes)
    tree["posterior"].coords.update(further or {})
    return tree


def _draws(estimate: Any) -> Any:
    """Draws (K,) of one answer or (K, q) of several."""
    draws = np.asarray(estimate.draws, dtype=float)
    return draws.reshape(len(draws), *np.shape(estimate.value))


def _attributes(estimate: Any) -> dict[str, Any]:
    """Facts of an estimate that netCDF can store."""
    return {
        "problem": estimate.problem,
        "method": estimate.method,
        "status": estimate.status,
        "n_evaluations": estimate.n_evaluations,
        "n_outer": estimate.n_outer,
        "n_inner": estimate.n_inner,
        "seconds": estimate.seconds,
        "created_by": "nestquad",
    }
