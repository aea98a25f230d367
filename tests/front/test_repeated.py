"""Repeated expectations against closed forms, quadrature and enumeration."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import nestquad as nq
from nestquad.cli import main
from studies.repeated.cases import CASES, bermudan, decision, sines
from studies.repeated.families import draw


def covers(est, exact):
    low, high = est.interval()
    return low <= exact <= high


def chained(depth, a=0.4):
    """Exponentials and logarithms in turn of a random walk: every level has a closed form."""
    slope, shift, f = 1.0, 0.0, []
    for level in reversed(range(depth - 1)):
        if (depth - 2 - level) % 2 == 0:  # E exp(a (y + z)) = exp(a y + a²/2)
            f.insert(0, lambda j: np.exp(a * j))
            slope, shift = a * slope, a * shift
            kind = "exp"
        else:
            f.insert(0, lambda j: np.log(j))
            kind = "log"
        if kind == "exp":
            shift += 0.5 * slope**2
    # After "exp", J = exp(slope y + shift); after "log", J = slope y + shift.
    exact = np.exp(shift) if kind == "exp" else shift
    laws = [nq.Normal(), *[lambda *y: nq.Normal(y[-1], 1.0)] * (depth - 1)]
    return nq.RepeatedExpectation(
        laws=laws, g=lambda last, *earlier: last[..., 0], f=f, exact=float(exact)
    )


def test_three_sines_to_four_digits_with_2000_evaluations():
    problem = sines()
    est = nq.estimate(problem, budget=2000, rng=1)
    assert est.n_evaluations <= 2000
    assert abs(est.value - np.exp(-0.5)) < 1e-4
    assert covers(est, np.exp(-0.5))
    assert est.half_width < 1e-4


@pytest.mark.parametrize("depth", [2, 3, 4, 5])
def test_closed_forms_at_every_depth(depth):
    problem = chained(depth)
    est = nq.estimate(problem, budget=1024, rng=depth)
    assert covers(est, problem.exact)
    assert est.half_width < 0.02 * max(abs(problem.exact), 0.1)


def test_two_levels_are_a_nested_expectation():
    nested = nq.problems.finance()
    repeated = nq.RepeatedExpectation(
        laws=[nested.outer, nested.inner], g=nested.g, f=[nested.f], exact=nested.exact
    )
    est = nq.estimate(repeated, budget=1024, rng=1)
    other = nq.estimate(nested, budget=1024, method="joint", rng=1)
    assert covers(est, nested.exact)
    np.testing.assert_allclose(est.value, other.value, atol=0.5 * other.std_error)
    assert 0.5 < est.std_error / other.std_error < 2.0


@pytest.mark.parametrize("family", ["smooth-3", "walk-3", "smooth-4", "walk-4"])
def test_intervals_hold_on_random_problems(family):
    problem = draw(family, 0)
    assert covers(nq.estimate(problem, budget=500, rng=0), problem.exact)


def test_a_decision_in_three_stages_against_enumeration():
    problem = decision()
    estimates = [nq.estimate(problem, budget=4096, rng=seed) for seed in range(8)]
    # Of 8 intervals with a coverage of .95, fewer than 6 hold with probability .006.
    assert sum(covers(est, problem.exact) for est in estimates) >= 6
    assert max(est.half_width for est in estimates) < 0.1 * problem.exact


def test_a_bermudan_put_against_a_tree():
    problem = bermudan(3)
    est = nq.estimate(problem, budget=4096, rng=2)
    assert covers(est, problem.exact)
    assert est.half_width < 0.005 * problem.exact
    # It is worth more than the European put, and less than its strike.
    assert 5.5735 < problem.exact < 100


def test_bars_have_errors_of_the_innermost_level():
    """A noisy innermost level: the error of J is the error of the answer."""
    problem = nq.RepeatedExpectation(
        laws=[nq.Normal(), lambda y0: nq.Normal(y0, 1.0), nq.Normal(0.0, 1.0)],
        g=lambda y2, y0, y1: np.sin(5.0 * y1[..., 0] * y2[..., 0]) + y1[..., 0],
        f=[lambda j: np.maximum(j, 0.0), lambda j: j],
    )
    # E[max(y0, 0)], since the sine is odd in y2.
    exact = 1.0 / np.sqrt(2.0 * np.pi)
    found = [nq.estimate(problem, budget=256, rng=seed) for seed in range(5)]
    assert sum(covers(est, exact) for est in found) >= 4
    errors = [abs(est.value - exact) for est in found]
    assert np.mean([est.std_error for est in found]) > 0.4 * np.mean(errors)


def test_levels_of_several_coordinates_with_kinks():
    """J_2 is the sum of y_1, exactly, and J_1 the Bachelier price of a call on it."""
    problem = nq.RepeatedExpectation(
        laws=[nq.Normal(np.zeros(3)), lambda a: nq.Normal(a, 1.0), lambda a, b: nq.Normal(b, 1.0)],
        g=lambda y, a, b: y.sum(axis=-1),
        f=[lambda j: np.maximum(j - 1.0, 0.0), lambda j: np.maximum(j, 0.0)],
        exact=0.3541875233,
    )
    found = [nq.estimate(problem, budget=1000, rng=seed) for seed in range(2)]
    errors = np.array([est.value - problem.exact for est in found])
    assert all(covers(est, problem.exact) for est in found)
    assert np.abs(errors).max() < 2e-3 * problem.exact
    assert np.abs(errors.mean()) < 1e-3 * problem.exact


def test_a_level_that_cannot_be_learned_is_named():
    problem = nq.RepeatedExpectation(
        laws=[nq.Uniform(), nq.Uniform(), nq.Uniform()],
        g=lambda y2, y0, y1: y2[..., 0] + y0[..., 0] + y1[..., 0],
        f=[
            lambda j: np.maximum(j, 0.0),
            lambda j, y0, y1: np.sin(3000.0 * y0[:, 0] * (1.0 + y1[:, 0])) + 0.0 * j,
        ],
    )
    est = nq.estimate(problem, budget=512, rng=0)
    assert any("hardly learned" in note for note in est.diagnostics["notes"])
    # J_1 is about 1/3000 for most y0: the average of its positive part is nearly zero.
    low, high = est.interval()
    assert low <= 0.01
    assert high >= 0.0


def test_an_innermost_level_that_cannot_be_learned_is_named():
    problem = nq.RepeatedExpectation(
        laws=[nq.Uniform(), nq.Uniform(), nq.Uniform()],
        g=lambda y2, y0, y1: np.sign(np.sin(4000.0 * y1[..., 0] * (1 + y0[..., 0]))) + y2[..., 0],
        f=[lambda j: j**2, lambda j: np.abs(j - 0.5)],
        exact=1.0,  # |±1|, squared
    )
    est = nq.estimate(problem, budget=1024, rng=0)
    notes = " ".join(est.diagnostics["notes"])
    assert "unexplained" in notes
    assert covers(est, 1.0) or est.status == "unreliable"


def test_events_that_no_point_reaches_have_a_bound():
    problem = nq.RepeatedExpectation(
        laws=[nq.Normal(), lambda y0: nq.Normal(y0, 1.0), lambda y0, y1: nq.Normal(y1, 1.0)],
        g=lambda y2, y0, y1: y2[..., 0],
        f=[lambda j: j, lambda j: np.maximum(j - 40.0, 0.0)],
    )
    est = nq.estimate(problem, budget=512, rng=0)
    assert est.std_error > 0


def test_several_outputs_and_coordinates():
    problem = nq.RepeatedExpectation(
        laws=[
            nq.Normal([0.0, 1.0], 1.0),
            lambda y0: nq.Normal(y0, 0.5),
            lambda y0, y1: nq.Normal(y1.sum(axis=1, keepdims=True), 1.0),
        ],
        g=lambda y2, y0, y1: np.stack(np.broadcast_arrays(y2[..., 0], 2.0 * y1[..., 1]), axis=-1),
        f=[
            lambda j: np.stack([j[:, 0], j[:, 0] ** 2], axis=-1),
            lambda j, y0: j + y0[:, :1],
        ],
    )
    # J_1 = (y00 + y01 + y00, 2 y01 + y00): mean of the first and of its square.
    est = nq.estimate(problem, budget=1024, rng=0)
    np.testing.assert_allclose(est.value, [1.0, 5.0 + 1.0], rtol=1e-4)
    assert est.covariance.shape == (2, 2)


def test_the_same_bits_with_workers_a_store_and_a_plan(tmp_path):
    problem = sines()
    plain = nq.estimate(problem, budget=256, rng=3)
    with ThreadPoolExecutor(2) as pool:
        assert nq.estimate(problem, budget=256, rng=3, executor=pool).value == plain.value
    for reused in (0, 256):
        stored = nq.estimate(problem, budget=256, rng=3, store=tmp_path / "store")
        assert stored.value == plain.value
        assert stored.diagnostics["n_reused"] == reused
    points, est = nq.plan(problem, budget=256, rng=3), None
    while points is not None:
        values = np.concatenate([x[:, 0] for _, x in points.blocks()])
        est, points = nq.analyze(points, values), points.next(values)
    assert est.value == plain.value


def test_a_tolerance_and_progress():
    seen = []
    problem = chained(3)
    est = nq.estimate(
        problem, tol=1e-3, budget=20_000, rng=0, progress=lambda *args: seen.append(args)
    )
    assert est.status == "converged"
    assert abs(est.value - problem.exact) < 1e-3
    assert seen


def test_nested_monte_carlo():
    problem = draw("smooth-3", 0)
    found = [nq.estimate(problem, budget=40_000, method="nmc", rng=seed) for seed in range(20)]
    assert sum(covers(est, problem.exact) for est in found) >= 16
    assert found[0].diagnostics["sizes"][1:] == (14, 14)
    tight = nq.estimate(problem, tol=0.05, method="nmc", rng=0)
    assert tight.status == "converged"
    assert tight.half_width <= 0.05
    with pytest.raises(nq.InputError, match="at least 8"):
        nq.estimate(problem, budget=6, method="nmc")


def test_the_command_line(tmp_path, capsys):
    file = tmp_path / "walk.py"
    file.write_text(
        "import nestquad as nq\n"
        "problem = nq.RepeatedExpectation(\n"
        "    laws=[nq.Normal(), lambda y0: nq.Normal(y0), lambda y0, y1: nq.Normal(y1)],\n"
        "    g=lambda y2, y0, y1: y2[..., 0], f=[lambda j: j**2, None], exact=1.0)\n"
    )
    assert main(["estimate", f"{file}:problem", "--budget", "256", "--seed", "0"]) == 0
    assert "problem: 1" in capsys.readouterr().out
    out = tmp_path / "points.csv"
    assert (
        main(["plan", f"{file}:problem", "--budget", "256", "--seed", "0", "--out", str(out)]) == 0
    )
    assert out.read_text().startswith("id,theta_1,theta_2,x_1")
    assert main(["compare", f"{file}:problem", "--budget", "256"]) != 0
    assert "nestquad estimate" in capsys.readouterr().err


def three(**changes):
    given = {
        "laws": [nq.Normal(), lambda y0: nq.Normal(y0, 1.0), lambda y0, y1: nq.Normal(y1, 1.0)],
        "g": lambda y2, y0, y1: y2[..., 0],
        "f": [None, None],
    }
    return nq.RepeatedExpectation(**{**given, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"laws": nq.Normal()}, "laws: got"),
        ({"laws": [nq.Normal()]}, "at least two laws"),
        ({"f": [None]}, r"f: got 1 for 3 laws; expected a list of 2"),
        ({"f": None}, "f: got None"),
        ({"f": [None, 3.0]}, r"f\[1\]: got float"),
        ({"g": lambda y2, y0: y2}, r"g\(y2, y0, y1\)"),
        ({"g": 1.0}, "g: got float"),
        (
            {
                "laws": [nq.Sampler(lambda n, r: r.random((n, 1)), 1), nq.Normal()],
                "f": [None],
                "g": None,
            },
            r"laws\[0\]: got a law that can only be sampled",
        ),
        ({"laws": [nq.Normal(), nq.Normal(), lambda y0, y1: "law"]}, r"laws\[2\]"),
        ({"laws": [nq.Normal(), lambda y0: nq.Normal(y0[:, 5:6]), nq.Normal()]}, r"laws\[1\]"),
    ],
)
def test_bad_input_is_named(changes, message):
    with pytest.raises(nq.InputError, match=message):
        three(**changes)


def of_changing_dimension(y0):
    return nq.Normal(np.zeros((len(y0), 1 if len(y0) < 8 else 2)), 1.0)


@pytest.mark.parametrize("level", [1, 2])
def test_a_law_that_changes_its_dimension_is_named(level):
    laws = [nq.Normal(), lambda y0: nq.Normal(y0, 1.0), lambda y0, y1: nq.Normal(y1, 1.0)]
    laws[level] = lambda *y: of_changing_dimension(y[0])
    with pytest.raises(nq.InputError, match=rf"laws\[{level}\]: got a law of 2"):
        nq.estimate(three(laws=laws), budget=256, rng=0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"g": lambda y2, y0, y1: y2[:, 0]}, "g returned an array of shape"),
        ({"f": [None, lambda j: j.sum()]}, r"f\[1\] returned an array of shape \(\)"),
        ({"f": [lambda j, y0: j + y0, None]}, r"f\[0\] returned an array of shape \(\d+, \d+\)"),
        ({"f": [None, lambda j, y0, y1: j / y2]}, r"f\[1\] raised NameError"),  # noqa: F821
        ({"f": [lambda j: np.log(j), None]}, r"f\[0\] returned nan"),
    ],
)
def test_failures_are_named(changes, message):
    with pytest.raises(nq.EvaluationError, match=message):
        nq.estimate(three(**changes), budget=256, rng=0)


def test_refusals():
    problem = three()
    with pytest.raises(nq.InputError, match="certify"):
        nq.estimate(problem, budget=512, certify=True)
    with pytest.raises(nq.InputError, match="'auto', 'joint' or 'nmc'"):
        nq.estimate(problem, budget=512, method="ckq")
    for door in (nq.conditional, nq.compare):
        with pytest.raises(nq.InputError, match="RepeatedExpectation"):
            door(problem, budget=512)


def test_it_is_shown_in_a_notebook():
    html = sines()._repr_html_()
    for word in ("y_2", "f_1", "3 levels"):
        assert word in html


def test_every_case_has_an_exact_value():
    assert {name for name in CASES if CASES[name]().exact is None} == set()


@pytest.mark.parametrize("method", ["auto", "nmc"])
@pytest.mark.parametrize("size", [1e-160, 1e160])
def test_sizes_out_of_range_are_refused(size, method):
    """Squares of values would be zero or infinite, and f of a level takes values as they are."""
    laws = [nq.Normal(), lambda y0: nq.Normal(y0, 1.0), lambda y0, y1: nq.Normal(y1, 1.0)]
    problem = nq.RepeatedExpectation(laws, lambda y, y0, y1: size * y[..., 0], [np.abs, np.abs])
    with pytest.raises(nq.EvaluationError, match="another unit"):
        nq.estimate(problem, budget=500, method=method, rng=0)


def test_errors_name_the_level():
    laws = [nq.Normal(), lambda y0: nq.Normal(y0, 1.0), lambda y0, y1: nq.Normal(y1, 1.0)]
    problem = nq.RepeatedExpectation(
        laws, lambda y, y0, y1: y[..., 0], [lambda j, y0: j + y0, None]
    )
    with pytest.raises(nq.EvaluationError, match=r"^f\[0\] returned an array of shape"):
        nq.estimate(problem, budget=500, rng=0)
