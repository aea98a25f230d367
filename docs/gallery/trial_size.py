"""How large should a trial be?

The number of patients at which a trial is worth the most: a larger one teaches more and costs more.
The expected value of sample information, for everybody
who will be treated, less the cost of the trial, has a maximum: the expected net benefit of
sampling.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import norm

import nestquad as nq
from nestquad import voi
from nestquad.plots import style

model = voi.Model(
    parameters={"effect": nq.Normal(1.0, 2.0), "cost": nq.Normal(0.5, 1.0)},
    net_benefit=lambda p: (0.0, p["effect"] - p["cost"]),
    options=("usual care", "new treatment"),
    name="trial or not",
)

# %%
# A trial measures the effect with a standard deviation of 6 for each participant.
sizes = [5, 10, 20, 40, 80, 160, 320]
value = model.evsi(voi.NormalTrial("effect", sd=6.0), sizes=sizes, n_runs=5_000, rng=0)
costed = voi.enbs(value, per_year=500, horizon=5, fixed_cost=150.0, cost_per_participant=2.0)
costed[["n", "evsi", "se", "enbs", "optimal"]].round(3)

# %%
# Everything here is normal, so that the exact curve is known as well.
n = np.geomspace(5, 320, 100)
sd = np.sqrt(4.0 * n / (n + 36.0 / 4.0))
exact = 0.5 * norm.cdf(0.5 / sd) + sd * norm.pdf(0.5 / sd) - 0.5
fig, (left, right) = plt.subplots(1, 2, figsize=(8.0, 3.2), layout="constrained")
for ax in (style(left), style(right)):
    ax.set_xscale("log")
    ax.set_xlabel("participants")
left.plot(n, exact, color="black", linewidth=1, linestyle=(0, (8, 3)))
left.errorbar(value.n, value.evsi, 1.96 * value.se, fmt="o", color="#0072B2", capsize=3)
left.set_title("EVSI for a person (dashed: exact)", loc="left", fontsize=10)
right.plot(costed.n, costed.enbs, "o-", color="#0072B2")
best = costed[costed.optimal].iloc[0]
right.plot(
    best.n, best.enbs, "o", markersize=14, fillstyle="none", color="#C97700", markeredgewidth=2
)
right.set_title(f"ENBS; best of these sizes: {best.n:.0f}", loc="left", fontsize=10)
plt.show()
