"""Comparison of methods at the same budget."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from nestquad._checks import instance, shown, whole
from nestquad._frames import frame_of
from nestquad._notebook import grid
from nestquad._progress import Progress, ProgressLike, as_progress
from nestquad._typing import RNGLike
from nestquad.errors import InputError, NestquadError, UnsupportedError
from nestquad.estimate import as_budget, estimate
from nestquad.evaluate import Span, grid_points
from nestquad.methods import METHODS, Goal, Method, as_method
from nestquad.points import Stream
from nestquad.problem import NestedExpectation
from nestquad.result import plain

__all__ = ["COLUMNS", "Comparison", "Row", "compare"]

COLUMNS = (
    "method",
    "evaluations",
    "mean |error|",
    "RMSE",
    "spread",
    "half-width",
    "covered",
    "seconds",
)
"""Heads of the columns of a printed comparison."""


@dataclass(frozen=True)
class Row:
    """One method at one budget, over all replicates.

    Errors are None where the exact value is not known; `spread` is the standard deviation of the
    values over replicates, which is always there but does not see bias. `failure` says why a
    method has no numbers.
    """

    method: str
    budget: int
    n_evaluations: int
    value: float
    mean_abs_error: float | None
    rmse: float | None
    spread: float
    half_width: float
    coverage: float | None
    seconds: float
    failure: str = ""

    @property
    def cells(self) -> tuple[str, ...]:
        """The row as text, in the order of `COLUMNS`."""
        return (
            self.method,
            f"{self.n_evaluations:,}",
            *map(_number, (self.mean_abs_error, self.rmse, self.spread, self.half_width)),
            "–" if self.coverage is None else f"{100 * self.coverage:.0f} %",
            f"{self.seconds:.3f}",
        )


@dataclass(frozen=True)
class Comparison:
    """A table of methods; print it, or take it to a data frame, JSON or a plot."""

    problem: str
    exact: float | None
    replicates: int
    rows: tuple[Row, ...]

    @property
    def title(self) -> str:
        exact = "" if self.exact is None else f", exact value {self.exact:.10g}"
        return f"{self.problem}{exact}, {self.replicates} replicates"

    def __str__(self) -> str:
        table = (COLUMNS, *(row.cells for row in self.rows))
        first, *others = (max(map(len, column)) for column in zip(*table, strict=True))
        form = f"{{:<{first}}}" + "".join(f"  {{:>{width}}}" for width in others)
        lines = [form.format(*cells) for cells in table]
        failed = [f"{row.method} failed: {row.failure}" for row in self.rows if row.failure]
        return "\n".join([self.title, lines[0], "-" * len(lines[0]), *lines[1:], *failed])

    def _repr_html_(self) -> str:
        return grid(self.title, COLUMNS, (row.cells for row in self.rows))

    def to_frame(self, library: str = "pandas") -> Any:
        """Data frame of the rows; needs the extra ``frames``.

        Parameters
        ----------
        library
            ``"pandas"``, ``"polars"``, ``"pyarrow"`` or any other that narwhals knows.
        """
        return frame_of([asdict(row) for row in self.rows], library)

    def to_dict(self) -> dict[str, Any]:
        return {
            "problem": self.problem,
            "exact": self.exact,
            "replicates": self.replicates,
            "rows": [plain(asdict(row)) for row in self.rows],
        }

    def to_json(self, indent: int | None = None) -> str:
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)

    def plot(self, ax: Any = None) -> Any:
        """Error against evaluations; needs the extra ``plot``. Returns the axes."""
        from nestquad.plots import plot_comparison

        return plot_comparison(self, ax)


def compare(
    problem: NestedExpectation,
    *,
    budget: int | Sequence[int],
    methods: str | Method[Any] | Iterable[str | Method[Any]] | None = None,
    replicates: int = 20,
    rng: RNGLike = None,
    progress: ProgressLike = False,
    max_seconds: float | None = None,
) -> Comparison:
    """Run methods on a problem, many times, with the same number of evaluations.

    Parameters
    ----------
    problem
        With `exact` known, errors and coverage are measured against it.
    budget
        Evaluations of g for each run; several budgets make a convergence table.
    methods
        Names or configured methods; default: all that apply to the problem and the budgets.
    replicates
        Runs of each, with independent randomness; the same for each method.
    rng
        Anything that ``numpy.random.default_rng`` takes.
    progress
        True for a line in the terminal, or a callable ``(done, total, message)``.
    max_seconds
        Limit on the seconds of each run, as in :func:`nestquad.estimate`.

    Examples
    --------
    >>> import nestquad as nq
    >>> problem = nq.problems.synthetic()
    >>> table = nq.compare(problem, budget=1024, methods=["nmc", "nkq"], replicates=3, rng=0)
    >>> [row.method for row in table.rows]
    ['nmc', 'nkq']
    """
    instance("problem", problem, NestedExpectation, "a nq.NestedExpectation")
    replicates, show = whole("replicates", replicates), as_progress(progress)
    budgets = [as_budget(size) for size in np.ravel(np.array(budget, dtype=object))]
    stream = Stream.from_rng(rng)
    chosen = _chosen(methods, problem, stream, budgets)
    for method in chosen:  # a budget that is too small is told before the first run, not after
        for size in budgets:
            method.plan(problem, Goal(stream, size))
    # Of several answers the first is compared: the table has one line for each method.
    exact = None if problem.exact is None else float(np.ravel(np.asarray(problem.exact))[0])
    total, done, rows = sum(budgets) * len(chosen) * replicates, 0, []
    for size in budgets:
        for method in chosen:
            label = _label(method, chosen)
            try:
                runs = []
                options: dict[str, Any] = {"budget": size, "max_seconds": max_seconds}
                for replicate in range(replicates):
                    rng = stream.child(replicate).generator()
                    runs.append(estimate(problem, method=method, rng=rng, **options))
                    done += size
                    show(done, total, f"{method.name} at {size:,}")
                rows.append(_summary(label, size, runs, exact))
            except NestquadError as error:  # the other methods are still compared
                if len(chosen) == 1:
                    raise
                nan = float("nan")
                rows.append(Row(label, size, 0, nan, None, None, nan, nan, None, nan, str(error)))
    if isinstance(show, Progress):
        show.close()
    return Comparison(problem.label, exact, replicates, tuple(rows))


def _chosen(
    methods: Any, problem: NestedExpectation, stream: Stream, budgets: list[int]
) -> list[Method[Any]]:
    """The methods asked for, by default all that apply to the problem and use the budgets."""
    if methods is None:
        every = [as_method(name) for name in (*METHODS, "auto")]
        able = [method for method in every if method.most >= max(budgets)]
        return [method for method in able if _applies(method, problem, stream, budgets)]
    if isinstance(methods, str | Method):
        methods = [methods]
    if not isinstance(methods, Iterable) or isinstance(methods, np.ndarray):
        raise InputError("methods", shown(methods), "names or configured methods, or None")
    return [as_method(method) for method in methods]


def _applies(
    method: Method[Any], problem: NestedExpectation, stream: Stream, budgets: list[int]
) -> bool:
    """Whether it can plan: some methods need transports, or more evaluations than others."""
    try:
        for size in budgets:
            design = method.plan(problem, Goal(stream, size))
            for grid in () if design is None else design.grids:
                grid_points(problem, grid, Span(0, 1, 0, 1))
    except (InputError, UnsupportedError):
        return False
    return True


def _summary(label: str, budget: int, runs: list[Any], exact: float | None) -> Row:
    values = np.array([np.ravel(run.value)[0] for run in runs])
    halves = np.array([np.ravel(run.half_width)[0] for run in runs])
    errors = None if exact is None else values - exact
    return Row(
        method=label,
        budget=budget,
        n_evaluations=int(np.median([run.n_evaluations for run in runs])),
        value=float(values.mean()),
        mean_abs_error=None if errors is None else float(np.abs(errors).mean()),
        rmse=None if errors is None else float(np.sqrt((errors**2).mean())),
        spread=float(values.std(ddof=1)) if len(runs) > 1 else float("nan"),
        half_width=float(np.median(halves)),
        coverage=None if errors is None else float((np.abs(errors) <= halves).mean()),
        seconds=float(np.median([run.seconds for run in runs])),
    )


def _label(method: Method[Any], among: list[Method[Any]]) -> str:
    """The name, with settings that differ from the defaults where two methods share it."""
    if sum(m.name == method.name for m in among) == 1:
        return method.name
    default = type(method)()
    changed = {
        f.name: getattr(method, f.name)
        for f in fields(method)  # type: ignore[arg-type]
        if getattr(method, f.name) != getattr(default, f.name)
    }
    settings = ", ".join(f"{name}={value}" for name, value in changed.items())
    return f"{method.name}({settings})" if settings else method.name


def _number(value: float | None) -> str:
    return "–" if value is None or not np.isfinite(value) else f"{value:.2e}"
