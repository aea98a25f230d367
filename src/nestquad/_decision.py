"""Decisions among several options: the best of each, and the value of knowing more before."""

from __future__ import annotations

from functools import reduce

import numpy as np

from nestquad._typing import Array

__all__ = ["best_and_each", "value_of_information"]


def best_and_each(j: Array) -> Array:
    """The largest of the p outputs and then each of them, (T, p) → (T, 1 + p): an f."""
    # Option by option: a maximum along so short an axis would take five times as long.
    largest = reduce(np.maximum, np.moveaxis(j, -1, 0))
    return np.concatenate((largest[..., None], j), axis=-1)


def value_of_information(answers: Array) -> Array:
    """E max J − max E J from the expectations of `best_and_each`: a combine."""
    value: Array = answers[..., 0] - np.max(answers[..., 1:], axis=-1)
    return value
