"""Methods that get better with time: each replicate a staircase, and who is ahead at equal time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from studies.paper.curves import Array, Interval
from studies.runner.ledger import Run
from studies.runner.result import Status, Verdict
from studies.runner.text import factor, number

# Below this an optimum is found, and how exactly says nothing about the method.
_FLOOR = 1e-10
_TIMES = 12
# Fewer pairs of runs than this prove nothing, whatever a bootstrap of them says.
_FEWEST = 6
_DRAWS = 1000
# A ratio within this of one is no difference that anybody would choose a method by.
SLACK = 0.9


@dataclass(frozen=True)
class Race:
    """Replicates of one method, after 0, 1, 2, … iterations: (replicates, iterations + 1) each."""

    wall: Array
    cpu: Array
    error: Array

    def at(self, seconds: float) -> Array:
        """The error of each replicate that is known by this wall-clock time."""
        done = np.maximum((self.wall <= seconds).sum(axis=1) - 1, 0)
        known: Array = self.error[np.arange(len(done)), done]
        return known

    @property
    def by_cpu(self) -> Race:
        """The same with CPU time, which is that of the clock where nobody else uses the machine."""
        return replace(self, wall=self.cpu)

    @property
    def by_iteration(self) -> Race:
        """The same with iterations in place of seconds."""
        numbers = np.arange(self.error.shape[1], dtype=float)
        return replace(self, wall=np.broadcast_to(numbers, self.error.shape))

    @property
    def first(self) -> float:
        """When the first iteration is typically done."""
        return float(np.median(self.wall[:, 1]))

    @property
    def last(self) -> float:
        """When the last one is."""
        return float(np.median(self.wall[:, -1]))

    @property
    def medians(self) -> Array:
        return self.quantiles(0.5)

    def quantiles(self, share: float) -> Array:
        """Of the error, after each iteration."""
        result: Array = np.quantile(self.error, share, axis=0)
        return result


def race_of(runs: Sequence[Run]) -> Race:
    """The traces of replicates, which are JSON with lists ``wall``, ``cpu`` and ``error``."""
    traces = [json.loads(run.trace) for run in runs]
    wall, cpu, error = (np.array([t[key] for t in traces]) for key in ("wall", "cpu", "error"))
    return Race(wall, cpu, np.maximum(error, _FLOOR))


@dataclass(frozen=True)
class Lead:
    """How many times smaller the first one's median error is, at equal wall-clock time.

    `average` is the geometric mean over the time that both cover, `final` the ratio at its end.
    """

    since: float
    until: float
    average: Interval
    final: Interval


def lead(one: Race, other: Race) -> Lead:
    """The first beside the second. Replicates are pairs: they begin at the same points."""
    until = min(one.last, other.last)
    since = min(max(one.first, other.first), until)
    times = np.geomspace(since, until, _TIMES)
    ones, others = (np.log([race.at(t) for t in times]) for race in (one, other))
    rng = np.random.default_rng(0)
    pairs = ones.shape[1]
    drawn = rng.integers(0, pairs, (_DRAWS, pairs))
    # (times, draws): medians of resampled replicates.
    ratios = np.median(others[:, drawn], axis=2) - np.median(ones[:, drawn], axis=2)
    plain = np.median(others, axis=1) - np.median(ones, axis=1)
    return Lead(
        float(since),
        float(until),
        _interval(plain.mean(), ratios.mean(axis=0)),
        _interval(plain[-1], ratios[-1]),
    )


def _interval(value: float, draws: Array) -> Interval:
    low, high = np.quantile(draws, [0.025, 0.975])
    return Interval(float(np.exp(value)), float(np.exp(low)), float(np.exp(high)))


def no_worse(claim: str, one: Race, other: Race, paper: str, unit: str = "s") -> Verdict:
    """Whether the first has no larger error than the second at equal time (or iterations)."""
    result = lead(one, other)
    average = result.average
    ours = f"the other's error is {factor(average.value)} its own"
    status: Status
    if len(one.error) < _FEWEST:
        status = "cannot tell"
    elif average.high < 1:
        status = "does not hold"
    elif average.low >= SLACK:
        status = "holds"
    else:
        status = "cannot tell"
    since, until = number(result.since), number(result.until)
    when = (
        f"over {since} to {until} {unit}" if result.since < result.until else f"at {until} {unit}"
    )
    reason = f"Ratio of medians {when}: {_words(result.average)}"
    if result.since < result.until:
        reason += f" on geometric average, {_words(result.final)} at the end"
    else:
        reason += ", where the slower of the two has hardly finished its first iteration"
    reason += f"; {len(one.error)} pairs of runs."
    return Verdict(claim, paper, ours, status, reason)


def _words(ratio: Interval) -> str:
    """Ratios go over many orders of magnitude where one of two has found the optimum."""
    return f"{number(ratio.value)} ({number(ratio.low)} to {number(ratio.high)})"
