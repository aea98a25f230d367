"""Write the list of modules into docs/modules.md: `python docs/update_layout.py`.

Each line is the first sentence of a module's docstring, so the page says what the code says.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "nestquad"
PAGE = ROOT / "docs" / "modules.md"
BEGIN, END = "<!-- layout:begin -->", "<!-- layout:end -->"

# Data flows down this list: a room imports only from rooms above it.
ORDER = (
    "errors.py",
    "_typing.py",
    "limits.py",
    "_scale.py",
    "_threads.py",
    "_checks.py",
    "_files.py",
    "clock.py",
    "_notebook.py",
    "_log.py",
    "_frames.py",
    "_labels.py",
    "functionals.py",
    "distributions",
    "kernels.py",
    "embeddings.py",
    "points",
    "rules.py",
    "gp",
    "regression",
    "quadrature.py",
    "problem.py",
    "repeated.py",
    "result.py",
    "evaluate",
    "accuracy.py",
    "methods",
    "_progress.py",
    "estimate.py",
    "expectation.py",
    "conditional.py",
    "_diagnosis.py",
    "certify.py",
    "compare.py",
    "plan.py",
    "problems",
    "plots",
    "pages",
    "voi",
    "_tangent_problem.py",
    "sensitivity.py",
    "risk",
    "design",
    "botorch",
    "cli",
)


def main() -> None:
    """Rewrite the block in docs/modules.md."""
    PAGE.write_text(with_layout(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


def with_layout(text: str) -> str:
    """The page with its list of modules made anew."""
    pattern = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
    if len(pattern.findall(text)) != 1:
        raise SystemExit(f"expected one block {BEGIN} … {END}")
    return pattern.sub(lambda _: f"{BEGIN}\n{layout()}\n{END}", text)


def layout() -> str:
    """A table with one line a module; folders, and modules beside them, are bold."""
    rows = ["| | |", "| --- | --- |"]
    for path in sorted(SOURCE.iterdir(), key=_position):
        if path.is_dir() and (path / "__init__.py").is_file():
            rows.append(f"| **`{path.name}/`** | **{_summary(path / '__init__.py')}** |")
            inside = sorted(p for p in path.rglob("*.py") if p != path / "__init__.py")
            rows += [f"| `{_label(p, path)}` | {_summary(p)} |" for p in inside]
        elif path.suffix == ".py" and path.name != "__init__.py":
            rows.append(f"| **`{path.name}`** | **{_summary(path)}** |")
    return "\n".join(rows)


def _label(module: Path, folder: Path) -> str:
    """The name of a module in a folder; a folder inside it by its own name."""
    name = module.relative_to(folder).as_posix()
    return name.removesuffix("__init__.py")


def _position(path: Path) -> tuple[int, str]:
    known = ORDER.index(path.name) if path.name in ORDER else len(ORDER)
    return known, path.name


def _summary(path: Path) -> str:
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    paragraph = " ".join(docstring.split("\n\n")[0].split())
    return paragraph.removesuffix(".").replace("|", "\\|")


if __name__ == "__main__":
    main()
