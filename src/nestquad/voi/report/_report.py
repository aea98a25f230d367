"""A report as HTML page, Word document, Excel workbook and figures: its content, and its files."""

from __future__ import annotations

import base64
import tomllib
from collections.abc import Iterator, Sequence
from functools import cache, partial
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import nestquad.voi.report._figures as figures
from nestquad._checks import instance
from nestquad._files import new_file
from nestquad.errors import MissingExtraError
from nestquad.pages import (
    Block,
    Bullets,
    Drawing,
    Heading,
    Headline,
    PageEnd,
    Table,
    Text,
    document,
    footer,
    html,
    money,
    paragraphs,
    percent,
    span,
    versions,
    workbook,
    write_page,
)
from nestquad.result import NORMAL_95
from nestquad.voi.report._analysis import Analysis
from nestquad.voi.table import ENOUGH, has_trees, incremental, pandas

if TYPE_CHECKING:
    import pandas as pd


TITLE = "Value of information"


class Content:
    """Blocks of a report: one page of summary, then details."""

    def __init__(
        self, analysis: Analysis, currency: str = "£", effect: str = "QALYs", title: str = TITLE
    ) -> None:
        instance("analysis", analysis, Analysis, "what voi.analyze returned")
        self.data, self.currency, self.effect, self.title = analysis, currency, effect, title
        self.wtp = analysis.outputs.wtps[0]
        self.has_effects = analysis.outputs.net_benefit is None
        self.at = f" at a willingness to pay of {self.money(self.wtp)}" if self.has_effects else ""
        self.whom = self.discount = ""
        if (audience := analysis.audience) is not None:
            self.whom = f"{_listed(audience.per_year, ',.0f')} people a year over "
            self.whom += f"{audience.horizon:g} years"
            if audience.prevalence:
                self.whom += f" and {audience.prevalence:,.0f} now"
            if np.any(np.asarray(audience.uptake) != 1):
                self.whom += f" with an uptake of {_listed(audience.uptake, 'g')}"
            self.discount = f"discounted at {100 * audience.discount:g} % a year"

    @property
    def first_line(self) -> str:
        """The willingness to pay of all values, for the first line of every file."""
        if not self.has_effects:
            return "Net benefits as given, at one willingness to pay"
        unit = self.effect.removesuffix("s")
        return f"Values at a willingness to pay of {self.money(self.wtp)} per {unit}"

    def blocks(self) -> Iterator[Block]:
        yield Text(f"{self.first_line}.")
        yield from self.summary()
        yield PageEnd()
        yield from self.decision()
        yield from self.perfect()
        yield from self.partial()
        if self.data.evsi is not None:
            yield from self.studies(self.data.evsi)
        yield from self.scope()
        yield from self.convergence()
        yield from self.submission()
        yield from self.methods()
        yield from self.checklist()
        yield from self.provenance()

    def money(self, value: float, half: float = 0.0) -> str:
        return money(value, self.currency, half)

    def value(self, row: Any, name: str, low: str = "lower", high: str = "upper") -> str:
        """A value of a row, with the digits that its interval supports."""
        return self.money(row[name], (row[high] - row[low]) / 2)

    def interval(self, row: Any, low: str = "lower", high: str = "upper") -> str:
        return span(row[low], row[high], self.currency)

    def _figure(self, name: str, draw: Any, *args: Any, height: float = 3.5, **kw: Any) -> Drawing:
        """A figure, with the caption of its kind."""
        caption = words()["captions"][name.rstrip("-0123456789")]
        return Drawing(name, partial(draw, *args, **kw), caption, height)

    def _first(self, table: pd.DataFrame) -> pd.DataFrame:
        """Rows at the first willingness to pay."""
        return table if np.isnan(self.wtp) else table[table["wtp"] == self.wtp]

    def summary(self) -> Iterator[Block]:
        """Answers on one page, and their caveats."""
        data = self.data
        evpi = data.evpi.iloc[0]
        yield Headline(f"EVPI {self.value(evpi, 'evpi')} per person")
        yield Text(f"95 % interval {self.interval(evpi)}{self.at}.")
        rows = [["Best option today", self._best_today()]]
        limit = f"{self.value(evpi, 'evpi')} ({self.interval(evpi)})"
        rows.append(["Knowing everything (EVPI), per person", limit])
        if self.whom:
            everybody, *gained = self._population(evpi)
            more = f", or {gained[0]} {self.effect}" if gained else ""
            said = f"{everybody}{more}; research that costs more cannot pay"
            rows.append([f"Knowing everything, for {self.whom} ({self.discount})", said])
        for what, table in (("parameters", data.singles), ("groups", data.groups)):
            if len(table):
                rows.append([f"Most valuable {what}", self._leading(self._first(table))])
        for _, best in () if data.best_sizes is None else self._first(data.best_sizes).iterrows():
            rows.append([str(best.design).capitalize(), self._best_size(best)])
        yield Table(["", "words"], rows)
        caveats = list(self._caveats())
        if caveats:
            yield Text("Read with care:")
            yield Bullets(caveats)
        if data.notes:
            yield Text("How the input was read:")
            yield Bullets([f"{note}." for note in data.notes])
        if self.has_effects:
            yield self._figure(
                "evpi", figures.plot_evpi, data.evpi_curve, data.evppi_curve, mark=self.wtp
            )

    def _best_today(self) -> str:
        table = self._first(self.data.psa)
        best = table.loc[table.net_benefit.idxmax()]
        others = table[table.option != best.option]
        second = others.loc[others.net_benefit.idxmax()].option
        gains = self._first(incremental(self.data.outputs, str(second))).set_index("option")
        rival = self._gain(gains.loc[best.option])
        return (
            f"{best.option}, by {rival} over {second}; the best in {percent(best.probability)} of "
            "draws"
        )

    def _gain(self, row: Any) -> str:
        half = NORMAL_95 * row.se
        return f"{self.money(row.inb, half)} ± {self.money(half, half)}"

    def _leading(self, table: pd.DataFrame) -> str:
        seen = table[~table["flags"].str.contains("not distinguishable")].head(3)
        if not len(seen):
            return "none is worth knowing by itself, as far as these draws tell"
        return "; ".join(
            f"{r.pars} {self.value(r, 'evppi')} ({percent(r['evppi/evpi'])} of EVPI)"
            for _, r in seen.iterrows()
        )

    def _best_size(self, best: Any) -> str:
        if not best.n:
            return f"no size that was tried is worth its cost{_after(best.notes)}"
        near = "" if best.near_from == best.near_to else f"{best.near_from:,} to {best.near_to:,}"
        years = f"results after {best.years:g} years; " if best.years else ""
        return (
            f"best size {best.n:,} in each arm, {years}expected net benefit "
            f"{self.value(best, 'enbs', *_NET)} ({self.interval(best, *_NET)})"
            + (f"; sizes within 5 % of it: {near}" if near else "")
            + _after(best.notes)
        )

    def _caveats(self) -> Iterator[str]:
        data = self.data
        tables = [data.singles, data.groups, *([] if data.evsi is None else [data.evsi])]
        for flag, meaning in words()["flags"].items():
            if flag in ("constant column", "repeats", "not distinguishable from 0"):
                continue
            flagged = [
                str(row["pars"] if "pars" in row else f"n = {row['n']}")
                for table in tables
                for _, row in self._first(table).iterrows()
                if flag in row["flags"]
            ]
            if flagged:
                names = ", ".join(flagged[:4]) + (", …" if len(flagged) > 4 else "")
                yield f"{flag} ({len(flagged)}: {names}): {meaning}"

    def decision(self) -> Iterator[Block]:
        """Means, increments, dominance and acceptability."""
        data, outputs = self.data, self.data.outputs
        yield Heading("Decision on current information")
        table = self._first(data.psa)
        loss = self._first(data.loss).set_index("option")
        head = ["option", "net benefit", "best in", "expected loss"]
        rows = []
        for r in table.itertuples():
            net, lost = self.money(r.net_benefit, NORMAL_95 * r.se), loss.loc[r.option]
            rows.append([r.option, net, percent(r.probability), self.value(lost, "loss")])
        if self.has_effects:
            head[1:1] = ["mean cost", f"mean effect ({self.effect})"]
            n = outputs.n_effective
            costs, effects = (
                NORMAL_95 * x.std(axis=0, ddof=1) / n**0.5 for x in (outputs.costs, outputs.effects)
            )
            for d, (row, r) in enumerate(zip(rows, table.itertuples(), strict=True)):
                row[1:1] = [self.money(r.cost, costs[d]), money(r.effect, "", effects[d])]
        yield Table(head, rows, f"{outputs.n_rows:,} draws{self.at}")
        rows = [
            [f"{r.option} against {r.against}", self._gain(r), percent(r.probability)]
            for r in self._first(data.incremental).itertuples()
        ]
        yield Table(
            ["comparison", "incremental net benefit", "better in"],
            rows,
            "Differences draw by draw, ± 95 %: what options have in common cancels.",
        )
        if data.icers is not None:
            yield from self._ratios(data.icers)
            yield self._figure("plane", figures.plot_plane, outputs)
            yield self._figure("ceac", figures.plot_ceac, outputs)
            yield self._figure("loss", figures.plot_loss, outputs)

    def _ratios(self, table: pd.DataFrame) -> Iterator[Block]:
        rows = [
            [
                r.option,
                self.money(r.incremental_cost),
                "–" if np.isnan(r.incremental_effect) else f"{r.incremental_effect:.4g}",
                self.money(r.icer),
                r.status,
            ]
            for r in table.itertuples()
        ]
        head = ["option", "more cost", f"more {self.effect}", "ICER", "words"]
        yield Table(head, rows, "By mean cost; each against the one before it on the frontier.")
        if len(table) > 2:
            yield self._figure("frontier", figures.plot_frontier, self.data.outputs)

    def perfect(self) -> Iterator[Block]:
        """EVPI by willingness to pay."""
        if len(self.data.evpi) < 2 and not self.whom:
            return
        yield Heading("Value of perfect information")
        head = ["willingness to pay", "EVPI per person", "95 % interval"]
        rows = [
            [self.money(r.wtp), self.value(r, "evpi"), self.interval(r), *self._population(r)]
            for _, r in self.data.evpi.iterrows()
        ]
        yield Table([*head, *self._population_head()], rows)

    def _population_head(self) -> list[str]:
        effects = [f"population, {self.effect}"] if self.has_effects else []
        return ["population", *effects] if self.whom else []

    def _population(self, row: Any) -> list[str]:
        if not self.whom:
            return []
        half = (row.population_upper - row.population_lower) / 2
        effects = [money(row.population_effects, "", half / row.wtp)] if row.wtp > 0 else []
        return [self.money(row.population, half), *(effects if self.has_effects else [])]

    def partial(self) -> Iterator[Block]:
        """EVPPI of parameters and groups."""
        evpi = float(self.data.evpi.evpi.iloc[0])
        for what, table in (("parameter", self.data.singles), ("group", self.data.groups)):
            if not len(table):
                continue
            yield Heading("Single parameters" if what == "parameter" else "Groups of parameters")
            first = self._first(table)
            yield self._figure(
                f"{what}s",
                figures.plot_rank,
                first,
                evpi=evpi,
                height=max(2.0, 0.9 + 0.22 * min(len(first), 20)),
            )
            yield self._ranked(table, what)
        flags = " ".join([*self.data.singles["flags"], *self.data.groups["flags"]])
        told = [f"{k}: {v}" for k, v in words()["flags"].items() if k in flags]
        if told:
            yield Text("Flags:")
            yield Bullets(told)

    def _ranked(self, table: pd.DataFrame, what: str) -> Table:
        several = len(self.data.outputs.wtps) > 1
        head = [what, *(["wtp"] if several else []), "EVPPI", "95 % interval", "of EVPI", "flags"]
        rows = []
        for _, r in table.iterrows():
            row = [r.pars, *([self.money(r.wtp)] if several else []), self.value(r, "evppi")]
            rows.append([*row, self.interval(r), percent(r["evppi/evpi"]), r["flags"]])
        return _without_empty_flags(Table(head, rows, "per person"))

    def studies(self, evsi: pd.DataFrame) -> Iterator[Block]:
        """EVSI and, for a population, ENBS."""
        yield Heading("Value of a study" if evsi["design"].nunique() == 1 else "Value of studies")
        data = self.data
        for index, design in enumerate(evsi["design"].unique(), start=1):
            values = self._first(evsi[evsi["design"] == design])
            net = None
            said = str(design).capitalize() + "."
            if data.enbs is not None and data.best_sizes is not None:
                net = self._first(data.enbs[data.enbs["design"] == design])
                best = self._first(data.best_sizes[data.best_sizes["design"] == design]).iloc[0]
                text = self._best_size(best)
                said += f" {text[0].upper()}{text[1:]}."
            yield Text(said)
            yield self._figure(f"evsi-{index}", figures.plot_evsi, values)
            if net is not None:
                yield self._figure(f"enbs-{index}", figures.plot_enbs, net)
            yield self._sizes(values if net is None else net)
            if self.has_effects and data.evsi_curve is not None:
                swept = data.evsi_curve[data.evsi_curve["design"] == design]
                curves = swept.assign(pars=[f"n = {n:,}" for n in swept.n], evppi=swept.evsi)
                said = "Value of the study by willingness to pay"
                title: Any = {"heading": said, "mark": self.wtp}
                both = (data.evpi_curve, curves)
                yield self._figure(f"evsi-wtp-{index}", figures.plot_evpi, *both, **title)

    def _sizes(self, table: pd.DataFrame) -> Table:
        head = ["size", "EVSI per person", "95 % interval"]
        net = "enbs" in table
        head += ["results after", "population", "cost", "ENBS"] if net else []
        rows = []
        for _, r in table.iterrows():
            row = [f"{r.n:,.0f} in each arm", self.value(r, "evsi"), self.interval(r)]
            if net:
                half = (r.enbs_upper - r.enbs_lower) / 2
                row += [f"{r.years:g} years", self.money(r.population_evsi, half)]
                row += [self.money(r.cost), self.money(r.enbs, half)]
            rows.append([*row, r["flags"]])
        return _without_empty_flags(Table([*head, "flags"], rows))

    def submission(self) -> Iterator[Block]:
        """The table of a submission."""
        yield Heading("Table for a submission")
        evpi = self.data.evpi.iloc[0]
        head = ["Information about", "Per person (95 % CI)", "% of EVPI", *self._population_head()]
        rows = [self._line("All parameters (EVPI)", "evpi", evpi, 1.0)]
        for table in (self.data.groups, self.data.singles):
            rows += [
                self._line(r.pars, "evppi", r, r["evppi/evpi"])
                for _, r in self._first(table).iterrows()
                if not r["flags"].startswith("constant column")
            ]
        whom = f"; population: {self.whom}, {self.discount}" if self.whom else ""
        yield Table(
            head,
            rows,
            f"Expected value of perfect and of partial perfect information{self.at}{whom}. "
            "*: not distinguishable from 0. Parameters that do not vary are left out.",
        )

    def _line(self, name: str, column: str, row: Any, share: float) -> list[str]:
        star = "*" if "not distinguishable" in str(row.get("flags", "")) else ""
        return [
            name,
            f"{self.value(row, column)}{star} ({self.interval(row)})",
            percent(share).removesuffix(" %"),
            *self._population(row),
        ]

    def methods(self) -> Iterator[Block]:
        """Text of a methods section, and references."""
        from nestquad import __version__

        n, p = f"{self.data.outputs.n_rows:,}", self.data.n_parameters
        text = words()["methods"].format(n=n, p=p, version=__version__)
        text += f" {words()['boost']}" if has_trees() else ""
        text += f" {words()['evsi']}" if self.data.evsi is not None else ""
        if self.whom:
            text += f" Values for the population are for {self.whom}, {self.discount}."
        yield Heading("Methods")
        yield Text(" ".join(text.split()))
        cited = words()["references"]
        yield Bullets(cited if self.data.evsi is not None else cited[:-1], numbered=True)

    def checklist(self) -> Iterator[Block]:
        """Good practice and reporting, as far as the analysis can answer for itself."""
        values = self._facts()
        for key, heading in (
            ("ispor", "Checklist of good practice"),
            ("cheers", "Checklist of reporting (CHEERS-VOI)"),
        ):
            yield Heading(heading)
            rows = [[item, answer.format(**values)] for item, answer in words()[key]["rows"]]
            yield Table(["", "words"], rows, words()[key]["caption"])

    def _facts(self) -> dict[str, Any]:
        """Answers to the items of the checklists."""
        data, grid = self.data, self.data.evpi_curve["wtp"]
        largest = float((NORMAL_95 * self._first(data.singles).se).max())
        error = NORMAL_95 * float(data.evpi.se.iloc[0])
        designs = "; ".join(dict.fromkeys(data.evsi["design"])) if data.evsi is not None else ""
        swept = f"curves from {self.money(grid.min())} to {self.money(grid.max())}"
        return {
            "title": self.title,
            "open": "to be answered by the analyst",
            "n": f"{data.outputs.n_rows:,}",
            "p": data.n_parameters,
            "groups": data.groups["pars"].nunique(),
            "options": ", ".join(data.outputs.options),
            "enough": f"{data.outputs.n_rows:,} draws; EVPI ± {self.money(error, error)}, EVPPI of "
            f"single parameters ± {self.money(largest, largest)} at most; {self._verdict()}",
            "studies": f"regression on summaries of simulated data: {designs}"
            if designs
            else "no study",
            "population": f"{self.whom}, {self.discount}"
            if self.whom
            else "no population given: per person only",
            "costs": "; ".join(map(self._study_costs, data.studies)) or "no study",
            "range": f"{self.first_line}; {swept}" if self.has_effects else self.first_line,
            "structure": "scenarios with weights, in the section on structural uncertainty"
            if data.scenarios is not None
            else "to be answered by the analyst; scenarios value resolving it",
            "strata": "in the section on subgroups"
            if data.subgroups is not None
            else "to be answered by the analyst; subgroups compute them",
            "software": _software(),
            "seed": data.seed,
        }

    def _verdict(self) -> str:
        """Whether there are enough draws."""
        table = self._first(self.data.convergence)
        last = table[table.n == table.n.max()]
        if (perfect := last.iloc[0]).value == 0:
            limit = self.money(perfect.upper, perfect.upper)
            return f"no draw favors another option: EVPI is at most {limit}"
        if last.enough.all():
            return f"enough: half-widths are below {percent(ENOUGH)} of EVPI"
        short = last.loc[last.needed.idxmax()]
        return (
            f"too few for half-widths of {percent(ENOUGH)} of EVPI: {short.pars} needs about "
            f"{float(f'{short.needed:.2g}'):,.0f}"
        )

    def scope(self) -> Iterator[Block]:
        """Structural uncertainty and subgroups."""
        if self.data.scenarios is not None:
            yield Heading("Structural uncertainty")
            rows = [
                [
                    self.money(r.wtp) if self.has_effects else "–",
                    r.best,
                    f"{self.value(r, 'resolving')} ({self.interval(r)})",
                    self.money(r.evpi, NORMAL_95 * r.evpi_se),
                ]
                for _, r in self._first(self.data.scenarios).iterrows()
            ]
            head = ["willingness to pay", "best on average", "knowing the scenario"]
            yield Table([*head, "and its parameters"], rows, words()["captions"]["scenarios"])
        if self.data.subgroups is not None:
            yield Heading("Subgroups")
            rows = [
                [r.pars, r.decision, percent(r.share), self.value(r, "value"), self.interval(r)]
                for _, r in self._first(self.data.subgroups).iterrows()
            ]
            head = ["knowing", "decision", "share", "value per person", "95 % interval"]
            yield Table(head, rows, words()["captions"]["subgroups"])

    def convergence(self) -> Iterator[Block]:
        """EVPI and EVPPI over draws."""
        if self.data.convergence.n.nunique() < 2:
            return
        table = self._first(self.data.convergence)
        yield Heading("Are there enough draws?")
        verdict = self._verdict()
        yield Text(f"{verdict[0].upper()}{verdict[1:]}.")
        yield self._figure("convergence", figures.plot_convergence, table)

    def _study_costs(self, study: Any) -> str:
        years = {study.years(int(n)) for n in study.sizes}
        span = "–".join(f"{year:g}" for year in sorted({min(years), max(years)}))
        return (
            f"{self.money(study.fixed_cost)} and {self.money(study.cost_per_participant)} a "
            f"participant, results after {span} years"
        )

    def provenance(self) -> Iterator[Block]:
        """Files, notes, versions and seed."""
        yield Heading("Input and reproducibility")
        data = self.data
        rows = [[name, f"SHA-256 {code}"] for name, code in data.files]
        rows += [["Understood of the input", note] for note in data.notes]
        rows += [["Software", _software()], ["Seed", str(data.seed)]]
        rows.append(["Computing time", f"{data.seconds:.1f} s"])
        yield Table(["", "words"], rows)


_NET = ("enbs_lower", "enbs_upper")


def _after(notes: str) -> str:
    return f". Note: {notes}" if notes else ""


def _without_empty_flags(table: Table) -> Table:
    """A table without its last column, where it is empty."""
    if any(row[-1] for row in table.rows):
        return table
    return Table(table.head[:-1], [row[:-1] for row in table.rows], table.caption)


def _listed(values: Any, form: str) -> str:
    """A number, or one for each year."""
    return ", ".join(format(x, form) for x in np.atleast_1d(np.asarray(values, dtype=float)))


@cache
def words() -> Any:
    """Texts of methods, checklists and headers."""
    return tomllib.loads(Path(__file__).with_name("words.toml").read_text(encoding="utf-8"))


def _software() -> str:
    return versions("numpy", "scipy", "pandas", "scikit-learn")


def write_voi_report(
    path: str | Path,
    analysis: Analysis,
    *,
    title: str | None = None,
    currency: str = "£",
    effect: str = "QALYs",
    author: str = "",
    command: str | None = None,
) -> Path:
    """Write an analysis as one self-contained HTML page.

    Parameters
    ----------
    path, analysis
        The file to write, in a folder that exists, and the table of `analyze`.
    title, author, command
        Heading, name of the author, and the command that made the results, to be shown.
    currency, effect
        Signs or words for money and effects.

    Returns
    -------
    Path
        File. Without matplotlib it has no figures, and says so. The workbook and the Word document
        are inside it as downloads, where their packages are installed.
    """
    heading = title or TITLE
    content = Content(analysis, currency, effect, heading)
    blocks = list(content.blocks())
    by = [paragraphs([author])] if author else []
    sections = [f"<h1>{escape(heading)}</h1>", *map(html, blocks[:1]), *by]
    sections += [*map(html, blocks[1:]), _downloads(content, blocks, author), footer(command)]
    return write_page(path, heading, sections)


def _downloads(content: Content, blocks: Sequence[Block], author: str) -> str:
    """Links to the files that are inside the page; files that cannot be made are left out."""
    made: list[str] = []
    for name, kind, write in (
        ("tables.xlsx", "spreadsheetml.sheet", partial(_workbook, content)),
        ("submission.docx", "wordprocessingml.document", partial(document, content.title, author)),
    ):
        try:
            data = base64.b64encode(write(blocks)).decode("ascii")
        except MissingExtraError:
            continue
        address = f"data:application/vnd.openxmlformats-officedocument.{kind};base64,{data}"
        made.append(f'<a download="{name}" href="{address}">{name}</a>')
    if not made:
        return ""
    return (
        f'<p class="downloads">Downloads: {", ".join(made)}; figures as SVG and PNG below each.</p>'
    )


def write_voi_workbook(
    path: str | Path, analysis: Analysis, *, currency: str = "£", effect: str = "QALYs"
) -> Path:
    """Write every table of an analysis as a sheet of an Excel workbook, with words as headers."""
    content = Content(analysis, currency, effect)
    new_file(path).write_bytes(_workbook(content, list(content.blocks())))
    return Path(path)


def _workbook(content: Content, blocks: Sequence[Block]) -> bytes:
    about = next(block for block in reversed(blocks) if isinstance(block, Table))
    sheets = {"about": pandas().DataFrame(about.rows, columns=[content.first_line, ""])}
    tables = dict(content.data.tables)
    tables["convergence"] = tables["convergence"].rename(columns={"n": "Draws"})
    return workbook({**sheets, **tables}, words()["heads"])


def write_voi_document(
    path: str | Path,
    analysis: Analysis,
    *,
    title: str | None = None,
    currency: str = "£",
    effect: str = "QALYs",
    author: str = "",
) -> Path:
    """Write the report as a Word document, with tables and figures that can be edited and moved.

    Parameters as in `write_voi_report`. Needs the extra ``word``.
    """
    blocks = list(Content(analysis, currency, effect, title or TITLE).blocks())
    new_file(path).write_bytes(document(title or TITLE, author, blocks))
    return Path(path)


def save_voi_figures(folder: str | Path, analysis: Analysis) -> list[Path]:
    """Save every figure of the report as SVG and PNG; returns the files."""
    folder, content = Path(folder), Content(analysis)
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for block in content.blocks():
        if isinstance(block, Drawing):
            for suffix, data in (("svg", block.svg), ("png", block.png)):
                written.append(folder / f"{block.name}.{suffix}")
                written[-1].write_bytes(data)
    return written
