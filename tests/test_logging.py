"""Messages of the logger ``nestquad``."""

from __future__ import annotations

import logging
import subprocess
import sys

import nestquad as nq
from nestquad._log import log_answer, log_choice, log_start, log_turn


def test_blocks_of_points_are_logged(caplog):
    with caplog.at_level(logging.DEBUG, logger="nestquad"):
        est = nq.estimate(nq.problems.synthetic(), method=nq.NQMC(n_outer=64, n_inner=32), rng=0)
    blocks = [r for r in caplog.records if r.name == "nestquad.evaluate"]
    assert est.n_evaluations == 2048
    assert any("64 × 32" in r.getMessage() and "synthetic" in r.getMessage() for r in blocks)


def test_silent_without_configuration():
    code = (
        "import nestquad as nq; "
        "nq.estimate(nq.problems.synthetic(), method=nq.NMC(n_outer=8, n_inner=8), rng=0)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout == out.stderr == ""


def test_messages_have_turns_choices_and_seconds(caplog):
    problem = nq.problems.synthetic()
    answer = nq.Estimate(1.0, 0.1, 100, 10, 10, "nmc", seconds=2.0, problem="synthetic")
    warned = nq.Estimate(1.0, 0.1, 100, 10, 10, "nmc", problem="rough", warnings=("Beware.",))
    with caplog.at_level(logging.DEBUG, logger="nestquad"):
        log_start(problem, "auto", 10_000, "tol 0.001")
        log_choice(problem, "joint", "smallest predicted error")
        log_turn(2, answer, 0.5)
        log_answer(answer)
        log_answer(warned)
    texts = [record.getMessage() for record in caplog.records]
    assert texts[0] == "synthetic: auto, budget 10,000, tol 0.001"
    assert texts[1] == "synthetic: chose joint: smallest predicted error"
    assert texts[2] == "synthetic: turn 2, 1 ± 0.2, 100 evaluations, 0.5 s each"
    assert texts[3] == str(answer)
    assert texts[5] == "rough: Beware."
    levels = [record.levelname for record in caplog.records]
    assert levels == ["INFO", "INFO", "DEBUG", "INFO", "INFO", "WARNING"]
