"""Max-value entropy search whose average over maxima has kernel quadrature weights."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from botorch.acquisition.acquisition import AcquisitionFunction
from botorch.models.model import Model
from botorch.utils.transforms import average_over_ensemble_models, t_batch_mode_transform
from scipy.special import ndtri
from torch import Tensor

from nestquad._checks import whole
from nestquad.botorch._weights import KERNELS, NormalRule, normal_rule
from nestquad.errors import InputError, UnsupportedError, unknown_name
from nestquad.kernels import Kernel

__all__ = ["KQMaxValueEntropy"]


class KQMaxValueEntropy(AcquisitionFunction):  # type: ignore[misc, unused-ignore]
    """Mutual information of f at a point and the maximum f*, in nats.

    Max-value entropy search of Wang and Jegelka (2017), equation 6, for one point at a time:
    the average over f* of γ φ(γ) / (2 Φ(γ)) − log Φ(γ) with γ = (f* − μ(z)) / σ(z). BoTorch
    averages over a few random draws of f*. Here f* = F⁻¹(u) at fixed u with kernel quadrature
    weights, where F(y) = Π Φ((y − μ_i) / σ_i) over the candidates, as in section 3.1 there.

    Parameters
    ----------
    model
        A fitted single-output model of BoTorch.
    candidate_set
        Points (M, d) over which the maximum is taken, such as a Sobol' sample of the domain.
    num_values
        Number N of values of f*.
    maximize
        Whether the maximum of f is sought; False for the minimum.
    kernel
        As in `KQNormalSampler`: on the normal scores of u.

    Attributes
    ----------
    values, weights
        Values of f* and their weights, (N,); the weights sum to one.
    rule
        The `NormalRule` behind the weights.

    Notes
    -----
    Information about f at z is measured, not about a noisy observation of it; with noise the two
    rank points alike where noise is small compared with σ(z).

    Cost: O(M N) once, O(N) for each point.

    Examples
    --------
    >>> import torch
    >>> from botorch.models import SingleTaskGP
    >>> from nestquad.botorch import KQMaxValueEntropy
    >>> X = torch.linspace(0, 1, 5, dtype=torch.double).unsqueeze(-1)
    >>> model = SingleTaskGP(X, (6 * X).sin())
    >>> acqf = KQMaxValueEntropy(model, torch.rand(200, 1, dtype=torch.double), num_values=16)
    >>> bool((acqf(torch.tensor([[[0.3]], [[0.9]]], dtype=torch.double)) >= 0).all())
    True
    """

    def __init__(
        self,
        model: Model,
        candidate_set: Tensor,
        num_values: int = 16,
        maximize: bool = True,
        kernel: str | Kernel = "spline",
    ) -> None:
        super().__init__(model=model)
        if getattr(model, "num_outputs", 1) != 1:
            raise UnsupportedError("KQMaxValueEntropy needs a model with one output.")
        if candidate_set.ndim != 2 or 0 in candidate_set.shape:
            shape = tuple(candidate_set.shape)
            raise InputError("candidate_set", f"shape {shape}", "points (M, d), M ≥ 1")
        whole("num_values", num_values, "a whole number of at least 2", least=2, below=np.inf)
        if not isinstance(kernel, Kernel) and kernel not in KERNELS:
            raise unknown_name("kernel", kernel, KERNELS)
        self.sign = 1.0 if maximize else -1.0
        uniforms = (np.arange(num_values) + 0.5) / num_values
        self.rule: NormalRule = normal_rule(ndtri(uniforms)[:, None], kernel)
        with torch.no_grad():
            mean, sd = self._moments(candidate_set.unsqueeze(-2))
            levels = torch.as_tensor(uniforms, dtype=mean.dtype, device=mean.device)
            values = _quantiles_of_maximum(mean, sd, levels)
        self.register_buffer("values", values)
        self.register_buffer("weights", torch.as_tensor(self.rule.weights.copy()).to(values))

    @t_batch_mode_transform(expected_q=1)  # type: ignore[misc, unused-ignore]
    @average_over_ensemble_models  # type: ignore[misc, unused-ignore]
    def forward(self, X: Tensor) -> Tensor:
        """Information at points X (batch, 1, d): (batch,)."""
        mean, sd = self._moments(X)
        gamma = (self.values - mean.unsqueeze(-1)) / sd.unsqueeze(-1)
        log_cdf = torch.special.log_ndtr(gamma)
        log_density = -0.5 * gamma.square() - 0.5 * math.log(2 * math.pi)
        gain = 0.5 * gamma * torch.exp(log_density - log_cdf) - log_cdf
        return (gain * self.weights).sum(dim=-1)

    def _moments(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Posterior mean and standard deviation of ±f at points (…, 1, d): (…)."""
        posterior: Any = self.model.posterior(X)
        mean = self.sign * posterior.mean.squeeze(-1).squeeze(-1)
        sd = posterior.variance.squeeze(-1).squeeze(-1).clamp_min(1e-18).sqrt()
        return mean, sd


def _quantiles_of_maximum(mean: Tensor, sd: Tensor, levels: Tensor) -> Tensor:
    """F⁻¹ at levels (N,) for F(y) = Π Φ((y − μ_i) / σ_i), by 60 steps of bisection in log F."""
    count = len(levels)
    low = (mean - 8.0 * sd).max().expand(count).clone()
    high = (mean + 8.0 * sd).max().expand(count).clone()
    target = levels.log()
    for _ in range(60):
        middle = (low + high) / 2
        below = torch.special.log_ndtr((middle[:, None] - mean) / sd).sum(dim=-1) < target
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    return (low + high) / 2
