"""Nodes and weights of both stages of a look-ahead, made once and kept."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import torch
from botorch.utils.sampling import draw_sobol_normal_samples
from torch import Tensor

from nestquad.botorch._weights import normal_rule
from nestquad.kernels import Kernel

__all__ = ["LookaheadRule", "Nodes", "drawn", "level_sizes"]

LookaheadRule = Literal["kq", "qmc", "nmc", "mlmc"]

# Antithetic differences have a variance of order N^-1.5 at a cost of order N: the optimal number of
# fantasies of a level is then in proportion to N^-1.25.
_FEWER = 2.0**-1.25
_MOST_LEVELS = 6


@dataclass(frozen=True)
class Nodes:
    """Standard normal points (…, N, q) and their weights (…, N)."""

    points: Tensor
    weights: Tensor

    def __getitem__(self, sets: int | slice) -> Nodes:
        return Nodes(self.points[sets], self.weights[sets])

    def part(self, start: int, stop: int) -> Nodes:
        """Some of the points, with equal weights."""
        some = self.points[..., start:stop, :]
        return Nodes(some, torch.full_like(some[..., 0], 1.0 / (stop - start)))

    def to(self, like: Tensor) -> Nodes:
        return Nodes(self.points.to(like), self.weights.to(like))


def level_sizes(rule: LookaheadRule, outer: int, inner: int | None) -> list[tuple[int, int | None]]:
    """Fantasies and inner nodes of each level, of which all rules but ``"mlmc"`` have one.

    Each level has twice the inner nodes of the one before, up to `inner`, and fewer fantasies.

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

    Every fantasy has a set of its own, so that errors of the inner stage average out over them.
    Drawn once: the next acquisition function with this seed gets the same.
    """
    generator = torch.Generator().manual_seed(seed)
    equal = torch.full((sets, n), 1.0 / n, dtype=torch.double)
    if rule in ("nmc", "mlmc"):
        return Nodes(torch.randn(sets, n, q, generator=generator, dtype=torch.double), equal)
    seeds = torch.randint(2**31, (sets,), generator=generator).tolist()
    points = torch.stack(
        [draw_sobol_normal_samples(d=q, n=n, seed=one, dtype=torch.double) for one in seeds]
    )
    if rule == "qmc":
        return Nodes(points, equal)
    weights = [torch.from_numpy(normal_rule(one.numpy(), kernel).weights.copy()) for one in points]
    return Nodes(points, torch.stack(weights))
