"""Verdicts, computed: whether a claim holds in these data.

Each function takes numbers with their uncertainty and says so in words. A claim that the data
leave open is called open, never true.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from studies.paper.curves import Curve, Interval, common_cost, gain, gains
from studies.runner.result import Status, Verdict
from studies.runner.text import factor, number

# Exponents within a tenth of the claimed one are the same exponent: the paper's own fits differ
# from theory by up to that much.
_SLACK = 0.10
_FEWEST_SIZES = 3


def exponent(
    claim: str, curve: Curve, target: float, paper: str, *, faster: Status = "holds better"
) -> Verdict:
    """The exponent r of cost ∝ Δ^-r against a claimed one; smaller is better.

    `faster` is the verdict on an exponent that is clearly smaller: it is to the credit of the
    paper's own methods, satisfies a bound, and contradicts what is claimed of a rival.
    """
    if len(curve.costs) < _FEWEST_SIZES:
        few = f"{len(curve.costs)} sizes do not make an exponent."
        return Verdict(claim, paper, "not fitted", "cannot tell", few)
    r = curve.exponent
    if r.low > target * (1 + _SLACK):
        status, why = "does not hold", f"clearly slower than {target:g}"
    elif r.high < target * (1 - _SLACK):
        status, why = faster, f"clearly faster than {target:g}"
    elif r.high - r.low > target:
        status, why = "cannot tell", "too wide to tell"
    elif r.value <= target * (1 + _SLACK):
        status, why = "holds", f"not clearly different from {target:g}"
    else:
        status, why = "cannot tell", f"neither clearly slower than {target:g} nor as fast"
    reason = f"The 95 % interval of r is {r.low:.2f} to {r.high:.2f}: {why}."
    better = status == faster == "does not hold" and r.high < target
    words = ": better here than the paper's" if better else ""
    return Verdict(claim, paper, f"r = {r.value:.2f}{words}", status, reason)


def outperforms(claim: str, one: Curve, other: Curve, paper: str, least: float = 1.0) -> Verdict:
    """Whether the first has an error at least `least` times smaller at every common cost."""
    result = gains(one, other)
    if not result:
        return Verdict(claim, paper, "no common cost", "cannot tell", "The costs do not overlap.")
    worst_cost, worst = min(result, key=lambda pair: pair[1].value)
    best_cost, best = max(result, key=lambda pair: pair[1].value)
    ours = f"the other's error is {factor(worst.value)} to {factor(best.value)} its own"
    if worst.high < least:
        reason = f"At {worst_cost:,.0f} evaluations its error is {_beside(worst.value)}."
        if best.low > least:
            reason += f" At {best_cost:,.0f} it is {_beside(best.value)}."
            ours = f"the other's error is {factor(best.value)} its own at {best_cost:,.0f} "
            ours += f"evaluations, {factor(worst.value)} at {worst_cost:,.0f}"
        return Verdict(claim, paper, ours, "does not hold", reason)
    if worst.low >= least:
        reason = f"True at all {len(result)} costs, by {factor(worst.value)} or more."
        return Verdict(claim, paper, ours, "holds", reason)
    reason = f"At {worst_cost:,.0f} evaluations the ratio of errors is {worst}: not told apart."
    return Verdict(claim, paper, ours, "cannot tell", reason)


def somewhere(claim: str, pairs: Mapping[str, tuple[Curve, Curve]], paper: str) -> Verdict:
    """Whether the first of a pair has the clearly smaller error at some costs of some problems."""
    results = {name: [ratio for _, ratio in gains(*pair)] for name, pair in pairs.items()}
    cells = [ratio for own in results.values() for ratio in own]
    ahead, behind = sum(r.low > 1 for r in cells), sum(r.high < 1 for r in cells)
    words = f"clearly smaller in {ahead} of {len(cells)} cells, clearly larger in {behind}"
    each = (f"{name} {', '.join(factor(r.value) for r in own)}" for name, own in results.items())
    reason = f"The other's error in units of its own, the cheapest cost first: {'; '.join(each)}."
    # One cell of a dozen is clearly ahead by chance in a quarter of all cases.
    status: Status = "holds" if ahead > 1 else "cannot tell"
    status = "does not hold" if behind == len(cells) else status
    return Verdict(claim, paper, words, status, reason)


def with_sensitivity(verdict: Verdict, setting: str, otherwise: Verdict) -> Verdict:
    """The verdict beside what it is with another setting."""
    return replace(verdict, sensitivity=f"{setting}: {otherwise.measured} ({otherwise.status})")


def improvement(claim: str, ours: Curve, published: Curve) -> Verdict:
    """How much smaller our error is at the largest cost of both; the paper does not speak of it."""
    cost = common_cost(ours, published)
    result = gain(ours, published, cost)
    if not np.isfinite(result.value):
        return Verdict(claim, "–", "no common cost", "ours", "The costs do not overlap.")
    text = f"{_beside(result.value)} error ({number(ours.at(cost))})"
    paper = f"{number(published.at(cost))} (its configuration, run here)"
    reason = (
        f"95 % interval {factor(result.low)} to {factor(result.high)} at {cost:,.0f} evaluations."
    )
    return Verdict(claim, paper, text, "ours", reason)


def above_one(claim: str, paper: str, ours: str, ratio: Interval, reason: str) -> Verdict:
    """Whether a ratio is above one."""
    status = "holds" if ratio.low > 1 else "does not hold" if ratio.high < 1 else "cannot tell"
    return Verdict(claim, paper, ours, status, reason)


def _beside(ratio: float) -> str:
    return f"{factor(1 / ratio)} larger" if ratio < 1 else f"{factor(ratio)} smaller"
