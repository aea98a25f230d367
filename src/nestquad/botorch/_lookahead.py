"""Two-step look-ahead expected improvement, by nested quadrature."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, get_args

import torch
from botorch.acquisition.acquisition import OneShotAcquisitionFunction
from botorch.acquisition.objective import PosteriorTransform
from botorch.generation.gen import gen_candidates_scipy
from botorch.models.model import Model
from botorch.utils.sampling import draw_sobol_normal_samples, draw_sobol_samples
from botorch.utils.transforms import is_ensemble, t_batch_mode_transform
from torch import Tensor

from nestquad._checks import whole
from nestquad.botorch._weights import KERNELS, normal_rule
from nestquad.errors import InputError, NumericalError, UnsupportedError, unknown_name
from nestquad.kernels import Kernel


@dataclass(frozen=True)
class LookaheadSettings:
    """Numbers of the two-step look-ahead.

    Attributes
    ----------
    fewer
        Ratio of the fantasies of two levels. Antithetic differences have a variance of order
        N^-1.5 at a cost of order N, so that N^-1.25 is optimal (Giles 2015).
    most_levels
        Levels of rule ``"mlmc"``, as in the paper.
    block
        Numbers at a time where all candidates meet all fantasies: 80 MB.
    jitters
        Ridges to try, relative to the largest variance of a batch. Points that coincide, or lie on
        data, make covariances singular: then a value is known, and a deviation of 1e-5 stands for
        zero.
    """

    fewer: float = 2.0**-1.25
    most_levels: int = 6
    block: int = 10_000_000
    jitters: tuple[float, ...] = (1e-10, 1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4)


_SETTINGS = LookaheadSettings()


LookaheadRule = Literal["kq", "qmc", "nmc", "mlmc"]


@dataclass(frozen=True)
class Nodes:
    """Standard normal points (…, N, q) and their weights (…, N)."""

    points: Tensor
    weights: Tensor

    def __getitem__(self, sets: int | slice) -> Nodes:
        return Nodes(self.points[sets], self.weights[sets])

    def part(self, start: int, stop: int) -> Nodes:
        """Some of the points, with equal weights."""
        points = self.points[..., start:stop, :]
        return Nodes(points, torch.full_like(points[..., 0], 1.0 / (stop - start)))

    def to(self, like: Tensor) -> Nodes:
        return Nodes(self.points.to(like), self.weights.to(like))


def level_sizes(rule: LookaheadRule, outer: int, inner: int | None) -> list[tuple[int, int | None]]:
    """Fantasies and inner nodes of each level, of which all rules but ``"mlmc"`` have one.

    Inner nodes double from level to level, up to `inner`, and fantasies decrease.

    Examples
    --------
    >>> level_sizes("mlmc", 64, 32)
    [(64, 2), (27, 4), (11, 8), (5, 16), (2, 32)]
    """
    if rule != "mlmc" or inner is None:
        return [(outer, inner)]
    sizes = [inner]
    while sizes[0] % 2 == 0 and sizes[0] > 2 and len(sizes) < _SETTINGS.most_levels:
        sizes.insert(0, sizes[0] // 2)
    return [(max(round(outer * _SETTINGS.fewer**k), 2), size) for k, size in enumerate(sizes)]


@lru_cache(maxsize=32)
def drawn(rule: LookaheadRule, sets: int, n: int, q: int, seed: int, kernel: str | Kernel) -> Nodes:
    """Independent sets of n nodes each, (sets, n, q), and their weights.

    Each fantasy has a different set, so that errors of the inner stage average out over them.
    Drawn once: the next acquisition function with this seed gets the same.
    """
    generator = torch.Generator().manual_seed(seed)
    equal = torch.full((sets, n), 1.0 / n, dtype=torch.double)
    if rule in ("nmc", "mlmc"):
        return Nodes(torch.randn(sets, n, q, generator=generator, dtype=torch.double), equal)
    seeds = torch.randint(2**31, (sets,), generator=generator).tolist()
    points = torch.stack(
        [draw_sobol_normal_samples(d=q, n=n, seed=item, dtype=torch.double) for item in seeds]
    )
    if rule == "qmc":
        return Nodes(points, equal)
    weights = [
        torch.from_numpy(normal_rule(item.numpy(), kernel).weights.copy()) for item in points
    ]
    return Nodes(points, torch.stack(weights))


@dataclass(frozen=True)
class Stages:
    """Improvements of both steps, over the best value known before."""

    model: Model
    transform: PosteriorTransform | None
    best_f: Tensor

    def values(
        self, now: Tensor, then: Tensor, outer: Nodes, inner: Nodes | None
    ) -> tuple[Tensor, Tensor]:
        """Improvement by the first batch, and expected improvement by the second, each fantasy's.

        Shapes
        ------
        now (…, q, d); then (…, T, q, d), a batch z' for each fantasy; outer of T nodes, inner of T
        sets of N nodes, or None for the closed form with q = 1. Returns two tensors (…, T).
        """
        every = now.unsqueeze(-3).expand(*then.shape[:-2], *now.shape[-2:])
        mean, covariance = self._law(torch.cat([every, then], dim=-2))
        return self._improvements(mean, _root(covariance), outer.points, inner)

    def best_of(self, now: Tensor, candidates: Tensor, outer: Nodes, inner: Nodes | None) -> Tensor:
        """The best of R batches z' for each fantasy.

        One joint law of z and all candidates serves all fantasies: a posterior of q + R q points
        for each batch, however many fantasies there are.

        Shapes
        ------
        now (…, q, d); candidates (R, q, d); returns (…, T, q, d).
        """
        count, q, d = candidates.shape
        ours = torch.arange(q, device=now.device).expand(count, q)
        theirs = torch.arange(q, q + count * q, device=now.device).view(count, q)
        blocks = torch.cat([ours, theirs], dim=-1)  # of the joint law, for each candidate
        points = outer.points.unsqueeze(-2)  # (T, 1, q), against candidates
        size = 1
        if inner is not None:
            size = inner.points.shape[-2]
            inner = Nodes(inner.points.unsqueeze(-3), inner.weights.unsqueeze(-2))
        step = max(_SETTINGS.block // (count * size * q), 1)
        chosen = []
        for batch in now.reshape(-1, q, d):
            mean, covariance = self._law(torch.cat([batch, candidates.reshape(-1, d)]))
            root = _root(covariance[blocks.unsqueeze(-1), blocks.unsqueeze(-2)])
            for start in range(0, len(points), step):
                part = slice(start, start + step)
                mine = None if inner is None else inner[part]
                _, second = self._improvements(mean[blocks], root, points[part], mine)
                chosen.append(candidates[second.argmax(dim=-1)])
        return torch.cat(chosen).view(*now.shape[:-2], len(points), q, d)

    def _improvements(
        self, mean: Tensor, root: Tensor, normals: Tensor, inner: Nodes | None
    ) -> tuple[Tensor, Tensor]:
        q = normals.shape[-1]
        first = mean[..., :q] + _times(root[..., :q, :q], normals)
        shift = mean[..., q:] + _times(root[..., q:, :q], normals)
        best = torch.maximum(first.amax(dim=-1), self.best_f)
        return best - self.best_f, _expected(shift, root[..., q:, q:], best, inner)

    def _law(self, X: Tensor) -> tuple[Tensor, Tensor]:
        posterior = self.model.posterior(X, posterior_transform=self.transform)
        if not hasattr(posterior, "distribution"):
            raise UnsupportedError(
                f"NestedLookaheadEI needs a Gaussian posterior, not a {type(posterior).__name__}."
            )
        return posterior.mean[..., 0], posterior.distribution.covariance_matrix


def _expected(shift: Tensor, root: Tensor, best: Tensor, inner: Nodes | None) -> Tensor:
    """E max(max_j (shift + root v)_j - best, 0) over v, for shift (…, q) and best (…)."""
    if inner is None:
        deviation = root[..., 0, 0]
        gain = (shift[..., 0] - best) / deviation
        density = torch.exp(-0.5 * gain.square()) / (2.0 * torch.pi) ** 0.5
        return deviation * (density + gain * torch.special.ndtr(gain))
    values = shift.unsqueeze(-2) + inner.points @ root.transpose(-1, -2)  # (…, N, q)
    gains = (values.amax(dim=-1) - best.unsqueeze(-1)).clamp_min(0.0)
    return (gains * inner.weights).sum(dim=-1)


def _times(matrix: Tensor, vector: Tensor) -> Tensor:
    return (matrix @ vector.unsqueeze(-1)).squeeze(-1)


def _root(covariance: Tensor) -> Tensor:
    """Cholesky factors, with the smallest sufficient jitter."""
    scale = covariance.detach().diagonal(dim1=-2, dim2=-1).amax().clamp_min(1e-300)
    eye = torch.eye(covariance.shape[-1], dtype=covariance.dtype, device=covariance.device)
    for jitter in _SETTINGS.jitters:
        root, failed = torch.linalg.cholesky_ex(covariance + jitter * scale * eye)
        if not failed.any():
            return root
    raise NumericalError(
        "The joint covariance of the model at the points of both steps is not positive definite. "
        "Use double precision, and inputs scaled to the unit cube."
    )


class NestedLookaheadEI(OneShotAcquisitionFunction):
    """Two-step look-ahead: expected improvement now, and at the best next step given the data.

    One-shot trees of Jiang et al. (2020), Efficient nonmyopic Bayesian optimization via one-shot
    multi-step trees.

    The utility of a batch z = (z_1, …, z_q) is

        E[ g(f_D, z) + max over z' of E[ g(f_D', z') ] ],

    with D' the data D and the values f_D(z), and g the improvement of the best of a batch over the
    best value known: by then, that of D'. The outer expectation is over T fantasies of f_D(z), the
    inner one over N nodes of f_D'(z') for each of them. The Gaussian vectors are linear images of
    standard normals, so that the weights of the rule ``"kq"`` are made once for all iterations.

    Parameters
    ----------
    model
        A BoTorch model with one output (or a `posterior_transform` that makes one) and a Gaussian
        posterior.
    best_f
        The best value known, in the units of the posterior. None takes the largest training target,
        with the model's outcome transform undone.
    q
        Points of a batch, of both steps.
    rule
        ``"kq"``: Sobol' nodes with kernel quadrature weights, outside and inside. ``"qmc"``: the
        same nodes with equal weights. ``"nmc"``: independent nodes. ``"mlmc"``: multilevel Monte
        Carlo with antithetic differences, which does not optimise z' jointly with z (see Notes).
    outer, inner
        T and N. ``inner=None`` stands for the closed form, with q = 1 only.
    seed
        Of the nodes. None draws one from torch's global generator.
    kernel
        As in `KQNormalSampler`.
    bounds
        (2, d): where z' may lie. Needed by ``"mlmc"`` and by `value`.
    raw_samples, maxiter
        Search for z' where it is not optimised jointly: number of batches to try, and of
        iterations of L-BFGS-B from the best of them.
    posterior_transform
        As in BoTorch.

    Notes
    -----
    Shapes: ``forward`` takes (…, q + T q, d), the batch z and a batch z' for each fantasy, and
    returns (…): maximizing it over all of them jointly is the optimization that
    `optimize_acqf` performs. For ``"mlmc"`` it takes (…, q, d): differences of maxima cannot be
    maximised jointly, so z' is sought anew in each call, and gradients are taken at the z' found.

    Cost: a posterior of 2q points for each fantasy, and T N q² operations.

    Observations are taken to be without noise, as expected improvement does: fantasies are values
    of f, not of f plus noise.

    Examples
    --------
    >>> import torch
    >>> from botorch.models import SingleTaskGP
    >>> from botorch.optim import optimize_acqf
    >>> from nestquad.botorch import NestedLookaheadEI
    >>> X = torch.tensor([[0.1], [0.4], [0.9]], dtype=torch.double)
    >>> model = SingleTaskGP(X, (6 * X).sin())
    >>> bounds = torch.tensor([[0.0], [1.0]], dtype=torch.double)
    >>> acqf = NestedLookaheadEI(model, q=1, outer=8, inner=16, seed=0, bounds=bounds)
    >>> start = acqf.initial_conditions(num_restarts=2, raw_samples=8)
    >>> start.shape
    torch.Size([2, 9, 1])
    >>> candidate, value = optimize_acqf(
    ...     acqf, bounds, q=1, num_restarts=2, batch_initial_conditions=start
    ... )
    >>> candidate.shape
    torch.Size([1, 1])
    """

    def __init__(
        self,
        model: Model,
        best_f: float | Tensor | None = None,
        q: int = 1,
        rule: LookaheadRule = "kq",
        outer: int = 32,
        inner: int | None = 32,
        seed: int | None = None,
        *,
        kernel: str | Kernel = "spline",
        bounds: Tensor | None = None,
        raw_samples: int = 64,
        maxiter: int = 20,
        posterior_transform: PosteriorTransform | None = None,
    ) -> None:
        super().__init__(model=model)
        _check_model(model, posterior_transform)
        if rule not in get_args(LookaheadRule):
            raise unknown_name("rule", rule, get_args(LookaheadRule))
        sizes = {"q": q, "outer": outer, "raw_samples": raw_samples}
        if inner is not None:
            sizes["inner"] = inner
        for name, size in sizes.items():
            whole(name, size)
        if inner is None and (q > 1 or rule == "mlmc"):
            raise InputError(
                "inner", f"None with q = {q} and rule = {rule!r}", "a number of nodes",
                "The closed form is for q = 1, and leaves multilevel methods nothing to do.",
            )  # fmt: skip
        if not isinstance(kernel, Kernel) and kernel not in KERNELS:
            raise unknown_name("kernel", kernel, KERNELS)
        if rule == "mlmc" and bounds is None:
            raise InputError("bounds", "None", "a tensor (2, d) with rule='mlmc', to seek z' in")
        self.q, self.rule, self.outer, self.inner = q, rule, outer, inner
        self.kernel, self.raw_samples, self.maxiter = kernel, raw_samples, maxiter
        self.posterior_transform = posterior_transform
        self.seed = int(torch.randint(0, 1_000_000, (1,))) if seed is None else seed
        self.register_buffer("best_f", _best_value(model, best_f))
        self.register_buffer("bounds", None if bounds is None else _checked_bounds(bounds))
        self._make_nodes()

    @t_batch_mode_transform()
    def forward(self, X: Tensor) -> Tensor:
        """The utility of (…, q + T q, d) points, or of (…, q, d) for ``"mlmc"``."""
        self._check(X, self.get_augmented_q_batch_size(self.q))
        if self.rule == "mlmc":
            return self._multilevel(X)
        now, then = X[..., : self.q, :], X[..., self.q :, :]
        return self._utility(now, then.unflatten(-2, (self.outer, self.q)))

    @t_batch_mode_transform()
    def value(self, X: Tensor) -> Tensor:
        """The utility of batches (…, q, d), with z' found for each fantasy within `bounds`.

        Differentiable in z: at a maximum over z' the gradient is that with z' held fixed.
        """
        self._check(X, self.q)
        if self.rule == "mlmc":
            return self._multilevel(X)
        return self._utility(X, self._best_next(X, *self._nodes(0, X)))

    def get_augmented_q_batch_size(self, q: int) -> int:
        """Points that `forward` takes for a batch of q."""
        if q != self.q:
            raise InputError("q", str(q), f"{self.q}, for which this acquisition function was made")
        return q if self.rule == "mlmc" else q * (1 + self.outer)

    def extract_candidates(self, X_full: Tensor) -> Tensor:
        """The batch z, the first part of the argument of `forward`."""
        return X_full[..., : self.q, :]

    def set_X_pending(self, X_pending: Tensor | None = None) -> None:
        if X_pending is not None:
            raise UnsupportedError(
                "NestedLookaheadEI has no pending points: it chooses a whole batch jointly. "
                "Construct it with a larger q."
            )

    def initial_conditions(
        self, num_restarts: int = 4, raw_samples: int = 32, bounds: Tensor | None = None
    ) -> Tensor:
        """Starting points for `optimize_acqf`, as its ``batch_initial_conditions``.

        Random batches z, each fantasy with the best of `raw_samples` random batches z'; the best
        `num_restarts` of them.

        Shapes
        ------
        Returns (num_restarts, q + T q, d), or (num_restarts, q, d) for ``"mlmc"``.
        """
        bounds = self._bounds(bounds)
        count = max(raw_samples, num_restarts)
        now = draw_sobol_samples(bounds, n=count, q=self.q, seed=self.seed + 1)
        with torch.no_grad():
            if self.rule == "mlmc":
                full = now
            else:
                candidates = self._candidates(bounds)
                then = self._stages(now).best_of(now, candidates, *self._nodes(0, now))
                full = torch.cat([now, then.flatten(-3, -2)], dim=-2)
            best = self.forward(full).topk(num_restarts).indices
        return full[best]

    @property
    def levels(self) -> list[tuple[int, int | None]]:
        """Fantasies and inner nodes of each level; all rules but ``"mlmc"`` have one."""
        return level_sizes(self.rule, self.outer, self.inner)

    def _make_nodes(self) -> None:
        for k, (fantasies, size) in enumerate(self.levels):
            seed = self.seed + 100 * k  # and 50 more inside: no stage of any level shares its nodes
            stages = {"outer": drawn(self.rule, 1, fantasies, self.q, seed, self.kernel)[0]}
            if size is not None:
                stages["inner"] = drawn(self.rule, fantasies, size, self.q, seed + 50, self.kernel)
            for stage, nodes in stages.items():
                # Copies: buffers may be overwritten, cached nodes must not be.
                self.register_buffer(f"{stage}_nodes_{k}", nodes.points.clone())
                self.register_buffer(f"{stage}_weights_{k}", nodes.weights.clone())

    def _nodes(self, level: int, like: Tensor) -> tuple[Nodes, Nodes | None]:
        outer = Nodes(*(getattr(self, f"outer_{part}_{level}") for part in ("nodes", "weights")))
        if self.inner is None:
            return outer.to(like), None
        inner = Nodes(*(getattr(self, f"inner_{part}_{level}") for part in ("nodes", "weights")))
        return outer.to(like), inner.to(like)

    def _stages(self, like: Tensor) -> Stages:
        return Stages(self.model, self.posterior_transform, self.best_f.to(like))

    def _utility(self, now: Tensor, then: Tensor) -> Tensor:
        outer, inner = self._nodes(0, now)
        first, second = self._stages(now).values(now, then, outer, inner)
        return ((first + second) * outer.weights).sum(dim=-1)

    def _multilevel(self, now: Tensor) -> Tensor:
        """Sum over levels of E[max by all inner nodes - mean of the max by either half of them]."""
        total = torch.zeros_like(now[..., 0, 0])
        for level, (_, size) in enumerate(self.levels):
            outer, inner = self._nodes(level, now)
            assert inner is not None
            assert size is not None
            first, second = self._maximal(now, outer, inner)
            total = total + second
            if level == 0:
                total = total + first
                continue
            for half in (inner.part(0, size // 2), inner.part(size // 2, size)):
                total = total - 0.5 * self._maximal(now, outer, half)[1]
        return total

    def _maximal(self, now: Tensor, outer: Nodes, inner: Nodes) -> tuple[Tensor, Tensor]:
        """Means over fantasies of both stages, with z' found for these nodes."""
        then = self._best_next(now, outer, inner)
        first, second = self._stages(now).values(now, then, outer, inner)
        return first.mean(dim=-1), second.mean(dim=-1)

    def _best_next(self, now: Tensor, outer: Nodes, inner: Nodes | None) -> Tensor:
        """z' for each fantasy, (…, T, q, d), without gradients."""
        bounds, fixed, stages = self._bounds(None).to(now), now.detach(), self._stages(now)
        with torch.no_grad():
            then = stages.best_of(fixed, self._candidates(bounds), outer, inner)
        if self.maxiter == 0:
            return then

        def total(points: Tensor) -> Tensor:
            # Every fantasy has its own z': the sum is maximal where each term is.
            second = stages.values(fixed, points.unflatten(-2, then.shape[-3:-1]), outer, inner)[1]
            return second.sum(dim=-1)

        best = _climbed(total, then.flatten(-3, -2), bounds, self.maxiter)
        return best.unflatten(-2, then.shape[-3:-1])

    def _candidates(self, bounds: Tensor) -> Tensor:
        return draw_sobol_samples(bounds, n=self.raw_samples, q=self.q, seed=self.seed + 2)

    def _bounds(self, given: Tensor | None) -> Tensor:
        if given is None and self.bounds is None:
            raise InputError("bounds", "None", "a tensor (2, d): where the next batch may lie")
        return self.bounds if given is None else _checked_bounds(given)

    def _check(self, X: Tensor, points: int) -> None:
        if not isinstance(X, Tensor) or not X.is_floating_point():
            kind = X.dtype if isinstance(X, Tensor) else type(X).__name__
            raise InputError("X", str(kind), "a tensor of floating point numbers")
        dtype = next((p.dtype for p in self.model.parameters()), X.dtype)
        if X.dtype != dtype:
            raise InputError("X", str(X.dtype), f"{dtype}, as the model has")
        if X.dim() < 2 or X.shape[-2] != points:
            advice = f"That is q = {self.q} points and q again for each of {self.outer} fantasies."
            if points == self.q:
                advice = "Give the batch alone."
            raise InputError("X", f"shape {tuple(X.shape)}", f"(…, {points}, d)", advice)


def _climbed(
    total: Callable[[Tensor], Tensor], start: Tensor, bounds: Tensor, maxiter: int
) -> Tensor:
    with torch.enable_grad():  # also where the caller needs no gradients
        best, _ = gen_candidates_scipy(
            initial_conditions=start,
            acquisition_function=total,
            lower_bounds=bounds[0],
            upper_bounds=bounds[1],
            options={"maxiter": maxiter},
            use_parallel_mode=False,  # it would drop batches as they converge, and `now` with them
        )
    return best.detach()


def _check_model(model: Model, transform: PosteriorTransform | None) -> None:
    if is_ensemble(model) or len(model.batch_shape):
        raise UnsupportedError(
            "NestedLookaheadEI is for a single model, not a batch or an ensemble."
        )
    if model.num_outputs != 1 and (transform is None or not transform.scalarize):
        raise InputError(
            "model",
            f"{model.num_outputs} outputs",
            "one output",
            "Pass a posterior_transform that scalarizes them.",
        )


def _best_value(model: Model, best_f: float | Tensor | None) -> Tensor:
    if best_f is not None:
        value = torch.as_tensor(best_f, dtype=torch.double).detach()
        if value.numel() != 1 or not torch.isfinite(value).all():
            raise InputError("best_f", str(best_f), "one finite number")
        return value.reshape(())
    targets = getattr(model, "train_targets", None)
    if targets is None or model.num_outputs != 1:
        raise InputError("best_f", "None", "a number, for a model without training targets of one")
    targets = targets.detach().unsqueeze(-1)
    if hasattr(model, "outcome_transform"):
        targets = model.outcome_transform.untransform(targets)[0]
    return targets.double().max()


def _checked_bounds(bounds: Tensor) -> Tensor:
    tensor = torch.as_tensor(bounds)
    if tensor.dim() != 2 or tensor.shape[0] != 2 or not tensor.is_floating_point():
        raise InputError("bounds", f"shape {tuple(tensor.shape)}, {tensor.dtype}", "(2, d), floats")
    if not (tensor[0] < tensor[1]).all():
        raise InputError("bounds", str(tensor.tolist()), "lower bounds below upper ones")
    return tensor.detach()
