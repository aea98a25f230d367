"""Bayesian optimisation for the paper's experiment: a loop, and acquisition functions by name.

A Gaussian process of Matérn-1/2 covariance and mean zero on the unit cube, fitted to standardized
values; batches of two points after two uniform ones. It needs the extra ``botorch``.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import torch
from botorch.acquisition import (
    AcquisitionFunction,
    LogExpectedImprovement,
    qExpectedImprovement,
    qMultiStepLookahead,
)
from botorch.acquisition.acquisition import OneShotAcquisitionFunction
from botorch.exceptions.errors import ModelFittingError
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.model import Model
from botorch.optim import optimize_acqf
from botorch.optim.initializers import initialize_q_batch
from botorch.sampling.normal import SobolQMCNormalSampler
from botorch.utils.sampling import draw_sobol_samples
from gpytorch.constraints import GreaterThan
from gpytorch.kernels import MaternKernel
from gpytorch.means import ZeroMean
from gpytorch.mlls import ExactMarginalLogLikelihood
from gpytorch.priors import LogNormalPrior
from linear_operator.utils.errors import NanError, NotPSDError

from nestquad import NumericalError
from nestquad.botorch import KQNormalSampler, NestedLookaheadEI
from studies.paper.curves import Array

Q = 2  # points of a batch, and of the initial design
# The rule "mlmc" cannot optimise z' jointly with z: in every step of the search for z it takes the
# best of this number of batches.
_CANDIDATES = 32
# Points from which starts are drawn, and the share of starts that is uniform instead.
_POOL, _UNIFORM, _NEAR = 512, 0.25, 0.05
# What linear algebra raises where a matrix is too close to singular. Anything else is a mistake
# that has to be seen.
NUMERICAL = (ModelFittingError, NanError, NotPSDError, NumericalError, torch.linalg.LinAlgError)
# No noise is wanted; this share of the variance keeps the matrix away from singular.
_JITTER = 1e-6

Sizes = tuple[int, int]
"""T fantasies outside, N nodes inside."""

MakesAcquisition: TypeAlias = Callable[[Model, float, int], AcquisitionFunction]
"""(model, best_f, seed) -> an acquisition function on the unit cube."""


@dataclass(frozen=True)
class Search:
    """Search for the largest acquisition value: starts, points that they are chosen from, steps."""

    restarts: int = 2
    raw_samples: int = 16
    steps: int = 20


@dataclass(frozen=True, eq=False)
class Trace:
    """Evaluations of the objective, in order.

    `X` (n, d) and `Y` (n,) are points and values, `iteration` the iteration of each, 0 for the
    initial design; `seconds` and `cpu_seconds` are wall-clock and CPU time since the start when
    its value was known. `notes` tells where a fit or a search failed.
    """

    X: Array
    Y: Array
    iteration: Any
    seconds: Array
    cpu_seconds: Array
    notes: tuple[str, ...] = ()

    @property
    def best(self) -> Array:
        """The largest value so far, after each evaluation (n,)."""
        return np.maximum.accumulate(self.Y)

    def __len__(self) -> int:
        return len(self.Y)


def optimize(
    objective: Callable[[Array], Any],
    bounds: Array,
    *,
    iterations: int,
    acquisition: MakesAcquisition | None,
    search: Search | None = None,
    seed: int | None = None,
) -> Trace:
    """Maximise a black box, points (n, d) → values (n,), within bounds (2, d).

    Without an acquisition function (see `acquisition`) points are uniform. The same seed gives the
    same points.
    """
    low, high = bounds
    search = search or Search()
    entropy = np.random.SeedSequence(seed).entropy
    wall, cpu = time.perf_counter(), time.process_time()
    x, y = np.empty((0, len(low))), np.empty(0)
    rows: list[tuple[int, float, float]] = []
    notes = []
    for number in range(iterations + 1):
        seeds = np.random.SeedSequence(entropy, spawn_key=(number,))
        points = None
        if number and acquisition is not None:
            drawn = int(seeds.generate_state(1)[0])
            with _alone(drawn):
                target = torch.as_tensor(_standardised(y))
                model, note = fit(torch.as_tensor((x - low) / (high - low)), target[:, None])
                best = float(target.max())
                try:
                    acqf = acquisition(model, best, drawn)
                    chosen = _propose(acqf, model, best, search, drawn)
                    # Rounding must not carry a point out of the bounds.
                    points = np.clip(low + chosen.numpy() * (high - low), low, high)
                except NUMERICAL as error:
                    note += f" {type(error).__name__} in the search: uniform points instead"
            notes += [f"iteration {number}: {note.strip()}"] if note else []
        if points is None:
            points = np.random.default_rng(seeds).uniform(low, high, (Q, len(low)))
        values = np.asarray(objective(points.copy()), dtype=float)
        x, y = np.concatenate([x, points]), np.concatenate([y, values])
        rows += [(number, time.perf_counter() - wall, time.process_time() - cpu)] * Q
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


def _standardised(y: Array) -> Array:
    scale = float(y.std(ddof=1))
    # Equal values have no scale; any will do.
    return (y - y.mean()) / (scale if scale > 1e-12 * max(1.0, float(np.abs(y).max())) else 1.0)


def fit(x: torch.Tensor, y: torch.Tensor) -> tuple[SingleTaskGP, str]:
    """A Gaussian process fitted to points of the unit cube, x (n, d) and y (n, 1) standardised.

    Lengthscales, one for each coordinate, have BoTorch's prior that grows with d. Where the fit
    fails, the parameters are those of the prior, and the second value says so.
    """
    dim = x.shape[1]
    prior = LogNormalPrior(math.sqrt(2.0) + 0.5 * math.log(dim), math.sqrt(3.0))
    kernel = MaternKernel(
        nu=0.5,
        ard_num_dims=dim,
        lengthscale_prior=prior,
        lengthscale_constraint=GreaterThan(2.5e-2, transform=None, initial_value=prior.mode),
    )
    model = SingleTaskGP(
        x,
        y,
        torch.full_like(y, _JITTER),
        covar_module=kernel,
        mean_module=ZeroMean(),
        outcome_transform=None,
    )
    start = {name: value.clone() for name, value in model.state_dict().items()}
    try:
        # BoTorch tries again where the first try warns, and warns only when all have failed.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    except NUMERICAL as error:
        model.load_state_dict(start)
        model.eval()
        return model, f"fit failed ({type(error).__name__}): parameters of the prior"
    return model, ""


# Acquisition functions.


def _qei(sizes: Sizes, model: Model, best_f: float, seed: int) -> AcquisitionFunction:
    sampler = SobolQMCNormalSampler(torch.Size([sizes[1]]), seed=seed)
    return qExpectedImprovement(model, best_f=best_f, sampler=sampler)


def _multistep(
    sampler: Callable[..., Any], sizes: Sizes, model: Model, best_f: float, seed: int
) -> AcquisitionFunction:
    return qMultiStepLookahead(
        model,
        batch_sizes=[Q],
        samplers=[sampler(torch.Size([sizes[0]]), seed=seed)],
        valfunc_cls=[qExpectedImprovement, qExpectedImprovement],
        valfunc_argfacs=[_best_so_far, _best_so_far],
        inner_mc_samples=[sizes[1], sizes[1]],
    )


def _best_so_far(model: Model, X: torch.Tensor) -> dict[str, Any]:
    # The loop's model has no outcome transform, so its targets are in the units of its posterior.
    return {"best_f": model.train_targets.max(dim=-1).values}


def _lookahead(
    rule: str, sizes: Sizes, model: Model, best_f: float, seed: int
) -> AcquisitionFunction:
    return NestedLookaheadEI(
        model,
        best_f=best_f,
        q=Q,
        rule=rule,
        outer=sizes[0],
        inner=sizes[1],
        seed=seed,
        bounds=_cube(model),
        raw_samples=_CANDIDATES,
        maxiter=0,
    )


def _cube(model: Model) -> torch.Tensor:
    """Bounds (2, d) of the unit cube."""
    dim = model.train_inputs[0].shape[-1]
    return torch.tensor([[0.0], [1.0]], dtype=torch.double).expand(2, dim)


ACQUISITIONS: dict[str, Callable[..., AcquisitionFunction] | None] = {
    "qei": _qei,
    "multistep": partial(_multistep, SobolQMCNormalSampler),
    "multistep-kq": partial(_multistep, KQNormalSampler),
    **{f"lookahead-{rule}": partial(_lookahead, rule) for rule in ("kq", "qmc", "nmc", "mlmc")},
    "random": None,  # the loop draws uniform points itself
}


def acquisition(name: str, sizes: Sizes) -> MakesAcquisition | None:
    """An acquisition function by name, with T and N; None for uniform points."""
    make = ACQUISITIONS[name]
    return None if make is None else partial(make, sizes)


def _propose(
    acqf: AcquisitionFunction, model: Model, best_f: float, search: Search, seed: int
) -> torch.Tensor:
    """The points (q, d) of the unit cube with the largest acquisition value.

    A one-shot function has the points of all fantasies as variables too. Uniform starts leave most
    of them where no improvement is to be expected and gradients vanish, so starts are drawn with
    the probability of their expected improvement; all functions get the same treatment.
    """
    cube, augmented = _cube(model), Q
    if isinstance(acqf, OneShotAcquisitionFunction):
        augmented = acqf.get_augmented_q_batch_size(Q)
    starts = _starts(model, best_f, cube, search.raw_samples, augmented, seed)
    with torch.no_grad():
        values = torch.cat([acqf(part) for part in starts.split(16)])
    chosen, _ = initialize_q_batch(starts, values, search.restarts)
    points, _ = optimize_acqf(
        acqf,
        cube,
        q=Q,
        num_restarts=search.restarts,
        batch_initial_conditions=chosen,
        options={"maxiter": search.steps},
    )
    return points.detach()


def _starts(
    model: Model, best_f: float, cube: torch.Tensor, count: int, size: int, seed: int
) -> torch.Tensor:
    """(count, size, d): points drawn by their expected improvement, some of them uniformly."""
    known = model.train_inputs[0]
    pool = draw_sobol_samples(cube, n=_POOL, q=1, seed=seed).squeeze(1)
    top = known[model.train_targets.topk(min(4, len(known))).indices]
    near = top.repeat_interleave(_POOL // 8, dim=0)
    near = (near + _NEAR * torch.randn_like(near)).clamp(0.0, 1.0)
    pool = torch.cat([pool, near])
    with torch.no_grad():
        score = LogExpectedImprovement(model, best_f=best_f)(pool.unsqueeze(1))
    chance = torch.softmax(score, dim=0)
    drawn = torch.multinomial(chance, count * size, replacement=True)
    result = pool[drawn].reshape(count, size, cube.shape[1])
    uniform = torch.rand(count, size, 1, dtype=torch.double) < _UNIFORM
    return torch.where(uniform, torch.rand_like(result), result)
