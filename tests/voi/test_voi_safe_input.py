"""No wrong answer in silence: tables as people have them are understood, noted or refused."""

from __future__ import annotations

import io

import numpy as np
import pandas as pd
import pytest

import nestquad as nq
from nestquad import voi
from nestquad.cli import main

N = 60
RNG = np.random.default_rng(0)
P = pd.DataFrame(RNG.normal(size=(N, 2)).round(3), columns=["p", "q"])
COSTS = pd.DataFrame({"SoC": 100.0 + P.p, "Drug": 900.0 + 50 * P.q}).round(3)
EFFECTS = pd.DataFrame({"SoC": 1.0 + 0 * P.p, "Drug": 1.04 + 0.05 * P.q}).round(4)
WTP = 20_000
TRUTH = float(voi.evpi((COSTS, EFFECTS, WTP)).evpi[0])


def evpi_of(costs, effects, **kwargs):
    return float(voi.evpi(voi.Outputs(costs, effects, WTP, **kwargs)).evpi[0])


def file(name, frame_or_text, **kwargs):
    text = frame_or_text
    if isinstance(text, pd.DataFrame):
        text = text.to_csv(index=False, **kwargs)
    return name, text.encode()


# Options by name.


def test_options_are_matched_by_name():
    swapped = EFFECTS[["Drug", "SoC"]]
    assert evpi_of(COSTS, swapped) == pytest.approx(TRUTH)
    outputs = voi.Outputs(COSTS, swapped, WTP)
    assert outputs.options == ("SoC", "Drug")
    assert "by name" in outputs.notes[-1]


def test_options_called_option_1_are_matched_by_name_too():
    names = {"SoC": "option 1", "Drug": "option 2"}
    one, other = COSTS.rename(columns=names), EFFECTS.rename(columns=names)
    assert evpi_of(one, other[["option 2", "option 1"]]) == pytest.approx(TRUTH)
    with pytest.raises(nq.InputError, match="the same names in both"):
        voi.Outputs(one, EFFECTS, WTP)
    # A matrix has no names that could disagree.
    outputs = voi.Outputs(COSTS.to_numpy(), EFFECTS, WTP)
    assert outputs.options == ("SoC", "Drug")
    assert outputs.notes == ("options of costs, which have no names, are in the order of effects",)
    assert float(voi.evpi(outputs).evpi[0]) == pytest.approx(TRUTH)


@pytest.mark.parametrize(
    ("costs", "effects", "options"),
    [
        (["cost_SoC", "cost_Drug"], ["qaly_Drug", "qaly_SoC"], ("SoC", "Drug")),
        (["SoC cost", "Drug cost"], ["Drug QALYs", "SoC QALYs"], ("SoC", "Drug")),
        (["costs1", "costs2"], ["effects2", "effects1"], ("option 1", "option 2")),
        (["c.SoC", "c.Drug"], ["e.Drug", "e.SoC"], ("SoC", "Drug")),
        (["soc", "DRUG"], ["Drug", "SoC"], ("soc", "DRUG")),
    ],
)
def test_options_are_matched_without_prefixes_and_case(costs, effects, options):
    one, other = COSTS.set_axis(costs, axis=1), EFFECTS[["Drug", "SoC"]].set_axis(effects, axis=1)
    assert evpi_of(one, other) == pytest.approx(TRUTH)
    assert voi.Outputs(one, other, WTP).options == options


def test_names_that_do_not_match_are_refused_with_both_lists():
    other = EFFECTS.set_axis(["Usual", "Drug"], axis=1)
    with pytest.raises(nq.InputError) as caught:
        voi.Outputs(COSTS, other, WTP)
    for word in ("'SoC', 'Drug' in costs", "'Usual', 'Drug' in effects"):
        assert word in str(caught.value)
    assert evpi_of(COSTS, other, options=("a", "b")) == pytest.approx(TRUTH)  # said by the user
    assert evpi_of(COSTS, EFFECTS.to_numpy()) == pytest.approx(TRUTH)


# Columns that count or name the rows.

COUNTS = {
    "Iteration": np.arange(1, N + 1),
    "Sim": np.arange(N),
    "X": np.arange(1, N + 1),
    "Unnamed: 0": np.arange(N),
    "sim_id": 5 * np.arange(N) + 3,
    "": [f"row {k}" for k in range(N)],
    "draw": [f"d{k}" for k in range(N)],
}


@pytest.mark.parametrize("name", COUNTS)
def test_row_numbers_are_no_option(name):
    def numbered(frame):
        return pd.concat([pd.Series(COUNTS[name], name=name), frame], axis=1)

    outputs = voi.Outputs(numbered(COSTS), numbered(EFFECTS), WTP)
    assert outputs.options == ("SoC", "Drug")
    assert float(voi.evpi(outputs).evpi[0]) == pytest.approx(TRUTH)
    assert sum("the rows and is left out" in note for note in outputs.notes) == 2
    table = voi.read_csv(file("c.csv", numbered(COSTS)), "costs")
    assert table.columns.tolist() == ["SoC", "Drug"]
    parameters = voi.read_csv(file("p.csv", numbered(P)), "parameters")
    assert parameters.columns.tolist() == ["p", "q"]


def test_r_row_names(tmp_path):
    table = COSTS.rename(index=lambda k: str(k + 1))
    text = table.to_csv(sep=" ", quoting=2).replace('"" ', "", 1)  # as write.table
    found = voi.read_csv(file("c.txt", text), "costs")
    pd.testing.assert_frame_equal(found, COSTS)


@pytest.mark.parametrize("separator", [" ", "\t", ",", ";"])
def test_r_write_table_with_any_separator(separator):
    table = COSTS.rename(index=lambda k: str(k + 1))
    text = table.to_csv(sep=separator, quoting=2).replace(f'""{separator}', "", 1)
    pd.testing.assert_frame_equal(voi.read_csv(file("c.txt", text), "costs"), COSTS)


@pytest.mark.parametrize("above", ["sep=;\n", '"sep=;"\r\n', "\n", "\n \nsep=;\n", "\ufeffsep=;\n"])
def test_lines_above_the_header(above):
    text = above + COSTS.to_csv(index=False, sep=";")
    pd.testing.assert_frame_equal(voi.read_csv(file("c.csv", text), "costs"), COSTS)
    lines = text.split("\n")
    lines[-3] = "1.5;oops"
    with pytest.raises(nq.InputError, match=f"line {len(lines) - 2} of the file"):
        voi.read_csv(file("c.csv", "\n".join(lines)), "costs")


def test_a_cell_too_many_is_no_row_name():
    text = "SoC,Drug\n" + "\n".join(f"{k // 9 + 1},{100 + k},5.5" for k in range(N))
    with pytest.raises(nq.InputError, match="lines of different lengths"):
        voi.read_csv(file("c.csv", text), "costs")


def test_a_column_that_may_count_rows_is_refused():
    odd = COSTS.assign(Other=np.arange(1, N + 1))
    with pytest.raises(nq.InputError, match="2 options in costs and 3 options in effects"):
        voi.Outputs(odd, EFFECTS.assign(Other=1.0), WTP)
    chains = COSTS.assign(Iteration=np.tile(np.arange(N // 2), 2))
    with pytest.raises(nq.InputError, match="'Iteration', which does not number the rows"):
        voi.Outputs(chains, EFFECTS.assign(Iteration=1.0), WTP)


def test_an_option_may_be_called_x_or_no():
    rng = np.random.default_rng(3)
    costs = pd.DataFrame(rng.permutation(10 * N)[: 2 * N].reshape(N, 2), columns=["X", "No"])
    outputs = voi.Outputs(costs, EFFECTS.set_axis(["No", "X"], axis=1), WTP)
    assert outputs.options == ("X", "No")


SHUFFLED = np.random.default_rng(2).permutation(N)


def numbered(frame, name, first=1, order=None):
    frame = pd.concat([pd.Series(np.arange(first, first + N), name=name), frame], axis=1)
    return frame if order is None else frame.iloc[order]


@pytest.mark.parametrize(
    ("name", "first"), [("Iteration", 1), ("sim", 0), ("", 1), ("X", 1), ("draw", 1001)]
)
@pytest.mark.parametrize("moved", ["parameters", "costs", "effects"])
def test_rows_are_matched_by_their_names(name, first, moved):
    tables = {"parameters": P, "costs": COSTS, "effects": EFFECTS}
    files = {
        kind: file(f"{kind}.csv", numbered(t, name, first, SHUFFLED if kind == moved else None))
        for kind, t in tables.items()
    }
    seen = voi.preview(**files)
    assert not seen.problems
    assert sum(f"rows of {moved} are in the order of" in note for note in seen.notes) == 1
    np.testing.assert_array_equal(seen.parameters, P)
    np.testing.assert_array_equal(seen.costs, COSTS)
    np.testing.assert_array_equal(seen.effects, EFFECTS)
    assert float(voi.evpi(seen.outputs(WTP)).evpi[0]) == pytest.approx(TRUTH)


@pytest.mark.parametrize("as_index", [True, False])
def test_rows_of_data_frames_are_matched_by_their_names(as_index):
    costs, effects, inputs = (numbered(t, "Iteration", order=o) for t, o in
        ((COSTS, SHUFFLED), (EFFECTS, None), (P, SHUFFLED[::-1])))  # fmt: skip
    if as_index:
        costs, effects, inputs = (t.set_index("Iteration") for t in (costs, effects, inputs))
    outputs = voi.Outputs(costs, effects, WTP)
    np.testing.assert_array_equal(outputs.costs, COSTS)
    assert any("rows of costs are in the order of effects" in note for note in outputs.notes)
    expected = voi.evppi((COSTS, EFFECTS, WTP), P)
    pd.testing.assert_frame_equal(voi.evppi(outputs, inputs), expected)
    both = voi.Outputs(costs, effects.iloc[SHUFFLED], WTP)  # both in the order of costs
    np.testing.assert_array_equal(both.costs, COSTS.iloc[SHUFFLED])
    together = voi.evppi(both, inputs).evppi
    same_order = voi.evppi((COSTS.to_numpy()[SHUFFLED], EFFECTS.to_numpy()[SHUFFLED], WTP),
        P.iloc[SHUFFLED].reset_index(drop=True)).evppi  # fmt: skip
    pd.testing.assert_series_equal(together, same_order)


def test_a_table_without_names_follows_rows_in_order():
    """Parameters have no names of rows; costs count them, so the draws are in order."""
    seen = voi.preview(P, numbered(COSTS, "Iteration"), numbered(EFFECTS, "sim", 0, SHUFFLED))
    np.testing.assert_array_equal(seen.effects, EFFECTS)
    assert "rows of parameters, which have no names, are taken in that order" in seen.notes


def test_rows_that_cannot_be_matched_are_refused():
    shuffled = numbered(EFFECTS, "Iteration", order=SHUFFLED)
    with pytest.raises(nq.InputError, match="no names of rows, and effects with rows in the order"):
        voi.Outputs(COSTS, shuffled, WTP)
    with pytest.raises(nq.InputError, match="no names of rows, and effects"):
        voi.Outputs(COSTS, EFFECTS.iloc[::-1], WTP)
    with pytest.raises(nq.InputError, match="one of them has and the other has not, such as"):
        voi.Outputs(numbered(COSTS, "Iteration"), numbered(EFFECTS, "Iteration", 5), WTP)
    outputs = voi.Outputs(numbered(COSTS, "Iteration"), EFFECTS, WTP)
    with pytest.raises(nq.InputError, match="one of them has and the other has not"):
        voi.evppi(outputs, numbered(P, "Iteration", 5, SHUFFLED))


def test_rows_of_several_names_are_taken_as_they_are():
    """Bootstrap samples of all three tables have the same index, with copies."""
    sample = np.random.default_rng(4).integers(0, N, N)
    outputs = voi.Outputs(COSTS.iloc[sample], EFFECTS.iloc[sample], WTP)
    assert len(voi.evppi(outputs, P.iloc[sample])) == 2
    with pytest.raises(nq.InputError, match="several of one name"):
        voi.Outputs(COSTS.iloc[sample], EFFECTS.iloc[sample[::-1]], WTP)


# Cells.


def test_percent_currency_and_categories():
    frame = pd.DataFrame(
        {
            "share": [f"{k}%" for k in range(N)],
            "pounds": [f"£{1000 + k:,}.50" for k in range(N)],
            "euros": [f"{k}.25 €" for k in range(N)],
            "line": ["first", "second", "third"] * (N // 3),
        }
    )
    found = voi.read_csv(file("p.csv", frame), "parameters")
    np.testing.assert_allclose(found["share"], np.arange(N) / 100)
    np.testing.assert_allclose(found["pounds"], 1000.5 + np.arange(N))
    np.testing.assert_allclose(found["euros"], 0.25 + np.arange(N))
    assert found.columns.tolist()[3:] == ["line = second", "line = third"]
    np.testing.assert_allclose(found["line = second"], (frame.line == "second").astype(float))
    assert len(found.attrs["notes"]) == 4


def test_a_category_is_one_parameter():
    rng = np.random.default_rng(0)
    levels = rng.integers(0, 3, 3000)
    gain = np.array([-1.0, 0.5, 0.6])[levels] + rng.normal(size=3000)
    inputs = pd.DataFrame({"site": np.array(["a", "b", "c"])[levels], "z": rng.normal(size=3000)})
    table = voi.evppi(np.column_stack((0 * gain, gain)), inputs).set_index("pars")
    assert table.index.tolist() == ["site", "z"]
    exact = 1.1 / 3 - 0.1 / 3  # E max(0, mean by level) less the better option
    assert abs(table.evppi["site"] - exact) < 3 * table.se["site"]


def test_a_category_does_not_stop_an_analysis():
    site = np.array(["a", "b", "c"])[RNG.integers(0, 3, N)]
    inputs = pd.DataFrame({"site": site, "z": P.q})
    found = voi.analyze(voi.Outputs(COSTS, EFFECTS, WTP), inputs, {"both": ["site", "z"]})
    assert sorted(found.singles["pars"]) == ["site", "z"]
    assert found.groups["pars"].tolist() == ["both"]
    level = pd.Series(site).value_counts().index[-1]  # the first one has no indicator
    indicator = voi.evppi((COSTS, EFFECTS, WTP), inputs, f"site = {level}")
    assert indicator["pars"].tolist() == ["site"]


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        (["5%", "0.05"], "'5%' beside cells without %"),
        (["£5", "$5"], "the text '£5'"),
        (["yes", "1"], "the text 'yes'"),
    ],
)
def test_unclear_cells_are_refused(cells, words):
    frame = P.assign(r=[cells[k % 2] for k in range(N)])
    with pytest.raises(nq.InputError) as caught:
        voi.read_csv(file("p.csv", frame), "parameters")
    assert words in str(caught.value)


def written(cells, separator):
    """Costs in another number format, as a file."""
    return file("c.txt", COSTS.add(9000).map(cells), sep=separator)


def german(x, digits):
    return f"{x:,.{digits}f}".translate(str.maketrans(",.", ".,"))


@pytest.mark.parametrize(
    ("cells", "separator"),
    [
        (lambda x: german(x, 0), ";"),
        (lambda x: german(x, 0), "\t"),
        (lambda x: f"{x:,.0f}", ";"),
        (lambda x: f"{x:,.0f}", "\t"),
        (lambda x: f"{x:,.0f}", ","),
        (lambda x: f"€ {german(x, 0)}", ";"),
    ],
)
def test_thousands_are_not_read_as_decimals(cells, separator):
    with pytest.raises(nq.InputError, match="separators"):
        voi.read_csv(written(cells, separator), "costs")


@pytest.mark.parametrize(
    ("cells", "separator", "noted"),
    [
        (lambda x: f"{x:,.2f}", ",", "'9,100.13' is 9100.13"),
        (lambda x: f"£{x:,.0f}", ",", "in £; '£9,100' is 9100"),
        (lambda x: f"GBP {x:.2f}", ",", "in GBP"),
        (lambda x: f"{x:.2f}".replace(".", ",") + " €", ";", "in €; with decimal commas"),
        (lambda x: german(x, 2), ";", "with decimal commas; '9.100,13' is 9100.13"),
        (lambda x: f"{x:.2f}".replace(".", ","), ";", "with decimal commas"),
    ],
)
def test_number_formats_that_leave_no_doubt(cells, separator, noted):
    found = voi.read_csv(written(cells, separator), "costs")
    np.testing.assert_allclose(found, COSTS.add(9000), atol=0.51)
    assert noted in found.attrs["notes"][0]


def test_a_column_shows_the_decimal_mark_of_a_file():
    """1,234 has a decimal comma where another column of the file has 0,5."""
    frame = pd.DataFrame({"a": ["1,234", "2,345"] * 30, "b": ["0,5", "1,5"] * 30})
    found = voi.read_csv(file("p.csv", frame, sep=";"), "parameters")
    assert found.iloc[0].tolist() == [1.234, 0.5]
    frame["a"] = ["1.234", "2.345"] * 30  # hence these are thousands
    found = voi.read_csv(file("p.csv", frame, sep=";"), "parameters")
    assert found.iloc[0].tolist() == [1234.0, 0.5]


@pytest.mark.parametrize(
    "cells", [("(£33,610)", "£1,250"), ("£(33,610)", "£1,250"), ("-£33,610", "£1,250")]
)
def test_negative_amounts_as_accountants_write_them(cells):
    text = "SoC;Drug\n" + "".join(f"{cells[i % 2]};1.5\n" for i in range(N))
    found = voi.read_csv(file("c.csv", text), "costs")
    assert found.SoC.tolist() == [-33610.0, 1250.0] * (N // 2)


@pytest.mark.parametrize("kind", ["parameters", "costs"])
@pytest.mark.parametrize("cell", ["£3.610k", "3.6m", "20K", "1.2 million", "(£2k)"])
def test_letters_for_thousands_are_refused_with_words(kind, cell):
    text = "SoC;Drug\n" + "".join(f"{cell};{i % 7}.25\n" for i in range(N))
    seen = voi.preview(file("p.csv", text), P, P) if kind == "parameters" else None
    with pytest.raises(nq.InputError, match="a letter for thousands or millions") as caught:
        voi.read_csv(file("c.csv", text), kind)
    assert "in full" in caught.value.advice
    assert seen is None or len(seen.problems) == 1  # once for a column, and no category


@pytest.mark.parametrize("cell", ["(33", "33)", "-(33)", "((33))"])
def test_half_a_pair_of_parentheses_is_no_number(cell):
    text = "SoC;Drug\n" + f"{cell};1.5\n" + "20;1.5\n" * N
    with pytest.raises(nq.InputError, match="row 1"):
        voi.read_csv(file("c.csv", text), "costs")


def test_percent_with_decimal_commas():
    frame = pd.DataFrame({"a": ["12,34%", "5,00%"] * 30, "b": ["0,5", "1,5"] * 30})
    found = voi.read_csv(file("p.csv", frame, sep=";"), "parameters")
    assert found["a"].tolist()[:2] == pytest.approx([0.1234, 0.05])


def test_utf_16_is_read():
    text = COSTS.to_csv(index=False, sep="\t")
    found = voi.read_csv(("c.txt", text.encode("utf-16")), "costs")
    pd.testing.assert_frame_equal(found, COSTS)


# Shapes of files.


@pytest.mark.parametrize("separator", ["\t", " ", ";"])
def test_separators(separator):
    found = voi.read_csv(file("c.txt", COSTS, sep=separator), "costs")
    pd.testing.assert_frame_equal(found, COSTS)


@pytest.mark.parametrize("numbered", [True, False])
def test_long_format(numbered):
    long = pd.DataFrame(
        {
            "Iteration": np.repeat(np.arange(1, N + 1), 2),
            "Strategy": ["SoC", "Drug"] * N,
            "Cost": COSTS.to_numpy().ravel(),
            "QALY": EFFECTS.to_numpy().ravel(),
        }
    )
    long = long if numbered else long.drop(columns="Iteration")
    if numbered:
        long = long.sort_values(["Strategy", "Iteration"])
    costs, effects = (voi.read_csv(file("l.csv", long), kind) for kind in ("costs", "effects"))
    assert evpi_of(costs, effects) == pytest.approx(TRUTH)
    assert "long format" in costs.attrs["notes"][0]
    with pytest.raises(nq.InputError, match="long format"):
        voi.read_csv(file("l.csv", long.iloc[1:]), "costs")


def test_one_file_of_costs_and_effects():
    both = pd.concat([COSTS.add_prefix("cost_"), EFFECTS.add_prefix("qaly_")], axis=1)
    costs, effects = (voi.read_csv(file("o.csv", both), kind) for kind in ("costs", "effects"))
    assert evpi_of(costs, effects) == pytest.approx(TRUTH)


@pytest.mark.parametrize(
    "names",
    [
        ("PSA", "Costs", "QALYs"),
        ("PSA inputs", "Total costs", "Effects"),
        ("Parameter draws", "cost", "Outcomes"),
    ],
)
def test_sheets_by_the_names_people_use(names):
    file = io.BytesIO()
    with pd.ExcelWriter(file) as writer:
        pd.DataFrame({"note": ["made by us"]}).to_excel(writer, sheet_name="ReadMe", index=False)
        for name, frame in zip(names, (P, COSTS, EFFECTS), strict=True):
            frame.to_excel(writer, sheet_name=name, index=False)
    seen = voi.preview(("m.xlsx", file.getvalue()))
    assert not seen.problems
    pd.testing.assert_frame_equal(seen.parameters, P, check_dtype=False)
    assert float(voi.evpi(seen.outputs(WTP)).evpi[0]) == pytest.approx(TRUTH)
    assert seen.files[0][0] == "m.xlsx"


# Preview.


def test_preview_names_every_bad_cell():
    costs, effects = COSTS.astype(object), EFFECTS.astype(object)
    costs.iloc[3, 0], costs.iloc[5, 1], effects.iloc[8, 0] = "abc", "", "1,250.00"
    seen = voi.preview(file("p.csv", P), file("c.csv", costs), file("e.csv", effects))
    cells = [(p.table, p.column, p.row, p.line, p.cell) for p in seen.problems]
    assert cells == [
        ("costs (c.csv)", "SoC", 4, 5, "abc"),
        ("costs (c.csv)", "Drug", 6, 7, ""),
        ("effects (e.csv)", "SoC", 9, 10, "1,250.00"),
    ]
    assert seen.options == ("SoC", "Drug")
    with pytest.raises(nq.InputError, match="abc"):
        seen.outputs(WTP)
    import json

    told = json.loads(json.dumps(seen.to_dict()))
    assert told["tables"]["parameters"]["rows"] == N
    assert told["problems"][0]["message"].startswith("costs (c.csv): got the text 'abc'")
    assert "problem: " in str(seen)


def test_one_wrong_format_is_told_once_for_each_column():
    seen = voi.preview(P, written(lambda x: f"{x:,.0f}", ","), EFFECTS)
    assert [(p.column, p.row) for p in seen.problems] == [("SoC", 1), ("Drug", 1)]
    assert "and 59 more like it" in str(seen.problems[0])


@pytest.mark.parametrize("word", ["Mean", "TOTAL", "St. Dev."])
@pytest.mark.parametrize("name", ["Iteration", "SoC"])
def test_rows_of_summaries_are_named(name, word):
    frame = numbered(COSTS, "Iteration").astype(object)
    last = frame.mean().astype(object)
    last[name] = word
    found = voi.read_csv(file("c.csv", pd.concat([frame, last.to_frame().T])), "costs")
    pd.testing.assert_frame_equal(found, COSTS)
    assert f"the draws are left out: line 62 ({word})" in found.attrs["notes"][0]


def test_a_constant_difference_has_no_rounding_errors():
    common = RNG.normal(5000.0, 1000.0, N)
    table = voi.incremental(np.column_stack((common, common + 0.1 + 0.2)))
    assert table.se[0] == 0.0
    assert voi.incremental(np.column_stack((common, common + 1e-4 * P.p))).se[0] > 0.0


def test_preview_says_what_is_wrong_between_tables():
    seen = voi.preview(P, COSTS, EFFECTS.iloc[1:])
    assert "60 rows of costs, 59 rows of effects" in str(seen.problems[0])
    seen = voi.preview(P, COSTS, EFFECTS.set_axis(["a", "b"], axis=1))
    assert "in any order" in str(seen.problems[0])
    assert "nothing" in str(voi.preview(P, COSTS).problems[0])


# The command.


@pytest.fixture(scope="module")
def arguments(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    found = ["voi"]
    for name, frame in (("parameters", P), ("costs", COSTS), ("effects", EFFECTS)):
        frame.to_csv(folder / f"{name}.csv", index=False)
        found += [f"--{name}", str(folder / f"{name}.csv")]
    return found


@pytest.mark.parametrize(
    ("text", "meant"),
    [("20,000", "20000"), ("1,234,567.5", "1234567.5"), ("20.000", "20000"), ("1 200", "1200")],
)
def test_thousands_are_no_list(arguments, text, meant, capsys):
    with pytest.raises(SystemExit) as caught:
        main([*arguments, "--wtp", text])
    assert caught.value.code == 2
    assert f"did you mean {meant}?" in capsys.readouterr().err


@pytest.mark.parametrize(
    "several", [["--wtp", "10000", "20000"], ["--wtp", "10000", "--wtp", "20000"]]
)
def test_several_values_of_wtp(arguments, several, capsys):
    assert main([*arguments, *several]) == 0
    out = capsys.readouterr().out
    assert "EVPI at £10,000" in out
    assert "EVPI at £20,000" in out


def test_nobody_is_counted_whom_nobody_named(arguments, capsys, tmp_path):
    page = tmp_path / "page.html"
    assert main([*arguments, "--wtp", "20000", "--report", str(page)]) == 0
    assert "people" not in capsys.readouterr().out
    text = page.read_text(encoding="utf-8")
    assert "people a year" not in text
    assert main([*arguments, "--wtp", "20000", "--per-year", "100"]) == 2
    assert "--horizon" in capsys.readouterr().err
    assert main([*arguments, "--wtp", "20000", "--per-year", "100", "--horizon", "5"]) == 0
    assert "for 467 people" in capsys.readouterr().out


def test_a_study_that_takes_years(arguments, capsys):
    trial = ["--wtp", "20000", "--trial", "normal:q:1", "--sizes", "10", "40", "160"]
    whom = ["--per-year", "1000", "--horizon", "5"]
    assert main([*arguments, *trial, *whom]) == 0
    said = capsys.readouterr().out
    assert "largest tried" in said
    assert "immediate" in said
    assert main([*arguments, *trial, *whom, "--duration", "1", "--duration-each", "0.1"]) == 0
    said = capsys.readouterr().out
    assert "largest tried" not in said
    assert "immediate" not in said


def _levels_by_two(n=400):
    """A parameter d of two levels, whose knowledge decides: INB ± 1000, EVPPI 500."""
    d = np.arange(n) % 2 == 0
    costs = pd.DataFrame({"A": np.zeros(n), "B": np.where(d, -1000.0, 1000.0)})
    return d, costs, pd.DataFrame({"A": np.zeros(n), "B": np.linspace(-1e-9, 1e-9, n)})


@pytest.mark.parametrize(
    "cells",
    [
        lambda d: d.astype(object),  # as a workbook has TRUE and FALSE
        lambda d: np.where(d, " yes", " no"),  # blanks after commas
        lambda d: [f"{'yes' if x else 'no'}{' ' * (i % 3)}" for i, x in enumerate(d)],
        lambda d: np.where(d, "y\tz", "n\n m"),
    ],
)
def test_levels_and_indicators_read_a_cell_in_the_same_way(cells):
    d, costs, effects = _levels_by_two()
    table = voi.evppi(voi.Outputs(costs, effects, 1.0), pd.DataFrame({"d": cells(d)}), "d")
    assert table.pars.tolist() == ["d"]
    assert table.evppi[0] == pytest.approx(500.0, rel=1e-6)


def _long(cost, effect, *more):
    """One long table of costs and effects, and columns that are neither."""
    parts = [
        pd.DataFrame({"sim": range(1, N + 1), "strategy": o, **dict.fromkeys(more, 1.0)}).assign(
            **{cost: COSTS[o], effect: EFFECTS[o]}
        )
        for o in COSTS
    ]
    return file("long.csv", pd.concat(parts))


@pytest.mark.parametrize(
    "names",
    [
        ("discounted_cost", "discounted_qaly"),
        ("qaly_undiscounted", "cost_undiscounted"),
        ("cost", "qaly", "cycle", "prevalence"),
        ("cost_per_cycle", "utility"),
        ("TotalCosts", "QALYs"),
    ],
)
def test_long_tables_are_read_by_whole_words(names):
    cost, effect = sorted(names[:2], key=lambda name: "cost" not in name.lower())
    seen = voi.preview(file("p.csv", P), *[_long(cost, effect, *names[2:])] * 2)
    assert not seen.problems
    assert float(voi.evpi(seen.outputs(WTP)).evpi[0]) == pytest.approx(TRUTH)


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (("price", "qaly"), "no columns of costs among 'price', 'qaly'"),
        (("cost", "qaly", "cost_undiscounted"), "several columns of costs among"),
        (("cost", "result"), "no columns of effects among"),
    ],
)
def test_long_tables_that_leave_a_choice_are_refused(names, words):
    seen = voi.preview(file("p.csv", P), *[_long(*names)] * 2)
    assert any(words in str(problem) for problem in seen.problems)


def test_one_table_is_not_both_costs_and_effects():
    with pytest.raises(nq.InputError, match="the same numbers in both"):
        voi.Outputs(COSTS, COSTS, WTP)


def test_a_permutation_of_the_row_numbers_is_no_option():
    order = np.random.default_rng(4).permutation(N)
    numbered = [t.assign(**{"Sim #": np.arange(N)}) for t in (COSTS, EFFECTS)]
    in_order = voi.Outputs(*numbered, WTP)
    assert in_order.options == ("SoC", "Drug")
    # Rows are put together by the column where both tables have it.
    outputs = voi.Outputs(numbered[0].iloc[order], numbered[1], WTP)
    assert outputs.options == ("SoC", "Drug")
    assert float(voi.evpi(outputs).evpi[0]) == pytest.approx(TRUTH)
    assert any("'Sim #' names the rows" in note for note in outputs.notes)
    shuffled = numbered[0].iloc[order].reset_index(drop=True)
    with pytest.raises(nq.InputError, match="no names of rows, and costs with rows in the order"):
        voi.Outputs(shuffled, EFFECTS, WTP)
    with pytest.raises(nq.InputError, match="'Order', which counts the rows"):
        voi.Outputs(net_benefit=shuffled.rename(columns={"Sim #": "Order"}))
    inputs = P.assign(**{"Sim #": np.arange(N)})  # parameters follow, or are refused
    exact = voi.evppi(voi.Outputs(COSTS, EFFECTS, WTP), P).evppi
    found = voi.evppi(outputs, inputs)
    assert found.pars.tolist() == ["p", "q"]
    np.testing.assert_allclose(found.evppi, exact, rtol=1e-6, atol=1e-6)
    ranks = pd.DataFrame({"r": order + 1.0, "s": order[::-1] + 1.0})
    assert voi.evppi(voi.Outputs(COSTS, EFFECTS, WTP), ranks).pars.tolist() == ["r", "s"]
    seen = voi.preview(file("p.csv", inputs.iloc[order]), file("c.csv", COSTS), EFFECTS)
    assert "no names of rows" in str(seen.problems[0])


@pytest.mark.parametrize("separator", [";", "\t"])
@pytest.mark.parametrize("other", ["1e+05", "2E5", ""])
def test_a_power_of_ten_is_no_evidence_of_a_decimal_comma(separator, other):
    grouped = [f"{4000 + 7 * k:,}" for k in range(N)]
    frame = pd.DataFrame({"SoC": [other or "7"] * (N - 1) + ["1e+05"], "Drug": grouped})
    seen = voi.preview(file("p.csv", P), file("c.txt", frame, sep=separator), EFFECTS)
    assert "'4,000', which may be 4000 or 4.000, in column 'Drug', row 1 (line 2" in str(
        seen.problems[0]
    )
    pounds = frame.assign(Drug="£" + frame.Drug)  # in pounds a comma groups digits
    found = voi.read_csv(file("c.txt", pounds, sep=separator), "costs")
    np.testing.assert_allclose(found["Drug"], 4000 + 7 * np.arange(N))


def test_dates_and_units_are_no_numbers_and_no_names_of_rows():
    days = pd.date_range("2020-01-31", periods=N)
    durations = pd.to_timedelta(np.arange(N) % 7, unit="h")
    for cells, words in (
        (list(days), "2020-01-31"),
        (list(durations), "0 days 00:00:00"),
        ([f"{10 + k / 7:.4f} mg" for k in range(N)], "the text '10.0000 mg'"),
        ([f"{day:%Y-%m-%d}" for day in days], "the text '2020-01-31'"),
    ):
        table = P.copy()
        table.insert(0, "d", pd.Series(cells, dtype=object))
        seen = voi.preview(table, COSTS, EFFECTS)
        assert words in str(seen.problems[0])
        assert seen.problems[0].column == "d"
    named = P.copy()
    named.insert(0, "who", [f"person {k}" for k in range(N)])
    assert voi.preview(named, COSTS, EFFECTS).parameters.columns.tolist() == ["p", "q"]
