"""Study designs: what data would be seen, given the parameters, and what summarizes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from nestquad._typing import Array
from nestquad.errors import EvaluationError, InputError, unknown_name

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["BinaryTrial", "Design", "NormalTrial", "UserStudy", "as_design"]

Sampler: TypeAlias = Callable[["pd.DataFrame", int, np.random.Generator], Any]


@dataclass(frozen=True, init=False)
class BinaryTrial:
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

    pars: tuple[str, ...]

    def __init__(self, pars: str | Iterable[str]) -> None:
        object.__setattr__(self, "pars", _names(pars))

    @property
    def name(self) -> str:
        return f"binary trial of {' and '.join(self.pars)}"

    @property
    def arms(self) -> int:
        return len(self.pars)

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
class NormalTrial:
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

    pars: tuple[str, ...]
    sd: tuple[float | str, ...]

    def __init__(self, pars: str | Iterable[str], sd: float | str | Sequence[float | str]) -> None:
        names = _names(pars)
        spreads = tuple(sd) if isinstance(sd, list | tuple) else (sd,) * len(names)
        good = all(isinstance(s, str) or (isinstance(s, int | float) and s > 0) for s in spreads)
        if len(spreads) != len(names) or not good:
            raise InputError(
                "sd", repr(sd), f"a positive number or a parameter's name, or {len(names)} of them"
            )
        object.__setattr__(self, "pars", names)
        object.__setattr__(self, "sd", spreads)

    @property
    def name(self) -> str:
        return f"normal trial of {' and '.join(self.pars)}"

    @property
    def arms(self) -> int:
        return len(self.pars)

    def summaries(self, inputs: pd.DataFrame, n: int, rng: np.random.Generator) -> Array:
        """Means of the arms (rows, arms); sufficient where the standard deviation is known."""
        columns = []
        for name, sd in zip(self.pars, self.sd, strict=True):
            mean = _column(inputs, name)
            spread = _column(inputs, sd) if isinstance(sd, str) else float(sd)
            columns.append(mean + spread * rng.standard_normal(len(mean)) / np.sqrt(n))
        return np.column_stack(columns)


@dataclass(frozen=True)
class UserStudy:
    """A study by the user's own sampler ``(inputs, n, rng) -> (rows,) or (rows, k)``."""

    sampler: Sampler
    arms: int = 1

    @property
    def name(self) -> str:
        return str(getattr(self.sampler, "__name__", "study")).replace("<lambda>", "study")

    def summaries(self, inputs: pd.DataFrame, n: int, rng: np.random.Generator) -> Array:
        """What the sampler returns, checked."""
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


Design: TypeAlias = BinaryTrial | NormalTrial | UserStudy


def as_design(design: Any) -> Design:
    """A design, or the user's sampler made one."""
    if isinstance(design, Design):
        return design
    if callable(design):
        return UserStudy(design)
    raise InputError(
        "design",
        repr(design),
        "voi.BinaryTrial(…), voi.NormalTrial(…) or a function (inputs, n, rng) -> summaries",
    )


def _names(pars: str | Iterable[str]) -> tuple[str, ...]:
    names = (pars,) if isinstance(pars, str) else tuple(pars)
    if not names or not all(isinstance(name, str) for name in names):
        raise InputError("pars", repr(pars), "a parameter's name, or one for each arm")
    return names


def _column(inputs: pd.DataFrame, name: str) -> Array:
    if name not in inputs.columns:
        raise unknown_name("design", name, map(str, inputs.columns))
    values: Array = inputs[name].to_numpy(dtype=float)
    return values
