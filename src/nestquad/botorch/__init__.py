"""Kernel quadrature inside BoTorch: a sampler with weights, and look-ahead on top of it."""

from __future__ import annotations

from nestquad.errors import MissingExtraError

try:
    import botorch  # noqa: F401 - everything below needs it, and says so better than a traceback
    import torch  # noqa: F401
except ImportError as error:
    raise MissingExtraError("nestquad.botorch", "botorch") from error

from nestquad.botorch._lookahead import NestedLookaheadEI
from nestquad.botorch._reduction import with_kq
from nestquad.botorch._sampler import KQNormalSampler
from nestquad.botorch._weights import NormalRule, normal_rule

__all__ = ["KQNormalSampler", "NestedLookaheadEI", "NormalRule", "normal_rule", "with_kq"]
