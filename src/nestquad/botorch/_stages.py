"""Stages of a two-step look-ahead: their nodes, and the joint law of the model at z and z'.

The value f(z) that an experiment at z would show, and the rest of f(z') given that value, are
parts of one Gaussian vector. Its Cholesky factor holds both: with f(z) = m_0 + L_00 u, the law of
f(z') given f(z) is that of m_1 + L_10 u + L_11 v. So no fantasy model is ever built, and
conditioning is exact, on values without noise as in the paper.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.models.model import Model
from botorch.utils.sampling import draw_sobol_normal_samples
from torch import Tensor

from nestquad.botorch._weights import normal_rule
from nestquad.errors import NumericalError, UnsupportedError
from nestquad.kernels import Kernel

LookaheadRule = Literal["kq", "qmc", "nmc", "mlmc"]

# Antithetic differences have a variance of order N^-1.5 at a cost of order N: the optimal number of
# fantasies of a level is then in proportion to N^-1.25.
_FEWER = 2.0**-1.25
_MOST_LEVELS = 6
_BLOCK = 10_000_000  # numbers at a time where all candidates meet all fantasies
# Relative to the largest variance of a batch. Points that coincide, or lie on data, make
# covariances singular: then a value is known, and a deviation of 1e-5 stands for zero.
_JITTERS = (1e-10, 1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4)


@dataclass(frozen=True)
class Nodes:
    """Standard normal points (…, N, q) and their weights (…, N)."""

    points: Tensor
    weights: Tensor

    def __getitem__(self, sets: int | slice) -> Nodes:
        return Nodes(self.points[sets], self.weights[sets])

    def part(self, start: int, stop: int) -> Nodes:
        """Some of the points, with equal weights."""
        points = self.points[..., start:stop, :]
        return Nodes(points, torch.full_like(points[..., 0], 1.0 / (stop - start)))

    def to(self, like: Tensor) -> Nodes:
        return Nodes(self.points.to(like), self.weights.to(like))


def level_sizes(rule: LookaheadRule, outer: int, inner: int | None) -> list[tuple[int, int | None]]:
    """Fantasies and inner nodes of each level, of which all rules but ``"mlmc"`` have one.

    Inner nodes double from level to level, up to `inner`, and fantasies decrease.

    Examples
    --------
    >>> level_sizes("mlmc", 64, 32)
    [(64, 2), (27, 4), (11, 8), (5, 16), (2, 32)]
    """
    if rule != "mlmc" or inner is None:
        return [(outer, inner)]
    sizes = [inner]
    while sizes[0] % 2 == 0 and sizes[0] > 2 and len(sizes) < _MOST_LEVELS:
        sizes.insert(0, sizes[0] // 2)
    return [(max(round(outer * _FEWER**k), 2), size) for k, size in enumerate(sizes)]


@lru_cache(maxsize=32)
def drawn(rule: LookaheadRule, sets: int, n: int, q: int, seed: int, kernel: str | Kernel) -> Nodes:
    """Independent sets of n nodes each, (sets, n, q), and their weights.

    Each fantasy has a different set, so that errors of the inner stage average out over them.
    Drawn once: the next acquisition function with this seed gets the same.
    """
    generator = torch.Generator().manual_seed(seed)
    equal = torch.full((sets, n), 1.0 / n, dtype=torch.double)
    if rule in ("nmc", "mlmc"):
        return Nodes(torch.randn(sets, n, q, generator=generator, dtype=torch.double), equal)
    seeds = torch.randint(2**31, (sets,), generator=generator).tolist()
    points = torch.stack(
        [draw_sobol_normal_samples(d=q, n=n, seed=item, dtype=torch.double) for item in seeds]
    )
    if rule == "qmc":
        return Nodes(points, equal)
    weights = [
        torch.from_numpy(normal_rule(item.numpy(), kernel).weights.copy()) for item in points
    ]
    return Nodes(points, torch.stack(weights))


@dataclass(frozen=True)
class Stages:
    """Improvements of both steps, over the best value known before."""

    model: Model
    transform: PosteriorTransform | None
    best_f: Tensor

    def values(
        self, now: Tensor, then: Tensor, outer: Nodes, inner: Nodes | None
    ) -> tuple[Tensor, Tensor]:
        """Improvement by the first batch, and expected improvement by the second, each fantasy's.

        Shapes
        ------
        now (…, q, d); then (…, T, q, d), a batch z' for each fantasy; outer of T nodes, inner of T
        sets of N nodes, or None for the closed form with q = 1. Returns two tensors (…, T).
        """
        every = now.unsqueeze(-3).expand(*then.shape[:-2], *now.shape[-2:])
        mean, covariance = self._law(torch.cat([every, then], dim=-2))
        return self._improvements(mean, _root(covariance), outer.points, inner)

    def best_of(self, now: Tensor, candidates: Tensor, outer: Nodes, inner: Nodes | None) -> Tensor:
        """The best of R batches z' for each fantasy.

        One joint law of z and all candidates serves all fantasies: a posterior of q + R q points
        for each batch, however many fantasies there are.

        Shapes
        ------
        now (…, q, d); candidates (R, q, d); returns (…, T, q, d).
        """
        count, q, d = candidates.shape
        ours = torch.arange(q, device=now.device).expand(count, q)
        theirs = torch.arange(q, q + count * q, device=now.device).view(count, q)
        blocks = torch.cat([ours, theirs], dim=-1)  # of the joint law, for each candidate
        points = outer.points.unsqueeze(-2)  # (T, 1, q), against candidates
        size = 1
        if inner is not None:
            size = inner.points.shape[-2]
            inner = Nodes(inner.points.unsqueeze(-3), inner.weights.unsqueeze(-2))
        step = max(_BLOCK // (count * size * q), 1)
        chosen = []
        for batch in now.reshape(-1, q, d):
            mean, covariance = self._law(torch.cat([batch, candidates.reshape(-1, d)]))
            root = _root(covariance[blocks.unsqueeze(-1), blocks.unsqueeze(-2)])
            for start in range(0, len(points), step):
                part = slice(start, start + step)
                mine = None if inner is None else inner[part]
                _, second = self._improvements(mean[blocks], root, points[part], mine)
                chosen.append(candidates[second.argmax(dim=-1)])
        return torch.cat(chosen).view(*now.shape[:-2], len(points), q, d)

    def _improvements(
        self, mean: Tensor, root: Tensor, normals: Tensor, inner: Nodes | None
    ) -> tuple[Tensor, Tensor]:
        q = normals.shape[-1]
        first = mean[..., :q] + _times(root[..., :q, :q], normals)
        shift = mean[..., q:] + _times(root[..., q:, :q], normals)
        best = torch.maximum(first.amax(dim=-1), self.best_f)
        return best - self.best_f, _expected(shift, root[..., q:, q:], best, inner)

    def _law(self, X: Tensor) -> tuple[Tensor, Tensor]:
        posterior = self.model.posterior(X, posterior_transform=self.transform)
        if not hasattr(posterior, "distribution"):
            raise UnsupportedError(
                f"NestedLookaheadEI needs a Gaussian posterior, not a {type(posterior).__name__}."
            )
        return posterior.mean[..., 0], posterior.distribution.covariance_matrix


def _expected(shift: Tensor, root: Tensor, best: Tensor, inner: Nodes | None) -> Tensor:
    """E max(max_j (shift + root v)_j - best, 0) over v, for shift (…, q) and best (…)."""
    if inner is None:
        deviation = root[..., 0, 0]
        gain = (shift[..., 0] - best) / deviation
        density = torch.exp(-0.5 * gain.square()) / (2.0 * torch.pi) ** 0.5
        return deviation * (density + gain * torch.special.ndtr(gain))
    values = shift.unsqueeze(-2) + inner.points @ root.transpose(-1, -2)  # (…, N, q)
    gains = (values.amax(dim=-1) - best.unsqueeze(-1)).clamp_min(0.0)
    return (gains * inner.weights).sum(dim=-1)


def _times(matrix: Tensor, vector: Tensor) -> Tensor:
    return (matrix @ vector.unsqueeze(-1)).squeeze(-1)


def _root(covariance: Tensor) -> Tensor:
    """Cholesky factors, with the smallest sufficient jitter."""
    scale = covariance.detach().diagonal(dim1=-2, dim2=-1).amax().clamp_min(1e-300)
    eye = torch.eye(covariance.shape[-1], dtype=covariance.dtype, device=covariance.device)
    for jitter in _JITTERS:
        root, failed = torch.linalg.cholesky_ex(covariance + jitter * scale * eye)
        if not failed.any():
            return root
    raise NumericalError(
        "The joint covariance of the model at the points of both steps is not positive definite. "
        "Use double precision, and inputs scaled to the unit cube."
    )
