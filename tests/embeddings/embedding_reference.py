"""Numerical integrals of nestquad's own kernels, on panels graded around every scale in sight."""

from __future__ import annotations

import numpy as np

_COARSE, _FINE = np.polynomial.legendre.leggauss(24), np.polynomial.legendre.leggauss(36)
_STEPS = np.concatenate([[0.0], 2.0 ** np.arange(-3.0, 3.0), np.arange(8.0, 45.0, 2.0)])


def graded(low, high, anchors):
    """Ends of panels: finest steps next to each (center, scale) of `anchors`, never coarser than it
    within 44 of its scales.
    """
    ends = [low, high]
    for center, scale in anchors:
        ends.extend(center + scale * _STEPS)
        ends.extend(center - scale * _STEPS)
    ends = np.unique(ends)
    return ends[(ends >= low) & (ends <= high)]


def integrate(function, ends):
    """∫ function, by Gauss–Legendre on each panel; refuses to answer where two orders disagree."""
    answers = []
    for nodes, weights in (_COARSE, _FINE):
        half = np.diff(ends)[:, None] / 2
        t = ends[:-1, None] + half * (nodes + 1)
        terms = half * weights * function(t.ravel()).reshape(t.shape)
        answers.append((float(terms.sum()), float(np.abs(terms).sum())))
    (coarse, _), (fine, size) = answers
    assert abs(coarse - fine) <= 2e-12 * size, "the reference itself has not converged"
    return fine


def section(kernel, x):
    """t -> k(x, t) through the public call, for a kernel of one coordinate."""
    return lambda t: kernel(np.array([[x]]), t[:, None])[0]


def uniform_mean(kernel, scale, low, high, x):
    ends = graded(low, high, [(x, scale), (low, scale), (high, scale)])
    return integrate(lambda t: section(kernel, x)(t) / (high - low), ends)


def uniform_double(kernel, scale, low, high):
    # The distance of two independent points has density 2 (L - r) / L².
    length = high - low
    ends = graded(0.0, length, [(0.0, scale), (length, scale)])
    density = lambda r: 2.0 * (length - r) / length**2  # noqa: E731
    return integrate(lambda r: section(kernel, 0.0)(r) * density(r), ends)


def normal_density(t, loc, sd):
    return np.exp(-0.5 * ((t - loc) / sd) ** 2) / (sd * np.sqrt(2.0 * np.pi))


def normal_mean(kernel, scale, loc, sd, x):
    ends = graded(loc - 44.0 * sd, loc + 44.0 * sd, [(x, scale), (x, sd), (loc, sd)])
    # Panels of half a standard deviation: the product peaks between loc and x.
    ends = np.unique(np.concatenate([ends, loc + sd * np.arange(-44.0, 44.1, 0.5)]))
    return integrate(lambda t: section(kernel, x)(t) * normal_density(t, loc, sd), ends)


def normal_double(kernel, scale, sd):
    # The difference of two independent draws is normal with mean 0 and √2 times the sd.
    wide = np.sqrt(2.0) * sd
    ends = graded(0.0, 44.0 * wide, [(0.0, scale), (0.0, wide)])
    return integrate(lambda r: 2.0 * section(kernel, 0.0)(r) * normal_density(r, 0.0, wide), ends)
