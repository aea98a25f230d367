"""Files as people have them: what is read, and how what cannot be read is named."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import voi_models as models

import nestquad as nq
from nestquad import voi

TABLE = pd.DataFrame(np.random.default_rng(0).normal(size=(30, 2)).round(3), columns=["a", "b"])


def written(tmp_path, text, name="p.csv", encoding="utf-8"):
    path = tmp_path / name
    path.write_text(text, encoding=encoding)
    return path


@pytest.mark.parametrize(
    "text",
    [
        TABLE.to_csv(index=False),
        TABLE.to_csv(index=False).replace(",", ";"),
        TABLE.to_csv(index=False).replace(",", ";").replace(".", ","),
        TABLE.to_csv(index=False).replace(",", "\t"),
        TABLE.rename(index=lambda i: i + 1).to_csv(index=True),  # as R's write.csv
        TABLE.to_csv(index=False) + ",\n,\n",
        "\ufeff" + TABLE.to_csv(index=False),
        TABLE.to_csv(index=False).replace("a,b", '" a ","b"'),
    ],
    ids=[
        "comma",
        "semicolon",
        "decimal comma",
        "tab",
        "row numbers",
        "empty rows",
        "bom",
        "quotes",
    ],
)
def test_csv_of_all_kinds(tmp_path, text):
    found = voi.read_csv(written(tmp_path, text), "parameters")
    pd.testing.assert_frame_equal(found, TABLE)


def test_other_encodings(tmp_path):
    text = TABLE.to_csv(index=False).replace("a,b", "coût,b")
    found = voi.read_csv(written(tmp_path, text, encoding="cp1252"), "parameters")
    assert found.columns.tolist() == ["coût", "b"]


def edited(line, cell):
    lines = TABLE.to_csv(index=False).splitlines()
    lines[line - 1] = f"{cell},1.0"
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (edited(8, "abc"), "the text 'abc' in column 'a', row 7 (line 8 of the file)"),
        (edited(8, ""), "(an empty cell) in column 'a', row 7 (line 8 of the file)"),
        (edited(8, "NA"), "a missing value ('NA') in column 'a', row 7"),
        (edited(8, "#DIV/0!"), "#DIV/0!"),
        (edited(8, '"12,345.6"'), "'12,345.6', a number with separators"),
        (edited(8, "1,2"), "lines of different lengths"),
        (TABLE.to_csv(index=False, header=False), "a header line with names"),
        (TABLE.rename(columns={"b": "a"}).to_csv(index=False), "the column 'a' 2 times"),
        (TABLE.rename(columns={"b": ""}).to_csv(index=False), "column 2 without a name"),
        ("a,b\n", "0 rows"),
        ("", "no rows"),
        ("a,b\n1,2\n", "1 rows"),
    ],
)
def test_csv_that_is_refused(tmp_path, text, words):
    with pytest.raises(nq.InputError) as caught:
        voi.read_csv(written(tmp_path, text), "parameters")
    assert words in str(caught.value)
    assert "parameters (p.csv)" in str(caught.value)


def test_a_workbook_given_as_csv(tmp_path):
    path = tmp_path / "p.csv"
    path.write_bytes(b"PK\x03\x04\0\0")
    with pytest.raises(nq.InputError, match=r"a \.csv file or an \.xlsx workbook"):
        voi.read_csv(path, "costs")


def workbook(path, **sheets):
    with pd.ExcelWriter(path) as writer:
        for name, frame in sheets.items():
            frame.to_excel(writer, sheet_name=name, index=False)
    return path


@pytest.mark.parametrize("names", [("Parameters", "Costs", "Effects"), ("one", "two", "three")])
def test_workbook(tmp_path, names):
    frames = [TABLE, TABLE + 1, TABLE + 2]
    path = workbook(tmp_path / "m.xlsx", **dict(zip(names, frames, strict=True)))
    found = voi.read_workbook(path)
    for kind, frame in zip(("parameters", "costs", "effects"), frames, strict=True):
        pd.testing.assert_frame_equal(found[kind], frame)


@pytest.mark.parametrize(
    ("sheets", "words"),
    [
        ({"parameters": TABLE, "cost": TABLE}, "sheets named parameters, costs and effects"),
        ({"parameters": TABLE, "costs": TABLE, "effects": TABLE.astype(object)}, None),
        (
            {"parameters": TABLE, "costs": TABLE, "effects": TABLE.astype(object).replace(
                {TABLE.iloc[4, 1]: "#N/A"})},
            "the error #N/A in cell B6 (column 'b')",
        ),
    ],
)  # fmt: skip
def test_workbooks_that_are_refused(tmp_path, sheets, words):
    path = workbook(tmp_path / "m.xlsx", **sheets)
    if words is None:
        voi.read_workbook(path)
        return
    with pytest.raises(nq.InputError) as caught:
        voi.read_workbook(path)
    assert words in str(caught.value)


def test_no_workbook(tmp_path):
    with pytest.raises(nq.InputError, match="not a file"):
        voi.read_workbook(tmp_path / "none.xlsx")
    path = written(tmp_path, "hello", "m.xlsx")
    with pytest.raises(nq.InputError, match="cannot be read"):
        voi.read_workbook(path)


def test_without_openpyxl(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "python_calamine", None)
    path = workbook(tmp_path / "m.xlsx", costs=TABLE)
    with pytest.raises(nq.MissingExtraError, match=r"\[voi\]"):
        voi.read_workbook(path)


def test_without_pandas(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(nq.MissingExtraError, match=r"\[voi\]"):
        voi.evpi(np.ones((30, 2)))


def test_import_is_light():
    code = "import sys, nestquad.voi; print('pandas' in sys.modules, 'matplotlib' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.split() == ["False", "False"]


def test_everything_public_is_documented():
    for name in voi.__all__:
        assert (getattr(voi, name).__doc__ or "").strip(), name


def test_tables_too_large_are_refused_before_memory_is(monkeypatch):
    monkeypatch.setattr("nestquad.voi.table._regression.MOST_NUMBERS", 1000)
    with pytest.raises(nq.InputError, match="at most 47 rows"):
        voi.evppi(np.random.default_rng(0).normal(size=(100, 2)), np.arange(100.0))


def test_shared_tables_are_read_as_they_are():
    models.shared_table("chemo", "chemo_pars.csv")  # or skip
    folder = models.shared_folder()
    for parts in (("chemo", "chemo_costs.csv"), ("vaccine", "params.csv")):
        found = voi.read_csv(folder.joinpath(*parts), "parameters")
        np.testing.assert_allclose(found, models.shared_table(*parts))
