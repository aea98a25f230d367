"""Limits on time: what `max_seconds` took, over doors, methods and executors."""

from __future__ import annotations

import contextlib
import tempfile
import time
import warnings
from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

import nestquad as nq
from nestquad import design, risk, voi


class Slow:
    """A g, and so many seconds for each point."""

    def __init__(self, g: Callable[..., Any], seconds: float) -> None:
        self.g, self.seconds = g, seconds

    def __call__(self, x: Any, theta: Any) -> Any:
        values = self.g(x, theta)
        time.sleep(self.seconds * values.size)
        return values


def _sum(x: Any, theta: Any) -> Any:
    return np.tanh(x.sum(axis=-1)) + theta.sum(axis=-1)


def _positive(j: Any) -> Any:
    return np.maximum(j, 0.0)


def _problem(seconds: float = 0.0, dim: int = 1) -> nq.NestedExpectation:
    law = nq.Normal(np.zeros(dim))
    return nq.NestedExpectation(law, law, Slow(_sum, seconds) if seconds else _sum, _positive)


def _log_prob(data: Any, theta: Any, chosen: Any) -> Any:
    return -0.5 * (data[..., 0] - chosen * theta[..., 0]) ** 2


def _experiment(seconds: float) -> design.Experiment:
    def log_prob(data: Any, theta: Any, chosen: Any) -> Any:
        values = _log_prob(data, theta, chosen)
        time.sleep(seconds * values.size)
        return values

    return design.Experiment(
        nq.Normal(), log_prob, lambda theta, e, chosen: chosen * theta + e, nq.Normal()
    )


def _model(seconds: float) -> voi.Model:
    def benefit(p: Any) -> Any:
        time.sleep(seconds * np.size(p["a"] + p["b"]))
        return 0.0 * p["a"], p["a"] * np.exp(0.3 * p["b"])

    return voi.Model({"a": nq.Normal(), "b": nq.Normal()}, benefit)


def _risk(seconds: float, limit: float) -> risk.RiskReport:
    problem = replace(_problem(seconds), f=None)
    return risk.measure(problem, var=0.9, es=(), max_seconds=limit, rng=0)


Call = Callable[[float], Any]


def _estimate(seconds: float = 0.0, dim: int = 1, **options: Any) -> Call:
    return lambda limit: nq.estimate(_problem(seconds, dim), rng=0, max_seconds=limit, **options)


def _with(make: Callable[[], Executor], seconds: float, **options: Any) -> Call:
    def call(limit: float) -> Any:
        with make() as executor:
            return _estimate(seconds, executor=executor, **options)(limit)

    return call


def _threads() -> Executor:
    return ThreadPoolExecutor(4)


def _processes() -> Executor:
    return ProcessPoolExecutor(2, mp_context=get_context("fork"))


def _stored(limit: float) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        return _estimate(budget=10_000_000, store=Path(folder) / "store")(limit)


# Seconds allowed, seconds of one evaluation, and the call.
CASES: dict[str, tuple[float, float, Call]] = {
    "10⁷ evaluations": (5.0, 0.0, _estimate(budget=10_000_000)),
    "10⁷ evaluations, a store": (2.0, 0.0, _stored),
    "10⁷ evaluations, threads": (2.0, 0.0, _with(_threads, 0.0, budget=10_000_000)),
    "10⁷ evaluations, processes": (2.0, 0.0, _with(_processes, 0.0, budget=10_000_000)),
    "10⁷ evaluations, certified": (2.0, 0.0, _estimate(budget=10_000_000, certify=True)),
    **{
        f"10⁷ evaluations, {method}": (2.0, 0.0, _estimate(budget=10_000_000, method=method))
        for method in ("nqmc", "nkq", "ckq", "joint", "lsmc", "mlmc", "mlkq")
    },
    "time alone": (5.0, 0.0, _estimate()),
    "a tolerance out of reach": (2.0, 0.0, _estimate(tol=1e-12)),
    "2,000 coordinates": (5.0, 0.0, _estimate(dim=2000)),
    "2,000 coordinates, 10⁵ evaluations": (5.0, 0.0, _estimate(dim=2000, budget=100_000)),
    "g of 1 s": (5.0, 1.0, _estimate(1.0)),
    "g of 1 s, 1,000 evaluations": (5.0, 1.0, _estimate(1.0, budget=1000)),
    "g of 1 s, threads": (5.0, 1.0, _with(_threads, 1.0)),
    "g of 1 s, processes": (5.0, 1.0, _with(_processes, 1.0, budget=1000)),
    "g of 10 ms": (2.0, 0.01, _estimate(0.01)),
    "risk": (2.0, 0.0, lambda limit: _risk(0.0, limit)),
    "risk, g of 0.1 s": (5.0, 0.1, lambda limit: _risk(0.1, limit)),
    "design": (2.0, 0.0, lambda limit: design.eig(_experiment(0.0), 1.0, max_seconds=limit, rng=0)),
    "design, g of 10 ms": (
        2.0, 0.01, lambda limit: design.eig(_experiment(0.01), 1.0, max_seconds=limit, rng=0)
    ),
    "voi.Model": (2.0, 0.0, lambda limit: _model(0.0).evppi("a", max_seconds=limit, rng=0)),
    "voi.Model, g of 0.1 s": (
        5.0, 0.1, lambda limit: _model(0.1).evppi("a", max_seconds=limit, rng=0)
    ),
    "voi.Model, all singles": (2.0, 0.0, lambda limit: _model(0.0).evppi(max_seconds=limit, rng=0)),
}  # fmt: skip

_HEAD = """
## Limits on time

`max_seconds` over doors, methods and executors. The bound is 1.2 × the limit, one evaluation
of g and a second. An *error* is that of an estimation that had no time for its first answer.

| case | limit, s | took, s | bound, s | kept | answer |
| --- | ---: | ---: | ---: | --- | --- |
"""


def measured(name: str) -> tuple[float, float, str]:
    """Seconds that a case took, its bound, and what came of it."""
    limit, one, call = CASES[name]
    started = time.perf_counter()
    answer = ""
    with warnings.catch_warnings(action="ignore"):
        try:
            result = call(limit)
        except nq.EvaluationError as error:
            answer = f"error ({type(error).__name__})"
    seconds = time.perf_counter() - started
    if not answer:
        with contextlib.suppress(AttributeError):
            result = result.estimate
        answer = str(getattr(result, "status", "table"))
    return seconds, 1.2 * limit + one + 1.0, answer


def table() -> str:
    """The section of the page, measured."""
    rows = []
    for name in CASES:
        seconds, bound, answer = measured(name)
        kept = "yes" if seconds <= bound else "**no**"
        row = f"| {name} | {CASES[name][0]:g} | {seconds:.1f} | {bound:.1f} | {kept} | {answer} |"
        print(row, flush=True)
        rows.append(row)
    return _HEAD + "\n".join(rows) + "\n"
