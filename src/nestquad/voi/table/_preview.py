"""What was understood of three tables, and each cell that cannot be used."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nestquad._notebook import pairs
from nestquad.errors import InputError
from nestquad.voi.table._files import KINDS, checksum, clean_csv, clean_workbook
from nestquad.voi.table._outputs import Outputs
from nestquad.voi.table._tables import Cleaned, Problem, aligned, clean, matched_options, pandas

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Preview:
    """Three tables as they were understood.

    Attributes
    ----------
    parameters, costs, effects
        Tables of floats; columns with bad cells have NaN there.
    options
        Names of the options, matched between costs and effects.
    notes
        What was recognized, left out or converted.
    problems
        What prevents an analysis, each with its table, and the column, row (from 1), line of the
        file and text of the cell where it is one cell; ``str()`` of it says what to do.
    files
        From file names to SHA-256 checksums.
    """

    parameters: pd.DataFrame
    costs: pd.DataFrame
    effects: pd.DataFrame
    options: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()
    files: tuple[tuple[str, str], ...] = ()

    def outputs(self, wtp: Any) -> Outputs:
        """Costs and effects at a willingness to pay; raises the first problem, if there is one."""
        if self.problems:
            raise self.problems[0].error
        return Outputs(self.costs, self.effects, wtp)

    def to_dict(self, rows: int = 5) -> dict[str, Any]:
        """Plain objects for a page: the first rows and the range of every column, and the rest."""
        tables = {}
        for kind in KINDS:
            table = getattr(self, kind)
            first = table.head(rows)
            ends = table.agg(["min", "mean", "max"]) if table.size else table
            tables[kind] = {
                "rows": len(table),
                "columns": list(map(str, table.columns)),
                "first": first.astype(object).where(np.isfinite(first), None).values.tolist(),
                "ranges": ends.astype(object).where(np.isfinite(ends), None).T.values.tolist(),
            }
        cells = [
            {"table": p.table, "column": p.column, "row": p.row, "line": p.line, "cell": p.cell}
            for p in self.problems
        ]
        said = [{**cell, "message": str(p)} for cell, p in zip(cells, self.problems, strict=True)]
        return {
            "tables": tables,
            "options": list(self.options),
            "notes": list(self.notes),
            "problems": said,
            "files": dict(self.files),
        }

    def __str__(self) -> str:
        lines = [f"{name}: {text}" for name, text in self._understood().items() if text]
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join([*lines, *(f"problem: {p}" for p in self.problems)])

    def _repr_html_(self) -> str:
        said = {"notes": "; ".join(self.notes), "problems": " ".join(map(str, self.problems))}
        return pairs("Tables", {**self._understood(), **said})

    def _understood(self) -> dict[str, str]:
        tables = {kind: getattr(self, kind) for kind in KINDS}
        found = {
            kind: f"{len(table):,} draws of {', '.join(map(str, table.columns)) or 'nothing'}"
            for kind, table in tables.items()
        }
        return {**found, "options": ", ".join(self.options)}


def preview(parameters: Any, costs: Any = None, effects: Any = None) -> Preview:
    """Read three tables and say what was understood; bad cells are listed, not raised.

    Parameters
    ----------
    parameters, costs, effects
        Files (a path, or a name and bytes), data frames or matrices. A workbook with three sheets
        goes alone, as `parameters`.

    Examples
    --------
    >>> import pandas as pd
    >>> counted = {"Iteration": range(1, 21), "A": [1.0] * 20, "B": [2.0] * 20}
    >>> effects = pd.DataFrame({"B": ["1"] * 19 + ["#N/A"], "A": [3.0] * 20})
    >>> seen = preview({"p": [1.0] * 20}, pd.DataFrame(counted), effects)
    >>> seen.options, seen.notes[0]
    (('A', 'B'), "costs: the column 'Iteration' counts the rows and is left out")
    >>> [(p.column, p.row, p.cell) for p in seen.problems]
    [('B', 20, '#N/A')]
    """
    files: list[tuple[str, str]] = []
    given = dict(zip(KINDS, (parameters, costs, effects), strict=True))
    for source in given.values():
        if isinstance(source, str | Path) or (isinstance(source, tuple) and len(source) == 2):
            files.append(checksum(source))
    if costs is None and effects is None:
        found = clean_workbook(parameters)
    else:
        found = {kind: _clean(kind, source) for kind, source in given.items()}
    frames = {kind: found[kind].frame for kind in KINDS}
    notes = [f"{kind}: {note}" for kind in KINDS for note in found[kind].notes]
    problems = [problem for kind in KINDS for problem in found[kind].problems]
    options: tuple[str, ...] = ()
    readable = {kind: frames[kind] for kind in KINDS if frames[kind].size}
    try:
        if len(readable) == len(KINDS):  # names of rows may stand in the one that is missing
            moved, rows_moved, _ = aligned(readable)
            frames |= moved
            notes += rows_moved
        if "costs" in readable and "effects" in readable:
            _, names, note = matched_options(frames["costs"], frames["effects"])
            options = tuple(names)
            notes += [note] if note else []
            if not problems:
                _ = Outputs(frames["costs"], frames["effects"], 1.0)
    except InputError as error:
        problems.append(Problem(error.argument, error))
    return Preview(
        **frames, options=options, notes=tuple(notes), problems=tuple(problems), files=tuple(files)
    )


def _clean(kind: str, source: Any) -> Cleaned:
    if source is None:
        error = InputError(kind, "nothing", "a table", "Parameters, costs and effects are needed.")
        return Cleaned(pandas().DataFrame(), problems=(Problem(kind, error),))
    if isinstance(source, str | Path) or (isinstance(source, tuple) and len(source) == 2):
        return clean_csv(source, kind)
    return clean(kind, source, kind=kind)
