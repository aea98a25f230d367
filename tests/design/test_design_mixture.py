"""Gaussian mixtures: densities, conditioning and fits."""

from __future__ import annotations

import numpy as np
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from nestquad.design._proposal import Conditional, Mixture, one_normal

RNG = np.random.default_rng(0)


def random_mixture(k, d):
    root = RNG.normal(size=(k, d, d))
    return Mixture(
        RNG.dirichlet(np.ones(k)),
        RNG.normal(size=(k, d)),
        root @ np.swapaxes(root, 1, 2) + 0.1 * np.eye(d),
    )


def test_densities_are_those_of_scipy():
    mixture, x = random_mixture(3, 4), RNG.normal(size=(7, 4))
    parts = mixture.log_parts(x)
    for k in range(3):
        law = multivariate_normal(mixture.means[k], mixture.covariances[k])
        assert np.allclose(parts[:, k], np.log(mixture.weights[k]) + law.logpdf(x))


def test_conditional_times_marginal_is_the_joint_density():
    mixture, x = random_mixture(3, 4), RNG.normal(size=(7, 4))
    conditional = Conditional.of(mixture, 2)
    weights, means, given = conditional.at(x[:, 2:])
    found = [
        logsumexp(
            [
                w + multivariate_normal(m, c).logpdf(row)
                for w, m, c in zip(ws, ms, conditional.law.covariances, strict=True)
            ]
        )
        for ws, ms, row in zip(weights, means, x[:, :2], strict=True)
    ]
    assert np.allclose(np.array(found) + given, logsumexp(mixture.log_parts(x), axis=1))


def test_a_split_finds_two_clusters():
    x = RNG.normal(size=(4000, 2)) * 0.3 + np.where(np.arange(4000)[:, None] % 2, 2.0, -2.0)
    mixture = one_normal(x).split().fitted(x)
    assert np.allclose(np.sort(mixture.means[:, 0]), [-2.0, 2.0], atol=0.05)
    assert np.allclose(mixture.covariances, 0.09 * np.eye(2), atol=0.02)
