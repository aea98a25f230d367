"""Studies: designs, simulated data, statistics that summarize them, and their value (EVSI)."""

from __future__ import annotations

import re
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np

from nestquad._checks import generator, is_number, number, numbers, shown
from nestquad._frames import as_given
from nestquad._progress import ProgressLike, as_progress
from nestquad._typing import Array, RNGLike
from nestquad.errors import EvaluationError, InputError, unknown_name
from nestquad.voi.table._evppi import Answer, flags_against, kept_answers, perfect, value_of_knowing
from nestquad.voi.table._numbers import pandas
from nestquad.voi.table._outputs import as_outputs, input_table
from nestquad.voi.table._population import ungrouped

if TYPE_CHECKING:
    import pandas as pd

# More than any trial had; survival is simulated person by person.
_MOST_PARTICIPANTS = 1_000_000


@dataclass(frozen=True)
class _Trial:
    """Trial with an arm for each of its parameters; `ratio` has their sizes relative to n."""

    pars: Any
    ratio: Any = field(default=None, kw_only=True)

    kind: ClassVar[str]

    def __post_init__(self) -> None:
        names = (self.pars,) if isinstance(self.pars, str) else _listed(self.pars)
        if not names or not all(isinstance(name, str) for name in names):
            raise InputError("pars", repr(self.pars), "a parameter's name, or one for each arm")
        shares = (1.0,) * len(names) if self.ratio is None else _listed(self.ratio)
        if len(shares) != len(names) or not all(map(_is_positive, shares)):
            expected = f"{len(names)} positive numbers, one an arm"
            raise InputError("ratio", repr(self.ratio), expected, "As (2, 1).")
        vars(self).update(pars=names, ratio=shares)

    @property
    def name(self) -> str:
        uneven = len(set(self.ratio)) > 1
        shares = f", {' : '.join(f'{share:g}' for share in self.ratio)}" if uneven else ""
        return f"{self.kind} trial of {' and '.join(self.pars)}{shares}"

    @property
    def detail(self) -> str:
        """Details that the name leaves out: ``"sd 2"``."""
        told = {k: v if isinstance(v, tuple) else (v,) for k, v in vars(self).items()}
        return ", ".join(
            f"{k.replace('_', '-')} {' and '.join(map(_short, dict.fromkeys(v)))}"
            for k, v in told.items()
            if k not in ("pars", "ratio")
        )

    def participants(self, n: int) -> int:
        """People in all arms; n times its share of the ratio in each."""
        return sum(self._arm_sizes(n))

    def _arm_sizes(self, n: int) -> list[int]:
        return [max(round(n * share), 1) for share in self.ratio]

    def summaries(self, inputs: pd.DataFrame, n: int, rng: np.random.Generator) -> Array:
        """Statistics (rows, k) of one simulated data set for each row."""
        arms = zip(self._arm_sizes(n), [rng, *rng.spawn(len(self.pars) - 1)], strict=True)
        return np.column_stack(
            [self._arm(inputs, j, size, own) for j, (size, own) in enumerate(arms)]
        )

    def _arm(self, inputs: pd.DataFrame, j: int, size: int, rng: np.random.Generator) -> Array:
        raise NotImplementedError


class BinaryTrial(_Trial):
    """A trial that counts events: of n people in each arm, how many respond.

    Parameters
    ----------
    pars
        The parameter that is the probability of an event; several for several arms.
    """

    kind = "binary"

    def _arm(self, inputs: pd.DataFrame, j: int, size: int, rng: np.random.Generator) -> Array:
        """Share of events: sufficient for the probability."""
        from scipy.stats import binom

        p = _column(inputs, self.pars[j], "probabilities between 0 and 1", 0.0, 1.0)
        # Quantiles, so that the same uniforms serve every size and curves over n are smooth.
        share: Array = binom.ppf(rng.uniform(size=len(p)), size, p) / size
        return share


@dataclass(frozen=True)
class NormalTrial(_Trial):
    """A trial that measures a normal outcome: its mean over n people in each arm.

    Parameters
    ----------
    pars
        The parameter that is the mean of the outcome; several for several arms.
    sd
        Standard deviation between people: a number, or the name of a parameter; one for each
        arm, or one for all.
    """

    sd: Any

    kind = "normal"

    def __post_init__(self) -> None:
        super().__post_init__()
        count = len(self.pars)
        spreads = tuple(self.sd) if isinstance(self.sd, list | tuple) else (self.sd,) * count
        is_usable = all(isinstance(s, str) or _is_positive(s) for s in spreads)
        if len(spreads) != count or not is_usable:
            expected = f"a positive number or a parameter's name, or {count} of them"
            raise InputError("sd", repr(self.sd), expected)
        vars(self).update(sd=spreads)

    def _arm(self, inputs: pd.DataFrame, j: int, size: int, rng: np.random.Generator) -> Array:
        """The mean; sufficient where the standard deviation is known."""
        mean, sd = _column(inputs, self.pars[j]), self.sd[j]
        spread = _column(inputs, sd, "standard deviations", 0.0) if isinstance(sd, str) else sd
        measured: Array = mean + spread * rng.standard_normal(len(mean)) / np.sqrt(size)
        return measured


@dataclass(frozen=True)
class CountTrial(_Trial):
    """A trial that counts events which may recur (Poisson), over a time of observation.

    Parameters
    ----------
    pars
        The parameter that is the rate of events of a person in a unit of time; several for arms.
    time
        Observation of each person.
    """

    time: float = 1.0

    kind = "count"

    def __post_init__(self) -> None:
        super().__post_init__()
        vars(self).update(time=number("time", self.time))

    def _arm(self, inputs: pd.DataFrame, j: int, size: int, rng: np.random.Generator) -> Array:
        """Events in a unit of time: sufficient for the rate."""
        from scipy.stats import poisson

        rate = _column(inputs, self.pars[j], "rates that are not negative", 0.0)
        seen = size * self.time
        # A quantile needs a positive mean.
        mean = np.maximum(seen * rate, np.finfo(float).tiny)
        events: Array = poisson.ppf(rng.uniform(size=len(rate)), mean) / seen
        return events


@dataclass(frozen=True)
class SurvivalTrial(_Trial):
    """A trial that waits for an event: exponential or Weibull times, censored at its end.

    Parameters
    ----------
    pars
        The parameter λ of the survival function S(t) = exp(−λ t^shape), the hazard rate where the
        shape is 1; several for several arms.
    follow_up
        Time of observation of each person, in the unit of time of the rate.
    shape
        The Weibull shape, a number; 1 is the exponential.
    """

    follow_up: float
    shape: float = 1.0

    kind = "survival"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("follow_up", "shape"):
            vars(self)[name] = number(name, getattr(self, name))

    def _arm(self, inputs: pd.DataFrame, j: int, size: int, rng: np.random.Generator) -> Array:
        """Share of events and mean of t^shape, exponential with rate λ and censored: sufficient."""
        rate = _column(inputs, self.pars[j], "rates that are not negative", 0.0)
        end = self.follow_up**self.shape
        events, time = np.zeros(len(rate)), np.zeros(len(rate))
        # Person by person, so that a larger study has the people of a smaller one.
        with np.errstate(divide="ignore"):
            for _ in range(size):
                waited = rng.standard_exponential(len(rate)) / rate
                events += waited <= end
                time += np.minimum(waited, end)
        return np.column_stack((events, time)) / size


@dataclass(frozen=True, init=False)
class Combined:
    """Several studies at once: valued by the data of all of them together.

    Parameters
    ----------
    *designs
        Trials, or functions as in `evsi`; each has n people in each of its arms.
    """

    designs: tuple[Any, ...]

    def __init__(self, *designs: Any) -> None:
        if len(designs) < 2:
            raise InputError("designs", f"{len(designs)} design(s)", "two or more")
        object.__setattr__(self, "designs", tuple(map(as_design, designs)))

    @property
    def name(self) -> str:
        return " with ".join(design.name for design in self.designs)

    @property
    def detail(self) -> str:
        return "; ".join(design.detail for design in self.designs if design.detail)

    def participants(self, n: int) -> int:
        return sum(design.participants(n) for design in self.designs)

    def summaries(self, inputs: pd.DataFrame, n: int, rng: np.random.Generator) -> Array:
        """Summaries of all studies side by side."""
        parts = zip(self.designs, [rng, *rng.spawn(len(self.designs) - 1)], strict=True)
        return np.column_stack([design.summaries(inputs, n, own) for design, own in parts])


@dataclass(frozen=True)
class _UserStudy:
    """A study by the user's own sampler ``(inputs, n, rng) -> (rows,) or (rows, k)``."""

    sampler: Callable[[pd.DataFrame, int, np.random.Generator], Any]

    @property
    def name(self) -> str:
        return str(getattr(self.sampler, "__name__", "study")).replace("<lambda>", "study")

    detail: ClassVar[str] = ""

    def participants(self, n: int) -> int:
        return n

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


Design: TypeAlias = _Trial | Combined | _UserStudy


def as_design(design: Any) -> Design:
    """A design, or the user's sampler made one."""
    if isinstance(design, Design):
        return design
    if callable(design):
        return _UserStudy(design)
    expected = "voi.BinaryTrial(…), another design, or a function (inputs, n, rng) -> summaries"
    raise InputError("design", repr(design), expected)


def design_names(designs: Sequence[Design]) -> list[str]:
    """A different name for each design: with its detail or a number where names are the same."""
    names = [design.name for design in designs]
    names = [
        f"{name} ({design.detail})" if names.count(name) > 1 and design.detail else name
        for name, design in zip(names, designs, strict=True)
    ]
    return [
        f"{name}, no. {names[: i + 1].count(name)}" if name in names[:i] else name
        for i, name in enumerate(names)
    ]


def _short(value: Any) -> str:
    return f"{value:g}" if is_number(value) else str(value)


def _column(
    inputs: pd.DataFrame, name: str, expected: str = "", low: float = -np.inf, high: float = np.inf
) -> Array:
    """A parameter's values, all within bounds."""
    if name not in inputs.columns:
        raise unknown_name("design", name, map(str, inputs.columns))
    values: Array = inputs[name].to_numpy(dtype=float)
    outside = np.flatnonzero((values < low) | (values > high))
    if outside.size:
        row = int(outside[0])
        raise InputError("design", f"{name} = {values[row]:g} in row {row + 1:,}", expected)
    return values


def _listed(given: Any) -> tuple[Any, ...]:
    return tuple(given) if np.iterable(given) else ()


def _is_positive(value: Any) -> bool:
    return is_number(value) and 0 < value < np.inf


@as_given
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
    regressed on the summaries as on parameters in `evppi`: Strong, Oakley, Brennan and Breeze
    (2015), “Estimating the expected value of sample information using the probabilistic
    sensitivity analysis sample”; compared with moment matching (Heath et al. (2018)) and Gaussian
    approximation (Jalal and Alarid-Escudero (2018)) by Kunst et al. (2020).

    Parameters
    ----------
    outputs, inputs
        As in `evppi`.
    design
        `BinaryTrial`, `NormalTrial`, `CountTrial`, `SurvivalTrial`, several of them as `Combined`,
        or a function ``(inputs, n, rng)`` that simulates a data set for each row of the inputs and
        returns summaries, (rows,) or (rows, k). A list of them is a list of alternatives.
    sizes
        Participants in each arm: a number or several.
    rng, progress, answers
        As in `evppi`. All sizes share the seed, so that curves are smooth.

    Returns
    -------
    pd.DataFrame
        Table with a row for each size and willingness to pay: design, n (in each arm), participants
        (in all), wtp, evsi, se, lower, upper (95 %), evsi/evpi, flags.

    Notes
    -----
    Summaries that lose information bias the value down, which no table can show: use
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
    studies = [as_design(one) for one in (design if isinstance(design, list) else [design])]
    if not studies:
        raise InputError("design", "an empty list", "a design, or several")
    counts = study_sizes(sizes)
    ceiling = perfect(known)
    show = as_progress(progress, "sizes")
    seed = generator(rng).integers(2**63)
    known_sizes = kept_answers(answers)
    rows = []
    named = zip(studies, design_names(studies), strict=True)
    for i, ((study, name), n) in enumerate(product(named, counts)):
        show(i, len(studies) * len(counts), f"n = {n:,}")
        key = (repr(study), str(n))
        if key not in known_sizes:
            data = study.summaries(frame, n, np.random.default_rng(seed))
            columns = [f"summary {j + 1}" for j in range(data.shape[1])]
            summaries = pandas().DataFrame(data, columns=columns)
            own = np.random.default_rng(seed + 1)
            known_sizes[key] = value_of_knowing(known, summaries, own, check=False)
        for k, answer, limit in zip(known.wtps, known_sizes[key], ceiling, strict=True):
            flagged = replace(answer, flags=(*answer.flags, *flags_against(answer, limit)))
            size = {"design": name, "n": n, "participants": study.participants(n)}
            rows.append({**size, **flagged.row("evsi", k, limit)})
    show(len(rows), len(rows), "")
    if hasattr(show, "close"):
        show.close()
    return pandas().DataFrame(rows)


def study_sizes(sizes: int | Sequence[int]) -> list[int]:
    """Participants in each arm, checked."""
    expected = f"whole numbers from 1 to {_MOST_PARTICIPANTS:,}, as [50, 100, 200]"
    counts = np.atleast_1d(numbers("sizes", sizes, expected))
    within = (counts >= 1) & (counts <= _MOST_PARTICIPANTS) & (counts == np.round(counts))
    if counts.ndim != 1 or not counts.size or not within.all():
        raise InputError("sizes", shown(sizes), expected)
    return [int(n) for n in counts]


def read_sizes(text: str) -> list[int]:
    """Sizes that a person typed, with blanks or commas; 1,600 is refused, as it may be 1600."""
    sizes: list[int] = []
    expected = "whole numbers of at least 1, with blanks between them"
    for token in text.split():
        parts = [part for part in token.split(",") if part]
        if not any(map(ungrouped, parts)) and not all(
            part.isascii() and part.isdigit() and int(part) for part in parts
        ):
            raise InputError("sizes", repr(token), expected, "As 50 100 200.")
        values = [] if any(map(ungrouped, parts)) else list(map(int, parts))
        falls = any(a >= b for a, b in pairwise(values))
        if not values or (ungrouped(token) and (len(parts[0]) == 1 or falls)):
            meant = re.sub(r"\D", "", token)
            raise InputError("sizes", repr(token), expected, f"Did you mean {meant}?")
        sizes += values
    if not sizes:
        raise InputError("sizes", repr(text), expected, "As 50 100 200.")
    return sizes
