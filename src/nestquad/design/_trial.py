"""Trials: sample size, assurance, and designs under several priors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from nestquad._checks import listed, number, shown
from nestquad._typing import Array, RNGLike
from nestquad.design._compare import Criterion, DesignComparison, compare, label_of
from nestquad.design._experiment import Experiment, check_experiment
from nestquad.design._gain import Gain, Run, eig
from nestquad.design._learned import Population, Regressed
from nestquad.errors import InputError
from nestquad.plots import axes_or_new
from nestquad.points import Sobol, Stream
from nestquad.result import NORMAL_95, Estimate

_REPLICATES = 8  # independent randomizations of an assurance from simulations alone
Make = Callable[[int], tuple[Experiment, Any]]


@dataclass(frozen=True, eq=False)
class Claim(Regressed):
    """Probability over the data that P(claim | y) exceeds a level: a utility without bound."""

    level: float
    smooth: ClassVar[bool] = False

    def pairs(self, population: Population) -> Array:
        return np.zeros(len(population.y))

    def correction(self, shift: Array, predicted: Array) -> Array:
        return np.asarray((shift + predicted)[..., 0] > self.level, dtype=float)


def assurance(
    experiment: Experiment,
    design: Any,
    *,
    success: Callable[[Array], Any] | None = None,
    claim: Callable[[Array], Any] | None = None,
    level: float = 0.975,
    **settings: Any,
) -> Gain:
    """Probability that a trial succeeds, over the prior: expected power.

    Assurance averages the power of a trial over the prior of its parameters (O'Hagan, Stevens and
    Campbell, 2005, Assurance in clinical trial design).

    Parameters
    ----------
    experiment, design
        As in `eig`.
    success
        ``success(y)`` with data (n, n_y) says for each row whether the trial succeeds, such as by
        a test. It needs simulations only.
    claim, level
        Instead, ``claim(theta)`` with parameters (n, p): the trial succeeds if its posterior
        probability exceeds `level`. It needs likelihoods, and settings of `eig` such as `budget`.
    settings
        Settings of `eig`.

    Examples
    --------
    >>> import numpy as np
    >>> import nestquad as nq
    >>> from nestquad import design
    >>> trial = design.Experiment(
    ...     prior=nq.Normal(0.3, 0.2),
    ...     simulate=lambda theta, e, n: theta + e / np.sqrt(n),
    ...     noise=nq.Normal(),
    ... )
    >>> power = design.assurance(trial, 100, success=lambda y: y[:, 0] > 0.196, rng=0)
    >>> bool(abs(power.value - 0.679) < 0.01)
    True
    """
    check_experiment(experiment)
    if (success is None) == (claim is None):
        raise InputError("success", "both or neither of success and claim", "one of them")
    if success is None:
        number("level", level, "a probability between 0 and 1", above=0.0, below=1.0)
        chosen = claim

        def holds(theta: Array) -> Array:
            return experiment.called("claim", chosen, theta)[:, None]

        run = Run.for_utility(experiment, design, settings)
        return run.solve(lambda learned: Claim(learned, holds, np.zeros(1), level))
    stream = Stream.from_rng(settings.get("rng"))
    n = int(settings.get("simulations") or 2**16) // _REPLICATES
    answers = []
    for r in range(_REPLICATES):
        u = Sobol().uniforms(stream.child(r), experiment.dim, (0, 1), (0, n))[0]
        wins = experiment.called("success", success, experiment.simulated(u, design)[1])
        if wins.shape != (n,):
            raise InputError("success", f"shape {wins.shape}", f"shape ({n},) for {n} data")
        answers.append(float(wins.mean()))
    return Gain.of(
        np.array(answers),
        n_evaluations=0,
        n_outer=n * _REPLICATES,
        n_inner=1,
        method="simulation",
        problem=experiment.name or "assurance",
        diagnostics={"simulations": n * _REPLICATES, "notes": []},
    )


@dataclass(frozen=True, eq=False)
class SampleSize:
    """Smallest sample size that reaches a target, with an interval.

    Attributes
    ----------
    n
        The size whose interpolated value reaches the target.
    low, high
        Sizes at which the upper and the lower 95 % limit reach it.
    target
        The target.
    curve
        Estimates at the sizes tried.
    """

    n: int
    low: int
    high: int
    target: float
    curve: DesignComparison

    def __str__(self) -> str:
        return f"n = {self.n} ({self.low} to {self.high}, 95 %) reaches {self.target:g}"

    def plot(self, ax: Any = None) -> Any:
        """Draw the curve and the target; needs the extra ``plot``."""
        ax = axes_or_new(ax)
        sizes = [int(label) for label in self.curve.labels]
        halves = [float(est.half_width) for est in self.curve.estimates]
        ax.errorbar(sizes, self.curve.values, halves, fmt="o", markersize=4, linewidth=1)
        ax.axhline(self.target, color="0.6", linewidth=1)
        ax.axvspan(self.low, self.high, color="0.8", zorder=0)
        ax.set_xlabel("sample size")
        return ax


def size_curve(
    make: Make,
    sizes: Sequence[int],
    *,
    criterion: Criterion = eig,
    rng: RNGLike = None,
    **settings: Any,
) -> DesignComparison:
    """Estimates over sample sizes, with common random numbers.

    ``make(n)`` returns the experiment and the design with n observations. Settings, such as
    `budget`, are for each size.
    """
    stream = Stream.from_rng(rng)
    rows = sorted({int(n) for n in listed("sizes", sizes, "sample sizes")})
    answers: list[Estimate] = []
    for n in rows:
        experiment, design = make(n)
        answers.append(criterion(experiment, design, rng=stream, **settings))
    return DesignComparison.of([float(n) for n in rows], answers, [str(n) for n in rows])


def sample_size(
    make: Make,
    target: float,
    sizes: Sequence[int],
    *,
    criterion: Criterion = eig,
    rng: RNGLike = None,
    **settings: Any,
) -> SampleSize:
    """Smallest sample size whose expected gain, precision or assurance reaches a target.

    Parameters
    ----------
    make
        ``make(n)`` returns the experiment and the design with n observations.
    target
        The value to reach, of a criterion that grows with n.
    sizes
        Smallest and largest size to consider.
    criterion
        `eig`, `variance_reduction`, or `assurance` with its settings.
    rng, settings
        As in `size_curve`.

    Notes
    -----
    Sizes in geometric progression come first, then bisection around the crossing. Values between
    sizes are interpolated linearly in log n.
    """
    low, high = int(min(sizes)), int(max(sizes))
    if not 1 <= low < high:
        raise InputError("sizes", shown(sizes), "two sample sizes, 1 ≤ smallest < largest")
    stream = Stream.from_rng(rng)
    tried = np.unique(np.geomspace(low, high, 6).round().astype(int)).tolist()
    known: dict[str, Estimate] = {}
    for _ in range(5):
        new = [n for n in tried if str(n) not in known]
        more = size_curve(make, new, criterion=criterion, rng=stream, **settings)
        known |= dict(zip(more.labels, more.estimates, strict=True))
        labels = [str(n) for n in tried]
        curve = DesignComparison.of(map(float, tried), [known[x] for x in labels], labels)
        at = int(np.searchsorted(np.maximum.accumulate(curve.values), target))
        if at in (0, len(tried)):
            break
        middle = round(float(np.sqrt(tried[at - 1] * tried[at])))
        if middle in tried:
            break
        tried = sorted([*tried, middle])
    halves = np.array([NORMAL_95 * float(est.std_error) for est in curve.estimates])
    sizes = [int(n) for n in curve.labels]
    first, n, last = (
        _crossing(sizes, curve.values + shift, target) for shift in (halves, 0.0, -halves)
    )
    if np.isinf(n):
        raise InputError(
            "target",
            f"{target:g}",
            f"at most {curve.values.max():.4g}, the value of the largest size {high}",
        )
    return SampleSize(int(n), int(first), int(min(last, high)), float(target), curve)


def _crossing(sizes: Sequence[int], values: Array, target: float) -> float:
    """Smallest size whose value, interpolated in log n, reaches the target; infinity if none."""
    rising = np.maximum.accumulate(values) + 1e-12 * np.arange(len(values))
    at = np.interp(target, rising, np.log(sizes), right=np.inf)
    return float(np.ceil(np.exp(at) - 1e-9))


@dataclass(frozen=True, eq=False)
class PriorComparison:
    """Designs under several priors: values (priors, designs) and robust choices."""

    priors: tuple[str, ...]
    comparisons: tuple[DesignComparison, ...]

    @cached_property
    def values(self) -> Array:
        return np.array([answers.values for answers in self.comparisons])

    @property
    def regret(self) -> Array:
        """Gain lost by each design under each prior, relative to the best design there."""
        return np.asarray(self.values.max(axis=1, keepdims=True) - self.values)

    @property
    def best(self) -> int:
        """Index of the design with the least largest regret (Savage's minimax regret)."""
        return int(np.argmin(self.regret.max(axis=0)))

    @property
    def design(self) -> Any:
        return self.comparisons[0].designs[self.best]

    def __str__(self) -> str:
        rows = [
            f"{name}: best {answers.labels[answers.best]}, robust design behind by {lost:.3g}"
            for name, answers, lost in zip(
                self.priors, self.comparisons, self.regret[:, self.best], strict=True
            )
        ]
        return "\n".join([f"robust design {label_of(self.design)}", *rows])


def compare_priors(
    experiment: Experiment, designs: Sequence[Any], priors: Mapping[str, Any], **settings: Any
) -> PriorComparison:
    """Compare designs under several priors; settings are settings of `compare`, for each prior."""
    if not isinstance(priors, Mapping) or not priors:
        raise InputError("priors", shown(priors), "a dictionary of names and priors")
    answers = [
        compare(replace(experiment, prior=law), designs, **settings) for law in priors.values()
    ]
    return PriorComparison(tuple(priors), tuple(answers))
