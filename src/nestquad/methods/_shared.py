"""Parts common to all methods: requirements of laws, sizes of errors, the estimate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from nestquad._typing import Array
from nestquad.errors import EvaluationError, InputError
from nestquad.problem import NestedExpectation
from nestquad.result import Estimate

__all__ = ["assembled", "float_or_array", "require_transports", "size_of"]


def float_or_array(value: Any) -> float | Array | None:
    """A number or array as users get it; None stays."""
    if value is None:
        return None
    array = np.asarray(value, dtype=float)
    return float(array) if array.ndim == 0 else array


def require_transports(problem: NestedExpectation, method: str) -> None:
    """Refuse laws that can only be sampled: the method needs the uniforms behind θ and x."""
    law, role = problem.outer_law, "outer"
    if law.has_transport:
        law, role = problem.inner_law(law.from_uniform(np.full((1, law.base_dim), 0.5))), "inner"
    if not law.has_transport:
        raise InputError(
            role,
            "a law that can only be sampled",
            f"a law that is a transport of uniforms, in which method {method!r} models g",
            "Use method='nmc', or describe the simulator by nq.Transport.",
        )


def size_of(directions: Array) -> float:
    """The largest standard deviation that directions (k, m) of an error add up to."""
    return float(np.sqrt((directions**2).sum(axis=1)).max(initial=0.0))


def assembled(
    problem: NestedExpectation,
    answers: Array,
    parts: Mapping[str, Array],
    diagnostics: Mapping[str, Any],
    **fields: Any,
) -> Estimate:
    """The estimate from q expectations and the parts of its error.

    `parts` are directions (k, m) of the k final answers by source: their squares add up to
    variances, their products to covariances.
    """
    found = problem.finish(answers)
    value = np.atleast_1d(found)
    if not np.isfinite(value).all():
        raise EvaluationError(f"combine returned {found} for I = {answers}")
    errors = np.concatenate(list(parts.values()), axis=1)
    # An error that could not be computed is taken to be as large as the answer.
    errors = np.where(np.isnan(errors), np.abs(value).max(), errors)
    std_error = np.sqrt((errors**2).sum(axis=1))
    covariance = None
    if found.ndim:
        with np.errstate(invalid="ignore"):  # an infinite error is correlated with nothing
            covariance = np.nan_to_num(errors @ errors.T, nan=0.0, posinf=np.inf, neginf=-np.inf)
    sizes = {name: size_of(part) for name, part in parts.items()}
    return Estimate(
        value=value if found.ndim else float(value[0]),
        std_error=std_error if found.ndim else float(std_error[0]),
        covariance=covariance,
        problem=problem.label,
        exact=float_or_array(problem.exact),
        diagnostics={"answers": answers, "error_parts": sizes, **diagnostics},
        **fields,
    )
