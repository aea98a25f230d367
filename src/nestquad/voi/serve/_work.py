"""What jobs do: read the tables of a folder, analyze them, write results and report."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nestquad.errors import InputError, MissingExtraError
from nestquad.result import plain
from nestquad.voi.report import (
    Analysis,
    analyze,
    save_voi_figures,
    write_voi_document,
    write_voi_report,
    write_voi_workbook,
)
from nestquad.voi.serve._jobs import Report
from nestquad.voi.serve._settings import Settings
from nestquad.voi.table import (
    KINDS,
    Outputs,
    Preview,
    best_sizes,
    evpi,
    has_trees,
    incremental,
    input_table,
    parameter_sets,
    preview,
    psa_summary,
)
from nestquad.voi.table._evppi import Answer

if TYPE_CHECKING:
    import pandas as pd

UPLOADS = (*KINDS, "workbook")
REPORTS = ("report.html", "report.docx", "tables.xlsx", "figures.zip")
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
    """Read the tables, and compute what needs no regression, for every position of the slider."""
    report(0, 2, "reading")
    settings = load_settings(folder)
    seen = _preview(folder, settings)
    content: dict[str, Any] = seen.to_dict()
    content["unmatched"] = _unmatched(seen)
    if not seen.problems:
        report(1, 2, "current decision")
        outputs = seen.outputs(settings.wtp)
        inputs = input_table(outputs, seen.parameters)
        names = parameter_sets("all singles", inputs.columns, inputs.attrs["categories"])
        content |= {"parameters": list(names), "now": _now(outputs, settings)}
    write_json(folder / SEEN, content)


def compute(folder: Path, report: Report) -> None:
    """Analyze the tables; results for the page first, then the report."""
    settings = load_settings(folder)
    seen = _preview(folder, settings)
    outputs = seen.outputs(settings.wtp)
    analysis = analyze(
        outputs,
        seen.parameters,
        dict(settings.groups),
        audience=settings.audience(),
        study=settings.the_study(),
        progress=report,
        files=seen.files,
        notes=seen.notes,
        curve=settings.curve,
        answers=_Answers(folder, settings),
    )
    for name in REPORTS:  # of other settings
        (folder / name).unlink(missing_ok=True)
    write_json(folder / RESULTS, _results(analysis, settings))
    words = {name: getattr(settings, name) for name in ("title", "currency", "effect")}
    # Beside the others first: a cancelled job leaves no part of a file.
    with tempfile.TemporaryDirectory(dir=folder) as made:
        new = Path(made)
        report(0, 4, "report")
        write_voi_report(new / "report.html", analysis, **words)
        report(1, 4, "tables of the report")
        write_voi_workbook(new / "tables.xlsx", analysis)
        report(2, 4, "document of the report")
        with suppress(MissingExtraError):
            write_voi_document(new / "report.docx", analysis, **words)
        report(3, 4, "figures of the report")
        save_voi_figures(new / "drawn", analysis)
        shutil.make_archive(str(new / "figures"), "zip", new / "drawn")
        for name in REPORTS:
            if (new / name).is_file():
                (new / name).replace(folder / name)


def _preview(folder: Path, settings: Settings) -> Preview:
    """Tables by the names that the user knows."""
    sources = {}
    for kind in UPLOADS:
        path = folder / kind
        if path.is_file():
            name = settings.files.get(kind, kind)
            sources[kind] = (name, path.read_bytes())
    if "workbook" in sources:
        seen = preview(sources["workbook"])
    else:
        seen = preview(*(sources.get(kind) for kind in KINDS))
    if settings.match and _unmatched(seen):
        if sorted(settings.match) != sorted(map(str, seen.effects.columns)):
            raise InputError("match", ", ".join(settings.match), "every column of effects once")
        effects = seen.effects[list(settings.match)].set_axis(seen.costs.columns, axis=1)
        again = preview(seen.parameters, seen.costs, effects)
        pairs = zip(seen.costs.columns, settings.match, strict=True)
        said = f"options matched by hand: {', '.join(f'{c} with {e}' for c, e in pairs)}"
        seen = replace(again, notes=(*seen.notes, said), files=seen.files)
    return seen


def _unmatched(seen: Preview) -> dict[str, list[str]] | None:
    """Names of options that a person has to match, where nothing else is wrong."""
    names = [list(map(str, table.columns)) for table in (seen.costs, seen.effects)]
    alone = len(seen.problems) == 1 and not seen.options and len(names[0]) == len(names[1]) > 1
    return {"costs": names[0], "effects": names[1]} if alone else None


class _Answers(dict[Any, list[Answer]]):
    """Answers of regressions, kept in a file: a cancelled or reloaded analysis continues.

    One line for each set, after a line that says for which tables, range and versions they hold.
    """

    def __init__(self, folder: Path, settings: Settings) -> None:
        from nestquad import __version__

        super().__init__()
        self._path = folder / ANSWERS
        holds = json.dumps([__version__, has_trees(), settings.match, settings.curve]).encode()
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


def _now(outputs: Outputs, settings: Settings) -> dict[str, Any]:
    """The decision on current information, by willingness to pay."""
    swept = outputs.at(settings.curve)
    shape = (len(swept.wtps), swept.n_options)
    summary, perfect, gain = psa_summary(swept), evpi(swept), incremental(swept)
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
        "plane": [
            np.column_stack(
                [(table - table[:, :1])[rows, d] for table in (outputs.effects, outputs.costs)]
            ).tolist()
            for d in range(outputs.n_options)
        ],
    }


def _columns(table: pd.DataFrame, value: str) -> dict[str, Any]:
    """Values and intervals as lists, in the order of willingness to pay."""
    ordered = table.sort_values("wtp")
    content = {"value": ordered[value], "lower": ordered["lower"], "upper": ordered["upper"]}
    lists: dict[str, Any] = {name: column.tolist() for name, column in content.items()}
    return {**lists, "flags": ordered["flags"].tolist() if "flags" in ordered else []}


def _results(analysis: Analysis, settings: Settings) -> dict[str, Any]:
    """EVPPI and EVSI by willingness to pay, for the page."""
    sets = [
        {
            "label": label,
            "group": label in settings.groups,
            **_columns(part, "evppi"),
        }
        for label, part in analysis.evppi_curve.groupby("pars", sort=False)
    ]
    audience = settings.audience()
    content: dict[str, Any] = {
        "wtp": settings.wtp,
        "sets": sets,
        "people": None if audience is None else audience.size,
    }
    study = settings.the_study()
    if study is not None and audience is not None and analysis.evsi_curve is not None:
        costed = study.net_benefit(analysis.evsi_curve, audience)
        sizes = [(int(n), part.sort_values("wtp")) for n, part in costed.groupby("n")]
        content["study"] = {
            "design": str(costed["design"].iloc[0]),
            "sizes": [
                {
                    "n": n,
                    "cost": float(part["cost"].iloc[0]),
                    "years": float(part["years"].iloc[0]),
                    "evsi": _columns(part, "evsi"),
                    **{k: part[k].tolist() for k in ("enbs", "enbs_lower", "enbs_upper")},
                }
                for n, part in sizes
            ],
            "best": best_sizes(costed).sort_values("wtp").to_dict("records"),
        }
    return content
