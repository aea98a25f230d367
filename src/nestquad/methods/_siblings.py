"""Answers that are like the one asked for, and what their history says about an error bar."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from scipy.special import stdtrit

from nestquad._typing import Array

__all__ = ["final_changes", "replicate_errors", "siblings", "trust"]

# Coordinates of θ that give an answer its siblings.
_COORDINATES = 4
# How much an error bar is trusted beforehand, as a number of comparisons, and what is added for
# there being few of them, and since errors of all sizes may have a part in common that no step
# between them shows.
_BEFOREHAND, _FEW = 0.5, 1.6


def siblings(f: Array, weights: Array, coordinates: Array) -> Array:
    """Averages (S, q) of f (M, q): the plain one, and those with a wave over each coordinate.

    They are other answers to the same problem, with errors of the same kind. Rows in which f is
    not finite are left out, as models that only serve an error bar may leave its domain.

    Shapes
    ------
    weights (M,), coordinates (M, d) in the unit cube.
    """
    usable = np.asarray(np.isfinite(f).all(axis=1))
    weights = np.where(usable, weights, 0.0)
    angles = 2.0 * np.pi * coordinates[:, :_COORDINATES].T
    waves = np.concatenate([np.cos(angles), np.sin(angles)]) * np.sqrt(2.0)
    weighted = np.concatenate([weights[None], waves * weights])
    total = weights.sum() if usable.any() else np.nan
    return np.asarray(weighted @ np.where(usable[:, None], f, 0.0) / total)


def trust(changes: Sequence[Array], variances: Sequence[Array]) -> Array:
    """By what to multiply the standard deviations that a model claims, (k,).

    The first variances (S, k) are those of the siblings by the model at hand, the next ones by
    models from ever fewer of the points; changes (S, k) are what happened between two of them.
    More points were expected to change the answers by as much as the variance fell. Ratios are
    averaged as logarithms, together with the belief that the model is right.
    """
    logarithms = np.zeros(variances[0].shape[1])
    for change, after, before in zip(changes, variances[:-1], variances[1:], strict=True):
        expected = np.maximum(before - after, 0.25 * before)
        ratio = np.mean(change**2 / np.where(expected > 0, expected, np.inf), axis=0)
        logarithms += 0.5 * np.log(np.maximum(ratio, 1e-12))
    return np.asarray(_FEW * np.exp(logarithms / (len(changes) + _BEFOREHAND)))


def replicate_errors(finals: Array) -> Array:
    """Directions (k, R) of the error of a mean over R independent replicates (k, R)."""
    n = finals.shape[1]
    deviations = finals - finals.mean(axis=1, keepdims=True)
    # The standard error has few degrees of freedom.
    few = stdtrit(n - 1, 0.975) / stdtrit(np.inf, 0.975)
    return np.asarray(few * deviations / np.sqrt(n * (n - 1)))


def final_changes(finish: Callable[[Array], Array], answers: Array, changes: Array) -> Array:
    """What changes (…, q) of the q expectations change in the final answers, (…, k)."""
    center = np.atleast_1d(finish(answers))
    rows = [
        np.atleast_1d(finish(answers + row)) - center for row in changes.reshape(-1, answers.size)
    ]
    return np.reshape(rows, (*changes.shape[:-1], center.size))
