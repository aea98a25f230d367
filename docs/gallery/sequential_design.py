"""One experiment after the other

Sensors placed one after the other, to find the source of a leak with few of them. Sensors can be placed one at a time, each where it will teach the
most given what the others have seen. The posterior is a cloud of particles that contracts around
the source.
"""

# %%
# The signal falls with the distance, and is measured with noise.
import matplotlib.pyplot as plt
import numpy as np

import nestquad as nq
from nestquad import design
from nestquad.plots import style

NOISE = 0.4


def signal(theta, place):
    return np.log(0.1 + 1.0 / (0.1 + ((theta - place) ** 2).sum(axis=-1, keepdims=True)))


def log_prob(y, theta, place):
    return (-0.5 * ((y - signal(theta, place)) / NOISE) ** 2 - np.log(NOISE)).sum(axis=-1)


experiment = design.Experiment(
    prior=nq.Normal([0.0, 0.0], 1.5),
    log_prob=log_prob,
    simulate=lambda theta, e, place: signal(theta, place) + NOISE * e,
    noise=nq.Normal([0.0]),
    name="a leak",
)
SOURCE = np.array([1.3, -0.8])

# %%
# Six sensors, each the best of a grid of places. The truth answers with noise of its own.
side = np.linspace(-3, 3, 5)
places = [np.array([a, b]) for a in side for b in side]
rng = np.random.default_rng(0)
sequence = design.Sequential(experiment, particles=1024, rng=0)
steps = []
for number in range(6):
    place = sequence.next(places, simulations=700)
    y = signal(SOURCE, place) + NOISE * rng.standard_normal(1)
    sequence.tell(place, y)
    law = sequence.posterior
    steps.append((place, np.asarray(law.samples), np.asarray(law.weights)))
    print(f"sensor {number + 1} at {place}: the source is near {np.round(law.mean(), 2)}")

# %%
fig, axes = plt.subplots(1, 3, figsize=(9.0, 3.3), layout="constrained", sharex=True, sharey=True)
for ax, k in zip(axes, (0, 2, 5)):
    place, samples, weights = steps[k]
    style(ax).scatter(*samples.T, 900 * weights, color="#0072B2", alpha=0.35, linewidths=0)
    ax.plot(*SOURCE, "x", color="black", markersize=9, markeredgewidth=2)
    for number in range(k + 1):
        ax.text(
            *steps[number][0],
            number + 1,
            color="#C97700",
            fontsize=11,
            weight="bold",
            ha="center",
            va="center",
        )
    ax.set(xlim=(-4, 4), ylim=(-4, 4), aspect="equal")
    ax.set_title(f"after {k + 1} sensor{'s' if k else ''}", loc="left", fontsize=10)
plt.show()
