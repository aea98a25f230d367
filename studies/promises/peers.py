"""Other ways to the answer of the finance problem, in the same run."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve

import nestquad as nq
from nestquad.embeddings import mean_embedding
from studies.runner.result import Table, columns
from studies.runner.study import Settings


@dataclass(frozen=True)
class Peers:
    tables: tuple[Table, ...]
    notes: tuple[str, ...]


Run = Callable[[int], tuple[float, int]]


def peers_table(settings: Settings) -> Peers:
    """Error against the exact value, evaluations of g and seconds of each way."""
    problem = nq.problems.finance()
    n = 32 if settings.quick else 256
    ways: dict[str, Run] = {
        "NumPy, a double loop over θ and x": partial(_double_loop, problem, n),
        "NumPy, a loop over θ": partial(_loop, problem, n),
        "per-θ dense kernel quadrature (SciPy)": partial(_dense_by_theta, problem, n),
        "nestquad nmc": partial(_nestquad, problem, nq.NMC(n, n)),
        "nestquad nqmc": partial(_nestquad, problem, nq.NQMC(n, n)),
        "nestquad nkq": partial(_nestquad, problem, nq.NKQ(n, n)),
        "nestquad ckq": partial(_budgeted, problem, "ckq", n * n),
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
        seeds = 2 if settings.quick or "double loop" in name else 8
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
    return Peers((Table("peers", caption, heads, tuple(rows)),), tuple(notes))


def _nestquad(problem: nq.NestedExpectation, method: Any, seed: int) -> tuple[float, int]:
    est = nq.estimate(problem, method=method, rng=seed)
    return float(est.value), est.n_evaluations


def _budgeted(
    problem: nq.NestedExpectation, method: str, budget: int, seed: int
) -> tuple[float, int]:
    est = nq.estimate(problem, method=method, budget=budget, rng=seed)
    return float(est.value), est.n_evaluations


def _draws(problem: nq.NestedExpectation, n: int, seed: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    theta = problem.outer_law.from_uniform(rng.random((n, 1)))
    return theta, problem.inner_law(theta).from_uniform(rng.random((n, n, 1)))


def _double_loop(problem: nq.NestedExpectation, n: int, seed: int) -> tuple[float, int]:
    theta, x = _draws(problem, n, seed)
    total = 0.0
    for t in range(n):
        inner = 0.0
        for i in range(n):
            inner += float(problem.g(x[t, i], theta[t]))
        total += float(problem.f(np.array([inner / n]))[0])
    return total / n, n * n


def _loop(problem: nq.NestedExpectation, n: int, seed: int) -> tuple[float, int]:
    theta, x = _draws(problem, n, seed)
    j = np.array([np.mean(problem.g(x[t], theta[t])) for t in range(n)])
    return float(np.mean(problem.f(j))), n * n


def _dense_by_theta(problem: nq.NestedExpectation, n: int, seed: int) -> tuple[float, int]:
    """A Gram matrix and a Cholesky factorisation for each θ, on the uniforms that drive x."""
    rng = np.random.default_rng(seed)
    kernel, law = nq.Matern(1.5, 0.3), nq.Uniform()

    def weights(nodes: Any) -> Any:
        gram = kernel(nodes, nodes)
        gram[np.diag_indices(n)] += 1e-9
        mean = mean_embedding(kernel, law, nodes)
        return cho_solve(cho_factor(gram, lower=True, check_finite=False), mean)

    uniform = rng.random((n, 1))
    theta = problem.outer_law.from_uniform(uniform)
    j = np.empty(n)
    for t in range(n):
        nodes = rng.random((n, 1))
        x = problem.inner_law(theta[t : t + 1]).from_uniform(nodes[None])[0]
        j[t] = weights(nodes) @ problem.g(x, theta[t])
    return float(weights(uniform) @ problem.f(j)), n * n


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
