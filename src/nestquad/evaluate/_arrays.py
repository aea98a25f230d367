"""Points as arrays of another library, for a g that is written in it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from nestquad._typing import Array
from nestquad.errors import EvaluationError, optional_module

__all__ = ["call_in_library", "jax_in_64_bits"]

_G = Callable[[Any, Any], Any]


def call_in_library(library: str, g: _G, x: Array, theta: Array) -> Any:
    """g at points that are handed over as arrays of a library: ``"numpy"``, ``"jax"``, ``"torch"``.

    On a CPU the memory is shared. JAX copies arrays that are not aligned as it needs them, and g
    runs with 64-bit numbers enabled: kernel weights amplify the rounding of single precision.
    """
    if library == "numpy":
        return g(x, theta)
    return _CALLS[library](g, x, theta)


def _call_jax(g: _G, x: Array, theta: Array) -> Any:
    jax = optional_module("jax", "A g that takes JAX arrays", "jax")
    with _enable_x64(jax):
        return g(jax.device_put(x, may_alias=True), jax.device_put(theta, may_alias=True))


def _enable_x64(jax: Any) -> AbstractContextManager[Any]:
    if jax.config.jax_enable_x64:
        return nullcontext()
    if hasattr(jax, "enable_x64"):  # since JAX 0.8
        context: AbstractContextManager[Any] = jax.enable_x64(True)
        return context
    experimental = optional_module("jax.experimental", "A g that takes JAX arrays", "jax")
    context = experimental.enable_x64()
    return context


def jax_in_64_bits() -> tuple[Any, AbstractContextManager[Any]]:
    """The module jax, and a context with 64-bit numbers."""
    jax = optional_module("jax", "derivative='jax'", "jax")
    return jax, _enable_x64(jax)


def _call_torch(g: _G, x: Array, theta: Array) -> Any:
    torch = optional_module("torch", "A g that takes PyTorch tensors", "torch")
    points = tuple(torch.from_dlpack(array) for array in (x, theta))
    values = g(*points)
    # Rules work on the same memory afterwards; NumPy refuses to write to it, PyTorch does not.
    if any(tensor._version for tensor in points):
        raise EvaluationError(
            "g wrote to its arguments",
            advice="Points are shared: use out-of-place operations, or clone the tensor first.",
        )
    return values


_CALLS: dict[str, Callable[[_G, Array, Array], Any]] = {"jax": _call_jax, "torch": _call_torch}
