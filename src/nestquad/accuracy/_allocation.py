"""Sample sizes of the theory for a given accuracy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nestquad._checks import choice, number, numbers, whole
from nestquad.errors import InputError, unknown_name

_METHODS = ("nmc", "nqmc", "nkq", "mlmc", "mlkq")
_REGIMES = ("smooth", "lipschitz")
_MIN_OUTER = 2  # one θ shows no spread over θ
_MIN_RELATIVE_ERROR = 1e-15  # below that float64 has no digits left


@dataclass(frozen=True)
class Level:
    """One level of a multilevel method: N inner points at each of T outer points."""

    n_inner: int
    n_outer: int

    @property
    def n_evaluations(self) -> int:
        return self.n_inner * self.n_outer


@dataclass(frozen=True)
class Allocation:
    """How many outer and inner points a method needs for an error of `delta`.

    Attributes
    ----------
    method
        Lower-case name of the method.
    delta
        The error that was asked for.
    n_outer, n_inner
        T and N; None for a multilevel method, whose sizes are in `levels`.
    levels
        From the coarsest to the finest; empty for a method without levels.
    exponent
        r in cost ∝ Δ^−r, up to logarithms.
    """

    method: str
    delta: float
    n_outer: int | None
    n_inner: int | None
    levels: tuple[Level, ...]
    exponent: float

    @property
    def n_evaluations(self) -> int:
        """Evaluations of g in total."""
        if self.n_outer is not None and self.n_inner is not None:
            return self.n_outer * self.n_inner
        return sum(level.n_evaluations for level in self.levels)

    def __str__(self) -> str:
        head = f"{self.method} for an error of {self.delta:g}: "
        growth = f"∝ Δ^-{self.exponent:.4g}" if self.exponent else "a power of log(1/Δ)"
        tail = f"{self.n_evaluations:,} evaluations (cost {growth})"
        if not self.levels:
            return f"{head}T = {self.n_outer:,} outer, N = {self.n_inner:,} inner, {tail}"
        sizes = ", ".join(f"{level.n_outer:,} × {level.n_inner:,}" for level in self.levels)
        return f"{head}{len(self.levels)} levels, {tail}\n  T × N by level: {sizes}"


def allocate(
    delta: float,
    method: str = "nkq",
    *,
    dim_x: int = 1,
    dim_theta: int = 1,
    s_x: float | None = None,
    s_theta: float | Sequence[float] | None = None,
    regime: str = "smooth",
    constant: float = 1.0,
) -> Allocation:
    """The theory's N and T (or levels) for an error of `delta`.

    ====== =============================== ====================== ========================
    method N (inner)                       T (outer)              cost
    ====== =============================== ====================== ========================
    nmc    Δ^-1, or Δ^-2 if f is Lipschitz Δ^-2                   Δ^-3, or Δ^-4
    nqmc   Δ^-½                            Δ^-2                   Δ^-2.5
    nkq    Δ^(-d_x/s_x)                    Δ^(-d_θ/s_θ)           Δ^(-d_x/s_x-d_θ/s_θ)
    mlmc   2^l                             (2^l Δ)^-2             Δ^-2
    mlkq   (2^-l Δ^½)^(-d_x/s_x)           (2^l Δ^½)^(-2-d_θ/s_θ) Δ^(-1-d_x/2s_x-d_θ/2s_θ)
    ====== =============================== ====================== ========================

    Levels run up to 2^-L ≈ Δ (mlmc) or Δ^½ (mlkq), where the bias of the finest level is Δ and T
    has come down to 1.

    Parameters
    ----------
    delta
        The error wanted, 0 < delta < `constant`.
    method
        ``"nmc"``, ``"nqmc"``, ``"nkq"``, ``"mlmc"`` or ``"mlkq"``.
    dim_x, dim_theta
        Dimensions; only the kernel methods depend on them.
    s_x, s_theta
        Sobolev smoothness of g in x and of f∘J in θ, larger than half the dimension; needed by the
        kernel methods only. Of several (one an answer), the smallest counts. ``inf`` is allowed.
    regime
        ``"smooth"`` (f has a bounded second derivative) or ``"lipschitz"``. Only nested Monte
        Carlo has an allocation for the latter.
    constant
        The constant in front of the rates, which theory does not know: sizes are for
        ``delta / constant``. The scale of f(J) is a first guess.

    Notes
    -----
    *Sources.* nmc: Rainforth et al. (2018), Theorem 3. mlmc: Giles (2015). nkq and mlkq: the
    paper's Corollary 1 and the allocation after its multilevel theorem; logarithms are left out.
    nqmc: the paper quotes the cost of Bartuska et al. (2023), Proposition 4, without its split.
    Ours follows from it if only the inner stage gains: the bias of f at a
    randomized quasi-Monte Carlo mean is of the order of its variance, N^-2, which gives
    N = Δ^-½, and the rest of the cost is the Monte Carlo size T = Δ^-2.

    *Infinite smoothness.* The rate is exponential, about exp(−N^(1/d)), so the size is
    log(1/Δ)^d, and at most Δ^-2, which the least smoothness (s → d/2) reaches already. It counts
    as exponent 0.

    *Rounding.* Sizes are rounded up, to at least 1 inner and 2 outer points, and each level has
    more inner points than the last.

    Examples
    --------
    >>> from nestquad.accuracy import allocate
    >>> print(allocate(0.01, s_x=2, s_theta=2))
    nkq for an error of 0.01: T = 10 outer, N = 10 inner, 100 evaluations (cost ∝ Δ^-1)
    >>> print(allocate(0.1, "mlmc"))
    mlmc for an error of 0.1: 5 levels, 226 evaluations (cost ∝ Δ^-2)
      T × N by level: 100 × 1, 25 × 2, 7 × 4, 2 × 8, 2 × 16
    """
    name = str(method).lower()
    if name not in _METHODS:
        raise unknown_name("method", method, _METHODS)
    choice("regime", regime, _REGIMES)
    if regime == "lipschitz" and name != "nmc":
        raise InputError(
            "regime",
            f"'lipschitz' for {name}",
            "'smooth'",
            "Only nested Monte Carlo has an allocation of its own for an f that is only Lipschitz.",
        )
    error = _relative_error(delta, constant)
    if name == "nmc":
        power = 1.0 if regime == "smooth" else 2.0
        return _single(name, delta, error**-power, error**-2.0, power + 2.0)
    if name == "nqmc":
        return _single(name, delta, error**-0.5, error**-2.0, 2.5)
    if name == "mlmc":
        sizes = [(2.0**level, (2.0**level * error) ** -2.0) for level in _levels(error)]
        return _multilevel(name, delta, sizes, 2.0)

    inner = _Stage(whole("dim_x", dim_x), _smoothness("s_x", s_x, dim_x, name))
    outer = _Stage(whole("dim_theta", dim_theta), _smoothness("s_theta", s_theta, dim_theta, name))
    if name == "nkq":
        exponent = inner.exponent + outer.exponent
        return _single(name, delta, inner.size(error), outer.size(error), exponent)
    root = math.sqrt(error)
    sizes = [
        (inner.size(root / 2.0**level), (2.0**level * root) ** (-2.0 - outer.exponent))
        for level in _levels(root)
    ]
    return _multilevel(name, delta, sizes, 1.0 + (inner.exponent + outer.exponent) / 2.0)


@dataclass(frozen=True)
class _Stage:
    """Kernel quadrature of an integrand with smoothness s in d dimensions."""

    dim: int
    smoothness: float

    @property
    def exponent(self) -> float:
        return self.dim / self.smoothness

    def size(self, error: float) -> float:
        if math.isinf(self.smoothness):
            return float(min(math.log(1.0 / error) ** self.dim, error**-2.0))
        return float(error**-self.exponent)


def _levels(finest: float) -> range:
    """Levels 0, …, L with 2^-L at most `finest`."""
    return range(_whole(math.log2(1.0 / finest)) + 1)


def _single(
    method: str, delta: float, n_inner: float, n_outer: float, exponent: float
) -> Allocation:
    return Allocation(
        method,
        float(delta),
        n_outer=max(_whole(n_outer), _MIN_OUTER),
        n_inner=max(_whole(n_inner), 1),
        levels=(),
        exponent=exponent,
    )


def _multilevel(
    method: str, delta: float, sizes: list[tuple[float, float]], exponent: float
) -> Allocation:
    levels: list[Level] = []
    for n_inner, n_outer in sizes:
        # A level with no more inner points than the last corrects no bias.
        fewest = levels[-1].n_inner + 1 if levels else 1
        levels.append(Level(max(_whole(n_inner), fewest), max(_whole(n_outer), _MIN_OUTER)))
    return Allocation(method, float(delta), None, None, tuple(levels), exponent)


def _whole(size: float) -> int:
    # 0.01**-2.0 is a hair above 10,000: rounding errors must not add a point.
    return math.ceil(size * (1.0 - 1e-12))


def _relative_error(delta: float, constant: float) -> float:
    constant = number("constant", constant)
    delta = number("delta", delta)
    if not delta < constant:
        raise InputError(
            "delta",
            repr(delta),
            f"an error between 0 and {constant:g}, both excluded",
            "Where answers are large, give their scale as constant=.",
        )
    if delta / constant < _MIN_RELATIVE_ERROR:
        raise InputError(
            "delta",
            repr(delta),
            f"at least {_MIN_RELATIVE_ERROR * constant:g}",
            "Double precision has no digits below that.",
        )
    return float(delta / constant)


def _smoothness(
    argument: str, given: float | Sequence[float] | None, dim: int, method: str
) -> float:
    if given is None:
        raise InputError(
            argument,
            "None",
            f"a Sobolev smoothness, which the rate of {method} depends on",
            "The shipped problems have it in problem.smoothness; math.inf is allowed.",
        )
    values = numbers(argument, given, "a Sobolev smoothness, or several")
    s = float(values.min(initial=np.inf)) if values.size else 0.0
    if not s > dim / 2:
        raise InputError(
            argument,
            f"{s:g}",
            f"a smoothness larger than half the dimension, {dim / 2:g}",
            "Rougher integrands are outside the theory of kernel quadrature.",
        )
    return s
