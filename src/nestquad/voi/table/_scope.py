"""Scope of a submission: structural uncertainty, subgroups, implementation, enough draws."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np

from nestquad._checks import generator, is_number, shown
from nestquad._frames import as_given
from nestquad._typing import Array, RNGLike
from nestquad.errors import InputError, unknown_name
from nestquad.result import NORMAL_95
from nestquad.voi.table._decision import mean_row
from nestquad.voi.table._evppi import (
    Answer,
    evpi,
    evppi,
    kept_answers,
    parameter_sets,
    perfect,
    value_of_knowing,
)
from nestquad.voi.table._numbers import pandas
from nestquad.voi.table._outputs import Outputs, as_outputs, input_table
from nestquad.voi.table._tables import check_rows

if TYPE_CHECKING:
    import pandas as pd

# Draws of the means of net benefits, for intervals where options are nearly tied.
_DRAWS = 2_000
# A table is large enough where half-widths are below 5 % of EVPI: the width to which reports
# round. Fewest draws of a point of the curve, and number of halvings.
ENOUGH, _FEWEST, _HALVINGS = 0.05, 100, 4


@as_given
def scenarios(
    outputs: Mapping[str, Any], weights: Mapping[str, float], *, rng: RNGLike = 0
) -> pd.DataFrame:
    """Value of resolving structural uncertainty: of knowing which scenario holds.

    Parameters
    ----------
    outputs
        Outputs of the analysis under each scenario, as in `evpi`; draws may differ in number.
    weights
        Probability of each scenario; they add up to 1.
    rng
        Seed of the draws behind intervals.

    Returns
    -------
    pd.DataFrame
        Table with a row for each willingness to pay: wtp, best (option on average over scenarios),
        resolving (value of knowing the scenario), se, lower, upper (95 %), and evpi (value of
        knowing the scenario and its parameters) with evpi_se.

    Notes
    -----
    With means m_sd of net benefit, resolving = Σ_s w_s max_d m_sd − max_d Σ_s w_s m_sd: model
    averaging over structures, as in Jackson et al. (2009), “Accounting for uncertainty in health
    economic decision models by using model averaging”.
    """
    known, w = _weighted("scenarios", outputs, weights)
    first = known[0]
    source = generator(rng)
    rows = []
    for k, wtp in enumerate(first.wtps):
        benefits = [one.net_benefits()[k] for one in known]
        means = np.array([b.mean(axis=0) for b in benefits])
        best, own = int((w @ means).argmax()), means.argmax(axis=1)
        value = float(w @ means.max(axis=1) - (w @ means).max())
        gains = [b[:, d] - b[:, best] for b, d in zip(benefits, own, strict=True)]
        pairs = zip(benefits, known, strict=True)
        drawn = np.array([_drawn_means(*pair, source) for pair in pairs])  # (S, draws, options)
        mixed = np.tensordot(w, drawn, 1)
        low, high = np.quantile(w @ drawn.max(axis=2) - mixed.max(axis=1), (0.025, 0.975))
        se = _pooled(gains, w, known)
        losses = [b.max(axis=1) - b[:, best] for b in benefits]
        lower = max(min(value - NORMAL_95 * se, float(low)), 0.0)
        upper = max(value + NORMAL_95 * se, float(high))
        everything, error = float(w @ [loss.mean() for loss in losses]), _pooled(losses, w, known)
        row = {"wtp": wtp, "best": first.options[best], "resolving": value, "se": se}
        rows.append({**row, "lower": lower, "upper": upper, "evpi": everything, "evpi_se": error})
    return pandas().DataFrame(rows)


def _drawn_means(benefits: Array, outputs: Outputs, rng: np.random.Generator) -> Array:
    """Draws of the means of net benefits, normal with the covariance of the mean."""
    covariance = np.atleast_2d(np.cov(benefits.T)) / outputs.n_effective
    drawn: Array = rng.multivariate_normal(benefits.mean(axis=0), covariance, _DRAWS, method="eigh")
    return drawn


def _pooled(values: list[Array], weights: Array, outputs: list[Outputs]) -> float:
    """Standard error of a weighted sum of means of independent samples."""
    variances = [v.var(ddof=1) / one.n_effective for v, one in zip(values, outputs, strict=True)]
    return float(np.sqrt(np.square(weights) @ variances))


def _weighted(
    argument: str, outputs: Mapping[str, Any], weights: Mapping[str, float]
) -> tuple[list[Outputs], Array]:
    """Outputs with the same options and willingness to pay, and their weights, checked."""
    if not isinstance(outputs, Mapping) or not isinstance(weights, Mapping) or len(outputs) < 2:
        raise InputError(argument, shown(outputs), "two or more, by name, with weights by name")
    for name in weights:
        if name not in outputs:
            raise unknown_name("weights", str(name), map(str, outputs))
    values: list[Any] = [weights.get(name) for name in outputs]
    if not all(is_number(x) and x >= 0 for x in values) or abs(sum(values) - 1) > 1e-6:
        expected = f"a share for each of {', '.join(outputs)}, 1 in all"
        raise InputError("weights", shown(weights), expected)
    known = [as_outputs(one) for one in outputs.values()]
    for name, one in zip(outputs, known, strict=True):
        if one.options != known[0].options or not np.array_equal(one.wtps, known[0].wtps, True):
            told = [f"options {', '.join(o.options)} at {o.wtps}" for o in (one, known[0])]
            raise InputError(f"{argument} {name!r}", told[0], f"{told[1]}, as the first")
    return known, np.array(values, dtype=float)


@as_given
def subgroups(
    outputs: Mapping[str, Any],
    shares: Mapping[str, float],
    inputs: Any = None,
    pars: Any = "all singles",
    *,
    rng: RNGLike = 0,
    answers: MutableMapping[Any, list[Answer]] | None = None,
) -> pd.DataFrame:
    """Value of information by subgroup, for a stratified decision, and for one decision for all.

    Parameters
    ----------
    outputs
        Outputs of each subgroup, as in `evpi`, from the same draws of the parameters.
    shares
        Share of each subgroup in the population; they add up to 1.
    inputs, pars, rng, answers
        As in `evppi`; without `inputs`, EVPI alone.

    Returns
    -------
    pd.DataFrame
        Table with rows for each set (pars; “everything” is EVPI, “current information” the value of
        deciding by subgroup today), willingness to pay and decision (each subgroup, “stratified”
        for one choice in each, “one decision” for the same choice in all): pars, wtp, decision,
        share, value, se, lower, upper, flags. Intervals of “stratified” add up half-widths, which
        holds however correlated the errors are.
    """
    known, w = _weighted("subgroups", outputs, shares)
    check_rows({name: one.n_rows for name, one in zip(outputs, known, strict=True)})
    common = _mixture(known, w)
    kept = kept_answers(answers)
    tables = [_values(each, inputs, pars, rng, kept) for each in (*known, common)]
    parts = []
    for name, share, table in zip(outputs, w, tables, strict=False):
        parts.append(table.assign(decision=name, share=share))
    numbers = ["value", "se", "lower", "upper"]
    added = tables[0].copy()
    added[numbers] = sum(share * t[numbers] for share, t in zip(w, tables, strict=False))
    flags = [
        dict.fromkeys(f for f in row if f)
        for row in zip(*(t["flags"] for t in tables[:-1]), strict=True)
    ]
    added["flags"] = ["; ".join(row) for row in flags]
    parts.append(added.assign(decision="stratified", share=1.0))
    parts.append(tables[-1].assign(decision="one decision", share=1.0))
    today = []
    for k, wtp in enumerate(common.wtps):
        benefits = [outputs.net_benefits()[k] for outputs in known]
        best = int(common.net_benefits()[k].mean(axis=0).argmax())
        gain = sum(
            share * (b[:, b.mean(axis=0).argmax()] - b[:, best])
            for share, b in zip(w, benefits, strict=True)
        )
        row = {"pars": "current information", "wtp": wtp, "decision": "stratified", "share": 1.0}
        today.append({**row, **_mean_row(np.asarray(gain), common), "flags": ""})
    order = ["pars", "wtp", "decision", "share", *numbers, "flags"]
    return pandas().concat([*parts, pandas().DataFrame(today)], ignore_index=True)[order]


def _mixture(known: list[Outputs], weights: Array) -> Outputs:
    """Outputs of one decision for all: averages over subgroups."""
    return known[0].with_tables(
        lambda name: np.tensordot(weights, np.array([getattr(o, name) for o in known]), 1)
    )


def _values(
    outputs: Outputs, inputs: Any, pars: Any, rng: RNGLike, kept: MutableMapping[Any, list[Answer]]
) -> pd.DataFrame:
    """EVPI and EVPPI of a subgroup; answers are kept under a checksum of its outputs."""
    everything = evpi(outputs).assign(pars="everything", flags="")
    parts = [everything.rename(columns={"evpi": "value"})]
    if inputs is not None:
        code = sha256(np.ascontiguousarray(outputs.net_benefits()).tobytes()).hexdigest()[:16]
        own = {key[1:]: kept[key] for key in kept if key[0] == code}
        before = set(own)
        table = evppi(outputs, inputs, pars, rng=rng, answers=own)
        for key in own.keys() - before:
            kept[(code, *key)] = own[key]
        parts.append(table.rename(columns={"evppi": "value"}).drop(columns="evppi/evpi"))
    joined: pd.DataFrame = pandas().concat(parts, ignore_index=True)
    return joined


@as_given
def implementation(outputs: Any, shares: Mapping[str, float]) -> pd.DataFrame:
    """Value of perfect implementation: of everybody getting the option that is best on average.

    Parameters
    ----------
    shares
        Share of people who get each option in current practice; they add up to 1.

    Returns
    -------
    pd.DataFrame
        Table with a row for each willingness to pay: wtp, best, value (per person), se, lower,
        upper.

    Fenwick, Claxton and Sculpher (2008), “The value of implementation and the value of
    information: combined and uneven development”.
    """
    known = as_outputs(outputs)
    for name in shares:
        if name not in known.options:
            raise unknown_name("shares", str(name), known.options)
    w = np.array([float(shares.get(name, 0.0)) for name in known.options])
    if (w < 0).any() or abs(w.sum() - 1.0) > 1e-6:
        raise InputError("shares", shown(shares), "shares of the options, 1 in all")
    rows = []
    for k, benefits in zip(known.wtps, known.net_benefits(), strict=True):
        best = int(benefits.mean(axis=0).argmax())
        gain = benefits[:, best] - benefits @ w
        rows.append({"wtp": k, "best": known.options[best], **_mean_row(gain, known)})
    return pandas().DataFrame(rows)


def _mean_row(gain: Array, outputs: Outputs) -> dict[str, float]:
    """Mean of a gain that is not negative, with standard error and 95 % interval."""
    row = {k: float(v) for k, v in mean_row("value", gain, np.abs(gain).mean(), outputs).items()}
    return {**row, "lower": max(row["lower"], 0.0)}


@as_given
def convergence(
    outputs: Any,
    inputs: Any = None,
    pars: Any = None,
    *,
    rng: RNGLike = 0,
    answers: MutableMapping[Any, list[Answer]] | None = None,
) -> pd.DataFrame:
    """EVPI, and EVPPI of sets, from the first draws of a table: whether there are enough.

    Parameters
    ----------
    outputs, inputs, pars, rng, answers
        As in `evppi`; without `pars`, EVPI alone.

    Returns
    -------
    pd.DataFrame
        Table with a row for each set (“EVPI” first), number of draws, which doubles, and
        willingness to pay: pars, n, wtp, value, se, lower, upper, relative (half-width over EVPI),
        needed (draws for a half-width of 5 % of EVPI) and enough (whether all draws are).
    """
    known = as_outputs(outputs)
    n = known.n_rows
    sizes = [n >> k for k in range(_HALVINGS, -1, -1) if n >> k >= _FEWEST or k == 0]
    kept = kept_answers(answers)
    frame = None if pars is None else input_table(known, inputs)
    sets = {} if frame is None else parameter_sets(pars, frame.columns, frame.attrs["categories"])
    ceiling = perfect(known)
    rows = []
    for label, members in {"EVPI": (), **sets}.items():
        for m in sizes:
            part = known.first(m)
            key = members if m == n else ("first", str(m), *members)
            if frame is not None and members and key not in kept:
                columns = frame[list(members)].iloc[:m]
                kept[key] = value_of_knowing(part, columns, generator(rng), check=m == n)
            values = kept[key] if members else perfect(part)
            for k, answer, limit in zip(known.wtps, values, ceiling, strict=True):
                half = (answer.upper - answer.lower) / 2
                relative = half / limit.value if limit.value > 0 else 0.0
                row = {"pars": label, "n": m, "wtp": k, "value": answer.value, "se": answer.se}
                row |= {"lower": answer.lower, "upper": answer.upper, "relative": relative}
                needed = int(np.ceil(m * (relative / ENOUGH) ** 2))
                rows.append({**row, "needed": needed, "enough": relative <= ENOUGH})
    return pandas().DataFrame(rows)
