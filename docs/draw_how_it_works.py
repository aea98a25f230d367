"""Draw the pictures of docs/how-it-works.md: `python docs/draw_how_it_works.py`.

The paper's picture, step by step, on its risk problem: points and weights inside, J, f(J), weights
outside; then what learning J changes. Of many draws of the points the one with the median error is
drawn, and the mean errors of all of them stand above it.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

import nestquad as nq
from nestquad.gp import median_lengthscale
from nestquad.plots import AVERAGE, INK, SOFT, method_styles, new_axes, save
from nestquad.rules import equal_weights, kernel_rule

FIGURES = Path(__file__).resolve().parent / "figures"
T, N, DRAWS = 12, 12, 400
BLUE, ORANGE, GREEN = (method_styles([m])[m].color for m in ("nkq", "nqmc", "ckq"))
LIGHT = "#BFD9EA"
ERRORS = ("error", "plain_error")


class Picture:
    """Nested kernel quadrature on finance with few random points, the inner ones shared.

    Kernel and lengthscale are those of the paper's experiment: Matérn-1/2 on the uniforms, median
    heuristic.
    """

    def __init__(self, seed: int) -> None:
        self.problem = nq.problems.finance()
        rng = np.random.default_rng(seed)
        self.u = np.sort(rng.random((N, 1)), axis=0)
        self.v = np.sort(rng.random((T, 1)), axis=0)
        self.theta = self.problem.outer_law.from_uniform(self.v)
        self.x, self.g = self.at(self.theta, self.u)
        self.inner, self.outer = (
            kernel_rule(nq.Matern(0.5, median_lengthscale(points)), nq.Uniform(), points)
            for points in (self.u, self.v)
        )
        self.j = self.g @ self.inner.weights
        self.f = np.maximum(self.j, 0.0)

    @property
    def error(self) -> float:
        """|error| of the answer."""
        return abs(float(self.outer.weights @ self.f) - float(self.problem.exact))

    @property
    def plain_error(self) -> float:
        """|error| of plain means of the same values."""
        return abs(np.maximum(self.g.mean(axis=1), 0.0).mean() - float(self.problem.exact))

    def at(self, theta, u):
        """x and g (T, n) at θ (T, 1) and uniforms (n, 1)."""
        x = self.problem.inner_law(theta).from_uniform(np.broadcast_to(u, (len(theta), *u.shape)))
        return x[..., 0], self.problem.g(x, theta[:, None, :])

    def exact_j(self, theta):
        """J by the mean over very many points, equally spread."""
        u = (np.arange(20_000)[:, None] + 0.5) / 20_000
        return self.at(theta, u)[1].mean(axis=1)


def main() -> None:
    """Write the four figures."""
    drawn = sorted((Picture(seed) for seed in range(DRAWS)), key=lambda one: one.error)
    picture = drawn[DRAWS // 2]
    typical = tuple(float(np.mean([getattr(one, name) for one in drawn])) for name in ERRORS)
    for name, draw in (
        ("inner", draw_inner),
        ("j", draw_j),
        ("outer", partial(draw_outer, typical=typical)),
        ("learn", draw_learned),
    ):
        save(draw(picture), FIGURES / f"how_{name}.png")


def draw_inner(picture: Picture):
    """g at the points of one θ, with equal and with optimal weights."""
    t = T // 3
    figure, axes = new_axes(8.2, 3.3, columns=2)
    fine = np.linspace(0.002, 0.998, 600)[:, None]
    curve = picture.at(picture.theta[t : t + 1], fine)[1][0]
    truth = float(picture.exact_j(picture.theta[t : t + 1])[0])
    rules = (("mean", equal_weights(picture.u), ORANGE), ("kernel quadrature", picture.inner, BLUE))
    for ax, (name, rule, color) in zip(axes, rules, strict=True):
        ax.plot(fine[:, 0], curve, color=SOFT, linewidth=1.2)
        values = picture.g[t]
        ax.vlines(picture.u[:, 0], 0, values, color=color, linewidth=0.8, alpha=0.6)
        areas = 900.0 * np.abs(rule.weights)
        ax.scatter(picture.u[:, 0], values, areas, color=color, edgecolors="white", zorder=3)
        result = float(rule.weights @ values)
        ax.axhline(truth, color=INK, linewidth=1.0, linestyle=AVERAGE)
        ax.axhline(result, color=color, linewidth=1.6)
        ax.set_title(f"{name}: {result:.2f}, truth {truth:.2f}", loc="left", fontsize=10)
        ax.set_xlabel("u, the uniform behind x  (area: weight)")
    axes[0].set_ylabel(f"g(x, θ) at θ = {picture.theta[t, 0]:.0f}")
    return figure


def draw_j(picture: Picture):
    """J at the outer points."""
    figure, (ax,) = new_axes(7.2, 3.4)
    grid = _grid(picture)
    ax.plot(grid[:, 0], picture.exact_j(grid), color=SOFT, linewidth=1.2)
    spread = picture.theta[:, 0]
    for t in range(T):
        ax.plot([spread[t]] * N, picture.g[t], "_", color=LIGHT, markersize=7)
    ax.scatter(spread, picture.j, 42, color=BLUE, edgecolors="white", zorder=3)
    ax.axhline(0.0, color=INK, linewidth=0.8)
    ax.set_xlabel("θ, the price of the stock at the horizon")
    ax.set_ylabel("g (dashes) and its mean J(θ)")
    ax.set_title(
        f"J at {T} values of θ, each from {N} values of g (line: exact)", loc="left", fontsize=10
    )
    return figure


def draw_outer(picture: Picture, typical: tuple[float, ...]):
    """f(J) with outer weights; `typical` are mean errors over draws, and those of plain means."""
    figure, (ax,) = new_axes(7.2, 3.4)
    grid = _grid(picture)
    ax.plot(grid[:, 0], np.maximum(picture.exact_j(grid), 0.0), color=SOFT, linewidth=1.2)
    weights = picture.outer.weights
    ax.scatter(
        picture.theta[:, 0],
        picture.f,
        1_100 * np.abs(weights),
        color=BLUE,
        edgecolors="white",
        zorder=3,
    )
    result, truth = float(weights @ picture.f), float(picture.problem.exact)
    ax.axhline(truth, color=INK, linewidth=1.0, linestyle=AVERAGE)
    ax.axhline(result, color=BLUE, linewidth=1.6)
    ax.set_xlabel("θ  (area: weight)")
    ax.set_ylabel("f(J(θ)) = max(J(θ), 0)")
    ax.set_title(
        f"their weighted mean: {result:.2f}, truth {truth:.2f} (dashed)\nmean |error| over {DRAWS} "
        "draws of the points: {:.2f}, of plain means {:.2f}".format(*typical),
        loc="left",
        fontsize=10,
    )
    return figure


def draw_learned(picture: Picture):
    """A learned J and the dense average of f."""
    figure, (ax,) = new_axes(7.2, 3.4)
    learned = nq.conditional(picture.problem, budget=T * N, rng=0)
    grid = _grid(picture)
    mean, sd = learned(grid, return_std=True)
    ax.fill_between(
        grid[:, 0], mean - 1.96 * sd, mean + 1.96 * sd, color=GREEN, alpha=0.25, linewidth=0
    )
    ax.plot(grid[:, 0], mean, color=GREEN, linewidth=1.4)
    dense = picture.problem.outer_law.from_uniform((np.arange(300)[:, None] + 0.5) / 300)
    ax.plot(dense[:, 0], np.maximum(learned(dense), 0.0), ".", color=BLUE, markersize=4)
    ax.axhline(0.0, color=INK, linewidth=0.8)
    est = nq.estimate(picture.problem, budget=T * N, method="ckq", rng=0)
    truth = float(picture.problem.exact)
    ax.axhline(truth, color=INK, linewidth=1.0, linestyle=AVERAGE)
    ax.set_xlim(grid[0, 0], grid[-1, 0])
    ax.set_xlabel("θ")
    ax.set_ylabel("Ĵ(θ) and f(Ĵ(θ))")
    ax.set_title(
        f"J from {T * N} evaluations; the mean of f(Ĵ) is {est.summary}, truth {truth:.2f}",
        loc="left",
        fontsize=10,
    )
    return figure


def _grid(picture: Picture):
    """θ from the 1 % to the 99 % quantile."""
    return picture.problem.outer_law.from_uniform(np.linspace(0.01, 0.99, 160)[:, None])


if __name__ == "__main__":
    main()
