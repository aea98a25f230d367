"""Look-ahead Bayesian optimization

Experiments two at a time, chosen with a look at what the next two could bring. A coating is baked;
temperature and time decide how hard it becomes, and an experiment takes a morning. Two plates fit into the oven, so two settings are chosen together, with a look at what the
next two could bring: a nested expectation, by kernel quadrature on the samples of BoTorch.
"""

# %%
# Put your own experiment in place of `profit`.
import math

import matplotlib.pyplot as plt
import numpy as np
import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize
from botorch.optim import optimize_acqf
from botorch.utils.sampling import draw_sobol_samples
from gpytorch.mlls import ExactMarginalLogLikelihood

from nestquad.botorch import NestedLookaheadEI
from nestquad.plots import style

BOUNDS = torch.tensor([[120.0, 5.0], [220.0, 60.0]], dtype=torch.double)  # °C, minutes


def profit(setting):
    """The hardness of the coating, from 0 to 1, less what the oven costs."""
    temperature, minutes = setting
    cured = 1.0 - math.exp(-minutes / 14.0 * 2.0 ** ((temperature - 165.0) / 12.0))
    burnt = 1.0 - math.exp(-((minutes / 55.0 * 2.0 ** ((temperature - 168.0) / 8.0)) ** 2))
    return cured * (1.0 - burnt) - minutes / 200.0


# %%
# Four settings to begin with, then four mornings of two.
def next_settings(X, Y, seed):
    noise = torch.full_like(Y, 1e-6)
    model = SingleTaskGP(X, Y, noise, input_transform=Normalize(2, bounds=BOUNDS))
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    ahead = NestedLookaheadEI(model, q=2, outer=8, inner=8, seed=seed, bounds=BOUNDS)
    start = ahead.initial_conditions(num_restarts=2, raw_samples=32)
    return optimize_acqf(ahead, BOUNDS, q=2, num_restarts=2, batch_initial_conditions=start)[0]


def observed(settings):
    return torch.tensor([[profit(one)] for one in settings.tolist()], dtype=torch.double)


torch.manual_seed(0)
X = draw_sobol_samples(BOUNDS, n=4, q=1, seed=0).squeeze(1)
Y = observed(X)
for morning in range(4):
    chosen = next_settings(X, Y, seed=morning)
    X, Y = torch.cat([X, chosen]), torch.cat([Y, observed(chosen)])
    print(f"morning {morning + 1}: best profit so far {Y.max():.3f}")

# %%
# Numbers are mornings. The ridge of good settings is narrow and bent.
temperature, minutes = np.meshgrid(np.linspace(120, 220, 80), np.linspace(5, 60, 80))
surface = [profit(one) for one in zip(temperature.ravel(), minutes.ravel())]
fig, ax = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
style(ax)
levels = np.linspace(-0.3, 0.9, 13)
filled = ax.contourf(
    temperature,
    minutes,
    np.reshape(surface, temperature.shape),
    levels,
    cmap="Blues",
    extend="both",
)
fig.colorbar(filled, label="profit")
for k, (x, y) in enumerate(X.tolist()):
    morning = max(0, (k - 2) // 2)
    ax.plot(x, y, "o", markersize=14, color="white", markeredgecolor="#222222")
    ax.text(x, y, morning, ha="center", va="center", fontsize=9)
ax.set_xlabel("temperature, °C")
ax.set_ylabel("minutes")
ax.set_title(
    f"12 experiments, best {Y.max():.3f}; the true best is {max(surface):.3f}",
    loc="left",
    fontsize=10,
)
plt.show()
