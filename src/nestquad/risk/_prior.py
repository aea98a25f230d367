"""Memory of an earlier run: known values that are control variates of a changed loss."""

from __future__ import annotations

import json
import os
from dataclasses import astuple, dataclass, replace
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
_PARTS = ("uniform", "weights", "inner", "values")


@dataclass(frozen=True)
class ReplaySettings:
    """Tuning numbers of a run with a prior.

    Attributes
    ----------
    share, fewest
        Share of the budget, and the fewest evaluations, by which it is decided whether values of
        the earlier run help.
    helpful
        Largest ratio of the mean squares of g less its prediction from earlier values, and of g
        less the model: beyond it a model of today's values alone is as good.
    """

    share: float = 0.1
    fewest: int = 160
    helpful: float = 0.5


REPLAY = ReplaySettings()


@dataclass(frozen=True, eq=False)
class Memory:
    """Values of an earlier loss at points of a lattice and at pairs, as functions of uniforms.

    With h the earlier loss and its predicted change, J = E[h | θ] + E[g − h | θ]. The law of the
    first is learned from all earlier values, good or bad; the second from g at some of
    the earlier pairs, where g − h has little noise if little has changed.

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

    @property
    def dims(self) -> tuple[int, int]:
        """Uniforms behind θ and behind x."""
        return self.draws.uniform.shape[1], self.draws.inner.shape[2]

    def plan(self, goal: Goal, spent: int) -> Design | None:
        """Earlier pairs: a few to see whether their values help, then the number asked for."""
        most = 2 * len(self.draws.weights)
        n = float(goal.budget or most)
        if not spent:
            few = REPLAY.fewest
            n = min(few if goal.adaptive else max(REPLAY.share * n, few), n)
        elif goal.adaptive:
            n = min(2.0 * spent, n)
        rows = 2 * int(min(n, most) // 2)
        if rows <= spent:
            return None
        theta = np.repeat(self.draws.uniform, 2, axis=0)
        inner = self.draws.inner.reshape(len(theta), -1)
        given = Given(np.clip(np.concatenate([theta, inner], axis=1), 1e-15, 1.0 - 1e-15))
        return Design((Grid(rows, 1, given, given, None, goal.stream, joint=True),))

    def with_change(self, change: Any) -> Memory:
        """Earlier values plus a model of their change."""
        d, draws = self.dims[0], self.draws
        points = self.grid.outer_points.uniforms(
            self.grid.outer_stream, sum(self.dims), (0, 1), (0, len(self.raw))
        )[0]
        moved = [change.at(draws.uniform, draws.inner[:, view]) for view in (0, 1)]
        return Memory(
            self.grid,
            self.raw + change.at(points[:, :d], points[:, d:]),
            replace(draws, values=draws.values + np.stack(moved, axis=1)),
        )

    def evaluations(self, evaluator: Evaluator, scalar: bool) -> Evaluations:
        """The values of a design, of one output or several."""
        raw = self.raw[:, None, 0] if scalar else self.raw[:, None]
        return KnownValues(evaluator, Design((self.grid,)), raw)

    def save(self, folder: str | os.PathLike[str]) -> None:
        assert isinstance(self.grid.outer_points, PeriodicLattice)
        grid = {
            "lattice": astuple(self.grid.outer_points),
            "stream": list(self.grid.stream.entropy),
        }
        draws: dict[str, Any] = {name: getattr(self.draws, name) for name in _PARTS}
        grid_text = np.array(json.dumps(grid))
        np.savez_compressed(Path(folder) / FILE, grid=grid_text, raw=self.raw, **draws)

    @classmethod
    def of(cls, prior: Any) -> Memory:
        """From a report, or the folder of a store."""
        if isinstance(prior, str | os.PathLike):
            return cls._load(Path(prior))
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

    @classmethod
    def _load(cls, folder: Path) -> Memory:
        try:
            with np.load(folder / FILE, allow_pickle=False) as file:
                described = json.loads(str(file["grid"]))
                raw, draws = file["raw"], Check(*(file[name] for name in _PARTS))
            lattice = PeriodicLattice(*described["lattice"])
            stream = Stream(tuple(described["stream"]))
        except (OSError, ValueError, KeyError) as error:
            expected = "a report of risk.measure, or the folder of its store"
            raise InputError("prior", f"{str(folder)!r} without {FILE}", expected) from error
        return cls(Grid(len(raw), 1, lattice, lattice, None, stream, joint=True), raw, draws)


@dataclass(frozen=True, eq=False)
class Replayed:
    """Values of an earlier run with a model of their change, and fresh evidence against it.

    Attributes
    ----------
    memory
        Earlier values plus the predicted change.
    residuals
        Values at the first m pairs less earlier ones and the change (m, 2, p), predicted from
        other pairs.
    claimed
        Errors (m, p) of the predicted mean change that its regression expects.
    """

    memory: Memory
    residuals: Array
    claimed: Array

    @classmethod
    def of(cls, memory: Memory, values: Array, scenarios: Scenarios) -> Replayed:
        """From values (2 m, p) at the first pairs; each half is predicted by the other."""
        draws, m = memory.draws, len(values) // 2
        if values.shape[1] != memory.raw.shape[1]:
            outputs = f"a run with {memory.raw.shape[1]} outputs of g"
            raise InputError("prior", outputs, f"one with {values.shape[1]}, as today")
        theta, inner = np.repeat(draws.uniform[:m], 2, axis=0), draws.inner[:m]
        points = np.concatenate([theta, inner.reshape(2 * m, -1)], axis=1)
        change = values[: 2 * m] - draws.values[:m].reshape(2 * m, -1)
        d, half, rest = theta.shape[1], np.arange(2 * m) // 2 % 2, change.copy()
        for k in (0, 1):
            model = scenarios.ridge(points[half != k], change[half != k], d, None)
            rest[half == k] -= model.at(theta[half == k], points[half == k, d:])
        whole = scenarios.ridge(points, change, d, None)
        return cls(memory.with_change(whole), rest.reshape(m, 2, -1), whole.sd(theta[::2]))

    def evidence(self, s: Array, line: int, same: Indices, lines: Lines) -> Pairs:
        """Residuals of a loss at the pairs that were evaluated again, with Ĵ = s at all pairs."""
        m, r = len(self.residuals), lines(self.residuals)[:, :, line]
        expected = lines(self.claimed)[:, line] ** 2
        draws = self.memory.draws
        along = draws.uniform[:m, 0] if draws.uniform.shape[1] == 1 else None
        return Pairs(s[:m], r, draws.weights[:m], expected, same[:m], along=along)

    def verdict(self, by_model: Array, lines: Lines) -> tuple[bool, str]:
        """Whether earlier values help a model with residuals (m, 2), and a note on it."""
        unexplained = float((lines(self.residuals)[..., 0] ** 2).mean())
        helps = unexplained <= REPLAY.helpful * float((by_model**2).mean())
        total = float(lines(self.memory.draws.values)[..., 0].var())
        known = 1.0 - unexplained / max(total, 1e-300)
        text = f"values of the earlier run explain {known:.2%} of the variance of today's loss"
        return helps, text + ("" if helps else ", too little to help: they are not used")
