"""A single expectation by kernel quadrature."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nestquad import clock
from nestquad._checks import instance, shown
from nestquad._threads import one_blas_thread
from nestquad._typing import Array, RNGLike
from nestquad.distributions import as_law
from nestquad.errors import InputError
from nestquad.estimate import as_budget
from nestquad.evaluate import OuterPoints, call_h
from nestquad.methods import kernel_outer
from nestquad.points import Sequence, Stream, as_sequence
from nestquad.quadrature import KernelQuadrature
from nestquad.result import Estimate, OuterSample

__all__ = ["expectation"]


@one_blas_thread()
def expectation(
    h: Callable[[Array], Any],
    law: Any,
    *,
    budget: int,
    recipe: KernelQuadrature | None = None,
    points: str | Sequence = "sobol",
    rng: RNGLike = None,
) -> Estimate:
    """Estimate E[h(x)] for one law by kernel quadrature.

    Parameters
    ----------
    h
        ``h(x)`` with x (N, d), returning (N,) or (N, p).
    law
        A law of nestquad or a frozen ``scipy.stats`` distribution.
    budget
        How many points to evaluate h at.
    recipe
        Kernel, space and tuning; the default suits a function that is not rough.
    points
        Where to evaluate: ``"sobol"``, ``"iid"``, ``"lattice"`` or `Given`.
    rng
        Anything that ``numpy.random.default_rng`` takes.

    Cost
    ----
    O(budget³) for the weights; O(budget log budget) in one dimension with
    ``KernelQuadrature(nq.Matern(0.5))``.

    Examples
    --------
    >>> import numpy as np
    >>> import nestquad as nq
    >>> est = nq.expectation(lambda x: np.exp(x[:, 0]), nq.Normal(), budget=128, rng=0)
    >>> bool(abs(est.value - np.exp(0.5)) < 1e-2)
    True
    """
    started = clock.now()
    budget = as_budget(budget)
    recipe = KernelQuadrature() if recipe is None else recipe
    instance("recipe", recipe, KernelQuadrature, "a nq.KernelQuadrature, or None")
    if not callable(h):
        raise InputError("h", shown(h), "a callable that takes x (N, d)")
    target = as_law(law, argument="law")
    sequence = as_sequence(points)
    stream = Stream.from_rng(rng)
    uniform: Array | None = None
    if sequence.space == "native":
        x = sequence.uniforms(stream, target.dim or 1, (0, 1), (0, budget))[0]
    elif target.has_transport:
        uniform = sequence.uniforms(stream, target.base_dim, (0, 1), (0, budget))[0]
        x = target.from_uniform(uniform)
    else:
        x = target.sample(budget, stream.generator())
    values = call_h(h, x)
    nodes = OuterPoints(x, uniform)
    fit = kernel_outer(_identity, [recipe], nodes, target, values.reshape(len(values), -1))
    answers = np.einsum("nq,nq->q", fit.weights, values.reshape(len(values), -1))
    return Estimate.from_directions(
        answers.reshape(values.shape[1:]),
        fit.directions,
        n_evaluations=budget,
        n_outer=budget,
        n_inner=1,
        method="kernel quadrature",
        seconds=clock.now() - started,
        diagnostics={"outer": fit.diagnostics, "notes": fit.diagnostics.get("notes", [])},
        problem="expectation",
        sample=OuterSample(x, values, values.reshape(len(values), -1), fit.weights),
    )


def _identity(answers: Array) -> Array:
    return answers
