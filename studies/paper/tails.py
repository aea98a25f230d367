"""The theorem's high-probability statement: quantiles of the error against τ."""

from __future__ import annotations

import numpy as np

from nestquad.plots import SOFT, End, label_ends, new_axes, title
from studies.paper.curves import Array, Interval
from studies.paper.figures import line_looks, look
from studies.paper.part import Effort, Part, Runs
from studies.runner.ledger import Task, cells
from studies.runner.result import Drawing, Figure, Finding, Verdict
from studies.runner.text import number


def _tasks(effort: Effort) -> list[Task]:
    reps, nkq = effort.runs(300), effort.sizes(10, 32, 100)
    return [
        *cells("synthetic", "nkq N=T", nkq, reps),
        *cells("synthetic", "nkq-qmc N=T", nkq[:2], reps),
        *cells("synthetic", "nmc N=√T", effort.sizes(10), reps),
    ]


def _analyze(runs: Runs) -> list[Finding]:
    names = {"nkq N=T": "NKQ, N = T = {}", "nkq-qmc N=T": "NKQ (QMC), N = T = {}"}
    names["nmc N=√T"] = "NMC, N = √T = {}"
    errors = {
        label.format(size): values
        for series, label in names.items()
        for size, values in runs.errors("synthetic", series).items()
    }
    by_size = runs.errors("synthetic", "nkq N=T")
    largest = max(by_size)
    return [
        Finding(
            text=(
                "With probability at least 1 − 8 e^−τ, the theorem bounds the error by τ "
                "times the rate. So the quantile that 8 e^−τ of the runs exceed should grow "
                "no faster than linearly in τ. Above, quantiles in units of the median, beside "
                "those of an exponential distribution. Below, NKQ's quantiles in units of "
                "N⁻²(log N)³, the theorem's rate: one line C τ has to stay above all of them, and "
                "that is what the paper calls a sub-exponential tail.\n\n"
                "The slope ratio says how heavy a tail is at one size: how fast quantiles grow "
                "with τ where 10 % to 2 % of the runs exceed them, in units of how fast they grow "
                "where 50 % to 10 % do. An exponential tail has 1, a heavier one more. NKQ may "
                "have more without any conflict with the theorem, which bounds the error for "
                "all N together and whose logarithms leave room: now and then i.i.d. points "
                "leave a gap at an end of the interval, and the error grows with a power "
                "of the gap."
            ),
            drawing=Drawing(
                "tails",
                "Quantiles of |error| against τ, the theorem's exponent: above in units of the "
                "median, below NKQ in units of the theorem's rate.",
                lambda: _draw(errors, by_size),
            ),
            verdicts=(
                bound_holds(by_size),
                *(
                    tail(name, values)
                    for name, values in errors.items()
                    if name.startswith("NMC") or name == f"NKQ, N = T = {largest}"
                ),
            ),
        )
    ]


def heaviness(errors: Array, draws: int = 400) -> Interval:
    """Slope of the quantiles over log(1/p) from p = 0.1 to 0.02, over that from 0.5 to 0.1.

    One for an exponential tail; about 0.7 for that of a normal distribution.
    """
    rng = np.random.default_rng(0)
    fits = [_heaviness(rng.choice(errors, errors.size)) for _ in range(draws)]
    low, high = np.quantile(fits, [0.025, 0.975])
    return Interval(_heaviness(errors), float(low), float(high))


def _heaviness(errors: Array) -> float:
    half, tenth, few = np.quantile(errors, [0.5, 0.9, 0.98])
    return float((few - tenth) / np.log(5) / max((tenth - half) / np.log(5), 1e-300))


def tail(name: str, errors: Array) -> Verdict:
    """How heavy the tail is at one size, which the theorem does not speak of."""
    result = heaviness(errors)
    claim = f"{name}: slope ratio of the tail"
    ours = f"{result.value:.2f} ({result.low:.2f} to {result.high:.2f}); an exponential tail has 1"
    reason = f"{result} over {errors.size:,} runs; exponential is 1, heavier is more."
    return Verdict(claim, "–", ours, "ours", reason)


def bound_holds(by_size: dict[int, Array]) -> Verdict:
    """Whether one constant C makes error ≤ C τ N⁻²(log N)³ at all sizes and all τ."""
    needed = {n: _needed(n, errors) for n, errors in by_size.items()}
    sizes = sorted(needed)
    claim = "|error| ≤ C τ N⁻²(log N)³ with probability 1 − 8 e^−τ, one C for all N and τ"
    ours = ", ".join(f"N = {n}: C ≥ {number(needed[n])}" for n in sizes)
    reason = "The C that each size needs over all τ; it must not grow with N."
    first, last = needed[sizes[0]], needed[sizes[-1]]
    if last <= 1.5 * first:
        return Verdict(claim, "Theorem 1", ours, "holds", reason)
    status = "does not hold" if last > 3 * first else "cannot tell"
    return Verdict(claim, "Theorem 1", ours, status, reason)


def _needed(n: int, errors: Array) -> float:
    tau, quantiles = _by_tau(errors)
    return float((quantiles / tau).max() / _rate(n))


def _rate(n: int) -> float:
    return float(n**-2.0 * np.log(n) ** 3)


def _by_tau(errors: Array) -> tuple[Array, Array]:
    """τ = log(8 / share of runs that exceed), and the errors that they exceed."""
    ordered = np.sort(errors)
    above = (errors.size - np.arange(errors.size)) / errors.size
    return np.log(8 / above), ordered


def _draw(errors: dict[str, Array], by_size: dict[int, Array]) -> Figure:
    figure, (upper, lower) = new_axes(8.0, 8.0, rows=2)
    ends = []
    looks = dict(zip(errors, [*line_looks(5), look("nmc")], strict=False))
    for name, values in errors.items():
        tau, quantiles = _by_tau(values)
        style = look("nmc") if name.startswith("NMC") else looks[name]
        scaled = quantiles / np.median(values)
        upper.plot(tau, scaled, color=style.color, linestyle=style.dashes, linewidth=1.4)
        ends.append(End(float(scaled[-1]), name, style.color))
    reference = np.linspace(np.log(8) + 0.1, max(_by_tau(v)[0][-1] for v in errors.values()), 99)
    exponential = (reference - np.log(8)) / np.log(2)
    upper.plot(reference, exponential, color=SOFT, linewidth=0.8)
    ends.append(End(float(exponential[-1]), "exponential tail", SOFT))
    upper.set_yscale("log")
    upper.set_ylim(bottom=0.3)
    upper.set_ylabel("quantile of |error| / median (log scale)")
    title(upper, "", "how heavy the tails are")
    label_ends(upper, ends)
    ends = []
    for (n, values), style in zip(by_size.items(), line_looks(6), strict=False):
        tau, quantiles = _by_tau(values)
        scaled = quantiles / _rate(n)
        lower.plot(tau, scaled, color=style.color, linestyle=style.dashes, linewidth=1.4)
        ends.append(End(float(scaled[-1]), f"NKQ, N = T = {n}", style.color))
    constant = max(_needed(n, values) for n, values in by_size.items())
    ticks = np.linspace(np.log(8), lower.get_xlim()[1], 50)
    lower.plot(ticks, constant * ticks, color=SOFT, linewidth=0.8)
    ends.append(End(float(constant * ticks[-1]), f"C τ, C = {constant:.2g}", SOFT))
    lower.set_yscale("log")
    lower.set_ylim(bottom=1e-3 * constant)
    lower.set_ylabel("quantile of |error| / (N⁻² log³ N)  (log scale)")
    title(lower, "", "the theorem's bound")
    label_ends(lower, ends)
    for ax in (upper, lower):
        ax.set_xlabel("τ, with 8 exp(−τ) the share of runs that exceed the quantile")
    return figure


PARTS = (
    Part(
        name="tails",
        title="Tails of the error",
        source="Theorem 1 and the remark after it",
        about="Many runs of NKQ and NMC on the synthetic problem at a few sizes.",
        tasks=_tasks,
        analyze=_analyze,
    ),
)
