"""A BoTorch sampler whose base samples have weights."""

from __future__ import annotations

from collections.abc import Mapping
from operator import index
from typing import Any

import torch
from botorch.posteriors import Posterior
from botorch.sampling.base import MCSampler
from botorch.sampling.normal import SobolQMCNormalSampler
from torch.quasirandom import SobolEngine

from nestquad.botorch._weights import KERNELS, NormalRule, normal_rule
from nestquad.errors import InputError, UnsupportedError, unknown_name
from nestquad.kernels import Kernel


class KQNormalSampler(SobolQMCNormalSampler):
    """Scrambled Sobol' base samples, and kernel quadrature weights for them.

    The base samples are those of BoTorch's `SobolQMCNormalSampler` for the same seed, so code that
    ignores weights gets plain quasi-Monte Carlo. What reads the weights is more accurate:
    `qMultiStepLookahead` does by itself, other acquisition functions after :func:`with_kq`, and
    `NestedLookaheadEI` is built on them.

    Parameters
    ----------
    sample_shape
        A `torch.Size`, or the number of samples.
    seed
        Of the scramble. None draws one, as BoTorch does.
    kernel
        ``"spline"`` for improvements and whatever else is continuous with kinks; ``"matern12"`` for
        what jumps; ``"matern32"``, or a kernel of `nestquad.kernels`, on the uniforms Φ(z).

    Attributes
    ----------
    base_samples
        Buffer of shape ``sample_shape × base shape of the posterior``; None before the first use.
    base_weights
        Buffer of shape ``sample_shape``, non-negative, summing to one; None before the first use.
    rule
        The `NormalRule` behind the weights; None before the first use.

    Notes
    -----
    The weights are made when a posterior of a new shape comes along, for the joint law of its q
    points and m outputs, in q × m dimensions. They do not depend on the posterior otherwise: one
    set serves all iterations. Cost: O(N³), 1 ms for 128 samples.

    Examples
    --------
    >>> import torch
    >>> from botorch.models import SingleTaskGP
    >>> from nestquad.botorch import KQNormalSampler
    >>> X = torch.linspace(0, 1, 5, dtype=torch.double).unsqueeze(-1)
    >>> model = SingleTaskGP(X, (6 * X).sin())
    >>> sampler = KQNormalSampler(16, seed=0)
    >>> samples = sampler(model.posterior(X[:2] + 0.1))
    >>> samples.shape, sampler.base_weights.shape
    (torch.Size([16, 2, 1]), torch.Size([16]))
    >>> sampler.rule.worst_case_error < sampler.rule.equal_weights_error
    True
    """

    def __init__(
        self,
        sample_shape: torch.Size | int,
        seed: int | None = None,
        kernel: str | Kernel = "spline",
    ) -> None:
        super().__init__(_checked_shape(sample_shape), seed=seed)
        if not isinstance(kernel, Kernel) and kernel not in KERNELS:
            raise unknown_name("kernel", kernel, KERNELS)
        self.kernel = kernel
        self.rule: NormalRule | None = None
        self.register_buffer("base_weights", None)

    def _construct_base_samples(self, posterior: Posterior) -> None:
        target = self._get_collapsed_shape(posterior=posterior)
        dim = target[len(self.sample_shape) :].numel()
        if dim > SobolEngine.MAXDIM:
            raise InputError(
                "posterior",
                f"{dim} base samples a draw (points × outputs)",
                f"at most {SobolEngine.MAXDIM}, the dimension of the Sobol' engine",
                "Use fewer points at once, or BoTorch's IIDNormalSampler.",
            )
        stale = self.base_samples is None or self.base_samples.shape != target
        super()._construct_base_samples(posterior=posterior)
        if stale or self.base_weights is None:
            self._weigh()

    def _weigh(self) -> None:
        nodes = self.base_samples.detach().cpu().double().reshape(self.sample_shape.numel(), -1)
        self.rule = normal_rule(nodes.numpy(), self.kernel)
        weights = torch.from_numpy(self.rule.weights.copy()).view(self.sample_shape)
        self.register_buffer("base_weights", weights.to(self.base_samples))

    def _update_base_samples(self, posterior: Posterior, base_sampler: MCSampler) -> None:
        raise UnsupportedError(
            "KQNormalSampler cannot take over base samples from another sampler, as acquisition "
            "functions with a cached root do: its weights belong to its own. "
            "Construct the acquisition function with cache_root=False."
        )

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *rest: Any) -> None:
        # Before the first use there is nothing to copy into, and torch would call it unexpected.
        for name in ("base_samples", "base_weights"):
            stored = state_dict.get(prefix + name)
            if stored is not None:
                self.register_buffer(name, torch.empty_like(stored))
        super()._load_from_state_dict(state_dict, prefix, *rest)


def _checked_shape(sample_shape: torch.Size | int) -> torch.Size:
    if not isinstance(sample_shape, torch.Size):
        try:
            sample_shape = torch.Size([index(sample_shape)])
        except TypeError:
            raise InputError(
                "sample_shape", repr(sample_shape), "a torch.Size, or a number of samples"
            ) from None
    if len(sample_shape) == 0 or sample_shape.numel() < 1:
        raise InputError("sample_shape", str(tuple(sample_shape)), "at least one sample")
    return sample_shape
