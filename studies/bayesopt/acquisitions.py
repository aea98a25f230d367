"""Acquisition functions by name, and the search for the points that maximise them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import torch
from botorch.acquisition import (
    AcquisitionFunction,
    LogExpectedImprovement,
    qExpectedImprovement,
    qLogExpectedImprovement,
    qMultiStepLookahead,
)
from botorch.acquisition.acquisition import OneShotAcquisitionFunction
from botorch.models.model import Model
from botorch.optim import optimize_acqf
from botorch.optim.initializers import initialize_q_batch
from botorch.sampling.normal import SobolQMCNormalSampler
from botorch.utils.sampling import draw_sobol_samples

from nestquad import InputError
from nestquad.botorch import KQNormalSampler, NestedLookaheadEI
from nestquad.errors import unknown_name

# The rule "mlmc" cannot optimise z' jointly with z: in every step of the search for z it takes the
# best of this number of batches.
_CANDIDATES = 32
# Points from which starts are drawn, and the share of starts that is uniform instead.
_POOL = 512
_UNIFORM = 0.25
_NEAR = 0.05

Sizes = tuple[int, int]
"""T fantasies outside, N nodes inside."""

MakesAcquisition: TypeAlias = Callable[[Model, float, int, int], AcquisitionFunction]
"""(model, best_f, q, seed) -> an acquisition function on the unit cube."""


def _qei(
    kind: type[AcquisitionFunction], sizes: Sizes, model: Model, best_f: float, q: int, seed: int
) -> AcquisitionFunction:
    sampler = SobolQMCNormalSampler(torch.Size([sizes[1]]), seed=seed)
    return kind(model, best_f=best_f, sampler=sampler)


def _multistep(
    sampler: Callable[..., Any], sizes: Sizes, model: Model, best_f: float, q: int, seed: int
) -> AcquisitionFunction:
    return qMultiStepLookahead(
        model,
        batch_sizes=[q],
        samplers=[sampler(torch.Size([sizes[0]]), seed=seed)],
        valfunc_cls=[qExpectedImprovement, qExpectedImprovement],
        valfunc_argfacs=[_best_so_far, _best_so_far],
        inner_mc_samples=[sizes[1], sizes[1]],
    )


def _best_so_far(model: Model, X: torch.Tensor) -> dict[str, Any]:
    # The loop's model has no outcome transform, so its targets are in the units of its posterior.
    return {"best_f": model.train_targets.max(dim=-1).values}


def _lookahead(
    rule: str, sizes: Sizes, model: Model, best_f: float, q: int, seed: int
) -> AcquisitionFunction:
    dim = model.train_inputs[0].shape[-1]
    return NestedLookaheadEI(
        model,
        best_f=best_f,
        q=q,
        rule=rule,
        outer=sizes[0],
        inner=sizes[1],
        seed=seed,
        bounds=torch.tensor([[0.0], [1.0]], dtype=torch.double).expand(2, dim),
        raw_samples=_CANDIDATES,
        maxiter=0,
    )


ACQUISITIONS: dict[str, Callable[..., AcquisitionFunction] | None] = {
    "qei": partial(_qei, qExpectedImprovement),
    "qlogei": partial(_qei, qLogExpectedImprovement),
    "multistep": partial(_multistep, SobolQMCNormalSampler),
    "multistep-kq": partial(_multistep, KQNormalSampler),
    **{f"lookahead-{rule}": partial(_lookahead, rule) for rule in ("kq", "qmc", "nmc", "mlmc")},
    "random": None,  # the loop draws uniform points itself
}


def acquisition(name: str, *, outer: int = 16, inner: int = 16) -> MakesAcquisition | None:
    """An acquisition function by name, with its sizes, for `optimize`.

    Parameters
    ----------
    name
        ``"qei"`` and ``"qlogei"``: expected improvement of q points, one step ahead.
        ``"multistep"`` and ``"multistep-kq"``: BoTorch's two-step look-ahead with Sobol points, or
        with our nodes and weights for the fantasies. ``"lookahead-kq"``, ``-qmc``, ``-nmc``,
        ``-mlmc``: our `NestedLookaheadEI` with that rule. ``"random"``: none, uniform points.
    outer
        T: fantasies of the next values.
    inner
        N: nodes of each expected improvement.

    Returns
    -------
    callable
        (model, best_f, q, seed) → acquisition function; None for ``"random"``.

    Examples
    --------
    >>> callable(acquisition("lookahead-kq", outer=8, inner=8))
    True
    """
    if name not in ACQUISITIONS:
        raise unknown_name("acquisition", name, ACQUISITIONS)
    for argument, value in (("outer", outer), ("inner", inner)):
        if value < 1:
            raise InputError(argument, repr(value), "a number of at least 1")
    make = ACQUISITIONS[name]
    return None if make is None else partial(make, (outer, inner))


def propose(
    acqf: AcquisitionFunction,
    model: Model,
    best_f: float,
    q: int,
    restarts: int,
    raw_samples: int,
    steps: int,
    seed: int,
) -> torch.Tensor:
    """The q points (q, d) of the unit cube that the acquisition function likes best.

    A one-shot function has the points of all fantasies as variables too. Uniform starts leave most
    of them where no improvement is to be expected and gradients vanish, so starts are drawn with
    the probability of their expected improvement; all functions get the same treatment.
    """
    dim = model.train_inputs[0].shape[-1]
    cube = torch.tensor([[0.0], [1.0]], dtype=torch.double).expand(2, dim)
    augmented = q
    if isinstance(acqf, OneShotAcquisitionFunction):
        augmented = acqf.get_augmented_q_batch_size(q)
    starts = _starts(model, best_f, cube, raw_samples, augmented, seed)
    with torch.no_grad():
        values = torch.cat([acqf(part) for part in starts.split(16)])
    chosen, _ = initialize_q_batch(starts, values, restarts)
    points, _ = optimize_acqf(
        acqf,
        cube,
        q=q,
        num_restarts=restarts,
        batch_initial_conditions=chosen,
        options={"maxiter": steps},
    )
    return points.detach()


def _starts(
    model: Model, best_f: float, cube: torch.Tensor, count: int, size: int, seed: int
) -> torch.Tensor:
    """(count, size, d): points drawn by their expected improvement, some of them uniformly."""
    dim = cube.shape[1]
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
    result = pool[drawn].reshape(count, size, dim)
    uniform = torch.rand(count, size, 1, dtype=torch.double) < _UNIFORM
    return torch.where(uniform, torch.rand_like(result), result)
