"""Information gain of a design

When should two blood samples be taken to learn how fast a drug is absorbed, distributed and
eliminated? The expected information gain says how much a design will
teach, before any data are there.
"""

# %%
# The experiment: beliefs, how data come about, and how likely they are.
import matplotlib.pyplot as plt
import numpy as np

import nestquad as nq
from nestquad import design
from nestquad.plots import style


def concentration(theta, times):
    ka, ke, volume = theta[..., :1], theta[..., 1:2], theta[..., 2:3]
    return 400 / volume * ka / (ka - ke) * (np.exp(-ke * times) - np.exp(-ka * times))


def log_prob(y, theta, times):
    residual = y - concentration(theta, times)
    return (-0.5 * residual**2 - 0.5 * np.log(2 * np.pi)).sum(axis=-1)


experiment = design.Experiment(
    prior=nq.LogNormal(np.log([1.0, 0.1, 20.0]), np.full(3, 0.22)),
    log_prob=log_prob,
    simulate=lambda theta, e, times: concentration(theta, times) + e,
    noise=nq.Normal(np.zeros(2)),
    name="two blood samples",
)

# %%
# The first sample after an hour; when the second? All designs see the same random numbers.
times = np.array([2.0, 4.0, 8.0, 12.0, 18.0, 24.0])
found = design.compare(experiment, [np.array([1.0, t]) for t in times], budget=6_000, rng=0)
print(found)

# %%
rng = np.random.default_rng(0)
fig, (left, right) = plt.subplots(1, 2, figsize=(8.6, 3.4), layout="constrained")
hours = np.linspace(0.05, 24, 200)
draws = experiment.prior.from_uniform(rng.random((30, 3)))
style(left).plot(hours, concentration(draws, hours).T, color="#0072B2", alpha=0.3, linewidth=0.8)
left.set_xlabel("hours")
left.set_title("concentration, as we believe now", loc="left", fontsize=10)
gains, errors = np.array([(e.value, 1.96 * e.std_error) for e in found.estimates]).T
style(right).errorbar(times, gains, errors, fmt="o-", color="#0072B2", capsize=3)
right.set_xlabel("hours of the second sample")
right.set_title("expected information gain, nats", loc="left", fontsize=10)
plt.show()
