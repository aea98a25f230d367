"""Embedding of a Matérn kernel under a correlated normal law of two coordinates.

The product kernel has no closed form in elementary functions there. Given the first coordinate the
second one is normal, and its integral is the closed form of one coordinate; one integral over a
line remains. Gauss–Legendre panels end at the kinks of the integrand and follow the scales
of kernel and law, so that the rule is exact to about 1e-12 at any lengthscale.
"""

from __future__ import annotations

import numpy as np
from scipy.special import roots_legendre

from nestquad._typing import Array
from nestquad.distributions import Normal
from nestquad.embeddings._closed_forms import closed_form
from nestquad.kernels import Matern

__all__ = ["pair_embedding"]

_NODES = 24  # of a panel
_FAR = 9.0  # standard deviations: the mass beyond is 2e-19
# Ends of panels around a kink, in units of the kernel's decay and of the law's spread.
_DECAYS = (0.0, 1.0, 4.0, 12.0, 40.0)
_SPREADS = (1.0, 3.0, 6.0)


def pair_embedding(kernel: Matern, law: Normal, x: Array | None) -> Array:
    """∫ k(x, t) dP(t) at nodes x (N, 2); at x = None the double integral, ().

    The difference of two draws is normal with twice the covariance and the kernel depends on the
    difference alone, so the double integral is the mean embedding at zero of that law.

    Cost
    ----
    O(N) closed forms on each of about 700 nodes.
    """
    assert law.cov is not None
    if x is None:
        difference = Normal(np.zeros(2), cov=2.0 * law.cov)
        return np.asarray(pair_embedding(kernel, difference, np.zeros((1, 2)))[0])
    first, second = (kernel.coordinate(i, 2) for i in range(2))
    (m1, m2), cov = law.loc, law.cov
    s1 = np.sqrt(cov[0, 0])
    slope = cov[0, 1] / cov[0, 0]
    rest = np.sqrt(max(cov[1, 1] - slope * cov[0, 1], 0.0))
    decays = [1.0 / float(np.ravel(factor.rate(0))[0]) for factor in (first, second)]
    # The integrand has a kink at x_1, and bends where the mean of t_2 given t_1 passes x_2.
    bend = m1 + (x[:, 1] - m2) / slope
    across = (decays[1] / abs(slope), rest / abs(slope))
    ends = [np.full(len(x), m1 + k * s1) for k in np.linspace(-_FAR, _FAR, 13)]
    ends += [x[:, 0] + sign * k * decays[0] for k in _DECAYS for sign in (-1, 1)]
    ends += [bend + sign * k * across[0] for k in _DECAYS for sign in (-1, 1)]
    ends += [bend + sign * k * across[1] for k in _SPREADS for sign in (-1, 1)]
    edges = np.sort(np.clip(np.stack(ends, axis=1), m1 - _FAR * s1, m1 + _FAR * s1), axis=1)
    node, weight = roots_legendre(_NODES)
    middle, half = (edges[:, 1:] + edges[:, :-1]) / 2, np.diff(edges, axis=1) / 2
    t = (middle[..., None] + half[..., None] * node).reshape(len(x), -1)  # (N, nodes)
    w = (half[..., None] * weight).reshape(len(x), -1)
    density = np.exp(-0.5 * ((t - m1) / s1) ** 2) / (s1 * np.sqrt(2.0 * np.pi))
    along = first.evaluate(x[:, None, :1], t[..., None])[:, 0]
    given = Normal((m2 + slope * (t - m1)).reshape(-1, 1), sd=rest)
    other = np.repeat(x[:, 1], t.shape[1])[:, None]
    inner = closed_form(second, given).mean(second, given, other).reshape(t.shape)
    return np.asarray(np.sum(w * density * along * inner, axis=1))
