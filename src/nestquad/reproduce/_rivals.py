"""Ways to choose points in Bayesian optimisation, and a run of each on a test function."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np

from nestquad.reproduce._part import Series
from nestquad.reproduce._task import Outcome, Task

__all__ = ["FUNCTIONS", "RIVALS", "Rival", "rival_series", "series_name"]

FUNCTIONS = ("Dropwave", "Ackley", "Cosine8")
_BATCH = 2


@dataclass(frozen=True)
class Rival:
    """A way to choose points: its acquisition function, its sizes for n = 1/Δ, and how long."""

    label: str
    acquisition: str
    powers: tuple[int, int]
    iterations: int
    seconds: float

    def sizes(self, n: int) -> tuple[int, int]:
        """T and N."""
        outer, inner = self.powers
        return int(n**outer), int(n**inner)


# As many iterations as make the times comparable; seconds are for one of them, roughly.
RIVALS = {
    "nkq": Rival("NKQ", "lookahead-kq", (1, 1), 18, 0.35),
    "qmc": Rival("QMC, same sizes", "lookahead-qmc", (1, 1), 18, 0.35),
    "nmc": Rival("NMC", "lookahead-nmc", (2, 2), 9, 0.8),
    "nmc small": Rival("NMC, NKQ's sizes", "lookahead-nmc", (1, 1), 18, 0.35),
    "mlmc": Rival("MLMC", "lookahead-mlmc", (2, 1), 2, 4.0),
    "multistep": Rival("qMultiStep, Sobol", "multistep", (1, 1), 6, 1.0),
    "multistep-kq": Rival("qMultiStep, our sampler", "multistep-kq", (1, 1), 6, 1.0),
    "qei": Rival("qEI", "qei", (1, 2), 18, 0.3),
    "random": Rival("random search", "random", (1, 1), 18, 0.001),
}


def series_name(rival: str) -> str:
    """What tasks call a rival."""
    return f"bo {rival}"


def rival_series() -> tuple[Series, ...]:
    """All rivals, for the registry."""
    return tuple(
        Series(
            series_name(name),
            rival.label,
            partial(_run, rival),
            partial(lambda one, n: one.iterations * one.seconds, rival),
            stream="bo",  # the same initial points for all, so that they can be compared
        )
        for name, rival in RIVALS.items()
    )


@lru_cache
def _warm_up() -> None:
    """What happens once in a process, such as imports at first use, counts for no method."""
    from nestquad.botorch import acquisition, optimize

    for name in ("lookahead-kq", "multistep-kq"):
        make = acquisition(name, outer=2, inner=2)
        optimize(lambda x: x[0], [[0.0], [1.0]], iterations=1, acquisition=make, steps=2, seed=0)


def _run(rival: Rival, task: Task, rng: np.random.SeedSequence) -> Outcome:
    """One optimisation; the trace has the NMSE after each iteration, and when it was known."""
    import torch
    from botorch.test_functions import Ackley, Cosine8, DropWave

    from nestquad.botorch import acquisition, optimize

    # In BoTorch's definitions, and so that all are to be made large.
    function = {
        "Dropwave": partial(DropWave, negate=True),
        "Ackley": partial(Ackley, dim=2, negate=True),
        "Cosine8": Cosine8,
    }[task.problem]()
    _warm_up()
    outer, inner = rival.sizes(task.size)
    short = task.size < 4
    found = optimize(
        lambda x: function(torch.from_numpy(x)).numpy(),
        function.bounds.numpy(),
        iterations=2 if short else rival.iterations,
        q=_BATCH,
        acquisition=acquisition(rival.acquisition, outer=outer, inner=inner),
        kernel="matern12",
        mean="zero",
        noise=0.0,
        vectorized=True,
        restarts=1 if short else 2,
        raw_samples=4 if short else 16,
        steps=3 if short else 20,
        seed=int(rng.generate_state(1)[0]),
    )
    # What is known after each iteration: its last evaluation.
    ends = np.flatnonzero(np.diff(found.iteration, append=found.iteration[-1] + 1))
    regret = (found.best[ends] - function.optimal_value) ** 2
    error = regret / regret[0]
    trace = {
        "wall": np.round(found.seconds[ends], 4).tolist(),
        "cpu": np.round(found.cpu_seconds[ends], 4).tolist(),
        "error": [float(f"{e:.6g}") for e in error],
    }
    best = float(found.best[-1])
    return Outcome(best, float(error[-1]), len(found), trace=json.dumps(trace))
