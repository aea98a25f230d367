"""Memory of an earlier run: known values that are control variates of a changed loss."""

from __future__ import annotations

import json
import os
from dataclasses import astuple, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from nestquad._checks import shown
from nestquad._typing import Array, Indices
from nestquad.errors import InputError
from nestquad.evaluate import Design, Evaluations, Evaluator, Grid
from nestquad.methods import Goal
from nestquad.methods.learned import Check, Pairs
from nestquad.points import Given, PeriodicLattice, Stream
from nestquad.risk._scenarios import KnownValues, Lines, Scenarios

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

    def plan(self, goal: Goal, spent: int) -> Design | None:
        """Points of an earlier run: a few to see whether its values help, then as many as asked."""
        chosen, points = self.settings, self.rows[0]
        n = float(goal.budget or points.max_points)
        if not spent:
            n = min(chosen.fewest if goal.adaptive else max(chosen.share * n, chosen.fewest), n)
        elif goal.adaptive:
            n = min(2 * spent, n)
        rows = chosen.block * int(min(n, points.max_points) // chosen.block)
        if rows <= spent:
            return None
        return Design((Grid(rows, 1, points, points, None, goal.stream, joint=True),))

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
        return KnownValues(evaluator, Design((self.grid,)), raw)

    def save(self, folder: str | os.PathLike[str]) -> None:
        lattice = self.grid.outer_points
        assert isinstance(lattice, PeriodicLattice)
        grid = {
            "lattice": astuple(lattice),
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


@dataclass(frozen=True, eq=False)
class Replayed:
    """Values of an earlier run with a model of their change, and fresh evidence against it.

    Attributes
    ----------
    memory
        Earlier values plus the predicted change.
    pairs
        Numbers (m,) of the pairs that were evaluated again.
    residuals
        Values there less earlier ones and the change (m, 2, p), predicted from other pairs.
    claimed
        Errors (m, p) of the predicted mean change that its regression expects.
    """

    memory: Memory
    pairs: Indices
    residuals: Array
    claimed: Array

    @classmethod
    def of(cls, memory: Memory, values: Array, scenarios: Scenarios) -> Replayed:
        n = len(values) // memory.settings.block * memory.settings.block
        if values.shape[1] != memory.raw.shape[1]:
            outputs = f"a run with {memory.raw.shape[1]} outputs of g"
            raise InputError("prior", outputs, f"one with {values.shape[1]}, as today")
        given, known, number = memory.rows
        points, change, number = given.points[:n], values[:n] - known[:n], number[:n]
        d, rest = memory.dims[0], change.copy()
        again = number >= 0
        half = np.full(n, -1)
        half[again] = np.arange(again.sum()) // 2 % 2
        for k in (0, 1):
            model = scenarios.ridge(points[half != k], change[half != k], d, None)
            rows = half == k
            rest[rows] -= model.at(points[rows, :d], points[rows, d:])
        whole = scenarios.ridge(points, change, d, None)
        theta = points[again, :d][::2]
        residuals = rest[again].reshape(len(theta), 2, -1)
        return cls(memory.with_change(whole), number[again][::2], residuals, whole.sd(theta))

    def evidence(self, s: Array, line: int, same: Indices, lines: Lines) -> Pairs:
        """Residuals of a loss at the pairs that were evaluated again, with Ĵ = s at all pairs."""
        at, r = self.pairs, lines(self.residuals)[:, :, line]
        expected = lines(self.claimed)[:, line] ** 2
        return Pairs(s[at], r, self.memory.draws.weights[at], expected, same[at])

    def verdict(self, by_model: Array, lines: Lines) -> tuple[bool, str]:
        """Whether earlier values help beside a model with residuals (m, 2), and a note on it."""
        unexplained = float((lines(self.residuals)[..., 0] ** 2).mean())
        helps = unexplained <= self.memory.settings.helpful * float((by_model**2).mean())
        total = float(lines(self.memory.draws.values)[..., 0].var())
        known = 1.0 - unexplained / max(total, 1e-300)
        text = f"values of the earlier run explain {known:.2%} of the variance of today's loss"
        return helps, text + ("" if helps else ", too little to help: they are not used")
