"""A g in PyTorch

How to use a model written in PyTorch or JAX as g. It gets arrays and returns what it likes. Here it is a small
neural network that stands for a reservoir, and the question is how often its mean yield is far
below normal.
"""

# %%
# Arguments are read-only arrays; `torch.tensor` copies them.
import matplotlib.pyplot as plt
import torch

import nestquad as nq

torch.manual_seed(0)
network = torch.nn.Sequential(
    torch.nn.Linear(3, 16),
    torch.nn.Tanh(),
    torch.nn.Linear(16, 16),
    torch.nn.Tanh(),
    torch.nn.Linear(16, 1),
).double()


@torch.no_grad()
def yields(x, theta):
    x, theta = torch.tensor(x), torch.tensor(theta)
    shape = torch.broadcast_shapes(x.shape[:-1], theta.shape[:-1])
    inputs = torch.cat([x.expand(*shape, 2), theta.expand(*shape, 1)], dim=-1)
    return network(inputs)[..., 0]


problem = nq.NestedExpectation(
    outer=nq.Normal(0.0, 1.5),  # the permeability of the rock
    inner=nq.Normal([0.0, 0.0], 1.0),  # weather and demand of a year
    g=yields,
    f=lambda j: (j < -0.2) * 1.0,
    name="reservoir",
)
est = nq.estimate(problem, budget=2_000, rng=0)
est

# %%
# The jump of f is no obstacle: J is learned, and the network is smooth.
est.plot()
plt.show()
