"""Integrals of kernels: ∫ k(x, t) dP(t) and ∬ k dP dP, in closed form and batched over laws.

Embeddings of all kernels recurse down to closed forms by pair: (kernel on one coordinate, law on
one coordinate). Tables of such pairs are in Briol et al. (2019), Probabilistic integration: a role
in statistical computation?
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import factorial
from typing import Any

import numpy as np
from scipy.special import erf, erfc, erfcx, ndtr, roots_legendre

from nestquad import limits
from nestquad._checks import instance
from nestquad._typing import Array, ArrayLike
from nestquad.clock import tick
from nestquad.distributions import (
    Empirical,
    Independent,
    Law,
    LogNormal,
    Normal,
    Uniform,
    standard_deviation,
)
from nestquad.errors import InputError, UnsupportedError
from nestquad.kernels import (
    Gaussian,
    Kernel,
    Matern,
    ProductKernel,
    as_nodes,
)


@dataclass(frozen=True)
class PanelSettings:
    """Gauss–Legendre panels of the embedding under two correlated normals, exact to about 1e-12.

    Attributes
    ----------
    nodes
        Nodes of a panel.
    far
        Standard deviations to the ends of the line: the mass beyond is 2e-19.
    decays
        Ends of panels around a kink, in units of the kernel's decay.
    spreads
        The same in units of the law's spread.
    """

    nodes: int = 24
    far: float = 9.0
    decays: tuple[float, ...] = (0.0, 1.0, 4.0, 12.0, 40.0)
    spreads: tuple[float, ...] = (1.0, 3.0, 6.0)


_PANELS = PanelSettings()


@dataclass(frozen=True)
class ClosedForm:
    """The two integrals of a kernel of one coordinate under a law of one coordinate.

    Attributes
    ----------
    mean
        ``mean(kernel, law, x)`` with x (..., N): ∫ k(x, t) dP(t), (..., N).
    double
        ``double(kernel, law)``: ∬ k dP dP, () or (T,).
    """

    mean: Callable[[Any, Any, Array], Array]
    double: Callable[[Any, Any], Array]


# By exact type: a subclass may be another function, and an inherited integral would be wrong.
_FORMS: dict[tuple[type, type], ClosedForm] = {}

_WITHOUT_FACTORS = [
    ("Gaussian", "Normal with full covariance"),
    ("Matern", "Normal of two correlated coordinates"),
    ("any kernel", "Empirical"),
]


def register(kernel: type[Kernel], law: type[Law], form: ClosedForm) -> None:
    """Add the closed form of one pair of types."""
    _FORMS[kernel, law] = form


def closed_form(kernel: Kernel, law: Law) -> ClosedForm:
    """The closed form of a pair, or an error that lists the supported pairs."""
    try:
        return _FORMS[type(kernel), type(law)]
    except KeyError:
        raise unsupported(kernel, law) from None


def supported_pairs() -> list[tuple[str, str]]:
    """Pairs (kernel, law) that have closed forms.

    Laws side by side (`Independent`, several coordinates of one law) follow from their
    coordinates; `Anova` from its factors.

    Examples
    --------
    >>> ("Matern", "Normal") in supported_pairs()
    True
    """
    return [(kernel.__name__, law.__name__) for kernel, law in _FORMS] + _WITHOUT_FACTORS


def unsupported(kernel: Kernel, law: Law, reason: str = "") -> UnsupportedError:
    """The error for a pair without closed form."""
    pairs = "; ".join(f"{k} on {p}" for k, p in supported_pairs())
    return UnsupportedError(
        f"No closed-form embedding of {type(kernel).__name__} under {law!r}"
        f"{': ' + reason if reason else ''}. Supported, for independent coordinates and for "
        f"Anova of such kernels: {pairs}. Otherwise integrate in the transported space: any law "
        "with x = law.from_uniform(u), such as a Transport, needs only the embedding of a kernel "
        "in u under Uniform(0, 1)."
    )


_LAW = "a law of nestquad; as_law(...) makes one of scipy.stats"
_LEGENDRE = np.polynomial.legendre.leggauss(10)


def _short_mean(function: Callable[[Array], Array], start: Array, width: Array) -> Array:
    """Mean of `function` over [start, start + width], exact to rounding for short intervals.

    Short means a width of at most 2 for functions such as polynomial × e^{-z} or e^{-z²/2}, and
    little change within the interval; the error of 10 nodes is then far below 1e-16.
    """
    total = np.zeros(np.broadcast_shapes(start.shape, width.shape))
    for node, weight in zip(*_LEGENDRE, strict=True):
        total += 0.5 * weight * function(start + width * (0.5 + 0.5 * node))
    return total


def _gaussian_uniform_mean(kernel: Gaussian, law: Uniform, x: Array) -> Array:
    scale = np.sqrt(2.0) * kernel.scale(1)
    below, above = (x - law.low) / scale, (law.high - x) / scale
    # Distance of x from the interval, 0 inside, and the width, broadcast for the masks below.
    away, width = np.broadcast_arrays(
        np.maximum(np.maximum(-below, -above), 0.0), (law.high - law.low) / scale
    )
    inside = away == 0.0
    difference = np.where(inside, erf(below) + erf(above), erfc(away) - erfc(away + width))
    value = 0.5 * np.sqrt(np.pi) * difference / width
    # There the kernel changes by less than a factor e over the interval, and erfc would cancel.
    flat = ~inside & (width * (2.0 * away + width) < 1.0)
    if flat.any():
        value[flat] = _short_mean(lambda z: np.exp(-(z**2)), away[flat], width[flat])
    return np.asarray(value)


def _gaussian_uniform_double(kernel: Gaussian, law: Uniform) -> Array:
    width = np.asarray((law.high - law.low)[..., 0] / (np.sqrt(2.0) * kernel.scale(0)))
    value = np.sqrt(np.pi) * width * erf(width) + np.expm1(-(width**2))
    return np.asarray(value / width**2)


def _gaussian_normal_mean(kernel: Gaussian, law: Normal, x: Array) -> Array:
    spread = standard_deviation(law) / kernel.scale(1)
    r = (x - law.loc) / kernel.scale(1)
    return np.asarray(np.exp(-0.5 * (r / np.hypot(1.0, spread)) ** 2) / np.hypot(1.0, spread))


def _gaussian_normal_double(kernel: Gaussian, law: Normal) -> Array:
    return np.asarray(
        1.0 / np.hypot(1.0, np.sqrt(2.0) * standard_deviation(law)[..., 0] / kernel.scale(0))
    )


register(Gaussian, Uniform, ClosedForm(_gaussian_uniform_mean, _gaussian_uniform_double))
register(Gaussian, Normal, ClosedForm(_gaussian_normal_mean, _gaussian_normal_double))


def correlated_embedding(kernel: Gaussian, law: Normal, x: Array | None) -> Array:
    """det(A)^-½ exp(-½ rᵀ A⁻¹ r) with A = I + Λ⁻¹ΣΛ⁻¹ and r = Λ⁻¹(x - m), Λ = diag(ℓ).

    The double embedding is the value at x = m with 2Σ in the place of Σ. In units of the
    lengthscale A is at least I, so it has a Cholesky factor for every ℓ, and where Σ is singular.
    """
    assert law.cov is not None  # the caller sends other normal laws coordinate by coordinate
    dim = law.loc.shape[-1]
    scale = np.broadcast_to(kernel.lengthscale, (*np.shape(kernel.lengthscale)[:-1], dim))
    copies = 2.0 if x is None else 1.0
    a = copies * law.cov / (scale[..., :, None] * scale[..., None, :]) + np.eye(dim)
    lower = np.linalg.cholesky(a)
    log_value = -np.sum(np.log(np.diagonal(lower, axis1=-2, axis2=-1)), axis=-1)
    if x is None:
        return np.asarray(np.exp(log_value))
    r = (x - law.loc[..., None, :]) / scale[..., None, :]
    lead = np.broadcast_shapes(r.shape[:-2], lower.shape[:-2])
    columns = np.broadcast_to(np.swapaxes(r, -1, -2), (*lead, dim, r.shape[-2]))
    solved = np.linalg.solve(lower, columns)
    return np.asarray(np.exp(log_value[..., None] - 0.5 * np.sum(solved**2, axis=-2)))


# Matérn kernels. In z = rate × distance the kernel is P(z) e^{-z} with a polynomial P of positive
# coefficients. On an interval all integrals are differences of upper tails, which are again a
# polynomial times e^{-z}. Under a normal law, with t = x ± s r, each side of x gives integrals of
# r^k e^{-zr - r²/2} over r > 0, the functions U_k(z), which are polynomials in z times erfcx up to
# cancellation; the two branches below neither cancel nor overflow at any lengthscale.


def _decay_integral(coefficients: Sequence[float], start: Array, width: Array) -> Array:
    """∫ P(z) e^{-z} dz over [start, start + width], start ≥ 0, to full relative precision."""
    if len(coefficients) == 1:
        return np.asarray(-coefficients[0] * np.exp(-start) * np.expm1(-width))
    start, width = np.broadcast_arrays(start, width)
    tails = _tail_coefficients(coefficients)
    value = np.asarray(_times_decay(tails, start) - _times_decay(tails, start + width))
    # Above this width the tails at both ends differ by a factor of at least e, so that their
    # difference is as exact as they are; below it Gauss-Legendre is exact to rounding.
    short = width < 2.0
    if short.any():
        near, length = start[short], width[short]
        value[short] = length * _short_mean(lambda z: _times_decay(coefficients, z), near, length)
    return value


def _tail_coefficients(coefficients: Sequence[float]) -> list[float]:
    """Q with ∫_z^∞ P e^{-t} dt = Q(z) e^{-z}: q_i = Σ_{k ≥ i} p_k k!/i!."""
    moments = [c * factorial(k) for k, c in enumerate(coefficients)]
    return [sum(moments[i:]) / factorial(i) for i in range(len(moments))]


def _times_decay(coefficients: Sequence[float], z: Array) -> Array:
    return np.asarray(np.polynomial.polynomial.polyval(z, coefficients) * np.exp(-z))


def _matern_uniform_mean(kernel: Matern, law: Uniform, x: Array) -> Array:
    rate = kernel.rate(1)
    below, above = rate * (x - law.low), rate * (law.high - x)
    width = rate * (law.high - law.low)
    # Each side of x separately; for x outside the interval one of them has width 0.
    right = _decay_integral(kernel.polynomial, np.maximum(-below, 0.0), np.clip(above, 0.0, width))
    left = _decay_integral(kernel.polynomial, np.maximum(-above, 0.0), np.clip(below, 0.0, width))
    return np.asarray((left + right) / width)


def _matern_uniform_double(kernel: Matern, law: Uniform) -> Array:
    width = np.asarray(kernel.rate(0) * (law.high - law.low)[..., 0])
    zero = np.zeros(())
    # The distance of two points has density 2 (width - z) / width².
    whole = width * _decay_integral(kernel.polynomial, zero, width)
    return np.asarray(
        2.0 * (whole - _decay_integral((0.0, *kernel.polynomial), zero, width)) / width**2
    )


register(Matern, Uniform, ClosedForm(_matern_uniform_mean, _matern_uniform_double))


def _half_line_mean(coefficients: Sequence[float], rate: Array, shift: Array) -> Array:
    """E[P(rate r) e^{-rate r}; r > 0] for r normal with mean `shift` and unit variance.

    Equal to Σ_k c_k rate^k e^{-shift²/2} U_k(z) / √(2π) with z = rate - shift.
    """
    rate, shift = np.broadcast_arrays(rate, shift)
    value = np.empty(rate.shape)
    decaying = rate - shift > 2.0
    for moments, where in ((_decaying_moments, decaying), (_other_moments, ~decaying)):
        if where.any():
            a, b = rate[where], shift[where]
            powers = [c * a**k for k, c in enumerate(coefficients)]
            value[where] = sum(
                p * u for p, u in zip(powers, moments(a, b, len(powers)), strict=True)
            )
    return value


def _decaying_moments(rate: Array, shift: Array, count: int) -> list[Array]:
    """e^{-shift²/2} U_k(z) / √(2π) for z > 2: ratios of neighbours, by continued fraction.

    The recurrence U_{k+1} = k U_{k-1} - z U_k loses all digits upwards for such z. Downwards it
    reads U_k / U_{k-1} = k / (z + U_{k+1} / U_k), all of it positive.
    """
    z = rate - shift
    ratios, depth = [], 72  # exact to rounding from z = 2 on
    # Far down neighbouring ratios are nearly equal, r = k / (z + r): a start that saves many terms.
    ratio = 0.5 * (np.sqrt(z * z + 4.0 * depth + 2.0) - z)
    for k in range(depth, 0, -1):
        ratio = k / (z + ratio)
        if k < count:
            ratios.append(ratio)
    moment = 0.5 * np.exp(-0.5 * shift**2) * erfcx(z / np.sqrt(2.0))
    moments = [moment]
    for ratio in reversed(ratios):
        moment = moment * ratio
        moments.append(moment)
    return moments


def _other_moments(rate: Array, shift: Array, count: int) -> list[Array]:
    """Moments for z ≤ 2, upwards from e^{-z²/2} U_k, which is bounded where U_k overflows.

    The remaining factor e^{(z² - shift²)/2} has exponent rate (rate/2 - shift) ≤ 2.
    """
    z = rate - shift
    factor = np.exp(rate * (0.5 * rate - shift))
    moments = [factor * ndtr(-z)]
    if count > 1:
        moments.append(factor * np.exp(-0.5 * z**2) / np.sqrt(2.0 * np.pi) - z * moments[0])
    for k in range(1, count - 1):
        moments.append(k * moments[k - 1] - z * moments[k])
    return moments


def _matern_normal_mean(kernel: Matern, law: Normal, x: Array) -> Array:
    rate, shift = kernel.rate(1) * standard_deviation(law), (law.loc - x) / standard_deviation(law)
    right = _half_line_mean(kernel.polynomial, rate, shift)
    return np.asarray(right + _half_line_mean(kernel.polynomial, rate, -shift))


def _matern_normal_double(kernel: Matern, law: Normal) -> Array:
    # The difference of two draws is normal with mean 0 and √2 times the standard deviation.
    rate = np.asarray(kernel.rate(0) * np.sqrt(2.0) * standard_deviation(law)[..., 0])
    return 2.0 * _half_line_mean(kernel.polynomial, rate, np.zeros(()))


register(Matern, Normal, ClosedForm(_matern_normal_mean, _matern_normal_double))


def pair_embedding(kernel: Matern, law: Normal, x: Array | None) -> Array:
    """∫ k(x, t) dP(t) at nodes x (N, 2); at x = None the double integral, ().

    The difference of two draws is normal with twice the covariance and the kernel depends on the
    difference alone, so the double integral is the mean embedding at zero of that law.

    Cost
    ----
    O(N) closed forms on each of about 700 nodes.
    """
    assert law.cov is not None
    if x is None:
        difference = Normal(np.zeros(2), cov=2.0 * law.cov)
        return np.asarray(pair_embedding(kernel, difference, np.zeros((1, 2)))[0])
    first, second = (kernel.coordinate(i, 2) for i in range(2))
    (m1, m2), cov = law.loc, law.cov
    s1 = np.sqrt(cov[0, 0])
    slope = cov[0, 1] / cov[0, 0]
    rest = np.sqrt(max(cov[1, 1] - slope * cov[0, 1], 0.0))
    decays = [1.0 / float(np.ravel(factor.rate(0))[0]) for factor in (first, second)]
    # The integrand has a kink at x_1, and bends where the mean of t_2 given t_1 passes x_2.
    bend = m1 + (x[:, 1] - m2) / slope
    across = (decays[1] / abs(slope), rest / abs(slope))
    ends = [np.full(len(x), m1 + k * s1) for k in np.linspace(-_PANELS.far, _PANELS.far, 13)]
    ends += [x[:, 0] + sign * k * decays[0] for k in _PANELS.decays for sign in (-1, 1)]
    ends += [bend + sign * k * across[0] for k in _PANELS.decays for sign in (-1, 1)]
    ends += [bend + sign * k * across[1] for k in _PANELS.spreads for sign in (-1, 1)]
    edges = np.sort(
        np.clip(np.stack(ends, axis=1), m1 - _PANELS.far * s1, m1 + _PANELS.far * s1), axis=1
    )
    node, weight = roots_legendre(_PANELS.nodes)
    middle, half = (edges[:, 1:] + edges[:, :-1]) / 2, np.diff(edges, axis=1) / 2
    t = (middle[..., None] + half[..., None] * node).reshape(len(x), -1)  # (N, nodes)
    w = (half[..., None] * weight).reshape(len(x), -1)
    density = np.exp(-0.5 * ((t - m1) / s1) ** 2) / (s1 * np.sqrt(2.0 * np.pi))
    along = first.evaluate(x[:, None, :1], t[..., None])[:, 0]
    given = Normal((m2 + slope * (t - m1)).reshape(-1, 1), sd=rest)
    other = np.repeat(x[:, 1], t.shape[1])[:, None]
    inner = closed_form(second, given).mean(second, given, other).reshape(t.shape)
    return np.asarray(np.sum(w * density * along * inner, axis=1))


def mean_embedding(kernel: Kernel, law: Law, x: ArrayLike) -> Array:
    """∫ k(x, t) dP(t) at nodes x, which may lie outside the support of the law.

    The kernel and the law are a pair of :func:`supported_pairs`.

    Shapes
    ------
    x (..., N, d) -> (..., N); a batch of T laws or lengthscales takes x (N, d), (1, N, d) or
    (T, N, d) and returns (T, N).

    Cost
    ----
    O(T N d) special functions; O(T N n) kernel evaluations under n samples of an `Empirical`.

    Examples
    --------
    >>> import numpy as np
    >>> from nestquad.distributions import Uniform
    >>> from nestquad.kernels import Matern
    >>> mean_embedding(Matern(0.5), Uniform(0, 1), np.array([[0.0], [0.5], [2.0]])).round(6)
    array([0.632121, 0.786939, 0.232544])
    """
    nodes = as_nodes(x, "x")
    instance("law", law, Law, _LAW)
    if law.dim is not None and nodes.shape[-1] != law.dim:
        raise InputError(
            "x", f"nodes with {nodes.shape[-1]} coordinates", f"as many as the law has, {law.dim}"
        )
    shape = _batch_shape(kernel, law, nodes.shape[:-2])
    values = _embed(kernel, law, nodes)
    return np.array(np.broadcast_to(values, (*shape, nodes.shape[-2])))


def double_embedding(kernel: Kernel, law: Law) -> Array:
    """∬ k(s, t) dP(s) dP(t), the prior variance of the integral: () or (T,) for a batch.

    Cost
    ----
    O(T d) special functions; O(T n²) kernel evaluations under n samples of an `Empirical`.

    Examples
    --------
    >>> from nestquad.distributions import Normal
    >>> from nestquad.kernels import Gaussian
    >>> float(double_embedding(Gaussian(1.0), Normal()).round(6))
    0.57735
    """
    instance("law", law, Law, _LAW)
    return np.array(np.broadcast_to(_embed(kernel, law, None), _batch_shape(kernel, law, ())))


def _embed(kernel: Kernel, law: Law, x: Array | None) -> Array:
    """Either embedding: the double one where x is None."""
    if isinstance(law, Empirical):
        return _empirical_embedding(kernel, law, x)
    if isinstance(kernel, Gaussian) and isinstance(law, Normal) and _is_correlated(law):
        return correlated_embedding(kernel, law, x)
    if type(kernel) is Matern and isinstance(law, Normal) and _is_correlated_pair(law):
        nodes = None if x is None else x.reshape(-1, 2)
        values = pair_embedding(kernel, law, nodes)
        return values if x is None else values.reshape(x.shape[:-1])
    # `combine` is linear in each factor, so the integral of independent factors goes through.
    return kernel.combine(_factors(kernel, law, x))


def _factors(kernel: Kernel, law: Law, x: Array | None) -> Iterator[Array]:
    dim, start = law.dim or 0, 0
    for block in _independent_blocks(law):
        tick()
        width = block.dim or 0
        part = slice(start, start + width)
        nodes = None if x is None else x[..., part]
        if width == 1 and not _is_correlated(block):
            yield _embed_line(kernel.coordinate(start, dim), block, nodes)
        elif isinstance(kernel, ProductKernel) and block is not law:
            yield _embed(kernel.restrict(part, dim), block, nodes)
        else:
            reason = "correlated coordinates, or one that is constant"
            raise unsupported(kernel, block, reason if _is_correlated(block) else "")
        start += width


def _embed_line(kernel: ProductKernel, law: Law, x: Array | None) -> Array:
    if isinstance(law, Empirical):
        return _empirical_embedding(kernel, law, x)
    form = closed_form(kernel, law)
    values = form.double(kernel, law) if x is None else form.mean(kernel, law, x[..., 0])
    return np.asarray(values)


def _batch_shape(kernel: Kernel, law: Law, lead: tuple[int, ...]) -> tuple[int, ...]:
    """Leading axes of the answer from the axes of nodes, law and lengthscales."""
    batch = () if law.batch is None else (law.batch,)
    try:
        return np.broadcast_shapes(lead, batch, kernel.batch_shape)
    except ValueError:
        raise InputError(
            "x",
            f"leading axes {lead}, with laws batched as {batch} and lengthscales as "
            f"{kernel.batch_shape}",
            "nodes, laws and lengthscales with the same T (or 1)",
        ) from None


def _empirical_embedding(kernel: Kernel, law: Empirical, x: Array | None) -> Array:
    """Σ_i w_i k(x, t_i), or Σ_ij w_i w_j k(t_i, t_j) where x is None."""
    if x is None:
        return np.asarray(np.sum(law.weights * _weighted_mean(kernel, law, law.samples), axis=-1))
    return _weighted_mean(kernel, law, x)


def _weighted_mean(kernel: Kernel, law: Empirical, x: Array) -> Array:
    n = law.samples.shape[-2]
    lead = np.broadcast_shapes(x.shape[:-2], law.samples.shape[:-2])
    step = max(1, limits.KERNEL_NUMBERS // max(1, x.shape[-2] * int(np.prod(lead))))
    total = np.zeros(())
    for start in range(0, n, step):
        part = slice(start, start + step)
        values = kernel.evaluate(x, law.samples[..., part, :])
        total = total + np.matmul(values, law.weights[..., part, None])[..., 0]
    return total


def _independent_blocks(law: Law) -> list[Law]:
    """Independent laws that stand side by side in `law`; a single one that is `law` itself if none.

    Cost
    ----
    O(T d), or O(T d²) to see whether a covariance is diagonal.
    """
    if isinstance(law, Independent):
        return [block for part in law.laws for block in _independent_blocks(part)]
    if isinstance(law, Empirical) or _is_correlated(law):
        return [law]
    columns = [slice(j, j + 1) for j in range(law.dim or 1)]
    if isinstance(law, Uniform):
        return [Uniform(law.low[..., c], law.high[..., c]) for c in columns]
    if isinstance(law, Normal | LogNormal):
        sd = standard_deviation(law)
        return [type(law)(law.loc[..., c], sd=sd[..., c]) for c in columns]
    return [law]


def _is_correlated_pair(law: Normal) -> bool:
    """Whether a law has two dependent coordinates of positive spread, and no batch axis."""
    if law.batch is not None or law.cov is None or law.loc.shape[-1] != 2:
        return False
    spread = np.diagonal(law.cov)
    limit = (1.0 - 1e-12) * np.sqrt(spread.prod())
    return bool((spread > 0).all() and 0 < abs(law.cov[0, 1]) < limit)


def _is_correlated(law: Law) -> bool:
    """Whether a law of normal scores has dependent coordinates (or one of no spread)."""
    if not isinstance(law, Normal | LogNormal) or law.cov is None:
        return False
    diagonal = np.diagonal(law.cov, axis1=-2, axis2=-1)
    off_diagonal = law.cov * (1.0 - np.eye(law.loc.shape[-1]))
    return bool(off_diagonal.any() or (diagonal == 0).any())
