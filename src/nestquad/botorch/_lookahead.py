"""Two-step look-ahead expected improvement, by nested quadrature."""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

import torch
from botorch.acquisition.acquisition import OneShotAcquisitionFunction
from botorch.acquisition.objective import PosteriorTransform
from botorch.generation.gen import gen_candidates_scipy
from botorch.models.model import Model
from botorch.utils.sampling import draw_sobol_samples
from botorch.utils.transforms import is_ensemble, t_batch_mode_transform
from torch import Tensor

from nestquad._checks import whole
from nestquad.botorch._stages import LookaheadRule, Nodes, Stages, drawn, level_sizes
from nestquad.botorch._weights import KERNELS
from nestquad.errors import InputError, UnsupportedError, unknown_name
from nestquad.kernels import Kernel


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
