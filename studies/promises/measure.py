"""One estimate against the exact value: error, coverage, and time outside g."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

import nestquad as nq
from nestquad.methods import METHODS
from studies.runner.ledger import Outcome

# `auto` with the interval of fresh draws alone.
CERTIFIED = "certified"
# `auto`, then what it is compared with.
ALL_METHODS = ("auto", *(name for name in METHODS if name != "auto"))
# Errors below this part of the exact value are rounding.
ROUNDING = 1e-12


def measure(
    problem: nq.NestedExpectation,
    method: Any,
    seed: int,
    *,
    slack: float = 0.0,
    **limits: float | None,
) -> Outcome:
    """One estimate, with its error against the exact value and the time that g did not take.

    An interval covers if it holds the exact value, whose own error is `slack`.

    The method ``certified`` is `auto` with ``certify=True``: error and interval are those of
    ``est.certified``, evaluations and time those of the whole call.
    """
    clock = _Clock(problem.g)
    start = time.process_time()
    certify = method == CERTIFIED
    try:
        answer = nq.estimate(
            replace(problem, g=clock),
            method="auto" if certify else method,
            rng=seed,
            certify=certify,
            **limits,
        )
        if certify and answer.certified is None:
            raise nq.NumericalError("no certificate")
    except nq.NestquadError as error:
        spent = _short(time.process_time() - start - clock.seconds)
        return Outcome.failure(error, seconds=spent, g_seconds=_short(clock.seconds))
    seconds = time.process_time() - start - clock.seconds
    judged = answer.certified if certify else answer
    exact = np.ravel(np.asarray(problem.exact, dtype=float))
    errors = np.abs(np.ravel(judged.value) - exact)
    low, high = (np.ravel(end) for end in judged.interval(0.95))
    inside = (low - slack <= exact) & (exact <= high + slack)
    covered = inside | (errors <= ROUNDING * np.abs(exact))
    return Outcome(
        value=float(np.ravel(judged.value)[0]),
        error=_short(errors.max()),
        half_width=_short((high - low).max() / 2),
        covered=float(covered.mean()),
        evaluations=answer.n_evaluations,
        seconds=_short(max(seconds, 0.0)),
        g_seconds=_short(clock.seconds),
        status=answer.status,
        chosen=chosen_by(answer),
    )


def _short(value: float) -> float:
    """Two digits more than anybody reads, which keeps ledgers small."""
    return float(f"{value:.4g}")


def chosen_by(found: nq.Estimate) -> str:
    """What the method chose, in a word or a few; its name where it chose nothing."""
    chosen = found.diagnostics.get("chosen", found.method)
    if isinstance(chosen, Mapping):
        chosen = chosen.get("method", found.method)
    return str(chosen)[:60]


class _Clock:
    """g, and the CPU time spent in it."""

    def __init__(self, g: Callable[..., Any]) -> None:
        self.g, self.seconds = g, 0.0

    def __call__(self, x: np.ndarray, theta: np.ndarray) -> Any:
        start = time.process_time()
        try:
            return self.g(x, theta)
        finally:
            self.seconds += time.process_time() - start


def warm_up() -> None:
    """The first estimates of a process pay for imports inside SciPy."""
    problem = nq.problems.finance()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for method in ALL_METHODS:
            with suppress(nq.NestquadError):
                nq.estimate(problem, method=method, budget=500, rng=0)
