"""The two stages of nested kernel quadrature as a picture, with the weights drawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtri

from nestquad._typing import Array
from nestquad.plots import INK, SOFT, TEXT_SIZE, End, label_ends, new_axes, title
from nestquad.quadrature import KernelQuadrature
from nestquad.reproduce._draw import line_looks, look
from nestquad.reproduce._part import Content, Drawing, Effort, Finding, Part, Table, Verdict
from nestquad.reproduce._runs import Runs
from nestquad.reproduce._series import problem_named, published_nkq
from nestquad.reproduce._text import number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["PARTS"]

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


def _analyze(runs: Runs, effort: Effort) -> Content:
    found = _compute()
    exact = float(problem_named("finance").exact)  # type: ignore[arg-type]
    rows = tuple(
        {
            "theta": float(found.theta[t]),
            "J": float(found.j[t]),
            "f(J)": float(found.f[t]),
            "outer weight": float(found.outer[t]),
            "smallest inner weight": float(found.inner[t].min()),
            "largest inner weight": float(found.inner[t].max()),
        }
        for t in range(_T)
    )
    spread = found.outer.max() / found.outer.min() - 1
    inner = found.inner[0].max() / found.inner[0].min() - 1
    uneven = max(spread, inner)
    return Content(
        (
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
                    f"{found.answer:.3f}, the exact one {exact:.3f}.",
                    lambda: _draw(found),
                ),
                verdicts=(
                    Verdict(
                        "NKQ's weights differ from the 1/N and 1/T of NMC",
                        "optimal, not equal",
                        f"largest over smallest: {1 + inner:.2f} inside, {1 + spread:.2f} outside",
                        "holds" if uneven > 0.01 else "does not hold",
                        "A point far from its neighbours stands for more of the law. The answer is "
                        f"off by {number(abs(found.answer - exact))}.",
                    ),
                ),
                tables=(Table("illustration", "", rows),),
            ),
        )
    )


def _draw(found: _Picture) -> Figure:
    figure, (left, right) = new_axes(13.5, 4.6, columns=2)
    ends = []
    for t, style in zip(_SHOWN, line_looks(3), strict=True):
        sizes = 60.0 * _N * found.inner[t]
        left.plot(found.x[t], found.g[t], color=style.color, linestyle=style.dashes, linewidth=0.9)
        left.scatter(
            found.x[t], found.g[t], sizes, color=style.color, marker=style.marker, zorder=3
        )
        center, width = np.log(found.theta[t]) - 0.045, 0.3
        _hill(left, center, width, -62.0, 14.0, style.color)
        left.annotate(
            f"θ = {found.theta[t]:.0f}\nĴ = {found.j[t]:.1f}",
            (float(np.exp(center - width**2)), -62.0 + 14.0),
            xytext=(0, 2),
            textcoords="offset points",
            ha="center",
            fontsize=TEXT_SIZE - 1,
            color=style.color,
        )
    left.set_xlim(20, 300)
    left.set_ylim(-63, 25)
    left.set_xlabel("x, price at maturity")
    left.set_ylabel("g(x), loss by the shock")
    title(left, "", f"stage I: Ĵ(θ_t) = Σ w_n g(x_n), N = {_N}")
    style = look("nkq")
    right.plot(found.theta, found.j, color=SOFT, linewidth=1.0)
    right.scatter(
        found.theta, found.f, 60.0 * _T * found.outer, color=style.color, marker="o", zorder=3
    )
    _hill(right, float(np.log(100) - 0.045), 0.3, -12.0, 5.0, style.color)
    ends += [
        End(float(found.f[-1]), "F̂(θ_t) = max(Ĵ, 0)", style.color),
        End(float(found.j[-1]) - 1.2, "Ĵ(θ)", SOFT),
        End(found.answer, f"Î = Σ w_t F̂ = {found.answer:.2f}", INK),
    ]
    right.axhline(found.answer, color=INK, linewidth=0.9, linestyle=(0, (8, 3)))
    right.set_ylim(bottom=-12.0)
    right.set_xlabel("θ, price at the time of the shock (area of a point: its weight)")
    right.set_ylabel("F̂(θ), expected loss")
    title(right, "", f"stage II: Î = Σ w_t F̂(θ_t), T = {_T}")
    label_ends(right, ends)
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
