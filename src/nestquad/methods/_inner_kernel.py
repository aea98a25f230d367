"""Kernel weights for the inner stage of surrogates: which kernel, and its posterior variances."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nestquad._typing import Array
from nestquad.gp import amplitude, fit_lengthscale, median_lengthscale
from nestquad.kernels import Gaussian, Kernel, Matern
from nestquad.quadrature import KernelQuadrature, Space, default_kernel, nodes_on
from nestquad.rules import factorize

__all__ = ["KernelChoice", "kernel_choices"]

# Lengthscales are tuned on the values at so many nodes: optima are flat, and N³ is dear.
_TUNING_NODES = 32
# Ridge for amplitudes where the weights had none.
_RIDGE = 1e-9
# Gram matrices of this many numbers are made at a time (16 MB).
_GRAM_NUMBERS = 2**21


@dataclass(frozen=True)
class KernelChoice:
    """A tuned recipe, and how likely it makes the values."""

    recipe: KernelQuadrature
    likelihood: float

    def weights(self, uniform: Array, sizes: list[int]) -> Array:
        """Weights (views, S, N) on prefixes of the S point sets (S, N, d)."""
        n_sets, n, _ = uniform.shape
        weights = np.zeros((len(sizes), n_sets, n))
        usable = [size for size in sizes if size >= 2]
        nodes = nodes_on(self.recipe.space, uniform, uniform)
        block = max(1, _GRAM_NUMBERS // n**2)
        for s in range(0, n_sets, block):
            found = self.recipe.rules_by_set(nodes[s : s + block], usable)
            for i, rules in enumerate(found, start=s):
                for view, rule in enumerate(rules):
                    weights[view, i, : usable[view]] = rule.weights
        for view in range(len(usable), len(sizes)):
            weights[view, :, : sizes[view]] = 1.0 / sizes[view]
        return weights

    def posterior_variance(self, uniform: Array, values: Array) -> Array:
        """Variance of J given the values (T, N, p), as Bayesian quadrature has it: (T, p).

        That of a function of unit amplitude, which depends on the nodes alone, times the amplitude
        of g at each θ.
        """
        kernel = self.recipe.kernel
        assert kernel is not None
        out = np.empty((values.shape[0], values.shape[2]))
        for s, points in enumerate(uniform):
            nodes = nodes_on(self.recipe.space, points, points)
            rule = self.recipe.rules_by_set(nodes[None], (len(nodes),))[0][0]
            # Weights on a line need no ridge; the Gram matrix, for the amplitude, does.
            factor = factorize(kernel(nodes, nodes), rule.ridge or _RIDGE)
            assert factor is not None  # it was when the weights were made, or the ridge is enough
            for t in range(s, len(values), len(uniform)):
                out[t] = rule.posterior_variance * amplitude(factor, values[t])
        return out


def kernel_choices(
    uniform: Array, values: Array, spaces: tuple[Space, ...], most: int
) -> list[KernelChoice]:
    """The likeliest kernels for values (T, N, p) at the first T of the sets (S, N, d).

    Kernels of finite smoothness for g with kinks or ends, the Gaussian for g without.
    """
    dim = uniform.shape[-1]
    spread = values.std(axis=(0, 1))
    columns = (values / np.where(spread > 0, spread, 1.0))[:, :_TUNING_NODES]
    kernels: list[Kernel] = [default_kernel(dim, 1.5), default_kernel(dim, 2.5)]
    if dim <= 2:
        kernels += [Matern(3.5), Gaussian()]
    choices = []
    for space in spaces:
        nodes = nodes_on(space, uniform, uniform)[: len(columns), :_TUNING_NODES]
        groups = list(zip(nodes, columns, strict=True))
        scale = median_lengthscale(nodes[0])
        for kernel in kernels:
            tuned, likelihood = fit_lengthscale(kernel.with_lengthscale(scale), groups)
            recipe = KernelQuadrature(tuned, space, "fixed")
            choices.append(KernelChoice(recipe, likelihood))
    return sorted(choices, key=lambda choice: -choice.likelihood)[:most]
