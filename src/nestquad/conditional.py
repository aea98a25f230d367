"""J(θ) anywhere: conditional kernel quadrature as a function."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nestquad._typing import Array, ArrayLike, RNGLike
from nestquad.distributions import Law, to_uniform
from nestquad.errors import InputError, NumericalError
from nestquad.estimate import Loop
from nestquad.evaluate import Evaluator, Store
from nestquad.methods import CKQ, Chosen, Goal, scores_of
from nestquad.points import Stream
from nestquad.problem import NestedExpectation

__all__ = ["ConditionalEstimate", "conditional"]


@dataclass(frozen=True)
class ConditionalEstimate:
    """An estimate of the function J(θ) = E[g(x, θ) | θ].

    Call it with θ (n, d_θ), or (d_θ,) for one point; returns (n,), or (n, p) for p outputs.
    """

    problem: str
    n_evaluations: int
    n_outer: int
    n_inner: int
    seconds: float
    diagnostics: Mapping[str, Any]
    _chosen: Chosen = field(repr=False)
    _law: Law = field(repr=False)
    _scalar: bool = field(repr=False)

    def __call__(
        self, theta: ArrayLike, return_std: bool = False
    ) -> Array | float | tuple[Array | float, Array | float]:
        """J at θ, and its standard deviation if asked for."""
        points = np.asarray(theta, dtype=float)
        dim = self._law.dim
        if points.ndim not in (1, 2) or points.shape[-1] != dim:
            raise InputError(
                "theta",
                f"an array of shape {points.shape}",
                f"shape (n, {dim}), or ({dim},) for one point",
                "Several points of one coordinate are theta[:, None]." if dim == 1 else "",
            )
        scores = scores_of(self._law, to_uniform(self._law, np.atleast_2d(points)))
        mean = self._shaped(self._chosen.surrogate.mean(scores), points.ndim)
        if not return_std:
            return mean
        return mean, self._shaped(self._chosen.sd(scores), points.ndim)

    def __str__(self) -> str:
        return (
            f"J of {self.problem} from {self.n_evaluations:,} evaluations "
            f"({self.n_outer:,} × {self.n_inner:,}), {self._chosen.surrogate.kind}, "
            f"{self.seconds:.2g} s"
        )

    def _shaped(self, values: Array, n_axes: int) -> Array | float:
        out = values[:, 0] if self._scalar else values
        if n_axes == 2:
            return out
        return float(out[0]) if self._scalar else np.asarray(out[0])


def conditional(
    problem: NestedExpectation,
    *,
    budget: int,
    method: CKQ | None = None,
    rng: RNGLike = None,
    executor: Executor | None = None,
    store: str | os.PathLike[str] | None = None,
) -> ConditionalEstimate:
    """Learn J(θ) = E[g(x, θ) | θ] by conditional kernel quadrature.

    Parameters
    ----------
    problem
        Its f only decides where accuracy pays; leave it out to learn J evenly.
    budget
        The most evaluations of g.
    method
        A configured `CKQ`, for instance ``nq.CKQ(n_outer=32)``.
    rng, executor, store
        As in :func:`nestquad.estimate`.

    Examples
    --------
    >>> import nestquad as nq
    >>> problem = nq.problems.synthetic()
    >>> J = nq.conditional(problem, budget=1024, rng=0)
    >>> bool(abs(J([0.25]) - (2 / 7 + 0.25**2.5)) < 1e-3)
    True
    """
    started = time.perf_counter()
    chosen = CKQ() if method is None else method
    if not isinstance(chosen, CKQ):
        raise InputError("method", type(chosen).__name__, "a configured nq.CKQ, or None")
    law = problem.outer_law
    middle = law.from_uniform(np.full((1, law.base_dim), 0.5))
    to_uniform(law, middle)  # refuse before g is evaluated, not after
    opened = None if store is None else Store.open(store, problem, rng)
    evaluator = Evaluator(problem, executor, keep=True, store=opened)
    stream = Stream.from_rng(rng) if opened is None else opened.stream
    try:
        found = Loop(chosen, Goal(stream, budget), evaluator).run()
    finally:
        evaluator.close()
    chosen_surrogate = evaluator.memo(stream).get("chosen")
    if chosen_surrogate is None:
        raise NumericalError(
            "No surrogate of J was plausible with these evaluations. Use a larger budget, or fix "
            "method=nq.CKQ(n_inner=...) to estimate J better at each theta."
        )
    return ConditionalEstimate(
        problem.label,
        evaluator.n_evaluations,
        found.n_outer,
        found.n_inner,
        time.perf_counter() - started,
        found.diagnostics,
        chosen_surrogate,
        law,
        found.sample is None or found.sample.j.ndim == 1,
    )
