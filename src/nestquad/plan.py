"""Points out, values in: estimation with a simulator that runs elsewhere."""

from __future__ import annotations

import csv
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from nestquad import clock
from nestquad._checks import shown
from nestquad._files import check_size, new_file, text_table
from nestquad._frames import frame_columns, is_frame, new_frame
from nestquad._typing import Array, RNGLike
from nestquad.errors import InputError, optional_module
from nestquad.estimate import Loop, in_two_levels, settled, validated
from nestquad.evaluate import Evaluator, Grid, Span, chunks, fingerprint, grid_points
from nestquad.methods import Goal, Method
from nestquad.points import Stream
from nestquad.problem import NestedExpectation
from nestquad.repeated import RepeatedExpectation
from nestquad.result import Estimate


@dataclass(frozen=True, eq=False)
class Plan:
    """Points at which somebody has to evaluate g; made by :func:`nestquad.plan`.

    Attributes
    ----------
    id
        The name of the plan, which begins the id of every row.
    turn
        Which block of points this is: methods that learn ask for several, one after the other.
    n_points
        How many rows it has.
    """

    id: str
    turn: int
    n_points: int
    _first: int = field(repr=False)
    _parts: tuple[tuple[Grid, Span], ...] = field(repr=False)
    _session: _Session = field(repr=False)

    @property
    def ids(self) -> list[str]:
        """The id of each row."""
        return [f"{self.id}-{row}" for row in range(self._first, self._first + self.n_points)]

    @property
    def columns(self) -> list[str]:
        """The names id, theta_1, …, x_1, … of the columns."""
        theta, x = self._point(0)
        names = [f"theta_{i + 1}" for i in range(theta.size)]
        return ["id", *names, *(f"x_{i + 1}" for i in range(x.size))]

    def blocks(self) -> Iterator[tuple[Array, Array]]:
        """θ (n, d_θ) and x (n, d_x) of the rows in order, in blocks of bounded size."""
        problem = self._session.problem
        for grid, part in self._parts:
            for span in chunks(part):
                theta, points = grid_points(problem, grid, span)
                x = np.broadcast_to(points.x, (*span.shape, points.x.shape[-1]))
                yield np.repeat(theta, span.shape[1], axis=0), x.reshape(span.size, -1)

    def to_frame(self, library: str = "pandas") -> Any:
        """Data frame of the points with columns `columns`; needs the extra ``frames``.

        Parameters
        ----------
        library
            ``"pandas"``, ``"polars"``, ``"pyarrow"`` or any other that narwhals knows.
        """
        points = np.concatenate([np.concatenate(block, axis=1) for block in self.blocks()])
        numbers = zip(self.columns[1:], points.T, strict=True)
        return new_frame({"id": self.ids, **dict(numbers)}, library)

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write the points as CSV, with all digits, however many there are."""
        ids = iter(self.ids)
        with new_file(path).open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(self.columns)
            for block in self.blocks():
                numbers = np.concatenate(block, axis=1).tolist()
                writer.writerows([next(ids), *map(repr, row)] for row in numbers)

    def to_parquet(self, path: str | os.PathLike[str]) -> None:
        """Write the points as Parquet; needs the extra ``parquet``."""
        parquet = optional_module("pyarrow.parquet", "Writing Parquet files", "parquet")
        parquet.write_table(self.to_frame("pyarrow"), new_file(path))

    def next(self, values: Any) -> Plan | None:
        """The points that the method asks for once it has seen these values; None if it is done.

        `values` as for :func:`nestquad.analyze`.
        """
        analyze(self, values)
        return self._session.plans[self.turn + 1]

    def __len__(self) -> int:
        return self.n_points

    def __str__(self) -> str:
        session = self._session
        return (
            f"plan {self.id}, block {self.turn + 1}: {self.n_points:,} points for "
            f"{session.problem.label}, {session.method.name}"
        )

    def _values(self, values: Any) -> Array:
        def describe(row: int) -> str:
            theta, x = self._point(row)
            return f"row {row} of the plan, theta = {theta.tolist()}, x = {x.tolist()}"

        return matched(value_rows(values), self.ids, describe)

    def _point(self, row: int) -> tuple[Array, Array]:
        for grid, span in self._parts:
            if row < span.size:
                t, n = divmod(row, span.shape[1])
                t, n = span.t0 + t, span.n0 + n
                point = Span(t, t + 1, n, n + 1)
                theta, points = grid_points(self._session.problem, grid, point)
                return theta[0], points.x[0, 0]
            row -= span.size
        raise IndexError(row)


def plan(
    problem: NestedExpectation | RepeatedExpectation,
    *,
    budget: int | None = None,
    tol: float | None = None,
    rtol: float | None = None,
    method: str | Method[Any] = "auto",
    rng: RNGLike = None,
) -> Plan:
    """Points for a simulator of g that cannot be called from here.

    Parameters
    ----------
    problem
        Its g is not called and may be None. For a `RepeatedExpectation`, theta is y_0, y_1, … side
        by side, and x the innermost y.
    budget, tol, rtol, method, rng
        As in :func:`nestquad.estimate`. The same arguments make the same points.

    Returns
    -------
    Plan
        ``to_frame()``, ``to_csv(path)`` and ``to_parquet(path)`` write them with an id for each
        row. Give the values to :func:`nestquad.analyze`; a method that learns (or a tolerance)
        asks for more points with ``next(values)``.

    Examples
    --------
    >>> import nestquad as nq
    >>> problem = nq.NestedExpectation(
    ...     outer=nq.Uniform(), inner=nq.Uniform(), f=lambda j: j**2, exact=13 / 12
    ... )
    >>> points = nq.plan(problem, budget=256, method="nkq", rng=0)
    >>> frame = points.to_frame()
    >>> frame["value"] = frame["x_1"] + frame["theta_1"]  # somebody else's simulator
    >>> est = nq.analyze(points, frame[["id", "value"]])
    >>> bool(abs(est.value - problem.exact) < 1e-3)
    True
    """
    problem, method = in_two_levels(problem, method)
    budget = validated(problem, budget, tol, rtol, None)
    adaptive = tol is not None or rtol is not None
    tol, rtol = (None if limit is None else float(limit) for limit in (tol, rtol))
    chosen, budget = settled(method, budget, adaptive)
    goal = Goal(Stream.from_rng(rng), budget, adaptive)
    first = _Session(replace(problem, g=None), chosen, goal, tol, rtol).plans[0]
    if first is None:
        raise InputError("method", repr(chosen), "a method that plans an evaluation")
    return first


def analyze(plan: Plan, values: Any) -> Estimate:
    """The estimate from the values at the points of a plan and of its predecessors.

    Parameters
    ----------
    plan
        From :func:`nestquad.plan`, or ``plan.next``.
    values
        In any order of rows: a table with a column ``id`` and one column for each output of g (a
        data frame of pandas, polars, pyarrow or any library that narwhals knows, or the path of a
        CSV or Parquet file), a mapping or Series from ids to values, or an array (n,) or (n, p) in
        the order of the plan.

    Returns
    -------
    Estimate
        Its status is ``"open"`` if the method would ask for more points.

    Examples
    --------
    >>> import nestquad as nq
    >>> problem = nq.NestedExpectation(nq.Uniform(), nq.Uniform(), f=lambda j: j**2)
    >>> plan = nq.plan(problem, budget=256, method="nkq", rng=0)
    >>> frame = plan.to_frame()
    >>> est = nq.analyze(plan, (frame["x_1"] + frame["theta_1"]).to_numpy())
    >>> bool(abs(est.value - 13 / 12) < 1e-3)
    True
    """
    if not isinstance(plan, Plan):
        raise InputError("plan", type(plan).__name__, "what nq.plan returned")
    return plan._session.answer(plan, plan._values(values))


def replay(first: Plan, values: Any) -> tuple[Estimate, Plan | None]:
    """The answer from values of several blocks together, and the block that comes after them."""
    given = value_rows(values)
    refuse_others(given, first.id)
    current, estimate, left = first, None, set(given.ids or ())
    while True:
        ids = current.ids
        block = given if given.ids is None else given.only(ids)
        if len(block) == 0 and estimate is not None:
            following: Plan | None = current
            break
        estimate = analyze(current, block if len(block) else given)
        left -= set(ids)
        following = current.next(block)
        if following is None or given.ids is None:
            break
        current = following
    if left:
        current._values(given.only(sorted(left)[:1]))  # refuses it by name
    return estimate, following


@dataclass
class _Session:
    """State shared by the blocks of one plan: the loop, and the values so far."""

    problem: NestedExpectation
    method: Method[Any]
    goal: Goal
    tol: float | None
    rtol: float | None

    def __post_init__(self) -> None:
        self._restart()

    def _restart(self) -> None:
        evaluator = Evaluator(self.problem, keep=True)
        self.loop = Loop(self.method, self.goal, evaluator, self.tol, self.rtol)
        self.loop.start()
        self.told: list[Array] = []
        self.answers: list[Estimate] = []
        self.plans: list[Plan | None] = []
        self.plans.append(self._asked())

    def answer(self, plan: Plan, values: Array) -> Estimate:
        """Take the values of a block, unless they are known, and return the answer after it."""
        turn = plan.turn
        if turn < len(self.told) and not np.array_equal(self.told[turn], values):
            # Other values than before: forget their consequences.
            told = self.told[:turn]
            self._restart()
            for before in told:
                self._tell(before)
        if turn == len(self.told):
            self._tell(values)
        return self.answers[turn]

    def _tell(self, values: Array) -> None:
        started = clock.now()
        asked = self.plans[-1]
        assert asked is not None
        row = 0
        for grid, span in asked._parts:
            part = values[row : row + span.size].reshape(*span.shape, *values.shape[1:])
            self.loop.evaluator.table(grid).put(span, part)
            row += span.size
        self.loop.evaluator.n_evaluations += row
        self.loop.turn()
        following = self._asked()
        estimate = self.loop.answer("open" if following is not None else self.loop.status)
        self.told.append(values)
        self.plans.append(following)
        self.answers.append(replace(estimate, seconds=clock.now() - started))

    def _asked(self) -> Plan | None:
        """Points missing from the design of this turn; complete designs are analysed at once."""
        while self.loop.design is not None:
            parts = tuple(
                (grid, span)
                for grid, needed in self.loop.design.needs()
                for span in self.loop.evaluator.table(grid).lacking(needed)
            )
            if parts:
                size = sum(span.size for _, span in parts)
                first = self.loop.evaluator.n_evaluations
                return Plan(self._id, len(self.plans), size, first, parts, self)
            self.loop.turn()
        return None

    @property
    def _id(self) -> str:
        what = {
            "problem": {k: v for k, v in fingerprint(self.problem).items() if "law" in k},
            "method": repr(self.method),
            "stream": list(self.goal.stream.entropy),
            "goal": [self.goal.budget, self.tol, self.rtol],
        }
        text = json.dumps(what, sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=4).hexdigest()


@dataclass(frozen=True)
class ValueRows:
    """Values (n,) or (n, p) with the id of each row; without ids they are in the plan's order."""

    ids: list[str] | None
    values: Array

    def __len__(self) -> int:
        return len(self.values)

    def only(self, wanted: Sequence[str]) -> ValueRows:
        """The rows with these ids, all of them."""
        assert self.ids is not None
        among = set(wanted)
        rows = [i for i, row_id in enumerate(self.ids) if row_id in among]
        return ValueRows([self.ids[i] for i in rows], self.values[rows])


def value_rows(values: Any) -> ValueRows:
    """Values from a file, a frame, a series, a mapping from ids, or an array."""
    if isinstance(values, ValueRows):
        return values
    if isinstance(values, str | os.PathLike):
        return _from_file(Path(values))
    if is_frame(values):
        return _from_frame(values)
    if isinstance(values, Mapping):
        ids = [str(key) for key in values]
        return ValueRows(ids, _numbers(list(values.values()), ids))
    index = getattr(values, "index", None)  # a pandas Series; lists have a method of that name
    if index is not None and not callable(index) and index.dtype.kind not in "iu":
        ids = [str(key) for key in index]
        return ValueRows(ids, _numbers(list(values), ids))
    return ValueRows(None, _numbers(values, None))


def matched(given: ValueRows, ids: Sequence[str], describe: Any) -> Array:
    """Values in the order of `ids`; refuses rows that are missing, double, or of another plan.

    `describe(row)` says where the point of a row is.
    """
    if given.ids is None:
        if len(given) != len(ids):
            expected = f"{len(ids)}, one for each row of the plan, in its order"
            raise InputError("values", f"{len(given)} values without ids", expected)
        return _finite(given.values, ids)
    place = {row_id: row for row, row_id in enumerate(ids)}
    order = np.full(len(ids), -1)
    for row, row_id in enumerate(given.ids):
        if row_id not in place:
            refuse_others(given, ids[0].rpartition("-")[0])
            expected = f"ids from {ids[0]!r} to {ids[-1]!r}, of this block"
            raise InputError("values", f"id {row_id!r} in row {row}", expected)
        if (first := order[place[row_id]]) >= 0:
            twice = f"id {row_id!r} twice, in rows {first} and {row}"
            raise InputError("values", twice, "one value for each id")
        order[place[row_id]] = row
    missing = np.flatnonzero(order < 0)
    if missing.size:
        at = int(missing[0])
        more = f" and {missing.size - 1} more" if missing.size > 1 else ""
        lacking = f"no value for id {ids[at]!r} ({describe(at)}){more}"
        raise InputError("values", lacking, f"a value for each of the {len(ids)} rows of the plan")
    return _finite(given.values[order], ids)


def refuse_others(given: ValueRows, plan: str) -> None:
    """Refuse rows of another plan, by the name that begins their ids."""
    for row, row_id in enumerate(given.ids or ()):
        other = row_id.rpartition("-")[0]
        if other != plan:
            whose = f", which belongs to plan {other!r}" if other else ""
            there = f"id {row_id!r} in row {row}{whose}"
            raise InputError("values", there, f"ids of plan {plan!r}")


def _finite(values: Array, ids: Sequence[str]) -> Array:
    usable = np.isfinite(values.reshape(len(values), -1)).all(axis=1)
    if not usable.all():
        row = int(np.argmin(usable))
        given = f"{values[row]} for id {ids[row]!r} (row {row} of the plan)"
        advice = "Run the simulator again for this row."
        raise InputError("values", given, "finite numbers", advice)
    return values


def _numbers(raw: Any, ids: Sequence[str] | None) -> Array:
    if isinstance(raw, np.ma.MaskedArray):
        raise InputError("values", "a masked array", "numbers", "Evaluate g at all points first.")
    try:
        values = np.asarray(raw, dtype=float)
    except (TypeError, ValueError, OverflowError):
        if not isinstance(raw, Sequence | np.ndarray):
            raise InputError("values", shown(raw), "numbers, in a table or an array") from None
        for row, entry in enumerate(raw):
            try:
                np.asarray(entry, dtype=float)
            except (TypeError, ValueError, OverflowError):
                where = f"row {row}" if ids is None else f"row {row} (id {ids[row]!r})"
                raise InputError("values", f"{entry!r} in {where}", "numbers") from None
        expected = "equally many numbers in each row"
        raise InputError("values", "rows of different lengths", expected) from None
    if values.ndim not in (1, 2) or not values.size:
        raise InputError("values", f"an array of shape {values.shape}", "shape (n,) or (n, p)")
    return values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values


def _from_frame(given: Any) -> ValueRows:
    if getattr(getattr(given, "index", None), "name", None) == "id":  # of pandas
        given = given.reset_index()
    columns = frame_columns(given)
    if "id" not in columns:
        names = f"a table with columns {', '.join(columns)}"
        raise InputError("values", names, "a column 'id' with the ids of the plan")
    ids = [str(row_id) for row_id in columns["id"].to_list()]
    outputs = [columns[name].to_numpy() for name in _value_columns(list(columns))]
    return ValueRows(ids, _numbers(np.stack(outputs, axis=-1), ids))


def _from_file(path: Path) -> ValueRows:
    if path.suffix == ".parquet":
        check_size(path, "values")
        parquet = optional_module("pyarrow.parquet", "Reading Parquet files", "parquet")
        try:
            table = parquet.read_table(path)
        except (ValueError, OSError) as error:
            given = f"{path.name!r}, which is no Parquet file"
            raise InputError("values", given, "CSV or Parquet") from error
        return _from_frame(table)
    names, rows = text_table(path, "values")
    head = [name.strip() for name in names]
    if "id" not in head:
        given = f"{path.name!r} with columns {shown(', '.join(head) or 'none')}"
        raise InputError("values", given, "a header line with a column 'id'")
    columns = [head.index(name) for name in _value_columns(head)]
    place = head.index("id")
    ids = [row[place].strip() for row in rows]
    return ValueRows(ids, _numbers([[row[c] for c in columns] for row in rows], ids))


def _value_columns(names: Sequence[str]) -> list[str]:
    """All columns that the plan did not write."""
    outputs = [n for n in names if n != "id" and not n.startswith(("theta_", "x_"))]
    if not outputs:
        given = f"a table with columns {', '.join(names)}"
        raise InputError("values", given, "a column of values beside 'id', such as 'value'")
    return outputs
