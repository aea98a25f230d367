"""Which surrogate: a search among kinds, judged by how well each point is predicted from others."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nestquad._typing import Array
from nestquad.errors import InputError
from nestquad.gp import Surrogate, SurrogateKind, first_kinds, fit_surrogate, near_kinds
from nestquad.methods._inner_means import InnerMeans
from nestquad.methods._surrogate_answer import SurrogateAnswers

__all__ = ["Chosen", "choose_surrogate"]

# How often the search moves on from the best kind so far.
_MOVES = 4
# A kind whose errors of f at left-out points exceed those of another by this factor is unsound.
_UNSOUND = 3.0
# Points for each coordinate of θ before a kind may be ruled out for good.
_TELLING = 8


@dataclass(frozen=True)
class Chosen:
    """The kind that predicts left-out points best, and the best rough one.

    `sceptic` doubts what smoothness promises: its paths count in the error as well.
    """

    surrogate: Surrogate
    sceptic: Surrogate
    means: InnerMeans
    reason: str

    def sd(self, z: Array) -> Array:
        """Standard deviation of Ĵ at scores z (n, d), errors of the inner stage included: (n, p).

        Those of single points are in the nugget. What they have in common shows in how Ĵ changes
        when it is learned from half as many inner points.
        """
        outer = np.maximum(self.surrogate.sd(z), self.sceptic.sd(z))
        predicted = self.surrogate.means(z, self.surrogate.can_model(self.means.j))
        changes = np.abs(np.diff(predicted, axis=0))
        if len(changes) == 0:
            return outer
        inner = changes[0]
        if len(changes) > 1:
            inner = np.maximum(inner, 2.0**-self.means.rate * changes[1])
        return np.asarray(np.hypot(outer, self.means.left * inner))


def choose_surrogate(
    z: Array,
    means: InnerMeans,
    answers: SurrogateAnswers,
    positive: bool | None,
    memo: dict[str, Any],
) -> Chosen | None:
    """Search from the kind that was best before; None if no surrogate is plausible.

    `memo` keeps kinds and hyperparameters between turns: the next search starts where the last
    one ended.
    """
    can_be_log = bool((means.j[:2] > 0).all())
    if positive and not can_be_log:
        raise InputError(
            "positive",
            "True, but some estimates of J are not positive",
            "a problem whose J is positive",
            "Use more inner points (n_inner), or positive=None.",
        )
    count, dim = z.shape
    hopeless: set[tuple[object, ...]] = memo.setdefault("hopeless", set())
    search = _Search(z, means, answers, memo.setdefault("starts", {}))
    allowed = (
        [False] if not can_be_log or positive is False else [True] if positive else [False, True]
    )
    seeds: list[SurrogateKind] = [k for k in memo.get("kinds", []) if k.logarithm in allowed]
    if not seeds:
        seeds = first_kinds(dim, count, positive=True)
        seeds = [kind for kind in seeds if kind.logarithm in allowed]
    for kind in seeds:
        search.judge(kind)
    for _ in range(_MOVES):
        best = search.best()
        if best is None:
            return None
        for kind in near_kinds(best.kind, dim, count):
            if _family(kind) not in hopeless:
                search.judge(kind)
        if search.best() is best:
            break
    best = search.best()
    if best is None:
        return None
    # Kinds of the other scale stay in the race unless they are hopeless; few points cannot tell.
    limit = search.score(best) - 10.0 - 0.2 * count
    if count < _TELLING * dim:
        limit = -np.inf
    for family in {_family(kind) for kind in search.tried}:
        scores = [search.found[k][0] for k in search.found if _family(k) == family]
        if max(scores, default=-np.inf) < limit and family[0] != "matern52":
            hopeless.add(family)
    other = search.best(logarithm=not best.kind.logarithm)
    near = other is not None and search.score(other) > limit
    memo["kinds"] = [best.kind, *([other.kind] if other is not None and near else [])]
    sceptic = search.best(shape="matern52") or best
    reason = f"surrogate of {best.kind}, the best of {len(search.found)} at left-out points"
    return Chosen(best, sceptic, means, reason)


def _family(kind: SurrogateKind) -> tuple[object, ...]:
    """A kind whatever its trend."""
    return kind.shape, kind.additive, kind.logarithm


@dataclass
class _Search:
    z: Array
    means: InnerMeans
    answers: SurrogateAnswers
    starts: dict[SurrogateKind, Any]
    found: dict[SurrogateKind, tuple[float, float, Surrogate]] = field(default_factory=dict)
    tried: set[SurrogateKind] = field(default_factory=set)

    def judge(self, kind: SurrogateKind) -> None:
        if kind in self.tried:
            return
        self.tried.add(kind)
        j = self.means.j[0]
        surrogate = fit_surrogate(
            kind, self.z, j, self.means.change, self.starts.get(kind), self.means.variance
        )
        if surrogate is None:
            return
        self.starts[kind] = tuple(gp.parameters for gp in surrogate.outputs)
        if not self.answers.plausible(surrogate, j):
            return
        left_out = self.answers.apply_f(surrogate.leave_one_out())
        error = float(np.sqrt(np.mean((left_out - self.answers.apply_f(j)) ** 2)))
        density = surrogate.log_predictive_density(j)
        if np.isfinite(error) and np.isfinite(density):
            self.found[kind] = (density, error, surrogate)

    def score(self, surrogate: Surrogate) -> float:
        return self.found[surrogate.kind][0]

    def best(self, **wanted: object) -> Surrogate | None:
        """The sound one of highest density among those with the wanted properties."""
        smallest = min((error for _, error, _ in self.found.values()), default=np.inf)
        sound = [
            (density, surrogate)
            for kind, (density, error, surrogate) in self.found.items()
            if error <= _UNSOUND * smallest
            and all(getattr(kind, name) == value for name, value in wanted.items())
        ]
        return max(sound, key=lambda entry: entry[0])[1] if sound else None
