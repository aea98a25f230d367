"""Expected information gain, and other expected utilities: the request and the answer."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from nestquad._checks import number
from nestquad._progress import ProgressLike
from nestquad._typing import Array, RNGLike
from nestquad.clock import OutOfTimeError
from nestquad.design._experiment import Experiment, check_experiment
from nestquad.design._learned import Learned, Population, learn, student
from nestquad.design._proposal import NEAR_DRAWS
from nestquad.distributions import Empirical
from nestquad.errors import InputError, NestquadWarning
from nestquad.estimate import check_limits, estimate
from nestquad.methods import NQMC
from nestquad.points import Sobol, Stream
from nestquad.problem import NestedExpectation
from nestquad.result import NORMAL_95, Estimate

# Simulations by default: at most half of them for the fit, half for averages.
_SIMULATIONS = 2**16
N_INNER = 16  # draws at each datum: enough for two halves of which each has a meaning
# Of the budget, for data whose posterior the draws miss.
_RESERVE = 1.0 / 16.0
_LOW_SAMPLE_SIZE = 0.1
_FEWEST_DATA = 16  # that can tell whether pairs and likelihoods disagree: blocks of two
_FEW_DRAWS = 512  # where simulations alone miss the tolerance
LOWER_BOUND = "lower bound"  # status and method of a simulator alone
_NEGLIGIBLE = 0.01  # nats by which pairs and likelihoods may differ without a warning
# Draws of θ in blocks, for means under the prior: they cost neither likelihoods nor simulations.
_PRIOR_DRAWS, _PRIOR_BLOCKS = 2**16, 16


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
    run = _Run(
        experiment, design, budget, tol, rtol, max_seconds, simulations, rng, executor, progress
    )
    if experiment.certain:
        return _nothing_to_learn(experiment)
    found = run.bound() if experiment.log_prob is None else run.gain()
    for text in found.warnings:
        warnings.warn(text, NestquadWarning, stacklevel=2)
    return found


def variance_reduction(experiment: Experiment, design: Any, **settings: Any) -> Gain:
    """Expected reduction of the variance of the parameters, summed over the targets.

    The larger, the better: the design with the largest reduction has the least expected posterior
    variance, which is Bayesian A-optimality. Settings are those of `eig`.

    Examples
    --------
    >>> import numpy as np
    >>> import nestquad as nq
    >>> from nestquad import design
    >>> experiment = design.Experiment(
    ...     prior=nq.Normal(),
    ...     log_prob=lambda y, theta, d: -0.5 * (y - d * theta)[..., 0] ** 2,
    ...     simulate=lambda theta, e, d: d * theta + e,
    ...     noise=nq.Normal(),
    ... )
    >>> est = design.variance_reduction(experiment, 3.0, budget=2000, rng=0)
    >>> bool(abs(est.value - 0.9) < 0.01)  # of a variance of 1, 1/(1 + 3²) is left
    True
    """
    run = _Run.for_utility(experiment, design, settings)
    if experiment.certain:
        return _nothing_to_learn(experiment)
    chosen = list(experiment.targets or range(experiment.n_parameters))
    draws, k = _prior_draws(experiment)[:, chosen], len(chosen)
    center = draws.mean(axis=0)
    before = ((draws - center) ** 2).sum(axis=1).reshape(_PRIOR_BLOCKS, -1).mean(axis=1)

    def moments(theta: Array) -> Array:
        deviation = theta[..., chosen] - center
        return np.concatenate([deviation, deviation**2], axis=-1)

    # What is left varies less from data to data than what is gained.
    return run.utility(moments, lambda j: -(j[..., k:] - j[..., :k] ** 2).sum(axis=-1), base=before)


def decision_value(
    experiment: Experiment, design: Any, payoff: Callable[[Array], Any], **settings: Any
) -> Gain:
    """Expected gain of deciding after the experiment: E max_a E[payoff_a | y] − max_a E payoff_a.

    ``payoff(theta)`` with theta (…, p) returns (…, options). It is the expected value of sample
    information; with many draws of an existing decision model, `nestquad.voi.evsi` needs no
    likelihood and is the better door. Settings are those of `eig`.
    """
    if not callable(payoff):
        raise InputError("payoff", type(payoff).__name__, "a function payoff(theta)")
    run = _Run.for_utility(experiment, design, settings)
    means = experiment.called("payoff", payoff, _prior_draws(experiment))
    if means.ndim != 2 or means.shape[1] < 2:
        raise InputError(
            "payoff", f"shape {means.shape}", f"shape ({_PRIOR_DRAWS}, options), 2 options or more"
        )
    if experiment.certain:
        return _nothing_to_learn(experiment)
    best = int(np.argmax(means.mean(axis=0)))
    return run.utility(
        lambda theta: np.asarray(payoff(theta), dtype=float),
        # Less the payoff of the best option before: its mean is known, and most noise cancels.
        lambda j: j.max(axis=-1) - j[..., best],
        base=np.zeros(_PRIOR_BLOCKS),
    )


def _prior_draws(experiment: Experiment) -> Array:
    law, stream = experiment.prior_law, Stream.from_rng(0)
    u = Sobol().uniforms(stream, law.base_dim, (0, 1), (0, _PRIOR_DRAWS))[0]
    return law.from_uniform(u)


def _nothing_to_learn(experiment: Experiment) -> Gain:
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


def _far(size: float) -> list[str]:
    """The note on an effective sample size that is low, if it is."""
    if size >= _LOW_SAMPLE_SIZE:
        return []
    return [
        f"the effective sample size is {100 * size:.0f} % of the inner draws: the proposal is far "
        "from the posterior; more simulations, fewer parameters or data that say less would help"
    ]


@dataclass(frozen=True)
class _Repair:
    """What other draws change where the draws of the proposal missed the posterior.

    `share` of such data, `change` of the gain, nats in `doubt`, and the variance and the
    likelihoods of all that.
    """

    share: float = 0.0
    change: float = 0.0
    doubt: float = 0.0
    variance: float = 0.0
    n_evaluations: int = 0


@dataclass(eq=False)
class _Run:
    """One estimation with proposals that are learned."""

    experiment: Experiment
    design: Any
    budget: int | None = None
    tol: float | None = None
    rtol: float | None = None
    max_seconds: float | None = None
    simulations: int | None = None
    rng: RNGLike = None
    executor: Executor | None = None
    progress: ProgressLike = False

    def __post_init__(self) -> None:
        self.started = time.perf_counter()
        check_experiment(self.experiment)
        if self.simulations is None:
            self.simulations = _SIMULATIONS
        expected = "a whole number of at least 512: the proposal is learned from a half of them"
        if not number("simulations", self.simulations, expected, above=511).is_integer():
            raise InputError("simulations", repr(self.simulations), expected)
        self.budget = check_limits(self.budget, self.tol, self.rtol, self.max_seconds)
        goals = (self.budget, self.tol, self.rtol, self.max_seconds)
        if self.experiment.log_prob is not None and all(goal is None for goal in goals):
            raise InputError(
                "budget",
                "neither a budget nor a tolerance nor a time",
                "one of them",
                "For instance budget=10_000, tol=0.01 or max_seconds=10.",
            )

    @classmethod
    def for_utility(cls, experiment: Experiment, design: Any, settings: dict[str, Any]) -> _Run:
        """With proposals for all parameters; a utility has no bound without a likelihood."""
        check_experiment(experiment)
        if experiment.log_prob is None:
            advice = "Only eig has a bound without one."
            raise InputError("log_prob", "None", "a likelihood", advice)
        return cls(replace(experiment, target=None), design, **settings)

    @cached_property
    def learned(self) -> Learned:
        most, stream = int(self.simulations or 0), Stream.from_rng(self.rng)
        return learn(self.experiment, self.design, most, stream, self.max_seconds)

    @cached_property
    def n_base(self) -> int:
        """Simulations for averages: a power of two, as Sobol points are best in those."""
        n = self.learned.simulations - self.learned.n_fit
        law = self.experiment.prior_law
        if isinstance(law, Empirical):  # q of all cells of samples at each y: a second at most
            n = min(n, max(2**23 // len(law.samples), 2**12))
        return 1 << (n.bit_length() - 1)

    @cached_property
    def population(self) -> Population:
        return self.learned.population(self.n_base)

    def goal(self, value: float) -> float:
        """The half-width that is asked for; 0 for none."""
        return max(self.tol or 0.0, (self.rtol or 0.0) * abs(value))

    def room(self, reserve: float = 0.0, spent: int = 0) -> int | None:
        """Draws within the budget: each datum costs a likelihood more, at the θ that made it."""
        if self.budget is None:
            return None
        each, checked = self.learned.each, len(self.learned.at_truth)
        left = self.budget - checked - spent
        room = left // each * (1.0 - reserve) * N_INNER / (N_INNER + 1)
        if room < 2 * N_INNER and not spent:
            least = f"at least {40 * each + checked}"
            raise InputError("budget", f"{self.budget} likelihoods", least)
        return int(room)

    def nested(
        self,
        problem: NestedExpectation,
        room: int | None,
        tol: float | None = None,
        rtol: float | None = None,
        factor: int = 1,
    ) -> Estimate:
        """An estimate by draws of the proposal, `factor` times as many for each datum as usual.

        OutOfTimeError if time ran out before there was one.
        """
        left = n_inner = None
        if self.max_seconds is not None:
            left = max(self.max_seconds - (time.perf_counter() - self.started), 1e-3)
        if room is not None and tol is None and rtol is None:
            # Variance falls like N/budget, the square of the bias like N⁻²: N³ ∝ budget.
            n_inner = factor * N_INNER << max((room.bit_length() - 14) // 3, 0)
        found = estimate(
            problem,
            budget=room,
            tol=tol,
            rtol=rtol,
            method=NQMC(n_inner=n_inner, jackknife=True),
            rng=self.learned.stream.child(4, 0),
            executor=self.executor,
            progress=self.progress,
            max_seconds=left,
        )
        if found.sample is None:
            raise OutOfTimeError("time ran out before any data had their draws")
        return found

    def gain(self) -> Gain:
        """The information gain."""
        population, learned, room = self.population, self.learned, self.room(_RESERVE)
        known, error = float(population.base[0]), float(population.std_errors[0])
        problem = population.problem(
            learned.g, lambda j: learned.f(j, population.log_q), lambda i: i[0], "information gain"
        )
        asked, spent, answer = self.goal(known), 0, None
        # Errors add up by squares; a tenth of the tolerance is the least to aim at.
        goal = float(np.sqrt(max(asked**2 - (NORMAL_95 * error) ** 2, 0.01 * asked**2)))
        if (
            asked > 0.0
        ):  # beyond this, all simulated data have been seen with several times the draws
            enough = 4 * N_INNER * self.n_base
            if NORMAL_95 * error > asked:  # no likelihood helps
                enough, goal = _FEW_DRAWS, 0.0
            room = enough if room is None else min(room, enough)
        while True:
            try:
                found = self.nested(problem, room, goal or None)
            except OutOfTimeError:
                return answer or self.bound("time")
            answer = self._assembled(found, spent + found.n_evaluations * learned.each)
            spent = answer.n_evaluations - learned.n_truths(found)
            if room is not None:
                within = self.room(_RESERVE, spent)
                room -= found.n_evaluations
                room = room if within is None else min(room, within)
            goal /= 2.0
            # Parts of the error that the loop does not see need more data too.
            if (
                goal < 0.05 * asked
                or asked == 0.0
                or found.status != "converged"
                or answer.status == "converged"
                or (room is not None and room < 2 * found.n_evaluations)
            ):
                return answer

    def _assembled(self, found: Estimate, spent: int) -> Gain:
        """The gain, from KL(posterior ‖ q) and the averages of simulations."""
        sample, base = found.sample, self.population.base
        assert sample is not None
        spent += self.learned.n_truths(found)
        repair = self._repaired(found, spent)
        value = float(base[0]) + float(found.value) + repair.change
        simulated = float(self.population.std_errors[0])
        variance = simulated**2 + float(found.std_error) ** 2 + repair.variance
        _, apart, size, total = (float(x) for x in np.asarray(found.diagnostics["answers"]))
        # KL(posterior ‖ q) has a long tail over data, which few of them show: its spread is taken
        # to be larger by its mean. Simulated data are a sample themselves.
        variance += total**2 / found.n_outer + float(np.var(sample.f[:, 0])) / self.n_base
        notes: list[str] = []
        warned = list(found.warnings)
        # The θ behind the data are draws of their posteriors: E[log q] is the same by pairs and by
        # likelihoods if simulate and log_prob describe one experiment.
        routes = base[0] + float(found.value) + np.array([0.0, apart])
        allowed = 2.0 * NORMAL_95 * float(np.std(sample.f[:, 1])) / np.sqrt(found.n_outer)
        variance += max(abs(apart) - allowed - NORMAL_95 * simulated, 0.0) ** 2
        if abs(apart) > allowed + _NEGLIGIBLE and found.n_outer >= _FEWEST_DATA:
            warned.append(
                f"simulated pairs and likelihoods disagree about the gain, {routes[0]:.4g} and "
                f"{routes[1]:.4g}: simulate and log_prob may not describe one experiment, or the "
                "proposal misses a part of the posterior; the interval is widened"
            )
        notes += _far(size)
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
            if not met and NORMAL_95 * simulated > 0.5 * asked:
                status = "limit"
                warned.append(
                    f"the tolerance {asked:.3g} is out of reach: averages of {self.n_base:,} "
                    f"simulations alone are known to ± {NORMAL_95 * simulated:.2g}; raise "
                    "simulations="
                )
            elif status in ("limit", "budget"):
                notes.append("the tolerance was not met: raise budget= or simulations=")
        return self._answer(
            found,
            common=self.population.means[:, 0],
            value=value,
            std_error=std_error,
            n_evaluations=spent + repair.n_evaluations,
            status=status,
            warnings=tuple(warned),
            diagnostics={
                **self._diagnostics(),
                "effective_sample_size": size,
                "routes": routes,
                "missed": repair.share,
                "error_inner": found.diagnostics["error_inner"],
                "error_outer": found.diagnostics["error_outer"],
                "error_simulations": simulated,
                "notes": notes,
            },
        )

    def _answer(self, found: Estimate, **changes: Any) -> Gain:
        sample = found.sample
        assert sample is not None
        return Gain.of(
            found,
            sample=replace(sample, f=sample.f[:, :1], weights=sample.weights[:, :1]),
            covariance=None,
            method="importance",
            seconds=time.perf_counter() - self.started,
            **changes,
        )

    def _repaired(self, found: Estimate, spent: int) -> _Repair:
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
        change = f[:, 0] - sample.f[some, 0]
        doubt = float((weights[some] * doubts).mean() * n / t)
        # Which data were missed, and which of them were looked at, is chance.
        mean, spread = float(change.mean()), float(change.var())
        if len(some) == 1:
            spread = mean**2
        chance = (n / t) ** 2 * spread / len(some) + (mean**2 + spread) * n / t**2
        return _Repair(
            share=n / t,
            change=mean * n / t,
            doubt=doubt,
            variance=chance + (doubt / NORMAL_95) ** 2,
            n_evaluations=len(some) * each,
        )

    def _diagnostics(self) -> dict[str, Any]:
        return {
            "lower_bound": float(self.population.base[1]),
            "lower_bound_error": float(self.population.std_errors[1]),
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
        return Gain(
            common=self.population.means[:, 1],
            value=float(self.population.base[1]),
            std_error=float(self.population.std_errors[1]),
            n_evaluations=len(self.learned.at_truth),
            n_outer=self.n_base,
            n_inner=1,
            method=LOWER_BOUND,
            status=status,
            seconds=time.perf_counter() - self.started,
            problem=self.experiment.name or "information gain",
            diagnostics={**self._diagnostics(), "notes": [note]},
        )

    def utility(
        self, h: Callable[[Array], Array], f: Callable[[Array], Array], base: Array
    ) -> Gain:
        """The mean of `base`, from blocks of draws of the prior, and E_y[f(E[h(θ) | y])]."""
        learned = self.learned

        def g(x: Array, rows: Array) -> Array:
            ((latent, log_w, _, _),) = learned.weighted(x, rows)
            flat = latent.reshape(-1, latent.shape[-1])
            values = h(self.experiment.theta(flat)).reshape(*latent.shape[:-1], -1)
            w = np.exp(log_w)[..., None]
            weight = np.broadcast_to(rows[..., -1:], w.shape)
            return np.concatenate([w, w * values, w * w, weight], axis=-1)

        def answers(j: Array) -> Array:
            size = j[..., 0] ** 2 / j[..., -2]
            return np.stack([f(j[..., 1:-2] / j[..., :1]), size], axis=-1) * j[..., -1:]

        # The second expectation, the effective sample size, is a diagnosis.
        known = float(base.mean())
        problem = self.population.problem(g, answers, lambda i: known + i[0], "utility")
        room, factor, doubt, spent = self.room(), 1, 0.0, 0
        if room is not None and room >= 16 * N_INNER and self.goal(1.0) == 0.0:
            # Means of a ratio are biased if few draws count: as many more as a pilot asks for.
            pilot = self.nested(problem, room // 8)
            room, spent = room - pilot.n_evaluations, pilot.n_evaluations
            size = float(np.asarray(pilot.diagnostics["answers"])[1])
            factor = 1 << int(np.clip(np.ceil(np.log2(0.5 / max(size, 1e-3))), 0, 6))
            factor = min(factor, max(room // (32 * N_INNER), 1))
        found = self.nested(problem, room, self.tol, self.rtol, factor)
        assert found.sample is not None
        if factor > 1:
            # Where weights have no variance, bias may fall as slowly as one over a root.
            doubt = abs(float(found.value) - float(pilot.value)) / (np.sqrt(factor) - 1.0)
        variance = (doubt / NORMAL_95) ** 2
        variance += float(found.std_error) ** 2 + float(np.var(found.sample.f[:, 0])) / self.n_base
        std_error = float(np.sqrt(variance + base.var(ddof=1) / len(base) * student(len(base))))
        size = float(np.asarray(found.diagnostics["answers"])[1])
        status, asked = found.status, self.goal(float(found.value))
        if status == "converged" and NORMAL_95 * std_error > 1.0001 * asked:
            status = "limit"
        return self._answer(
            found,
            common=base,
            std_error=std_error,
            status=status,
            n_evaluations=spent + found.n_evaluations + learned.n_truths(found),
            diagnostics={
                "effective_sample_size": size,
                "components": learned.blocks[0].proposal.components,
                "simulations": learned.n_fit + self.n_base,
                "error_inner": found.diagnostics["error_inner"],
                "error_outer": found.diagnostics["error_outer"],
                "notes": [*found.diagnostics["notes"], *_far(size)],
            },
        )
