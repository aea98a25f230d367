"""The best settings of a machine, from few and expensive experiments.

A coating is baked: the oven's temperature and the time in it decide how hard it becomes. Too little
and it stays soft, too much and it burns, and the oven's time costs money. An experiment takes a
morning, and two plates fit into the oven, so two settings are tried at a time and chosen together,
with a look at what the next two could bring (`NestedLookaheadEI`). Put your own experiment in place
of `profit`: any function of one point that returns a number. Needs the extra `botorch`.

Run it with `python examples/black_box.py`.
"""

import math

import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize
from botorch.optim import optimize_acqf
from botorch.utils.sampling import draw_sobol_samples
from gpytorch.mlls import ExactMarginalLogLikelihood

from nestquad.botorch import NestedLookaheadEI

BOUNDS = torch.tensor([[120.0, 5.0], [220.0, 60.0]], dtype=torch.double)  # °C, minutes


def profit(setting):
    """The hardness of the coating, from 0 to 1, less what the oven costs."""
    temperature, minutes = setting
    # Twice as fast for 12 degrees more, both curing and burning; burning begins late.
    cured = 1.0 - math.exp(-minutes / 14.0 * 2.0 ** ((temperature - 165.0) / 12.0))
    burnt = 1.0 - math.exp(-((minutes / 55.0 * 2.0 ** ((temperature - 168.0) / 8.0)) ** 2))
    return cured * (1.0 - burnt) - minutes / 200.0


def observed(settings):
    """Profits (n, 1) of settings (n, 2)."""
    return torch.tensor([[profit(setting)] for setting in settings.tolist()], dtype=torch.double)


def next_settings(X, Y, seed):
    """Two settings that look best together, given what was observed."""
    noise = torch.full_like(Y, 1e-6)  # a deterministic experiment
    model = SingleTaskGP(X, Y, noise, input_transform=Normalize(2, bounds=BOUNDS))
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    look_ahead = NestedLookaheadEI(model, q=2, outer=8, inner=8, seed=seed, bounds=BOUNDS)
    start = look_ahead.initial_conditions(num_restarts=4, raw_samples=64)
    chosen, _ = optimize_acqf(
        look_ahead, BOUNDS, q=2, num_restarts=4, batch_initial_conditions=start
    )
    return chosen


if __name__ == "__main__":
    torch.manual_seed(0)
    X = draw_sobol_samples(BOUNDS, n=4, q=1, seed=0).squeeze(1)
    Y = observed(X)
    for morning in range(5):
        chosen = next_settings(X, Y, seed=morning)
        X, Y = torch.cat([X, chosen]), torch.cat([Y, observed(chosen)])
    temperature, minutes = X[Y.argmax()].tolist()
    print(f"profit {Y.max():.4f} at {temperature:.0f} °C for {minutes:.0f} minutes")
    print(f"found with {len(Y)} experiments")
