"""Gaussian processes on random shifts of a rank-1 lattice, by fast Fourier transforms.

With a kernel that depends on differences modulo 1 only, the Gram matrix of a lattice is circulant
(Rathinavel and Hickernell 2019, Fast automatic Bayesian cubature using lattice sampling), and that
of R shifted copies is block circulant: each Fourier mode is a Hermitian system of R equations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.fft import dct, irfft, rfft

from nestquad import limits
from nestquad._typing import Array
from nestquad.clock import tick
from nestquad.gp._optimizer import FAILED, maximum_likelihood
from nestquad.points import reversed_bits

# B_2, B_4 and B_6 as polynomials in (x - 1/2)², from the highest power down.
_BERNOULLI = {
    1: (1.0, -1.0 / 12.0),
    2: (1.0, -1.0 / 2.0, 7.0 / 240.0),
    3: (1.0, -5.0 / 4.0, 7.0 / 16.0, -31.0 / 1344.0),
}
_FACTORIAL = {1: 2.0, 2: 24.0, 3: 720.0}
# B_2 = t² − 1/12 and B_4 = (t² − 1/4)² − 1/30 with t = x − 1/2.
_LEVEL = {1: 1.0 / 12.0, 2: 1.0 / 30.0}


@dataclass(frozen=True)
class LatticeSettings:
    """Numbers of fits on shifted lattices.

    Attributes
    ----------
    cancelling
        Largest γ below which sums of products lose more digits than sums of products less one.
    scale_bounds, nugget_bounds
        Bounds of log γ and of the logarithm of the nugget (relative to the variance): from the size
        of rounding errors to a value at which the other factors vanish.
    scale, nugget
        Values from which a search starts.
    steps, refining_steps
        Most steps of L-BFGS-B, for shifts that are independent and for all together.
    least_nugget
        Smallest relative nugget: shifted copies may have points close to each other.
    """

    cancelling: float = 1e-4
    scale_bounds: tuple[float, float] = (-18.0, 9.0)
    nugget_bounds: tuple[float, float] = (-34.0, 5.0)
    scale: float = 0.1
    nugget: float = 1e-4
    steps: int = 60
    refining_steps: int = 15
    least_nugget: float = 1e-15


_FIT = LatticeSettings()

Transforms = dict[tuple[bytes, bytes], NDArray[Any]]
"""Fourier transforms of a kernel by lattice and distance of two shifts."""


def omega(order: int, x: Array) -> Array:
    """Σ_{h ≠ 0} |h|^(-2s) exp(2πihx): a scaled Bernoulli polynomial of x modulo 1."""
    out = np.empty_like(x)
    return _omega(order, 1.0, x, out, np.empty_like(x))


def _omega(order: int, factor: float, x: Array, out: Array, memory: Array) -> Array:
    """Multiply by a factor and write to `out`."""
    scale = _factor(order)
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


def _factor(order: int) -> float:
    """Σ_{h ≠ 0} |h|^(-2s) exp(2πihx) over the Bernoulli polynomial B_2s."""
    return float((-1.0) ** (order + 1) * (2.0 * np.pi) ** (2 * order) / _FACTORIAL[order])


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
    transforms: Transforms = field(default_factory=dict, init=False)
    """Known transforms, shared by fits."""

    def __call__(self, steps: Array) -> Array:
        """k at differences (d', …) of the leading d' coordinates, (…)."""
        flat = steps.reshape(len(steps), -1)
        out = np.empty(flat.shape[1])
        memory = np.empty((2, min(limits.CACHE_NUMBERS, out.size)))
        for start in range(0, out.size, limits.CACHE_NUMBERS):
            part = out[start : start + limits.CACHE_NUMBERS]
            term, rest = memory[:, : part.size]
            for j, scale in enumerate(self.scales[: len(flat)]):
                x = flat[j, start : start + limits.CACHE_NUMBERS]
                _omega(self.order, float(scale), x, part if j == 0 else term, rest)
                if j:
                    _join(part, term, rest)
        return out.reshape(steps.shape[1:])

    def weighted_sums(self, points: Array, nodes: Array, weights: Array) -> Array:
        """Σ_l w_l k(point − node_l) at points (T, d'), for weights (N,) that add up to zero: (T,).

        The constant of the kernel then cancels, and each factor is a + b (t² − c)² or a + b t² with
        t = |difference| − 1/2: six to eight passes over memory for each coordinate.

        Shapes
        ------
        nodes (d', N), in [0, 1) as the points.
        """
        d, n = points.shape[1], weights.size
        scales, rows = self.scales[:d], max(1, limits.CACHE_NUMBERS // n)
        out = np.zeros(len(points))
        if self.order > 2 or float(scales.max()) < _FIT.cancelling:
            for start in range(0, len(points), rows):
                block = slice(start, start + rows)
                out[block] = self(points[block].T[:, :, None] - nodes[:, None]) @ weights
            return out
        # Relative to the factor at 0, since a product of many may be out of range.
        top = 1.0 + scales * omega(self.order, np.zeros(1))[0]
        b = scales * _factor(self.order) / top
        a = 1.0 / top - b * _LEVEL[self.order]
        sides, stretch = b > 0, np.abs(b) ** (0.5 / self.order)
        weights = weights * float(np.prod(top))
        here, there = stretch[:, None] * nodes, stretch * points
        half, quarter = 0.5 * stretch, 0.25 * stretch**2
        memory = np.empty((2, rows, min(n, limits.CACHE_NUMBERS)))
        for start in range(0, len(points), rows):
            tick()
            block = slice(start, start + rows)
            for left in range(0, n, limits.CACHE_NUMBERS):
                columns = slice(left, left + limits.CACHE_NUMBERS)
                shape = len(points[block]), len(weights[columns])
                product, term = memory[:, : shape[0], : shape[1]]
                product.fill(1.0)
                for j in range(d):
                    np.subtract(here[j, columns], there[block, j, None], out=term)
                    np.abs(term, out=term)
                    term -= half[j]
                    term *= term
                    if self.order == 2:
                        term -= quarter[j]
                        term *= term
                    (np.add if sides[j] else np.subtract)(a[j], term, out=term)
                    product *= term
                out[block] += product @ weights[columns]
        return out

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

    Mean and amplitude are profiled out. Values (R, m) are in lattice order, steps (d, m). Shifts
    are treated as independent: the composite likelihood of Lindsay (1988), Composite likelihood
    methods, whose spectrum is that of one lattice. The search starts from `start`.

    Cost
    ----
    O(d M + M log M) for each of 20 to 60 evaluations with gradient, for each order.
    """
    dim, size = steps.shape
    power = (np.abs(rfft(values - values.mean())) ** 2).mean(axis=0) / size
    half = steps[:, : size // 2 + 1]
    if start is None:
        start = PeriodicKernel(orders[0], np.full(dim, _FIT.scale), _FIT.nugget)
    first = np.log(np.append(start.scales, start.nugget))
    bounds = np.array([_FIT.scale_bounds] * dim + [_FIT.nugget_bounds])
    tried = []
    for order in orders:
        loss = LatticeLikelihood(omega(order, half), power)
        best = maximum_likelihood(loss, [first], bounds, n_values=size, most_steps=_FIT.steps)
        parameters, value = best or (first, np.inf)
        scales, nugget = np.exp(parameters[:-1]), float(np.exp(parameters[-1]))
        tried.append((PeriodicKernel(order, scales, nugget), value))
    return min(tried, key=lambda fit: fit[1])


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
    """Posterior of a periodic function, and of its mean over the trailing coordinates.

    Attributes
    ----------
    kernel, steps
        Kernel and lattice steps (d, m).
    shifts
        Random shifts (R, d) of the lattice.
    n_theta
        Leading coordinates, which remain when the others are averaged out.
    values
        Observations (R, m) in lattice order.
    """

    kernel: PeriodicKernel
    steps: Array
    shifts: Array
    n_theta: int
    values: Array

    @property
    def size(self) -> int:
        """m, the number of points of each shifted lattice."""
        return int(self.steps.shape[1])

    @property
    def n_shifts(self) -> int:
        return len(self.shifts)

    def marginal(self, offsets: Array) -> Array:
        """Posterior mean over x at the lattice θ, shifted by each of (C, n_theta): (C, m).

        Shifts in all coordinates (C, d) give the mean at the shifted lattices themselves.
        """
        return self._convolved(self._fitted[0], self._fitted[1], offsets)

    def _convolved(self, mean: Any, dual: Array, offsets: Array) -> Array:
        """Means at shifted lattices in the leading coordinates, for duals (…, R, m): (…, C, m)."""
        of_dual, shifts = rfft(dual), self.shifts[:, : offsets.shape[1]]
        out = np.empty((*dual.shape[:-2], len(offsets), self.size))
        # Distances between the shifts of a model recur in its copies without a shift.
        known = self.kernel.transforms if len(offsets) <= self.n_shifts + 1 else {}
        together = max(1, limits.CACHE_NUMBERS // (self.n_shifts * self.size))
        for start in range(0, len(offsets), together):
            block = slice(start, start + together)
            apart = (offsets[block, None] - shifts).reshape(-1, shifts.shape[1])
            transforms = self._transforms(apart, known).reshape(-1, len(shifts), of_dual.shape[-1])
            product = np.einsum("...rf,crf->...cf", of_dual, transforms)
            out[..., block, :] = irfft(product, n=self.size)
        out += np.asarray(mean)[..., None, None]
        return out

    def _transforms(self, apart: Array, known: Transforms, *, keep: bool = False) -> NDArray[Any]:
        """Transforms (n, m/2 + 1) of the kernel at the lattice steps plus each of (n, d')."""
        steps = self.steps[: apart.shape[1]]
        if not (known or keep):
            return np.asarray(rfft(self.kernel(steps[:, None, :] + apart.T[:, :, None])))
        lattice = steps[:, 1].tobytes() + bytes([self.size.bit_length()])
        rows = [_mirrored(known, lattice, row) for row in apart]
        missing = [k for k, row in enumerate(rows) if row is None]
        new = rfft(self.kernel(steps[:, None, :] + apart[missing].T[:, :, None]))
        for k, row in zip(missing, new, strict=True):
            rows[k] = row
            if keep:
                known[lattice, apart[k].tobytes()] = row
        return np.stack(rows)  # type: ignore[arg-type]

    def at(self, points: Array) -> Array:
        """Posterior mean at points (T, d), or over x at θ (T, n_theta): (T,).

        Cost
        ----
        O(T R m), where `marginal` has O(R m log m) for m points.
        """
        mean, dual = self._fitted
        own = self.steps[: points.shape[1], None, :] + self.shifts.T[: points.shape[1], :, None]
        nodes = own.reshape(len(own), -1) % 1.0
        return mean + self.kernel.weighted_sums(points % 1.0, nodes, dual.reshape(-1))

    def draws(self, n_draws: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Functions from the prior: means over x (K, R, m), and noisy values (K, R, m)."""
        marginal = self._drawn(self._marginal_blocks, n_draws, rng)
        noise = self.kernel.noise * np.eye(self.n_shifts)
        rest = self._drawn(self._blocks - self._marginal_blocks + noise, n_draws, rng)
        return marginal, marginal + rest

    def _drawn(self, blocks: NDArray[Any], n_draws: int, rng: np.random.Generator) -> Array:
        """Stationary normal draws (K, R, m) whose covariance has the given blocks."""
        # Transforms of independent normals are independent normals, real ones at both ends.
        modes = rng.standard_normal((n_draws, *blocks.shape[:2], 2)).view(complex)[..., 0]
        modes[:, [0, -1]] = np.sqrt(2.0) * modes[:, [0, -1]].real
        values, vectors = np.linalg.eigh(blocks)
        root = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
        modes = np.einsum("frs,kfs->krf", root, modes)
        return np.asarray(irfft(modes * np.sqrt(0.5 * self.size * self.amplitude), n=self.size))

    def predicted(self, values: Array, offsets: Array) -> Array:
        """`marginal` for other values (K, R, m): (K, C, m)."""
        mean, dual = self._solve(values)
        return self._convolved(mean, dual, offsets)

    @cached_property
    def spread(self) -> float:
        """Posterior standard deviation of the mean over x, root mean square over lattice θ."""
        marginal = self._marginal_blocks
        solved = np.linalg.solve(self._system, marginal)
        left = np.einsum("frr->f", marginal).real - np.einsum("frs,fsr->f", marginal, solved).real
        mean = self._mode_mean(np.maximum(left, 0.0)) / self.n_shifts
        return float(np.sqrt(self.amplitude * mean))

    @cached_property
    def leave_one_out(self) -> Array:
        """Leave-one-out residuals (R, m)."""
        inverse = np.linalg.inv(self._system)
        ones = inverse[0].real.sum(axis=1)
        diagonal = self._mode_mean(np.einsum("frr->rf", inverse).real)
        # The mean is estimated as well.
        diagonal -= ones**2 / ones.sum() / self.size
        return np.asarray(self._fitted[1] / diagonal[:, None])

    def _mode_mean(self, by_mode: Array) -> Array:
        """Mean over all m modes of values (…, m/2 + 1) at the non-negative frequencies."""
        total = 2.0 * by_mode.sum(axis=-1) - by_mode[..., 0] - by_mode[..., -1]
        return np.asarray(total / self.size)

    @cached_property
    def _fitted(self) -> tuple[float, Array]:
        mean, dual = self._solve(self.values[None])
        return float(mean[0]), dual[0]

    @cached_property
    def amplitude(self) -> float:
        """σ², the factor of the kernel."""
        mean, dual = self._fitted
        square = float(((self.values - mean) * dual).sum())
        return max(square, 0.0) / max(self.values.size - 1, 1)

    def _kernel_blocks(self, dims: int) -> NDArray[Any]:
        """Gram matrices (m/2 + 1, R, R) of the modes, for the leading coordinates."""
        first, second = np.tril_indices(self.n_shifts, -1)
        apart = (self.shifts[first] - self.shifts[second])[:, :dims]
        apart = np.concatenate([np.zeros((1, dims)), apart])
        return _hermitian(self._transforms(apart, self.kernel.transforms, keep=True), self.n_shifts)

    @cached_property
    def _blocks(self) -> NDArray[Any]:
        return self._kernel_blocks(len(self.steps))

    @cached_property
    def _marginal_blocks(self) -> NDArray[Any]:
        return self._kernel_blocks(self.n_theta)

    @cached_property
    def _system(self) -> NDArray[Any]:
        """Blocks with their nugget, which exceeds the rounding of each.

        A block has large entries and a small determinant where shifts are alike in its mode.
        """
        least = _FIT.least_nugget * float(self.kernel(np.zeros((len(self.steps), 1)))[0])
        rounding = np.finfo(float).eps * np.trace(self._blocks, axis1=1, axis2=2).real
        nugget = np.maximum(rounding, max(self.kernel.noise, least))
        return np.asarray(self._blocks + nugget[:, None, None] * np.eye(self.n_shifts))

    def _solve(self, values: Array) -> tuple[Array, Array]:
        """Generalized least squares of a constant (K,), and (K + λ)⁻¹ of the rest (K, R, m)."""
        inverse = np.linalg.inv(self._system[0]).real
        mean, transform = _centered(rfft(values), inverse, self.size)
        dual = np.linalg.solve(self._system, transform.transpose(2, 1, 0))
        return mean, np.asarray(irfft(dual.transpose(2, 1, 0), n=self.size))


def interpolate(
    kernel: PeriodicKernel, vector: NDArray[np.int64], shifts: Array, n_theta: int, values: Array
) -> LatticeProcess:
    """Condition on values (R m,) at interleaved shifts of a lattice in van der Corput order."""
    by_shift = in_lattice_order(values, len(shifts))
    steps = lattice_steps(vector, by_shift.shape[1])
    return LatticeProcess(kernel, steps, shifts, n_theta, by_shift)


@dataclass(frozen=True, eq=False)
class JointLikelihood:
    """Negative log likelihood of all shifts together, and its gradient as in `LatticeLikelihood`.

    Shapes
    ------
    values (R, m) in lattice order; omegas (d, 1 + R (R − 1)/2, m): ω at the lattice steps, then at
    differences between each pair of shifts.
    """

    values: Array
    omegas: Array

    @classmethod
    def of(cls, process: LatticeProcess) -> JointLikelihood:
        first, second = _below(process.n_shifts)
        apart = process.shifts[first] - process.shifts[second]
        apart = np.concatenate([np.zeros((1, apart.shape[1])), apart]).T
        steps = process.steps[:, None, :] + apart[:, :, None]
        return cls(process.values, omega(process.kernel.order, steps))

    def __call__(self, log_parameters: Array) -> tuple[float, Array]:
        scales, nugget = np.exp(log_parameters[:-1]), float(np.exp(log_parameters[-1]))
        n, size = self.values.shape
        terms = scales[:, None, None] * self.omegas
        kernel, memory = terms[0].copy(), np.empty_like(terms[0])
        for term in terms[1:]:
            _join(kernel, term, memory)
        noise = (nugget + _FIT.least_nugget) * float(kernel[0, 0])
        transforms = rfft(kernel)
        transforms[0] += noise
        lower = _cholesky(transforms, n)
        if lower is None:
            return FAILED, np.zeros_like(log_parameters)
        root = _triangular_inverse(lower)
        inverse = np.einsum("kif,kjf->ijf", root.conj(), root)
        _, transform = _centered(rfft(self.values), inverse[..., 0].real, size)
        dual = np.einsum("rsf,sf->rf", inverse, transform)
        count = np.full(dual.shape[1], 2.0)
        count[[0, -1]] = 1.0
        square = float(((dual.conj() * transform).real @ count).sum()) / size + 1e-300
        freedom = n * size - 1
        logarithms = -2.0 * np.log(np.einsum("rrf->rf", root).real) @ count
        value = 0.5 * (freedom * np.log(square / freedom) + float(logarithms.sum()))
        # Derivatives by the blocks, then by the kernel at each step.
        rows, columns = _below(n)
        factor = freedom / square / size
        trace = (np.einsum("rrf->rf", inverse).real - factor * np.abs(dual) ** 2).sum(axis=0)
        weight = inverse[columns, rows] - factor * dual[columns] * dual[rows].conj()
        by_noise = 0.5 * float(count @ trace)
        by_kernel = np.empty_like(kernel)
        by_kernel[0] = 0.5 * size * irfft(trace, n=size)
        by_kernel[1:] = size * irfft(weight.conj(), n=size)
        by_kernel[0, 0] += nugget * by_noise
        by_kernel *= 1.0 + kernel
        terms /= 1.0 + terms
        gradient = np.einsum("jpm,pm->j", terms, by_kernel)
        return value, np.append(gradient, noise * by_noise)


def refine_kernel(process: LatticeProcess) -> tuple[PeriodicKernel, float]:
    """The kernel of highest joint likelihood near that of a process, and the negative logarithm.

    The composite likelihood of `fit_periodic` does not see pairs of points of different shifts, and
    variation between the points of one lattice looks like noise to it.
    """
    kernel = process.kernel
    start = np.log(np.append(kernel.scales, kernel.nugget))
    bounds = np.array([_FIT.scale_bounds] * kernel.scales.size + [_FIT.nugget_bounds])
    limit: dict[str, int] = {"n_values": process.values.size, "most_steps": _FIT.refining_steps}
    best = maximum_likelihood(JointLikelihood.of(process), [start], bounds, **limit)
    if best is None:
        return kernel, np.inf
    parameters, value = best
    scales, nugget = np.exp(parameters[:-1]), float(np.exp(parameters[-1]))
    return PeriodicKernel(kernel.order, scales, nugget), value


@cache
def _below(n: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows and columns below the diagonal of a matrix (n, n)."""
    return np.tril_indices(n, -1)


def _cholesky(transforms: NDArray[Any], n: int) -> NDArray[Any] | None:
    """Cholesky factors (R, R, F) of all modes of `_hermitian`; None if one is not positive."""
    lower = np.zeros((n, n, transforms.shape[1]), dtype=complex)
    lower[np.arange(n), np.arange(n)] = transforms[0].real
    lower[_below(n)] = transforms[1:]
    for j in range(n):
        lower[j:, j] -= np.einsum("ikf,kf->if", lower[j:, :j], lower[j, :j].conj())
        pivot = lower[j, j].real
        if not (pivot > 0).all():
            return None
        lower[j:, j] /= np.sqrt(pivot)
    return lower


def _triangular_inverse(lower: NDArray[Any]) -> NDArray[Any]:
    """Inverses of lower triangular matrices (R, R, F)."""
    inverse = np.zeros_like(lower)
    for i in range(len(lower)):
        inverse[i, i] = 1.0 / lower[i, i].real
        inverse[i, :i] = -inverse[i, i] * np.einsum("kf,kjf->jf", lower[i, :i], inverse[:i, :i])
    return inverse


def _hermitian(transforms: NDArray[Any], n: int) -> NDArray[Any]:
    """Blocks (F, R, R) from transforms (1 + R (R − 1)/2, F) of the diagonal and the lower part."""
    blocks = np.empty((transforms.shape[1], n, n), dtype=complex)
    first, second = _below(n)
    blocks[:, np.arange(n), np.arange(n)] = transforms[0].real[:, None]
    blocks[:, first, second] = transforms[1:].T
    blocks[:, second, first] = transforms[1:].T.conj()
    return blocks


def _mirrored(known: Transforms, lattice: bytes, apart: Array) -> NDArray[Any] | None:
    """A transform that is known at a distance (d',) or at its opposite, since kernels are even."""
    there = known.get((lattice, apart.tobytes()))
    if there is None:
        opposite = known.get((lattice, (-apart).tobytes()))
        there = None if opposite is None else opposite.conj()
    return there


def _centered(transform: NDArray[Any], inverse: Array, size: int) -> tuple[Array, NDArray[Any]]:
    """Generalized least squares mean (…), and transforms (…, R, F) of the values less that."""
    ones = inverse.sum(axis=1)
    mean = transform[..., 0].real @ ones / (size * ones.sum())
    transform[..., 0] -= size * np.asarray(mean)[..., None]
    return mean, transform


def in_lattice_order(values: Array, n_shifts: int) -> Array:
    """Values (R m,) at interleaved shifts in van der Corput order, as (R, m) in lattice order."""
    size = len(values) // n_shifts
    return np.asarray(values.reshape(size, n_shifts).T[:, _order(size)])


@lru_cache(maxsize=4)
def _order(size: int) -> NDArray[np.int64]:
    """Positions in van der Corput order of a lattice in its own, and the other way round."""
    return reversed_bits(size, size.bit_length() - 1)


def in_sequence_order(by_shift: Array) -> Array:
    """The inverse of `in_lattice_order`: (…, R, m) as (…, R m)."""
    size = by_shift.shape[-1]
    mixed = by_shift[..., _order(size)].swapaxes(-1, -2)
    return np.asarray(mixed.reshape(*by_shift.shape[:-2], -1))
