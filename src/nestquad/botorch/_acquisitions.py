"""Acquisition functions by name, as the loop wants them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, get_args

import torch
from botorch.acquisition import (
    AcquisitionFunction,
    qExpectedImprovement,
    qLogExpectedImprovement,
    qMultiStepLookahead,
)
from botorch.models.model import Model
from botorch.sampling.normal import SobolQMCNormalSampler

from nestquad.botorch._lookahead import LookaheadRule, NestedLookaheadEI
from nestquad.botorch._sampler import KQNormalSampler
from nestquad.errors import InputError, unknown_name

__all__ = ["ACQUISITIONS", "MakesAcquisition", "acquisition"]

# The rule "mlmc" cannot seek z' together with z, and does so anew in every step of the search for
# z: the best of so many batches has to do.
_CANDIDATES = 32

MakesAcquisition: TypeAlias = Callable[[Model, float, int, int], AcquisitionFunction]
"""(model, best_f, q, seed) -> an acquisition function on the unit cube."""


@dataclass(frozen=True)
class _Sizes:
    """T fantasies outside, N nodes inside."""

    outer: int
    inner: int


def _qei(
    kind: type[AcquisitionFunction],
    sizes: _Sizes,
    model: Model,
    best_f: float,
    q: int,
    seed: int,
) -> AcquisitionFunction:
    sampler = SobolQMCNormalSampler(torch.Size([sizes.inner]), seed=seed)
    return kind(model, best_f=best_f, sampler=sampler)


def _multistep(
    sampler: Callable[..., Any], sizes: _Sizes, model: Model, best_f: float, q: int, seed: int
) -> AcquisitionFunction:
    return qMultiStepLookahead(
        model,
        batch_sizes=[q],
        samplers=[sampler(torch.Size([sizes.outer]), seed=seed)],
        valfunc_cls=[qExpectedImprovement, qExpectedImprovement],
        valfunc_argfacs=[_best_so_far, _best_so_far],
        inner_mc_samples=[sizes.inner, sizes.inner],
    )


def _best_so_far(model: Model, X: torch.Tensor) -> dict[str, Any]:
    # The loop's model has no outcome transform, so its targets are in the units of its posterior.
    return {"best_f": model.train_targets.max(dim=-1).values}


def _lookahead(
    rule: LookaheadRule, sizes: _Sizes, model: Model, best_f: float, q: int, seed: int
) -> AcquisitionFunction:
    dim = model.train_inputs[0].shape[-1]
    return NestedLookaheadEI(
        model,
        best_f=best_f,
        q=q,
        rule=rule,
        outer=sizes.outer,
        inner=sizes.inner,
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
    **{f"lookahead-{rule}": partial(_lookahead, rule) for rule in get_args(LookaheadRule)},
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
    return None if make is None else partial(make, _Sizes(outer, inner))
