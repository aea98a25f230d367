"""Messy workbooks with a known truth: each is read right, with a note, or refused with the cell."""

from __future__ import annotations

import io

import numpy as np
import openpyxl
import pandas as pd
import pytest

import nestquad as nq
from nestquad import voi
from nestquad.cli import main

N = 120
RNG = np.random.default_rng(4)
P = pd.DataFrame(
    {
        "p_cure": RNG.beta(20, 30, N),
        "u_well": RNG.beta(80, 20, N),
        "c_drug": RNG.gamma(100, 30, N),
    }
)
COSTS = pd.DataFrame({"SoC": 1000 + RNG.normal(0, 100, N), "Drug": 1500 + 0.5 * P.c_drug})
EFFECTS = pd.DataFrame({"SoC": 8 + RNG.normal(0, 0.2, N), "Drug": 8 + 2 * P.p_cure * P.u_well})
NAMES = ["Iteration", *P, "SoC", "Drug", "SoC", "Drug"]


def log(cost="Cost {}", effect="QALY {}"):
    """One table with inputs, costs and effects."""
    named = [COSTS.set_axis([cost.format(o) for o in COSTS], axis=1)]
    named += [EFFECTS.set_axis([effect.format(o) for o in EFFECTS], axis=1)]
    table = pd.concat([P, *named], axis=1)
    table.insert(0, "Iteration", range(1, N + 1))
    return table


def put(sheet, table, row=1, column=1, names=True):
    lines = [list(table.columns)] * names + table.astype(object).to_numpy().tolist()
    for i, line in enumerate(lines):
        for j, cell in enumerate(line):
            sheet.cell(row + i, column + j, cell)


def book(*tables, titles=(), **sheets):
    """A sheet with tables, each with its place, and cells by address; or a sheet for each table."""
    made = openpyxl.Workbook()
    for table, *place in tables:
        put(made.active, table, *place)
    for address, cell in titles:
        made.active[address] = cell
    for name, table in sheets.items():
        put(made.create_sheet(name.replace("_", " ")), table)
    if sheets:
        del made["Sheet"]
    return made


def three(costs=COSTS, effects=EFFECTS, names=("inputs", "costs", "QALYs")):
    return book(**dict(zip(names, (P, costs, effects), strict=True)))


def by_option(table):
    return book((table.set_axis(NAMES, axis=1), 3))


def merged_names():
    """Names of inputs in cells of two lines, options below the title of their block."""
    made = book((log().set_axis(NAMES, axis=1).iloc[:, :4], 2, 1, False))
    put(made.active, log().iloc[:, 4:].set_axis(NAMES[4:], axis=1), 2, 5)
    put(made.active, log().iloc[:, :4], 3, 1, False)
    for j, name in enumerate([*NAMES[:4], "Costs", None, "QALYs"], 1):
        made.active.cell(1, j, name)
        made.active.cell(2, j, None if j < 5 else NAMES[j - 1])
    for j in range(1, 5):
        made.active.cell(2, j).value = None
    return made


def with_rows(place, rows, label=None):
    """Rows of statistics at a place among the draws; a label in the first column."""
    table = log().drop(columns=[] if label else "Iteration")
    table = table.astype(object)
    lines = [getattr(log(), name)(*args).reindex(table.columns) for name, *args in rows]
    extra = pd.DataFrame([line.to_numpy() for line in lines], columns=table.columns, dtype=object)
    if label:
        extra["Iteration"] = label
    return book((pd.concat([table.iloc[:place], extra, table.iloc[place:]], ignore_index=True),))


def with_means(table):
    return pd.concat([table, table.mean().to_frame().T], ignore_index=True)


def hidden(kind):
    made = book((log().assign(**{"Cost Old": 7.0, "QALY Old": 1.0} if kind == "option" else {}),))
    if kind == "option":
        made.active.column_dimensions["I"].hidden = True
    elif kind == "sheet":
        put(made.create_sheet("old"), log().assign(**{"Cost SoC": 7.0}))
        made["old"].sheet_state = "hidden"
    elif kind == "columns":
        made.active.column_dimensions["C"].hidden = True
    else:
        made.active.row_dimensions[9].hidden = True
    return made


def folded(made, *sheets):
    for sheet in sheets:
        made[sheet].column_dimensions["C"].hidden = True
    return made


TITLES = (("E2", "Costs"), ("G2", "QALYs"), ("B2", "prob."), ("C2", "utility"), ("E1", "£"))
BLOCKS = (("B1", "Inputs"), ("E1", "Costs"), ("G1", "QALYs"), ("D2", "£"), ("E2", "£"), ("F2", "£"))
PARTS = {f"{what} cost {o}": 0.5 * COSTS[o] for what in ("Drug", "Hospital") for o in COSTS}
UNDISCOUNTED = {f"Undiscounted QALYs {o}": 1.3 * EFFECTS[o] for o in EFFECTS}
READ = {
    "title and note": (
        lambda: book((log(), 3), titles=(("A1", "PSA"), ("K5", "rate"), ("L5", 0.035))),
        "outside the table: 'PSA' (A1), 'rate' (K5), '0.035' (L5)",
    ),
    "blank row": (
        lambda: book((log()[:50],), (log()[50:], 53, 1, False)),
        "1 blank row left out",
    ),
    "subtotal among the draws": (
        lambda: with_rows(60, [("sum",)], "Subtotal"),
        "line 62 (Subtotal)",
    ),
    "base case on top": (lambda: with_rows(0, [("median",)], "Base"), "line 2 (Base)"),
    "names in merged cells": (merged_names, ""),
    "titles of blocks above units": (
        lambda: book((log().set_axis(NAMES, axis=1), 3), titles=BLOCKS),
        "",
    ),
    "two tables side by side": (
        lambda: book((log().iloc[:, :4], 2), (log().iloc[:, 4:], 2, 7)),
        "",
    ),
    "a summary beside the draws": (
        lambda: book((log(),), (pd.DataFrame({"option": ["SoC"], "mean": [1.0]}), 1, 11)),
        "outside the table: 'option' (K1)",
    ),
    "parts of costs": (
        lambda: book((log("Total cost {}").assign(**PARTS),)),
        "'Hospital cost SoC'",
    ),
    "undiscounted beside discounted": (
        lambda: book((log("Total costs ({})", "Discounted QALYs {}").assign(**UNDISCOUNTED),)),
        "ignored as other results: 'Undiscounted QALYs SoC', 'Undiscounted QALYs Drug'",
    ),
    "sheets of both": (
        lambda: book(
            Inputs=P,
            **{"Costs (disc)": COSTS, "Costs (undisc)": 2 * COSTS},
            **{"QALYs (disc)": EFFECTS, "QALYs (undisc)": 2 * EFFECTS},
        ),
        "'Costs (undisc) SoC'",
    ),
    "running means, seeds and dates": (
        lambda: book(
            (
                log().assign(
                    **{"running mean cost": COSTS.SoC.expanding().mean(), "seed": range(7, 7 + N)},
                    when=pd.date_range("2026-05-01", periods=N).to_pydatetime(),
                    run=[f"2026-05-01 12:{k:02d}" for k in range(N)],
                ),
            )
        ),
        "",
    ),
    "increments are no option": (
        lambda: three(
            COSTS.assign(Incremental=COSTS.Drug - COSTS.SoC),
            EFFECTS.assign(Incremental=EFFECTS.Drug - EFFECTS.SoC),
        ),
        "costs: the column 'Incremental' is no option",
    ),
    "totals are no option": (
        lambda: three(COSTS.assign(Total=COSTS.sum(axis=1))),
        "costs: the column 'Total' is no option",
    ),
    "life years on the sheet of QALYs": (
        lambda: three(
            effects=EFFECTS.add_prefix("QALY ").join(1.2 * EFFECTS.add_prefix("LY ")),
        ),
        "effects: the columns 'LY SoC', 'LY Drug' are no effects of the decision",
    ),
    "units": (lambda: book((log("{} [£]", "{} QALYs (3.5%)"),)), ""),
    "German words": (lambda: book((log("Kosten {}"),)), ""),
    "decimal commas with three digits": (
        lambda: book((log().map(lambda x: x if x == int(x) else f"{x:.3f}".replace(".", ",")),)),
        "with decimal commas",
    ),
    "titles of blocks above a blank line": (
        lambda: book(
            (log().set_axis(NAMES, axis=1), 5),
            titles=(("A1", "PSA"), ("B3", "Inputs"), ("E3", "Costs (£)"), ("G3", "QALYs")),
        ),
        "'PSA' (A1)",
    ),
    "totals on one of two sheets": (
        lambda: book(inputs=P, results=with_means(log().iloc[:, 4:])),
        "sheet 'results' and 'inputs' used",
    ),
    "per cent": (
        lambda: book((log().assign(p_cure=[f"{100 * x:.3f}%" for x in P.p_cure]),)),
        "'p_cure': in %",
    ),
    "a hidden sheet": (lambda: hidden("sheet"), "hidden sheet 'old' not used"),
    "a hidden column": (lambda: hidden("columns"), "hidden columns: 'u_well' (input)"),
    "a hidden option": (lambda: hidden("option"), "hidden columns: 'Cost Old' (ignored)"),
    "a hidden option on its sheets": (
        lambda: folded(three(COSTS.assign(Old=7.0), EFFECTS.assign(Old=1.0)), "costs", "QALYs"),
        "costs: hidden column left out: 'Old'",
    ),
    "a hidden row": (lambda: hidden("rows"), "1 hidden row read"),
}
REFUSED = {
    "formulas": (
        lambda: book((log(),), titles=[(f"F{k}", f"=E{k}") for k in range(2, N + 2)]),
        "the formula '=E2' without a saved value in cell F2",
    ),
    "an error": (lambda: book((log(),), titles=[("F10", "#REF!")]), "the error #REF! in cell F10"),
    "thousands": (lambda: book((log("Cost {} (£000)"),)), "costs in thousands or millions"),
    "a sheet of thousands": (
        lambda: book(inputs=P, **{"Costs (£k)": COSTS}, QALYs=EFFECTS),
        "costs in thousands or millions (sheet 'Costs (£k)')",
    ),
    "points of thousands": (
        lambda: book((log().assign(**{"Cost Drug": [f"{x / 1e3:.3f}" for x in COSTS.Drug]}),)),
        "which may be 2804 or 2.804, in cell F2",
    ),
    "a date in a cell": (
        lambda: book((log(),), titles=[("C9", pd.Timestamp("2026-05-01").to_pydatetime())]),
        "the text '2026-05-01 00:00:00' in cell C9",
    ),
    "a code for a missing value": (
        lambda: book((log(),), titles=[("F10", -999)]),
        "'-999.0', which stands for a missing value in cell F10",
    ),
    "codes among the numbers": (
        lambda: book((log(),), titles=[("F10", 9999), ("F11", 9999), ("F12", 5e5)]),
        "'9999.0', which stands for a missing value in cell F10 (column 'Drug') and 1 more",
    ),
    "per cent in some cells": (
        lambda: book((log(),), titles=[("B5", "40%")]),
        "'40%' beside cells without % in cell B5",
    ),
    "the last draw cut": (
        lambda: book((log(),), titles=[("F121", None)]),
        "a missing value (an empty cell) in cell F121",
    ),
}


def saved(made):
    file = io.BytesIO()
    made.save(file)
    return file.getvalue()


@pytest.mark.parametrize("name", READ)
def test_a_messy_workbook_is_read_right(name):
    make, note = READ[name]
    seen = voi.preview((f"{name}.xlsx", saved(make())), wtp=20_000)
    assert seen.problems == ()
    assert note in "\n".join(seen.notes)
    for kind, truth in (("parameters", P), ("costs", COSTS), ("effects", EFFECTS)):
        table = getattr(seen, kind)
        assert table.shape == truth.shape
        np.testing.assert_allclose(table, truth, rtol=2e-3)


@pytest.mark.parametrize("name", REFUSED)
def test_a_workbook_that_cannot_be_read_is_refused_with_the_place(name, tmp_path, capsys):
    make, words = REFUSED[name]
    path = tmp_path / "model.xlsx"
    path.write_bytes(saved(make()))
    assert words in str(voi.preview(path, wtp=20_000).problems[0])
    assert main(["voi", "--workbook", str(path), "--wtp", "20000"]) == 2
    assert words in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("columns", [1, 3])
@pytest.mark.parametrize(
    "law",
    [
        lambda r, shape: r.normal(0.0, 1.0, shape),
        lambda r, shape: r.normal(50.0, 10.0, shape).round(2),
        lambda r, shape: r.gamma(0.05, 1.0, shape),
        lambda r, shape: r.lognormal(0.0, 2.0, shape),
        lambda r, shape: r.standard_t(2, shape),
    ],
)
def test_no_draw_is_a_summary(law, columns):
    for seed in range(0, 20, 2):
        for n in (60, 2000):
            table = pd.DataFrame(law(np.random.default_rng(seed), (n, columns))).add_prefix("p")
            costs = table.assign(a=RNG.normal(0.0, 1.0, n), b=RNG.normal(0.0, 1.0, n))[["a", "b"]]
            assert len(voi.preview(table, costs, costs + 1).parameters) == n


@pytest.mark.parametrize("cell", [1e6, -4.0, 33_000.0])
def test_a_number_far_from_all_others_is_said(cell):
    seen = voi.preview(("slip.xlsx", saved(book((log(),), titles=[("F9", cell)]))), wtp=20_000)
    assert seen.problems == ()
    assert f"far from all other draws in line 9 ({cell:,.6g}): is it a slip?" in seen.notes[0]


@pytest.mark.parametrize(
    ("marks", "separator", "encoding"),
    [
        (".,", ";", "utf-8"),
        ("\u202f,", ";", "utf-8"),
        ("\u00a0,", "\t", "cp1252"),
        ("'.", ";", "utf-8"),
        (",.", ",", "utf-8"),
    ],
)
def test_formats_of_other_countries_with_a_total(marks, separator, encoding):
    """A title, German, French, Swiss or English numbers with groups, and a row of means."""
    table = with_means(log().iloc[:, 1:])
    cells = table.map(lambda x: f"{x:,.8f}".translate(str.maketrans(",.", marks)))
    text = "PSA of May\n\n" + cells.to_csv(index=False, sep=separator)
    seen = voi.preview(("log.csv", text.encode(encoding)), wtp=20_000)
    assert seen.problems == ()
    np.testing.assert_allclose(seen.costs, COSTS, rtol=1e-7)
    np.testing.assert_allclose(seen.effects, EFFECTS, rtol=1e-7)
    assert any("line 124 (mean)" in note for note in seen.notes)


def test_sheets_with_draws_in_another_order_are_refused():
    parts = {"inputs": log().iloc[:, :4], "results": log().iloc[::-1, [0, 4, 5, 6, 7]]}
    with pytest.raises(nq.InputError, match="other numbers of draws, 'Iteration', on the sheets"):
        voi.preview(("model.xlsx", saved(book(**parts))))


def test_blank_rows_matter_only_where_draws_have_no_numbers():
    made = book(**{
        kind: pd.concat([log().Iteration, table], axis=1)
        for kind, table in (("inputs", P), ("costs", COSTS), ("QALYs", EFFECTS))
    })  # fmt: skip
    made["costs"].insert_rows(9)
    assert voi.preview(("model.xlsx", saved(made))).problems == ()


def test_costs_with_points_alone_may_be_thousands():
    costs = COSTS.map(lambda x: f"{10 * x:,.0f}".replace(",", ".")).to_csv(index=False)
    problem = voi.preview(P, ("c.csv", costs.encode()), EFFECTS).problems[0]
    assert "which may be" in str(problem)
    effects = EFFECTS.map("{:.3f}".format).to_csv(index=False)  # as a spreadsheet shows them
    seen = voi.preview(P, COSTS, ("e.csv", effects.encode()))
    np.testing.assert_allclose(seen.effects, EFFECTS, atol=5e-4)


def test_a_subtotal_among_draws_is_said():
    made = with_rows(60, [("sum",)])
    notes = voi.preview(("log.xlsx", saved(made)), wtp=20_000).notes
    assert sum("far from all other draws in line 62" in note for note in notes) == 7


def test_rows_without_a_number_are_no_draws():
    table = log()
    parts = [table.iloc[k : k + 40] for k in range(0, N, 40)]
    means = [part.drop(columns="Iteration").mean().round(1).to_frame().T for part in parts]
    rows = [x for pair in zip(parts, means, strict=True) for x in pair]
    text = pd.concat(rows, ignore_index=True).to_csv(index=False)
    seen = voi.preview(("log.csv", text.encode()))
    np.testing.assert_allclose(seen.costs, COSTS)
    assert "line 42 (without a number), line 83 (without a number)" in seen.notes[-1]


@pytest.mark.parametrize(
    ("pasted", "draws", "said"),
    [
        (log() + 0.5, 2 * N, "the header stands in line 122 again"),
        (COSTS.add_prefix("x"), N, "line 123 and below, from 'xSoC' on, are left out"),
        ((3 * log()).set_axis(list("abcdefgh"), axis=1), N, "line 122 and below, from 'a' on"),
    ],
)
def test_tables_pasted_below_are_named(pasted, draws, said):
    text = log().drop(columns="Iteration").to_csv(index=False)
    below = pasted.drop(columns="Iteration", errors="ignore").to_csv(index=False)
    if pasted.shape[1] == 2:  # a blank line and commas, as a spreadsheet saves it
        below = ",,,,,,\n" + below.replace("\n", ",,,,,\n")
    seen = voi.preview(("log.csv", (text + below).encode()), wtp=20_000)
    assert seen.problems == ()
    assert len(seen.costs) == draws
    assert said in "\n".join(seen.notes)


def test_a_line_of_missing_values_begins_no_table():
    lines = log().drop(columns="Iteration").to_csv(index=False).splitlines()
    lines[40] = ",".join(["NA"] * 7)
    problem = voi.preview(("log.csv", "\n".join(lines).encode())).problems[0]
    assert "a missing value" in str(problem)
    assert "line 41" in str(problem)


def test_a_comma_too_many_in_one_line_is_no_note():
    lines = COSTS.to_csv(index=False).splitlines()
    lines[7] = "1,234.5,1500.2"
    problem = voi.preview(P, ("c.csv", "\n".join(lines).encode()), EFFECTS).problems[0]
    assert "lines of different lengths (2 cells in the header, 3 in line 8)" in str(problem)


@pytest.mark.parametrize("separator", [",", ";"])
def test_points_of_thousands_beside_plain_numbers_are_refused(separator):
    """850 beside 1.250: decimals would not be three or none in every cell."""
    cells = [f"{x:,}".replace(",", ".") for x in RNG.integers(600, 1900, N)]
    table = COSTS.assign(SoC=cells).to_csv(index=False, sep=separator)
    problem = str(voi.preview(P, ("costs.csv", table.encode()), EFFECTS).problems[0])
    assert "which may be 1" in problem
    assert "in column 'SoC'" in problem
    whole = COSTS.assign(SoC=np.where(np.arange(N) % 2, 0, COSTS.SoC.round(3) / 1e3))
    seen = voi.preview(P, ("costs.csv", whole.to_csv(index=False).encode()), EFFECTS)
    np.testing.assert_allclose(seen.costs, whole)


def test_sheets_can_be_chosen(tmp_path, capsys):
    made = book(inputs=P, old_costs=COSTS + 1, new_costs=COSTS, QALYs=EFFECTS, all=log())
    path = tmp_path / "model.xlsx"
    path.write_bytes(saved(made))
    assert voi.preview(path).sheets == ("inputs", "old costs", "new costs", "QALYs", "all")
    for sheets in (["inputs", "new costs", "QALYs"], ["all"]):
        seen = voi.preview(path, sheets=sheets)
        np.testing.assert_allclose(seen.costs, COSTS)
        arguments = ["voi", "--workbook", str(path), "--preview", "--sheets", *sheets]
        assert main(arguments) == 0
        assert "SoC, Drug" in capsys.readouterr().out
    assert main(["voi", "--workbook", str(path), "--preview", "--sheets", "al"]) == 2
    assert "Did you mean 'all'" in capsys.readouterr().err


def test_a_block_pasted_twice_is_said():
    twice = pd.concat([log(), log()], ignore_index=True)
    seen = voi.preview(("twice.xlsx", saved(book((twice,)))))
    assert any("240 draws count as 120 in standard errors" in note for note in seen.notes)


@pytest.mark.parametrize(("costs", "effects"), [(9, 9), (9, 5), (9, None)])
def test_blank_rows_are_the_same_in_all_tables(costs, effects):
    made = three()
    blanks = {"inputs": 9, "costs": costs, "QALYs": effects}
    for sheet, line in blanks.items():
        if line:
            made[sheet].insert_rows(line)
    seen = voi.preview(("model.xlsx", saved(made)))
    assert bool(seen.problems) == (len(set(blanks.values())) > 1)
    assert not seen.problems or "blank rows" in str(seen.problems[0])


def test_a_hidden_sheet_of_costs_is_not_used_beside_a_visible_one():
    made = book(inputs=P, costs=COSTS + 1, costs_v2=COSTS, QALYs=EFFECTS)
    made["costs"].sheet_state = "hidden"
    seen = voi.preview(("model.xlsx", saved(made)))
    np.testing.assert_allclose(seen.costs, COSTS)
    assert any("hidden sheet 'costs' not used" in note for note in seen.notes)


@pytest.mark.parametrize(
    "title",
    ["(£000)", "Costs, £000s", "in £ thousands", "All costs in £ thousands", "Cost ('000 USD)"],
)
def test_costs_in_thousands_by_a_title_are_refused(title):
    made = three()
    made["costs"].insert_rows(1)
    made["costs"]["A1"] = title
    problem = voi.preview(("model.xlsx", saved(made))).problems[0]
    assert "costs in thousands" in str(problem)


@pytest.mark.parametrize("name", ["Cost {} ('000 USD)", "Cost {} (T€)", "Cost {} (£ thousand)"])
def test_costs_in_thousands_by_their_names_are_refused(name):
    problem = voi.preview(("log.xlsx", saved(book((log(cost=name),))))).problems[0]
    assert "costs in thousands" in str(problem)


@pytest.mark.parametrize(
    ("name", "fits"),
    [
        ("DALY {}", False),
        ("DALYs_{}", False),
        ("DALYs averted {}", True),
        ("QALYs per 1,000 patients {}", False),
    ],
)
def test_dalys_are_effects_only_if_averted(name, fits):
    effects = EFFECTS.set_axis([name.format(o) for o in EFFECTS], axis=1)
    for seen in (
        voi.preview(P, COSTS, effects),
        voi.preview(("model.xlsx", saved(three(effects=effects)))),
    ):
        assert fits or "more are better" in str(seen.problems[0])
        assert not (fits and any("better" in str(problem) for problem in seen.problems))


def test_a_sheet_of_dalys_is_refused():
    made = three(names=("inputs", "costs", "DALYs"))
    assert "more are better" in str(voi.preview(("m.xlsx", saved(made))).problems[0])
    averted = EFFECTS.set_axis([f"averted {o}" for o in EFFECTS], axis=1)
    made = three(effects=averted, names=("inputs", "costs", "DALYs"))
    assert "better" not in str(voi.preview(("m.xlsx", saved(made))))


def test_a_cost_without_an_effect_is_said():
    table = log().assign(**{"Cost Third": COSTS["SoC"] + P["c_drug"]})
    notes = voi.preview(("log.xlsx", saved(book((table,))))).notes
    assert any(note.endswith("an effect of that name: 'Cost Third'") for note in notes)


def test_numbers_of_draws_that_repeat_are_no_input():
    inputs = P.assign(Iter=[1, 1, *range(3, N + 1)])
    problem = voi.preview(inputs, COSTS, EFFECTS).problems[0]
    assert "'Iter', which does not number the rows" in str(problem)


def test_a_name_is_no_formula_in_tables_of_the_command(tmp_path, capsys):
    formula = '=HYPERLINK("http://x")'
    frames = {"parameters": P.rename(columns={"p_cure": formula}), "costs": COSTS}
    for kind, table in {**frames, "effects": EFFECTS}.items():
        table.to_csv(tmp_path / f"{kind}.csv", index=False)
    given = [word for k in (*frames, "effects") for word in (f"--{k}", str(tmp_path / f"{k}.csv"))]
    assert main(["voi", *given, "--wtp", "20000", "--tables", str(tmp_path / "out")]) == 0
    capsys.readouterr()
    for path in (tmp_path / "out").glob("*.csv"):
        table = pd.read_csv(path)
        texts = table.select_dtypes(exclude="number").astype(str)
        assert not texts.apply(lambda column: column.str.startswith("=")).any(axis=None)
    assert f"'{formula}" in pd.read_csv(tmp_path / "out" / "singles.csv")["pars"].tolist()
