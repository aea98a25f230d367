"""Expected utilities other than information: posterior variance, and the value of a decision."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import replace
from typing import Any

import numpy as np

from nestquad._progress import ProgressLike
from nestquad._typing import Array, RNGLike
from nestquad.design._experiment import Experiment, check_experiment
from nestquad.design._gain import N_INNER, Gain, check_simulations, nothing_to_learn
from nestquad.design._learned import learn
from nestquad.errors import InputError
from nestquad.estimate import check_limits, estimate
from nestquad.methods import NQMC
from nestquad.points import Sobol, Stream
from nestquad.problem import NestedExpectation

_PRIOR_DRAWS = 2**14  # of θ, for prior means: they cost neither likelihoods nor simulations


def variance_reduction(experiment: Experiment, design: Any, **settings: Any) -> Gain:
    """Expected reduction of the variance of the parameters, summed over the targets.

    The larger, the better: the design with the largest reduction has the least expected posterior
    variance, which is Bayesian A-optimality. Settings are those of `eig`.

    Examples
    --------
    >>> import numpy as np
    >>> import nestquad as nq
    >>> from nestquad import design
    >>> experiment = design.Experiment(
    ...     prior=nq.Normal(),
    ...     log_prob=lambda y, theta, d: -0.5 * (y - d * theta)[..., 0] ** 2,
    ...     simulate=lambda theta, e, d: d * theta + e,
    ...     noise=nq.Normal(),
    ... )
    >>> est = design.variance_reduction(experiment, 3.0, budget=2000, rng=0)
    >>> bool(abs(est.value - 0.9) < 0.01)  # of a variance of 1, 1/(1 + 3²) is left
    True
    """
    check_experiment(experiment)
    chosen = list(experiment.targets or range(experiment.n_parameters))
    draws, k = _prior_draws(experiment)[:, chosen], len(chosen)
    center, before = draws.mean(axis=0), float(draws.var(axis=0).sum())

    def moments(theta: Array) -> Array:
        deviation = theta[..., chosen] - center
        return np.concatenate([deviation, deviation**2], axis=-1)

    # What is left varies less from data to data than what is gained.
    def left(j: Array) -> Array:
        return np.asarray((j[..., k:] - j[..., :k] ** 2).sum(axis=-1))

    return _expected(experiment, design, moments, left, lambda i: before - i[0], **settings)


def decision_value(
    experiment: Experiment, design: Any, payoff: Callable[[Array], Any], **settings: Any
) -> Gain:
    """Expected gain of deciding after the experiment: E max_a E[payoff_a | y] − max_a E payoff_a.

    ``payoff(theta)`` with theta (…, p) returns (…, options). It is the expected value of sample
    information; with many draws of an existing decision model, `nestquad.voi.evsi` needs no
    likelihood and is the better door. Settings are those of `eig`.
    """
    check_experiment(experiment)
    if not callable(payoff):
        raise InputError("payoff", type(payoff).__name__, "a function payoff(theta)")
    means = experiment.called("payoff", payoff, _prior_draws(experiment))
    if means.ndim != 2 or means.shape[1] < 2:
        raise InputError(
            "payoff", f"shape {means.shape}", f"shape ({_PRIOR_DRAWS}, options), 2 options or more"
        )
    best = int(np.argmax(means.mean(axis=0)))
    return _expected(
        experiment,
        design,
        lambda theta: np.asarray(payoff(theta), dtype=float),
        # Less the payoff of the best option before: its mean is known, and most noise cancels.
        lambda j: j.max(axis=-1) - j[..., best],
        lambda i: i[0],
        **settings,
    )


def _prior_draws(experiment: Experiment) -> Array:
    law = experiment.prior_law
    return law.from_uniform(
        Sobol().uniforms(Stream.from_rng(0), law.base_dim, (0, 1), (0, _PRIOR_DRAWS))[0]
    )


def _expected(
    experiment: Experiment,
    design: Any,
    h: Callable[[Array], Array],
    f: Callable[[Array], Array],
    combine: Callable[[Array], Any],
    *,
    budget: int | None = None,
    tol: float | None = None,
    rtol: float | None = None,
    max_seconds: float | None = None,
    simulations: int | None = None,
    rng: RNGLike = None,
    executor: Executor | None = None,
    progress: ProgressLike = False,
) -> Gain:
    """`combine` of E_y[f(E[h(θ) | y])], with the proposal of the information gain."""
    if experiment.log_prob is None:
        raise InputError("log_prob", "None", "a likelihood", "Only eig has a bound without one.")
    budget = check_limits(budget, tol, rtol, max_seconds)
    started, stream = time.perf_counter(), Stream.from_rng(rng)
    n_simulations = check_simulations(simulations)
    if experiment.certain:
        return nothing_to_learn(experiment)
    whole = replace(experiment, target=None)
    learned = learn(whole, design, n_simulations, stream, max_seconds)
    # Each datum is a simulation, and costs a likelihood at the θ that made it. One more simulation
    # shows the form of data.
    most = learned.simulations - learned.n_fit - 1
    adaptive = tol is not None or rtol is not None
    room = 2 * N_INNER * most if adaptive or budget is None else np.inf
    if budget is not None:
        room = min(room, (budget - len(learned.at_truth)) * N_INNER // (N_INNER + 1))
    n_inner = None if adaptive else max(N_INNER, -(-int(room) // most))

    def g(x: Array, rows: Array) -> Array:
        ((latent, log_w, _, _),) = learned.weighted(x, rows)
        flat = latent.reshape(-1, latent.shape[-1])
        values = h(experiment.theta(flat)).reshape(*latent.shape[:-1], -1)
        w = np.exp(log_w)
        return np.concatenate([w[..., None], w[..., None] * values, (w * w)[..., None]], axis=-1)

    def answers(j: Array) -> Array:
        size = j[..., 0] ** 2 / j[..., -1]
        return np.stack([f(j[..., 1:-1] / j[..., :1]), size], axis=-1)

    # The second expectation, the effective sample size, is a diagnosis.
    name = experiment.name or "utility"
    problem = NestedExpectation(learned.outer(), learned.inner, g, answers, combine, name=name)
    found = estimate(
        problem,
        budget=int(room),
        tol=tol,
        rtol=rtol,
        max_seconds=None
        if max_seconds is None
        else max(max_seconds - (time.perf_counter() - started), 1e-3),
        method=NQMC(n_inner=n_inner, jackknife=True),
        rng=stream.child(4, 0),
        executor=executor,
        progress=progress,
    )
    sample = found.sample
    assert sample is not None
    return Gain.of(
        found,
        n_evaluations=found.n_evaluations + learned.n_truths(found),
        method="importance",
        seconds=time.perf_counter() - started,
        sample=replace(sample, f=sample.f[:, :1], weights=sample.weights[:, :1]),
        diagnostics={
            "effective_sample_size": float(np.asarray(found.diagnostics["answers"])[1]),
            "components": learned.blocks[0].proposal.components,
            "simulations": learned.n_fit + len(learned.simulated),
            "error_inner": found.diagnostics["error_inner"],
            "error_outer": found.diagnostics["error_outer"],
            "notes": found.diagnostics["notes"],
        },
    )
