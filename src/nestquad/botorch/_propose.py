"""The points with the largest acquisition value, from starts that suit look-ahead."""

from __future__ import annotations

import torch
from botorch.acquisition import AcquisitionFunction, LogExpectedImprovement
from botorch.acquisition.acquisition import OneShotAcquisitionFunction
from botorch.models.model import Model
from botorch.optim import optimize_acqf
from botorch.optim.initializers import initialize_q_batch
from botorch.utils.sampling import draw_sobol_samples

__all__ = ["propose"]

# Points that the starts are drawn from, and the share of starts that is uniform instead.
_POOL = 512
_UNIFORM = 0.25
_NEAR = 0.05


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
    found = pool[drawn].reshape(count, size, dim)
    uniform = torch.rand(count, size, 1, dtype=torch.double) < _UNIFORM
    return torch.where(uniform, torch.rand_like(found), found)
