"""The front door: plan → evaluate → analyse, until the tolerance or the budget is met."""

from __future__ import annotations

import time
import warnings
from concurrent.futures import Executor
from dataclasses import replace
from typing import Any

import numpy as np

from nestquad._loop import Loop
from nestquad._progress import Progress, ProgressLike, as_progress
from nestquad._typing import RNGLike
from nestquad.errors import InputError, NestquadWarning
from nestquad.evaluate import Design, Evaluator
from nestquad.methods import Goal, Method, as_method
from nestquad.points import Given, Stream
from nestquad.problem import NestedExpectation
from nestquad.result import Estimate

__all__ = ["as_budget", "estimate"]

# A tolerance without a budget stops here: minutes of a cheap g, and not a surprise bill.
DEFAULT_BUDGET = 10_000_000
_WILD_WEIGHTS = 10.0


def estimate(
    problem: NestedExpectation,
    *,
    budget: int | None = None,
    tol: float | None = None,
    rtol: float | None = None,
    method: str | Method = "auto",
    rng: RNGLike = None,
    executor: Executor | None = None,
    progress: ProgressLike = False,
    max_seconds: float | None = None,
) -> Estimate:
    """Estimate a nested expectation.

    Parameters
    ----------
    problem
        What to estimate.
    budget
        The most evaluations of g. Without a tolerance NMC, NQMC and NKQ plan them all at once;
        methods that learn spend them in turns.
    tol, rtol
        Stop when the half-width of the 95 % interval is at most `tol`, or `rtol` times the value;
        with several answers, for each of them. Without a budget, 10⁷ evaluations are the limit.
    method
        ``"auto"``, the name of a method, or a configured one such as ``nq.NKQ(n_inner=64)``.
    rng
        Anything that ``numpy.random.default_rng`` takes. The same seed gives the same bits.
    executor
        A ``concurrent.futures.Executor`` that evaluates chunks of g; None: in this thread.
    progress
        True for a line in the terminal, or a callable ``(done, total, message)``.
    max_seconds
        Start no new chunk of evaluations after this time; what is complete is analysed.

    Returns
    -------
    Estimate
        Value, standard error, and how it was found. Ctrl-C returns the last complete one.

    Examples
    --------
    >>> import nestquad as nq
    >>> problem = nq.problems.synthetic()
    >>> est = nq.estimate(problem, tol=1e-3, rng=0)
    >>> est.status, bool(abs(est.value - problem.exact) < 1e-3)
    ('converged', True)
    """
    started = time.perf_counter()
    budget = _validated(problem, budget, tol, rtol, max_seconds)
    if executor is not None and not callable(getattr(executor, "submit", None)):
        raise InputError(
            "executor", type(executor).__name__, "a concurrent.futures.Executor, or None"
        )
    chosen = as_method(method)
    adaptive = tol is not None or rtol is not None
    if adaptive and budget is None:
        budget = DEFAULT_BUDGET
    if budget is None and not _has_sizes(chosen):
        raise InputError(
            "budget",
            "neither a budget nor a tolerance nor sizes",
            "one of them",
            "For instance budget=10_000, tol=1e-3, or method=nq.NKQ(n_outer=100, n_inner=100).",
        )
    show = as_progress(progress)
    evaluator = Evaluator(
        problem,
        executor,
        keep=adaptive or chosen.sequential,
        deadline=np.inf if max_seconds is None else started + max_seconds,
    )
    loop = Loop(chosen, Goal(Stream.from_rng(rng), budget, adaptive), evaluator, tol, rtol)
    evaluator.on_progress = lambda done: show(
        done, _total(loop.design, budget if adaptive else None), loop.message
    )
    try:
        found = loop.run()
    finally:
        if isinstance(show, Progress):
            show.close()
    _warn_if_it_matters(found)
    return replace(found, seconds=time.perf_counter() - started)


def _warn_if_it_matters(found: Estimate) -> None:
    """Weights that cancel each other this much make an answer that should not be trusted."""
    for stage in ("inner", "outer"):
        size = found.diagnostics.get(stage, {}).get("sum_abs_weights", 1.0)
        if size > _WILD_WEIGHTS:
            warnings.warn(
                f"The {stage} weights of {found.method!r} cancel each other (their absolute values "
                f"sum to {size:.3g}), which amplifies every error in the values. Use Jitter() as "
                "regularization, a rougher kernel, or Sobol points.",
                NestquadWarning,
                stacklevel=3,
            )


def _total(design: Design | None, budget: int | None) -> int:
    if budget is not None:
        return budget
    return 0 if design is None else design.n_evaluations


def _has_sizes(method: Method) -> bool:
    """Whether both sizes are fixed, by numbers or by points that the user brings."""
    return all(
        getattr(method, f"n_{side}", None) is not None
        or isinstance(getattr(method, f"{side}_points", None), Given)
        for side in ("outer", "inner")
    )


def _validated(
    problem: NestedExpectation,
    budget: int | None,
    tol: float | None,
    rtol: float | None,
    max_seconds: float | None,
) -> int | None:
    if not isinstance(problem, NestedExpectation):
        raise InputError("problem", type(problem).__name__, "a nq.NestedExpectation")
    for name, value in (("tol", tol), ("rtol", rtol), ("max_seconds", max_seconds)):
        if value is not None and not (_is_number(value) and 0 < value < np.inf):
            raise InputError(name, repr(value), "a positive number, or None")
    return None if budget is None else as_budget(budget)


def as_budget(budget: Any) -> int:
    """A number of evaluations as an integer; 2 outer × 2 inner are the fewest that make sense."""
    if not _is_number(budget) or not np.isfinite(budget) or int(budget) != budget or budget < 4:
        raise InputError("budget", repr(budget), "a whole number of at least 4 evaluations")
    return int(budget)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.integer | np.floating)
