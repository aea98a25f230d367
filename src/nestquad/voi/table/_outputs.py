"""Outputs of a probabilistic analysis: costs and effects, or net benefits, of each option."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import stdtrit

from nestquad._checks import choice, listed, numbers, shown
from nestquad._notebook import grid
from nestquad._typing import Array, ArrayLike
from nestquad.errors import InputError
from nestquad.result import NORMAL_95
from nestquad.voi.table._limits import FEWEST_ROWS, LARGEST
from nestquad.voi.table._names import kind_of_name, one_line, plain_names
from nestquad.voi.table._numbers import pandas
from nestquad.voi.table._tables import aligned, check_rows, clean

if TYPE_CHECKING:
    import pandas as pd

# Orders of magnitude between costs and the value of effects that no decision has, and by which
# exchanged tables are nearer: QALYs and pounds exchanged are 6 or more apart, and 4 nearer.
_APART, _NEARER = 4.0, 3.0
# Orders of magnitude that are noted, and the least mean of a table that may be money.
_FAR, _LEAST_MONEY = 2.0, 10.0
# Standard errors of a first autocorrelation beyond which draws depend on each other; share of
# copies among draws beyond which they were pasted, and of a value that is a part of the law.
_DEPENDENT, _COPIES, _SHARED = 5.0, 0.01, 0.1
_KEYS = {"c": "costs", "e": "effects", "k": "wtp", "nb": "net_benefit"}


@dataclass(frozen=True)
class Outputs:
    """Costs and effects, or net benefits, of each decision option in each draw.

    Parameters
    ----------
    costs, effects
        Tables (n × D), one column an option. Options are matched by name; names that do not match
        are refused, and a matrix, which has none, has them in the same order. Effects are in units
        such as quality-adjusted years of life, of which one is worth `wtp`.
    wtp
        Willingness to pay: a number or several.
    net_benefit
        Instead of costs and effects: monetary net benefits (n × D).
    options
        Names of the options, for columns in the same order; default: names of the columns.
    as_given
        Accept costs and effects that look swapped by their names or sizes, which are refused.
    """

    costs: Any = None
    effects: Any = None
    wtp: Any = None
    net_benefit: Any = None
    options: tuple[str, ...] = field(default=())
    notes: tuple[str, ...] = field(default=(), compare=False)
    rows: Any = field(default=None, compare=False, repr=False)
    as_given: bool = field(default=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        parts = [name for name in ("costs", "effects", "wtp") if getattr(self, name) is not None]
        given = " and ".join(parts)
        if len(parts) != (3 if self.net_benefit is None else 0):
            given = f"net_benefit and {given}" if self.net_benefit is not None else given
            expected = "either costs, effects and wtp together, or net_benefit alone"
            raise InputError("outputs", given or "nothing", expected)
        tables = ("costs", "effects") if self.net_benefit is None else ("net_benefit",)
        frames = {n: clean(n, getattr(self, n), n) for n in tables}
        notes = [f"{n}: {note}" for n, frame in frames.items() for note in frame.attrs["notes"]]
        frames, moved, rows = aligned(frames)
        notes += moved
        for name, frame in frames.items():
            if frame.shape[1] < 2:
                advice = "For a single treatment against doing nothing, add a column of zeros."
                expected = "a column for each of at least two options"
                raise InputError(name, "one option only", expected, advice)
        widths = {name: frame.shape[1] for name, frame in frames.items()}
        if len(set(widths.values())) > 1:
            given = " and ".join(f"{width} options in {name}" for name, width in widths.items())
            raise InputError("costs and effects", given, "the same options in both")
        _check_distinct(frames)
        if len(frames) > 1 and not self.as_given:
            _check_swapped(frames["costs"], frames["effects"], _wtp(self.wtp))
        width = widths.popitem()[1]
        expected = "a name for each option: ('usual', 'new')"
        options = tuple(
            map(one_line, listed("options", () if self.options is None else self.options, expected))
        )
        if not options:
            options = tuple(map(str, next(iter(frames.values())).columns))
            if len(frames) > 1:
                order, matched, note = matched_options(frames["costs"], frames["effects"])
                frames["effects"], options = frames["effects"][order], tuple(matched)
                notes += [note] if note else []
        if len(options) != width or len(set(options)) < len(options):
            expected = f"{width} different names, one an option"
            raise InputError("options", f"{list(options)}", expected)
        if len(frames) > 1 and not self.as_given:
            notes += _doubts(frames, options, _wtp(self.wtp))
        rows = self.rows if rows is None else rows
        vars(self).update({name: frame.to_numpy() for name, frame in frames.items()})
        vars(self).update(options=options, wtp=None if self.wtp is None else _wtp(self.wtp))
        known = tuple(map(str, listed("notes", self.notes, "texts")))
        vars(self).update(rows=rows)
        notes += _dependence_notes(self)
        vars(self).update(notes=tuple(dict.fromkeys((*known, *notes))))

    def _repr_html_(self) -> str:
        """Means of each option, in a notebook."""
        given = {"cost": self.costs, "effect": self.effects} if self.net_benefit is None else {}
        means = {name: part.mean(axis=0) for name, part in given.items()}
        for k, benefit in zip(self.wtps, self.net_benefits().mean(axis=1), strict=True):
            means["net benefit" if np.isnan(k) else f"net benefit at {k:,.6g}"] = benefit
        cells = ([f"{mean:,.6g}" for mean in row] for row in zip(*means.values(), strict=True))
        rows = [[name, *row] for name, row in zip(self.options, cells, strict=True)]
        return grid(f"{self.n_rows:,} draws, means", ["option", *means], rows)

    @property
    def n_rows(self) -> int:
        return len(self.effects if self.net_benefit is None else self.net_benefit)

    @cached_property
    def n_effective(self) -> float:
        """Number of independent draws with the same standard errors.

        At most the distinct draws, and the draws over their integrated autocorrelation time (Geyer
        (1992), “Practical Markov chain Monte Carlo”), where either is beyond chance.
        """
        x = self.increments
        counts = pandas().DataFrame(x).value_counts(dropna=False).to_numpy()
        # A value of many draws, such as a bound, is no copy; discrete models have few values.
        is_bound = counts[0] > _SHARED * len(x)
        copies = len(x) - len(counts) - is_bound * (counts[0] - 1)
        is_pasted = copies > _COPIES * len(x) and len(counts) >= FEWEST_ROWS
        return min(len(counts) if is_pasted else len(x), len(x) / _autocorrelation_time(x))

    @property
    def n_options(self) -> int:
        return len(self.options)

    @property
    def wtps(self) -> list[float]:
        """The values of willingness to pay; NaN where net benefits were given."""
        return [np.nan] if self.wtp is None else [float(k) for k in self.wtp]

    def reference(self, name: str | None) -> int:
        """Index of the option that others are compared with; None is the first."""
        if name is None:
            return 0
        choice("reference", name, self.options)
        return self.options.index(name)

    def at(self, wtp: float | Sequence[float] | Array) -> Outputs:
        """Outputs with other values of willingness to pay."""
        if self.net_benefit is not None:
            raise InputError("wtp", "net benefits", "costs and effects", "Net benefits are fixed.")
        return replace(self, wtp=wtp, as_given=True)  # asked before, at the first

    def with_tables(self, table: Callable[[str], Array]) -> Outputs:
        """Outputs with other tables, as a function of their names, of the same options."""
        names = ("costs", "effects") if self.net_benefit is None else ("net_benefit",)
        tables: dict[str, Any] = {name: table(name) for name in names}
        return Outputs(**tables, wtp=self.wtp, options=self.options, as_given=True)

    def first(self, count: int) -> Outputs:
        """Outputs of the first draws."""
        return self.with_tables(lambda name: getattr(self, name)[:count])

    @cached_property
    def increments(self) -> Array:
        """Responses (n, q) of the regression: outputs of every option minus the first."""
        tables = [self.net_benefit] if self.net_benefit is not None else [self.costs, self.effects]
        return np.column_stack([table[:, 1:] - table[:, :1] for table in tables])

    def combined(self, increments: Array) -> list[Array]:
        """Net benefits (n, D) relative to the first option, one for each wtp, from increments."""
        # Option by option in memory: maxima over options are many times faster that way.
        columns = np.ascontiguousarray(increments.T)
        q = self.n_options - 1
        tables = []
        for k in self.wtps:
            table = np.zeros((self.n_options, columns.shape[1]))
            if self.net_benefit is not None:
                table[1:] = columns
            else:
                np.multiply(columns[q:], k, out=table[1:])
                table[1:] -= columns[:q]
            tables.append(table.T)
        return tables

    def weights(self, wtp: float, options: Array) -> Array:
        """Weights (n, q) of increments in a sum of net benefits with weights (n, D) of options."""
        if self.net_benefit is not None:
            return options[:, 1:]
        return np.column_stack((-options[:, 1:], wtp * options[:, 1:]))

    def net_benefits(self) -> Array:
        """Net benefits (W, n, D), for each willingness to pay."""
        if self.net_benefit is not None:
            return np.asarray(self.net_benefit)[None]
        stacked: Array = np.stack([k * self.effects - self.costs for k in self.wtps])
        return stacked


def _dependence_notes(outputs: Outputs) -> list[str]:
    """Notes on draws that are no independent ones."""
    n, effective = outputs.n_rows, outputs.n_effective
    if effective == n:
        return []
    return [
        f"{n:,} draws count as {effective:,.0f} in standard errors: they are copies of each other "
        "(was a block pasted twice?), or autocorrelated in their order (a Markov chain? If rows "
        "are sorted, bring all tables into the order of the draws)"
    ]


def _autocorrelation_time(x: Array) -> float:
    """Largest integrated autocorrelation time of columns (n, q), 1 of independent rows."""
    n = len(x)
    x = x - x.mean(axis=0)
    x = x[:, np.abs(x).max(axis=0) > 0]
    x = x / np.abs(x).max(axis=0)
    first = (x[1:] * x[:-1]).sum(axis=0) / np.square(x).sum(axis=0)
    x = x[:, first > _DEPENDENT / np.sqrt(n)]
    if not x.shape[1]:
        return 1.0
    power = np.square(np.abs(np.fft.rfft(x, 2 * n, axis=0)))
    covariance = np.fft.irfft(power, axis=0)[: n - n % 2]
    pairs = (covariance[::2] + covariance[1::2]) / covariance[0]
    # Sums of neighbors are positive until noise prevails.
    initial = np.logical_and.accumulate(pairs > 0, axis=0)
    times = 2.0 * (pairs * initial).sum(axis=0) - 1.0
    # A variance from so many independent blocks: the mean takes one of them, and Student's factor.
    blocks = np.maximum(n / (4 * initial.sum(axis=0)), 3.0)
    times *= blocks / (blocks - 1.0) * np.square(stdtrit(blocks - 1.0, 0.975) / NORMAL_95)
    return max(float(times.max()), 1.0)


def as_outputs(outputs: Any) -> Outputs:
    """Outputs from an `Outputs`, a table of net benefits, or costs, effects and wtp."""
    if isinstance(outputs, Outputs):
        return outputs
    if isinstance(outputs, Mapping):
        named = {_KEYS.get(str(key), str(key)): value for key, value in outputs.items()}
        if set(named) <= {"costs", "effects", "wtp", "net_benefit", "options"}:
            return Outputs(**named)
    if isinstance(outputs, tuple) and len(outputs) == 3:
        return Outputs(*outputs)
    return Outputs(net_benefit=outputs)


def matched_options(costs: pd.DataFrame, effects: pd.DataFrame) -> tuple[list[str], list[str], str]:
    """Columns of effects in the order of costs, names of the options, and a note.

    Names are compared as they are, then without case, punctuation and words such as cost and
    effect: ``cost_A`` and ``qaly_A`` are both A. A matrix has no names: its options are in the
    order of the other table.
    """
    c, e = list(map(str, costs.columns)), list(map(str, effects.columns))
    if c == e:
        return e, c, ""
    if len(c) == len(e) and (costs.attrs.get("unnamed") or effects.attrs.get("unnamed")):
        bare, other = ("costs", "effects") if costs.attrs.get("unnamed") else ("effects", "costs")
        note = f"options of {bare}, which have no names, are in the order of {other}"
        return e, (e if bare == "costs" else c), note
    if sorted(c) == sorted(e):
        return c, c, "options of effects are in the order of costs, by name"
    for short in (c, e), (plain_names(c, "costs"), plain_names(e, "effects")):
        plain_c, plain_e = ([name.casefold() for name in names] for names in short)
        if sorted(plain_c) == sorted(plain_e) and len(set(plain_c)) == len(c):
            order = [e[plain_e.index(name)] for name in plain_c]
            pairs = ", ".join(f"{a} with {b}" for a, b in zip(c, order, strict=True))
            options = [f"option {name}" if name.isdigit() else name for name in short[0]]
            return order, options, f"options matched by name: {pairs}"
    both = [", ".join(map(repr, names)) for names in (c, e)]
    given, expected = f"the options {both[0]} in costs and {both[1]} in effects", "the same names"
    advice = "Rename the columns, one name for each option."
    raise InputError("costs and effects", given, f"{expected} in both, in any order", advice)


def _check_distinct(frames: Mapping[str, pd.DataFrame]) -> None:
    """Refuse the same numbers as costs and as effects, such as one file that was given twice."""
    tables = [frame.to_numpy() for frame in frames.values()]
    if len(tables) > 1 and np.ptp(tables[0]) > 0 and np.array_equal(*tables):
        expected = "a table of costs and another one of effects"
        advice = "Was one file, or one column, given twice?"
        raise InputError("costs and effects", "the same numbers in both", expected, advice)


def _swapped(given: str) -> InputError:
    expected = "costs in money and effects in units such as QALYs"
    advice = "Are they swapped? Exchange the two tables; if they are right, say as_given."
    return InputError("costs and effects", given, expected, advice)


def _check_swapped(costs: pd.DataFrame, effects: pd.DataFrame, wtp: Array) -> None:
    """Refuse tables that look swapped: by names, or as their increments are of one size exchanged.

    In a decision the increments of costs and the value of increments of effects are comparable;
    orders of magnitude between them are accepted where exchanged tables would differ as widely.
    """
    names = [list(map(str, table.columns)) for table in (costs, effects)]
    if {*map(kind_of_name, names[0])} == {"effects"} or {*map(kind_of_name, names[1])} == {"costs"}:
        raise _swapped(f"costs of {', '.join(names[0])} and effects of {', '.join(names[1])}")
    k = float(np.median(wtp))
    apart, exchanged = _orders_apart(costs, effects, k)
    means = [float(np.abs(table.to_numpy()).mean()) for table in (costs, effects)]
    if apart < -_APART and abs(exchanged) < -apart - _NEARER and means[1] > means[0]:
        near = " and ".join(
            f"{name} near {x:,.0f}" if x >= 100 else f"{name} near {x:.3g}"
            for name, x in zip(("costs", "effects"), means, strict=True)
        )
        if means[1] < _LEAST_MONEY:
            advice = "Are costs in millions? Write them in full; if they are right, say as_given."
            expected = "costs in the currency of the willingness to pay, in full"
            raise InputError("costs and effects", near, expected, advice)
        raise _swapped(near)


def _orders_apart(costs: pd.DataFrame, effects: pd.DataFrame, wtp: float) -> tuple[float, float]:
    """Orders of magnitude from the value of increments of effects to increments of costs.

    As given, and with the tables exchanged; 0 where either has none.
    """
    c, e = (float(np.abs(np.diff(t.to_numpy(), axis=1)).mean()) for t in (costs, effects))
    if wtp <= 0 or min(c, e) <= 0:
        return 0.0, 0.0
    return float(np.log10(c / (wtp * e))), float(np.log10(e / (wtp * c)))


def _doubts(frames: Mapping[str, pd.DataFrame], options: Sequence[str], wtp: Array) -> list[str]:
    """Notes on numbers that are possible and unlikely: scale, signs, an option given twice."""
    notes = []
    costs, effects = frames["costs"], frames["effects"]
    apart = _orders_apart(costs, effects, float(np.median(wtp)))[0]
    if abs(apart) > _FAR:
        size, doubt = ("smaller", "are costs in thousands"), ("larger", "are effects so small")
        words = size if apart < 0 else doubt
        notes.append(
            f"differences of costs are {10 ** abs(apart):,.0f} times {words[0]} than differences "
            f"of effects at this willingness to pay: {words[1]}?"
        )
    for kind, frame in frames.items():
        is_negative = (frame < 0).all().to_numpy()
        if is_negative.any() and not (frame == 0).all().any():
            names = ", ".join(repr(options[int(d)]) for d in np.flatnonzero(is_negative))
            notes.append(f"{kind} of {names} are negative in all draws: is the sign right?")
    both = pandas().concat([costs.T, effects.T.set_axis(costs.columns)], axis=1)
    notes += [
        f"the option {name!r} repeats another one in costs and effects"
        for name, is_copy in zip(options, both.duplicated(), strict=True)
        if is_copy
    ]
    return notes


def _wtp(wtp: ArrayLike) -> Array:
    expected = "a number or several, none negative"
    values = np.atleast_1d(numbers("wtp", wtp, expected))
    if values.ndim != 1 or not values.size or not ((values >= 0) & (values < LARGEST)).all():
        raise InputError("wtp", shown(wtp), expected, "As 20_000.")
    return values


def input_table(outputs: Outputs, inputs: Any) -> pd.DataFrame:
    """The table of parameters, row by row the draws behind the outputs."""
    frame = clean("inputs", inputs, "parameters")
    check_rows({"outputs": outputs.n_rows, "inputs": len(frame)})
    moved, notes, _ = aligned({"inputs": frame}, outputs.rows)
    inputs = moved["inputs"]
    inputs.attrs = {**frame.attrs, "notes": (*frame.attrs["notes"], *notes)}
    return inputs
