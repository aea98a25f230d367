"""A kernel of your own

The kernel of Brownian motion, min(s, t), in a few lines; it makes the trapezoidal rule optimal. Its
paths are continuous and no more, and between two known values the best guess is a straight line. A
kernel takes a few lines: its values, and its integrals under a law.
"""

# %%
# The kernel on one coordinate. Products over coordinates, ANOVA and equality come from the
# base class.
from dataclasses import dataclass

import matplotlib.pyplot as plt
import numpy as np

import nestquad as nq
from nestquad.embeddings import ClosedForm, register
from nestquad.kernels import ProductKernel
from nestquad.plots import style
from nestquad.rules import kernel_rule


@dataclass(frozen=True, eq=False)
class Brownian(ProductKernel):
    """1 + min(s, t) / ℓ on the unit interval: Brownian motion from a random start."""

    lengthscale: float = 1.0

    def smoothness(self, dim):
        return 0.5 + 0.5 * dim

    def univariate(self, x, y):
        return 1.0 + np.minimum(x[..., :, None], y[..., None, :]) / self.scale(2)


register(
    Brownian,
    nq.Uniform,  # of the unit interval: ∫ min(s, t) dt = s - s²/2, and the mean of that is 1/3
    ClosedForm(
        mean=lambda kernel, law, x: 1.0 + (x - x**2 / 2) / kernel.scale(1),
        double=lambda kernel, law: 1.0 + np.asarray(1 / 3) / kernel.scale(0),
    ),
)

# %%
# Its weights at random nodes, beside those of the trapezoidal rule with flat ends.
nodes = np.sort(np.random.default_rng(2).random((12, 1)), axis=0)
rule = kernel_rule(Brownian(1.0), nq.Uniform(), nodes)
t = nodes[:, 0]
middle = np.concatenate(([0.0], (t[1:] + t[:-1]) / 2, [1.0]))
print("largest difference:", f"{np.abs(rule.weights - np.diff(middle)).max():.1e}")

# %%
# A smoother kernel has other weights, which are better for a smooth integrand.
smooth = kernel_rule(nq.Matern(2.5, 0.5), nq.Uniform(), nodes)


def value(t):
    return np.exp(np.sin(6.0 * t))


fine = np.linspace(0, 1, 20_001)
exact = value(fine).mean()
fig, (left, right) = plt.subplots(1, 2, figsize=(8.4, 3.3), layout="constrained")
for ax, r, name, color in (
    (left, rule, "Brownian motion", "#C97700"),
    (right, smooth, "Matérn 5/2", "#0072B2"),
):
    style(ax).plot(fine, value(fine), color="#6B6B6B", linewidth=1)
    ax.scatter(t, value(t), 700 * np.abs(r.weights), color=color, edgecolors="white", zorder=3)
    ax.set_title(f"{name}: error {abs(r.integrate(value(t)) - exact):.1e}", loc="left", fontsize=10)
    ax.set_xlabel("t (area: weight)")
plt.show()

# %%
# In a nested expectation the kernel goes into the recipe of a stage.
recipe = nq.KernelQuadrature(Brownian(1.0), space="uniform", lengthscale="fixed")
problem = nq.problems.finance()
est = nq.estimate(problem, budget=4_096, method=nq.NKQ(inner=recipe), rng=0)
print(f"{est}, exact value {problem.exact:.4f}")

# %%
# To make it part of the library: [Add a kernel](../how-to/add-a-kernel.md).
