"""Kernel quadrature as a recipe: kernel, space, tuning and regularization.

A recipe is independent of nested expectations. The methods use one for each stage, and
:func:`nestquad.expectation` uses one for a single expectation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

import numpy as np
from scipy.special import ndtri

from nestquad._checks import choice, instance
from nestquad._typing import Array
from nestquad.distributions import Law, Normal, Uniform
from nestquad.errors import InputError
from nestquad.gp import fit_lengthscale, median_lengthscale
from nestquad.kernels import Anova, Kernel, Matern
from nestquad.rules import (
    Exactness,
    Jitter,
    Regularization,
    Rule,
    Schedule,
    best_lambda0,
    prefix_rules,
)

__all__ = ["KernelQuadrature", "Space", "default_kernel", "nodes_on"]

Space = Literal["auto", "uniform", "normal", "native"]


@dataclass(frozen=True)
class TuningSettings:
    """Numbers of the tuning of a `KernelQuadrature`.

    Attributes
    ----------
    nodes
        Nodes used for tuning: optima are flat, and the cost is O(N³).
    gain
        Gain of log likelihood, in nats a value, above which a function is moved to the normal
        scale. Functions that grow in the tails were seen to gain 2.5 and more, others 0.8 and less.
    """

    nodes: int = 48
    gain: float = 1.0


_TUNING = TuningSettings()


@dataclass(frozen=True)
class KernelQuadrature:
    """How to turn nodes and values into optimal weights.

    Parameters
    ----------
    kernel
        None chooses the order of a Matérn kernel by marginal likelihood; from four coordinates on
        as an ANOVA kernel of order two, since the plain product then no longer sees anything.
    space
        ``"uniform"``: on the uniforms that drive the law, where weights do not depend on it (the
        paper's change of variables). ``"normal"``: on the standard normals, which suits functions
        that grow in the tails. ``"native"``: on the points themselves, with the embedding of the
        law. ``"auto"``: uniform, unless the values are far likelier on the normal scale (and no
        kernel is given).
    lengthscale
        ``"likelihood"``: the kernel's own (the median distance where `kernel` is None) times the
        factor of highest marginal likelihood. ``"median"``: the median distance (Garreau,
        Jitkrittum and Kanagawa 2017, Large sample analysis of the median heuristic). ``"fixed"``:
        the kernel's own.
    regularization
        `Jitter`, `Schedule` or λ.
    exact
        ``"constant"``: constants are integrated exactly; ``"none"``: not even these.
    standardize
        Subtract the mean of the values before weighting and add it afterwards, as the paper does;
        this too makes constants exact, by equal instead of optimal corrections.
    """

    kernel: Kernel | None = None
    space: Space = "auto"
    lengthscale: Literal["likelihood", "median", "fixed"] = "likelihood"
    regularization: Regularization = Jitter()  # noqa: RUF009 - frozen, so safe to share
    exact: Exactness = "constant"
    standardize: bool = False

    def __post_init__(self) -> None:
        for argument, given, known in (
            ("space", self.space, ("auto", "uniform", "normal", "native")),
            ("lengthscale", self.lengthscale, ("likelihood", "median", "fixed")),
            ("exact", self.exact, ("none", "constant")),
        ):
            choice(argument, given, known)
        if self.kernel is not None:
            instance("kernel", self.kernel, Kernel, "a kernel such as nq.Matern(1.5), or None")

    def law(self, dim: int, native: Law | None = None) -> Law:
        """The law that the weights integrate against on this space."""
        if self.space in ("uniform", "auto"):
            return Uniform(0.0, 1.0, dim=dim)
        if self.space == "normal":
            return Normal(0.0, 1.0, dim=dim)
        if native is None:
            raise InputError("space", "'native'", "a space that needs no law of its own here")
        return native

    def tuned(self, groups: Sequence[tuple[Array, Array]]) -> KernelQuadrature:
        """Recipe with kernel, space and λ_0 chosen from values.

        `groups` are pairs of nodes (N, d) and values (N, m): m functions at the same nodes. With
        ``space="auto"`` the nodes are uniforms; the result has the chosen space.
        """
        first: Space = "uniform" if self.space == "auto" else self.space
        dim = groups[0][0].shape[1]
        if self.kernel is not None or self.lengthscale != "likelihood":
            return self._tuned(first, self.kernel or default_kernel(dim), groups)[1]
        likelihood, recipe = self._likeliest(first, groups)
        if self.space == "auto":
            on_normals, other = self._likeliest("normal", groups)
            n_values = sum(values[: _TUNING.nodes].size for _, values in groups)
            if on_normals - likelihood > _TUNING.gain * n_values:
                return other
        return recipe

    def _likeliest(
        self, space: Space, groups: Sequence[tuple[Array, Array]]
    ) -> tuple[float, KernelQuadrature]:
        """The likelier of both orders of the default kernel on a space."""
        dim = groups[0][0].shape[1]
        fits = [self._tuned(space, default_kernel(dim, nu), groups) for nu in (1.5, 2.5)]
        return max(fits, key=lambda fit: fit[0])

    def _tuned(
        self, space: Space, kernel: Kernel, groups: Sequence[tuple[Array, Array]]
    ) -> tuple[float, KernelQuadrature]:
        """Log likelihood of the values, and the recipe with lengthscale and λ_0 for one kernel."""
        if self.lengthscale == "likelihood":
            groups = [(nodes[: _TUNING.nodes], values[: _TUNING.nodes]) for nodes, values in groups]
        if self.space == "auto" and space == "normal":
            groups = [(ndtri(nodes), values) for nodes, values in groups]
        likelihood = 0.0
        if self.lengthscale == "median" or (self.kernel is None and self.lengthscale != "fixed"):
            kernel = kernel.with_lengthscale(median_lengthscale(groups[0][0]))
        if self.lengthscale == "likelihood":
            kernel, likelihood = fit_lengthscale(kernel, groups)
        regularization = self.regularization
        if isinstance(regularization, Schedule):
            regularization = Schedule((best_lambda0(kernel, groups, regularization.grid),))
        return likelihood, replace(
            self, kernel=kernel, space=space, lengthscale="fixed", regularization=regularization
        )

    @property
    def needs_values(self) -> bool:
        """Whether tuning looks at values, or only at nodes."""
        scheduled = isinstance(self.regularization, Schedule) and len(self.regularization.grid) > 1
        return self.lengthscale == "likelihood" or scheduled

    def rule(self, nodes: Array, native: Law | None = None) -> Rule:
        """Weights of a tuned recipe at nodes (N, d)."""
        return self.rules(nodes, (nodes.shape[0],), native)[0]

    def rules(self, nodes: Array, sizes: Sequence[int], native: Law | None = None) -> list[Rule]:
        """Weights on prefixes of the nodes (N, d), of the given sizes.

        Weights on a fixed space do not depend on the problem, and the last few are cached.
        """
        if self.space == "native":
            return self.rules_by_set(nodes[None], sizes, native)[0]
        data = np.asarray(nodes, dtype=float).tobytes()
        return _cached_rules(self, data, nodes.shape, tuple(sizes))

    def rules_by_set(
        self, nodes: Array, sizes: Sequence[int], native: Law | None = None
    ) -> list[list[Rule]]:
        """Weights on prefixes of T node sets (T, N, d), whose native laws may differ."""
        if self.kernel is None:
            raise InputError("kernel", "None", "a tuned recipe", "Call tuned(groups) first.")
        law, ridge = self.law(nodes.shape[-1], native), self.regularization
        by_set = prefix_rules(
            self.kernel, law, nodes, sizes, regularization=ridge, exact=self.exact
        )
        if not self.standardize:
            return by_set
        # Weights that act on values after subtraction of their mean: a linear rule as well.
        return [
            [
                replace(r, weights=r.weights + (1.0 - r.weights.sum()) / r.weights.size)
                for r in rules
            ]
            for rules in by_set
        ]


def default_kernel(dim: int, nu: float = 1.5) -> Kernel:
    """The kernel for d coordinates when the user names none."""
    base = Matern(nu)
    return base if dim <= 3 else Anova(base, order=2)


def nodes_on(space: Space, uniform: Array | None, points: Array) -> Array:
    """The nodes that a recipe on `space` works with: uniforms, normals, or the points."""
    if space == "native":
        return points
    if uniform is None:
        expected = "'native', because the law can only be sampled and has no uniforms behind it"
        advice = "Use nq.Transport for a simulator driven by uniforms or normals."
        raise InputError("space", repr(space), expected, advice)
    return np.asarray(ndtri(uniform)) if space == "normal" else uniform


@lru_cache(maxsize=256)
def _cached_rules(
    recipe: KernelQuadrature, data: bytes, shape: tuple[int, ...], sizes: tuple[int, ...]
) -> list[Rule]:
    return recipe.rules_by_set(np.frombuffer(data).reshape(1, *shape), sizes)[0]
