"""A BoTorch sampler whose base samples have weights, and acquisition functions that read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from botorch.acquisition.acquisition import AcquisitionFunction
from botorch.acquisition.cached_cholesky import CachedCholeskyMCSamplerMixin
from botorch.acquisition.knowledge_gradient import (
    qKnowledgeGradient,
    qMultiFidelityKnowledgeGradient,
)
from botorch.acquisition.logei import (
    qLogExpectedImprovement,
    qLogNoisyExpectedImprovement,
    qLogProbabilityOfFeasibility,
)
from botorch.acquisition.monte_carlo import (
    SampleReducingMCAcquisitionFunction,
    qExpectedImprovement,
    qNoisyExpectedImprovement,
    qPosteriorStandardDeviation,
    qProbabilityOfImprovement,
    qSimpleRegret,
    qUpperConfidenceBound,
)
from botorch.acquisition.multi_step_lookahead import qMultiStepLookahead
from botorch.acquisition.objective import MCAcquisitionObjective
from botorch.posteriors import Posterior
from botorch.sampling.base import MCSampler
from botorch.sampling.normal import SobolQMCNormalSampler
from botorch.utils.transforms import is_ensemble
from torch import Tensor
from torch.quasirandom import SobolEngine

from nestquad._checks import whole
from nestquad.botorch._weights import KERNELS, NormalRule, normal_rule
from nestquad.errors import InputError, UnsupportedError, unknown_name
from nestquad.kernels import Kernel


class KQNormalSampler(SobolQMCNormalSampler):
    """Scrambled Sobol' base samples, and kernel quadrature weights for them.

    The base samples are equal to BoTorch's `SobolQMCNormalSampler` for the same seed, so code that
    ignores weights gets plain quasi-Monte Carlo. `qMultiStepLookahead` reads the weights, other
    acquisition functions do after :func:`with_kq`, and `NestedLookaheadEI` is built on them.

    Parameters
    ----------
    sample_shape
        A `torch.Size`, or the number of samples.
    seed
        Of the scramble. None draws one, as BoTorch does.
    kernel
        ``"spline"`` for improvements and other continuous functions with kinks; ``"matern12"`` for
        jumps; ``"matern32"``, or a kernel of `nestquad.kernels`, on the uniforms Φ(z).

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
        # Before the first use there are no buffers, and torch would report unexpected keys.
        for name in ("base_samples", "base_weights"):
            stored = state_dict.get(prefix + name)
            if stored is not None:
                self.register_buffer(name, torch.empty_like(stored))
        super()._load_from_state_dict(state_dict, prefix, *rest)


def _checked_shape(sample_shape: torch.Size | int) -> torch.Size:
    if not isinstance(sample_shape, torch.Size):
        expected = "a torch.Size, or a number of samples"
        sample_shape = torch.Size([whole("sample_shape", sample_shape, expected)])
    if len(sample_shape) == 0 or sample_shape.numel() < 1:
        raise InputError("sample_shape", str(tuple(sample_shape)), "at least one sample")
    return sample_shape


# Averages over samples once, at the end, in `_sample_reduction`.
_REDUCED_ONCE = (
    qExpectedImprovement,
    qLogExpectedImprovement,
    qLogNoisyExpectedImprovement,
    qLogProbabilityOfFeasibility,
    qNoisyExpectedImprovement,
    qProbabilityOfImprovement,
    qSimpleRegret,
)
# Deviations from a mean over samples, which has to be weighted as well.
_ABOUT_A_MEAN = (qPosteriorStandardDeviation, qUpperConfidenceBound)
# Utilities that jump: weights for kinked ones would not help there.
_JUMPS = (qLogProbabilityOfFeasibility, qProbabilityOfImprovement)


def with_kq(
    acqf: AcquisitionFunction, sampler: KQNormalSampler | int | None = None
) -> AcquisitionFunction:
    """Give a Monte Carlo acquisition function kernel quadrature weights.

    Parameters
    ----------
    acqf
        One of BoTorch's qExpectedImprovement, qLogExpectedImprovement, qProbabilityOfImprovement,
        qUpperConfidenceBound, qLowerConfidenceBound, qSimpleRegret, qPosteriorStandardDeviation,
        qLogProbabilityOfFeasibility, qKnowledgeGradient, or, constructed with
        ``cache_root=False``, qNoisyExpectedImprovement and qLogNoisyExpectedImprovement. All else
        is refused, by name, rather than left without weights.
    sampler
        A `KQNormalSampler`, a number of samples, or None for the number and seed of `acqf`,
        and the kernel that suits it: ``"matern12"`` for probabilities, ``"spline"`` otherwise.

    Returns
    -------
    AcquisitionFunction
        `acqf` itself, changed; for qKnowledgeGradient one like it.

    Examples
    --------
    >>> import torch
    >>> from botorch.acquisition import qLogExpectedImprovement
    >>> from botorch.models import SingleTaskGP
    >>> from nestquad.botorch import with_kq
    >>> X = torch.linspace(0, 1, 5, dtype=torch.double).unsqueeze(-1)
    >>> Y = (6 * X).sin()
    >>> acqf = with_kq(qLogExpectedImprovement(SingleTaskGP(X, Y), Y.max()), 32)
    >>> acqf(X[:2] + 0.1).shape
    torch.Size([1])
    """
    _refuse(acqf)
    sampler = _sampler_for(acqf, sampler)
    if isinstance(acqf, qKnowledgeGradient):
        return _WeightedKnowledgeGradient(acqf, sampler)
    acqf.sampler = sampler
    reduction = _WeightedReduction(sampler, log=acqf._log)
    acqf._sample_reduction = reduction
    if isinstance(acqf, qUpperConfidenceBound):
        acqf._sample_forward = _Deviation(reduction, acqf.beta_prime, around_mean=True)
    elif isinstance(acqf, qPosteriorStandardDeviation):
        acqf._sample_forward = _Deviation(reduction, acqf._scale, around_mean=False)
    return acqf


def _refuse(acqf: AcquisitionFunction) -> None:
    name = type(acqf).__name__
    if not isinstance(acqf, AcquisitionFunction):
        raise InputError("acqf", name, "an acquisition function of BoTorch")
    if isinstance(acqf, CachedCholeskyMCSamplerMixin) and acqf._cache_root:
        raise UnsupportedError(
            f"{name} with a cached root replaces base samples after their weights were made. "
            "Construct it with cache_root=False."
        )
    known = (*_REDUCED_ONCE, *_ABOUT_A_MEAN, qKnowledgeGradient)
    if not isinstance(acqf, known) or isinstance(acqf, qMultiFidelityKnowledgeGradient):
        raise UnsupportedError(
            f"{name} cannot be given weights: it has a closed form, or averages over samples "
            "inside. For qMultiStepLookahead pass samplers=[KQNormalSampler(…), …] to it."
        )
    if not isinstance(acqf, qKnowledgeGradient) and (
        type(acqf).forward is not SampleReducingMCAcquisitionFunction.forward
    ):
        raise UnsupportedError(f"{name} has a forward of its own, which may ignore weights.")
    if is_ensemble(acqf.model):
        raise UnsupportedError(
            f"{name} of an ensemble of models averages over its members together with the samples; "
            "weights are for single models."
        )


def _sampler_for(
    acqf: AcquisitionFunction, sampler: KQNormalSampler | int | None
) -> KQNormalSampler:
    if isinstance(sampler, KQNormalSampler):
        return sampler
    if sampler is None and isinstance(acqf.sampler, KQNormalSampler):
        return acqf.sampler
    shape = acqf.sample_shape if sampler is None else sampler
    kernel = "matern12" if isinstance(acqf, _JUMPS) else "spline"
    return KQNormalSampler(shape, seed=getattr(acqf.sampler, "seed", None), kernel=kernel)


class _WeightedReduction:
    """Σ w v over the sample dimensions, or log Σ w exp(v): replaces `torch.mean` and logmeanexp.

    The weights are read when they are needed, since they are made at the first forward, and again
    for every new number of points.
    """

    def __init__(self, sampler: KQNormalSampler, log: bool) -> None:
        self.sampler, self.log = sampler, log

    def __call__(self, values: Tensor) -> Tensor:
        if not self.log:
            return self.mean(values)
        weights, flat = self._flat(values)
        # log 0 = -inf leaves a zero weight out, without a gradient that is not a number.
        return torch.logsumexp(flat + weights.log(), dim=0)

    def mean(self, values: Tensor) -> Tensor:
        weights, flat = self._flat(values)
        return (weights * flat).sum(dim=0)

    def _flat(self, values: Tensor) -> tuple[Tensor, Tensor]:
        weights = self.sampler.base_weights.to(values).reshape(-1)
        flat = values.flatten(end_dim=len(self.sampler.sample_shape) - 1)
        return weights.view(-1, *(1 for _ in flat.shape[1:])), flat


class _Deviation:
    """The mean plus `scale` times the absolute deviation from it, or the latter alone."""

    def __init__(self, reduction: _WeightedReduction, scale: float, around_mean: bool) -> None:
        self.reduction, self.scale, self.around_mean = reduction, scale, around_mean

    def __call__(self, obj: Tensor) -> Tensor:
        mean = self.reduction.mean(obj)
        deviation = self.scale * (obj - mean).abs()
        return mean + deviation if self.around_mean else deviation


class _WeightedKnowledgeGradient(qKnowledgeGradient):
    """The knowledge gradient by its multi-step form, which weighs fantasies.

    It remains a qKnowledgeGradient, so that `optimize_acqf` starts it from good points.
    """

    def __init__(self, acqf: qKnowledgeGradient, sampler: KQNormalSampler) -> None:
        super().__init__(
            model=acqf.model,
            num_fantasies=None,
            sampler=sampler,
            objective=acqf.objective,
            posterior_transform=acqf.posterior_transform,
            inner_sampler=acqf.inner_sampler,
            X_pending=acqf.X_pending,
            current_value=acqf.current_value,
        )
        if isinstance(acqf.objective, MCAcquisitionObjective):
            raise UnsupportedError(
                "qKnowledgeGradient with an objective averages it over inner samples without "
                "weights. Use a posterior_transform, or no objective."
            )
        self._tree = qMultiStepLookahead(
            model=acqf.model,
            batch_sizes=[1],
            samplers=[sampler],
            posterior_transform=acqf.posterior_transform,
            X_pending=acqf.X_pending,
        )

    def forward(self, X: Tensor) -> Tensor:
        value = self._tree(X)
        return value if self.current_value is None else value - self.current_value

    def set_X_pending(self, X_pending: Tensor | None = None) -> None:
        super().set_X_pending(X_pending)
        if hasattr(self, "_tree"):
            self._tree.set_X_pending(X_pending)

    def evaluate(self, X: Tensor, bounds: Tensor, **kwargs: Any) -> Tensor:
        raise UnsupportedError(
            "qKnowledgeGradient.evaluate averages over fantasies without weights. Optimize the "
            "acquisition function itself, or evaluate the one it was made from."
        )
