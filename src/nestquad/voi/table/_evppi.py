"""EVPI and EVPPI from a table: estimates, standard errors, intervals and flags."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtri

from nestquad._checks import generator, shown
from nestquad._frames import as_given
from nestquad._progress import ProgressLike, as_progress
from nestquad._threads import one_blas_thread
from nestquad._typing import Array, RNGLike
from nestquad.errors import InputError, unknown_name
from nestquad.result import NORMAL_95
from nestquad.voi.table._names import one_line
from nestquad.voi.table._numbers import pandas
from nestquad.voi.table._outputs import Outputs, as_outputs, input_table
from nestquad.voi.table._regression import (
    OutputRegression,
    has_trees,
    regress,
    stacked,
    unexplained,
)

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class EvppiSettings:
    """Levels of the tests behind flags, and sizes of samples.

    Chosen on even seeds of ``python -m studies promises`` (voi, voi_sets).
    """

    # Standard errors of the gain in held-out rows for a value above 0: a one-sided 5 % test.
    distinguished: float = 1.645
    # Standard errors of the mean held-out residual for a misfit: a two-sided 1 % test.
    misfit: float = 2.576
    # Levels of the one-sided tests of boosted trees against the splines, and of residuals of
    # neighbors: with `misfit`, at most 2 % of correct fits are flagged.
    ahead: float = 0.001
    neighbors: float = 0.001
    # Standard errors of the gain of boosted trees for a value above 0: a one-sided 1 % test.
    seen: float = 2.326
    # Share of a standard error below which a misfit does not matter, and the factor by which a
    # misfit of chosen options widens the interval for all options.
    least_miss: float = 0.25
    miss_factor: float = 2.0
    # Posterior draws, and their number for tables of more than `many_rows` rows.
    draws: int = 200
    fewer_draws: int = 100
    many_rows: int = 5_000
    # Rows below which a table is flagged: in all, and for each parameter of a set.
    few_rows: int = 300
    few_rows_each: int = 100
    # Share of a standard error below which differences between sets are noise.
    noise: float = 0.25


SETTINGS = EvppiSettings()


class Flag:
    """The texts of flags."""

    NOTHING = "not distinguishable from 0"
    MISFIT = "misfit: the cross-fitted value is shown"
    MISSED = "misfit, interactions: the value of a second fit is shown, at least this much"
    UNSEEN = "misfit, neighbors: it may be worth much more"
    FEW_ROWS = "too few rows"
    ABOVE_EVPI = "above EVPI"
    BELOW_MEMBER = "below its member {}"
    DEPENDENT = "dependent draws, as many as {:,.0f} independent ones"
    CONSTANT = "constant column {}"
    DUPLICATE = "column {} repeats {}"


@dataclass(frozen=True)
class Answer:
    """A value of information at one willingness to pay."""

    value: float
    se: float
    lower: float
    upper: float
    flags: tuple[str, ...] = ()

    def widened(self, outputs: Outputs) -> Answer:
        """Answer with errors of the number of independent draws of outputs."""
        if outputs.n_effective == outputs.n_rows:
            return self
        factor = np.sqrt(outputs.n_rows / outputs.n_effective)
        lower, upper = (
            self.value + factor * (end - self.value) for end in (self.lower, self.upper)
        )
        flags = (Flag.DEPENDENT.format(outputs.n_effective), *self.flags)
        is_nothing = lower <= 0 and Flag.NOTHING not in flags
        flags = (*flags, Flag.NOTHING) if is_nothing else flags
        return Answer(self.value, factor * self.se, max(lower, 0.0), upper, flags)

    def row(self, name: str, wtp: float, ceiling: Answer) -> dict[str, Any]:
        """A row of a table in which the value has this name; `ceiling` is EVPI."""
        return {
            "wtp": wtp,
            name: self.value,
            "se": self.se,
            "lower": self.lower,
            "upper": self.upper,
            f"{name}/evpi": self.value / ceiling.value if ceiling.value > 0 else np.nan,
            "flags": "; ".join(self.flags),
        }


@as_given
def evpi(outputs: Any) -> pd.DataFrame:
    """Expected value of perfect information (EVPI).

    Parameters
    ----------
    outputs
        A table of net benefits (n × D); an `Outputs`; a mapping with ``costs``, ``effects`` and
        ``wtp``; or a tuple of these three.

    Returns
    -------
    pd.DataFrame
        Table: one row for each willingness to pay, with columns wtp, evpi, se, lower, upper (95 %).

    Examples
    --------
    >>> import numpy as np
    >>> from nestquad import voi
    >>> gain = np.random.default_rng(0).normal(1.0, np.sqrt(5.0), size=10_000)
    >>> table = voi.evpi(np.column_stack((np.zeros_like(gain), gain)))
    >>> table.columns.tolist(), bool(abs(table.evpi[0] - 0.483) < 3 * table.se[0])
    (['wtp', 'evpi', 'se', 'lower', 'upper'], True)
    """
    known = as_outputs(outputs)
    rows = [
        {"wtp": k, "evpi": a.value, "se": a.se, "lower": a.lower, "upper": a.upper}
        for k, a in zip(known.wtps, perfect(known), strict=True)
    ]
    return pandas().DataFrame(rows)


@as_given
def evppi(
    outputs: Any,
    inputs: Any,
    pars: Any = "all singles",
    *,
    rng: RNGLike = 0,
    progress: ProgressLike = False,
    answers: MutableMapping[Any, list[Answer]] | None = None,
) -> pd.DataFrame:
    """Expected value of partial perfect information (EVPPI) about some parameters.

    Parameters
    ----------
    outputs
        As in `evpi`. Costs and effects are regressed once, for all values of willingness to
        pay.
    inputs
        DataFrame of the parameters (n × P), row by row the draws behind the outputs.
    pars
        A name, or a list of names for one set; a list of lists, or a mapping from labels to lists,
        for several; ``"all singles"`` for each parameter alone.
    rng
        Seed of folds and posterior draws. The same table gives the same numbers.
    progress
        True for a line in the terminal, or a callable ``(done, total, message)``.
    answers
        Answers of earlier calls on the same tables with the same seed, by set. Sets that are there
        are not computed again; the others are added.

    Returns
    -------
    pd.DataFrame
        Table with a row for each set and willingness to pay: pars, wtp, evppi, se, lower, upper (95
        %), evppi/evpi, and flags (caveats in words, or empty).

    Notes
    -----
    Nonparametric regression of Strong, Oakley and Brennan (2014), “Estimating multiparameter
    partial expected value of perfect information from a probabilistic sensitivity analysis
    sample”, by a Gaussian process on splines (Wahba (1990), “Spline models for observational
    data”). Where held-out rows contradict the fit (flag “misfit”), the estimate is the
    cross-fitted gain. Sets of several parameters are checked by boosted trees (extra ``boost``)
    and by residuals of neighboring rows (flags “interactions” and “neighbors”). The standard error
    is by the influence function of the estimate (Hampel (1974), “The influence curve and its role
    in robust estimation”); intervals that reach 0 join quantiles of posterior draws under
    Bayesian-bootstrap weights (Rubin (1981), “The Bayesian bootstrap”).

    Cost: O(n·p²) for each set, with p from 21 columns (one parameter) to about 400 (ten).

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> from nestquad import voi
    >>> rng = np.random.default_rng(0)
    >>> inputs = pd.DataFrame({"p1": rng.normal(1, 1, 5000), "p2": rng.normal(0, 2, 5000)})
    >>> benefit = np.column_stack((np.zeros(5000), inputs.p1 - inputs.p2))
    >>> table = voi.evppi(benefit, inputs)
    >>> table.pars.tolist()
    ['p1', 'p2']
    >>> bool(((table.lower < [0.0833, 0.3956]) & (table.upper > [0.0833, 0.3956])).all())
    True
    """
    known = as_outputs(outputs)
    frame = input_table(known, inputs)
    sets = parameter_sets(pars, frame.columns, frame.attrs["categories"])
    show = as_progress(progress, "sets")
    known_sets = kept_answers(answers)
    found: dict[str, list[Answer]] = {}
    for i, (label, members) in enumerate(sets.items()):
        show(i, len(sets), label)
        if members not in known_sets:
            columns = frame[list(members)]
            known_sets[members] = value_of_knowing(known, columns, generator(rng))
        found[label] = known_sets[members]
    show(len(sets), len(sets), "")
    if hasattr(show, "close"):
        show.close()
    ceiling = perfect(known)
    _mark_copies(frame, sets, found)
    flagged = group_flags(sets, found, ceiling)
    rows = [
        {"pars": label, **answer.row("evppi", k, limit)}
        for label in sets
        for k, answer, limit in zip(known.wtps, flagged[label], ceiling, strict=True)
    ]
    return pandas().DataFrame(rows)


def _mark_copies(
    frame: pd.DataFrame, sets: Mapping[str, tuple[str, ...]], found: dict[str, list[Answer]]
) -> None:
    """Flag sets with a parameter that is a copy of one in another set: they are worth the same."""
    used = list(dict.fromkeys(name for members in sets.values() for name in members))
    copies = columns_to_use(frame[used])[1]
    for label, members in sets.items():
        said = tuple(copies[name] for name in members if name in copies)
        found[label] = [
            replace(a, flags=(*(s for s in said if s not in a.flags), *a.flags))
            for a in found[label]
        ]


def perfect(outputs: Outputs) -> list[Answer]:
    """EVPI for each willingness to pay."""
    answers = []
    for benefits in outputs.net_benefits():
        default = int(benefits.mean(axis=0).argmax())
        gains = benefits.max(axis=1) - benefits[:, default]
        value, se = float(gains.mean()), _mean_se(gains)
        half = NORMAL_95 * se if gains.any() else _unseen_loss(benefits, default)
        answer = Answer(value, se, max(value - half, 0.0), value + half)
        answers.append(answer.widened(outputs))
    return answers


def _unseen_loss(benefits: Array, default: int) -> float:
    """95 % limit of EVPI where no draw favors another option.

    At most 3 / n of all draws do (Hanley and Lippman-Hand (1983), “If nothing goes wrong, is
    everything all right?”), with a loss like the mean excess of the smallest tenth of margins.
    """
    margins = np.sort(benefits[:, default] - np.delete(benefits, default, axis=1).max(axis=1))
    tail = margins[: max(len(margins) // 10, 1)]
    excess = float(tail.mean() - tail[0])
    # Differences of a constant leave rounding errors.
    return 3.0 / len(margins) * excess if excess > 1e-9 * float(np.abs(benefits).mean()) else 0.0


@one_blas_thread()
def value_of_knowing(
    outputs: Outputs, known: pd.DataFrame, rng: np.random.Generator, *, check: bool = True
) -> list[Answer]:
    """Value of knowing these columns (parameters, or summaries of a study), by wtp."""
    usable, left_out = columns_to_use(known)
    flags = tuple(left_out.values())
    if outputs.n_effective < max(SETTINGS.few_rows, SETTINGS.few_rows_each * len(usable)):
        flags = (*flags, Flag.FEW_ROWS)
    if not usable:
        nothing = Answer(0.0, 0.0, 0.0, 0.0, (*flags, Flag.NOTHING))
        return [nothing] * len(outputs.wtps)
    y, x = outputs.increments, known[usable].to_numpy()
    regression = regress(y, x, rng)
    drawn = _drawn(outputs, regression, rng)
    observed, fitted, held_out, means = map(
        outputs.combined, (y, regression.fitted, regression.held_out, regression.held_out_means)
    )
    seconds: list[Array | None] = [None] * len(observed)
    unseen = np.zeros(len(observed))
    if check and outputs.n_rows >= SETTINGS.few_rows:
        unseen = _unseen(np.array(observed) - np.array(fitted), x, rng)
        if len(usable) > 1 and has_trees():
            found = stacked(y, x, regression.fold, regression.held_out)
            seconds[:] = outputs.combined(found)
    errors = [
        _sampling_error(outputs, regression, k, y_k, fit_k)
        for k, y_k, fit_k in zip(outputs.wtps, observed, fitted, strict=True)
    ]
    parts: Any = zip(observed, fitted, held_out, means, drawn, errors, seconds, unseen, strict=True)
    return [_answer(flags, *part).widened(outputs) for part in parts]


def _sampling_error(
    outputs: Outputs, regression: OutputRegression, wtp: float, observed: Array, fitted: Array
) -> float:
    """Standard error of the estimate by the influence of each row on it (delta method)."""
    default = int(observed.mean(axis=0).argmax())
    changed = np.zeros_like(fitted)
    changed[np.arange(len(fitted)), fitted.argmax(axis=1)] = 1.0
    changed[:, default] -= 1.0
    gains = fitted.max(axis=1) - fitted[:, default]
    return _mean_se(gains + regression.influence(outputs.weights(wtp, changed)))


def _unseen(residuals: Array, inputs: Array, rng: np.random.Generator) -> Array:
    """The most that the fit may have missed (W,), from residuals (W, n, D); 0 where it shows none.

    A function of mean 0 and standard deviation τ adds at most τ/2 to the mean of a maximum, for
    each option that it concerns.
    """
    many, n, options = residuals.shape
    contrasts = residuals[:, :, 1:].transpose(1, 0, 2).reshape(n, -1)
    deviations, z = unexplained(contrasts, inputs, rng)
    shown = np.where(z > -ndtri(SETTINGS.neighbors / (options - 1)), deviations, 0.0)
    most: Array = shown.reshape(many, -1).sum(axis=1) / 2
    return most


def _drawn(outputs: Outputs, regression: OutputRegression, rng: np.random.Generator) -> Array:
    """EVPPI (W, k) of posterior draws, each under its own Bayesian-bootstrap weights.

    Information is worth most where options are equally good on average. Options that the table does
    not tell from the best one are taken to be: only upper limits are by these draws.
    """
    n = outputs.n_rows
    count = SETTINGS.draws if n <= SETTINGS.many_rows else SETTINGS.fewer_draws
    values = np.empty((len(outputs.wtps), count))
    ties = [_ties(benefits) for benefits in outputs.combined(regression.outputs)]
    for k, increments in enumerate(regression.draws(count, rng)):
        weights = rng.standard_exponential(n)
        weights /= weights.sum()
        for w, benefits in enumerate(outputs.combined(increments)):
            means = weights @ benefits
            means -= np.where(ties[w], means[ties[w]].max(), 0.0)
            benefits = benefits - np.where(ties[w], means, 0.0)
            values[w, k] = weights @ benefits.max(axis=1) - (weights @ benefits).max()
    return values


def _ties(benefits: Array) -> Array:
    """Options (D,) whose mean net benefit is within 1.96 standard errors of the largest."""
    gaps = benefits - benefits[:, [benefits.mean(axis=0).argmax()]]
    ties: Array = -gaps.mean(axis=0) <= NORMAL_95 * gaps.std(axis=0, ddof=1) / np.sqrt(len(gaps))
    return ties


def _answer(
    flags: tuple[str, ...],
    observed: Array,
    fitted: Array,
    held_out: Array,
    held_out_means: Array,
    drawn: Array,
    se: float,
    second: Array | None,
    unseen: float,
) -> Answer:
    """EVPPI from net benefits (n, D), observed and expected, and from posterior draws (k,).

    `se` is the standard error by the delta method, `second` are net benefits expected by the second
    regression from other rows, and `unseen` is the most that residuals of neighbors show missing.
    """
    rows = np.arange(len(observed))
    default = int(observed.mean(axis=0).argmax())
    value = max(float(fitted.max(axis=1).mean() - fitted.mean(axis=0).max()), 0.0)
    choice = fitted.argmax(axis=1)
    own_gains = observed[rows, choice] - observed[:, default]
    # Root mean square of the error of a fit with known scales and of no smoothing at all, which is
    # that of observed gains: the first alone is 15 % below measured errors, this within 5 %.
    own_se = _mean_se(own_gains)
    se = float(np.hypot(se, own_se)) / np.sqrt(2.0)
    # The delta method holds where its interval does not reach 0; elsewhere the draws do.
    exact = value > NORMAL_95 * se
    se = se if exact else max(se, float(drawn.std()))
    # Without noise in the table the smallest error stands out: it also has to matter.
    least_miss = SETTINGS.least_miss * se
    unseen = unseen if unseen > least_miss else 0.0
    choice = held_out.argmax(axis=1)
    gains = observed[rows, choice] - observed[:, default]
    gain, gain_se = float(gains.mean()), _mean_se(gains)
    second_gains = gains
    if second is not None:
        second_gains = observed[rows, second.argmax(axis=1)] - observed[:, default]
    second_gain, second_se = float(second_gains.mean()), _mean_se(second_gains)
    ahead = second_gains - gains
    if (
        not unseen
        and gain <= SETTINGS.distinguished * gain_se
        and second_gain <= SETTINGS.seen * second_se
    ):
        flags = (*flags, Flag.NOTHING)
    # The reference is the choice of the other rows: the best in all rows is selected by these as
    # well.
    other = held_out_means.argmax(axis=1)
    errors = observed - held_out
    surprises = errors[rows, choice] - errors[rows, other]
    missed = unseen
    if second is not None and _decides(observed, held_out, second, ahead, least_miss):
        flags = (*flags, Flag.MISSED)
        value, se = max(second_gain, 0.0), max(se, second_se)
        # Trees are a lower bound as well; EVPI is the limit of the missing value.
        default_gains = observed.max(axis=1) - observed[:, default]
        missed = max(float(default_gains.mean()) - value, 0.0)
    elif abs(surprises.mean()) > max(SETTINGS.misfit * _mean_se(surprises), least_miss):
        flags = (*flags, Flag.MISFIT)
        value, se = max(gain, 0.0), max(se, gain_se)
        # The fit may have missed the same amount in options that were not chosen.
        missed = max(missed, SETTINGS.miss_factor * abs(float(surprises.mean())))
    elif unseen:
        flags = (*flags, Flag.UNSEEN)
    half = NORMAL_95 * se
    low, high = np.quantile(drawn, (0.025, 0.975))
    if Flag.MISSED in flags or exact:
        low, high = value, value
    lower, upper = min(value - half, float(low)), max(value + half + missed, float(high))
    upper = max(upper, second_gain + half) if second_gain > value else upper
    # A fit too smooth to show all of the value gains more in its own rows: of one parameter where
    # that is beyond their noise, of several always, as products are smoothed more.
    if second is not None or own_gains.mean() - value > own_se:
        upper = max(upper, float(own_gains.mean()) + half)
    # Where no draw changes the choice, differences of means leave rounding errors.
    least = 1e-9 * float(np.abs(observed).mean())
    value, se, lower, upper = (
        0.0 if x < least else x for x in (value, se, 0.0 if Flag.NOTHING in flags else lower, upper)
    )
    # No draw of the fit changes the choice.
    upper = upper or _unseen_loss(fitted, default)
    return Answer(value, se, lower, upper, flags)


def _decides(
    observed: Array, held_out: Array, second: Array, ahead: Array, least_miss: float
) -> bool:
    """Whether the second regression replaces the first: it wins in held-out rows, beyond chance.

    It wins by its decisions (`ahead`, gains row by row), or by its predictions of net benefit
    where its decisions gain more as well.
    """
    if ahead.mean() <= least_miss:
        return False
    closer = (np.square(observed - held_out) - np.square(observed - second)).sum(axis=1)
    return any(bool(won.mean() > -ndtri(SETTINGS.ahead) * _mean_se(won)) for won in (ahead, closer))


def _mean_se(values: Array) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values)))


def columns_to_use(known: pd.DataFrame) -> tuple[list[str], dict[str, str]]:
    """Informative columns, without constants and copies, and flags for the others."""
    names = [str(name) for name in known.columns]
    values = known.to_numpy(dtype=float)
    centered = values - values.mean(axis=0)
    spread = np.abs(centered).max(axis=0)
    constant = spread <= 1e-12 * np.abs(values).max(axis=0)
    # Scaled twice: squares of very large or very small numbers leave the range of floats.
    units = centered / np.where(constant, 1.0, spread)
    units /= np.where(constant, 1.0, np.linalg.norm(units, axis=0))
    alike = np.abs(units.T @ units) > 1 - 1e-10
    usable: list[int] = []
    flags: dict[str, str] = {}
    for j, name in enumerate(names):
        twin = next((k for k in usable if alike[j, k]), None)
        if constant[j]:
            flags[name] = Flag.CONSTANT.format(name)
        elif twin is not None:
            flags[name] = Flag.DUPLICATE.format(name, names[twin])
        else:
            usable.append(j)
    return [names[j] for j in usable], flags


def group_flags(
    sets: Mapping[str, tuple[str, ...]], found: Mapping[str, list[Answer]], ceiling: list[Answer]
) -> dict[str, list[Answer]]:
    """Answers with flags from comparisons with their members and with EVPI."""
    flagged: dict[str, list[Answer]] = {}
    for label, answers in found.items():
        inside = [other for other in sets if set(sets[other]) < set(sets[label])]
        flagged[label] = []
        for w, answer in enumerate(answers):
            flags = list(answer.flags)
            best = max(inside, key=lambda name: found[name][w].value, default=None)
            if best is not None:
                member = found[best][w]
                if member.value - answer.value > SETTINGS.noise * max(member.se, answer.se):
                    flags.append(Flag.BELOW_MEMBER.format(best))
            flags += flags_against(answer, ceiling[w])
            flagged[label].append(replace(answer, flags=tuple(flags)))
    return flagged


def flags_against(answer: Answer, ceiling: Answer) -> list[str]:
    """A flag where an answer exceeds EVPI."""
    above = answer.value > ceiling.value + SETTINGS.noise * ceiling.se
    return [Flag.ABOVE_EVPI] if above else []


def kept_answers(
    answers: MutableMapping[Any, list[Answer]] | None,
) -> MutableMapping[Any, list[Answer]]:
    """Answers of earlier calls, or an empty dictionary."""
    if answers is None:
        return {}
    if not isinstance(answers, MutableMapping):
        raise InputError("answers", shown(answers), "a dictionary of earlier calls, {} at first")
    return answers


def parameter_sets(
    pars: Any, known: Iterable[str], categories: Mapping[str, tuple[str, ...]] | None = None
) -> dict[str, tuple[str, ...]]:
    """Named sets of parameters, from anything that `evppi` accepts.

    A category is known or not known as a whole: it stands for all its indicators, and each of them
    for the category.
    """
    indicators = categories or {}
    of = {one: label for label, members in indicators.items() for one in members}
    names = list(dict.fromkeys(of.get(name, name) for name in known))
    sets: dict[str, tuple[str, ...]]
    if pars is None or (isinstance(pars, str) and pars == "all singles" and pars not in names):
        sets = {name: (name,) for name in names}
    elif isinstance(pars, str):
        sets = {of.get(pars, pars): _members(pars, names, of)}
    elif isinstance(pars, Mapping):
        sets = {one_line(name): _members(one, names, of) for name, one in pars.items()}
    else:
        several = list(pars) if np.iterable(pars) else []
        if several and all(isinstance(one, str) for one in several):
            several = [several]
        sets = {
            " + ".join(members): members for members in (_members(x, names, of) for x in several)
        }
    if not sets:
        raise _unusable(pars)
    return {
        label: tuple(one for name in members for one in indicators.get(name, (name,)))
        for label, members in sets.items()
    }


def _members(one: Any, known: list[str], of: Mapping[str, str]) -> tuple[str, ...]:
    """Names of a set, categories instead of their indicators."""
    given = (one,) if isinstance(one, str) else tuple(one) if np.iterable(one) else ()
    if not given or not all(isinstance(member, str) for member in given):
        raise _unusable(one)
    members = tuple(dict.fromkeys(of.get(member, member) for member in given))
    for member in members:
        if member not in known:
            raise unknown_name("pars", member, known)
    return members


def _unusable(pars: Any) -> InputError:
    expected = "a parameter's name, a list of names, a list of such lists, a mapping from labels "
    return InputError("pars", shown(pars), f"{expected}to lists, or 'all singles'")
