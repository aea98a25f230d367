"""Small Gaussian processes with known hyperparameters."""

from __future__ import annotations

import torch
from botorch.models import SingleTaskGP
from gpytorch.kernels import MaternKernel


def tensor(values):
    return torch.as_tensor(values, dtype=torch.double)


def small_model(dim=1, n=5, outputs=1, seed=0, lengthscale=0.3, noise=1e-6, transform=False):
    """A GP of `n` points in the unit cube; in units of the data, unless `transform`."""
    generator = torch.Generator().manual_seed(seed)
    X = torch.rand(n, dim, generator=generator, dtype=torch.double)
    Y = torch.stack([(4 * X + k).sin().sum(dim=-1) for k in range(outputs)], dim=-1)
    Y = Y + (10.0 if transform else 0.0)
    kernel = MaternKernel(nu=2.5, ard_num_dims=dim)
    options = {} if transform else {"outcome_transform": None}
    model = SingleTaskGP(X, Y, torch.full_like(Y, noise), covar_module=kernel, **options)
    model.covar_module.lengthscale = lengthscale
    return model.eval()


def batches(*shape, seed=1):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.double)
