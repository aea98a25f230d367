"""EVPPI from a model

The value of a study of two response rates, from a model with 19 parameters, to a requested accuracy.
A model that can be run offers more than a table of its draws: parameters can be drawn *given*
others, as often as needed. This is the paper's health problem, where
four parameters are correlated, and its exact answer is known.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np

import nestquad as nq
from nestquad import voi
from nestquad.plots import style

laws = {
    "x1": (1000.0, 1.0), "x2": (0.1, 0.02), "x3": (5.2, 1.0), "x4": (400.0, 200.0),
    "x5": (0.3, 0.1), "x6": (3.0, 0.5), "x7": (0.25, 0.1), "x8": (-0.1, 0.02),
    "x9": (0.5, 0.2), "x10": (1500.0, 1.0), "x11": (0.08, 0.02), "x12": (6.1, 1.0),
    "x13": (0.3, 0.05), "x14": (3.0, 1.0), "x15": (0.2, 0.05), "x16": (-0.1, 0.02),
    "x17": (0.5, 0.2), "theta1": (0.7, 0.1), "theta2": (0.8, 0.1),
}  # fmt: skip


def benefits(p):
    years_1 = p["theta1"] * p["x5"] * p["x6"] + p["x7"] * p["x8"] * p["x9"]
    years_2 = p["theta2"] * p["x13"] * p["x14"] + p["x15"] * p["x16"] * p["x17"]
    cost_1 = p["x1"] + p["x2"] * p["x3"] * p["x4"]
    cost_2 = p["x10"] + p["x11"] * p["x12"] * p["x4"]
    return 10_000 * years_1 - cost_1, 10_000 * years_2 - cost_2


model = voi.Model(
    {name: nq.Normal(mean, sd) for name, (mean, sd) in laws.items()},
    benefits,
    correlations={("theta1", "theta2", "x6", "x14"): 0.6},
    name="two treatments",
)

# %%
# What would a study of the two response rates be worth, to within 1?
est = model.evppi(["theta1", "theta2"], tol=1.0, method="joint", rng=0)
print(f"exact {nq.problems.health().exact:.3f}")
est

# %%
# Which parameters matter? Each group is a nested expectation of its own.
groups = [["x5"], ["x6", "x14"], ["x13"], ["theta1", "theta2"], ["x4"]]
found = [model.evppi(group, budget=2_000, method="joint", rng=0) for group in groups]
fig, ax = plt.subplots(figsize=(6.4, 3.0), layout="constrained")
style(ax)
names = [" + ".join(group) for group in groups]
values = np.maximum([float(one.value) for one in found], 0.0)
low, high = np.array([one.interval() for one in found]).T
bars = [values - np.maximum(low, 0.0), high - values]  # information is never worth less than zero
ax.barh(names, values, xerr=bars, color="#0072B2", height=0.6, capsize=3)
ax.invert_yaxis()
ax.grid(False, axis="y")
ax.set_title("EVPPI, with 95 % bars", loc="left", fontsize=10)
plt.show()
print(f"{sum(one.n_evaluations for one in found):,} runs of the model in all")
