"""Experiments whose prior are the draws of an earlier analysis, from ArviZ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nestquad.design._experiment import Experiment
from nestquad.errors import InputError, unknown_name


def from_inference_data(
    idata: Any,
    *,
    var_names: Sequence[str] | str | None = None,
    group: str = "posterior",
    draws: int | None = 4096,
    targets: Sequence[str] | str | None = None,
    **fields: Any,
) -> Experiment:
    """Experiment whose prior are draws of ArviZ's ``InferenceData`` or xarray's ``DataTree``.

    Parameters
    ----------
    idata
        Draws with dimensions chain and draw, as PyMC, NumPyro and Stan's interfaces make them.
    var_names
        Variables in the order in which θ holds them; None: all of the group.
    group
        ``"posterior"``, or ``"prior"``.
    draws
        Number of draws kept, evenly spaced; None: all.
    targets
        Names of variables or labels of interest.
    fields
        Other fields of `Experiment`: `log_prob`, `simulate`, `noise`, …

    Returns
    -------
    Experiment
        Its `parameters` are labels with coordinates, such as ``"beta[dose=high]"``.

    Examples
    --------
    >>> import arviz, numpy as np
    >>> import nestquad as nq
    >>> from nestquad import design
    >>> rng = np.random.default_rng(0)
    >>> idata = arviz.from_dict({"a": rng.normal(size=(2, 500)), "b": rng.normal(size=(2, 500, 2))})
    >>> experiment = design.from_inference_data(
    ...     idata, simulate=lambda theta, e, d: theta[..., :1] + e, noise=nq.Normal()
    ... )
    >>> experiment.parameters
    ('a', 'b[b_dim_0=0]', 'b[b_dim_0=1]')
    """
    try:
        node = idata[group]
    except (KeyError, TypeError, AttributeError):
        raise InputError("group", repr(group), "a group of the inference data") from None
    data = node.to_dataset() if hasattr(node, "to_dataset") else node
    names = [str(name) for name in data.data_vars]
    chosen = names if var_names is None else np.atleast_1d(np.asarray(var_names)).tolist()
    labels, columns, owners = [], [], []
    for name in chosen:
        if name not in names:
            raise unknown_name("var_names", name, names)
        array = data[name]
        other = [dim for dim in array.dims if dim not in ("chain", "draw")]
        rows = array.transpose("chain", "draw", *other)
        flat = np.asarray(rows.values, dtype=float).reshape(rows.shape[0] * rows.shape[1], -1)
        for column, index in zip(flat.T, np.ndindex(*rows.shape[2:]), strict=True):
            at = [
                f"{dim}={rows[dim].values[i] if dim in rows.coords else i}"
                for dim, i in zip(other, index, strict=True)
            ]
            labels.append(f"{name}[{', '.join(at)}]" if at else name)
            owners.append(name)
            columns.append(column)
    samples = np.stack(columns, axis=1)
    if draws is not None and len(samples) > draws:
        samples = samples[np.linspace(0, len(samples) - 1, draws).round().astype(int)]
    wanted = [] if targets is None else np.atleast_1d(np.asarray(targets)).tolist()
    for name in wanted:
        if name not in labels and name not in owners:
            raise unknown_name("targets", name, labels)
    pairs = enumerate(zip(labels, owners, strict=True))
    target = [i for i, (label, owner) in pairs if label in wanted or owner in wanted] or None
    return Experiment(prior=samples, target=target, parameters=tuple(labels), **fields)
