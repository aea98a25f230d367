"""Junk for every public callable and every command: what may come out is an answer or our error."""

from __future__ import annotations

import contextlib
import io
import tempfile
import warnings
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd

import nestquad as nq
from nestquad import design, risk, voi
from nestquad.cli import main


def problem(**changes):
    settings = {
        "outer": nq.Uniform(),
        "inner": nq.Uniform(),
        "g": lambda x, theta: x[..., 0] + theta[..., 0],
        "f": np.square,
    }
    return nq.NestedExpectation(**{**settings, **changes})


def varying_outputs():
    sizes = iter([1, 2, 3] * 100_000)
    return lambda x, theta: np.zeros((theta.shape[0], x.shape[1], next(sizes)))


def experiment(**changes):
    settings = {
        "prior": nq.Normal(),
        "log_prob": lambda data, theta, d: -0.5 * (data[..., 0] - theta[..., 0]) ** 2,
        "simulate": lambda theta, e, d: theta + e,
        "noise": nq.Normal(),
    }
    return design.Experiment(**{**settings, **changes})


def model(**changes):
    settings = {
        "parameters": {"a": nq.Normal(), "b": nq.Normal()},
        "net_benefit": lambda p: (0.0 * p["a"], p["a"] + p["b"]),
    }
    return voi.Model(**{**settings, **changes})


def loss(**changes):
    return problem(outer=nq.Normal(), f=None, **changes)


SCENARIOS = pd.DataFrame({"scenario": np.repeat(range(20), 3), "loss": np.arange(60.0) % 7})
DRAWS = pd.DataFrame({"a": np.linspace(-1, 1, 60), "b": np.cos(np.arange(60.0))})
BENEFITS = voi.Outputs(net_benefit=pd.DataFrame({"x": 0.0 * DRAWS.a, "y": DRAWS.a + DRAWS.b}))
COSTS = {
    "costs": pd.DataFrame({"x": 1.0 + DRAWS.b, "y": 2.0 + DRAWS.a}),
    "effects": pd.DataFrame({"x": DRAWS.a, "y": DRAWS.a + DRAWS.b}),
    "wtp": [1.0, 2.0],
}
EVSI = voi.evsi(BENEFITS, DRAWS, voi.NormalTrial("a", 1.0), [10, 20])
PEOPLE = {"per_year": 10.0, "horizon": 5.0}

NUMBERS = [
    0, 1, -1, 3, 7, 2.5, 0.0, -0.5, 1e30, 1e200, 10**400, -(10**400), float("nan"), float("inf"),
    True, False, 1j, Fraction(1, 3), np.float32(2), np.int64(5), np.bool_(True), np.array(4),
    np.float64("nan"),
]  # fmt: skip
OBJECTS = [
    None, "", "a\0b", "nkq", "ckq", "no such thing", "ä" * 300, b"bytes", [], {}, (), set(),
    object(), print, len, nq, nq.NKQ, nq.NKQ(), nq.Uniform(), nq.Uniform, nq.Matern(1.5), range(3),
    [1, "a"], [[1.0], [1.0, 2.0]], np.zeros((0, 3)), np.zeros((2, 0)), np.zeros((2, 2, 2)),
    np.array(["a"]), np.array([None]), np.array([np.nan]), [1.0, 2.0], (3, 4), (0.5,),
    np.ma.masked_array([1.0, 2.0], mask=[True, False]), np.array([1 + 2j]), np.zeros(3),
    lambda *a: None, lambda *a: 1 / 0, lambda *a: "text", lambda *a: np.zeros((2, 3, 0)),
    lambda *a: a[0], varying_outputs(), problem(), pd.DataFrame(), DRAWS, DRAWS.assign(a="text"),
    SCENARIOS.astype(object), pd.Series([1.0]), {"a": 1}, {"a": nq.Normal()}, ["a"], "a",
]  # fmt: skip
JUNK = [*NUMBERS, *OBJECTS]

FAST = {"budget": 64, "rng": 0}
SMALL = {"budget": 512, "simulations": 512, "rng": 0}
POINTS = nq.plan(problem(), budget=64, method="nmc", rng=0)

CALLS = {
    "estimate": (nq.estimate, {"problem": problem(), "method": "nmc", **FAST}, [
        "tol", "rtol", "executor", "store", "progress", "max_seconds", "retries", "certify",
        "store_check"]),
    "conditional": (nq.conditional, {"problem": problem(), **FAST},
        ["method", "executor", "store", "store_check"]),
    "compare": (nq.compare, {"problem": problem(), "methods": "nmc", "replicates": 2, **FAST},
        ["progress"]),
    "plan": (nq.plan, {"problem": problem(), "method": "nmc", **FAST}, ["tol", "rtol"]),
    "analyze": (nq.analyze, {"plan": POINTS, "values": np.zeros(64)}, []),
    "expectation": (nq.expectation, {"h": lambda x: x[:, 0], "law": nq.Uniform(), "budget": 16},
        ["recipe", "points", "rng"]),
    "allocate": (nq.allocate, {"delta": 0.1}, ["method", "dim_x", "dim_theta", "s_x", "s_theta",
        "regime", "constant"]),
    "NestedExpectation": (
        lambda **given: nq.estimate(nq.NestedExpectation(**given), method="nmc", **FAST),
        {"outer": nq.Uniform(), "inner": nq.Uniform(), "g": lambda x, theta: x[..., 0]},
        ["f", "combine", "exact", "name", "tags", "smoothness", "vectorized", "noisy"]),
    "Uniform": (nq.Uniform, {}, ["low", "high", "dim"]),
    "Normal": (nq.Normal, {}, ["mean", "sd", "cov", "dim"]),
    "LogNormal": (nq.LogNormal, {}, ["mean", "sd", "dim"]),
    "Empirical": (nq.Empirical, {"samples": np.zeros((3, 1))}, ["weights"]),
    "Independent": (lambda a, b: nq.Independent(a, b), {"a": nq.Uniform(), "b": nq.Uniform()}, []),
    "Transport": (
        lambda **given: nq.estimate(problem(inner=nq.Transport(**given)), method="nmc", **FAST),
        {"fn": lambda u: u, "dim": 1}, ["base", "out_dim", "batch"]),
    "Sampler": (
        lambda **given: nq.estimate(problem(inner=nq.Sampler(**given)), method="nmc", **FAST),
        {"fn": lambda n, rng: rng.random((n, 1)), "dim": 1}, ["batch"]),
    "Given": (nq.Given, {"points": np.full((4, 1), 0.5)}, ["space"]),
    "Lattice": (nq.Lattice, {}, ["log2_max"]),
    "Matern": (nq.Matern, {"nu": 1.5}, ["lengthscale"]),
    "Gaussian": (nq.Gaussian, {}, ["lengthscale"]),
    "Anova": (nq.Anova, {"base": nq.Matern(1.5)}, ["order", "weight"]),
    "Jitter": (nq.Jitter, {}, ["start", "limit"]),
    "Schedule": (nq.Schedule, {}, ["grid"]),
    "KernelQuadrature": (nq.KernelQuadrature, {}, [
        "kernel", "space", "lengthscale", "regularization", "exact", "standardize"]),
    **{
        name: (
            lambda make=make, **given: nq.estimate(problem(), method=make(**given), **FAST), {}, own
        )
        for name, make, own in (
            ("NMC", nq.NMC, ["n_outer", "n_inner", "outer_points", "inner_points", "sharing"]),
            ("NKQ", nq.NKQ, ["n_outer", "n_inner", "outer_points", "sharing", "inner", "outer"]),
            ("CKQ", nq.CKQ, ["n_outer", "n_inner", "positive"]),
            ("LSMC", nq.LSMC, ["n_outer", "degree", "control_variates", "link", "outer_points"]),
            ("JointLattice", nq.JointLattice, ["n_outer", "periodization", "trend", "orders"]),
            ("JointProcess", nq.JointProcess, ["n_outer", "first", "batch", "active"]),
            ("MLMC", nq.MLMC, ["antithetic", "n_coarsest", "n_levels", "decay"]),
            ("MLKQ", nq.MLKQ, ["n_coarsest", "outer_points", "inner", "outer", "shared"]),
            ("Auto", nq.Auto, ["candidates"]),
        )
    },
    "risk.measure": (risk.measure, {"problem": loss(), "budget": 256, "rng": 0}, [
        "var", "es", "exceed", "outputs", "exposure", "default_curve", "recovery", "tol", "rtol",
        "executor", "store", "progress", "max_seconds", "retries", "store_check"]),
    "risk.from_table": (risk.from_table, {"frame": SCENARIOS, "var": 0.9, "es": 0.9},
        ["scenario", "loss", "exceed", "rng", "name"]),
    "design.Experiment": (lambda **given: design.eig(design.Experiment(**given), 1.0, **SMALL),
        {"prior": nq.Normal(), "log_prob": lambda data, theta, d: -((data - theta)[..., 0] ** 2),
         "simulate": lambda theta, e, d: theta + e, "noise": nq.Normal()}, ["target", "name"]),
    "design.eig": (design.eig, {"experiment": experiment(), "design": 1.0, **SMALL},
        ["tol", "rtol", "max_seconds", "executor", "progress"]),
    "design.compare": (design.compare, {"experiment": experiment(), "designs": [1.0, 2.0], **SMALL},
        ["criterion", "progress", "labels"]),
    "design.optimize": (design.optimize,
        {"experiment": experiment(), "candidates": [1.0, 2.0], **SMALL, "budget": 2048},
        ["bounds", "criterion", "progress"]),
    "design.decision_value": (design.decision_value,
        {"experiment": experiment(), "design": 1.0, "budget": 256, "rng": 0,
         "payoff": lambda theta: np.repeat(theta, 2, 1)}, ["max_seconds", "tol"]),
    "design.variance_reduction": (design.variance_reduction,
        {"experiment": experiment(), "design": 1.0, "budget": 256, "rng": 0}, ["max_seconds"]),
    "design.Sequential": (design.Sequential, {"experiment": experiment(), "particles": 64},
        ["rng"]),
    "voi.Model": (lambda **given: voi.Model(**given).evppi("a", **FAST),
        {"parameters": {"a": nq.Normal(), "b": nq.Normal()},
         "net_benefit": lambda p: (0.0 * p["a"], p["a"] + p["b"])},
        ["correlations", "options", "name", "costs_effects", "wtp", "derived"]),
    "voi.Model.evppi": (model().evppi, {"pars": "a", "budget": 256, "rng": 0},
        ["tol", "rtol", "method", "executor", "progress", "max_seconds", "wtp"]),
    "voi.Model.evpi": (model().evpi, {"budget": 256, "rng": 0}, ["tol", "wtp"]),
    "voi.Model.evsi": (model().evsi,
        {"design": voi.NormalTrial("a", 1.0), "sizes": 10, "n_runs": 60}, ["rng", "progress"]),
    "voi.Model.sample": (model().sample, {"n": 20}, ["rng"]),
    "voi.Outputs": (lambda **given: voi.evpi(voi.Outputs(**given)), COSTS,
        ["net_benefit", "options", "notes", "rows"]),
    "voi.evppi": (voi.evppi, {"outputs": BENEFITS, "inputs": DRAWS},
        ["pars", "rng", "progress", "answers"]),
    "voi.evsi": (voi.evsi, {"outputs": BENEFITS, "inputs": DRAWS,
        "design": voi.NormalTrial("a", 1.0), "sizes": 10}, ["rng", "progress", "answers"]),
    "voi.analyze": (voi.analyze, {"outputs": BENEFITS, "inputs": DRAWS},
        ["groups", "audience", "study", "rng", "progress", "files", "notes", "curve", "answers"]),
    **{
        f"voi.{name}": (getattr(voi, name), {"outputs": voi.Outputs(**COSTS)}, own)
        for name, own in (
            ("evpi", []), ("ceac", ["wtp"]), ("expected_loss", ["wtp"]), ("icers", []),
            ("incremental", ["reference"]), ("psa_summary", []),
        )
    },
    "voi.enbs": (voi.enbs, {"values": EVSI, **PEOPLE},
        ["discount", "fixed_cost", "cost_per_participant", "duration"]),
    "voi.best_sizes": (voi.best_sizes, {"values": voi.enbs(EVSI, **PEOPLE)}, []),
    "voi.population": (voi.population, {"values": 1.0, **PEOPLE},
        ["discount", "start"]),
    "voi.people": (voi.people, PEOPLE, ["discount", "start"]),
    "voi.Audience": (voi.Audience, PEOPLE, ["discount"]),
    "voi.Study": (voi.Study, {"design": voi.NormalTrial("a", 1.0), "sizes": [10]},
        ["fixed_cost", "cost_per_participant", "duration", "duration_each"]),
    "voi.BinaryTrial": (voi.BinaryTrial, {"pars": "a"}, ["ratio"]),
    "voi.CountTrial": (voi.CountTrial, {"pars": "a"}, ["time", "ratio"]),
    "voi.NormalTrial": (voi.NormalTrial, {"pars": "a", "sd": 1.0}, ["ratio"]),
    "voi.SurvivalTrial": (voi.SurvivalTrial, {"pars": "a", "follow_up": 1.0}, ["shape", "ratio"]),
    "voi.Combined": (lambda a, b: voi.Combined(a, b),
        {"a": voi.NormalTrial("a", 1.0), "b": voi.NormalTrial("b", 1.0)}, []),
    "voi.preview": (voi.preview, {"parameters": "no.csv"}, ["costs", "effects"]),
    "voi.read_csv": (voi.read_csv, {"path": "no.csv", "kind": "parameters"}, []),
    "voi.read_workbook": (voi.read_workbook, {"path": "no.xlsx"}, []),
}  # fmt: skip

# Functions of the user, called once by us: what they raise is theirs.
OPEN = {
    "design.compare": ["criterion"],
    "design.optimize": ["criterion"],
    "voi.enbs": ["duration"],
}

WORDS = [
    "estimate", "compare", "plan", "analyze", "problems", "voi", "risk", "design", "finance",
    "synthetic", "--var", "--es", "--design", "--groups",
    "--budget", "--tol", "--rtol", "--method", "--seed", "--json", "--report", "--store",
    "--max-seconds", "--workers", "--out", "--next", "--replicates", "--methods", "64", "1e30", "0",
    "32",
    "-1", "nan", "1e-3", "nmc", "nkq", "", "x\0y", "no.py:p", "junk.bin", "junk.json", "folder",
    "folder/x.html", "out.csv", "out.html", "=1+1", "ä",
]  # fmt: skip


def call(name, changed):
    """One call with some arguments replaced; None, or a raw traceback."""
    function, given, _ = CALLS[name]
    given = {**given, **changed}
    try:
        with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder, \
                contextlib.chdir(folder), contextlib.redirect_stderr(io.StringIO()), \
                contextlib.redirect_stdout(io.StringIO()):  # fmt: skip
            warnings.simplefilter("ignore")
            function(**given)
    except nq.NestquadError:
        return None
    except Exception as error:
        return error
    return None


def command(words):
    """One command line; None, or a raw traceback."""
    try:
        with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder, \
                contextlib.chdir(folder), contextlib.redirect_stderr(io.StringIO()), \
                contextlib.redirect_stdout(io.StringIO()):  # fmt: skip
            warnings.simplefilter("ignore")
            Path("junk.bin").write_bytes(bytes(range(256)))
            Path("junk.json").write_text('{"format": "nestquad plan", "version": 1}')
            Path("folder").mkdir()
            main(list(words))
    except SystemExit:
        return None
    except Exception as error:
        return error
    return None


def names_of(name):
    _, given, optional = CALLS[name]
    return [one for one in (*given, *optional) if one not in OPEN.get(name, ())]
