"""Expected information gain, and other expected utilities: the request and the answer."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.special import stdtrit

from nestquad._checks import number, shown
from nestquad._progress import Progress, ProgressLike, as_progress
from nestquad._typing import Array, RNGLike
from nestquad.clock import OutOfTimeError, TimeSplit
from nestquad.design._exact import OutcomeTable, PriorGrid, divergences
from nestquad.design._experiment import Experiment, Setup, check_experiment
from nestquad.design._learned import (
    N_CHECKED,
    Decision,
    Information,
    LearnedExperiment,
    Population,
    Rows,
    Shared,
    Utility,
    Variance,
    learn,
)
from nestquad.design._proposal import NEAR_DRAWS
from nestquad.distributions import Empirical
from nestquad.errors import InputError, NestquadWarning
from nestquad.estimate import check_limits
from nestquad.points import Sobol, Stream
from nestquad.result import NORMAL_95, Estimate

LOWER_BOUND = "lower bound"  # status and method of a simulator alone
ROUNDING = 1e-5  # nats of regularized fits: the least standard error
_CELLS = 2**20  # products of data and grid points in memory at once
_PILOT_NODES = 32  # nodes of an enumeration that show its cost
_PRIOR_DRAWS = 2**16  # draws of θ for means under the prior; they cost no simulations


@dataclass(frozen=True)
class GainSettings:
    """Sizes of an estimate, chosen by judgment and a few runs on even seeds; no ablation yet."""

    simulations: int = 2**16  # by default, at most half of them for the fit
    replicates: int = 8  # randomizations behind the bar: Student's t widens it by a fifth
    few_replicates: int = 4  # for budgets below `few_likelihoods`
    few_likelihoods: int = 600
    n_inner: int = 16  # draws at a datum: two halves of 8 for the jackknife
    reserve: float = 1.0 / 16.0  # share of the budget for data whose posterior was missed
    low_sample_size: float = 0.1  # effective share of the draws below which a note is written
    most_missed: float = 0.2  # share of missed posteriors above which an answer is unreliable
    negligible: float = 0.01  # nats by which pairs and likelihoods may differ without a warning
    enumerated: int = 2**20  # likelihoods of an enumeration without a budget
    exact: float = 1e-4  # error in nats below which grids of the prior are taken
    rounding: float = 1e-6  # least error in nats of a grid, whose ends are cut at 1e-8 of its peak
    pilot: int = 4  # data of each replicate in the pilot of a time or a tolerance
    most_steps: int = 4  # steps after the pilot
    most_data: int = 2**16  # data of each replicate in a step
    most_base: int = 2**15  # simulations of each replicate towards a tolerance
    pilot_data: int = 64  # data that show the spacing of a grid
    # Data of each replicate on a grid, at least; `pilot_data` where the proposal misses posteriors.
    grid_data: int = 1024
    grid_error: float = (
        1e-3  # mean change in nats of divergences below which no finer grid is tried
    )
    margin: float = 1.3  # factor on predicted sizes: pilots have errors of this order


SETTINGS = GainSettings()


@dataclass(frozen=True)
class Gain(Estimate):
    """Estimate of the expected utility of a design.

    `replicates` (R,) are answers of independent randomizations; their spread is the error bar.
    Designs with the same seed share the random numbers of each replicate.
    """

    replicates: Array | None = field(default=None, repr=False)

    @classmethod
    def of(cls, replicates: Array, *, std_error: float | None = None, **fields: Any) -> Gain:
        """Mean of replicates; its error is their spread unless another is given."""
        error = half_width(replicates) / NORMAL_95 if std_error is None else std_error
        dof = max(len(replicates) - 1, 1)
        return cls(float(replicates.mean()), error, dof=dof, replicates=replicates, **fields)

    @property
    def is_bound(self) -> bool:
        """Whether the value is a lower bound of the gain."""
        return self.method == LOWER_BOUND

    def interval(self, level: float = 0.95) -> tuple[Any, Any]:
        """Confidence interval; of a lower bound one-sided, with an upper end of infinity."""
        if not self.is_bound:
            return super().interval(level)
        return super().interval(2.0 * level - 1.0 if level > 0.5 else 1e-9)[0], np.inf

    @property
    def summary(self) -> str:
        """Value ± half-width of the 95 % interval; of a bound its lower end."""
        if not self.is_bound:
            return super().summary
        return f"at least {self.interval()[0]:.4g} (one-sided bound)"

    def __str__(self) -> str:
        return super().__str__().replace(" evaluations", " likelihoods", 1)

    def _repr_html_(self) -> str:
        name = "lower bound" if self.is_bound else "value"
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
    like: Shared | None = None,
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
    like
        Random numbers and fits shared with other designs; `compare` sets it.

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
    settings = (budget, tol, rtol, max_seconds, simulations, rng, executor, progress, like)
    return Run(experiment, design, *settings).solve(Information, enumerate_=True)


def variance_reduction(experiment: Experiment, design: Any, **settings: Any) -> Gain:
    """Expected reduction of the variance of the parameters, summed over the targets.

    The larger, the better: the design with the largest reduction has the least expected posterior
    variance, which is Bayesian A-optimality. Settings are the settings of `eig`.

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
    run = Run.for_utility(experiment, design, settings)
    chosen = list(experiment.targets or range(experiment.n_parameters))
    center = _prior_draws(experiment)[:, chosen].mean(axis=0)
    return run.solve(lambda learned: Variance(learned, lambda theta: theta[..., chosen], center))


def decision_value(
    experiment: Experiment, design: Any, payoff: Callable[[Array], Any], **settings: Any
) -> Gain:
    """Expected gain of deciding after the experiment: E max_a E[payoff_a | y] − max_a E payoff_a.

    ``payoff(theta)`` with theta (…, p) returns (…, options). It is the expected value of sample
    information; with many draws of an existing decision model, `nestquad.voi.evsi` needs no
    likelihood and is the better door. Settings are the settings of `eig`.

    Examples
    --------
    >>> import numpy as np
    >>> import nestquad as nq
    >>> from nestquad import design
    >>> slope = design.Experiment(  # y = θ d + noise of standard deviation 0.5
    ...     prior=nq.Normal(0.0, 1.0),
    ...     log_prob=lambda y, theta, d: (-2.0 * (y - theta * d) ** 2)[..., 0] - np.log(1.2533),
    ...     simulate=lambda theta, e, d: theta * d + 0.5 * e,
    ...     noise=nq.Normal(0.0, 1.0),
    ... )
    >>> def payoff(theta):  # of not investing, and of investing
    ...     return np.stack([np.zeros_like(theta[..., 0]), theta[..., 0]], axis=-1)
    >>> est = design.decision_value(slope, 1.0, payoff, budget=2000, rng=0)
    >>> exact = np.sqrt(0.8 / (2 * np.pi))  # the posterior mean has variance 0.8
    >>> bool(abs(est.value - exact) < 0.01)
    True
    """
    if not callable(payoff):
        raise InputError("payoff", type(payoff).__name__, "a function payoff(theta)")
    run = Run.for_utility(experiment, design, settings)
    means = experiment.called("payoff", payoff, _prior_draws(experiment))
    if means.ndim != 2 or means.shape[1] < 2:
        raise InputError(
            "payoff", f"shape {means.shape}", f"shape ({_PRIOR_DRAWS}, options), 2 options or more"
        )
    center = means.mean(axis=0)
    return run.solve(lambda learned: Decision(learned, lambda t: np.asarray(payoff(t)), center))


def _prior_draws(experiment: Experiment) -> Array:
    law, stream = experiment.prior_law, Stream.from_rng(0)
    u = Sobol().uniforms(stream, law.base_dim, (0, 1), (0, _PRIOR_DRAWS))[0]
    return law.from_uniform(u)


def student(n: int) -> float:
    """Student's factor at 95 % over the normal one, for a spread of n values."""
    return float(stdtrit(n - 1, 0.975) / NORMAL_95)


def half_width(values: Array) -> float:
    """95 % half-width of the mean of independent replicates, by Student's t."""
    n = len(values)
    return float(NORMAL_95 * student(n) * np.std(values, ddof=1) / np.sqrt(n))


@dataclass(frozen=True)
class CorrectionTurn:
    """Nested corrections of all replicates, and measurements over them."""

    values: Array  # corrections (R,)
    apart: Array  # discrepancy of pairs and likelihoods (R,)
    size: float  # effective share of the draws
    missed: float  # share of the data whose posterior the draws missed
    missing: float  # nats lacking in them
    n_data: int  # of each replicate
    n_inner: int  # draws at each datum
    seconds: float

    @classmethod
    def pooled(cls, turns: Sequence[CorrectionTurn]) -> CorrectionTurn:
        """Average of turns with their numbers of data as weights.

        Turns with fewer draws at each datum than the last are biased more, and left out.
        """
        kept = [turn for turn in turns if turn.n_inner == turns[-1].n_inner]
        weight = np.array([turn.n_data for turn in kept]) / sum(turn.n_data for turn in kept)
        names = ("values", "apart", "size", "missed", "missing")
        means = {
            name: sum(w * getattr(turn, name) for w, turn in zip(weight, kept, strict=True))
            for name in names
        }
        return replace(turns[-1], n_data=sum(turn.n_data for turn in kept), **means)


@dataclass(eq=False)
class Run:
    """Estimation of one utility under one design."""

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
    like: Shared | None = None

    def __post_init__(self) -> None:
        check_experiment(self.experiment)
        self.schedule, self.turns = TimeSplit(self.max_seconds), list[CorrectionTurn]()
        self.method, self.simulated = "importance", np.zeros(2)
        expected = "a whole number of at least 512: the proposal is learned from a half of them"
        most = SETTINGS.simulations if self.simulations is None else self.simulations
        if not number("simulations", most, expected, above=511).is_integer():
            raise InputError("simulations", repr(self.simulations), expected)
        self.most = int(most)
        self.budget = check_limits(self.budget, self.tol, self.rtol, self.max_seconds)
        if self.executor is not None and not hasattr(self.executor, "map"):
            raise InputError("executor", shown(self.executor), "a concurrent.futures.Executor")
        goals = (self.budget, self.tol, self.rtol, self.max_seconds)
        if self.experiment.log_prob is not None and all(goal is None for goal in goals):
            raise InputError(
                "budget",
                "neither a budget nor a tolerance nor a time",
                "one of them",
                "For instance budget=10_000, tol=0.01 or max_seconds=10.",
            )
        self.name = self.experiment.name or "information gain"
        show, total = as_progress(self.progress, "likelihoods"), self.budget
        self.show = show
        self.setup = Setup(
            self.experiment,
            self.design,
            self.schedule,
            self.executor,
            lambda done: show(done, total or done, self.name),
        )

    @classmethod
    def for_utility(cls, experiment: Experiment, design: Any, settings: dict[str, Any]) -> Run:
        """With proposals for all parameters; a utility has no bound without a likelihood."""
        check_experiment(experiment)
        if experiment.log_prob is None:
            advice = "Only eig has a bound without one."
            raise InputError("log_prob", "None", "a likelihood", advice)
        return cls(replace(experiment, target=None), design, **settings)

    def solve(self, make: Callable[[LearnedExperiment], Utility], enumerate_: bool = False) -> Gain:
        """Learn the proposal, spend the likelihoods, and report."""
        if self.experiment.certain:
            note = "all samples of the prior are the same: there is nothing to learn"
            sizes = {"n_outer": 1, "n_inner": 1, "method": "exact"}
            return self._gain(np.zeros(2), 0.0, diagnostics={"notes": [note]}, **sizes)
        try:
            gain = self._solved(make, enumerate_)
        finally:
            if isinstance(self.show, Progress):
                self.show.close()
        for text in gain.warnings:
            warnings.warn(text, NestquadWarning, stacklevel=3)
        return gain

    def _solved(self, make: Callable[[LearnedExperiment], Utility], enumerate_: bool) -> Gain:
        stream, likely = Stream.from_rng(self.rng), self.experiment.log_prob is not None
        if enumerate_ and likely and self.experiment.targets is None:
            exact = self._enumerated(stream)
            if exact is not None:
                return exact
        fit = learn if self.like is None else self.like.learn
        learned = fit(self.setup, self.most - self.setup.n_simulations, stream)
        if likely:  # errors of the user's functions show before the budget is spent
            learned.at_truth(*(part[:N_CHECKED] for part in learned.pairs))
        self._prepare(make(learned))
        return self._spend() if likely else self._bound(LOWER_BOUND)

    def _enumerated(self, stream: Stream) -> Gain | None:
        """Gain by enumeration of all outcomes, where the limits afford the nodes."""
        setup, most = self.setup, float(self.budget or SETTINGS.enumerated) - N_CHECKED
        table = OutcomeTable.of(setup, self.most, most, stream)
        if not (n := len(table.rows)):
            return None
        if self.max_seconds is not None:
            with self.schedule.measure("table", 2 * _PILOT_NODES * n):
                table.gains(_PILOT_NODES, 2, stream)
            most = min(most, 0.5 * self.schedule.left / self.schedule.costs["table"])
        few = self.experiment.prior_law.base_dim <= 2
        room = (0.75 if few else 0.0) * (most - setup.n_likelihoods)
        value, error = table.quadrature(room, SETTINGS.rounding)
        answers = np.full(SETTINGS.replicates, value)
        if error > max(SETTINGS.exact, self.goal(value)):
            size = table.nodes(most - setup.n_likelihoods, SETTINGS.replicates)
            if not size:
                return None
            answers = table.gains(size, SETTINGS.replicates, stream)
            error = half_width(answers)
            if np.isnan(error):
                return None
            if 0.0 < self.goal(float(answers.mean())) < error:
                return None
        return self._gain(
            answers,
            max(error, SETTINGS.rounding) / NORMAL_95,
            n_outer=n,
            n_inner=setup.n_likelihoods // n,
            method="enumeration",
            status="converged" if self.goal(1.0) else "done",
            diagnostics={"simulations": setup.n_simulations, "missed": 0.0, "notes": []},
        )

    def _gain(self, answers: Array, error: float, **fields: Any) -> Gain:
        """Answer with the mean of replicates."""
        fields |= {"seconds": self.schedule.elapsed, "problem": self.name}
        fields |= {"n_evaluations": self.setup.n_likelihoods}
        return Gain.of(answers, std_error=error, **fields)

    def _prepare(self, utility: Utility) -> None:
        """Simulate the populations of all replicates."""
        learned = utility.learned
        self.n_replicates = SETTINGS.replicates
        if self.budget is not None and self.budget < SETTINGS.few_likelihoods * learned.each:
            self.n_replicates = SETTINGS.few_replicates
        room, pilot = learned.most - self.setup.n_simulations, 2
        if self.max_seconds is not None:
            pilot = min(room // self.n_replicates, 64)
            with self.schedule.measure("population", pilot):
                learned.population(pilot, 0)
            room = self.schedule.affordable("population", room - pilot)
        n = max(room // self.n_replicates, pilot)
        self.n_base = 1 << (n.bit_length() - 1)
        self.populations = [learned.population(self.n_base, r) for r in range(self.n_replicates)]
        if isinstance(utility, Information):
            each = np.array(
                [population.log_q @ population.weights for population in self.populations]
            )
            utility = replace(utility, log_q=each.mean(axis=0))
            signs = [block.sign for block in learned.blocks]
            self.simulated = (each - utility.log_q) @ signs
        self.utility = utility
        self.pairs = self._means(utility.pairs)

    def _means(self, term: Callable[[Population], Array]) -> Array:
        """Mean (R,) of a simulated term over the population of each replicate."""
        return np.array([population.mean(term(population)) for population in self.populations])

    def goal(self, value: float) -> float:
        """Half-width that is asked for; 0 for none."""
        return max(self.tol or 0.0, (self.rtol or 0.0) * abs(value))

    def _affordable(self, n_inner: int) -> int:
        """Data for each replicate within the budget: each costs a likelihood more at its θ."""
        if self.budget is None:
            return 2**31
        each = self.utility.learned.each
        room = (self.budget - self.setup.n_likelihoods) * (1.0 - SETTINGS.reserve)
        n = int(room) // (n_inner * each + 1) // self.n_replicates
        if n < 2 and not self.turns:
            least = 2 * self.n_replicates * (n_inner * each + 1) / (1.0 - SETTINGS.reserve)
            expected = f"at least {int(least) + N_CHECKED + 1}"
            raise InputError("budget", f"{self.budget} likelihoods", expected)
        return n

    def _spend(self) -> Gain:
        """One step for a budget; for a time or a tolerance a pilot, a large step, a correction."""
        inner = SETTINGS.n_inner
        if self._on_grid(SETTINGS.grid_data):
            return self._answer()
        if self.max_seconds is None and self.goal(1.0) == 0.0:
            assert self.budget is not None
            # Variance falls like N/budget, the square of the bias like N⁻²: N³ ∝ budget.
            inner <<= max((self.budget.bit_length() - 14) // 3, 0)
            if not isinstance(self.utility, Information):
                inner = self._calibrated(inner)
            self._turn(self._affordable(inner), inner)
            return self._answer()
        if not self._turn(min(SETTINGS.pilot, self._affordable(inner)), inner):
            return self._bound("time")
        if self.turns[0].missed > SETTINGS.most_missed and self._on_grid(SETTINGS.pilot_data):
            return self._answer()
        for step in range(SETTINGS.most_steps):
            self._add_simulations()
            n, inner = self._size(step)
            if self._met() or n < 2 or not self._turn(n, inner):
                break
        return self._answer()

    def _calibrated(self, inner: int) -> int:
        """Draws at each datum: more where a pilot shows that few of them are effective."""
        n = self._affordable(inner) // 8
        if n < 2:
            return inner
        self._turn(n, inner)
        factor = int(np.ceil(np.log2(0.5 / self.turns[-1].size)))
        while factor > 0 and self._affordable(inner << factor) < 4:
            factor -= 1
        return inner << max(factor, 0)

    @property
    def _answers(self) -> Array:
        return np.asarray(self.pairs + CorrectionTurn.pooled(self.turns).values)

    def _met(self) -> bool:
        asked = self.goal(float(self._answers.mean()))
        return 0.0 < half_width(self._answers) <= 0.9 * asked

    def _add_simulations(self) -> None:
        """Four times the simulations where their average alone misses the tolerance."""
        asked = self.goal(float(self._answers.mean()))
        n = 4 * self.n_base
        if self.simulations is not None or self.max_seconds is not None or not asked:
            return
        if half_width(self.pairs) > 0.7 * asked and n <= SETTINGS.most_base:
            learned, self.n_base = self.utility.learned, n
            self.populations = [learned.population(n, r) for r in range(self.n_replicates)]
            self.pairs = self._means(self.utility.pairs)

    def _size(self, step: int) -> tuple[int, int]:
        """Data for each replicate and draws of the next step: within time, budget, tolerance."""
        last, whole, learned = (
            self.turns[-1],
            CorrectionTurn.pooled(self.turns),
            self.utility.learned,
        )
        inner, n = last.n_inner, float(min(SETTINGS.most_data, self._affordable(last.n_inner)))
        if asked := self.goal(float(self._answers.mean())):
            if half_width(self.pairs) > asked:  # likelihoods cannot help
                return 0, inner
            left = max(asked**2 - half_width(self.pairs) ** 2, 0.1 * asked**2)
            ratio = SETTINGS.margin * half_width(whole.values) ** 2 / left
            n = min(n, max(whole.n_data * (ratio - 1.0), 0.5 * whole.n_data))
        if self.max_seconds is not None:
            share = self.schedule.step_share if step == 0 else SETTINGS.margin**-1
            seconds = last.seconds / last.n_data
            n = min(n, share * self.schedule.left / seconds)
        draws = int(n * inner * learned.each * self.n_replicates)
        grown = SETTINGS.n_inner << max((draws.bit_length() - 14) // 3, 0)
        n, inner = n * inner / max(grown, inner), max(grown, inner)
        while n < SETTINGS.pilot and inner > SETTINGS.n_inner:
            n, inner = 2.0 * n, inner // 2
        return int(n), inner

    def _on_grid(self, least: int) -> bool:
        """Average divergence of posteriors from the prior on a grid of one or two parameters.

        A pilot shows the spacing. False, if the limits do not afford that number of data for each
        replicate: likelihoods are for draws of the proposal then. With E[log p(y | θ)] at the θ
        that made the data, the same likelihoods have a second route to the gain.
        """
        learned, law = self.utility.learned, self.utility.learned.experiment.prior_law
        limited = self.budget is not None or self.max_seconds is not None
        informative = isinstance(self.utility, Information) and learned.each == 1
        if isinstance(law, Empirical) or not (limited and informative):
            return False
        begin, error, terms = self.schedule.now(), np.inf, list[Array]()
        rows, n = self.populations[0].y[: SETTINGS.pilot_data], 0
        for grid in PriorGrid.finer(law.base_dim):
            if error <= SETTINGS.grid_error or self._grid_data(len(grid.points)) < least:
                break
            with self.schedule.measure("grid", len(rows) * len(grid.points)):
                terms.append(self._on(grid, rows)[1])
            if len(terms) > 1:
                error = float(np.abs(terms[-1] - terms[-2]).mean())
            n, chosen = self._grid_data(len(grid.points)), grid
        if error > SETTINGS.grid_error or n < least:
            return False
        n, found, bias = 1 << (n.bit_length() - 1), [], abs(float((terms[-1] - terms[-2]).mean()))
        for population in self.populations:
            own = learned.at_truth(population.latent[:n], population.y[:n])
            evidence, divergence = self._on(chosen, population.y[:n])
            value = float(divergence.mean())
            found.append((value, float((own - evidence).mean()) - value))
        values, apart = np.array(found).T
        seconds = self.schedule.now() - begin
        self.turns = [CorrectionTurn(values, apart, 1.0, 0.0, bias, n, len(chosen.points), seconds)]
        self.pairs, self.method = 0.0 * self.pairs, "grid"
        return True

    def _grid_data(self, points: int) -> int:
        """Number of data of each replicate that time and budget afford on a grid."""
        n = float(self.n_base)
        if self.budget is not None:
            n = min(n, (self.budget - self.setup.n_likelihoods) / (points * self.n_replicates))
        if self.max_seconds is not None and "grid" in self.schedule.costs:
            cells = 0.7 * self.schedule.left / self.schedule.costs["grid"]
            n = min(n, cells / (points * self.n_replicates))
        return int(n)

    def _on(self, grid: PriorGrid, y: Array) -> tuple[Array, Array]:
        """Log evidence (n,) of data, and divergences (n,) of their posteriors, on a grid."""
        rows = max(1, _CELLS // len(grid.points))
        tables = (OutcomeTable.of_rows(self.setup, y[i : i + rows]) for i in range(0, len(y), rows))
        parts = [divergences(table.logs(grid.points), grid.weights) for table in tables]
        evidence, divergence = np.concatenate(parts, axis=1)
        return evidence, divergence

    def _turn(self, n: int, n_inner: int) -> bool:
        """Estimate the correction of each replicate from n data; False if time ran out."""
        index, begin, learned = len(self.turns), self.schedule.now(), self.utility.learned
        room, parts = n, []
        if self.budget is not None:
            cost = self.n_replicates * n * (n_inner * learned.each + 1)
            room = max(self.budget - self.setup.n_likelihoods - cost, 0)
            room //= self.n_replicates * NEAR_DRAWS * learned.each
        for r, population in enumerate(self.populations):
            if self.schedule.left <= 0.0 and (r > 0 or index > 0):
                return False
            try:
                rows = population.rows(n, index)
                parts.append(
                    self._corrected(rows, n_inner, learned.stream.child(4, r, index), room)
                )
            except OutOfTimeError:
                return False
        values, apart, size, missed, missing = np.array(parts).T
        self.turns.append(
            CorrectionTurn(
                values=values,
                apart=apart,
                size=float(np.clip(size, 1.0 / n_inner, 1.0).mean()),
                missed=float(missed.mean()),
                missing=float(missing.mean()),
                n_data=n,
                n_inner=n_inner,
                seconds=self.schedule.now() - begin,
            )
        )
        return True

    def _corrected(self, rows: Rows, n: int, stream: Stream, room: int) -> tuple[float, ...]:
        """Correction, discrepancy, sample size, missed share, and missing nats.

        At most `room` data at which the draws missed the posterior get draws near their θ.
        """
        found = self.utility.corrections(rows, n, stream.child(0))
        value, apart, size, _ = rows.weight @ found / len(rows)
        missed = np.flatnonzero(found[:, 3] > np.log(2.0))
        share, missing = len(missed) / len(rows), 0.0
        if len(missed) and isinstance(self.utility, Information):
            missing = float(rows.weight[missed] @ found[missed, 3]) / len(rows)
            if room > 0:
                at = np.random.default_rng(len(missed)).permutation(missed)[:room]
                near = self.utility.corrections(rows[at], NEAR_DRAWS, stream.child(1), near=True)
                # The logarithm of a mean with relative variance v is v/2 too low in expectation.
                lacking = near[:, 3] + 0.5 / (NEAR_DRAWS * near[:, 2])
                value += float((rows.weight[at] * (near[:, 0] - found[at, 0])).mean()) * share
                missing = float((rows.weight[at] * lacking).mean()) * share
        return value, apart, size, share, missing

    def _answer(self) -> Gain:
        """Mean over the replicates, with their spread and a bias as error.

        The bias is of posteriors that draws missed, and of routes that disagree.
        """
        whole, answers = CorrectionTurn.pooled(self.turns), self._answers
        first, informative = self.turns[0], isinstance(self.utility, Information)
        if whole.n_inner > first.n_inner and not informative:
            # Without a variance of the weights, bias falls as slowly as one over a root.
            change = abs(float(np.mean(first.values - whole.values)))
            whole = replace(whole, missing=change / (whole.n_inner / first.n_inner) ** 0.5)
        value, n = float(answers.mean()), len(answers)
        spread = half_width(answers) / NORMAL_95
        errors = np.hypot(half_width(whole.apart), half_width(self.simulated))
        apart, allowed = float(whole.apart.mean()), 3.0 * errors + whole.missing
        routes = value + np.array([0.0, apart])
        lost = abs(apart) if abs(apart) > allowed + SETTINGS.negligible else 0.0
        warned = list(self.utility.learned.notes)
        if lost > 0.0:
            warned.append(
                f"simulated pairs and likelihoods disagree about the gain, {routes[0]:.4g} and "
                f"{routes[1]:.4g}: simulate and log_prob may not describe one experiment, or the "
                "proposal misses a part of the posterior; the interval is widened"
            )
        bias = whole.missing / NORMAL_95 + lost
        std_error = float(np.hypot(max(spread, ROUNDING if informative else 0.0), bias))
        notes = []
        if whole.size < SETTINGS.low_sample_size:
            notes.append(
                f"the effective sample size is {100 * whole.size:.0f} % of the inner draws: the "
                "proposal is far from the posterior; more simulations, fewer parameters or data "
                "that say less would help"
            )
        status, reason = self._status(value, std_error, whole)
        warned += reason if status in ("limit", "budget") else []
        notes += reason if status == "unreliable" else []
        return self._gain(
            answers,
            std_error,
            n_outer=n * whole.n_data,
            n_inner=whole.n_inner,
            method=self.method,
            status=status,
            warnings=tuple(warned),
            diagnostics={
                **self._diagnostics(),
                "effective_sample_size": whole.size,
                "routes": routes,
                "missed": whole.missed,
                "error_spread": spread,
                "error_bias": bias,
                "notes": notes,
            },
        )

    def _status(
        self, value: float, std_error: float, whole: CorrectionTurn
    ) -> tuple[str, list[str]]:
        """Status by one rule: unreliable, converged, the limit that ended the search, or done."""
        asked, half = self.goal(value), NORMAL_95 * std_error
        if isinstance(self.utility, Information) and (
            whole.missed > SETTINGS.most_missed or whole.missing > 0.1 * abs(value) + 1e-12
        ):
            return "unreliable", [
                f"at {100 * whole.missed:.2g} % of the data the parameters behind them outweigh "
                "all draws: the proposal misses their posteriors, and the gain there is uncertain; "
                "a larger budget or more simulations would help"
            ]
        if not asked:
            return ("done" if self.max_seconds is None else "time"), []
        if half <= 1.0001 * asked:
            return "converged", []
        if self.max_seconds is not None and self.schedule.left < 0.2 * self.max_seconds:
            return "time", []
        simulated = half_width(self.pairs)
        text = f"the tolerance {asked:.3g} was not met: the half-width is {half:.2g}"
        if simulated > 0.5 * half or self.budget is None:
            text += f", {simulated:.2g} of it from averages of {self.n_base * len(self.pairs):,} "
            return "limit", [text + "simulations; raise simulations="]
        return "budget", [text + "; raise budget="]

    def _diagnostics(self) -> dict[str, Any]:
        bounds = self._means(self.utility.bound)
        return {
            "lower_bound": float(bounds.mean()),
            "lower_bound_error": half_width(bounds) / NORMAL_95,
            "components": self.utility.learned.blocks[0].proposal.components,
            "simulations": self.setup.n_simulations,
        }

    def _bound(self, status: str) -> Gain:
        """Lower bound of a simulator without likelihood, or without time for likelihoods."""
        without = "log_prob" if status == LOWER_BOUND else "time for likelihoods"
        note = (
            f"a lower bound of the gain (Barber and Agakov, 2003): without {without} its distance "
            "from the gain is unknown; the interval is one-sided"
        )
        bounds = self._means(self.utility.bound)
        return self._gain(
            bounds,
            half_width(bounds) / NORMAL_95,
            n_outer=self.n_base * len(bounds),
            n_inner=1,
            method=LOWER_BOUND,
            status=status,
            warnings=self.utility.learned.notes,
            diagnostics={**self._diagnostics(), "notes": [note]},
        )
