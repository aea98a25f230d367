"""Kernel quadrature inside BoTorch: a sampler with weights, and look-ahead on top of it."""

from __future__ import annotations

from nestquad.errors import MissingExtraError

try:
    import botorch  # noqa: F401 - everything below needs it, and says so better than a traceback
    import torch  # noqa: F401
except ImportError as error:
    raise MissingExtraError("nestquad.botorch", "botorch") from error

from nestquad.botorch._acquisitions import acquisition
from nestquad.botorch._loop import optimize
from nestquad.botorch._trace import Trace

__all__ = ["Trace", "acquisition", "optimize"]
