"""Analysis of three tables: all results of a report."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from nestquad._progress import ProgressLike
from nestquad._typing import RNGLike
from nestquad.result import plain
from nestquad.voi.table import (
    DISCOUNT,
    Design,
    Outputs,
    enbs,
    evpi,
    evppi,
    evsi,
    parameter_sets,
    people,
    population,
    psa_summary,
    wtp_grid,
)

if TYPE_CHECKING:
    import pandas as pd

_CURVE = 13


@dataclass(frozen=True)
class Audience:
    """Whom the decision is for."""

    per_year: float = 1000.0
    horizon: float = 10.0
    discount: float = DISCOUNT

    @property
    def size(self) -> float:
        return people(**vars(self))

    def scaled(self, table: pd.DataFrame) -> pd.DataFrame:
        """A table with values for all of them."""
        scaled: pd.DataFrame = population(table, **vars(self))
        return scaled


@dataclass(frozen=True)
class Study:
    """A study to be valued: design, sizes and costs."""

    design: Design
    sizes: Sequence[int]
    fixed_cost: float = 0.0
    cost_per_participant: float = 0.0


@dataclass(frozen=True)
class Analysis:
    """All tables of an analysis. Those that end in _curve are over a range of wtp."""

    outputs: Outputs
    n_parameters: int
    audience: Audience
    psa: pd.DataFrame
    evpi: pd.DataFrame
    singles: pd.DataFrame
    groups: pd.DataFrame
    evpi_curve: pd.DataFrame
    evppi_curve: pd.DataFrame
    evsi: pd.DataFrame | None = None
    enbs: pd.DataFrame | None = None
    evsi_curve: pd.DataFrame | None = None

    def to_dict(self) -> dict[str, Any]:
        """The tables at the willingness to pay that was asked for, as plain Python objects."""
        tables = {
            "psa": self.psa,
            "evpi": self.evpi,
            "evppi": self.singles,
            "groups": self.groups,
            "evsi": self.evsi if self.enbs is None else self.enbs,
        }
        return {
            "n_rows": self.outputs.n_rows,
            "n_parameters": self.n_parameters,
            "people": self.audience.size,
            **{
                name: None if table is None else plain(table.to_dict("records"))
                for name, table in tables.items()
            },
        }


def analyze(
    outputs: Outputs,
    inputs: pd.DataFrame,
    groups: Mapping[str, Sequence[str]] | None = None,
    *,
    audience: Audience | None = None,
    study: Study | None = None,
    rng: RNGLike = 0,
    progress: ProgressLike = False,
    curve: Sequence[float] | None = None,
    answers: MutableMapping[Any, Any] | None = None,
) -> Analysis:
    """EVPI, EVPPI of every parameter and of groups, and of a study, with curves over wtp.

    `curve` has the willingness to pay of curves (default: 13 values up to twice the largest);
    `answers` are those of earlier calls with the same tables, curve and seed, as in `evppi`.
    """
    audience = Audience() if audience is None else audience
    _ = audience.size  # refused now rather than after the regressions
    asked = list(outputs.wtps)
    wide = outputs
    if outputs.net_benefit is None:
        if curve is None or not set(asked) <= set(curve):
            grid = wtp_grid(outputs, _CURVE) if curve is None else curve
            curve = [*asked, *(k for k in grid if k not in asked)]
        wide = outputs.at(curve)
    names = list(map(str, inputs.columns))
    sets = parameter_sets("all singles", names)
    given = parameter_sets(groups, names) if groups else {}
    # A group of one parameter is a single already.
    given = {label: members for label, members in given.items() if label not in sets}
    found = costed = swept = None
    if study is not None:
        swept = evsi(
            wide, inputs, study.design, study.sizes, rng=rng, progress=progress, answers=answers
        )
        found = swept[swept["wtp"].isna() | swept["wtp"].isin(asked)].reset_index(drop=True)
        costed = enbs(
            found,
            **vars(audience),
            fixed_cost=study.fixed_cost,
            cost_per_participant=study.cost_per_participant,
        )
    table = evppi(
        wide, inputs, {**sets, **given}, rng=rng, progress=progress, answers=answers
    )
    at = table["wtp"].isna() | table["wtp"].isin(asked)
    single = table["pars"].isin(list(sets))
    return Analysis(
        outputs=outputs,
        n_parameters=len(names),
        audience=audience,
        psa=psa_summary(outputs),
        evpi=audience.scaled(evpi(outputs)),
        singles=_sorted(audience.scaled(table[at & single])),
        groups=_sorted(audience.scaled(table[at & ~single])),
        evpi_curve=evpi(wide).sort_values("wtp"),
        evppi_curve=table.sort_values("wtp", kind="stable"),
        evsi=found,
        enbs=costed,
        evsi_curve=swept,
    )


def _sorted(table: pd.DataFrame) -> pd.DataFrame:
    """The most valuable first, within each wtp in the order asked."""
    order = {k: i for i, k in enumerate(dict.fromkeys(table["wtp"].fillna(-1.0)))}
    rank = table["wtp"].fillna(-1.0).map(order)
    keys = np.lexsort((-table["evppi"].to_numpy(), rank.to_numpy()))
    return table.iloc[keys].reset_index(drop=True)
