"""EVSI: study designs, and the value of their data before they are seen."""

from __future__ import annotations

from collections.abc import Callable, Iterable, MutableMapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np

from nestquad._progress import ProgressLike, as_progress
from nestquad._typing import Array, RNGLike
from nestquad.errors import EvaluationError, InputError, unknown_name
from nestquad.voi.table._evppi import Answer, perfect, value_of_knowing
from nestquad.voi.table._flags import flags_against
from nestquad.voi.table._outputs import as_outputs, input_table
from nestquad.voi.table._tables import pandas

if TYPE_CHECKING:
    import pandas as pd


def evsi(
    outputs: Any,
    inputs: Any,
    design: Any,
    sizes: int | Sequence[int],
    *,
    rng: RNGLike = 0,
    progress: ProgressLike = False,
    answers: MutableMapping[Any, list[Answer]] | None = None,
) -> pd.DataFrame:
    """Expected value of sample information (EVSI) of a study, by its size.

    For each row of the table one data set is simulated and summarized, and the outputs are
    regressed on the summaries as on parameters in `evppi`.

    Parameters
    ----------
    outputs, inputs
        As in `evppi`.
    design
        `BinaryTrial`, `NormalTrial`, or a function ``(inputs, n, rng)`` that simulates a data set
        for each row of the inputs and returns summaries, (rows,) or (rows, k).
    sizes
        Participants in each arm: a number or several.
    rng
        Seed of the data sets, folds and draws. All sizes share it, so that curves are smooth.
    progress
        True for a line in the terminal, or a callable ``(done, total, message)``.
    answers
        Answers of earlier calls, as in `evppi`, by design and size.

    Returns
    -------
    DataFrame
        A row for each size and willingness to pay: design, n (in each arm), participants (in all),
        wtp, evsi, se, lower, upper (95 %), evsi/evpi, flags.

    Notes
    -----
    Summaries that lose information bias the value down, and nothing in the table can show it: use
    sufficient statistics where they exist.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> from nestquad import voi
    >>> mu = np.random.default_rng(0).normal(0.0, 1.0, 5000)
    >>> benefit = np.column_stack((np.zeros(5000), mu))
    >>> trial = voi.NormalTrial("mu", sd=2.0)
    >>> table = voi.evsi(benefit, pd.DataFrame({"mu": mu}), trial, sizes=[1, 4, 16])
    >>> exact = 0.39894 * np.sqrt([1 / 5, 1 / 2, 4 / 5])
    >>> bool((np.abs(table.evsi - exact) < 3 * table.se).all())
    True
    """
    known = as_outputs(outputs)
    frame = input_table(known, inputs)
    study = _as_design(design)
    counts = _sizes(sizes)
    ceiling = perfect(known)
    show = as_progress(progress, "sizes")
    seed = np.random.default_rng(rng).integers(2**63)
    known_sizes: MutableMapping[Any, list[Answer]] = {} if answers is None else answers
    rows = []
    for i, n in enumerate(counts):
        show(i, len(counts), f"n = {n:,}")
        key = (repr(study), str(n))
        if key not in known_sizes:
            data = study.summaries(frame, n, np.random.default_rng(seed))
            columns = [f"summary {j + 1}" for j in range(data.shape[1])]
            summaries = pandas().DataFrame(data, columns=columns)
            generator = np.random.default_rng(seed + 1)
            known_sizes[key] = value_of_knowing(known, summaries, generator)
        for k, answer, limit in zip(known.wtps, known_sizes[key], ceiling, strict=True):
            flagged = replace(answer, flags=(*answer.flags, *flags_against(answer, limit)))
            size = {"design": study.name, "n": n, "participants": n * study.arms}
            rows.append({**size, **flagged.row("evsi", k, limit)})
    show(len(counts), len(counts), "")
    if hasattr(show, "close"):
        show.close()
    return pandas().DataFrame(rows)


def _sizes(sizes: int | Sequence[int]) -> list[int]:
    counts = np.atleast_1d(np.asarray(sizes))
    if counts.ndim != 1 or not counts.size or counts.dtype.kind not in "fiu":
        raise InputError("sizes", repr(sizes), "whole numbers of participants, as [50, 100, 200]")
    if not all(float(n).is_integer() and n >= 1 for n in counts):
        raise InputError("sizes", repr(sizes), "whole numbers of at least 1")
    return [int(n) for n in counts]


@dataclass(frozen=True, init=False)
class _Trial:
    """A trial with an arm for each of its parameters."""

    pars: tuple[str, ...]

    kind: ClassVar[str]

    def __init__(self, pars: str | Iterable[str]) -> None:
        names = (pars,) if isinstance(pars, str) else tuple(pars)
        if not names or not all(isinstance(name, str) for name in names):
            raise InputError("pars", repr(pars), "a parameter's name, or one for each arm")
        object.__setattr__(self, "pars", names)

    @property
    def name(self) -> str:
        return f"{self.kind} trial of {' and '.join(self.pars)}"

    @property
    def arms(self) -> int:
        return len(self.pars)


class BinaryTrial(_Trial):
    """A trial that counts events: of n people in each arm, how many respond.

    Parameters
    ----------
    pars
        The parameter that is the probability of an event; several for several arms.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> trial = BinaryTrial(["p1", "p2"])
    >>> inputs = pd.DataFrame({"p1": [0.0, 1.0], "p2": [1.0, 0.0]})
    >>> trial.summaries(inputs, 10, np.random.default_rng(0)).tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """

    kind = "binary"

    def summaries(self, inputs: pd.DataFrame, n: int, rng: np.random.Generator) -> Array:
        """Shares of events (rows, arms): sufficient for the probabilities."""
        from scipy.stats import binom

        columns = []
        for name in self.pars:
            p = _column(inputs, name)
            if (p < 0).any() or (p > 1).any():
                row = int(np.flatnonzero((p < 0) | (p > 1))[0])
                raise InputError(
                    "design",
                    f"{name} = {p[row]:g} in row {row + 1:,}",
                    "probabilities between 0 and 1",
                    f"A BinaryTrial counts events that happen with probability {name!r}.",
                )
            # Quantiles, so that the same uniforms serve every size and curves over n are smooth.
            columns.append(binom.ppf(rng.uniform(size=len(p)), n, p) / n)
        return np.column_stack(columns)


@dataclass(frozen=True, init=False)
class NormalTrial(_Trial):
    """A trial that measures a normal outcome: its mean over n people in each arm.

    Parameters
    ----------
    pars
        The parameter that is the mean of the outcome; several for several arms.
    sd
        Standard deviation between people: a number, or the name of a parameter; one for each
        arm, or one for all.

    Examples
    --------
    >>> NormalTrial("effect", sd=2.0).name
    'normal trial of effect'
    """

    sd: tuple[float | str, ...]

    kind = "normal"

    def __init__(self, pars: str | Iterable[str], sd: float | str | Sequence[float | str]) -> None:
        super().__init__(pars)
        spreads = tuple(sd) if isinstance(sd, list | tuple) else (sd,) * self.arms
        good = all(isinstance(s, str) or (isinstance(s, int | float) and s > 0) for s in spreads)
        if len(spreads) != self.arms or not good:
            raise InputError(
                "sd", repr(sd), f"a positive number or a parameter's name, or {self.arms} of them"
            )
        object.__setattr__(self, "sd", spreads)

    def summaries(self, inputs: pd.DataFrame, n: int, rng: np.random.Generator) -> Array:
        """Means of the arms (rows, arms); sufficient where the standard deviation is known."""
        columns = []
        for name, sd in zip(self.pars, self.sd, strict=True):
            mean = _column(inputs, name)
            spread = _column(inputs, sd) if isinstance(sd, str) else float(sd)
            columns.append(mean + spread * rng.standard_normal(len(mean)) / np.sqrt(n))
        return np.column_stack(columns)


@dataclass(frozen=True)
class _UserStudy:
    """A study by the user's own sampler ``(inputs, n, rng) -> (rows,) or (rows, k)``."""

    sampler: Callable[[pd.DataFrame, int, np.random.Generator], Any]
    arms: int = 1

    @property
    def name(self) -> str:
        return str(getattr(self.sampler, "__name__", "study")).replace("<lambda>", "study")

    def summaries(self, inputs: pd.DataFrame, n: int, rng: np.random.Generator) -> Array:
        """Validated summaries from the sampler."""
        try:
            values = np.asarray(self.sampler(inputs, n, rng), dtype=float)
        except Exception as error:
            raise EvaluationError(
                f"design raised {type(error).__name__}: {error} for n = {n}",
                advice="A sampler takes (inputs, n, rng): the table of parameters, the number of "
                "participants in an arm and a numpy generator.",
            ) from error
        values = values[:, None] if values.ndim == 1 else values
        if values.ndim != 2 or len(values) != len(inputs) or not np.isfinite(values).all():
            raise EvaluationError(
                f"design returned shape {values.shape} for {len(inputs):,} rows of parameters"
                + ("" if np.isfinite(values).all() else ", some of it not finite"),
                advice="Return one summary, or k summaries, of a data set for each row: (rows, k).",
            )
        return values


Design: TypeAlias = BinaryTrial | NormalTrial | _UserStudy


def _as_design(design: Any) -> Design:
    """A design, or the user's sampler made one."""
    if isinstance(design, Design):
        return design
    if callable(design):
        return _UserStudy(design)
    raise InputError(
        "design",
        repr(design),
        "voi.BinaryTrial(…), voi.NormalTrial(…) or a function (inputs, n, rng) -> summaries",
    )


def _column(inputs: pd.DataFrame, name: str) -> Array:
    if name not in inputs.columns:
        raise unknown_name("design", name, map(str, inputs.columns))
    values: Array = inputs[name].to_numpy(dtype=float)
    return values
