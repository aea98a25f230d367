"""Gallery: each script of docs/gallery is run when the site is built, and becomes a page.

A script begins with a docstring, whose first line is the title and whose rest is the story.
``# %%`` starts a cell, and comments after it are Markdown. Output, figures and HTML
representations of a last expression stand below their cell. A script may be downloaded as a
notebook. Scripts run in processes of their own; results are kept in ``.cache/gallery`` until the
script or the package changes. Scripts that import a module which is not there are left out, with a
message. A line ``<!-- cards: name … -->`` in any page becomes pictures that
lead to these scripts; those of ``gallery/index.md`` make the menu.

``python docs/gallery_pages.py run SCRIPT FOLDER`` runs one script.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import html
import importlib.util
import io
import json
import os
import re
import subprocess
import sys
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = ROOT / "docs" / "gallery"
CACHE = ROOT / ".cache" / "gallery"
_CARDS = re.compile(r"<!-- cards: ([\w ]+) -->")


@dataclass(frozen=True)
class Cell:
    """Markdown, and the code below it."""

    text: str
    code: str


@dataclass(frozen=True)
class Script:
    """A script of the gallery."""

    path: Path
    title: str
    story: str
    cells: tuple[Cell, ...]

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def sentence(self) -> str:
        """The first sentence of the story, without markup."""
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)|[`*$]", r"\1", " ".join(self.story.split()))
        return plain.partition(". ")[0].rstrip(".") + "."


def read(path: Path) -> Script:
    """Title, story and cells of a script."""
    source = path.read_text(encoding="utf-8")
    docstring = ast.get_docstring(ast.parse(source)) or ""
    title, _, story = docstring.partition("\n")
    first = ast.parse(source).body[0].end_lineno or 1
    rest = "\n".join(source.splitlines()[first:])
    cells = [_cell(part) for part in re.split(r"^# %%.*\n", rest, flags=re.M) if part.strip()]
    return Script(path, title.rstrip("."), story.strip(), tuple(cells))


def _cell(part: str) -> Cell:
    lines = part.strip("\n").splitlines()
    n = next((i for i, line in enumerate(lines) if not line.startswith("#")), len(lines))
    text = "\n".join(line.removeprefix("#").removeprefix(" ") for line in lines[:n])
    return Cell(text, "\n".join(lines[n:]).strip("\n"))


def scripts() -> list[Script]:
    """All that can run here, in the order of the gallery's first page."""
    index = (SCRIPTS / "index.md").read_text(encoding="utf-8")
    names = [name for group in _CARDS.findall(index) for name in group.split()]
    results = [read(SCRIPTS / f"{name}.py") for name in names]
    return [script for script in results if not missing(script)]


def missing(script: Script) -> list[str]:
    """Modules that a script imports and that are not there."""
    names = set()
    for node in ast.walk(ast.parse(script.path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module == "nestquad":
            names |= {f"nestquad.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.partition(".")[0])
    return sorted(name for name in names if importlib.util.find_spec(name) is None)


# Running one script, in a process of its own.


def run(path: Path, folder: Path) -> None:
    """Run a script cell by cell; write outputs.json and figures into the folder."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    plt.show = lambda: None  # figures are collected below
    folder.mkdir(parents=True, exist_ok=True)
    script = read(path)
    namespace: dict[str, Any] = {"__name__": "__main__", "__file__": str(path)}
    started, outputs, count = time.perf_counter(), [], 0
    for cell in script.cells:
        text, shown = _cell_output(cell.code, namespace, path)
        figures = []
        for number in plt.get_fignums():
            count += 1
            name = f"{script.name}_{count}.png"
            plt.figure(number).savefig(folder / name, dpi=160, bbox_inches="tight")
            figures.append(name)
        plt.close("all")
        outputs.append({"text": text, "html": shown, "figures": figures})
    result = {"seconds": time.perf_counter() - started, "outputs": outputs}
    (folder / "outputs.json").write_text(json.dumps(result), encoding="utf-8")


def _cell_output(code: str, namespace: dict[str, Any], path: Path) -> tuple[str, str]:
    """What a cell printed, and the HTML of its last expression."""
    tree = ast.parse(code)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed, shown = io.StringIO(), ""
    with contextlib.redirect_stdout(printed), warnings.catch_warnings():
        warnings.simplefilter("error", category=UserWarning)  # nobody would see them
        exec(compile(tree, str(path), "exec"), namespace)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), str(path), "eval"), namespace)
            if hasattr(value, "_repr_html_"):
                shown = re.sub(r"<style.*?</style>", "", value._repr_html_(), flags=re.S)
    return printed.getvalue(), shown


# The hook of mkdocs.


def executed(script: Script, cache: Path) -> tuple[dict[str, Any], Path]:
    """Results of a script, run unless it and the package are as before; and their folder."""
    digest = hashlib.sha256(script.path.read_bytes())
    for source in sorted((ROOT / "src").rglob("*.py")):
        digest.update(source.read_bytes())
    folder = cache / f"{script.name}-{digest.hexdigest()[:16]}"
    if not (folder / "outputs.json").is_file():
        paths = [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in paths if p)}
        command = [sys.executable, __file__, "run", str(script.path), str(folder)]
        done = subprocess.run(command, env=env, capture_output=True, encoding="utf-8")
        if done.returncode:
            raise RuntimeError(f"{script.path.name} failed:\n{done.stderr}")
    return json.loads((folder / "outputs.json").read_text(encoding="utf-8")), folder


def page(script: Script, result: dict[str, Any]) -> str:
    """The page of a script in Markdown."""
    parts = ["---\nhide:\n  - toc\n---", f"# {script.title}", script.story]
    for cell, output in zip(script.cells, result["outputs"], strict=True):
        parts += [cell.text, f"```python\n{cell.code}\n```" if cell.code else ""]
        shown = output["html"]
        if output["text"].strip():
            shown = f"<pre><code>{html.escape(output['text'].rstrip())}</code></pre>" + shown
        if shown:
            parts.append(f'<div class="output">{_one_line(shown)}</div>')
        parts += [f"![{script.title}]({name})" for name in output["figures"]]
    parts.append(
        f'<p class="small">This page ran in {result["seconds"]:.1f} seconds. '
        f'<a href="{script.name}.ipynb" download>Notebook</a>; '
        f"in a clone: <code>python docs/gallery/{script.path.name}</code></p>"
    )
    return "\n\n".join(part for part in parts if part)


def _one_line(text: str) -> str:
    """HTML without line breaks, of which Markdown would make paragraphs; not inside <pre>."""
    return text.replace("\n", "&#10;") if "<pre>" in text else " ".join(text.split("\n"))


def cards(names: list[str], prefix: str) -> str:
    """Pictures with titles that lead to the pages of scripts."""
    items = []
    for script, result in (_found[name] for name in names if name in _found):
        figures = [name for output in result["outputs"] for name in output["figures"]]
        picture = f'<img src="{prefix}{figures[-1]}" alt="">' if figures else ""
        items.append(
            f'<a href="{prefix}{script.name}.html"><div class="picture">{picture}</div>'
            f"<strong>{html.escape(script.title)}</strong>"
            f'<span class="story">{html.escape(script.sentence)}</span></a>'
        )
    return f'<div class="cards">{"".join(items)}</div>'


def notebook(script: Script) -> str:
    """The script as a notebook, not yet run."""
    import nbformat.v4 as nb

    cells = [nb.new_markdown_cell(f"# {script.title}\n\n{script.story}")]
    for cell in script.cells:
        cells += [nb.new_markdown_cell(cell.text)] if cell.text else []
        cells += [nb.new_code_cell(cell.code)] if cell.code else []
    for i, cell in enumerate(cells):
        cell["id"] = f"{script.name}-{i}"  # the same file whenever it is made
    return json.dumps(nb.new_notebook(cells=cells), indent=1)


_found: dict[str, tuple[Script, dict[str, Any]]] = {}


def on_config(config: Any) -> Any:
    """Put the pages into the menu."""
    for entry in config.nav:
        if "Gallery" in entry:
            pages = [{one.title: f"gallery/{one.name}.md"} for one in scripts()]
            entry["Gallery"] = ["gallery/index.md", *pages]
    return config


def on_files(files: Any, config: Any) -> Any:
    """Run the scripts and add their pages, figures and notebooks."""
    from mkdocs.structure.files import File

    _found.clear()
    for path in sorted(SCRIPTS.glob("*.py")):
        if lacks := missing(read(path)):
            print(f"gallery: {path.name} is left out, for it needs {', '.join(lacks)}")
    for script in scripts():
        result, folder = executed(script, CACHE)
        _found[script.name] = (script, result)
        add = {f"{script.name}.md": page(script, result), f"{script.name}.ipynb": notebook(script)}
        for name, content in add.items():
            files.append(File.generated(config, f"gallery/{name}", content=content))
        for output in result["outputs"]:
            for name in output["figures"]:
                data = (folder / name).read_bytes()
                files.append(File.generated(config, f"gallery/{name}", content=data))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Fill in the cards of a page."""
    prefix = "" if page.file.src_uri.startswith("gallery/") else "gallery/"
    return _CARDS.sub(lambda m: cards(m[1].split(), prefix), markdown)


if __name__ == "__main__":
    _, verb, given, target = sys.argv
    assert verb == "run"
    run(Path(given).resolve(), Path(target))
