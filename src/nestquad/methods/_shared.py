"""What methods with a model of J have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from nestquad._typing import Array
from nestquad.errors import InputError
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
    """The estimate from q expectations and directions (k, m) of each part of their error."""
    value = np.atleast_1d(problem.finish(answers))
    # What could not be computed says that nothing is certain.
    errors = np.nan_to_num(
        np.concatenate(list(parts.values()), axis=1), nan=float(np.abs(value).max())
    )
    covariance = errors @ errors.T
    std_error = np.sqrt(np.diagonal(covariance))
    single = problem.finish(answers).ndim == 0
    sizes = {name: size_of(part) for name, part in parts.items()}
    return Estimate(
        value=float(value[0]) if single else value,
        std_error=float(std_error[0]) if single else std_error,
        covariance=None if single else covariance,
        problem=problem.label,
        exact=float_or_array(problem.exact),
        diagnostics={"answers": answers, "error_parts": sizes, **diagnostics},
        **fields,
    )
