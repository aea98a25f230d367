"""The gallery: scripts with a story and a figure, which run as scripts, pages and notebooks."""

from __future__ import annotations

import json
import sys

import doc_pages as pages
import pytest

sys.path.insert(0, str(pages.ROOT / "docs"))
import gallery_pages as gallery

SCRIPTS = gallery.scripts()  # those that can run here
BY_NAME = {script.name: script for script in SCRIPTS}
# Those that take a second or two; the site runs all of them.
QUICK = ("option_to_invest", "own_kernel")
SLOW = [name for name in BY_NAME if name not in QUICK]


def test_every_script_is_in_the_gallery_once():
    index = pages.read(gallery.SCRIPTS / "index.md")
    listed = [name for group in gallery._CARDS.findall(index) for name in group.split()]
    assert sorted(listed) == sorted(path.stem for path in gallery.SCRIPTS.glob("*.py"))
    assert len(SCRIPTS) == len(BY_NAME) >= 12


def test_a_script_that_lacks_a_module_is_left_out(tmp_path):
    path = tmp_path / "one.py"
    text = "import numpy\nfrom nestquad import plots, nowhere\nfrom nobody.at import home\n"
    path.write_text(f'"""Title\n\nA story.\n"""\n\n# %%\n{text}', encoding="utf-8")
    assert gallery.missing(gallery.read(path)) == ["nestquad.nowhere", "nobody"]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_script_has_a_title_a_story_and_a_figure(script):
    assert 0 < len(script.title) <= 60
    assert len(script.story.split()) >= 30
    assert script.sentence.endswith((".", "?"))
    code = "\n".join(cell.code for cell in script.cells)
    assert "plt.show()" in code
    assert "rng" in code or "seed" in code, "not reproducible"


@pytest.mark.parametrize("name", [*QUICK, *(pytest.param(n, marks=pytest.mark.slow) for n in SLOW)])
def test_script_runs_and_becomes_a_page(name, tmp_path):
    result, folder = gallery.executed(BY_NAME[name], tmp_path)
    assert any(output["figures"] for output in result["outputs"])
    page = gallery.page(BY_NAME[name], result)
    for output in result["outputs"]:
        for figure in output["figures"]:
            assert (folder / figure).is_file()
            assert f"]({figure})" in page


def test_a_script_that_fails_stops_the_site(tmp_path):
    path = tmp_path / "broken.py"
    path.write_text('"""Broken\n\nA story.\n"""\n\n# %%\n1 / 0\n', encoding="utf-8")
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        gallery.executed(gallery.read(path), tmp_path / "out")


def test_cells_are_split_into_text_and_code(tmp_path):
    path = tmp_path / "one.py"
    source = '"""Title\n\nA story. More.\n"""\n\n# %%\n# Words.\nx = 1\n# a comment\n\n# %%\nx\n'
    path.write_text(source, encoding="utf-8")
    script = gallery.read(path)
    assert (script.title, script.sentence) == ("Title", "A story.")
    assert script.cells == (gallery.Cell("Words.", "x = 1\n# a comment"), gallery.Cell("", "x"))


def test_notebook_runs_and_shows_tables_and_figures():
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    book = nbformat.reads(gallery.notebook(BY_NAME["option_to_invest"]), as_version=4)
    progress = "nq.estimate(problem, budget=20_000, method='nmc', rng=0, progress=True)"
    book.cells.append(nbformat.v4.new_code_cell(progress))
    compare = "nq.compare(problem, budget=256, methods=['nmc'], replicates=2, rng=0)"
    book.cells.append(nbformat.v4.new_code_cell(compare))
    book.cells.append(nbformat.v4.new_code_cell("nq.conditional(problem, budget=128, rng=0)"))
    nbformat.validate(book)
    nbclient.NotebookClient(book, timeout=600, kernel_name="python3").execute()
    shown = [output for cell in book.cells for output in cell.get("outputs", [])]
    tables = [o.data["text/html"] for o in shown if "text/html" in o.get("data", {})]
    for title in ("E[ f( E[ g(x, θ) | θ ] ) ]", "95 % interval", "mean |error|", "J(θ) of"):
        assert any(title in table for table in tables), title
    assert any("image/png" in output.get("data", {}) for output in shown)
    # A bar of tqdm is cleared at the end; without ipywidgets it is a line of text.
    lines = [o.text for o in shown if o.output_type == "stream" and o.name == "stderr"]
    line = "".join(lines)
    assert not line or ("evaluations" in line and not line.rpartition("\r")[2].strip()), line
    assert not any("<progress" in table for table in tables)
    json.dumps(book)
