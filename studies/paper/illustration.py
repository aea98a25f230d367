"""The two stages of nested kernel quadrature as a picture, with the weights drawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri

from nestquad import KernelQuadrature
from nestquad.plots import AVERAGE, INK, SOFT, End, label_ends, new_axes, title
from studies.paper.curves import Array
from studies.paper.figures import line_looks, look
from studies.paper.part import Part, Runs
from studies.paper.series import problem_named, published_nkq
from studies.runner.result import Drawing, Figure, Finding, Verdict
from studies.runner.text import number

_T, _N, _SEED = 12, 16, 3
_SHOWN = (2, 6, 10)  # of the θ, in order


@dataclass(frozen=True)
class _Picture:
    theta: Array
    x: Array
    g: Array
    inner: Array
    j: Array
    f: Array
    outer: Array

    @property
    def answer(self) -> float:
        return float(self.outer @ self.f)


def _compute() -> _Picture:
    """NKQ on finance with i.i.d. points, those inside the same (as uniforms) for all θ."""
    problem = problem_named("finance")
    assert problem.g is not None
    method = published_nkq(problem, _T, _N)
    assert isinstance(method.outer, KernelQuadrature)
    rng = np.random.default_rng(_SEED)
    u, v = np.sort(rng.random((_N, 1)), axis=0), np.sort(rng.random((_T, 1)), axis=0)
    theta = problem.outer_law.from_uniform(v)
    x = problem.inner_law(theta).from_uniform(np.broadcast_to(u, (_T, _N, 1)))
    g = problem.g(x, theta[:, None, :])
    inner = method.inner.tuned([(u, g.T)]).rule(u)
    j = np.array([float(inner.integrate(row)) for row in g])
    f = np.maximum(j, 0.0)
    outer = method.outer.tuned([(v, f[:, None])]).rule(v)
    weights = np.broadcast_to(inner.weights, g.shape)
    return _Picture(theta[:, 0], x[..., 0], g, weights, j, f, outer.weights)


def _analyze(runs: Runs) -> list[Finding]:
    result = _compute()
    exact = float(problem_named("finance").exact)
    spread = result.outer.max() / result.outer.min() - 1
    inner = result.inner[0].max() / result.inner[0].min() - 1
    uneven = max(spread, inner)
    return [
        Finding(
            text=(
                f"NKQ on finance with N = {_N} and T = {_T}, published kernels. Stage I: the "
                "inner points of three θ and g at them; the area of a point is its weight, the "
                "shaded hill is the law of x given θ. Stage II: f(J) at all θ with their "
                "weights, and the law of θ."
            ),
            drawing=Drawing(
                "illustration",
                f"The two stages; the answer of these {_N * _T} evaluations is "
                f"{result.answer:.3f}, the exact one {exact:.3f}.",
                lambda: _draw(result),
            ),
            verdicts=(
                Verdict(
                    "NKQ's weights differ from the 1/N and 1/T of NMC",
                    "optimal, not equal",
                    f"largest over smallest: {1 + inner:.2f} inside, {1 + spread:.2f} outside",
                    "holds" if uneven > 0.01 else "does not hold",
                    "A point far from its neighbours stands for more of the law. The answer is "
                    f"off by {number(abs(result.answer - exact))}.",
                ),
            ),
        )
    ]


def _draw(found: _Picture) -> Figure:
    figure, (*inner, last) = new_axes(9.0, 6.4, rows=2, columns=2)
    bottom = -27.0
    for ax, t, style in zip(inner, _SHOWN, line_looks(len(_SHOWN)), strict=True):
        dense = np.linspace(20.0, 280.0, 400)
        problem = problem_named("finance")
        assert problem.g is not None
        ax.plot(dense, problem.g(dense[:, None], found.theta[:1]), color=SOFT, linewidth=0.9)
        sizes = 45.0 * _N * np.abs(found.inner[t])
        ax.scatter(found.x[t], found.g[t], sizes, color=style.color, marker=style.marker, zorder=3)
        _hill(ax, float(np.log(found.theta[t])) - 0.045, 0.3, bottom, 9.0, style.color)
        ax.set_xlim(15.0, 285.0)
        ax.set_ylim(bottom, 28.0)
        ax.set_xlabel("x, price at maturity")
        ax.set_ylabel("g(x), loss by the shock")
        words = f"stage I, θ = {found.theta[t]:.0f}: Ĵ = Σ wₙ g(xₙ) = {found.j[t]:.1f}"
        title(ax, "", words)
    style = look("nkq")
    last.plot(found.theta, found.j, color=SOFT, linewidth=1.0)
    sizes = 45.0 * _T * np.abs(found.outer)
    last.scatter(found.theta, found.f, sizes, color=style.color, marker="o", zorder=3)
    low = float(found.j.min())
    _hill(last, float(np.log(100)) - 0.045, 0.3, low - 4.0, 3.5, style.color)
    last.axhline(found.answer, color=INK, linewidth=0.9, linestyle=AVERAGE)
    last.set_ylim(bottom=low - 4.0)
    last.set_xlabel("θ, price at the shock")
    last.set_ylabel("expected loss")
    title(last, "", "stage II: Î = Σ wₜ F̂(θₜ)")
    label_ends(
        last,
        [
            End(float(found.f[-1]), "F̂ = max(Ĵ, 0)", style.color),
            End(low, "grey: Ĵ(θ)", SOFT),
            End(found.answer, f"Î = {found.answer:.2f}", INK),
        ],
    )
    return figure


def _hill(ax: Any, center: float, width: float, bottom: float, height: float, color: str) -> None:
    """The density of a log-normal law, scaled to a height, above a floor."""
    z = ndtri(np.linspace(0.0005, 0.9995, 400))
    x = np.exp(center + width * z)
    density = np.exp(-0.5 * z**2) / x
    top = bottom + height * density / density.max()
    ax.fill_between(x, bottom, top, color=color, alpha=0.18, linewidth=0)


PARTS = (
    Part(
        name="illustration",
        title="The two stages",
        source="Figure “Illustration of NKQ”",
        about="Computed, not sketched.",
        tasks=lambda effort: [],
        analyze=_analyze,
    ),
)
