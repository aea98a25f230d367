"""Functions of jobs: read the tables of a folder, analyze them, write results and report."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nestquad import voi
from nestquad.errors import InputError
from nestquad.result import plain
from nestquad.voi.serve._jobs import Report
from nestquad.voi.serve._settings import Settings
from nestquad.voi.table import KINDS, has_trees, input_table, parameter_sets
from nestquad.voi.table._evppi import Answer

if TYPE_CHECKING:
    import pandas as pd

UPLOADS = (*KINDS, "workbook")
SETTINGS, SEEN, RESULTS, ANSWERS = "settings.json", "seen.json", "results.json", "answers.jsonl"
# Points of the cost-effectiveness plane: more would hide each other.
_MOST_DOTS = 600


def load_settings(folder: Path) -> Settings:
    return Settings.of(json.loads((folder / SETTINGS).read_text(encoding="utf-8")))


def write_json(path: Path, content: Any) -> None:
    """Write a file as a whole: a reader sees the old one or the new one."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(plain(content), allow_nan=False), encoding="utf-8")
    part.replace(path)


def read(folder: Path, report: Report) -> None:
    """Read the tables, and compute results without regression, for every position of the slider."""
    report(0, 2, "reading the tables")
    settings = load_settings(folder)
    seen = _preview(folder, settings)
    content: dict[str, Any] = seen.to_dict()
    content["unmatched"] = _unmatched(seen)
    told = [p.error.advice for p in seen.problems]
    content["swapped"] = len(told) == 1 and told[0].endswith("say as_given.")
    for problem in content["problems"]:
        problem["message"] = problem["message"].replace("say as_given", "say so below")
    if not seen.problems:
        report(1, 2, "the decision on current information")
        outputs = seen.outputs(settings.wtp)
        inputs = input_table(outputs, seen.parameters)
        names = parameter_sets("all singles", inputs.columns, inputs.attrs["categories"])
        content |= {"parameters": list(names), "now": _now(outputs, settings)}
    write_json(folder / SEEN, content)


def compute(folder: Path, report: Report) -> None:
    """Analyze the tables, for the page; a study that cannot be valued is removed and told."""
    settings = load_settings(folder)
    refused = ""
    try:
        analysis = _analysis(folder, settings, report)
    except InputError as error:
        if error.argument == "design" and settings.studies:
            refused = f"The last study was not added. {error}"
            settings = replace(settings, studies=settings.studies[:-1])
        elif error.argument == "part":
            refused = f"The last {settings.parts[-1]['kind']} was not added. {error.given}"
            settings = replace(settings, parts=settings.parts[:-1])
        else:
            raise
        write_json(folder / SETTINGS, settings.to_dict())
        analysis = _analysis(folder, settings, report)
    write_json(folder / RESULTS, _results(analysis, settings))
    if refused:
        raise InputError("analysis", refused, "tables and values that can be used")


def _analysis(folder: Path, settings: Settings, report: Report) -> voi.Analysis:
    seen = _preview(folder, settings)
    outputs = seen.outputs(settings.wtp)
    return voi.analyze(
        outputs,
        seen.parameters,
        dict(settings.groups),
        audience=settings.audience(),
        study=settings.the_studies(),
        scenarios=_parts(folder, settings, "scenario", outputs),
        subgroups=_parts(folder, settings, "subgroup", outputs),
        progress=report,
        files=seen.files,
        notes=seen.notes,
        curve=settings.curve,
        answers=_Answers(folder, settings),
    )


def part_file(part: Mapping[str, Any], kind: str) -> str:
    """Name on disk of the costs or effects of a scenario or subgroup."""
    return f"part-{part['code']}-{kind}"


def _parts(
    folder: Path, settings: Settings, kind: str, outputs: voi.Outputs
) -> dict[str, tuple[float, voi.Outputs]]:
    """Shares and outputs of scenarios or subgroups by name."""
    parts = {}
    for part in settings.parts:
        if part["kind"] != kind:
            continue
        try:
            costs, effects = (
                voi.read_csv((name, (folder / part_file(part, table)).read_bytes()), table)
                for name, table in zip(part["files"], ("costs", "effects"), strict=True)
            )
            known = voi.Outputs(costs, effects, settings.wtp, as_given=settings.as_given)
            if known.options != outputs.options or known.n_rows != outputs.n_rows:
                told = [f"{o.n_rows:,} draws of {', '.join(o.options)}" for o in (known, outputs)]
                raise InputError(part["name"], *told)
        except (InputError, OSError) as error:
            raise InputError("part", str(error), "tables of costs and effects") from None
        parts[part["name"]] = (part["share"], known)
    return parts


def write(folder: Path, name: str, wtp: float, report: Report) -> None:
    """Write a file of the report at a willingness to pay, from answers that are there."""
    settings = replace(load_settings(folder), wtp=wtp)
    analysis = _analysis(folder, settings, report)
    report(0, 1, f"writing {name}")
    words = {key: getattr(settings, key) for key in ("title", "currency", "effect")}
    # In a temporary folder first: a cancelled job leaves no part of a file.
    with tempfile.TemporaryDirectory(dir=folder) as made:
        new = Path(made) / name
        if name == "report.html":
            voi.write_voi_report(new, analysis, **words, author=settings.author)
        elif name == "tables.xlsx":
            voi.write_voi_workbook(
                new, analysis, currency=settings.currency, effect=settings.effect
            )
        elif name == "report.docx":
            voi.write_voi_document(new, analysis, **words, author=settings.author)
        else:
            voi.save_voi_figures(Path(made) / "drawn", analysis)
            line = f"Figures at a willingness to pay of {settings.currency}{wtp:,.12g}\n"
            (Path(made) / "drawn" / "about.txt").write_text(line, encoding="utf-8")
            shutil.make_archive(str(new.with_suffix("")), "zip", Path(made) / "drawn")
        new.replace(folder / name)


def _preview(folder: Path, settings: Settings) -> voi.Preview:
    """Tables by the names that the user knows."""
    sources = {}
    for kind in UPLOADS:
        path = folder / kind
        if path.is_file():
            name = settings.files.get(kind, kind)
            sources[kind] = (name, path.read_bytes())
    how: dict[str, Any] = {"wtp": settings.wtp, "as_given": settings.as_given}
    if "workbook" in sources:
        chosen: Any = {"columns": dict(settings.columns) or None, "sheets": settings.sheets}
        seen = voi.preview(sources["workbook"], **chosen, **how)
    else:
        seen = voi.preview(*(sources.get(kind) for kind in KINDS), **how)
    if settings.is_swapped and not any(problem.column for problem in seen.problems):
        again = voi.preview(seen.parameters, seen.effects, seen.costs, **how)
        notes = (*seen.notes, "costs and effects exchanged by hand")
        kept: Any = {"files": seen.files, "columns": seen.columns, "sheets": seen.sheets}
        seen = replace(again, notes=notes, **kept)
    if settings.match and _unmatched(seen):
        if sorted(settings.match) != sorted(map(str, seen.effects.columns)):
            raise InputError("match", ", ".join(settings.match), "every column of effects once")
        effects = seen.effects[list(settings.match)].set_axis(seen.costs.columns, axis=1)
        again = voi.preview(seen.parameters, seen.costs, effects, **how)
        pairs = zip(seen.costs.columns, settings.match, strict=True)
        said = f"options matched by hand: {', '.join(f'{c} with {e}' for c, e in pairs)}"
        seen = replace(again, notes=(*seen.notes, said), files=seen.files, sheets=seen.sheets)
    return seen


def _unmatched(seen: voi.Preview) -> dict[str, list[str]] | None:
    """Names of options that a person has to match, where there is no other problem."""
    names = [list(map(str, table.columns)) for table in (seen.costs, seen.effects)]
    alone = len(seen.problems) == 1 and not seen.options and len(names[0]) == len(names[1]) > 1
    return {"costs": names[0], "effects": names[1]} if alone else None


class _Answers(dict[Any, list[Answer]]):
    """Answers of regressions in a file, a line each, below one on the tables that they hold for."""

    def __init__(self, folder: Path, settings: Settings) -> None:
        from nestquad import __version__

        super().__init__()
        self._path = folder / ANSWERS
        reading = [settings.match, sorted(settings.columns.items()), settings.curve]
        reading.append(settings.sheets)
        how = [__version__, has_trees(), settings.is_swapped]
        holds = json.dumps([*how, *reading]).encode()
        tables = [(folder / kind).read_bytes() for kind in UPLOADS if (folder / kind).is_file()]
        digest = hashlib.sha256(b"".join([holds, *tables])).hexdigest()
        lines = self._path.read_text("utf-8").splitlines() if self._path.is_file() else []
        if lines[:1] != [digest]:
            self._path.write_text(f"{digest}\n", encoding="utf-8")
            return
        for line in lines[1:]:
            with suppress(TypeError, ValueError):  # the process was ended while it wrote
                key, rows = json.loads(line)
                answers = [Answer(a, b, c, d, tuple(flags)) for a, b, c, d, flags in rows]
                super().__setitem__(tuple(key), answers)

    def __setitem__(self, key: Any, answers: list[Answer]) -> None:
        super().__setitem__(key, answers)
        rows = [[a.value, a.se, a.lower, a.upper, a.flags] for a in answers]
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(json.dumps([key, rows]) + "\n")


def _now(outputs: voi.Outputs, settings: Settings) -> dict[str, Any]:
    """The decision on current information, by willingness to pay."""
    swept = outputs.at(settings.curve)
    shape = (len(swept.wtps), swept.n_options)
    summary, perfect, gain = voi.psa_summary(swept), voi.evpi(swept), voi.incremental(swept)
    gains = gain[["inb", "lower", "upper"]].to_numpy().reshape(shape[0], shape[1] - 1, 3)
    rows = slice(None, None, max(outputs.n_rows // _MOST_DOTS, 1))
    return {
        "grid": swept.wtps,
        "rows": outputs.n_rows,
        "options": list(swept.options),
        "cost": outputs.costs.mean(axis=0).tolist(),
        "effect": outputs.effects.mean(axis=0).tolist(),
        "net": summary["net_benefit"].to_numpy().reshape(shape).tolist(),
        "probability": summary["probability"].to_numpy().reshape(shape).tolist(),
        "gain": gains.tolist(),
        "evpi": _columns(perfect, "evpi"),
        "plane": np.stack(
            [(x - x[:, :1])[rows].T for x in (outputs.effects, outputs.costs)], axis=2
        ).tolist(),
    }


def _columns(table: pd.DataFrame, value: str) -> dict[str, Any]:
    """Values and intervals as lists, in the order of willingness to pay."""
    ordered = table.sort_values("wtp").rename(columns={value: "value"})
    names = [n for n in ("value", "lower", "upper", "flags") if n in ordered]
    return {"flags": [], **{name: ordered[name].tolist() for name in names}}


def _results(analysis: voi.Analysis, settings: Settings) -> dict[str, Any]:
    """EVPPI and EVSI by willingness to pay, for the page."""
    sets = [
        {"label": label, "group": label in settings.groups, **_columns(part, "evppi")}
        for label, part in analysis.evppi_curve.groupby("pars", sort=False)
    ]
    audience = settings.audience()
    content: dict[str, Any] = {
        "wtp": settings.wtp,
        "sets": sets,
        "people": None if audience is None else audience.size,
    }
    content["convergence"] = [
        {"pars": pars, "n": n, "needed": part["needed"].tolist(), **_columns(part, "value")}
        for (pars, n), part in analysis.convergence.sort_values("wtp", kind="stable").groupby(
            ["pars", "n"], sort=False
        )
    ]
    for name, value in (("scenarios", "resolving"), ("subgroups", "value")):
        table = getattr(analysis, name)
        keys = ["pars", "decision"] if name == "subgroups" else ["options"]
        groups = () if table is None else table.assign(options="").groupby(keys, sort=False)
        content[name] = [
            {**dict(zip(keys, key, strict=True)), **_columns(part, value)} for key, part in groups
        ]
    content["studies"] = []
    parts = analysis.evsi_curve
    for study, name in zip(analysis.studies, analysis.study_names, strict=True):
        assert parts is not None
        assert audience is not None
        costed = study.net_benefit(parts[parts["design"] == name], audience)
        best = voi.best_sizes(costed).sort_values("wtp").to_dict("records")
        sizes = []
        for n, part in costed.sort_values("wtp", kind="stable").groupby("n"):
            size = {"n": int(n), "evsi": _columns(part, "evsi")}
            size |= {name: float(part[name].iloc[0]) for name in ("cost", "years")}
            sizes.append(size | {k: part[k].tolist() for k in ("enbs", "enbs_lower", "enbs_upper")})
        content["studies"].append({"design": name, "sizes": sizes, "best": best})
    return content
