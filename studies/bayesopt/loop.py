"""Bayesian optimisation: initial design, fit, acquisition, evaluation, again."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from nestquad import EvaluationError, InputError
from studies.bayesopt.acquisitions import MakesAcquisition, propose
from studies.bayesopt.acquisitions import acquisition as acquisition_named
from studies.bayesopt.model import NUMERICAL, check_names, fit

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Trace:
    """Every evaluation of the objective, in order.

    `X` (n, d) and `Y` (n,) are points and values, `iteration` the iteration of each, 0 for the
    initial design; `seconds` and `cpu_seconds` are wall-clock and CPU time since the start when
    its value was known. `notes` tells where a fit or a search failed.
    """

    X: Array
    Y: Array
    iteration: NDArray[np.int64]
    seconds: Array
    cpu_seconds: Array
    notes: tuple[str, ...] = ()

    @property
    def best(self) -> Array:
        """The largest value so far, after each evaluation (n,)."""
        return np.maximum.accumulate(self.Y)

    @property
    def best_x(self) -> Array:
        """Where the largest value is (d,)."""
        return self.X[int(np.argmax(self.Y))]

    def __len__(self) -> int:
        return len(self.Y)


def optimize(
    objective: Callable[[Array], ArrayLike],
    bounds: ArrayLike,
    *,
    iterations: int,
    q: int = 1,
    acquisition: str | MakesAcquisition | None = "lookahead-kq",
    initial: int = 2,
    kernel: str = "matern52",
    mean: str = "constant",
    noise: float | None = None,
    restarts: int = 4,
    raw_samples: int = 64,
    steps: int = 50,
    seed: int | None = None,
) -> Trace:
    """Maximise a black box.

    Parameters
    ----------
    objective
        Points (n, d) → values (n,).
    bounds
        (2, d), as BoTorch has them: lower ends, then upper ends.
    iterations, q
        Number of batches after the initial design, and points of a batch.
    acquisition
        A name (see `acquisition`), what that function returns, or a callable (model, best_f, q,
        seed) → acquisition function. The model lives on the unit cube, with values of mean 0 and
        standard deviation 1, and `best_f` is in these units. None: uniform points.
    initial
        Number of uniform points to start from.
    kernel, mean, noise
        Of the Gaussian process: ``"matern12"``, ``"matern32"``, ``"matern52"`` or ``"rbf"``;
        ``"constant"`` or ``"zero"``; the standard deviation of the observations, None: learned.
    restarts, raw_samples, steps
        Of the search for the largest acquisition value: starting points, points from which they
        are chosen, and most steps from each of them.
    seed
        The same seed gives the same points.

    Examples
    --------
    >>> trace = optimize(
    ...     lambda x: -((x[:, 0] - 0.3) ** 2), [[0.0], [1.0]], iterations=4, acquisition="qei",
    ...     seed=0,
    ... )
    >>> bool(abs(trace.best_x[0] - 0.3) < 0.05)
    True
    """
    low, high = box = _box(bounds)
    check_names(kernel, mean)
    make = acquisition_named(acquisition) if isinstance(acquisition, str) else acquisition
    entropy = np.random.SeedSequence(seed).entropy
    wall, cpu = time.perf_counter(), time.process_time()
    x, y = np.empty((0, box.shape[1])), np.empty(0)
    rows: list[tuple[int, float, float]] = []
    notes = []
    for number in range(iterations + 1):
        seeds = np.random.SeedSequence(entropy, spawn_key=(number,))
        count, points = (q if number else initial), None
        if number and make is not None:
            one = int(seeds.generate_state(1)[0])
            with _alone(one):
                target, scale = _standardised(y)
                model, note = fit(
                    torch.as_tensor((x - low) / (high - low)),
                    torch.as_tensor(target)[:, None],
                    kernel,
                    mean,
                    None if noise is None else noise / scale,
                )
                best = float(target.max())
                try:
                    acqf = make(model, best, q, one)
                    result = propose(acqf, model, best, q, restarts, raw_samples, steps, one)
                    # Rounding must not carry a point out of the bounds.
                    points = np.clip(low + result.numpy() * (high - low), low, high)
                except NUMERICAL as error:
                    note += f" {type(error).__name__} in the search: uniform points instead"
            notes += [f"iteration {number}: {note.strip()}"] if note else []
        if points is None:
            points = np.random.default_rng(seeds).uniform(low, high, (count, len(low)))
        values = np.asarray(objective(points.copy()), dtype=float)
        if values.shape != (count,) or not np.isfinite(values).all():
            what = f"objective returned {values}, not {count} finite numbers"
            raise EvaluationError(what, x=points, n_completed=len(y))
        x, y = np.concatenate([x, points]), np.concatenate([y, values])
        rows += [(number, time.perf_counter() - wall, time.process_time() - cpu)] * count
    numbers, seconds, cpu_seconds = map(np.array, zip(*rows, strict=True))
    return Trace(x, y, numbers, seconds, cpu_seconds, tuple(notes))


@contextmanager
def _alone(seed: int) -> Iterator[None]:
    """One thread, own random numbers, no warnings, and the state of torch as it was afterwards.

    The matrices are small, so that more threads cost time; and with one of them the same seed
    gives the same bits everywhere. What BoTorch warns about (jitter, equal starts, a search that
    ended early) changes how good a proposal is and nothing else.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            warnings.simplefilter("ignore")
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
    if box.ndim != 2 or len(box) != 2 or not np.isfinite(box).all() or (box[0] >= box[1]).any():
        raise InputError("bounds", f"{box}", "an array (2, d): lower ends, then upper ends")
    return box
