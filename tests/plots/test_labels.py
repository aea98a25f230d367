"""Labels of curves: at their ends, or right of the axes and connected to them."""

from __future__ import annotations

import pytest

pytest.importorskip("matplotlib")

from nestquad.plots import End, label_ends, new_axes


def drawn(curves):
    """Axes with curves of (x, y), and the labels by text."""
    _, (ax,) = new_axes(6.0, 4.0)
    for x, y in curves.values():
        ax.plot(x, y)
    label_ends(ax, [End(y[-1], name, "k", x[-1]) for name, (x, y) in curves.items()])
    return ax, {text.get_text(): text for text in ax.texts}


def leaders(ax):
    return [line for line in ax.get_lines() if line.get_transform() == ax.transAxes]


def at_end(ax, x, y):
    return (ax.transData + ax.transAxes.inverted()).transform((x, y))


def test_a_label_stands_where_its_curve_ends():
    ax, texts = drawn({"short": ([0, 3], [5, 5]), "long": ([0, 10], [0, 0])})
    x, y = at_end(ax, 3, 5)
    assert texts["short"].get_position() == pytest.approx((x + 0.015, y))
    assert texts["long"].get_position()[0] > 1
    assert not leaders(ax)


def test_a_line_leads_to_a_curve_whose_label_would_cover_another():
    curves = {"short": ([0, 3], [5, 5]), "long": ([0, 10], [5.2, 4.8]), "low": ([0, 10], [0, 0])}
    ax, texts = drawn(curves)
    assert all(text.get_position()[0] > 1 for text in texts.values())
    (line,) = leaders(ax)
    assert line.get_xydata()[0] == pytest.approx(at_end(ax, 3, 5))
    assert line.get_xydata()[1][1] == pytest.approx(texts["short"].get_position()[1])


def test_labels_do_not_cover_each_other():
    _, texts = drawn({"one": ([0, 3], [5, 5]), "two": ([0, 3], [5.1, 5.1]), "d": ([0, 9], [0, 0])})
    assert texts["one"].get_position()[0] < 1 < texts["two"].get_position()[0]


def test_labels_without_an_end_stand_right_of_the_axes():
    _, (ax,) = new_axes(6.0, 4.0)
    ax.plot([0, 1], [0, 1])
    label_ends(ax, [End(0.5, "level", "k"), End(0.5, "other", "k")])
    heights = [text.get_position()[1] for text in ax.texts]
    assert all(text.get_position()[0] > 1 for text in ax.texts)
    assert abs(heights[0] - heights[1]) > 0.02
