"""Model of J by a Gaussian process in (θ, x), one for each output of g."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nestquad._typing import Array
from nestquad.errors import NumericalError
from nestquad.gp import IntegratedGP, JointPriors, ScoreKind, fit_integrated
from nestquad.methods.learned._model import (
    DenseSet,
    ModelOfJ,
    Paths,
    mean_range,
    sketch_points,
)


@dataclass(frozen=True)
class ProcessSettings:
    """Tuning numbers of the process, tried on few even seeds of the families.

    Attributes
    ----------
    n_sketch, n_features
        θ at which paths are drawn, and random features of a drawn function: set for speed, not by a
        study of coverage.
    n_changes
        Drawn functions that give the expected changes by deleted groups.
    n_groups
        Groups of points that are deleted in turn to calibrate errors.
    n_cells
        Draws of (θ, x) that give each point the probability of its Voronoi cell.
    surprising
        Leave-one-out residuals above this many of their standard deviations are events that the
        process does not expect; smaller ones are part of its posterior.
    prior_changes
        Number of changes of the answer that the claim of the process is worth: as much as one turn.
        Not tuned.
    least
        Least J relative to the smallest positive Ĵ over the sketch, where f needs J > 0.
    """

    n_sketch: int = 512
    n_features: int = 512
    n_changes: int = 8
    n_groups: int = 4
    n_cells: int = 4096
    surprising: float = 3.0
    prior_changes: float = 1.0
    least: float = 0.1


DEFAULT = ProcessSettings()
_TINY = np.finfo(float).tiny


@dataclass(frozen=True, eq=False)
class ProcessModel(ModelOfJ):
    """J as the integral over x of a Gaussian process of g in (θ, x), for each output.

    Attributes
    ----------
    processes
        A process for each output.
    uniform, values
        Points (n, d) in (θ, x) and values (n, p) of g.
    outer
        d_θ.
    positive
        Whether f needs J > 0.
    settings
        Tuning numbers.
    history
        Earlier turns: number of points, answers (k,) and their standard deviations.
    """

    processes: tuple[IntegratedGP, ...]
    uniform: Array
    values: Array
    outer: int
    positive: bool = False
    settings: ProcessSettings = DEFAULT
    history: tuple[tuple[int, Array, Array], ...] = ()

    @property
    def dim(self) -> int:
        return self.outer

    @property
    def n_points(self) -> int:
        return len(self.values)

    @property
    def cost(self) -> int:
        # A node in x costs an eighth of a coordinate: it is part of a matrix product.
        nodes = max(p.n_nodes for p in self.processes) // 8
        return self.n_points * len(self.processes) * (self.outer + nodes)

    @cached_property
    def _logarithms(self) -> NDArray[np.bool_]:
        """Whether each output (p,) is modeled by its logarithm."""
        return np.array([process.kind.logarithm for process in self.processes])

    @cached_property
    def sketch(self) -> DenseSet:
        uniform = sketch_points(self.outer, self.settings.n_sketch)
        return DenseSet(uniform, np.ones(len(uniform)), self.mean(uniform))

    @cached_property
    def design(self) -> DenseSet:
        """θ of the fit; the weight of a point is the probability of its Voronoi cell in (θ, x).

        Points that were chosen are no sample of the law. Distances are in lengthscales of the
        first output.
        """
        from scipy.spatial import cKDTree  # an eighth of the time of the import of nestquad

        first = self.processes[0]
        lengthscale = first.gp.parameters.lengthscale
        drawn = sketch_points(self.uniform.shape[1], self.settings.n_cells)
        nearest = cKDTree(first.gp.z / lengthscale).query(first.kind.scores(drawn) / lengthscale)[1]
        count = np.bincount(nearest, minlength=self.n_points) + 0.5
        theta = self.uniform[:, : self.outer]
        return DenseSet(theta, count * (self.n_points / count.sum()), self.mean(theta))

    def _scores(self, uniform: Array) -> list[Array]:
        return [process.kind.scores(uniform) for process in self.processes]

    def _unbounded(self, uniform: Array) -> Array:
        scores = zip(self.processes, self._scores(uniform), strict=True)
        return np.stack([process.mean(z) for process, z in scores], axis=1)

    def mean(self, uniform: Array) -> Array:
        return self.bounded(self._unbounded(uniform), uniform)

    @cached_property
    def _floor(self) -> Array:
        """Least J (p,) where f needs J > 0, a share of the smallest positive Ĵ of a sketch."""
        j = self._unbounded(sketch_points(self.outer, self.settings.n_sketch))
        least = np.where(j > 0, j, np.inf).min(axis=0)
        share = np.where(self._logarithms, 0.0, self.settings.least)
        return np.asarray(np.maximum(share * np.where(least < np.inf, least, 0.0), _TINY))

    @cached_property
    def _range(self) -> tuple[Array, Array]:
        return mean_range(self.values)

    def sd(self, uniform: Array) -> Array:
        scores = zip(self.processes, self._scores(uniform), strict=True)
        return np.stack([process.sd(z) for process, z in scores], axis=1)

    def at(self, uniform: Array, inner: Array, *, cautious: bool = False) -> Array:
        joint = np.concatenate([uniform, inner], axis=1)
        g = [p.predict(z) for p, z in zip(self.processes, self._scores(joint), strict=True)]
        return np.asarray(np.stack(g, axis=1) - self._unbounded(uniform) + self.mean(uniform))

    def bounded(self, j: Array, uniform: Array) -> Array:
        """J within half a range of the values of g, and positive where log g is modeled.

        Exponentials of few values run away in the tails.
        """
        near = np.clip(j, *self._range)
        j = np.where(self._logarithms, np.minimum(j, near), near)
        return np.maximum(j, self._floor) if self.positive else j

    def residuals(self) -> Array:
        predicted = [process.leave_one_out[0] for process in self.processes]
        return np.asarray(self.values - np.stack(predicted, axis=1))

    def unexplained(self) -> tuple[Array, Array]:
        """Residuals that the process does not expect; others are zero."""
        sd = np.stack([process.leave_one_out[1] for process in self.processes], axis=1)
        residuals = self.residuals()
        expected = np.abs(residuals) <= self.settings.surprising * sd
        return np.where(expected, 0.0, residuals), self.design.weights

    def excess(self, answers: Array, sd: Array) -> Array:
        """Factor (k,) of standard deviations by changes of the answers since half of the points.

        A change has at most the variance of the earlier answer. The largest change, twice, is the
        most that it shows: an earlier answer may have claimed no error at all.
        """
        recent = [turn for turn in self.history if 2 * turn[0] >= self.n_points]
        if not recent:
            return np.ones(len(answers))
        squares = [
            np.minimum(np.abs(answers - value) / np.maximum(claim, _TINY), 1e100) ** 2
            for _, value, claim in recent
        ]
        prior = self.settings.prior_changes
        mean = (np.sum(squares, axis=0) + prior) / (len(recent) + prior)
        largest = np.max([np.abs(answers - value) for _, value, _ in recent], axis=0)
        most = 1.0 + 2.0 * largest / np.maximum(sd, _TINY)
        return np.asarray(np.clip(np.sqrt(mean), 1.0, most))

    def paths(self, n_paths: int, rng: np.random.Generator) -> Paths:
        """Posterior draws, and delete-a-group changes."""
        settings, theta = self.settings, self.sketch.uniform
        errors, observed, expected, shared = [], [], [], []
        for process, z in zip(self.processes, self._scores(theta), strict=True):
            unit, base = process.variance_unit**0.5, process.mean(z)
            n_functions = n_paths + settings.n_changes
            g, j = process.prior_functions(z, n_functions, settings.n_features, rng)
            whole = process.interpolated(z, g)
            errors.append(unit * (j - whole)[:, :n_paths].T)
            g, whole = g[:, n_paths:], whole[:, n_paths:]
            # Values are resolved to the root of the least noise variance, by all groups alike.
            floor = JointPriors.least_noise**0.5 * unit * (base if process.kind.logarithm else 1.0)
            signs = rng.standard_normal((2, n_paths, 1))
            shared.append(signs[0] * process.node_error(z) + signs[1] * floor)
            deleted = [(process.restricted(~rows), ~rows) for rows in self._groups]
            observed.append([one.mean(z) - base for one, _ in deleted])
            expected.append([_changes(one, process, z, g[kept], whole) for one, kept in deleted])
        columns = (np.stack(part, axis=-1) for part in (errors, observed, expected, shared))
        return Paths(*columns)

    @property
    def _groups(self) -> list[NDArray[np.bool_]]:
        number = np.arange(self.n_points) % self.settings.n_groups
        return [number == group for group in range(self.settings.n_groups)]

    def describe(self) -> dict[str, Any]:
        outputs, notes = [], []
        for c, process in enumerate(self.processes):
            p, outer = process.gp.parameters, self.outer
            what = "log g" if process.kind.logarithm else "g"
            predicted = process.leave_one_out[0]
            share = float(
                np.var(self.values[:, c] - predicted) / max(self.values[:, c].var(), 1e-300)
            )
            outputs.append(
                {
                    "kernel": process.kind.shape,
                    "logarithm": process.kind.logarithm,
                    "trend": str(process.gp.trend),
                    "lengthscales_theta": p.lengthscale[:outer].tolist(),
                    "lengthscales_x": p.lengthscale[outer:].tolist(),
                    "noise_share": p.noise,
                    "unexplained_share": share,
                }
            )
            notes.append(
                f"output {c + 1}: Gaussian process of {what} in theta and x ({process.kind.shape}, "
                f"{process.gp.trend} trend) leaves {share:.2g} of the variance of g unexplained"
            )
        return {"outputs": outputs, "notes": notes}


def _changes(
    deleted: IntegratedGP, process: IntegratedGP, z: Array, g: Array, whole: Array
) -> Array:
    """Changes (K, M) of Ĵ by deleted points, for functions of the prior with values g (m, K)."""
    unit = process.variance_unit**0.5
    return np.asarray(unit * (deleted.interpolated(z, g) - whole).T)


def fit_process_model(
    kinds: Sequence[ScoreKind],
    uniform: Array,
    values: Array,
    outer: int,
    *,
    positive: bool = False,
    noisy: bool = False,
    last: ProcessModel | None = None,
) -> ProcessModel:
    """Processes of all outputs at uniforms (n, d) with values (n, p).

    A last fit to fewer points starts the searches. Kinds are compared whenever the number of points
    has passed a power of two.
    """
    n = len(values)
    again = last is None or n.bit_length() > last.n_points.bit_length()
    processes = []
    for c, y in enumerate(values.T):
        before = None if last is None else last.processes[c]
        # Exponentials of a process of log g are positive, as f may need it.
        logs = (False,) if y.min() <= 0 else (True,) if positive else (False, True)
        tried = [kind for kind in kinds if kind.logarithm in logs]
        if before is not None and not again and before.kind in tried:
            tried = [before.kind]
        start = None if before is None else before.gp.parameters
        process = fit_integrated(tried, uniform, y, outer, start=start, noisy=noisy)
        if process is None:
            raise NumericalError("No Gaussian process in theta and x has a likelihood.")
        processes.append(process)
    return ProcessModel(tuple(processes), uniform, values, outer, positive)
