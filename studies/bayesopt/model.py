"""The Gaussian process of the loop: its kernel by name, and a fit that always comes back."""

from __future__ import annotations

import math
import warnings
from typing import Any

import torch
from botorch.exceptions.errors import ModelFittingError
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from gpytorch.constraints import GreaterThan
from gpytorch.kernels import MaternKernel, RBFKernel
from gpytorch.means import ConstantMean, ZeroMean
from gpytorch.mlls import ExactMarginalLogLikelihood
from gpytorch.priors import LogNormalPrior
from linear_operator.utils.errors import NanError, NotPSDError

from nestquad import NumericalError
from nestquad.errors import unknown_name

KERNELS = {"matern12": 0.5, "matern32": 1.5, "matern52": 2.5, "rbf": math.inf}
MEANS = {"constant": ConstantMean, "zero": ZeroMean}
# What linear algebra raises where a matrix is too close to singular. Anything else is a mistake
# that has to be seen.
NUMERICAL = (ModelFittingError, NanError, NotPSDError, NumericalError, torch.linalg.LinAlgError)
# Where no noise is wanted, this share of the variance keeps the matrix away from singular.
_JITTER = 1e-6


def check_names(kernel: str, mean: str) -> None:
    """Refuse a kernel or a mean that is not known."""
    if kernel not in KERNELS:
        raise unknown_name("kernel", kernel, KERNELS)
    if mean not in MEANS:
        raise unknown_name("mean", mean, MEANS)


def fit(
    x: torch.Tensor, y: torch.Tensor, kernel: str, mean: str, noise: float | None
) -> tuple[SingleTaskGP, str]:
    """A Gaussian process fitted to points of the unit cube, x (n, d) and y (n, 1) standardised.

    `noise` is the standard deviation of what is random in y, on the scale of y; None: learned.
    Lengthscales, one for each coordinate, have BoTorch's prior that grows with d. Where the fit
    fails, the parameters are those of the prior, and the second thing that is returned says so.
    """
    variance = None if noise is None else torch.full_like(y, max(noise**2, _JITTER))
    model = SingleTaskGP(
        x,
        y,
        variance,
        covar_module=_covariance(kernel, x.shape[1]),
        mean_module=MEANS[mean](),
        outcome_transform=None,
    )
    start = {name: value.clone() for name, value in model.state_dict().items()}
    try:
        # BoTorch tries again where the first try warns, and warns only when all have failed.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    except NUMERICAL as error:
        model.load_state_dict(start)
        model.eval()
        return model, f"fit failed ({type(error).__name__}): parameters of the prior"
    return model, ""


def _covariance(kernel: str, dim: int) -> Any:
    prior = LogNormalPrior(math.sqrt(2.0) + 0.5 * math.log(dim), math.sqrt(3.0))
    how: dict[str, Any] = {
        "ard_num_dims": dim,
        "lengthscale_prior": prior,
        "lengthscale_constraint": GreaterThan(2.5e-2, transform=None, initial_value=prior.mode),
    }
    nu = KERNELS[kernel]
    return RBFKernel(**how) if math.isinf(nu) else MaternKernel(nu=nu, **how)
