"""Write the results table and the example's output into README.md: `python docs/update_readme.py`.

No number in the README, or in the example of the site's first page, is typed by hand. The blocks
between ``<!-- name:begin -->`` and ``<!-- name:end -->`` are what the commands printed above them
give.
"""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import nestquad as nq

ROOT = Path(__file__).resolve().parents[1]
PROBLEM, BUDGET, REPLICATES, SEED = "finance", 10_000, 20, 0
COMMAND = f"nestquad compare {PROBLEM} --budget {BUDGET} --replicates {REPLICATES} --seed {SEED}"


def main() -> None:
    """Run the example and the comparison, and rewrite the README."""
    output = example_output()
    for path in (ROOT / "README.md", ROOT / "docs" / "index.md"):
        text = with_block(path.read_text(encoding="utf-8"), "output", output)
        if path.name == "README.md":
            text = with_block(text, "results", results_table(results()))
        path.write_text(text, encoding="utf-8")


def results() -> nq.Comparison:
    """What the command in the README computes, with CPU seconds of one estimate."""
    problem = nq.problems.get(PROBLEM)
    table = nq.compare(problem, budget=BUDGET, replicates=REPLICATES, rng=SEED, progress=True)
    rows = tuple(replace(row, seconds=cpu_seconds(problem, row.method)) for row in table.rows)
    return replace(table, rows=rows)


def cpu_seconds(problem: nq.NestedExpectation, method: str) -> float:
    """Median CPU seconds of five estimates, which other work on the machine changes little."""
    times = []
    for seed in range(5):
        start = time.process_time()
        nq.estimate(problem, budget=BUDGET, method=method, rng=seed)
        times.append(time.process_time() - start)
    return statistics.median(times)


def results_table(table: nq.Comparison) -> str:
    """The comparison as a Markdown table."""
    head = ["method", "evaluations", "mean error", "95 % half-width", "interval covers", "seconds"]
    rows = [
        [
            row.method,
            f"{row.n_evaluations:,}",
            _number(row.mean_abs_error),
            _number(row.half_width),
            "–" if row.coverage is None else f"{100 * row.coverage:.0f} %",
            f"{row.seconds:.2g}",
        ]
        for row in table.rows
    ]
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def example_output() -> str:
    """What examples/quickstart.py prints."""
    example = ROOT / "examples" / "quickstart.py"
    run = subprocess.run(
        [sys.executable, str(example)], capture_output=True, check=True, encoding="utf-8"
    )
    return f"```text\n{run.stdout.rstrip()}\n```"


def with_block(text: str, name: str, content: str) -> str:
    """The text with the named block replaced."""
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    if len(pattern.findall(text)) != 1:
        raise SystemExit(f"expected one block {begin} … {end}")
    return pattern.sub(lambda _: f"{begin}\n{content}\n{end}", text)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2g}"


if __name__ == "__main__":
    main()
