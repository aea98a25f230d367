"""How accurate an answer is, and how much accuracy costs."""

from __future__ import annotations

from nestquad.accuracy._allocation import Allocation, Level, allocate
from nestquad.accuracy._errors import linearized_covariance

__all__ = ["Allocation", "Level", "allocate", "linearized_covariance"]
