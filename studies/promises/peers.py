"""Other ways to the answer of the finance problem, in the same run."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve

import nestquad as nq
from nestquad.embeddings import mean_embedding
from studies.runner.result import Table, columns
from studies.runner.study import Settings

Run = Callable[[int], tuple[float, int]]


def peers_table(settings: Settings) -> tuple[Table, tuple[str, ...]]:
    """Error against the exact value, evaluations of g and seconds of each way."""
    problem = nq.problems.finance()
    n = 32 if settings.quick else 256
    ways: dict[str, Run] = {
        "NumPy, a loop over θ": partial(_loop, problem, n),
        "per-θ dense kernel quadrature (SciPy)": partial(_dense_by_theta, problem, n),
        "nestquad nmc": partial(_nestquad, problem, nq.NMC(n, n), None),
        "nestquad nqmc": partial(_nestquad, problem, nq.NQMC(n, n), None),
        "nestquad nkq": partial(_nestquad, problem, nq.NKQ(n, n), None),
        "nestquad ckq": partial(_nestquad, problem, "ckq", n * n),
    }
    notes = [f"Peers: T = N = {n} each, but for those that choose their own sizes."]
    try:
        import qmcpy  # noqa: F401

        ways["qmcpy, Sobol cubature to a tolerance"] = partial(_qmcpy, problem, n, 0.05)
        notes.append(
            "qmcpy integrates over θ to its tolerance of 0.05; the inner mean of "
            f"{n} Sobol points is part of its integrand, whose bias it cannot see."
        )
    except ImportError:
        notes.append("qmcpy is not installed (extra `bench`), so it is missing here.")
    rows = []
    for name, run in ways.items():
        seeds = 2 if settings.quick else 8
        errors, seconds, count = [], [], 0
        run(seeds)
        for seed in range(seeds):
            start = time.process_time()
            value, count = run(seed)
            seconds.append(time.process_time() - start)
            errors.append(abs(value - problem.exact))
        rows.append(
            {
                "way": name,
                "evaluations": count,
                "error": float(np.mean(errors)),
                "seconds": float(np.median(seconds)),
                "seeds": seeds,
            }
        )
    heads = columns(
        "way; evaluations: count; error = mean error: error; "
        "seconds = CPU time: seconds; seeds: count"
    )
    caption = "The finance problem by other ways, and by nestquad."
    return Table("peers", caption, heads, tuple(rows)), tuple(notes)


def _nestquad(
    problem: nq.NestedExpectation, method: Any, budget: int | None, seed: int
) -> tuple[float, int]:
    est = nq.estimate(problem, method=method, budget=budget, rng=seed)
    return float(est.value), est.n_evaluations


def _loop(problem: nq.NestedExpectation, n: int, seed: int) -> tuple[float, int]:
    rng = np.random.default_rng(seed)
    theta = problem.outer_law.from_uniform(rng.random((n, 1)))
    x = problem.inner_law(theta).from_uniform(rng.random((n, n, 1)))
    j = np.array([np.mean(problem.g(x[t], theta[t])) for t in range(n)])
    return float(np.mean(problem.f(j))), n * n


def dense_weights(nodes: np.ndarray) -> np.ndarray:
    """Gram matrix, Cholesky factorisation and solution: weights on the unit interval."""
    kernel = nq.Matern(1.5, 0.3)
    gram = kernel(nodes, nodes)
    gram[np.diag_indices(len(nodes))] += 1e-9
    factor = cho_factor(gram, lower=True, overwrite_a=True, check_finite=False)
    return cho_solve(factor, mean_embedding(kernel, nq.Uniform(), nodes), check_finite=False)


def _dense_by_theta(problem: nq.NestedExpectation, n: int, seed: int) -> tuple[float, int]:
    """Weights for each θ, on the uniforms that drive x."""
    rng = np.random.default_rng(seed)
    uniform = rng.random((n, 1))
    theta = problem.outer_law.from_uniform(uniform)
    j = np.empty(n)
    for t in range(n):
        nodes = rng.random((n, 1))
        x = problem.inner_law(theta[t : t + 1]).from_uniform(nodes[None])[0]
        j[t] = dense_weights(nodes) @ problem.g(x, theta[t])
    return float(dense_weights(uniform) @ problem.f(j)), n * n


def _qmcpy(problem: nq.NestedExpectation, n: int, tol: float, seed: int) -> tuple[float, int]:
    import qmcpy

    inner = qmcpy.DigitalNetB2(1, seed=seed + 1000).gen_samples(n)

    def integrand(uniform: Any) -> Any:
        theta = problem.outer_law.from_uniform(uniform)
        x = problem.inner_law(theta).from_uniform(inner[None])
        return problem.f(problem.g(x, theta[:, None]).mean(axis=1))

    net = qmcpy.DigitalNetB2(1, seed=seed)
    custom = qmcpy.CustomFun(qmcpy.Uniform(net), g=integrand)
    value, data = qmcpy.CubQMCNetG(custom, abs_tol=tol).integrate()
    return float(np.ravel(value)[0]), int(data.n_total) * n
