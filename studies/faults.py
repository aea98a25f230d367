"""Fault injection: kills, full disks, damaged files, dead workers, slow and failing g."""

from __future__ import annotations

import contextlib
import csv
import errno
import os
import signal
import tempfile
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import nestquad as nq
from nestquad.evaluate import _store
from studies import limits

# 1,500 evaluations of 50 µs: long enough to be hit, short enough to be hit often.
_SECONDS = 5e-5
_METHODS = ("nqmc", "nkq", "ckq", "auto")
_BUDGET = 1500


class G:
    """x e^θ, slowly; writes down what it evaluated, and misbehaves where it is told to."""

    def __init__(self, log: Path, fault: Callable[[Any, Any], None] | None = None) -> None:
        self._log, self._fault = log, fault

    def __call__(self, x: Any, theta: Any) -> Any:
        if self._fault is not None:
            self._fault(x, theta)
        values = x[..., 0] * np.exp(theta[..., 0]) + float(_scale(self._log))
        with self._log.open("a") as log:  # first: what is under way counts as well
            log.write(f"{values.size}\n")
        time.sleep(_SECONDS * values.size)
        return values


def _scale(log: Path) -> str:
    file = log.with_name("scale.txt")
    return file.read_text() if file.exists() else "0"


@dataclass(frozen=True)
class Outcome:
    """One trial: whether the answer was right, evaluations made twice, and what happened."""

    right: bool
    repeated: int
    hit: bool


@dataclass
class Trial:
    folder: Path
    rng: np.random.Generator
    method: str

    def problem(self, fault: Callable[[Any, Any], None] | None = None) -> nq.NestedExpectation:
        g = G(self.folder / "log", fault)
        return nq.NestedExpectation(nq.Uniform(), nq.Uniform(), g, np.square)

    def run(self, fault: Any = None, **options: Any) -> nq.Estimate:
        settings = {"method": self.method, "budget": _BUDGET, "rng": 0, **options}
        return nq.estimate(self.problem(fault), store=self.folder / "store", **settings)

    def evaluated(self) -> int:
        log = self.folder / "log"
        return sum(map(int, log.read_text().split())) if log.exists() else 0

    def outcome(self, found: nq.Estimate, hit: bool) -> Outcome:
        expected = _expected(self.method)
        same = (found.value, found.std_error) == (expected.value, expected.std_error)
        return Outcome(same, self.evaluated() - expected.n_evaluations, hit)


@cache
def _expected(method: str) -> nq.Estimate:
    """The answer without a fault, and without a store."""
    with tempfile.TemporaryDirectory() as folder:
        problem = Trial(Path(folder), np.random.default_rng(0), method).problem()
        return nq.estimate(problem, method=method, budget=_BUDGET, rng=0)


def kill(trial: Trial) -> Outcome:
    hit = False
    for _ in range(3):
        child = os.fork()
        if child == 0:
            trial.run()
            os._exit(0)
        time.sleep(trial.rng.uniform(0.0, 0.15))
        os.kill(child, signal.SIGKILL)
        hit |= os.WIFSIGNALED(os.waitpid(child, 0)[1])
    return trial.outcome(trial.run(), hit)


def full_disk(trial: Trial) -> Outcome:
    left, write = int(trial.rng.integers(1, 5)), _store._replace

    def replace(file: Path, content: Any) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(file, content)

    try:
        with mock.patch.object(_store, "_replace", replace):
            trial.run()
        hit = False
    except nq.EvaluationError as error:
        hit = "No space left" in str(error)
    return trial.outcome(trial.run(), hit)


def damaged_files(trial: Trial) -> Outcome:
    trial.run()
    files = sorted((trial.folder / "store").rglob("*.npy"))
    for file in trial.rng.choice(np.array(files, dtype=object), 2):
        if not file.exists():
            continue
        content = bytearray(file.read_bytes())
        match trial.rng.integers(4):
            case 0:
                file.write_bytes(content[: len(content) // 2])
            case 1:
                content[trial.rng.integers(len(content))] ^= 1 << int(trial.rng.integers(8))
                file.write_bytes(content)
            case 2:
                file.unlink()
            case _:
                file.rename(file.with_name(f"7-9x{file.name.partition('x')[2]}"))
    return trial.outcome(trial.run(), True)


class Killer:
    """Ends the process that calls it, once; a file tells whether it has."""

    def __init__(self, file: Path, parent: int, above: float) -> None:
        self.file, self.parent, self.above = file, parent, above

    def __call__(self, x: Any, theta: Any) -> None:
        if os.getpid() != self.parent and theta.max() > self.above and not self.file.exists():
            self.file.touch()
            os.kill(os.getpid(), signal.SIGKILL)


def dead_worker(trial: Trial) -> Outcome:
    killer = Killer(trial.folder / "dead", os.getpid(), trial.rng.uniform(0.1, 0.9))
    with ProcessPoolExecutor(2, mp_context=get_context("fork")) as pool:
        result = trial.run(killer, executor=pool)
    return trial.outcome(result, killer.file.exists())


class Failing:
    """Raises where θ is above a limit, as long as a file is there."""

    def __init__(self, file: Path, limit: float) -> None:
        self.file, self.limit = file, limit

    def __call__(self, x: Any, theta: Any) -> None:
        if self.file.exists() and (theta[..., 0] > self.limit).any():
            raise ArithmeticError("the model diverged")


def failing_g(trial: Trial) -> Outcome:
    fault = Failing(trial.folder / "broken", float(trial.rng.uniform(0.2, 0.95)))
    fault.file.touch()
    try:
        trial.run(fault)
        hit = False
    except nq.EvaluationError as error:
        hit = error.theta is not None and error.theta[0] > fault.limit
    fault.file.unlink()
    return trial.outcome(trial.run(fault), hit)


def interrupt(trial: Trial) -> Outcome:
    after, hit = int(trial.rng.integers(1, _BUDGET)), False

    def press(done: int, total: int, message: str) -> None:
        nonlocal hit
        if done > after and not hit:
            hit = True
            raise KeyboardInterrupt

    with contextlib.suppress(KeyboardInterrupt):
        trial.run(progress=press)
    return trial.outcome(trial.run(), hit)


def changed_g(trial: Trial) -> Outcome:
    trial.run()
    before = trial.evaluated()
    (trial.folder / "scale.txt").write_text(repr(float(10 ** trial.rng.uniform(-4, 1))))
    try:
        trial.run()
        refused = False
    except nq.InputError as error:
        refused = "another g" in str(error)
    return Outcome(refused, trial.evaluated() - before, True)


def slow_g(trial: Trial) -> Outcome:
    one = float(10 ** trial.rng.uniform(-3, -0.7))

    def wait(x: Any, theta: Any) -> None:
        time.sleep(one * theta.shape[0] * x.shape[1])

    started = time.perf_counter()
    result = trial.run(wait, budget=100_000, max_seconds=0.5)
    seconds = time.perf_counter() - started
    truth = 0.25 * (np.e**2 - 1) / 2
    kept = seconds <= 1.2 * 0.5 + one + 1.0
    return Outcome(kept and abs(result.value - truth) <= result.half_width, 0, True)


FAULTS = {
    "kill -9, three times": kill,
    "a disk that is full (simulated)": full_disk,
    "two damaged, lost or renamed files": damaged_files,
    "a worker that is killed": dead_worker,
    "a g that raises": failing_g,
    "Ctrl-C": interrupt,
    "a g that changed through a file": changed_g,
    "a slow g, half a second allowed": slow_g,
}

_HEAD = """\
# Faults

What was done to estimations on purpose, how often, and what became of them. `{line}` wrote this
page. Each trial takes one of the methods {methods} in turn, about
1,500 evaluations, a store, and a fault at a random moment; then the same call is made again.

* *Hit* counts trials in which the fault came before the end.
* *Right* means that the value and its error bar have the same bits as without the fault; for a g
  that changed, that the store was refused; for a slow g, that the answer came within 1.2 × the
  limit, one evaluation and a second, and that its interval holds the truth, which an infinite
  one does.
* *Repeated* are evaluations beyond those that the answer needs. They include the few by which a
  store checks g, and those of files that were damaged or could not be written. A file has a
  quarter of a second of evaluations, here nearly all of them.

| fault | trials | hit | right | repeated, median | repeated, most |
| --- | ---: | ---: | ---: | ---: | ---: |
"""


def run(out: Path, times: int, line: str) -> int:
    """Run all faults, write the table and the trials, and return how many were wrong."""
    rows, wrong = [], 0
    trials: list[tuple[Any, ...]] = []
    for number, (name, fault) in enumerate(FAULTS.items()):
        outcomes = []
        for i in range(times):
            method = _METHODS[i % len(_METHODS)]
            rng = np.random.default_rng([number, i])
            with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
                warnings.simplefilter("ignore")
                outcomes.append(fault(Trial(Path(folder), rng, method)))
            one = outcomes[-1]
            trials.append((name, i, method, one.hit, one.right, one.repeated))
        right, hit = (sum(getattr(o, key) for o in outcomes) for key in ("right", "hit"))
        repeated = [o.repeated for o in outcomes]
        wrong += times - right
        middle, most = int(np.median(repeated)), max(repeated)
        rows.append(f"| {name} | {times} | {hit} | {right} | {middle:,} | {most:,} |")
        print(rows[-1], flush=True)
    head = _HEAD.format(line=line, methods=", ".join(f"`{m}`" for m in _METHODS))
    (out / "faults.md").write_text(head + "\n".join(rows) + "\n" + limits.table(), encoding="utf-8")
    with (out / "data" / "faults.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["fault", "trial", "method", "hit", "right", "repeated"])
        writer.writerows(trials)
    return wrong
