"""Write measured tables into docs/outgrowing-one-machine.md: `python docs/update_outgrowing.py`.

They are those that `python -m studies promises --only cluster` saved in docs/data.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "outgrowing-one-machine.md"
DATA = ROOT / "docs" / "data" / "bench_cluster.json"
BEGIN, END = "<!-- cluster:begin -->", "<!-- cluster:end -->"


def main() -> None:
    """Rewrite the block in the page."""
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


def with_tables(text: str) -> str:
    """The page with its tables made anew."""
    sys.path.insert(0, str(ROOT))
    from studies.runner.page import markdown_table
    from studies.runner.result import Result

    tables = "\n".join(markdown_table(table) for table in Result.load(DATA).tables)
    pattern = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
    return pattern.sub(lambda _: f"{BEGIN}\n{tables}\n{END}", text)


if __name__ == "__main__":
    main()
