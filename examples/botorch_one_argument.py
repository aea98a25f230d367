"""A BoTorch script, with kernel quadrature by changing one argument.

The expected improvement of a single point has a closed form, so it can be told how far each average
over samples is from it. Needs the extra `botorch`.
"""

import torch
from botorch.acquisition import LogExpectedImprovement, qLogExpectedImprovement
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf
from botorch.sampling import SobolQMCNormalSampler

from nestquad.botorch import KQNormalSampler, with_kq


def objective(X):
    """What is to be maximized, on the unit square."""
    return torch.sin(5 * X[:, :1]) * torch.cos(4 * X[:, 1:])


torch.manual_seed(0)
X = torch.rand(10, 2, dtype=torch.double)
Y = objective(X)
model = SingleTaskGP(X, Y)
bounds = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.double)

if __name__ == "__main__":
    exact = LogExpectedImprovement(model, best_f=Y.max())
    places = torch.rand(50, 1, 2, dtype=torch.double)
    for samples in (16, 32, 64, 128):
        plain, weighted = [], []
        for seed in range(20):
            sobol = SobolQMCNormalSampler(torch.Size([samples]), seed=seed)
            ours = KQNormalSampler(torch.Size([samples]), seed=seed)
            one = qLogExpectedImprovement(model, Y.max(), sampler=sobol)
            other = with_kq(qLogExpectedImprovement(model, Y.max()), ours)
            with torch.no_grad():
                truth = exact(places).exp()
                plain.append((one(places).exp() - truth).abs().mean())
                weighted.append((other(places).exp() - truth).abs().mean())
        print(
            f"{samples:4d} samples: mean error {torch.stack(plain).mean():.6f} with Sobol' nodes, "
            f"{torch.stack(weighted).mean():.6f} with weights"
        )
    acqf = with_kq(qLogExpectedImprovement(model, Y.max()), 128)
    candidates, value = optimize_acqf(acqf, bounds, q=2, num_restarts=4, raw_samples=64)
    for point in candidates:
        print("next: ({:.3f}, {:.3f})".format(*point.tolist()))
