"""Time of an estimation: the clock, a limit that long computations ask for, and the planner."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace

import numpy as np

from nestquad.errors import EvaluationError

_source: ContextVar[Callable[[], float]] = ContextVar("source", default=time.perf_counter)
_limit: ContextVar[float] = ContextVar("limit", default=float("inf"))


class OutOfTimeError(EvaluationError):
    """Time ran out before there was an answer, or a better one than the last."""


def now() -> float:
    """Seconds on the clock of this thread, ``time.perf_counter()`` unless another is in use."""
    return _source.get()()


@contextmanager
def use_clock(source: Callable[[], float]) -> Iterator[None]:
    """Let `now` read another clock in this thread: a simulated one, for tests and studies.

    Examples
    --------
    >>> with use_clock(lambda: 41.0):
    ...     now()
    41.0
    """
    token = _source.set(source)
    try:
        yield
    finally:
        _source.reset(token)


@contextmanager
def time_limit(at: float) -> Iterator[None]:
    """Let `tick` raise after `now` has passed `at`, in this thread."""
    token = _limit.set(at)
    try:
        yield
    finally:
        _limit.reset(token)


def tick() -> None:
    """Raise `OutOfTimeError` if time is up; to be called in loops that may take long."""
    if now() > _limit.get():
        raise OutOfTimeError(
            "time ran out before the evaluations were analysed",
            advice="Raise max_seconds, lower the budget, or use a method that learns nothing, "
            "such as 'nqmc'.",
        )


@dataclass(eq=False)
class TimeSplit:
    """Split of a time limit: the clock of one request, and measured seconds of each unit of work.

    The fit of a proposal gets a quarter of the time, as likelihoods improve the answer at the rate
    of Monte Carlo and a fit does not. The large step gets two fifths of the rest, and shows the
    cost of the last.
    """

    max_seconds: float | None = None
    fit_share: float = 0.25
    step_share: float = 0.4
    costs: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.started = now()

    def now(self) -> float:
        return now()

    @property
    def elapsed(self) -> float:
        return now() - self.started

    @property
    def left(self) -> float:
        """Seconds left; infinite without a limit."""
        return float("inf") if self.max_seconds is None else self.max_seconds - self.elapsed

    def room_for(self, share: float) -> Callable[[float], bool]:
        """Test whether a task of predicted seconds ends within a share of the time."""
        limit = float("inf") if self.max_seconds is None else share * self.max_seconds
        return lambda seconds: self.elapsed + seconds <= limit

    @contextmanager
    def measure(self, task: str, units: int) -> Iterator[None]:
        """Record the seconds of a unit of work."""
        begin = now()
        yield
        self.costs[task] = max(now() - begin, 1e-9) / units

    def affordable(self, task: str, most: int, share: float | None = None) -> int:
        """Number of units within a share of the time, at most `most`."""
        if self.max_seconds is None:
            return most
        share = self.fit_share if share is None else share
        return min(most, max(2, int(share * self.max_seconds / self.costs[task])))


@dataclass(frozen=True)
class Lateness:
    """Time after which an analysis that is under way ends without an answer.

    Evaluations start until the limit on seconds. Their analysis may end later by a share of the
    limit and some seconds, within the 1.1 times and 0.3 s that are promised.
    """

    share: float = 1.05
    seconds: float = 0.1

    def end(self, started: float, max_seconds: float) -> float:
        return started + self.share * max_seconds + self.seconds


@dataclass(frozen=True)
class AnalysisCost:
    """Seconds of a turn: fixed + a d n + b d n m for its analysis, and c (n + m) for evaluating g.

    A model is fitted to n points in d coordinates and compared with g at m fresh ones, each by a
    sum over all n points.

    Attributes
    ----------
    fixed, point, product
        The constants of the analysis, a and b among them: rough values, read off incomplete fits
        to turns of `risk.measure` (1,000 to 20,000 evaluations). Each turn corrects them.
    reference
        Seconds of `benchmark` on the machine where they were measured.
    kept
        Share of `fixed` that a turn with the fit of the last one takes.
    """

    fixed: float = 0.3
    point: float = 6.5e-6
    product: float = 2.5e-9
    reference: float = 8e-4
    kept: float = 1.0

    def seconds(self, n: float, m: float, dim: float, *, fitted: bool = True) -> float:
        """Seconds of an analysis, with a new fit or with that of the last turn."""
        fixed = self.fixed if fitted else self.kept * self.fixed
        return fixed + dim * n * (self.point * fitted + self.product * m)


def benchmark() -> float:
    """Seconds of a few milliseconds of the arithmetic that analyses consist of, the least of 3."""
    x, matrix = np.linspace(0.0, 1.0, 1 << 13), np.eye(96)
    times = []
    for _ in range(3):
        begin = now()
        for _ in range(20):
            t = x - 0.3
            np.abs(t, out=t)
            t -= 0.5
            t *= t
            _ = float(t @ x), matrix @ matrix
        times.append(now() - begin)
    return min(times)


@dataclass(frozen=True)
class TimePlan:
    """Forecast of the seconds of turns: one large step, and corrections by measured turns.

    Attributes
    ----------
    dim
        Coordinates of θ and x, as they weigh in the cost of an analysis.
    seconds_of_g
        Seconds of an evaluation of g.
    factor
        Seconds on this machine, under its present load, over the cost model's.
    share, corrected_share
        Share of the time left that a forecast may fill: it errs by a third before a turn has been
        seen, and by a tenth after that.
    last
        The last analysis with a new fit: seconds of the cost model, and seconds that it took.
    """

    dim: float
    seconds_of_g: float
    factor: float
    cost: AnalysisCost = AnalysisCost()
    share: float = 0.75
    corrected_share: float = 0.9
    last: tuple[float, float] = (0.0, 0.0)

    @classmethod
    def start(cls, dim: float, seconds_of_g: float, cost: AnalysisCost | None = None) -> TimePlan:
        """The plan before the first turn, from a benchmark of the machine."""
        cost = cost or AnalysisCost()
        return cls(dim, seconds_of_g, benchmark() / cost.reference, cost)

    @property
    def is_analysis(self) -> bool:
        """Whether the analysis of a point takes longer than its evaluation."""
        return self.seconds_of_g <= self.factor * self.dim * self.cost.point

    def seconds(self, n: float, m: float, new: float, *, fitted: bool = True) -> float:
        """Seconds of a turn that evaluates g at `new` points."""
        analysis = self.cost.seconds(n, m, self.dim, fitted=fitted)
        return self.factor * analysis + self.seconds_of_g * new

    def corrected(
        self, seconds: float, n: float, m: float, new: float, *, fitted: bool = True
    ) -> TimePlan:
        """The plan after a turn that has taken `seconds`.

        The factor is that of the turn, or of its growth since the last fit: fixed costs hide it.
        """
        took = max(seconds - self.seconds_of_g * new, 0.0)
        model, (model_before, took_before) = (
            self.cost.seconds(n, m, self.dim, fitted=fitted),
            self.last,
        )
        seen = took / model
        if fitted and model > 1.2 * model_before > 0.0:
            seen = max(seen, (took - took_before) / (model - model_before))
        # Loads come and go: a turn may be spared one, or be the only one that was held up.
        factor = min(max(took / model, seen, 0.5 * self.factor), 4.0 * self.factor)
        last = (model, took) if fitted else self.last
        return replace(self, factor=factor, share=self.corrected_share, last=last)

    def fits(self, seconds: float, left: float) -> bool:
        """Whether a turn of predicted seconds ends within the time left."""
        return seconds <= self.share * left

    def largest(self, predict: Callable[[int], float], left: float, most: float) -> int:
        """The largest number of at most `most` whose predicted seconds fit; 0 if none does."""
        low, high = 0, int(min(most, 1 << 40))
        if high > 0 and self.fits(predict(high), left):
            return high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.fits(predict(middle), left) else (low, middle)
        return low


# A turn of a joint lattice, where coordinates weigh 20 + d for each output, and outputs have fixed
# costs each: `python -m studies costs`, 72 turns on three shipped and four even problems, 300 to
# 30,000 evaluations. A tenth of the turns took four times the prediction or more, mostly with many
# polynomial terms, so `fixed` and `point` are rounded up from .03 and 9e-7. Turns with the fit of
# the last one, whose calibration is kept, took .1 to .7 of the time of the fit (six even problems).
LEARNING = AnalysisCost(fixed=0.06, point=1.5e-6, product=8e-10, reference=7e-4, kept=0.3)
