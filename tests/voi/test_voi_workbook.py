"""Workbooks as people have them: one sheet, titles, notes, blank rows, totals, errors, formulas."""

from __future__ import annotations

import io

import numpy as np
import openpyxl
import pandas as pd
import pytest

import nestquad as nq
from nestquad import voi
from nestquad.cli import main

N = 60
RNG = np.random.default_rng(1)
P = pd.DataFrame({"p_cure": RNG.beta(8, 8, N), "cost_stay": RNG.gamma(9, 90, N)})
COSTS = pd.DataFrame({"SoC": 2 * P.cost_stay, "Drug": 900 + P.cost_stay})
EFFECTS = pd.DataFrame({"SoC": 5 + 0 * P.p_cure, "Drug": 4.8 + 0.5 * P.p_cure})
WTP = 20_000
TRUTH = float(voi.evpi((COSTS, EFFECTS, WTP)).evpi[0])


def one_sheet():
    """Inputs, costs and QALYs side by side, as a log of a model has them."""
    parts = [P, COSTS.add_prefix("Total cost "), EFFECTS.add_prefix("QALYs ")]
    table = pd.concat(parts, axis=1)
    table.insert(0, "Iteration", np.arange(1, N + 1))
    table["NMB Drug"] = WTP * EFFECTS.Drug - COSTS.Drug
    return table


def saved(book):
    file = io.BytesIO()
    book.save(file)
    return "model.xlsx", file.getvalue()


def messy(edit=lambda sheet: None, table=None):
    """A merged title, a blank row, a note beside, a blank row in the middle, two rows of totals."""
    table = one_sheet() if table is None else table
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.title = "PSA log"
    sheet["A1"] = "Probabilistic analysis, run of 12 March"
    sheet.merge_cells("A1:F1")
    sheet.append([])
    sheet.append(list(table.columns))
    for k, row in enumerate(table.itertuples(index=False)):
        if k == 30:
            sheet.append([])
        sheet.append(list(row))
    sheet["L5"] = "checked by JB"
    sheet["L6"] = 0.035
    sheet.append([])
    sheet.append(["Mean", *table.iloc[:, 1:].mean()])
    sheet.append([None, *table.iloc[:, 1:].sum()])  # totals without a label
    edit(sheet)
    return saved(book)


def test_the_table_of_a_messy_sheet_is_found():
    seen = voi.preview(messy())
    assert seen.problems == ()
    assert seen.options == ("SoC", "Drug")
    np.testing.assert_allclose(seen.costs, COSTS)
    np.testing.assert_allclose(seen.effects, EFFECTS)
    np.testing.assert_allclose(seen.parameters, P)
    assert float(voi.evpi(seen.outputs(WTP)).evpi[0]) == pytest.approx(TRUTH)


def test_what_is_around_the_table_is_named():
    notes = "\n".join(voi.preview(messy()).notes)
    for words in (
        "'Probabilistic analysis, run of 12 March' (A1)",
        "'checked by JB' (L5)",
        "2 blank rows left out",
        "rows that summarize the draws are left out: line 66 (Mean), line 67 (total)",
    ):
        assert words in notes


@pytest.mark.parametrize("statistic", ["mean", "sum", "std"])
def test_summaries_are_known_by_their_numbers(statistic):
    table = pd.concat([COSTS, getattr(COSTS, statistic)().to_frame().T], ignore_index=True)
    on_top = pd.concat([getattr(COSTS, statistic)().to_frame().T, COSTS], ignore_index=True)
    for frame in (table, on_top):
        outputs = voi.Outputs(frame, EFFECTS, WTP)
        np.testing.assert_allclose(outputs.costs, COSTS)
        assert "summarize the draws" in outputs.notes[0]


def test_a_draw_is_no_summary():
    """Discrete draws may equal their mean."""
    table = pd.DataFrame({"a": [0.0, 2.0, 1.0] * 20 + [1.0], "b": [1.0, 0.0, 2.0] * 20 + [1.0]})
    assert len(voi.Outputs(table, table + 1, 1.0).costs) == 61


@pytest.mark.parametrize("error", ["#REF!", "#DIV/0!", "#N/A"])
def test_errors_are_quoted_with_their_address(error):
    def edit(sheet):
        sheet["F17"] = error
        sheet["F17"].data_type = "e"

    seen = voi.preview(messy(edit))
    assert [(p.cell, p.address) for p in seen.problems] == [(error, "F17")]
    assert f"the error {error} in cell F17" in str(seen.problems[0])


def test_formulas_without_values_are_named():
    def edit(sheet):
        for row in (*range(4, 34), *range(35, 65)):
            sheet[f"H{row}"] = f"=20000*F{row}-D{row}"
            sheet[f"E{row}"] = f"=C{row}+900"

    seen = voi.preview(messy(edit))
    [problem] = seen.problems  # once for the column of costs; the net benefit is ignored
    assert "the formula '=C4+900' without a saved value in cell E4" in str(problem)
    assert "Open the workbook in Excel or LibreOffice" in str(problem)


def test_a_sheet_of_formulas_alone():
    book = openpyxl.Workbook()
    book.active.append(list(one_sheet().columns))
    for row in range(2, 40):
        book.active.append([row, *(f"=RAND()*{j}" for j in range(7))])
    seen = voi.preview(saved(book))
    assert "without a saved value" in str(seen.problems[0])


def test_titles_of_blocks_tell_equal_names_apart():
    book = openpyxl.Workbook()
    book.active.append(["Inputs", None, "Costs", None, "QALYs", None])
    book.active.append(["p_cure", "cost_stay", "SoC", "Drug", "SoC", "Drug"])
    for row in pd.concat([P, COSTS, EFFECTS], axis=1).itertuples(index=False):
        book.active.append(list(row))
    seen = voi.preview(saved(book))
    assert seen.problems == ()
    assert seen.options == ("SoC", "Drug")
    np.testing.assert_allclose(seen.effects, EFFECTS)


def test_two_sheets_inputs_and_results():
    file = io.BytesIO()
    with pd.ExcelWriter(file) as writer:
        pd.DataFrame({"about": ["a cover"]}).to_excel(writer, sheet_name="Cover", index=False)
        P.to_excel(writer, sheet_name="Draws", index=False)
        results = pd.concat([COSTS.add_prefix("Cost "), EFFECTS.add_prefix("QALY ")], axis=1)
        results.to_excel(writer, sheet_name="Results", index=False)
    seen = voi.preview(("m.xlsx", file.getvalue()))
    assert seen.problems == ()
    np.testing.assert_allclose(seen.costs, COSTS)
    np.testing.assert_allclose(seen.parameters, P)
    assert "sheet 'Cover' not used" in " ".join(seen.notes)


# Roles of columns.


def test_roles_are_guessed_from_names_and_values():
    roles = {column.name: column.role for column in voi.preview(messy()).columns}
    assert roles == {
        "Iteration": "ignored",
        "p_cure": "input",
        "cost_stay": "input",
        "Total cost SoC": "cost of SoC",
        "Total cost Drug": "cost of Drug",
        "QALYs SoC": "effect of SoC",
        "QALYs Drug": "effect of Drug",
        "NMB Drug": "ignored",
    }


def test_roles_can_be_said():
    names = dict(zip(one_sheet().columns, ["i", "a", "b", "w", "x", "y", "z", "n"], strict=True))
    bare = messy(table=one_sheet().rename(columns=names))
    unclear = voi.preview(bare)
    assert "a column of costs for each of at least two options" in str(unclear.problems[0])
    assert [c.role for c in unclear.columns] == ["ignored"] + ["input"] * 7
    columns = {"w": "cost of SoC", "x": "cost of Drug", "y": "effect of SoC", "z": "effect of Drug"}
    seen = voi.preview(bare, columns={**columns, "n": "ignored"})
    assert seen.problems == ()
    np.testing.assert_allclose(seen.costs, COSTS)
    np.testing.assert_allclose(seen.parameters, P)
    assert "one of 'a', 'b'" in str(voi.preview(bare, columns={"q": "input"}).problems[0])
    assert "“cost of …”" in str(voi.preview(bare, columns={"w": "price"}).problems[0])


def test_a_text_file_with_all_columns():
    seen = voi.preview(("log.csv", one_sheet().to_csv(index=False).encode()))
    assert seen.problems == ()
    np.testing.assert_allclose(seen.effects, EFFECTS)


def test_columns_of_the_command(tmp_path, capsys):
    path = tmp_path / "model.xlsx"
    path.write_bytes(messy()[1])
    assert main(["voi", "--workbook", str(path), "--preview"]) == 0
    assert "column 'Total cost SoC': cost of SoC" in capsys.readouterr().out
    command = ["voi", "--workbook", str(path), "--wtp", str(WTP), "--json"]
    assert main([*command, "--columns", "cost_stay=ignored"]) == 0
    assert '"n_parameters": 1,' in capsys.readouterr().out
    assert main([*command, "--columns", "nothing=ignored"]) == 2


def test_an_xlsx_as_costs_is_read():
    file = io.BytesIO()
    COSTS.to_excel(file, index=False)
    found = voi.read_csv(("c.xlsx", file.getvalue()), "costs")
    np.testing.assert_allclose(found, COSTS)


def test_titles_above_a_text_table():
    text = "PSA of March\nmade by JB\n\n" + COSTS.to_csv(index=False)
    found = voi.read_csv(("c.csv", text.encode()), "costs")
    np.testing.assert_allclose(found, COSTS)
    assert "'PSA of March' (line 1)" in found.attrs["notes"][0]
    with pytest.raises(nq.InputError, match="line 6 of the file"):
        voi.read_csv(("c.csv", text.replace(str(COSTS.SoC[1]), "oops").encode()), "costs")


def put(table, first=1):
    """A table on a sheet, its header in the row `first`."""
    book = openpyxl.Workbook()
    for j, name in enumerate(table.columns, 1):
        book.active.cell(first, j, name)
        for i, value in enumerate(table[name], first + 1):
            book.active.cell(i, j, value)
    return book


@pytest.mark.parametrize("label", ["2.5%", "Deterministic", "97.5th percentile"])
@pytest.mark.parametrize("on_top", [True, False])
def test_any_label_among_numbers_of_draws_is_a_summary(label, on_top):
    table = one_sheet().astype(object)
    row = table.median().to_frame().T.assign(Iteration=label)
    parts = [row, table] if on_top else [table, row]
    seen = voi.preview(saved(put(pd.concat(parts, ignore_index=True))))
    assert len(seen.costs) == N
    assert f"({label})" in seen.notes[0]


def test_a_rounded_mean_without_a_label_is_a_summary():
    table = one_sheet().round(3)
    last = table.mean().round(3).to_frame().T.assign(Iteration=N)
    seen = voi.preview(saved(put(pd.concat([table, last], ignore_index=True))))
    assert seen.problems == ()
    assert len(seen.costs) == len(seen.effects) == N


def test_results_are_no_inputs():
    """Life years beside QALYs, the better option, a text in every row."""
    table = one_sheet()
    table["LY SoC"], table["LY Drug"] = 1.3 * EFFECTS.SoC, 1.2 * EFFECTS.Drug
    better = WTP * EFFECTS.Drug - COSTS.Drug > WTP * EFFECTS.SoC - COSTS.SoC
    table["choice"] = np.where(better, "Drug", "SoC")
    table["Cost-effective?"] = np.where(better, "yes", "no")
    table["model"] = "version 3"
    seen = voi.preview(saved(put(table)))
    assert seen.problems == ()
    assert list(seen.parameters) == list(P)


def test_names_with_dashes_and_units():
    names = {f"Total cost {o}": f"Total cost – {o} (£)" for o in COSTS}
    names |= {f"QALYs {o}": f"Total QALYs – {o}" for o in COSTS}
    seen = voi.preview(saved(put(one_sheet().rename(columns=names))))
    assert seen.options == ("SoC", "Drug")
    np.testing.assert_allclose(seen.costs, COSTS)


def test_a_sheet_for_each_option():
    book = put(P)
    book.active.title = "Sampled"
    for option in COSTS:
        sheet = book.create_sheet(option)
        sheet.append(["Cost", "QALYs"])
        for row in zip(COSTS[option], EFFECTS[option], strict=True):
            sheet.append(row)
    seen = voi.preview(saved(book))
    assert seen.options == ("SoC", "Drug")
    np.testing.assert_allclose(seen.effects, EFFECTS)
    assert list(seen.parameters) == list(P)


def test_equal_names_without_a_title_are_refused_with_words():
    bare = one_sheet().set_axis(
        ["Iteration", "a", "b", "Cost", "Cost", "QALY", "QALY", "n"], axis=1
    )
    book = openpyxl.Workbook()
    for row in (bare.columns, *bare.itertuples(index=False)):
        book.active.append(list(row))
    with pytest.raises(nq.InputError, match="the column 'Cost' 2 times"):
        voi.preview(saved(book))


def test_one_text_is_told_once_for_each_column():
    table = one_sheet().astype({"p_cure": object})
    table.loc[3:20, "p_cure"] = "see note"
    seen = voi.preview(saved(put(table)))
    assert [(p.column, p.address) for p in seen.problems] == [("p_cure", "B5")]


def test_a_first_column_of_formulas_does_not_name_the_rows():
    def formulas(sheet):
        for row in (*range(4, 34), *range(35, 35 + N - 30)):
            sheet.cell(row, 4, f"=2*C{row}")

    seen = voi.preview(messy(formulas))
    assert [(p.column, p.address) for p in seen.problems] == [("SoC", "D4")]
    assert "the formula '=2*C4' without a saved value" in str(seen.problems[0])


@pytest.mark.parametrize("word", ["LYs", "Life years"])
def test_quality_adjusted_years_are_the_effects_beside_life_years(word):
    table = one_sheet()
    for option in EFFECTS:
        table[f"{word} {option}"] = 1.3 * EFFECTS[option]
    seen = voi.preview(saved(put(table)))
    np.testing.assert_allclose(seen.effects, EFFECTS)
    assert list(seen.parameters) == list(P)


def test_units_in_parentheses_are_no_part_of_an_option_and_doses_are():
    units = {f"Total cost {o}": f"{o} cost (£)" for o in COSTS}
    units |= {f"QALYs {o}": f"{o} QALYs [disc.]" for o in COSTS}
    seen = voi.preview(saved(put(one_sheet().rename(columns=units))))
    assert seen.options == ("SoC", "Drug")
    np.testing.assert_allclose(seen.effects, EFFECTS)
    doses = ["Drug (10 mg)", "Drug (20 mg)"]
    costs, effects = (table.set_axis(doses, axis=1) for table in (COSTS, EFFECTS))
    outputs = voi.Outputs(costs.add_prefix("Cost "), effects.add_prefix("QALY "), WTP)
    assert outputs.options == ("Drug 10 mg", "Drug 20 mg")


def test_a_second_table_below_is_named():
    table = one_sheet()
    book = put(table.iloc[:, :3])
    book.active.append([])
    for row in (table.columns[3:], *table.iloc[:, 3:].itertuples(index=False)):
        book.active.append(list(row))
    seen = voi.preview(saved(book))
    assert any("left out as another table" in note for note in seen.notes)


def test_draws_in_columns_are_refused_with_the_remedy():
    book = openpyxl.Workbook()
    for name, column in one_sheet().items():
        book.active.append([name, *column])
    with pytest.raises(nq.InputError, match="transpose"):
        voi.preview(saved(book))
