"""How wrong an answer from a joint lattice may be."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from nestquad._typing import Array
from nestquad.errors import NumericalError
from nestquad.methods._character import order_of_smoothness
from nestquad.methods._joint_model import ConditionalMeans, Data, JointModel
from nestquad.methods._lattice_average import LatticeAverage
from nestquad.methods._magnify import magnification
from nestquad.methods._siblings import final_changes, trust

__all__ = ["JointErrors"]

_PATHS = 24
# How often the points are halved to learn how far the posterior can be trusted.
_HALVINGS = 2
# So many points, and so many for each term, are left at least: fits that hardly have a choice
# swing between the points.
_FEWEST, _FEWEST_PER_TERM = 8, 2.5
# θ at which an f with jumps is looked at through a magnifying glass.
_JUMP_ROWS = 512
_LEAST_RATE, _MOST_RATE = 0.5, 3.0
# Share of the variance of an output that a model leaves, above which it has not learned it.
_MOST_UNEXPLAINED = 0.5


@dataclass(frozen=True, eq=False)
class JointErrors:
    """What a model of g from a joint lattice leaves uncertain.

    Attributes
    ----------
    sketch
        A lattice of θ on which models are compared.
    model, data
        What was fitted to what.
    answers
        The q expectations, about which all is linear.
    unexplained
        Variance (p,) of J about the model that noise cannot explain, and what it may well be;
        None where nothing is known.
    """

    sketch: LatticeAverage
    model: JointModel
    data: Data
    answers: Array
    unexplained: tuple[Array, Array] | None = None

    def parts(self, rng: np.random.Generator) -> tuple[dict[str, Array], float]:
        """Directions (k, m) of the error by what causes it, whose squares add up; and the rate.

        The rate is the power of the number of points with which the posterior gets narrower.
        """
        base = self.model.conditional()
        paths, rate = self._paths(base, rng)
        parts = {
            "paths": paths,
            "misfit": self._misfit(base),
            "unlearned": self._unlearned(base),
            "tail": self._tail(base),
        }
        if self.unexplained is not None and self.unexplained[0].any():
            parts["rough"] = self._rough(base, self.unexplained[0])
        return parts, rate

    def _paths(self, base: ConditionalMeans, rng: np.random.Generator) -> tuple[Array, float]:
        """Posterior paths pushed through f, multiplied by what such paths turned out to be worth.

        A posterior expects what further points will change, and its variance falls by just that.
        So models of a half and of a quarter of the points show, in the answer and its siblings,
        by how much this posterior is too careful (g is smoother than the kernel, or errors at
        single θ cancel) or not careful enough.
        """
        models = [self.model, *self._smaller()]
        changes, spreads = [], []
        for model in models:
            means = base if model is self.model else model.conditional()
            paths = model.paths(means, _PATHS, rng)
            changes.append(self._felt(means, paths))
            spreads.append(np.median(np.mean((paths - means.j) ** 2, axis=0), axis=0)[None])
        variances = [np.mean(change**2, axis=0) for change in changes]
        steps: list[Array] = []
        if order_of_smoothness(self.sketch.problem, self._seen(base)) > 0:
            answers = [self.sketch.sketch(model) for model in models]
            steps = [self._final(more - fewer) for more, fewer in pairwise(answers)]
            factor = trust(steps, variances)
        else:
            # Where f jumps, an answer changes by whole θ, and only because of J at some of them.
            # So what is to be trusted is J itself.
            few = base.uniform[:: -(-base.weights.size // _JUMP_ROWS)]
            js = [model.conditional_at(few) for model in models]
            moved = [np.sqrt(np.median((a - b) ** 2, axis=0))[None] for a, b in pairwise(js)]
            factor = np.full(changes[0].shape[-1], trust(moved, spreads).max())
        directions = factor[:, None] * changes[0][:, 0].T / np.sqrt(_PATHS)
        if steps and not self.model.n_chosen_terms:
            # Terms that were chosen from all points flatter the models of fewer. Without them the
            # last step is as large as an error was, and those of smaller models were larger. But
            # it is one step, which may be small by chance: where it is, both count alike.
            last = np.sqrt(np.mean(steps[0] ** 2, axis=0))
            claimed = np.sqrt((directions**2).sum(axis=1))
            directions *= np.sqrt(np.minimum(1.0, last / np.maximum(claimed, 1e-300)))[:, None]
        rate = _MOST_RATE
        if len(models) > 1 and (variances[0] > 0).any():
            rate = 0.5 * float(np.log2(variances[1].mean() / variances[0].mean()))
        return directions, float(np.clip(rate, _LEAST_RATE, _MOST_RATE))

    def _felt(self, means: ConditionalMeans, paths: Array) -> Array:
        """What paths (m, M, p) of J change in the final answers and their siblings, (m, S, k)."""
        factor = magnification(self.sketch.problem, self._seen(means), paths - means.j)
        if factor > 1.0:
            paths = means.j + factor * (paths - means.j)
        return self._final(self.sketch.changes(means, paths) / factor)

    def _seen(self, means: ConditionalMeans) -> Array:
        """J as f takes it."""
        return means.j[:, 0] if self.sketch.scalar else means.j

    def _smaller(self) -> list[JointModel]:
        """The same terms and kernels, with coefficients from a half and a quarter of the points."""
        models = []
        n = self.data.weights.size
        terms = max(len(output.fit.terms) for output in self.model.outputs)
        for _ in range(_HALVINGS):
            n //= 2
            if n < max(_FEWEST, _FEWEST_PER_TERM * terms):
                break
            try:
                models.append(self.model.refitted(self.data.first(n)))
            except NumericalError:  # too few points for so many terms
                break
        return models

    def _misfit(self, base: ConditionalMeans) -> Array:
        """By what the mean residual, as f feels it, exceeds its standard error, (k, 1).

        Each residual is what all other points predict wrongly. With the slope of f their mean
        estimates the error to first order, but with much noise.
        """
        at_data = self._at_data(base)
        residuals = self.model.residuals()
        steps = self.model.spreads(at_data.weights)
        felt = np.zeros((residuals.shape[0], self.answers.size))
        for c in np.flatnonzero(steps.any(axis=0)):
            sides = np.repeat(at_data.j[None], 2, axis=0)
            sides[0, :, c] += steps[:, c]
            sides[1, :, c] -= steps[:, c]
            sides[:, :, c] = self.model.bounded(sides[:, :, c], at_data, int(c))
            up, down = (
                self.sketch.f(replace(at_data, j=side), require_finite=False) for side in sides
            )
            width = np.maximum(sides[0, :, c] - sides[1, :, c], 1e-300)[:, None]
            slope = np.nan_to_num((up - down) / width, posinf=0.0, neginf=0.0)
            felt += slope * residuals[:, c, None]
        weights = self.data.weights / self.data.weights.sum()
        mean = self._final(weights @ felt)
        noise = self._final(np.sqrt(weights**2 @ felt**2))
        return np.asarray(np.maximum(np.abs(mean) - np.abs(noise), 0.0)[:, None])

    def _unlearned(self, base: ConditionalMeans) -> Array:
        """What residuals change if they are J's and not noise in x, (k, m).

        Counted where a model explains less than half of an output: it then has seen too little
        of g to say what is noise. Anything between nothing and all of it is as likely.
        """
        at_data, residuals = self._at_data(base), self.model.residuals()
        weights = self.data.weights
        center = weights @ self.data.values / weights.sum()
        # Squared weights, since what is left over is noisy where the weights are small.
        left = weights**2 @ residuals**2
        unlearned = left > _MOST_UNEXPLAINED * (weights**2 @ (self.data.values - center) ** 2)
        directions = [np.zeros(self.sketch.final(self.answers).size)]
        if self.unexplained is not None:
            unlearned &= self.unexplained[0] == 0.0  # what is known is counted as rough
        for c in np.flatnonzero(unlearned):
            j = at_data.j.copy()
            j[:, c] += residuals[:, c]
            j[:, c] = self.model.bounded(j[:, c], at_data, int(c))
            share = 1.0
            if self.unexplained is not None:
                share = min(1.0, self.unexplained[1][c] * (weights**2).sum() / left[c])
            change = self.sketch.changes(replace(at_data, weights=weights), j[None])[0, 0]
            directions.append(self._final(change) * share / np.sqrt(3.0))
        return np.stack(directions, axis=1)

    def _at_data(self, base: ConditionalMeans) -> ConditionalMeans:
        """Ĵ at the θ of the points, in their order."""
        order = self.model.order
        return replace(
            base,
            periodic=base.periodic[order],
            uniform=base.uniform[order],
            weights=base.weights[order],
            j=base.j[order],
        )

    def _rough(self, base: ConditionalMeans, variance: Array) -> Array:
        """What a J that varies about the model by so much changes, (k, p)."""
        columns = []
        for c, deviation in enumerate(np.sqrt(variance)):
            both = np.repeat(base.j[None], 2, axis=0)
            both[0, :, c] += deviation
            both[1, :, c] -= deviation
            change = self.sketch.changes(base, both)[:, 0].mean(axis=0)
            columns.append(self._final(change))
        return np.stack(columns, axis=1)

    def _tail(self, base: ConditionalMeans) -> Array:
        """What other tails of a positive J change, the largest change (k, 1)."""
        center = self.sketch.siblings(base)[0]
        changes = np.zeros((2, self.sketch.final(self.answers).size))
        for change, other in zip(changes, self.model.with_other_tails(), strict=True):
            if not np.array_equal(other.j, base.j):
                change[:] = self._final(np.nan_to_num(self.sketch.siblings(other)[0] - center))
        return np.asarray(np.abs(changes).max(axis=0)[:, None])

    def _final(self, changes: Array) -> Array:
        return final_changes(self.sketch.problem.finish, self.answers, changes)
