"""Expected information gain: the request, a pilot where it helps, and the answer of two routes."""

from __future__ import annotations

import time
import warnings
from concurrent.futures import Executor
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from nestquad._checks import number
from nestquad._clock import OutOfTimeError
from nestquad._progress import ProgressLike
from nestquad._typing import Array, RNGLike
from nestquad.design._experiment import Experiment, check_experiment
from nestquad.design._learned import Learned, Population, learn
from nestquad.design._proposal import NEAR_DRAWS
from nestquad.distributions import Empirical
from nestquad.errors import InputError, NestquadWarning
from nestquad.estimate import check_limits, estimate
from nestquad.methods import NQMC
from nestquad.points import Stream
from nestquad.problem import NestedExpectation
from nestquad.result import NORMAL_95, Estimate

# Simulations by default: at most half of them for the fit, half for E[log q].
SIMULATIONS = 2**16
# Inner points: enough for two halves of which each has a meaning, doubled where a pilot of an
# eighth of the budget shows a bias.
N_INNER, _PILOT = 16, 0.125
_FEWEST_PILOT = 512
# Of the budget, for data whose posterior the draws miss.
_RESERVE = 1.0 / 16.0
_LOW_SAMPLE_SIZE = 0.1
_FEWEST_DATA = 16  # that can tell whether routes disagree: blocks of two
LOWER_BOUND = "lower bound"  # status and method of a simulator alone
# Of KL(posterior ‖ q) over data: chosen, not derived. With 2, intervals of nonlinear regressions
# (even seeds, 1,000 likelihoods) were too short; smaller ones lengthen those of all others.
_TAIL_INDEX = 5.0 / 3.0
_NEGLIGIBLE = 0.01  # nats by which routes may differ without a warning


@dataclass(frozen=True)
class Gain(Estimate):
    """An estimate of what a design gains.

    `common` are means of blocks (16,) of simulations. Designs with the same seed share the random
    numbers of each block, so that their errors are correlated as these means are.
    """

    common: Array | None = field(default=None, repr=False)

    @classmethod
    def of(cls, found: Estimate, **changes: Any) -> Gain:
        return cls(**{**{one.name: getattr(found, one.name) for one in fields(found)}, **changes})

    @property
    def summary(self) -> str:
        """Value ± half-width of the 95 % interval; a lower bound is called one."""
        text = super().summary
        return f"at least {text}" if self.method == LOWER_BOUND else text

    def __str__(self) -> str:
        return super().__str__().replace(" evaluations", " likelihoods", 1)

    def _repr_html_(self) -> str:
        name = "lower bound" if self.method == LOWER_BOUND else "value"
        text = super()._repr_html_().replace(">value<", f">{name}<", 1)
        return text.replace(">evaluations of g<", ">likelihoods<", 1)


def eig(
    experiment: Experiment,
    design: Any,
    *,
    budget: int | None = None,
    tol: float | None = None,
    rtol: float | None = None,
    max_seconds: float | None = None,
    simulations: int | None = None,
    rng: RNGLike = None,
    executor: Executor | None = None,
    progress: ProgressLike = False,
) -> Gain:
    """Expected information gain of an experiment under a design, in nats.

    It is the mutual information of data and parameters (of the targets, if there are any): the
    expected divergence of posterior from prior.

    Parameters
    ----------
    experiment, design
        The experiment, and the design that its functions are called with.
    budget
        The most evaluations of `log_prob`.
    tol, rtol
        Stop when the half-width of the 95 % interval is at most `tol`, or `rtol` times the gain.
    max_seconds
        Start no evaluations after this time. Alone, it asks for the best answer in that time.
    simulations
        The most simulations, which are not counted by `budget`; default 65,536.
    rng
        Anything that ``numpy.random.default_rng`` takes. The same seed gives the same bits, and
        common random numbers for different designs.
    executor, progress
        As in `nestquad.estimate`.

    Returns
    -------
    Gain
        An `Estimate` whose `diagnostics` have ``lower_bound`` and its standard error, the
        ``effective_sample_size`` of the inner draws as a share, ``components`` of the proposal,
        ``simulations``, and ``routes``, the two ways to the same number. An experiment without
        `log_prob` gets the lower bound itself, with the status ``"lower bound"``; so does one whose
        time ended before any likelihood, with the status ``"time"``.

    Examples
    --------
    >>> import numpy as np
    >>> import nestquad as nq
    >>> from nestquad import design
    >>> coin = design.Experiment(
    ...     prior=nq.Uniform(0, 1),
    ...     log_prob=lambda y, p, n: (y * np.log(p) + (n - y) * np.log1p(-p))[..., 0],
    ...     simulate=lambda p, u, n: (u < p).sum(axis=-1, keepdims=True),
    ...     noise=nq.Uniform(np.zeros(3), 1.0),
    ... )
    >>> est = design.eig(coin, 3, budget=2000, rng=0)
    >>> bool(abs(est.value - 0.4356) < 0.02)
    True
    """
    check_experiment(experiment)
    started, n_simulations = time.perf_counter(), check_simulations(simulations)
    budget = check_limits(budget, tol, rtol, max_seconds)
    goals = (budget, tol, rtol, max_seconds)
    if experiment.log_prob is not None and all(goal is None for goal in goals):
        raise InputError(
            "budget",
            "neither a budget nor a tolerance nor a time",
            "one of them",
            "For instance budget=10_000, tol=0.01 or max_seconds=10.",
        )
    if experiment.certain:
        return nothing_to_learn(experiment)
    learned = learn(experiment, design, n_simulations, Stream.from_rng(rng), max_seconds)
    run = _Run(learned, started, budget, tol, rtol, max_seconds, executor, progress)
    if experiment.log_prob is None:
        return run.bound()
    found = run.estimated()
    for text in found.warnings:
        warnings.warn(text, NestquadWarning, stacklevel=2)
    return found


def nothing_to_learn(experiment: Experiment) -> Gain:
    """The answer where the prior is certain: nothing is gained."""
    note = "all samples of the prior are the same: there is nothing to learn"
    return Gain(
        value=0.0,
        std_error=0.0,
        n_evaluations=0,
        n_outer=1,
        n_inner=1,
        method="exact",
        problem=experiment.name or "information gain",
        diagnostics={"notes": [note]},
    )


def check_simulations(simulations: int | None) -> int:
    if simulations is None:
        return SIMULATIONS
    expected = "a whole number of at least 512: the proposal is learned from a half of them"
    value = number("simulations", simulations, expected, above=511)
    if not value.is_integer():
        raise InputError("simulations", repr(simulations), expected)
    return int(value)


@dataclass(frozen=True)
class _Repair:
    """What other draws change where the draws of the proposal missed the posterior.

    `share` of such data, `change` of the gain and of KL(posterior ‖ q) in all (`total`), nats in
    `doubt`, and the variance and the likelihoods of all that.
    """

    share: float = 0.0
    change: float = 0.0
    total: float = 0.0
    doubt: float = 0.0
    variance: float = 0.0
    n_evaluations: int = 0


@dataclass(frozen=True, eq=False)
class _Run:
    """One estimation with proposals that are learned."""

    learned: Learned
    started: float
    budget: int | None
    tol: float | None
    rtol: float | None
    max_seconds: float | None
    executor: Executor | None
    progress: ProgressLike

    @cached_property
    def n_base(self) -> int:
        """Simulations for E[log q]: a power of two, as Sobol points are best in those."""
        n, law = self.learned.simulations - self.learned.n_fit, self.learned.experiment.prior_law
        if isinstance(law, Empirical):  # log q of all samples at each y: a second or two
            n = min(n, max(2**24 // len(law.samples), 512))
        return 1 << (n.bit_length() - 1)

    @cached_property
    def population(self) -> Population:
        return self.learned.population(self.n_base)

    def goal(self, value: float) -> float:
        """The half-width that is asked for; 0 for none."""
        return max(self.tol or 0.0, (self.rtol or 0.0) * abs(value))

    def estimated(self) -> Gain:
        problem, spent, each = self.population.problem(), 0, self.learned.each
        room = None if self.budget is None else (self.budget - len(self.learned.at_truth)) // each
        if room is not None:  # each datum costs a likelihood at the θ that made it
            room = int(room * (1.0 - _RESERVE) * N_INNER / (N_INNER + 1))
        if room is not None and room < 2 * N_INNER:
            least = 40 * each + len(self.learned.at_truth)
            raise InputError("budget", f"{self.budget} likelihoods", f"at least {least}")
        adaptive = self.tol is not None or self.rtol is not None or room is None
        pilot, n_inner = None, N_INNER
        if adaptive or (room is not None and room * _PILOT >= _FEWEST_PILOT):
            # Towards a tolerance the budget is a limit, perhaps a remote one.
            size = max(0 if adaptive else int((room or 0) * _PILOT), _FEWEST_PILOT)
            pilot = self._nested(problem, 1, N_INNER, size if room is None else min(room, size))
            if pilot is None:
                return self.bound("time")
            spent += pilot.n_evaluations * each
            if room is not None:
                room -= pilot.n_evaluations
                n_inner = _inner_size(pilot, room)
                if room < 2 * N_INNER:
                    return self._assembled(pilot, pilot, self._share(pilot), spent)
        if not adaptive:
            found = self._nested(problem, 0, n_inner, room)
            if found is None:
                return self.bound("time") if pilot is None else self._late(pilot, spent)
            spent += found.n_evaluations * each
            return self._assembled(found, found, self._share(found), spent)
        assert pilot is not None
        share = self._share(pilot)
        mix = np.array([1.0 - share, share])
        asked = self.goal(float(mix @ (self.population.base[:2] + np.asarray(pilot.value)[:2])))
        combined = replace(problem, combine=lambda answers: mix @ answers[:2])
        spare = NORMAL_95 * float(np.sqrt(mix @ self.population.covariance[:2, :2] @ mix))
        if spare > asked > 0.0:  # no likelihood helps
            return self._assembled(pilot, pilot, share, spent)
        # Beyond this, all simulated data have been seen with several times the draws.
        if asked > 0.0:
            enough = 4 * N_INNER * self.n_base
            room = enough if room is None else min(room, enough)
        # Errors add up by squares; a tenth of the tolerance is the least to aim at.
        goal = float(np.sqrt(max(asked**2 - spare**2, 0.01 * asked**2)))
        answer = None
        while True:
            found = self._nested(combined, 0, None, room, goal or None)
            if found is None:
                return answer or self._late(pilot, spent)
            spent += found.n_evaluations * each
            answer = self._assembled(found, pilot, share, spent)
            room = None if room is None else room - found.n_evaluations
            goal /= 2.0
            # Parts of the error that the loop does not see need more data too.
            if (
                asked == 0.0
                or found.status != "converged"
                or answer.status == "converged"
                or goal < 0.05 * asked
                or (room is not None and room < 2 * found.n_evaluations)
            ):
                return answer

    def _nested(
        self,
        problem: NestedExpectation,
        child: int,
        n_inner: int | None,
        budget: int | None,
        tol: float | None = None,
    ) -> Estimate | None:
        """An estimate, or None if time ran out before there was one."""
        left = None
        if self.max_seconds is not None:
            left = max(self.max_seconds - (time.perf_counter() - self.started), 1e-3)
        try:
            found = estimate(
                problem,
                budget=budget,
                tol=tol,
                method=NQMC(n_inner=n_inner, jackknife=True),
                rng=self.learned.stream.child(4, child),
                executor=self.executor,
                progress=self.progress,
                max_seconds=left,
            )
        except OutOfTimeError:
            return None
        return None if found.sample is None else found

    def _late(self, pilot: Estimate, spent: int) -> Gain:
        """The answer of a pilot, after which time ran out."""
        return replace(self._assembled(pilot, pilot, self._share(pilot), spent), status="time")

    def _share(self, found: Estimate) -> float:
        """Share of route B in the answer of least variance."""
        assert found.sample is not None
        # By single θ: the covariance of a few blocks would be small by luck for some share.
        rows = found.sample.f[:, :2]
        covariance = np.cov(rows, rowvar=False) / found.n_outer
        (a, c), (_, b) = covariance + self.population.covariance[:2, :2]
        spread = a + b - 2.0 * c
        return float(np.clip((a - c) / spread, 0.0, 1.0)) if spread > 0 else 1.0

    def _assembled(self, found: Estimate, routes: Estimate, share: float, spent: int) -> Gain:
        """The answer, from `found` or from its two `routes`."""
        mix = np.array([1.0 - share, share])
        base, base_covariance = self.population.base[:2], self.population.covariance[:2, :2]
        answers = np.asarray(routes.value)
        both = base + answers[:2]
        assert routes.covariance is not None
        covariance = routes.covariance[:2, :2] + base_covariance
        if found is routes:
            value, variance = float(mix @ both), float(mix @ covariance @ mix)
        else:
            value = float(mix @ base) + float(found.value)
            variance = float(mix @ base_covariance @ mix) + float(found.std_error) ** 2
        spent += self.learned.n_truths(found)
        repair = self._repaired(found, mix, spent)
        value, variance, spent = (
            value + repair.change,
            variance + repair.variance,
            spent + repair.n_evaluations,
        )
        # KL(posterior ‖ q) has a long tail over data, which their rarity shows in part. Of one with
        # index α, a share of T^(1/α − 1) of the mean is beyond the largest of T values; what is
        # below has its spread in the covariance. Simulated data are a sample themselves.
        assert routes.sample is not None
        tail = float(answers[3]) + repair.total
        variance += (tail * found.n_outer ** (1.0 / _TAIL_INDEX - 1.0)) ** 2
        variance += float(np.var(routes.sample.f[:, 3])) / self.n_base
        notes: list[str] = []
        warned = list(found.warnings)
        # Both routes estimate the same number if simulate and log_prob describe one experiment.
        apart, across = abs(float(both[1] - both[0])), np.array([1.0, -1.0])
        allowed = 2.0 * NORMAL_95 * float(np.sqrt(max(across @ covariance @ across, 0.0)))
        variance += max(apart - allowed, 0.0) ** 2
        if apart > allowed + _NEGLIGIBLE and routes.n_outer >= _FEWEST_DATA:
            warned.append(
                f"simulated pairs and likelihoods disagree about the gain, {both[0]:.4g} and "
                f"{both[1]:.4g}: simulate and log_prob may not describe one experiment, or the "
                "proposal misses a part of the posterior; the interval is widened"
            )
        size = float(answers[2])
        if size < _LOW_SAMPLE_SIZE:
            notes.append(
                f"the effective sample size is {100 * size:.0f} % of the inner draws: the proposal "
                "is far from the posterior; more simulations, fewer parameters or data that say "
                "less would help"
            )
        status, std_error = found.status, float(np.sqrt(variance))
        # Of the nested part, which is small, a wide bar says little about the sum.
        wide = NORMAL_95 * std_error > 0.1 * abs(value)
        status = "done" if status == "unreliable" and not wide else status
        if repair.doubt > 0.1 * abs(value):
            status = "unreliable"
            notes.append(
                f"at {100 * repair.share:.2g} % of the data the parameters behind them outweigh "
                "all draws: the proposal misses their posteriors, and the gain there is uncertain; "
                "a larger budget or more simulations would help"
            )
        if asked := self.goal(value):
            met = NORMAL_95 * std_error <= 1.0001 * asked
            status = "converged" if met else "limit" if status == "converged" else status
            part = NORMAL_95 * float(np.sqrt(mix @ base_covariance @ mix))
            if not met and part > 0.5 * asked:
                status = "limit"
                warned.append(
                    f"the tolerance {asked:.3g} is out of reach: averages of {self.n_base:,} "
                    f"simulations alone are known to ± {part:.2g}; raise simulations="
                )
            elif status in ("limit", "budget"):
                notes.append("the tolerance was not met: raise budget= or simulations=")
        sample = found.sample
        if sample is not None:
            rows = sample.f[:, :2] @ mix[:, None] + mix @ base
            sample = replace(sample, f=rows, weights=sample.weights[:, :1])
        return Gain.of(
            found,
            common=self.population.means[:, :2] @ mix,
            sample=sample,
            value=value,
            std_error=std_error,
            covariance=None,
            n_evaluations=spent,
            method="importance",
            status=status,
            seconds=time.perf_counter() - self.started,
            warnings=tuple(warned),
            diagnostics={
                **self._diagnostics(),
                "effective_sample_size": size,
                "routes": both,
                "share_of_route_b": share,
                "missed": repair.share,
                "error_inner": found.diagnostics.get("error_inner"),
                "error_outer": found.diagnostics.get("error_outer"),
                "error_simulations": float(np.sqrt(mix @ base_covariance @ mix)),
                "notes": notes,
            },
        )

    def _repaired(self, found: Estimate, mix: Array, spent: int) -> _Repair:
        """Data at which the draws missed the posterior get others, near the θ that made them."""
        sample, learned = found.sample, self.learned
        assert sample is not None
        gaps = learned.missed(sample.j, found.n_inner)
        rows = np.flatnonzero(gaps > np.log(2.0))
        t, n = len(gaps), len(rows)
        if n == 0:
            return _Repair()
        each = NEAR_DRAWS * learned.each
        # Without a budget, no more than the estimate has cost.
        left = found.n_evaluations if self.budget is None else self.budget - spent
        some = rows[: max(left // each, 0)]
        weights = sample.theta[:, -1]
        if len(some) == 0:
            doubt = float((weights * gaps)[rows].sum() / t)
            return _Repair(share=n / t, doubt=doubt, variance=(doubt / NORMAL_95) ** 2)
        f, doubts = learned.resolved(sample.theta[some])
        change = (f[:, :2] - sample.f[some, :2]) @ mix
        doubt = float((weights[some] * doubts).mean() * n / t)
        # Which data were missed, and which of them were looked at, is chance.
        mean, spread = float(change.mean()), float(change.var())
        if len(some) == 1:
            spread = mean**2
        chance = (n / t) ** 2 * spread / len(some) + (mean**2 + spread) * n / t**2
        return _Repair(
            share=n / t,
            change=mean * n / t,
            total=float((f[:, 3] - sample.f[some, 3]).mean()) * n / t,
            doubt=doubt,
            variance=chance + (doubt / NORMAL_95) ** 2,
            n_evaluations=len(some) * each,
        )

    def _diagnostics(self) -> dict[str, Any]:
        bound, error = self.population.base[2], np.sqrt(self.population.covariance[2, 2])
        return {
            "lower_bound": float(bound),
            "lower_bound_error": float(error),
            "components": self.learned.blocks[0].proposal.components,
            "simulations": self.learned.n_fit + self.n_base,
        }

    def bound(self, status: str = LOWER_BOUND) -> Gain:
        """The lower bound of a simulator without likelihood, or without time for one."""
        without = "log_prob" if status == LOWER_BOUND else "time for likelihoods"
        note = (
            f"a lower bound of the gain (Barber and Agakov): without {without} nothing is known "
            "about the distance; the interval is that of the bound"
        )
        value, error = self.population.base[2], np.sqrt(self.population.covariance[2, 2])
        return Gain(
            common=self.population.means[:, 2],
            value=float(value),
            std_error=float(error),
            n_evaluations=len(self.learned.at_truth),
            n_outer=self.n_base,
            n_inner=1,
            method=LOWER_BOUND,
            status=status,
            seconds=time.perf_counter() - self.started,
            problem=self.learned.experiment.name or "information gain",
            diagnostics={**self._diagnostics(), "notes": [note]},
        )


def _inner_size(pilot: Estimate, room: int) -> int:
    """N whose bias, which falls like 1/N, and variance, which needs many θ, are least together."""
    bias, spread = float(pilot.diagnostics["error_inner"]), float(pilot.diagnostics["error_outer"])
    scale = np.sqrt(pilot.n_evaluations / max(room, 1))

    def error(n: int) -> float:
        return float((bias * N_INNER / n) ** 2 + (spread * scale) ** 2 * n / N_INNER)

    return min((N_INNER << i for i in range(5) if room >= 16 * (N_INNER << i) or i == 0), key=error)
