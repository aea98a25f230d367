"""Bayesian optimisation of one's own black box: design, fit, acquisition, evaluation, again."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike

from nestquad.errors import InputError, NestquadWarning
from studies.bayesopt.acquisitions import MakesAcquisition, propose
from studies.bayesopt.acquisitions import acquisition as acquisition_named
from studies.bayesopt.model import NUMERICAL, check_names, fit
from studies.bayesopt.trace import Array, History, Trace

# Notes of this kind are worth a warning: points were not chosen as asked for.
_FELL_BACK = "uniform points instead"


def optimize(
    objective: Callable[[Array], Any],
    bounds: ArrayLike,
    *,
    iterations: int | None = None,
    budget: int | None = None,
    q: int = 1,
    acquisition: str | MakesAcquisition | None = "lookahead-kq",
    initial: int | ArrayLike | Trace = 2,
    kernel: str = "matern52",
    mean: str = "constant",
    noise: float | None = None,
    vectorized: bool = False,
    restarts: int = 4,
    raw_samples: int = 64,
    steps: int = 50,
    seed: int | None = None,
    max_seconds: float | None = None,
) -> Trace:
    """Maximise a black box by Bayesian optimisation.

    A loop for examples and experiments, small enough to be read: constraints, several objectives,
    integers, asynchronous evaluation and the like are the business of BoTorch and Ax.

    Parameters
    ----------
    objective
        A point (d,) → a number to be made large. With `vectorized`, points (q, d) → (q,).
    bounds
        (2, d), as BoTorch has them: lower ends, then upper ends.
    iterations
        Batches of q points after the initial design; or
    budget
        Evaluations in all, the initial ones included.
    q
        Points that are chosen together.
    acquisition
        A name, see `acquisition`, whose sizes are then the default ones; what that function
        returns; or a callable of your own, (model, best_f, q, seed) → a BoTorch acquisition
        function. The model lives on the unit cube, with values of mean 0 and standard deviation 1,
        and `best_f` is in these units. None: uniform points.
    initial
        A number of uniform points, points (n, d) of your own, or a `Trace` to go on from: with the
        same seed as if there had been no pause between two iterations.
    kernel
        Of the Gaussian process: ``"matern12"``, ``"matern32"``, ``"matern52"`` or ``"rbf"``.
    mean
        Of the Gaussian process: ``"constant"`` (fitted) or ``"zero"``.
    noise
        Standard deviation of what is random in the objective, in its own units; 0 for a
        deterministic one; None: learned.
    restarts, raw_samples, steps
        Of the search for the largest acquisition value: starting points, points that they are
        chosen from, and steps from each of them at most.
    seed
        The same seed gives the same points.
    max_seconds
        No new batch is begun after this time.

    Returns
    -------
    Trace
        Ctrl-C returns what is done until then.

    Raises
    ------
    EvaluationError
        If the objective raises, or returns something else than finite numbers. ``error.x`` is the
        point, and ``error.trace`` is what was done before; as `initial` it goes on from there.

    Examples
    --------
    >>> trace = optimize(
    ...     lambda x: -((x[0] - 0.3) ** 2), [[0.0], [1.0]], iterations=4, acquisition="qei", seed=0
    ... )
    >>> bool(abs(trace.best_x[0] - 0.3) < 0.05)
    True
    """
    box = _box(bounds)
    chooser = _Chooser(box, acquisition, kernel, mean, noise, (restarts, raw_samples, steps), seed)
    if q < 1:
        raise InputError("q", repr(q), "a number of at least 1")
    known = _known(initial, box)
    first = np.empty((0, box.shape[1])) if known.Y.size else chooser.design(initial)
    total = _total(iterations, budget, q, len(known) + len(first))
    history = History(objective, vectorized, known)
    status = "finished"
    try:
        if len(first):
            history.evaluate(first, 0)
        while history.count < total:
            if max_seconds is not None and history.seconds > max_seconds:
                status = "out of time"
                break
            number = history.iteration + 1
            points, note = chooser.points(history, min(q, total - history.count), number)
            if note:
                history.notes.append(f"iteration {number}: {note}")
            history.evaluate(points, number)
    except KeyboardInterrupt:
        status = "interrupted"
    fallen = [note for note in history.notes if note.endswith(_FELL_BACK)]
    if fallen:
        warnings.warn(f"{len(fallen)} times: {fallen[0]}", NestquadWarning, stacklevel=2)
    return history.trace(status)


@dataclass
class _Chooser:
    """Chooses points: model, acquisition function, and the search for its maximum."""

    box: Array
    acquisition: str | MakesAcquisition | None
    kernel: str
    mean: str
    noise: float | None
    search: tuple[int, int, int]
    seed: int | None

    def __post_init__(self) -> None:
        check_names(self.kernel, self.mean)
        if self.noise is not None and not self.noise >= 0:
            raise InputError("noise", repr(self.noise), "a standard deviation, 0 or more")
        restarts, raw_samples, steps = self.search
        if not (1 <= restarts <= raw_samples and steps >= 1):
            given = f"{restarts}, {raw_samples} and {steps}"
            expected = "1 ≤ restarts ≤ raw_samples and steps ≥ 1"
            raise InputError("restarts, raw_samples, steps", given, expected)
        if isinstance(self.acquisition, str):
            self.make = acquisition_named(self.acquisition)
        elif self.acquisition is None or callable(self.acquisition):
            self.make = self.acquisition
        else:
            expected = "a name, or a callable (model, best_f, q, seed)"
            raise InputError("acquisition", repr(self.acquisition), expected)
        self.entropy = np.random.SeedSequence(self.seed).entropy

    def design(self, initial: Any) -> Array:
        """The initial points (n, d)."""
        if isinstance(initial, int | np.integer):
            if initial < 1:
                raise InputError("initial", repr(initial), "a number of at least 1")
            return self._uniform(int(initial), 0)
        points = np.asarray(initial, dtype=float)
        _check_points("initial", points, self.box)
        return points

    def points(self, history: History, q: int, iteration: int) -> tuple[Array, str]:
        """The next q points (q, d), and what there is to say about them."""
        if self.make is None:
            return self._uniform(q, iteration), ""
        low, high = self.box
        seed = int(self._seeds(iteration).generate_state(1)[0])
        x = torch.as_tensor((np.array(history.x) - low) / (high - low))
        y, scale = _standardised(np.array(history.y))
        target = torch.as_tensor(y)[:, None]
        best_f = float(y.max())
        noise = None if self.noise is None else self.noise / scale
        with _alone(seed), warnings.catch_warnings():
            # What BoTorch warns about (jitter, starts that are alike, a search that ended early)
            # changes how good a proposal is and nothing else.
            warnings.simplefilter("ignore")
            model, note = fit(x, target, self.kernel, self.mean, noise)
            try:
                acqf = self.make(model, best_f, q, seed)
                found = propose(acqf, model, best_f, q, *self.search, seed)
            except NUMERICAL as error:
                what = f"{type(error).__name__} in the acquisition function: {_FELL_BACK}"
                return self._uniform(q, iteration), f"{note}; {what}" if note else what
        # Rounding must not carry a point out of the bounds.
        return np.clip(low + found.numpy() * (high - low), low, high), note

    def _uniform(self, count: int, iteration: int) -> Array:
        low, high = self.box
        points: Array = np.random.default_rng(self._seeds(iteration)).uniform(
            low, high, (count, len(low))
        )
        return points

    def _seeds(self, iteration: int) -> np.random.SeedSequence:
        # By iteration, so that a run that goes on is the run that never paused.
        return np.random.SeedSequence(self.entropy, spawn_key=(iteration,))


@contextmanager
def _alone(seed: int) -> Iterator[None]:
    """One thread and random numbers of its own, and the state of torch as it was afterwards.

    The matrices are small, so that more threads cost time; and with one of them the same seed
    gives the same bits everywhere.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            yield
    finally:
        torch.set_num_threads(threads)


def _standardised(y: Array) -> tuple[Array, float]:
    scale = float(y.std(ddof=1)) if y.size > 1 else 0.0
    # Equal values have no scale; any will do.
    scale = scale if scale > 1e-12 * max(1.0, float(np.abs(y).max())) else 1.0
    return (y - y.mean()) / scale, scale


def _box(bounds: ArrayLike) -> Array:
    box = np.asarray(bounds, dtype=float)
    expected = "an array (2, d): lower ends, then upper ends"
    if box.ndim != 2 or box.shape[0] != 2 or box.shape[1] < 1:
        advice = "Pairs (d, 2) have to be transposed." if box.ndim == 2 else ""
        raise InputError("bounds", f"shape {box.shape}", expected, advice)
    if not (np.isfinite(box).all() and (box[0] < box[1]).all()):
        advice = "Pairs (low, high) have to be transposed: np.transpose(bounds)."
        given = "a lower end that is not below its upper end, or not finite"
        raise InputError("bounds", given, expected, advice)
    return box


def _known(initial: Any, box: Array) -> Trace:
    if not isinstance(initial, Trace):
        return Trace.given(np.empty((0, box.shape[1])), np.empty(0))
    _check_points("initial", initial.X, box)
    return initial


def _check_points(name: str, points: Array, box: Array) -> None:
    dim = box.shape[1]
    if points.ndim != 2 or points.shape[1] != dim or len(points) == 0:
        expected = f"a number, or points of shape (n, {dim})"
        raise InputError(name, f"shape {points.shape}", expected)
    if not ((points >= box[0]) & (points <= box[1])).all():
        raise InputError(name, "points outside the bounds", "points inside")


def _total(iterations: int | None, budget: int | None, q: int, begun: int) -> int:
    """Evaluations in all; a run that goes on counts iterations from where it is."""
    if (iterations is None) == (budget is None):
        given = "none of them" if iterations is None else "both"
        raise InputError("iterations, budget", given, "one of the two")
    if iterations is not None:
        if iterations < 0:
            raise InputError("iterations", repr(iterations), "a number of at least 0")
        return begun + iterations * q
    assert budget is not None
    if budget < begun:
        raise InputError("budget", repr(budget), f"at least the {begun} initial evaluations")
    return budget
