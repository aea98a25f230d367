"""A kernel of your own

Kernel quadrature is as good as its kernel knows the integrand. A seasonal model has a period, and
a kernel that has it too needs few points. Two things make a kernel usable: its values, and its
integral under the uniform law.
"""

# %%
# `nq.Matern` is what nestquad would take. `PeriodicSobolev` knows that the end of a year is the
# beginning of the next; the sum lets a trend through as well.
import matplotlib.pyplot as plt
import numpy as np

import nestquad as nq
from nestquad.plots import style
from nestquad.rules import kernel_rule

kernels = {
    "Matérn 5/2": nq.Matern(2.5, lengthscale=0.5),
    "periodic": nq.PeriodicSobolev(3, lengthscale=0.5),
    "periodic + 0.1 Matérn": nq.PeriodicSobolev(3, lengthscale=0.5) + 0.1 * nq.Matern(2.5),
}


def season(t):
    return np.exp(np.sin(2 * np.pi * t)) + np.cos(4 * np.pi * t)


exact = np.i0(1.0)

# %%
# Weights follow from the kernel; what changes is how fast the error falls.
fig, (left, right) = plt.subplots(1, 2, figsize=(8.4, 3.4), layout="constrained")
sizes = [6, 8, 12, 16, 24, 32, 48]
for (name, kernel), color in zip(kernels.items(), ("#C97700", "#0072B2", "#00805D")):
    errors = []
    for n in sizes:
        nodes = np.random.default_rng(0).random((n, 1))
        rule = kernel_rule(kernel, nq.Uniform(), nodes)
        errors.append(abs(rule.integrate(season(nodes[:, 0])) - exact))
    left.loglog(sizes, errors, "o-", color=color, label=name)
    print(
        f"{name:22} 48 random nodes: error {errors[-1]:.1e}, sum of |weights| {rule.sum_abs_weights:.2f}"
    )
style(left).legend(frameon=False, fontsize=9)
left.set_xlabel("nodes")
left.set_ylabel("error of the integral")
t = np.linspace(0, 1, 400)
style(right).plot(t, season(t), color="#222222")
right.set_title("the season", loc="left", fontsize=10)
plt.show()

# %%
# In a nested expectation the kernel goes into the recipe. A kernel class of your own takes one
# file: [Add a kernel](../how-to/add-a-kernel.md).
problem = nq.NestedExpectation(
    outer=nq.Uniform(0.5, 1.5),
    inner=nq.Uniform(),
    g=lambda x, theta: np.exp(theta[..., 0] * np.sin(2 * np.pi * x[..., 0])),
    f=np.log,
    name="seasonal",
)
for name, kernel in kernels.items():
    recipe = nq.KernelQuadrature(kernel, space="uniform", lengthscale="fixed")
    print(f"{name:22} {nq.estimate(problem, method=nq.NKQ(32, 12, inner=recipe), rng=0).summary}")
