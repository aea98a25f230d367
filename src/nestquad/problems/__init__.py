"""Benchmark problems, each with its exact value, its tags and its smoothness."""

from __future__ import annotations

from nestquad.problems._finance import finance, gaussian_es
from nestquad.problems._health import health
from nestquad.problems._information_gain import eig_linear
from nestquad.problems._registry import all, get, names
from nestquad.problems._synthetic import rainforth, synthetic

__all__ = [
    "all",
    "eig_linear",
    "finance",
    "gaussian_es",
    "get",
    "health",
    "names",
    "rainforth",
    "synthetic",
]
