"""Kernel quadrature inside BoTorch: a sampler with weights, look-ahead, and entropy search."""

from __future__ import annotations

import warnings

from nestquad.errors import MissingExtraError

try:
    with warnings.catch_warnings():
        # Raised by dependencies of BoTorch on import.
        warnings.filterwarnings("ignore", "`torch.jit.script` is deprecated", DeprecationWarning)
        import botorch  # noqa: F401 - all below needs it, and this says so better than a traceback
        import torch  # noqa: F401
except ImportError as error:
    raise MissingExtraError("nestquad.botorch", "botorch") from error

from nestquad.botorch._entropy import KQMaxValueEntropy
from nestquad.botorch._lookahead import NestedLookaheadEI
from nestquad.botorch._sampler import KQNormalSampler, with_kq
from nestquad.botorch._weights import NormalRule, normal_rule

__all__ = [
    "KQMaxValueEntropy",
    "KQNormalSampler",
    "NestedLookaheadEI",
    "NormalRule",
    "normal_rule",
    "with_kq",
]
