"""A decision model that can be run, the joint law of its parameters, and values of information."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import stdtrit

from nestquad import clock
from nestquad._checks import generator, shown
from nestquad._progress import ProgressLike
from nestquad._typing import Array, RNGLike
from nestquad.distributions import Independent, Law, LogNormal, Normal, as_law
from nestquad.errors import EvaluationError, InputError, UnsupportedError, unknown_name
from nestquad.estimate import check_limits, estimate
from nestquad.methods import Method
from nestquad.points import IID, Sobol, Stream
from nestquad.problem import NestedExpectation, best_and_each, value_of_information
from nestquad.result import NORMAL_95, Estimate, Step
from nestquad.voi.table import Outputs, evppi, evsi, pandas, parameter_sets

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Block:
    """Parameters with a law of their own, independent of all others."""

    names: tuple[str, ...]
    law: Law


@dataclass(frozen=True, eq=False)
class Joint:
    """Jointly Gaussian parameters (some of them by their logarithm), and independent blocks."""

    gaussian: tuple[str, ...]
    mean: Array
    cov: Array
    logs: frozenset[str]
    blocks: tuple[Block, ...]

    @cached_property
    def names(self) -> tuple[str, ...]:
        return self.gaussian + tuple(name for block in self.blocks for name in block.names)

    def split(self, known: Iterable[str]) -> Split:
        """Known and unknown parameters; refuses to take a block of unknown structure apart."""
        chosen = set(known)
        for block in self.blocks:
            inside = [name for name in block.names if name in chosen]
            if inside and len(inside) < len(block.names):
                rest = [name for name in block.names if name not in chosen]
                raise UnsupportedError(
                    f"The law of {', '.join(rest)} given {', '.join(inside)} is not known: they "
                    f"share {block.law!r}, which has no closed form for it. Learn all of "
                    f"{', '.join(block.names)} together, or make them jointly normal, or draw a "
                    "table with model.sample and use voi.evppi on it."
                )
        return Split(self, frozenset(chosen))


@dataclass(frozen=True, eq=False)
class Split:
    """A joint law with some parameters known.

    Arrays of known or unknown parameters have the Gaussian ones first (logarithms where the
    parameter is log-normal), then the blocks.
    """

    joint: Joint
    known: frozenset[str]

    def names(self, *, known: bool) -> tuple[str, ...]:
        return tuple(name for name in self.joint.names if (name in self.known) == known)

    def values(self, array: Array, *, known: bool) -> dict[str, Array]:
        """Parameters by name, from an array with them along its last axis."""
        columns = zip(self.names(known=known), np.moveaxis(array, -1, 0), strict=True)
        return {n: np.exp(v) if n in self.joint.logs else v for n, v in columns}

    @cached_property
    def outer(self) -> Law:
        """The law of the known parameters."""
        at = self._gaussian_at(known=True)
        gaussian = [_normal(self.joint.mean[at], self.joint.cov[np.ix_(at, at)])] if at else []
        return _together([*gaussian, *self._blocks(known=True)])

    @cached_property
    def inner(self) -> Any:
        """The law of the unknown: one law if independent of the known, else a function."""
        if not self._gaussian_at(known=False) or not np.any(self._regression[1]):
            return self.given(None)
        return self.given

    def given(self, theta: Array | None) -> Law:
        """The law of the unknown parameters given the known ones (T, d)."""
        parts: list[Law] = []
        if self._gaussian_at(known=False):
            intercept, slope, cov = self._regression
            mean = intercept
            if theta is not None:
                mean = np.broadcast_to(intercept, (len(theta), len(intercept)))
                # Not a matrix product: BLAS rounds a row differently in chunks of other sizes.
                for k in range(slope.shape[1]):
                    mean = mean + theta[:, k : k + 1] * slope[:, k]
            parts.append(_normal(mean, cov))
        return _together([*parts, *self._blocks(known=False)])

    @cached_property
    def _regression(self) -> tuple[Array, Array, Array]:
        """Intercept (m,), slope (m, k) and covariance (m, m) of the unknown Gaussian parameters."""
        a, b = self._gaussian_at(known=False), self._gaussian_at(known=True)
        mean, cov = self.joint.mean, self.joint.cov
        if not b:
            return mean[a], np.zeros((len(a), 0)), cov[np.ix_(a, a)]
        cross = cov[np.ix_(b, a)]
        slope = np.asarray(np.linalg.lstsq(cov[np.ix_(b, b)], cross, rcond=1e-12)[0]).T
        rest = cov[np.ix_(a, a)] - slope @ cross
        # Rounding leaves the two triangles a few units apart in the last place.
        return mean[a] - slope @ mean[b], slope, (rest + rest.T) / 2

    def _gaussian_at(self, *, known: bool) -> list[int]:
        names = self.joint.gaussian
        return [i for i, name in enumerate(names) if (name in self.known) == known]

    def _blocks(self, *, known: bool) -> list[Law]:
        return [b.law for b in self.joint.blocks if (b.names[0] in self.known) == known]


def joint_law(parameters: Any, correlations: Any) -> Joint:
    """The joint law of parameters and correlations, given as in `Model`."""
    if not isinstance(parameters, Mapping) or not parameters:
        given, expected = type(parameters).__name__, "a mapping from names to laws"
        raise InputError("parameters", given, expected, "As a dict.")
    means: dict[str, float] = {}
    covariances: list[tuple[tuple[str, ...], Array]] = []
    logs: set[str] = set()
    blocks: list[Block] = []
    for key, given in parameters.items():
        names = (key,) if isinstance(key, str) else tuple(key)
        law = as_law(given, argument=f"parameters[{key!r}]")
        if law.batch is not None or (law.dim is not None and law.dim != len(names)):
            count = f"{len(names)} name{'s' * (len(names) > 1)}"
            given, expected = (
                f"a law of {law.dim} coordinates",
                f"one coordinate for each of {count}",
            )
            advice = "Name each coordinate, as in ('a', 'b'): nq.Normal([0, 0], cov=…)."
            raise InputError(f"parameters[{key!r}]", given, expected, advice)
        repeated = [n for n in names if n in means or any(n in b.names for b in blocks)]
        if repeated or len(set(names)) < len(names):
            given = f"{(repeated or list(names))[0]!r} twice"
            raise InputError("parameters", given, "different names")
        if isinstance(law, Normal | LogNormal):
            means.update(zip(names, law.loc.tolist(), strict=True))
            if law.sd is not None:
                covariances.append((names, np.diag(np.square(law.sd))))
            elif law.cov is not None:
                covariances.append((names, law.cov))
            logs.update(names if isinstance(law, LogNormal) else ())
        else:
            blocks.append(Block(names, law))
    gaussian = tuple(means)
    cov = np.zeros((len(gaussian), len(gaussian)))
    for names, part in covariances:
        at = [gaussian.index(name) for name in names]
        cov[np.ix_(at, at)] = part
    _correlate(cov, gaussian, correlations, [b.names for b in blocks])
    return Joint(gaussian, np.array(list(means.values())), cov, frozenset(logs), tuple(blocks))


def _correlate(
    cov: Array, gaussian: tuple[str, ...], correlations: Any, others: list[tuple[str, ...]]
) -> None:
    """Write correlations into a covariance."""
    if correlations is None:
        return
    if not isinstance(correlations, Mapping):
        given, expected = type(correlations).__name__, "a mapping from tuples of names to numbers"
        raise InputError("correlations", given, expected, "As {('a', 'b'): 0.6}.")
    known = (*gaussian, *(name for names in others for name in names))
    for key, value in correlations.items():
        names = (key,) if isinstance(key, str) else tuple(key)
        for name in names:
            if name not in known:
                raise unknown_name("correlations", name, known)
            if name not in gaussian:
                raise UnsupportedError(
                    f"correlations: {name} is neither normal nor log-normal, so that a correlation "
                    "does not say what its law is given the others. Make it a function of "
                    "correlated normal parameters inside net_benefit, or draw a table and use "
                    "voi.evppi on it."
                )
        if len(names) < 2 or not (isinstance(value, int | float) and -1 < value < 1):
            expected = "two names or more, and a number in (-1, 1)"
            raise InputError("correlations", f"{key!r}: {value!r}", expected)
        for a, b in combinations([gaussian.index(name) for name in names], 2):
            cov[a, b] = cov[b, a] = value * np.sqrt(cov[a, a] * cov[b, b])
    sd = np.sqrt(np.diagonal(cov))
    lowest = float(np.linalg.eigvalsh(cov / np.outer(sd, sd)).min())
    if lowest < -1e-9:
        given = f"correlations that contradict each other (smallest eigenvalue {lowest:.2g})"
        expected = "a positive semi-definite correlation matrix"
        advice = "Correlations that are not given are 0: have all pairs of a group been given?"
        raise InputError("correlations", given, expected, advice)


def _normal(mean: Array, cov: Array) -> Law:
    """A normal law, with standard deviations alone without correlations."""
    variances = np.diagonal(cov)
    if np.array_equal(cov, np.diag(variances)) and (variances > 0).all():
        return Normal(mean, sd=np.sqrt(variances))
    return Normal(mean, cov=cov)


def _together(laws: list[Law]) -> Law:
    return laws[0] if len(laws) == 1 else Independent(*laws)


@dataclass(frozen=True)
class Model:
    """Decision model: distributions of its parameters, and net benefits of each option.

    Parameters
    ----------
    parameters
        From names to laws: laws of nestquad, or frozen ``scipy.stats`` distributions. A tuple of
        names has a law of equal dimension.
    net_benefit
        A function of a mapping from names to arrays, which broadcast against each other; returns
        the net benefits of all options, as a tuple of arrays or along a last axis.
    correlations
        From tuples of names to the correlation of each two of them, for normal parameters, and
        for log-normal ones by their logarithm: ``{("a", "b"): 0.6}``.
    options
        Names of the options.
    name
        For printing and plots.
    costs_effects
        Instead of `net_benefit`: a function that returns costs and effects, in the same form.
    wtp
        Willingness to pay for a unit of effect, with `costs_effects`: a number or several.
    derived
        From names to functions of the mapping: parameters that follow from others, in order, for
        `net_benefit` or `costs_effects` and for sets to learn.

    Examples
    --------
    >>> import nestquad as nq
    >>> from nestquad import voi
    >>> model = voi.Model(
    ...     parameters={"p1": nq.Normal(1.0, 1.0), "p2": nq.Normal(0.0, 2.0)},
    ...     net_benefit=lambda p: (0.0, p["p1"] - p["p2"]),
    ... )
    >>> est = model.evppi("p2", tol=0.01, method="joint", rng=0)
    >>> est.status, bool(abs(est.value - 0.3956) < 0.01)
    ('converged', True)
    """

    parameters: Mapping[Any, Any]
    net_benefit: Callable[[Mapping[str, Array]], Any] | None = None
    correlations: Mapping[Any, float] | None = None
    options: Sequence[str] = ()
    name: str = "model"
    costs_effects: Callable[[Mapping[str, Array]], tuple[Any, Any]] | None = None
    wtp: float | Sequence[float] | None = None
    derived: Mapping[str, Callable[[Mapping[str, Array]], Any]] | None = None

    def __post_init__(self) -> None:
        functions = {"net_benefit": self.net_benefit, "costs_effects": self.costs_effects}
        given = {name: function for name, function in functions.items() if function is not None}
        if len(given) != 1 or not all(map(callable, given.values())):
            kinds = " and ".join(f"{n}: {type(x).__name__}" for n, x in given.items())
            raise InputError("net_benefit", kinds or "nothing", "a function, or costs_effects=…")
        if (self.wtp is None) != (self.costs_effects is None):
            raise InputError("wtp", repr(self.wtp), "a number with costs_effects, none without")
        known = set(self.joint.names)  # refused now, where the user can see which line did it
        derived = {} if self.derived is None else self.derived
        if not isinstance(derived, Mapping):
            raise InputError("derived", shown(derived), "functions by name")
        for name, function in derived.items():
            if name in known or not callable(function):
                raise InputError("derived", repr(name), "a new name and a function of the others")

    @cached_property
    def joint(self) -> Joint:
        """The joint law of the parameters."""
        return joint_law(self.parameters, self.correlations)

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters, derived ones last."""
        return (*self.joint.names, *(self.derived or {}))

    def _wtps(self, wtp: Any) -> list[float]:
        if self.costs_effects is None:
            if wtp is not None:
                raise InputError("wtp", repr(wtp), "nothing", "The model has net benefits.")
            return [np.nan]
        return [float(k) for k in np.atleast_1d(np.asarray(self.wtp if wtp is None else wtp))]

    def _benefit(self, wtp: float) -> _Benefit:
        return _Benefit(self.net_benefit, self.costs_effects, wtp, dict(self.derived or {}))

    def problem(self, pars: Any, wtp: float | None = None) -> NestedExpectation:
        """The nested expectation whose answer is the EVPPI of these parameters."""
        sets = parameter_sets(pars, self.names)
        if len(sets) != 1:
            raise InputError("pars", f"{len(sets)} sets", "one set: a name, or a list of names")
        ((label, members),) = sets.items()
        from_others = [name for name in members if name in (self.derived or {})]
        if from_others:
            raise UnsupportedError(
                f"The law of the others given {', '.join(from_others)} is not known, as it is "
                "derived from them. model.evppi answers from a table of runs."
            )
        if set(members) == set(self.joint.names):
            raise InputError("pars", "all parameters", "some of them", "Use model.evpi for all.")
        split = self.joint.split(members)
        return NestedExpectation(
            outer=split.outer,
            inner=split.inner,
            g=_Benefits(split, self._benefit(self._wtps(wtp)[0])),
            f=best_and_each,
            combine=value_of_information,
            name=f"{self.name}, EVPPI of {label}",
        )

    def evppi(
        self,
        pars: Any = "all singles",
        *,
        tol: float | None = None,
        rtol: float | None = None,
        budget: int | None = None,
        method: str | Method[Any] = "auto",
        rng: RNGLike = None,
        executor: Executor | None = None,
        progress: ProgressLike = False,
        max_seconds: float | None = None,
        wtp: float | Sequence[float] | None = None,
    ) -> Any:
        """Expected value of partial perfect information about sets of parameters.

        One set is a nested expectation: the unknown parameters are drawn given the known ones,
        exactly where they are normal or log-normal, trivially where they are independent, and
        refused where neither holds. Several sets, several values of willingness to pay, and sets
        with derived parameters are answered by regression on one table of runs that all of them
        share.

        Parameters
        ----------
        pars
            A name or a list of names; several sets, or ``"all singles"``, as in `voi.evppi`.
        tol, rtol, budget, method, rng, executor, progress, max_seconds
            As in `nestquad.estimate`; an evaluation is one run of the model. ``method="table"``
            asks for the table.
        wtp
            Willingness to pay, instead of that of the model.

        Returns
        -------
        Estimate or DataFrame
            An estimate for one set, a table as that of `voi.evppi` for several.
        """
        sets = parameter_sets(pars, self.names)
        wtps = self._wtps(wtp)
        budget = check_limits(budget, tol, rtol, max_seconds)
        several = len(sets) > 1 or len(wtps) > 1
        is_derived = not set(self.derived or {}).isdisjoint(next(iter(sets.values())))
        if several or is_derived or method == "table":
            sample, seed = partial(self._sample, wtps), int(generator(rng).integers(2**31))
            table = _by_table(sample, sets, (tol, rtol), budget, max_seconds, seed, progress)
            return table.frame if several else table.estimate(self.name)
        how: Any = {"tol": tol, "rtol": rtol, "budget": budget, "max_seconds": max_seconds}
        how |= {"method": method, "rng": rng, "executor": executor, "progress": progress}
        return estimate(self.problem(pars, None if np.isnan(wtps[0]) else wtps[0]), **how)

    def evpi(
        self,
        *,
        tol: float | None = None,
        budget: int | None = None,
        rng: RNGLike = None,
        wtp: float | None = None,
    ) -> Estimate:
        """Expected value of perfect information, to a tolerance or with a budget of model runs."""
        everything = self.joint.split(self.joint.names)
        value = _perfect_by_sobol(everything, self._benefit(self._wtps(wtp)[0]), tol, budget, rng)
        return replace(value, problem=f"{self.name}, EVPI")

    def sample(self, n: int, rng: RNGLike = None) -> tuple[Outputs, pd.DataFrame]:
        """Outputs and inputs of n independent runs, for everything that takes tables."""
        return self._sample(self._wtps(None), n, rng)

    def _sample(self, wtps: Sequence[float], n: int, rng: RNGLike) -> tuple[Outputs, pd.DataFrame]:
        everything = self.joint.split(self.joint.names)
        draws = everything.outer.sample(n, generator(rng))
        benefit = self._benefit(wtps[0])
        table = _evaluated(everything, benefit.outputs, draws)
        values = benefit.completed(everything.values(draws, known=True))
        inputs, names = pandas().DataFrame(values), tuple(self.options)
        if self.costs_effects is None:
            return Outputs(net_benefit=table, options=names), inputs
        costs, effects = np.split(table, 2, axis=-1)
        return Outputs(costs, effects, list(wtps), options=names), inputs

    def evsi(
        self,
        design: Any,
        sizes: int | Sequence[int],
        *,
        n_runs: int = 10_000,
        rng: RNGLike = 0,
        progress: ProgressLike = False,
    ) -> pd.DataFrame:
        """Expected value of sample information, by regression on `n_runs` runs of the model.

        Parameters
        ----------
        design, sizes
            As in `nestquad.voi.evsi`.
        n_runs
            Runs of the model; all sizes share them.
        rng, progress
            As in `nestquad.voi.evsi`.
        """
        seed = int(generator(rng).integers(2**31))
        outputs, inputs = self.sample(n_runs, seed)
        return evsi(outputs, inputs, design, sizes, rng=seed + 1, progress=progress)


@dataclass(frozen=True)
class _Benefit:
    """Net benefits (…, D) from parameters by name, derived ones included."""

    net_benefit: Callable[[Mapping[str, Array]], Any] | None
    costs_effects: Callable[[Mapping[str, Array]], tuple[Any, Any]] | None
    wtp: float
    derived: dict[str, Callable[[Mapping[str, Array]], Any]]

    def completed(self, values: Mapping[str, Array]) -> dict[str, Array]:
        """All parameters, derived ones last."""
        every = dict(values)
        for name, function in self.derived.items():
            every[name] = np.asarray(function(every), dtype=float)
        return every

    def outputs(self, values: Mapping[str, Array]) -> Array:
        """Net benefits (…, D), or costs and effects side by side (…, 2 D)."""
        every = self.completed(values) if self.derived else values
        if self.net_benefit is not None:
            return _stacked(self.net_benefit(every))
        assert self.costs_effects is not None
        parts = [x if isinstance(x, tuple | list) else np.moveaxis(np.asarray(x), -1, 0)
                 for x in self.costs_effects(every)]  # fmt: skip
        if len(parts) != 2 or len(parts[0]) != len(parts[1]):
            raise EvaluationError(
                f"costs_effects returned {' and '.join(f'{len(p)} options' for p in parts)}",
                advice="Return costs and effects, each a tuple with one array for each option.",
            )
        return _stacked([*parts[0], *parts[1]])

    def __call__(self, values: Mapping[str, Array]) -> Array:
        table = self.outputs(values)
        if self.net_benefit is not None:
            return table
        costs, effects = np.split(table, 2, axis=-1)
        benefits: Array = self.wtp * effects - costs
        return benefits


@dataclass(frozen=True)
class _Benefits:
    """g of an EVPPI: net benefits (…, D) from unknown and known parameters."""

    split: Split
    benefit: _Benefit

    def __call__(self, x: Array, theta: Array) -> Array:
        known = self.split.values(theta, known=True)
        unknown = self.split.values(x, known=False)
        return self.benefit({**known, **unknown})


def _evaluated(
    everything: Split, function: Callable[[Mapping[str, Array]], Array], theta: Array
) -> Array:
    """Net benefits (n, D) from all parameters (n, d), checked."""
    try:
        benefits = function(everything.values(theta, known=True))
    except EvaluationError:
        raise
    except Exception as error:
        raise EvaluationError(
            f"net_benefit raised {type(error).__name__}: {error} for {len(theta)} draws",
            advice="It gets a mapping from names to arrays, and works on whole arrays.",
        ) from error
    if benefits.shape[:-1] != (len(theta),):
        raise EvaluationError(
            f"net_benefit returned shape {benefits.shape} for {len(theta)} draws",
            advice="Return a tuple with one array for each option, or options along a last axis.",
        )
    bad = np.flatnonzero(~np.isfinite(benefits).all(axis=1))
    if bad.size:
        raise EvaluationError("net_benefit is not finite", theta=theta[bad[0]])
    return benefits


def _stacked(benefits: Any) -> Array:
    """Net benefits with options along the last axis."""
    if isinstance(benefits, tuple | list):
        stacked: Array = np.stack(
            np.broadcast_arrays(*(np.asarray(x, dtype=float) for x in benefits)), axis=-1
        )
    else:
        stacked = np.asarray(benefits, dtype=float)
    if stacked.ndim < 2 or stacked.shape[-1] < 2:
        raise EvaluationError(
            f"net_benefit returned {stacked.shape[-1] if stacked.ndim > 1 else 'one'} option",
            advice="A decision needs at least two: return a tuple with one array for each option, "
            "such as (0.0, benefit) against doing nothing.",
        )
    return stacked


# Replicates of Sobol' points, first size of each, and model runs without a budget.
_REPLICATES, _FIRST, _LIMIT = 16, 16, 10_000_000


def _perfect_by_sobol(
    everything: Split, benefit: _Benefit, tol: float | None, budget: int | None, rng: RNGLike
) -> Estimate:
    """E max − max E of net benefits, by replicated Sobol points."""
    law = everything.outer
    if tol is None and budget is None:
        given = "neither a budget nor a tolerance"
        raise InputError("budget", given, "one of them", "For instance tol=1.0.")
    started = clock.now()
    limit = check_limits(budget, tol, None, None) or _LIMIT
    stream = Stream.from_rng(rng)
    sequence = Sobol() if law.has_transport else IID()
    generator = stream.generator()
    sums: Array = np.zeros(())
    done, trace = 0, []
    while True:
        size = done or max(min(_FIRST, limit // _REPLICATES), 1)
        if law.has_transport:
            u = sequence.uniforms(stream, law.base_dim, (0, _REPLICATES), (done, done + size))
            draws = law.from_uniform(u.reshape(-1, law.base_dim))
        else:
            draws = law.sample(_REPLICATES * size, generator)
        table = _evaluated(everything, benefit, draws).reshape(_REPLICATES, size, -1)
        best = np.concatenate((table.max(axis=-1, keepdims=True), table), axis=-1)
        sums = sums + best.sum(axis=1)
        done += size
        means = sums / done
        value, se = _summary(means)
        trace.append(Step(_REPLICATES * done, value, se))
        met = tol is not None and NORMAL_95 * se <= tol
        if met or 2 * done * _REPLICATES > limit:
            break
    status = "done" if tol is None else "converged" if met else "budget"
    return Estimate.from_directions(
        value,
        np.array([[se]]),
        n_evaluations=_REPLICATES * done,
        n_outer=_REPLICATES * done,
        n_inner=1,
        method="sobol",
        status=status,
        seconds=clock.now() - started,
        diagnostics={"notes": [f"{_REPLICATES} independent sets of {done:,} points"]},
        trace=tuple(trace),
    )


def _summary(means: Array) -> tuple[float, float]:
    """Value and standard error, from the mean best and the mean of each option by replicate."""
    overall = means.mean(axis=0)
    default = 1 + int(overall[1:].argmax())
    gains = means[:, 0] - means[:, default]
    count = len(gains)
    # Few replicates: widened so that ± 1.96 of it is the interval of Student's t.
    factor = float(stdtrit(count - 1, 0.975) / NORMAL_95)
    return float(gains.mean()), factor * float(gains.std(ddof=1)) / np.sqrt(count)


@dataclass(frozen=True)
class SimulatedTableSettings:
    """Runs of a model in tables for regression."""

    # Runs of the first table towards a tolerance or a time, of a table without either, and at most.
    pilot: int = 1_000
    default: int = 10_000
    most: int = 200_000
    # Factor on the runs that the square-root law asks for, so that the next table is the last.
    reserve: float = 1.2


TABLES = SimulatedTableSettings()


@dataclass(frozen=True)
class _TableAnswer:
    """Table of EVPPI, rows of its last table of runs, all runs, status and time."""

    frame: pd.DataFrame
    n: int
    runs: int
    status: str
    seconds: float

    def estimate(self, name: str) -> Estimate:
        """The only row as an estimate."""
        row = self.frame.iloc[0]
        notes = [f"regression on a table of {self.n:,} runs"]
        notes += [f"flags: {row['flags']}"] if row["flags"] else []
        return Estimate.from_directions(
            float(row.evppi),
            np.array([[float(_half_widths(self.frame).iloc[0]) / NORMAL_95]]),
            n_evaluations=self.runs,
            n_outer=self.n,
            n_inner=1,
            method="table",
            status=self.status,
            seconds=self.seconds,
            diagnostics={"notes": notes, "table": self.frame.to_dict("records")},
            problem=f"{name}, EVPPI of {row.pars}",
        )


def _half_widths(frame: pd.DataFrame) -> Any:
    """Larger side of each interval."""
    return np.maximum(frame["upper"] - frame["evppi"], frame["evppi"] - frame["lower"])


def _by_table(
    sample: Callable[[int, Any], Any],
    sets: Mapping[str, tuple[str, ...]],
    tolerances: tuple[float | None, float | None],
    budget: int | None,
    max_seconds: float | None,
    seed: int,
    progress: ProgressLike,
) -> _TableAnswer:
    """EVPPI of all sets from runs of the model, more of them until the tolerances are met."""
    started = clock.now()
    ends = np.inf if max_seconds is None else started + max_seconds
    limit = budget or TABLES.most
    absolute, relative = (tolerance or 0.0 for tolerance in tolerances)
    has_tolerance = absolute + relative > 0
    grows = budget is None and (has_tolerance or max_seconds is not None)
    n, runs = min(TABLES.pilot if grows else TABLES.default, limit), 0
    wanted = {label: list(members) for label, members in sets.items()}
    while True:
        turn = clock.now()
        outputs, inputs = sample(n, seed)
        runs += n
        frame = evppi(outputs, inputs, wanted, rng=seed + 1, progress=progress)
        now = clock.now()
        # Half-width over the tolerance, maximum over sets.
        asked = np.maximum(absolute, relative * frame["evppi"].abs())
        excess = float(np.max(_half_widths(frame) / np.maximum(asked, np.finfo(float).tiny)))
        excess = excess if has_tolerance else 0.0
        is_met = has_tolerance and excess <= 1.0
        more = int(min(TABLES.reserve * n * excess**2, limit))
        in_time = now + (now - turn) * more / n <= ends
        if is_met or more <= n or not in_time:
            status = "converged" if is_met else "time" if more > n else "budget"
            status = status if has_tolerance else "done"
            return _TableAnswer(frame, n, runs, status, now - started)
        n = more
