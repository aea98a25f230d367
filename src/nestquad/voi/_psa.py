"""What a probabilistic analysis says before any value of information: means, and who is best."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nestquad._typing import Array
from nestquad.errors import InputError
from nestquad.voi._frames import pandas
from nestquad.voi._outputs import Outputs, as_outputs

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["ceac", "psa_summary", "wtp_grid"]


def psa_summary(outputs: Any) -> pd.DataFrame:
    """Means of each option with standard errors, and how likely it is the best.

    Parameters
    ----------
    outputs
        As in `evpi`.

    Returns
    -------
    DataFrame
        A row for each willingness to pay and option: wtp, option, cost, effect (where given),
        net_benefit, se, and probability of being the best.

    Examples
    --------
    >>> import numpy as np
    >>> gain = np.random.default_rng(0).normal(1.0, 1.0, size=1000)
    >>> table = psa_summary(np.column_stack((0 * gain, gain)))
    >>> bool(0.8 < table.probability[1] < 0.9)
    True
    """
    known = as_outputs(outputs)
    rows = []
    for k, benefits in zip(known.wtps, known.net_benefits(), strict=True):
        shares = _shares(benefits)
        for d, option in enumerate(known.options):
            row: dict[str, Any] = {"wtp": k, "option": option}
            if known.net_benefit is None:
                row |= {"cost": known.costs[:, d].mean(), "effect": known.effects[:, d].mean()}
            row |= {
                "net_benefit": benefits[:, d].mean(),
                "se": benefits[:, d].std(ddof=1) / np.sqrt(known.n_rows),
                "probability": shares[d],
            }
            rows.append(row)
    return pandas().DataFrame(rows)


def ceac(outputs: Any, wtp: Any = None) -> pd.DataFrame:
    """Cost-effectiveness acceptability curves, and the frontier.

    Parameters
    ----------
    outputs
        Costs and effects, as in `evpi`.
    wtp
        Values of willingness to pay; default: from 0 to twice the largest of the outputs.

    Returns
    -------
    DataFrame
        A row for each willingness to pay and option: wtp, option, probability of being the best,
        and frontier, true for the option with the largest mean net benefit.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> table = ceac((rng.normal(size=(50, 2)), rng.normal(size=(50, 2)), 1.0), wtp=[0.0, 1.0])
    >>> table.groupby("wtp").probability.sum().tolist()
    [1.0, 1.0]
    """
    known = as_outputs(outputs)
    if known.net_benefit is not None:
        raise InputError(
            "outputs", "net benefits", "costs and effects", "A curve needs a willingness to pay."
        )
    swept = known.at(wtp_grid(known, 101) if wtp is None else wtp)
    rows = []
    for k, benefits in zip(swept.wtps, swept.net_benefits(), strict=True):
        shares, best = _shares(benefits), int(benefits.mean(axis=0).argmax())
        for d, option in enumerate(swept.options):
            rows.append(
                {"wtp": k, "option": option, "probability": shares[d], "frontier": d == best}
            )
    return pandas().DataFrame(rows)


def wtp_grid(outputs: Outputs, count: int) -> Array:
    """Values from 0 to twice the largest willingness to pay."""
    top = 2.0 * max(outputs.wtps)
    return np.linspace(0.0, top if top > 0 else 50_000.0, count)


def _shares(benefits: Array) -> Array:
    """How often each option is the best, ties shared."""
    best = benefits == benefits.max(axis=1, keepdims=True)
    shares: Array = (best / best.sum(axis=1, keepdims=True)).mean(axis=0)
    return shares
