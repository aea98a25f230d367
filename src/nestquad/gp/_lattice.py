"""Gaussian processes on a rank-1 lattice, by fast Fourier transforms.

With a kernel that depends on differences modulo 1 only, the Gram matrix of a lattice is circulant
and every step (likelihood, interpolation, posterior paths) is a fast Fourier transform.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.fft import dct, irfft, rfft
from scipy.linalg import lapack

from nestquad._typing import Array
from nestquad.errors import NumericalError
from nestquad.gp._optimizer import maximum_likelihood
from nestquad.points import reversed_bits
from nestquad.rules import Factor, factorize

# B_2, B_4 and B_6 as polynomials in (x - 1/2)², from the highest power down.
_BERNOULLI = {
    1: (1.0, -1.0 / 12.0),
    2: (1.0, -1.0 / 2.0, 7.0 / 240.0),
    3: (1.0, -5.0 / 4.0, 7.0 / 16.0, -31.0 / 1344.0),
}
_FACTORIAL = {1: 2.0, 2: 24.0, 3: 720.0}
# Bounds of log γ and of the logarithm of the nugget (relative to the variance): from what rounding
# hides to what makes the other factors vanish.
_SCALE_BOUNDS = (-18.0, 9.0)
_NUGGET_BOUNDS = (-29.0, 5.0)
_FIRST_SCALE, _FIRST_NUGGET = 0.1, 1e-4
_MOST_STEPS = 60
# Smallest relative nugget where values are missing: a block of an inverse is factorised.
_PARTIAL_NUGGET = 1e-12
# Numbers that are worked on together: they stay in a cache, and in memory that is not given back.
_BLOCK = 1 << 13


def omega(order: int, x: Array) -> Array:
    """Σ_{h ≠ 0} |h|^(-2s) exp(2πihx): a scaled Bernoulli polynomial of x modulo 1."""
    out = np.empty_like(x)
    return _omega(order, 1.0, x, out, np.empty_like(x))


def _omega(order: int, factor: float, x: Array, out: Array, memory: Array) -> Array:
    """The same times a factor, written to `out`."""
    scale = (-1.0) ** (order + 1) * (2.0 * np.pi) ** (2 * order) / _FACTORIAL[order]
    first, second, *others = (factor * scale * coefficient for coefficient in _BERNOULLI[order])
    t = np.floor(x, out=memory)
    np.subtract(x, t, out=t)
    t -= 0.5
    t *= t
    np.multiply(t, first, out=out)
    out += second
    for coefficient in others:
        out *= t
        out += coefficient
    return out


def lattice_steps(vector: NDArray[np.int64], size: int) -> Array:
    """{i z_j / M} for all i below the size M: (d, M)."""
    return np.asarray((vector[:, None] * np.arange(size) & (size - 1)) / size)


@dataclass(frozen=True, eq=False)
class PeriodicKernel:
    """k = ∏_j (1 + γ_j ω_s({v_j − w_j})) − 1, without the constant, which is fitted apart.

    Integrating a coordinate out makes its factor 1, so the kernel of the mean over trailing
    coordinates is the same product over the leading ones.

    Attributes
    ----------
    order
        s, the number of derivatives in each coordinate.
    scales
        γ (d,).
    nugget
        Noise variance, relative to k at 0.
    """

    order: int
    scales: Array
    nugget: float

    def __call__(self, steps: Array) -> Array:
        """k at differences (d', …) of the leading d' coordinates, (…)."""
        flat = steps.reshape(len(steps), -1)
        out = np.empty(flat.shape[1])
        memory = np.empty((2, min(_BLOCK, out.size)))
        for start in range(0, out.size, _BLOCK):
            part = out[start : start + _BLOCK]
            term, rest = memory[:, : part.size]
            for j, scale in enumerate(self.scales[: len(flat)]):
                x = flat[j, start : start + _BLOCK]
                _omega(self.order, float(scale), x, part if j == 0 else term, rest)
                if j:
                    _join(part, term, rest)
        return out.reshape(steps.shape[1:])

    @property
    def noise(self) -> float:
        """The nugget's variance in units of the kernel."""
        return self.nugget * float(self(np.zeros((self.scales.size, 1)))[0])


def _join(product: Array, term: Array, memory: Array) -> None:
    """Turn a into (1 + a)(1 + b) - 1 = a + b + ab, which does not cancel where both are tiny."""
    np.multiply(product, term, out=memory)
    product += term
    product += memory


def fit_periodic(
    values: Array,
    steps: Array,
    orders: Sequence[int] = (1, 2),
    start: PeriodicKernel | None = None,
) -> tuple[PeriodicKernel, float]:
    """Order, scales and nugget of highest likelihood, and the negative log likelihood.

    Mean and amplitude are profiled out. Values (M,) are in lattice order, steps (d, M). The search
    starts from the scales and nugget of `start`.

    Cost
    ----
    O(d M + M log M) for each of 20 to 60 evaluations with gradient, for each order.
    """
    power = np.abs(rfft(values - values.mean())) ** 2 / values.size
    dim, size = steps.shape
    half = steps[:, : size // 2 + 1]
    if start is None:
        start = PeriodicKernel(orders[0], np.full(dim, _FIRST_SCALE), _FIRST_NUGGET)
    first = np.log(np.append(start.scales, start.nugget))
    bounds = np.array([_SCALE_BOUNDS] * dim + [_NUGGET_BOUNDS])
    tried = []
    for order in orders:
        loss = LatticeLikelihood(omega(order, half), power)
        found = maximum_likelihood(loss, [first], bounds, n_values=size, most_steps=_MOST_STEPS)
        parameters, value = found or (first, np.inf)
        scales, nugget = np.exp(parameters[:-1]), float(np.exp(parameters[-1]))
        tried.append((PeriodicKernel(order, scales, nugget), value))
    return min(tried, key=lambda one: one[1])


@dataclass(frozen=True, eq=False)
class LatticeLikelihood:
    """Negative log likelihood up to a constant, and its gradient in log γ_1 … log γ_d, log nugget.

    Kernel and spectrum are even, so half of the lattice says it all: transforms are cosine
    transforms.

    Shapes
    ------
    omegas (d, M/2 + 1): ω at the first half of the lattice steps; power (M/2 + 1,): |FFT of the
    values|²/M.
    """

    omegas: Array
    power: Array

    @cached_property
    def _count(self) -> Array:
        """How often each mode occurs; the mean, mode 0, is profiled out."""
        count = np.full(self.power.size, 2.0)
        count[0], count[-1] = 0.0, 1.0
        return count

    def __call__(self, log_parameters: Array) -> tuple[float, Array]:
        freedom = 2 * self.power.size - 3
        scales, nugget = np.exp(log_parameters[:-1]), float(np.exp(log_parameters[-1]))
        count = self._count
        terms = scales[:, None] * self.omegas
        kernel, memory = terms[0].copy(), np.empty_like(terms[0])
        for term in terms[1:]:
            _join(kernel, term, memory)
        noise = nugget * float(kernel[0])
        precision = 1.0 / (np.maximum(dct(kernel, 1), 0.0) + noise)
        relative = self.power * precision
        quadratic = float(count @ relative) + 1e-300
        value = 0.5 * (freedom * np.log(quadratic / freedom) - float(count @ np.log(precision)))
        by_eigenvalue = 0.5 * precision * (1.0 - freedom / quadratic * relative)
        by_eigenvalue[0] = 0.0
        by_noise = float(count @ by_eigenvalue)
        by_kernel = 2.0 * dct(by_eigenvalue, 1)
        by_kernel[0], by_kernel[-1] = 0.5 * by_kernel[0] + nugget * by_noise, 0.5 * by_kernel[-1]
        # ∂k/∂log γ_j is the product with the j-th factor replaced by its term.
        by_kernel *= 1.0 + kernel
        terms /= 1.0 + terms
        return value, np.append(terms @ by_kernel, noise * by_noise)


@dataclass(frozen=True, eq=False)
class LatticeProcess:
    """The posterior of a periodic function and of its mean over the trailing coordinates.

    Attributes
    ----------
    kernel, steps
        Kernel and lattice steps (d, M).
    n_theta
        Leading coordinates, which remain when the others are averaged out.
    order
        Lattice indices (n,) of the values.
    values
        Observations (n,).
    """

    kernel: PeriodicKernel
    steps: Array
    n_theta: int
    order: NDArray[np.int64]
    values: Array

    @property
    def size(self) -> int:
        return int(self.steps.shape[1])

    @property
    def complete(self) -> bool:
        """Whether there is a value at each lattice point, so that FFTs do everything."""
        return self.order.size == self.size

    def marginal(self, offsets: Array | None = None) -> Array:
        """Posterior mean over x at all lattice θ, moved by each of (C, n_theta): (C, M)."""
        mean, dual = self._fitted
        if offsets is None:
            return np.asarray(mean + self._convolve(dual))
        steps, together = self.steps[: self.n_theta, None, :], max(1, _BLOCK // self.size)
        out, of_dual = np.empty((len(offsets), self.size)), rfft(dual)
        memory = np.empty((self.n_theta, min(together, len(offsets)), self.size))
        for start in range(0, len(offsets), together):
            some = slice(start, start + together)
            moved = memory[:, : len(offsets[some])]
            transform = rfft(self.kernel(np.add(steps, offsets[some].T[:, :, None], out=moved)))
            transform *= of_dual
            out[some] = irfft(transform, n=self.size)
        out += mean
        return out

    def at(self, points: Array) -> Array:
        """Posterior mean at any points (T, d), or over x at any θ (T, n_theta): (T,).

        Points are given less the shift of the lattice.

        Cost
        ----
        O(T M), where `marginal` has O(M log M) for all lattice θ.
        """
        mean, dual = self._fitted
        own = self.steps[: points.shape[1], None, :]
        out = np.empty(len(points))
        together = max(1, _BLOCK // self.size)
        for start in range(0, len(points), together):
            some = slice(start, start + together)
            out[some] = self.kernel(points[some].T[:, :, None] - own) @ dual
        return mean + out

    def draws(self, n_draws: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Functions from the prior: their means over x (m, M), and noisy values (m, n).

        The values are where, and in the order in which, those of the process were observed.
        """
        # Transforms of independent normals are independent normals, real ones at both ends.
        shape, ends = (n_draws, self._marginal_spectrum.size), [0, -1]
        found = []
        for spectrum in (self._marginal_spectrum, self._rest_spectrum + self.kernel.noise):
            modes = rng.standard_normal((*shape, 2)).view(complex)[..., 0]
            modes[:, ends] = np.sqrt(2.0) * modes[:, ends].real
            modes *= np.sqrt(0.5 * self.size * self._amplitude * spectrum)
            found.append(irfft(modes, n=self.size))
        marginal, rest = found
        rest += marginal
        return marginal, rest[:, self.order]

    def predicted(self, values: Array) -> Array:
        """`marginal` for other values (m, n): (m, M)."""
        mean, dual = self._solve(values)
        return np.asarray(mean[:, None] + self._convolve(dual))

    @cached_property
    def spread(self) -> float:
        """Posterior standard deviation of the mean over x at a lattice θ."""
        marginal = self._marginal_spectrum
        left = marginal - marginal**2 / (marginal + self._rest_spectrum + self.kernel.noise)
        return float(np.sqrt(self._amplitude * np.maximum(left, 0.0).mean()))

    @cached_property
    def leave_one_out(self) -> Array:
        """Leave-one-out residuals, (n,)."""
        dual = self._fitted[1][self.order]
        if self.complete:
            inverse = 1.0 / self._spectrum
            inverse[0] = 0.0  # the mean is fitted to all values
            return np.asarray(dual / irfft(inverse, n=self.size)[0])
        solved = self._part.solve(np.ones((1, self.order.size)))[0]
        return np.asarray(dual / (self._part.inverse_diagonal() - solved**2 / solved.sum()))

    @cached_property
    def _fitted(self) -> tuple[float, Array]:
        mean, dual = self._solve(self.values[None])
        return float(mean[0]), dual[0]

    @cached_property
    def _amplitude(self) -> float:
        """σ², the factor of the kernel."""
        mean, dual = self._fitted
        square = float((self.values - mean) @ dual[self.order])
        return max(square, 0.0) / max(self.values.size - 1, 1)

    @cached_property
    def _column(self) -> Array:
        return self.kernel(self.steps)

    @cached_property
    def _spectrum(self) -> Array:
        """Eigenvalues of the Gram matrix with its nugget."""
        return np.asarray(np.maximum(rfft(self._column).real, 0.0) + self.kernel.noise)

    @cached_property
    def _marginal_spectrum(self) -> Array:
        spectrum = rfft(self.kernel(self.steps[: self.n_theta])).real
        return np.asarray(np.maximum(spectrum, 0.0))

    @cached_property
    def _rest_spectrum(self) -> Array:
        return np.asarray(np.maximum(rfft(self._column).real - self._marginal_spectrum, 0.0))

    def _convolve(self, dual: Array) -> Array:
        """Σ_l dual_l k(θ_i - θ_l) for all lattice θ."""
        return np.asarray(irfft(rfft(dual) * self._marginal_spectrum, n=self.size))

    def _solve(self, values: Array) -> tuple[Array, Array]:
        """Generalised least squares of a constant (m,), and (K + λ)⁻¹ of the rest (m, M)."""
        dual = np.zeros((values.shape[0], self.size))
        if self.complete:
            mean = values.mean(axis=1)
            dual[:, self.order] = values - mean[:, None]
            transform = rfft(dual) / self._spectrum
            transform[:, 0] = 0.0
            return mean, np.asarray(irfft(transform, n=self.size))
        solved = self._part.solve(np.concatenate([values, np.ones((1, values.shape[1]))]))
        mean = solved[:-1].sum(axis=1) / solved[-1].sum()
        dual[:, self.order] = solved[:-1] - mean[:, None] * solved[-1]
        return mean, dual

    @cached_property
    def _part(self) -> _CirculantPart:
        spectrum = np.maximum(rfft(self._column).real, 0.0)
        ridge = max(self.kernel.nugget, _PARTIAL_NUGGET) * float(self._column[0])
        while (part := _CirculantPart.of(spectrum + ridge, self.order)) is None:
            ridge *= 10.0
            if ridge > float(self._column[0]):
                raise NumericalError("the Gram matrix of the joint lattice cannot be factorised")
        return part


@dataclass(frozen=True, eq=False)
class _CirculantPart:
    """A positive definite circulant matrix restricted to n of its M points.

    With the right values at the missing points, the inverse of the whole matrix gives nothing
    there, and the solution elsewhere by FFT. Those values solve a system with a block of the
    inverse.

    Attributes
    ----------
    spectrum
        Eigenvalues (M/2 + 1,) of the whole.
    order, missing
        Indices of the points that are there (n,), and of those that are not (M - n,).
    inverse, block
        First column (M,) of the inverse of the whole, and a factor of its block of missing points.

    Cost
    ----
    O((M - n)³ + M log M), where a Cholesky factor of the part has O(n³).
    """

    spectrum: Array
    order: NDArray[np.int64]
    missing: NDArray[np.int64]
    inverse: Array
    block: Factor

    @classmethod
    def of(cls, spectrum: Array, order: NDArray[np.int64]) -> _CirculantPart | None:
        """None where the block has no factor."""
        size = 2 * (spectrum.size - 1)
        missing = np.setdiff1d(np.arange(size), order)
        inverse = np.asarray(irfft(1.0 / spectrum, n=size))
        block = factorize(inverse[(missing[:, None] - missing) & (size - 1)], 0.0)
        return None if block is None else cls(spectrum, order, missing, inverse, block)

    def solve(self, rows: Array) -> Array:
        """Solutions (k, n) for (k, n), with one refinement."""
        found = self._solved(rows)
        left = rows - self._times(self.spectrum, self._whole(found))[:, self.order]
        return found + self._solved(left)

    def inverse_diagonal(self) -> Array:
        """Diagonal (n,) of the inverse of the part."""
        differences = (self.missing[:, None] - self.order) & (self.inverse.size - 1)
        half, _ = lapack.dtrtrs(self.block.lower, self.inverse[differences], lower=1)
        return np.asarray(self.inverse[0] - np.einsum("ij,ij->j", half, half))

    def _solved(self, rows: Array) -> Array:
        whole = self._whole(rows)
        there = self._times(1.0 / self.spectrum, whole)[:, self.missing]
        whole[:, self.missing] = -self.block.solve(there.T).T
        return self._times(1.0 / self.spectrum, whole)[:, self.order]

    def _whole(self, rows: Array) -> Array:
        whole = np.zeros((len(rows), self.inverse.size))
        whole[:, self.order] = rows
        return whole

    def _times(self, spectrum: Array, rows: Array) -> Array:
        return np.asarray(irfft(rfft(rows) * spectrum, n=self.inverse.size))


def interpolate(
    kernel: PeriodicKernel, vector: NDArray[np.int64], n_theta: int, values: Array
) -> LatticeProcess:
    """Condition on values at the first N points of a lattice in van der Corput order.

    If N is a power of two, by FFT; otherwise with a Cholesky factorisation of as many points as are
    missing to the next one.
    """
    n = values.size
    log2_size = (n - 1).bit_length()
    steps = lattice_steps(vector, 1 << log2_size)
    return LatticeProcess(kernel, steps, n_theta, reversed_bits(n, log2_size), values)
