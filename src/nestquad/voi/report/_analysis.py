"""Analysis of three tables: all results of a report."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

import nestquad.voi.table as tabular
from nestquad import clock
from nestquad._checks import instance, is_number, listed, shown
from nestquad._notebook import grid
from nestquad._progress import ProgressLike
from nestquad._typing import RNGLike
from nestquad.errors import InputError
from nestquad.pages import money, span
from nestquad.result import plain
from nestquad.voi.table import DISCOUNT, Design, Outputs, pandas

if TYPE_CHECKING:
    import pandas as pd

_CURVE, _FINE_CURVE = 13, 101
# Sets whose convergence is shown: curves that a figure tells apart.
_CONVERGENCE_SETS = 3
# Rows in a notebook; the tables have all of them.
_LEADING = 10


@dataclass(frozen=True)
class Audience:
    """Population of the decision: people a year, years of relevance, discount rate of a year.

    `prevalence` people face the decision already, and `uptake` is the share in whom it is
    implemented. People a year and uptake are numbers, or one for each year, as in `people`.
    """

    per_year: Any
    horizon: float
    discount: float = DISCOUNT
    prevalence: float = 0.0
    uptake: Any = 1.0

    def __post_init__(self) -> None:
        _ = self.size  # validates the fields

    @property
    def size(self) -> float:
        return tabular.people(**vars(self))

    def scaled(self, table: pd.DataFrame) -> pd.DataFrame:
        """A table with values for all of them."""
        scaled: pd.DataFrame = tabular.population(table, **vars(self))
        return scaled


@dataclass(frozen=True)
class Study:
    """A study to be valued: design, sizes (in each arm), costs, and years until its results.

    `duration` is a number of years, or a function of the size; `duration_each` years are added for
    every participant in an arm.
    """

    design: Design
    sizes: Sequence[int]
    fixed_cost: float = 0.0
    cost_per_participant: float = 0.0
    duration: float | Callable[[int], float] = 0.0
    duration_each: float = 0.0

    def __post_init__(self) -> None:
        vars(self).update(
            design=tabular.as_design(self.design), sizes=tabular.study_sizes(self.sizes)
        )
        for name in ("fixed_cost", "cost_per_participant", "duration_each"):
            tabular.amount(name, getattr(self, name))
        _ = [self.years(n) for n in self.sizes]

    def years(self, n: int) -> float:
        """Years until the results of a study of this size."""
        fixed = self.duration(n) if callable(self.duration) else self.duration
        return tabular.amount("duration", fixed) + self.duration_each * n

    def net_benefit(self, values: pd.DataFrame, audience: Audience) -> pd.DataFrame:
        """ENBS from EVSI."""
        return tabular.enbs(
            values,
            **vars(audience),
            fixed_cost=self.fixed_cost,
            cost_per_participant=self.cost_per_participant,
            duration=self.years,
        )


@dataclass(frozen=True)
class Analysis:
    """All tables of an analysis. Tables that end in _curve are over a range of wtp.

    Values for a population are there where an audience was given, ENBS and best sizes where a
    study was given as well.
    """

    outputs: Outputs
    n_parameters: int
    audience: Audience | None
    psa: pd.DataFrame
    incremental: pd.DataFrame
    icers: pd.DataFrame | None
    loss: pd.DataFrame
    evpi: pd.DataFrame
    singles: pd.DataFrame
    groups: pd.DataFrame
    evpi_curve: pd.DataFrame
    evppi_curve: pd.DataFrame
    convergence: pd.DataFrame
    evsi: pd.DataFrame | None = None
    evsi_curve: pd.DataFrame | None = None
    enbs: pd.DataFrame | None = None
    best_sizes: pd.DataFrame | None = None
    scenarios: pd.DataFrame | None = None
    subgroups: pd.DataFrame | None = None
    studies: tuple[Study, ...] = ()
    files: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    seed: RNGLike = 0
    seconds: float = 0.0

    @property
    def study_names(self) -> list[str]:
        """A different name for each study, as in the tables."""
        return tabular.design_names([study.design for study in self.studies])

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        """Every table by its name, as in the workbook."""
        names = "psa incremental icers loss evpi singles groups evsi enbs best_sizes convergence "
        names += "scenarios subgroups"
        curves = "evpi_curve evppi_curve evsi_curve"
        found = {name: getattr(self, name) for name in f"{names} {curves}".split()}
        return {name: table for name, table in found.items() if table is not None and len(table)}

    def _repr_html_(self) -> str:
        """EVPI, and EVPPI of the leading sets, in a notebook."""
        rows = [("everything (EVPI)", *_shown(row, row.evpi), "") for row in self.evpi.itertuples()]
        for table in (self.groups, self.singles):
            leading = table.groupby("wtp", dropna=False, sort=False).head(_LEADING)
            rows += [(r.pars, *_shown(r, r.evppi), r.flags) for r in leading.itertuples()]
        options = ", ".join(self.outputs.options)
        title = f"{self.outputs.n_rows:,} draws of {self.n_parameters} parameters; {options}"
        head = ("knowing", "wtp", "value per person", "95 % interval", "flags")
        return grid(title, head, rows)

    def to_dict(self) -> dict[str, Any]:
        """The tables at the willingness to pay that was asked for, as plain Python objects."""
        first = ("psa", "incremental", "icers", "loss", "evpi", "groups")
        scope = ("best_sizes", "convergence", "scenarios", "subgroups")
        tables = {name: getattr(self, name) for name in (*first, *scope)}
        tables["evppi"] = self.singles
        tables["evsi"] = self.evsi if self.enbs is None else self.enbs
        return {
            "n_rows": self.outputs.n_rows,
            "n_parameters": self.n_parameters,
            "people": None if self.audience is None else self.audience.size,
            "files": dict(self.files),
            "notes": list(self.notes),
            **{
                name: None if table is None else plain(table.to_dict("records"))
                for name, table in tables.items()
            },
        }


def analyze(
    outputs: Any,
    inputs: Any,
    groups: Mapping[str, Sequence[str]] | None = None,
    *,
    audience: Audience | None = None,
    study: Study | Sequence[Study] | None = None,
    scenarios: Mapping[str, tuple[float, Any]] | None = None,
    subgroups: Mapping[str, tuple[float, Any]] | None = None,
    rng: RNGLike = 0,
    progress: ProgressLike = False,
    files: Sequence[tuple[str, str]] = (),
    notes: Sequence[str] | None = None,
    curve: Sequence[float] | None = None,
    answers: MutableMapping[Any, Any] | None = None,
) -> Analysis:
    """EVPI, EVPPI of every parameter and of groups, and of studies, with curves over wtp.

    Parameters
    ----------
    outputs, inputs
        As in `evppi`.
    groups
        From labels to names of parameters.
    audience
        Whom the decision is for; without one, values are per person.
    study
        A study, or several.
    scenarios
        Other model structures: from names to a probability and outputs with the same options. The
        `outputs` are the “base case” and have the rest of the probability.
    subgroups
        Parts of the population: from names to a share and outputs from the same draws. The
        `outputs` are “all others” and have the rest. EVPPI is for groups and the leading
        parameters.
    rng, progress
        As in `evppi`.
    files, notes
        Names and checksums of input files and notes on their reading, as `preview` has them,
        for the report.
    curve
        Willingness to pay of curves; default: 13 values up to twice the largest asked for.
    answers
        Answers of earlier calls with the same tables, curve and seed, as in `evppi`.
    """
    started = clock.now()
    outputs = tabular.as_outputs(outputs)
    several = study if isinstance(study, list | tuple) else () if study is None else (study,)
    studies = tuple(instance("study", one, Study, "voi.Study(design, sizes, …)") for one in several)
    if audience is not None:
        instance("audience", audience, Audience, "voi.Audience(per_year, horizon)")
    asked = list(outputs.wtps)
    wide = fine = outputs
    if outputs.net_benefit is None:
        if curve is None or not set(asked) <= set(curve):
            grid = tabular.wtp_grid(outputs, _CURVE) if curve is None else curve
            curve = [*asked, *(k for k in grid if k not in asked)]
        wide = outputs.at(curve)
        # EVPI needs no regression: its range is finer.
        fine = outputs.at(np.union1d(wide.wtps, tabular.wtp_grid(outputs, _FINE_CURVE)))
    inputs = tabular.input_table(outputs, inputs)
    names, categories = list(map(str, inputs.columns)), inputs.attrs["categories"]
    sets = tabular.parameter_sets("all singles", names, categories)
    none = groups is None or (isinstance(groups, Mapping) and not groups)
    given = {} if none else tabular.parameter_sets(groups, names, categories)
    # A group of one parameter is a single already.
    given = {label: of for label, of in given.items() if sets.get(label) != of}
    check_groups(given, sets)
    how: dict[str, Any] = {"rng": rng, "answers": {} if answers is None else answers}
    titles = tabular.design_names([s.design for s in studies])
    parts = [
        tabular.evsi(
            wide, inputs, s.design, s.sizes, progress=_step(progress, f"EVSI of {title}, "), **how
        ).assign(design=title)
        for s, title in zip(studies, titles, strict=True)
    ]
    table = tabular.evppi(
        wide, inputs, {**sets, **given}, progress=_step(progress, "EVPPI of "), **how
    )
    single = table["pars"].isin(list(sets))

    def at(values: pd.DataFrame) -> pd.Series[bool]:
        return values["wtp"].isna() | values["wtp"].isin(asked)

    def scaled(values: pd.DataFrame) -> pd.DataFrame:
        return values if audience is None else audience.scaled(values)

    valued = costed = None
    if parts:
        valued = pandas().concat(parts, ignore_index=True)
        if audience is not None:
            pairs = zip(studies, parts, strict=True)
            costed = pandas().concat([s.net_benefit(part, audience) for s, part in pairs])
    leading = _leading(table[single], sets)
    strata = _completed("subgroups", subgroups, wide, "all others")
    structures = _completed("scenarios", scenarios, wide, "base case")
    told = (*outputs.notes, *(f"parameters: {note}" for note in inputs.attrs["notes"]))
    return Analysis(
        outputs=outputs,
        n_parameters=len(sets),
        audience=audience,
        psa=tabular.psa_summary(outputs),
        incremental=tabular.incremental(outputs),
        icers=tabular.icers(outputs) if outputs.net_benefit is None else None,
        loss=tabular.expected_loss(outputs),
        evpi=scaled(tabular.evpi(outputs)),
        singles=_sorted(scaled(table[at(table) & single])),
        groups=_sorted(scaled(table[at(table) & ~single])),
        evpi_curve=tabular.evpi(fine).sort_values("wtp"),
        evppi_curve=table.sort_values("wtp", kind="stable"),
        evsi=None if valued is None else valued[at(valued)].reset_index(drop=True),
        evsi_curve=None if valued is None else valued.sort_values("wtp", kind="stable"),
        enbs=None if costed is None else costed[at(costed)].reset_index(drop=True),
        best_sizes=None if costed is None else tabular.best_sizes(costed[at(costed)]),
        convergence=tabular.convergence(wide, inputs, leading or None, **how),
        scenarios=tabular.scenarios(*structures, rng=rng) if structures else None,
        subgroups=tabular.subgroups(*strata, inputs, {**leading, **given} or "all singles", **how)
        if strata
        else None,
        studies=studies,
        files=tuple(listed("files", files, "files with their checksums")),
        notes=told if notes is None else tuple(map(str, listed("notes", notes, "texts"))),
        seed=rng,
        seconds=clock.now() - started,
    )


def _completed(
    argument: str, parts: Mapping[str, tuple[float, Any]] | None, outputs: Outputs, rest: str
) -> tuple[dict[str, Outputs], dict[str, float]] | None:
    """Outputs and weights of all parts; the analyzed outputs have the rest of the weight."""
    if not parts:
        return None
    expected = "from names to a weight between 0 and 1 and outputs, the weights at most 1 in all"
    pairs = parts.values() if isinstance(parts, Mapping) else ()
    if not pairs or not all(
        isinstance(p, tuple) and len(p) == 2 and is_number(p[0]) for p in pairs
    ):
        raise InputError(argument, shown(parts), expected)
    weights = {name: float(weight) for name, (weight, _) in parts.items()}
    left = 1.0 - sum(weights.values())
    if min(weights.values()) < 0 or left < -1e-6 or rest in parts:
        raise InputError(argument, shown(weights), expected)
    tables = {name: tabular.as_outputs(given) for name, (_, given) in parts.items()}
    if outputs.net_benefit is None:
        tables = {name: table.at(outputs.wtps) for name, table in tables.items()}
    if left > 1e-6:
        tables, weights = {rest: outputs, **tables}, {rest: left, **weights}
    return tables, weights


def _step(progress: ProgressLike, words: str) -> ProgressLike:
    """Progress whose messages name the step."""
    if not callable(progress):
        return progress
    return lambda done, total, message: progress(
        done, total, f"{words}{message}" if message else ""
    )


def _leading(evppi: pd.DataFrame, sets: Mapping[str, tuple[str, ...]]) -> dict[str, list[str]]:
    """Sets whose convergence is shown: most valuable at any willingness to pay."""
    seen = evppi[~evppi["flags"].str.contains("not distinguishable")]
    peaks = seen.groupby("pars")["evppi"].max().nlargest(_CONVERGENCE_SETS)
    return {str(label): list(sets[str(label)]) for label in peaks.index}


def check_groups(labels: Iterable[str], parameters: Collection[str]) -> None:
    """Refuse groups that have the name of a parameter: a table could not tell them apart."""
    for label in labels:
        if label in parameters:
            given, advice = f"a group {label!r}, which is the name of a parameter", f"group {label}"
            raise InputError("groups", given, "another name", f"For instance {advice!r}.")


def _shown(row: Any, value: float) -> tuple[str, str, str]:
    return money(row.wtp), money(value, "", (row.upper - row.lower) / 2), span(row.lower, row.upper)


def _sorted(table: pd.DataFrame) -> pd.DataFrame:
    """The most valuable first, within each wtp in the order asked."""
    order = {k: i for i, k in enumerate(dict.fromkeys(table["wtp"].fillna(-1.0)))}
    rank = table["wtp"].fillna(-1.0).map(order)
    keys = np.lexsort((-table["evppi"].to_numpy(), rank.to_numpy()))
    return table.iloc[keys].reset_index(drop=True)
