"""Figures: real pictures with content, one look for each method, and true words on the axes."""

from __future__ import annotations

import itertools
import sys
from dataclasses import replace

import matplotlib as mpl
import matplotlib.image
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

import nestquad as nq
from nestquad.compare import Comparison, Row
from nestquad.methods import METHODS
from nestquad.plots import (
    answer_text,
    method_styles,
    new_axes,
    plot_comparison,
    plot_estimate,
    plot_trace,
    plus_minus,
    save,
)
from nestquad.result import NORMAL_95, Estimate, OuterSample

mpl.use("Agg")

KNOWN = ["nmc", "nqmc", "nkq", "ckq", "joint", "process", "mlmc", "mlkq", "lsmc", "auto"]


def draw(function, result):
    figure, (ax,) = new_axes()
    assert function(result, ax) is ax
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    image = np.asarray(canvas.buffer_rgba())[..., :3] / 255
    assert 0.005 < (image.min(axis=-1) < 0.8).mean() < 0.5  # ink, on much white
    assert_nothing_overlaps(ax)
    return ax


def assert_nothing_overlaps(ax):
    """Texts right of the axes, the title and the axis labels keep clear of each other."""
    texts = [t for t in (*ax.texts, ax._left_title, ax.xaxis.label) if t.get_text()]
    boxes = [text.get_window_extent().padded(-0.5) for text in texts]
    for (a, box_a), (b, box_b) in itertools.combinations(zip(texts, boxes, strict=True), 2):
        assert not box_a.overlaps(box_b), (a.get_text(), b.get_text())


def labels(ax) -> str:
    return " | ".join(text.get_text() for text in ax.texts)


def made_up(f, j, theta=None, weights=None, **changes) -> Estimate:
    f = np.asarray(f, dtype=float).reshape(len(f), -1)
    theta = np.linspace(0.0, 1.0, len(f))[:, None] if theta is None else theta
    weights = np.full(f.shape, 1.0 / len(f)) if weights is None else weights
    means = (weights * f).sum(axis=0)
    fields = {
        "value": float(means[0]),
        "std_error": 0.1,
        "n_evaluations": 100,
        "n_outer": len(f),
        "n_inner": 10,
        "method": "nkq",
        "sample": OuterSample(theta, np.asarray(j, dtype=float), f, weights),
    }
    return Estimate(**{**fields, **changes})


@pytest.fixture(scope="module")
def finance() -> Estimate:
    return nq.estimate(nq.problems.finance(), tol=0.05, method="nkq", rng=3)


def row(method: str, budget: int, error: float | None, **changes) -> Row:
    fields = {
        "method": method,
        "budget": budget,
        "n_evaluations": budget,
        "value": 1.0,
        "mean_abs_error": error,
        "rmse": error,
        "spread": 0.3,
        "half_width": 0.5,
        "coverage": None if error is None else 1.0,
        "seconds": 0.1,
    }
    return Row(**{**fields, **changes})


def table(*rows: Row, **changes) -> Comparison:
    return replace(Comparison("made up", 1.0, 5, rows), **changes)


@pytest.mark.parametrize("name", nq.problems.names())
def test_every_problem_is_drawn(name):
    est = nq.estimate(nq.problems.get(name), budget=512, rng=1, method="nqmc")
    ax = draw(plot_estimate, est)
    assert ax.get_title(loc="left") == f"{name}: {answer_text(est)} (95 %)"


def test_points_of_one_theta_are_theta_against_f(finance):
    ax = draw(plot_estimate, finance)
    drawn = np.asarray(ax.collections[0].get_offsets())
    order = np.argsort(finance.sample.theta[:, 0])
    size = np.abs(finance.sample.weights[order, 0])
    order = order[size >= 1e-2 * size.max()]  # others are left out
    expected = np.column_stack([finance.sample.theta[order, 0], finance.sample.f[order, 0]])
    np.testing.assert_allclose(drawn, expected)
    (line,) = [line for line in ax.lines if len(line.get_xdata()) == len(order)]
    np.testing.assert_allclose(line.get_ydata(), finance.sample.j[order])


def test_area_of_a_point_is_its_weight():
    weights = np.array([[0.1], [0.2], [0.4], [0.3]])
    ax = draw(plot_estimate, made_up([1, 2, 3, 4], [1, 2, 3, 5], weights=weights))
    areas = ax.collections[0].get_sizes()
    np.testing.assert_allclose(areas / areas[0], [1, 2, 4, 3])


def test_a_negative_weight_is_hollow_and_the_axis_says_so():
    weights = np.array([[0.6], [-0.2], [0.6]])
    ax = draw(plot_estimate, made_up([1, 2, 4], [1, 2, 5], weights=weights))
    faces = ax.collections[0].get_facecolors()[:, :3]
    np.testing.assert_allclose(faces[1], 1.0)
    assert not np.allclose(faces[0], 1.0)
    assert "hollow: negative" in ax.get_xlabel()


def test_j_is_left_out_in_words_when_it_would_flatten_f():
    ax = draw(plot_estimate, made_up([0, 1, 1, 0], [1e3, 2e3, 3e3, 4e3]))
    assert "J has another scale" in ax.get_xlabel()
    assert np.ptp(ax.get_ylim()) < 2


def test_no_j_where_f_is_the_identity():
    ax = draw(plot_estimate, made_up([1, 2, 3], [1, 2, 3]))
    assert "J(θ)" not in labels(ax).replace("f(J(θ))", "")


def test_several_answers_have_their_own_means():
    f = np.column_stack([np.arange(8.0), 10 - np.arange(8.0)])
    est = made_up(f, f, value=np.array([3.5, 6.5]), std_error=np.array([0.1, 0.2]))
    ax = draw(plot_estimate, est)
    assert "mean 3.50 ± 0.20" in labels(ax)
    assert "mean 6.50 ± 0.39" in labels(ax)


def test_combined_answer_claims_no_interval_for_the_parts():
    f = np.column_stack([np.arange(8.0), 10 - np.arange(8.0)])
    ax = draw(plot_estimate, made_up(f, f, value=-3.0, std_error=0.1))
    assert "mean 3.5" in labels(ax)
    assert "±" not in labels(ax)
    assert "-3.00 ± 0.20" in ax.get_title(loc="left")


def test_several_coordinates_show_the_weighted_distribution():
    f = np.array([0.0] * 30 + [1.0] * 10)
    weights = np.concatenate([np.full(30, 0.2 / 30), np.full(10, 0.8 / 10)])[:, None]
    est = made_up(f, f + 1, theta=np.zeros((40, 2)), weights=weights)
    ax = draw(plot_estimate, est)
    heights = [patch.get_data().values for patch in ax.patches]
    for values in heights:
        assert values[0] == pytest.approx(0.2)
        assert values[-1] == pytest.approx(0.8)
        assert values.sum() == pytest.approx(1.0)


def test_single_expectation_is_about_h_and_x():
    est = nq.expectation(lambda x: np.exp(x[:, 0]), nq.Normal(), budget=32, rng=0)
    ax = draw(plot_estimate, est)
    assert ax.get_ylabel() == "h(x)"
    assert ax.get_xlabel().startswith("x")


def test_estimate_without_sample_says_so():
    with pytest.raises(nq.InputError, match="without its outer sample"):
        plot_estimate(replace(made_up([1, 2], [1, 2]), sample=None))
    with pytest.raises(nq.InputError, match="without a trace"):
        plot_trace(made_up([1, 2], [1, 2]))


def test_trace_shows_values_bars_and_the_exact_value(finance):
    ax = draw(plot_trace, finance)
    bars = ax.containers[0]
    counts, values = bars[0].get_data()
    np.testing.assert_allclose(counts, [step.n_evaluations for step in finance.trace])
    np.testing.assert_allclose(values, [step.value for step in finance.trace])
    segments = bars[2][0].get_segments()
    half = [np.ptp(segment[:, 1]) / 2 for segment in segments]
    np.testing.assert_allclose(half, [NORMAL_95 * s.std_error for s in finance.trace], rtol=1e-9)
    assert "exact 3.07365" in labels(ax)


def test_one_budget_is_sorted_dots_with_claims():
    ax = draw(plot_comparison, table(row("nkq", 100, 0.01), row("nmc", 100, 0.2)))
    assert [t.get_text() for t in ax.get_yticklabels()] == ["nmc", "nkq"]
    assert ax.get_xscale() == "log"
    assert ax.get_xlabel() == "mean |error| (log scale)"
    assert "0.01, covered 100 %" in labels(ax)


@pytest.mark.parametrize("order", [0.5, 1.25])
def test_several_budgets_have_the_fitted_slope(order):
    budgets = (100, 1000, 10_000)
    rows = [row("nkq", n, 3.0 * n**-order) for n in budgets]
    ax = draw(plot_comparison, table(*rows))
    assert f"{-order:.2f}" in labels(ax)
    assert ax.get_xscale() == ax.get_yscale() == "log"


def test_unknown_exact_value_shows_the_spread_and_says_so():
    ax = draw(plot_comparison, table(row("nkq", 100, None), row("nmc", 100, None), exact=None))
    assert ax.get_xlabel() == "spread over replicates, exact value unknown (log scale)"


def test_single_replicate_shows_the_claim_and_says_so():
    rows = [row("nkq", n, None, spread=float("nan")) for n in (10, 100)]
    ax = draw(plot_comparison, table(*rows, exact=None, replicates=1))
    assert "claimed half-width" in ax.get_ylabel()


def test_an_error_of_zero_does_not_break_the_log_axis():
    draw(plot_comparison, table(row("nkq", 100, 0.0), row("nmc", 100, 0.2)))
    draw(plot_comparison, table(row("nkq", 100, 0.0), row("nkq", 1000, 0.2)))


def test_ten_methods_with_equal_errors_keep_their_labels_apart():
    rows = [row(m, n, 1.0 / n) for m in [*KNOWN, "mine"] for n in (100, 1000)]
    draw(plot_comparison, table(*rows))
    draw(plot_comparison, table(*(r for r in rows if r.budget == 100)))


def test_dollar_signs_of_a_name_are_no_formula():
    draw(plot_comparison, table(row("a$\\x$", 100, 0.1), row("nkq", 100, 0.2), problem="$\\bad$"))
    rows = [row("a$\\x$", n, 0.1) for n in (10, 100)]
    draw(plot_comparison, table(*rows, problem="$\\bad$"))


def test_every_method_has_a_style_of_its_own():
    assert set(METHODS) <= set(KNOWN)
    styles = method_styles(KNOWN)
    for attribute in ("color", "marker", "dashes"):
        assert len({getattr(style, attribute) for style in styles.values()}) == len(KNOWN)


def test_styles_do_not_depend_on_the_company():
    alone = method_styles(["nkq"])["nkq"]
    assert method_styles(["mine", "NKQ(n_inner=4)", "nmc"])["NKQ(n_inner=4)"] == alone


def test_configurations_of_one_method_are_told_apart():
    styles = method_styles([f"NKQ(n_inner={n})" for n in (2, 4, 8)])
    assert len({(s.color, s.marker) for s in styles.values()}) == 3


def test_labels_are_readable_on_white():
    for style in method_styles(KNOWN).values():
        linear = [
            c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(style.color)
        ]
        luminance = np.dot([0.2126, 0.7152, 0.0722], linear)
        assert 1.05 / (luminance + 0.05) >= 3.0  # WCAG's contrast for graphics


@pytest.mark.parametrize(
    ("value", "half", "text"),
    [
        (3.0708528, 0.0079874, "3.0709 ± 0.0080"),
        (3.07, 0.0999, "3.07 ± 0.10"),
        (-1.0, 0.25, "-1.00 ± 0.25"),
        (247.91, 29.2, "248 ± 29"),
        (1e-12, 2e-14, "1e-12 ± 2.0e-14"),
        (1.5, 0.0, "1.5 ± 0"),
        (1.5, float("nan"), "1.5 ± nan"),
    ],
)
def test_plus_minus(value, half, text):
    assert plus_minus(value, half) == text


def test_saved_files_are_what_their_suffix_says(tmp_path, finance):
    figure, (ax,) = new_axes()
    plot_estimate(finance, ax)
    assert b"%PDF" in save(figure, tmp_path / "a.pdf").read_bytes()[:5]
    image = mpl.image.imread(save(figure, tmp_path / "a.png"))
    assert min(image.shape[:2]) > 500
    assert image[..., :3].std() > 0.01


def test_equal_figures_give_equal_bytes(tmp_path, finance):
    written = []
    for name in ("a.svg", "b.svg"):
        figure, (ax,) = new_axes()
        plot_trace(finance, ax)
        written.append(save(figure, tmp_path / name).read_bytes())
    assert b"<svg" in written[0]
    assert written[0] == written[1]


def test_the_front_doors_draw_with_pyplot_or_on_given_axes(finance):
    import matplotlib.pyplot as plt

    before, others = dict(mpl.rcParams), plt.get_fignums()
    ax = finance.plot()
    assert ax.figure.number in plt.get_fignums()
    plt.close(ax.figure)
    given = Figure().add_subplot()
    assert finance.plot(given) is given
    assert table(row("nkq", 100, 0.1)).plot(given) is given
    assert plt.get_fignums() == others
    assert dict(mpl.rcParams) == before


def test_missing_matplotlib_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(nq.MissingExtraError, match=r"\[plot\]"):
        new_axes()
    with pytest.raises(nq.MissingExtraError, match=r"\[plot\]"):
        plot_comparison(table(row("nkq", 100, 0.1)))
