"""What kernel quadrature costs beside plain Monte Carlo, and beside one system for each θ."""

from __future__ import annotations

from typing import Any

import numpy as np

import nestquad as nq
from studies.promises.measure import interleaved
from studies.promises.peers import dense_weights
from studies.runner.result import Result, Table, Verdict, columns
from studies.runner.study import Settings, Study
from studies.runner.text import seconds, times

# Rows of θ that are timed for the methods that solve for each; the rest is extrapolated.
_FEW, _MORE = 8, 24
_LOOP = 16


def _run(settings: Settings) -> Result:
    n = 200 if settings.quick else 1000
    repeats = 5 if settings.quick else 25
    problem = nq.problems.finance()

    def timed(method: Any) -> Any:
        return lambda repeat: nq.estimate(problem, method=method, rng=repeat)

    whole = interleaved(
        {
            "nmc": timed(nq.NMC(n_outer=n, n_inner=n)),
            "nqmc": timed(nq.NQMC(n_outer=n, n_inner=n)),
            "nkq": timed(nq.NKQ(n_outer=n, n_inner=n)),
        },
        repeats,
    )
    parts = interleaved(
        {
            "few": timed(nq.NKQ(n_outer=_FEW, n_inner=n, sharing="independent")),
            "more": timed(nq.NKQ(n_outer=_MORE, n_inner=n, sharing="independent")),
            "loop": lambda repeat: _plain_loop(n, repeat),
        },
        3,
    )
    per_theta = {
        "separate": float(np.median(parts["more"].wall - parts["few"].wall)) / (_MORE - _FEW),
        "loop": parts["loop"].median / _LOOP,
    }
    nmc, nkq = whole["nmc"], whole["nkq"]
    gains = {name: n * cost / nkq.median for name, cost in per_theta.items()}
    rows: list[dict[str, Any]] = [
        {
            "what": name,
            "seconds": timings.median,
            "ratio": timings.over(nmc),
            "cpu": timings.cpu_over(nmc),
            "how": f"median of {repeats}",
        }
        for name, timings in whole.items()
    ]
    for name, label, how in (
        (
            "separate",
            'nkq, sharing="independent"',
            f"{n:,} × the difference of {_MORE} and {_FEW} θ, over {_MORE - _FEW}",
        ),
        ("loop", "weights alone, a loop in SciPy", f"{n:,} × the mean over {_LOOP} θ"),
    ):
        total = n * per_theta[name]
        rows.append({"what": label, "seconds": total, "ratio": total / nmc.median, "how": how})
    heads = columns(
        "what = method; seconds = whole estimate: seconds; "
        "ratio = beside nmc: times; cpu = beside nmc, CPU time: times; "
        "how = how it was timed"
    )
    ratio, cpu_ratio = nkq.over(nmc), nkq.cpu_over(nmc)

    def verdict(claim: str, target: str, measured: str, met: bool) -> Verdict:
        return Verdict.of(
            f"{claim}, finance, N = T = {n:,}", target, measured, None if settings.quick else met
        )

    return Result(
        tables=(Table("seconds", f"Finance, N = T = {n:,}.", heads, tuple(rows)),),
        verdicts=(
            verdict(
                "time of default NKQ beside NMC, whole estimate",
                "≤ 1.5 ×",
                f"{times(ratio)} ({times(cpu_ratio)} in CPU time; {seconds(nkq.median)} and "
                f"{seconds(nmc.median)})",
                ratio <= 1.5,
            ),
            verdict(
                'default NKQ faster than sharing="independent"',
                "≥ 100 ×",
                times(gains["separate"]),
                gains["separate"] >= 100,
            ),
            verdict(
                "default NKQ faster than a plain SciPy loop over θ for the weights",
                "≥ 100 ×",
                times(gains["loop"]),
                gains["loop"] >= 100,
            ),
        ),
    )


def _plain_loop(n: int, seed: int) -> None:
    """Dense weights for each θ: the least that separate weights can cost."""
    rng = np.random.default_rng(seed)
    for _ in range(_LOOP):
        dense_weights(rng.random((n, 1)))


STUDY = Study(
    name="speed",
    title="What the weights cost",
    about="""
On the uniforms that drive the laws, inner weights do not depend on θ and are computed once. Timed
is the whole `nq.estimate`: points, g (which is cheap here), tuning of both kernels, weights and
error bar. The methods take turns and each repeat has a seed of its own, so that no weights are
found in the cache of an earlier repeat. Below stands what solving for each θ would take: by
nestquad itself, and by a loop over Gram matrix, Cholesky factorisation and solution for the full
inner rule alone, without g, error bar or outer stage.
""",
    run=_run,
)
