"""Memory of an earlier run: known values that are control variates of a changed loss."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from nestquad._checks import shown
from nestquad._typing import Array, Indices
from nestquad.errors import InputError
from nestquad.evaluate import Design, Evaluations, Evaluator, Grid
from nestquad.methods.learned import Check
from nestquad.points import Given, PeriodicLattice, Stream

FILE = "risk.npz"


@dataclass(frozen=True)
class ReplaySettings:
    """Tuning numbers of a run with a prior.

    Attributes
    ----------
    points, pairs
        Points of the lattice and pairs in each block of evaluations, in the proportion in which a
        run spends its evaluations.
    share, fewest
        Share of the budget, and the fewest evaluations, by which it is decided whether values of
        the earlier run help.
    helpful
        Largest ratio of the mean squares of g less its prediction from earlier values, and of g
        less the model: beyond it a model of today's values alone is as good.
    """

    points: int = 4
    pairs: int = 3
    share: float = 0.1
    fewest: int = 160
    helpful: float = 0.5

    @property
    def block(self) -> int:
        return self.points + 2 * self.pairs


@dataclass(frozen=True, eq=False)
class Memory:
    """Values of an earlier loss at points of a lattice and at pairs, as functions of uniforms.

    With h the earlier loss and its predicted change, J = E[h | θ] + E[g − h | θ]. The law of the
    first is learned from all earlier values, whatever they are worth; the second from g at some of
    the same uniforms, where g − h has little noise if little has changed.

    Attributes
    ----------
    grid, raw
        The lattice in (θ, x), and values (N, p) there.
    draws
        Pairs with values (m, 2, p).
    """

    grid: Grid
    raw: Array
    draws: Check
    settings: ReplaySettings = ReplaySettings()

    @property
    def dims(self) -> tuple[int, int]:
        """Uniforms behind θ and behind x."""
        return self.draws.uniform.shape[1], self.draws.inner.shape[2]

    @cached_property
    def uniform(self) -> Array:
        """Points (N, d) of the lattice as uniforms."""
        grid, dim = self.grid, sum(self.dims)
        points = grid.outer_points.uniforms(grid.outer_stream, dim, (0, 1), (0, len(self.raw)))
        return np.asarray(points[0])

    @cached_property
    def rows(self) -> tuple[Given, Array, Indices]:
        """Points (R, d) in blocks in random order, earlier values (R, p), and numbers of pairs.

        The number is −1 for points of the lattice.
        """
        rng, chosen = np.random.default_rng(8), self.settings
        n_blocks = min(len(self.raw) // chosen.points, len(self.draws.weights) // chosen.pairs)
        at = rng.permutation(len(self.raw))[: n_blocks * chosen.points]
        pair = rng.permutation(len(self.draws.weights))[: n_blocks * chosen.pairs]
        theta = np.repeat(self.draws.uniform[pair], 2, axis=0)
        inner = self.draws.inner[pair].reshape(len(theta), -1)
        both = (
            (self.uniform[at], np.concatenate([theta, inner], axis=1)),
            (self.raw[at], self.draws.values[pair].reshape(len(theta), -1)),
            (np.full(len(at), -1), np.repeat(pair, 2)),
        )
        points, values, number = (
            np.concatenate([one.reshape(n_blocks, -1, *one.shape[1:]) for one in two], axis=1)
            for two in both
        )
        flat = points.reshape(-1, points.shape[2])
        given = Given(np.clip(flat, 1e-15, 1.0 - 1e-15))
        return given, values.reshape(len(flat), -1), number.ravel()

    def with_change(self, change: Any) -> Memory:
        """Earlier values plus a model of their change."""
        d, draws = self.dims[0], self.draws
        raw = self.raw + change.at(self.uniform[:, :d], self.uniform[:, d:])
        moved = [change.at(draws.uniform, draws.inner[:, view]) for view in (0, 1)]
        values = draws.values + np.stack(moved, axis=1)
        return Memory(
            self.grid, raw, Check(draws.uniform, draws.weights, draws.inner, values), self.settings
        )

    def evaluations(self, evaluator: Evaluator, scalar: bool) -> Evaluations:
        """The values as those of a design, of one output or several."""
        raw = self.raw[:, None, 0] if scalar else self.raw[:, None]
        return _Known(evaluator, Design((self.grid,)), raw)

    def save(self, folder: str | os.PathLike[str]) -> None:
        lattice = self.grid.outer_points
        assert isinstance(lattice, PeriodicLattice)
        grid = {
            "lattice": [lattice.log2_max, lattice.periodization, lattice.n_shifts],
            "stream": list(self.grid.stream.entropy),
        }
        draws = self.draws
        np.savez_compressed(
            Path(folder) / FILE,
            grid=np.array(json.dumps(grid)),
            raw=self.raw,
            uniform=draws.uniform,
            weights=draws.weights,
            inner=draws.inner,
            values=draws.values,
        )

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Memory:
        expected = "a report of risk.measure, or the folder of its store"
        try:
            with np.load(Path(folder) / FILE, allow_pickle=False) as file:
                described = json.loads(str(file["grid"]))
                each = [file[name] for name in ("uniform", "weights", "inner", "values")]
                raw = file["raw"]
            lattice = PeriodicLattice(*described["lattice"])
            stream = Stream(tuple(described["stream"]))
        except (OSError, ValueError, KeyError) as error:
            raise InputError("prior", f"{str(folder)!r} without {FILE}", expected) from error
        grid = Grid(len(raw), 1, lattice, lattice, None, stream, joint=True)
        return cls(grid, raw, Check(*each))

    @classmethod
    def of(cls, prior: Any) -> Memory:
        """From a report, or the folder of a store."""
        if isinstance(prior, str | os.PathLike):
            return cls.load(prior)
        source = getattr(prior, "source", None)
        found = None if source is None else source.state.memory
        if found is None:
            raise InputError(
                "prior",
                shown(prior)[:60],
                "a report of risk.measure with evaluations, or the folder of its store",
                "Scenarios and x need laws with drivers, not samples.",
            )
        assert isinstance(found, Memory)
        return found


class _Known(Evaluations):
    """Values that are known, as evaluations."""

    def __init__(self, evaluator: Evaluator, design: Design, raw: Array) -> None:
        super().__init__(evaluator, design)
        self.raw = raw

    def values(self, rows: int, level: int = 0) -> Array:
        return self.raw[:rows]
