"""Parts of the documents that are made by commands are those that the commands make."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from types import ModuleType

import doc_pages as pages
import numpy as np
import pytest

import nestquad as nq
from nestquad.cli import load_problem, main
from nestquad.compare import Comparison, Row
from nestquad.methods import METHODS

sys.path.insert(0, str(pages.ROOT / "docs"))  # scripts may use each other


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, pages.ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


readme, layout = script("update_readme"), script("update_layout")
home = script("draw_home")
picture = script("draw_architecture")
README = pages.read(pages.ROOT / "README.md")


# The results table of the README.


def block(name: str) -> str:
    (content,) = re.findall(f"<!-- {name}:begin -->\n(.*?)\n<!-- {name}:end -->", README, re.S)
    return content


def table_rows() -> list[list[str]]:
    lines = block("results").splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_table_has_every_method():
    methods = [row[0] for row in table_rows()]
    made_for_more = [name for name, one in METHODS.items() if one.most >= readme.BUDGET]
    assert methods == [*made_for_more, "auto"], "run `python docs/update_readme.py`"


def test_command_above_the_table_is_the_one_that_makes_it(monkeypatch):
    assert readme.COMMAND in README
    asked = {}

    def compare(problem, **options):
        asked.update(problem=problem.name, **options)
        return Comparison("finance", None, 1, ())

    monkeypatch.setattr(nq, "compare", compare)
    main(readme.COMMAND.split()[1:])
    by_command = {k: v for k, v in asked.items() if k != "progress"}
    asked.clear()
    readme.results()
    by_script = {k: v for k, v in asked.items() if k != "progress"}
    assert by_command["budget"] == [by_script.pop("budget")]
    assert by_script.items() <= by_command.items()


def test_measured_ratios_of_the_first_pages_are_current():
    table = home.table(home.errors())
    for page in home.PAGES:
        text = pages.read(page)
        assert home.with_table(text, table) == text, "run `python docs/draw_home.py`"
    assert home.FIGURE.is_file()


def test_table_is_written_from_its_rows():
    row = Row("nkq", 100, 99, 1.0, 0.0123, 0.02, 0.1, 0.0456, 0.95, 0.5)
    text = readme.results_table(Comparison("finance", 1.0, 1, (row,)))
    assert text.splitlines()[-1] == "| nkq | 99 | 0.012 | 0.046 | 95 % | 0.5 |"


def test_blocks_are_replaced_and_nothing_else():
    text = "a\n<!-- results:begin -->\nold\n<!-- results:end -->\nb\n"
    new = readme.with_block(text, "results", "new")
    assert new == "a\n<!-- results:begin -->\nnew\n<!-- results:end -->\nb\n"
    assert readme.with_block(new, "results", "new") == new
    with pytest.raises(SystemExit):
        readme.with_block("no block", "results", "new")


def test_output_of_the_example_is_current():
    problem = load_problem(f"{pages.ROOT / 'examples' / 'quickstart.py'}:problem")
    shown = re.match(
        r"```text\noption to invest: (\S+) ± (\S+) \(95 %\).* converged,", block("output")
    )
    assert shown
    value, half_width = map(float, shown.groups())
    fresh = nq.estimate(problem, tol=1e-3, budget=10_000, rng=0)
    assert abs(value - fresh.value) <= half_width
    assert 0.5 < half_width / (1.96 * fresh.std_error) < 2.0, "run `python docs/update_readme.py`"


@pytest.mark.slow
def test_table_is_what_the_command_gives():
    fresh = {row.method: row for row in readme.results().rows}
    for method, evaluations, error, half_width, covers, _ in table_rows():
        row = fresh[method]
        assert evaluations == f"{row.n_evaluations:,}"
        # Other builds of BLAS round differently, which tuning may amplify.
        np.testing.assert_allclose(float(error), row.mean_abs_error, rtol=0.25)
        np.testing.assert_allclose(float(half_width), row.half_width, rtol=0.25)
        assert abs(float(covers.removesuffix("%")) - 100 * row.coverage) <= 10


# The layout in docs/modules.md, the picture and the answers in docs/architecture.md.


def test_layout_is_current():
    page = pages.read(pages.ROOT / "docs" / "modules.md")
    assert layout.with_layout(page) == page, "run `python docs/update_layout.py`"


def test_picture_is_current_and_shows_every_room():
    drawn = picture.FIGURE.read_text(encoding="utf-8")
    assert drawn == picture.drawn(), "run `python docs/draw_architecture.py`"
    folders = {path.name for path in layout.SOURCE.iterdir() if (path / "__init__.py").is_file()}
    for room in folders - {"methods"}:
        assert f">{room}</text>" in drawn
    for room in (layout.SOURCE / "methods").iterdir():
        if (room / "__init__.py").is_file():
            assert f">{room.name}/</text>" in drawn


def test_answers_to_where_is_name_what_exists():
    page = pages.read(pages.ROOT / "docs" / "architecture.md")
    section = page.partition("## Where is …?")[2].partition("\n## ")[0]
    rows = [line.split("|")[2] for line in section.splitlines() if line.startswith("| ")][2:]
    assert len(rows) >= 25
    for row in rows:
        for name, said in re.findall(
            r"`([\w./]+/|[\w./]+\.\w+)`(?:: ((?:`[\w.]+`(?:, )?)+))?", row
        ):
            file = next(p for p in (layout.SOURCE / name, pages.ROOT / name) if p.exists())
            for one in re.findall(r"`([\w.]+)`", said):
                last = one.split(".")[-1]
                text = file.read_text(encoding="utf-8")
                assert re.search(rf"(def|class) {last}\b", text), f"{name} has no {one}"


def test_every_module_has_a_place_and_says_what_it_is_for():
    parts = {path.name for path in layout.SOURCE.iterdir() if not path.name.startswith("__")}
    assert parts - {"py.typed"} == set(layout.ORDER), "give it a place in docs/update_layout.py"
    for line in layout.layout().splitlines()[2:]:
        assert len(line.split()) > 5, f"no docstring: {line}"


def test_imports_never_go_up():
    place = {name.removesuffix(".py"): i for i, name in enumerate(layout.ORDER)}
    for path in layout.SOURCE.rglob("*.py"):
        unit = path.relative_to(layout.SOURCE).parts[0].removesuffix(".py")
        if unit in ("__init__", "__main__"):
            continue
        for imported in imported_parts(ast.parse(path.read_text(encoding="utf-8"))):
            assert imported in place, f"{path.name} imports {imported}"
            assert place[imported] <= place[unit], f"{unit} ({path.name}) imports {imported}"


def imported_parts(module: ast.Module) -> set[str]:
    """Parts of nestquad that are imported when the module is; not inside functions."""
    result = set()
    for node in module.body:
        if isinstance(node, ast.ImportFrom) and node.module == "nestquad":
            result |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("nestquad."):
            result.add(str(node.module).split(".")[1])
    return result
