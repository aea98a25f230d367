"""Figures of the page on design of experiments: ``python docs/draw_design.py``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from scipy.special import expit
from scipy.stats import binom

import nestquad as nq
from nestquad import design
from nestquad.plots import End, label_ends, new_axes, save, series_styles

FIGURES = Path(__file__).parent / "figures"
SD = 0.5
STEPS, REPLICATES = 10, 10


def signal(theta, d):
    """Log intensity at a sensor d of two sources in the plane."""
    places = theta.reshape(*theta.shape[:-1], 2, 2)
    square = ((places - np.asarray(d)) ** 2).sum(axis=-1)
    return np.log(0.1 + (1.0 / (1e-4 + square)).sum(axis=-1, keepdims=True))


def log_prob(y, theta, d):
    return (-0.5 * ((y - signal(theta, d)) / SD) ** 2).sum(axis=-1)


SOURCES = design.Experiment(
    prior=nq.Normal(np.zeros(4)),
    log_prob=log_prob,
    simulate=lambda theta, e, d: signal(theta, d) + SD * e,
    noise=nq.Normal(),
    name="two sources",
)


def draw_times() -> None:
    """Gain of one blood sample over its time, with 95 % intervals."""

    def mean(theta, d):
        ka, ke, volume = theta[..., :1], theta[..., 1:2], theta[..., 2:3]
        return 400 / volume * ka / (ka - ke) * (np.exp(-ke * d) - np.exp(-ka * d))

    drug = design.Experiment(
        prior=nq.LogNormal(np.log([1.0, 0.1, 20.0]), np.full(3, 0.22)),
        log_prob=lambda y, theta, d: -0.5 * ((y - mean(theta, d)) ** 2).sum(axis=-1),
        simulate=lambda theta, e, d: mean(theta, d) + e,
        noise=nq.Normal(),
    )
    times = np.array([0.25, 0.5, 0.75, 1, 1.5, 2, 3, 4, 6, 9, 12, 16, 24])
    found = design.compare(drug, times, budget=20_000, rng=0)
    figure, (ax,) = new_axes(6.0, 3.4)
    found.plot(ax)
    ax.set_xlabel("time of the sample (hours)")
    ax.set_ylabel("expected gain (nats)")
    save(figure, FIGURES / "design_times.png")


def walk(rule: str, seed: int) -> np.ndarray:
    """Negative entropy of the normal law with the posterior's moments, after each step."""
    rng = np.random.default_rng([seed, 7])
    truth = rng.standard_normal(4)
    grid = np.stack(np.meshgrid(*[np.linspace(-1.5, 1.5, 3)] * 2), axis=-1).reshape(-1, 2)
    fixed = grid[[4, 0, 8, 2, 6, 1, 7, 3, 5, 4]]
    sequence = design.Sequential(SOURCES, rng=seed, particles=1024)
    gained = []
    for step in range(STEPS):
        if rule == "adaptive":
            d = sequence.next(grid, budget=256 * len(grid), simulations=1024)
        else:
            d = fixed[step] if rule == "fixed" else grid[rng.integers(len(grid))]
        y = signal(truth, d) + SD * np.random.default_rng([seed, step]).standard_normal(1)
        sequence.tell(d, y)
        law = sequence.posterior
        places = law.samples.reshape(-1, 2, 2)
        order = np.argsort(places[:, :, 0], axis=1)  # sources have no names: the left one is first
        places = np.take_along_axis(places, order[:, :, None], axis=1).reshape(-1, 4)
        center = law.weights @ places
        cov = (law.weights * (places - center).T) @ (places - center)
        gained.append(-0.5 * np.linalg.slogdet(cov)[1])
    return np.array(gained)


def draw_sequence() -> None:
    """Concentration of the posterior over ten steps: adaptive, fixed and random sensors."""
    figure, (ax,) = new_axes(6.0, 3.6)
    ends = []
    for rule, look in zip(("adaptive", "fixed", "random"), series_styles(3), strict=True):
        runs = np.array([walk(rule, 2 * seed) for seed in range(REPLICATES)])
        steps = np.arange(1, STEPS + 1)
        mean, error = runs.mean(axis=0), runs.std(axis=0, ddof=1) / np.sqrt(REPLICATES)
        ax.fill_between(
            steps, mean - error, mean + error, color=look.color, alpha=0.15, linewidth=0
        )
        ax.plot(steps, mean, color=look.color)
        ends.append(End(float(mean[-1]), rule, look.color))
        print(rule, mean.round(2), flush=True)
    ax.set_xlabel("measurements")
    ax.set_ylabel("information about the sources\n(nats, up to a constant)")
    label_ends(ax, ends)
    save(figure, FIGURES / "design_sequence.png")


def draw_trial() -> None:
    """Assurance over the number of patients, and the sample size that reaches 80 %."""
    base = np.log(0.3 / 0.7)

    def trial(n):
        experiment = design.Experiment(
            prior=nq.Normal(0.6, 0.35),
            simulate=lambda theta, u, d: binom.ppf(u, d, expit(base + theta)),
            noise=nq.Uniform(0, 1),
        )
        return experiment, n

    def assured(experiment, n, **settings):
        least = binom.ppf(0.975, n, 0.3) + 1
        return design.assurance(experiment, n, success=lambda y: y[:, 0] >= least, **settings)

    needed = design.sample_size(trial, 0.8, (20, 400), criterion=assured, rng=1)
    figure, (ax,) = new_axes(6.0, 3.4)
    needed.plot(ax)
    ax.set_xlabel("patients")
    ax.set_ylabel("assurance")
    save(figure, FIGURES / "design_trial.png")


if __name__ == "__main__":
    draw_times()
    draw_trial()
    draw_sequence()
