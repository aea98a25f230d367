"""Write docs/reproduction.md from a quick run: `python docs/update_reproduction.py results`.

Parts with more replicates than that are named with their number: `… results bo=40` takes the first
40 of the full run. Verdicts, captions and figures are those of the runs; nothing is typed in by
hand.
"""

from __future__ import annotations

import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS.parent))

from studies.paper import parts, section_of  # noqa: E402
from studies.paper.part import Effort, Runs  # noqa: E402
from studies.runner.ledger import Ledger  # noqa: E402
from studies.runner.page import PAPER, Section, markdown_page  # noqa: E402
from studies.runner.text import duration  # noqa: E402

COMMAND, PREFIX = "python -m studies paper all --out results", "reproduce_"

HEAD = """\
<!-- Written by `python docs/update_reproduction.py results` from studies/paper. -->
# The paper, reproduced

One command in a clone computes every figure and table of the experiments and appendices of *Nested
Expectations with Kernel Quadrature* again, the published configuration first and our default beside
it:

```console
{command}
```

`make reproduce` is its short form. It writes `results/index.html`, a self-contained page, where
each figure stands with the claims it supports and the reasons of the verdicts; every run is a line
of `results/data/runs.csv`, and each figure is there as PNG, SVG and CSV. Interrupt it at any time:
the same command continues from there. `--full` takes the paper's numbers of replicates (1000 and
100), `--jobs` sets the number of processes, and the same `--seed` gives the same numbers whatever
their number. One part alone:

```console
python -m studies paper finance --jobs 2
```

Bayesian optimisation (`python -m studies paper bo`) takes longer than all others together and needs
the extra `botorch`; without it `all` leaves it out, and the page says so.

What follows is the quick run, seed {seed}: {runs:,} runs, {took} of CPU time.{more}{absent}

## Verdicts

“Holds better” stands for a number that is better than claimed, or for our default beside the
published configuration; “does not hold” means that the 95 % interval of these runs excludes the
claim, and “cannot tell” that they leave it open.

"""


def main() -> None:
    """Write the page and copy its figures."""
    results, seed = Path(sys.argv[1] if len(sys.argv) > 1 else "results"), 0
    larger = {name: int(n) for name, _, n in (word.partition("=") for word in sys.argv[2:])}
    ledger = Ledger(results / "data" / "runs.csv", seed)
    sections: list[Section] = []
    used, missing = {}, []
    for part in parts().values():
        wanted = larger.get(part.name)
        effort = Effort("quick") if wanted is None else Effort("full", wanted)
        tasks = effort.capped(part.tasks(effort))
        if ledger.missing(tasks):  # as where an extra that it needs was not installed
            missing.append(part.title)
            continue
        runs = Runs.of(ledger, tasks)
        section = section_of(part, runs, effort, provenance=False)
        names = [finding.drawing.name for finding in section.findings if finding.drawing]
        if not all((results / "figures" / f"{name}.png").exists() for name in names):
            missing.append(part.title)  # one without runs that was not asked for
            continue
        for name in names:
            copy_small(results / "figures" / f"{name}.png", f"{PREFIX}{name}.png")
        used |= runs.by_task
        sections.append(section)
    more = "".join(
        f" `{name}` has {n} replicates (`python -m studies paper {name} --full --replicates {n}`)."
        for name, n in larger.items()
    )
    head = HEAD.format(
        command=COMMAND,
        seed=seed,
        runs=len(used),
        took=duration(sum(run.seconds for run in used.values())),
        more=more,
        absent=f" Not among them: {', '.join(missing)}." if missing else "",
    )
    text = markdown_page(head, sections, PAPER, prefix=PREFIX, details=False)
    (DOCS / "reproduction.md").write_text(text, encoding="utf-8")


def copy_small(source: Path, name: str) -> None:
    """The figure with 128 colors, which looks the same and takes a third of the space."""
    from PIL import Image

    with Image.open(source) as picture:
        picture.convert("RGB").quantize(128).save(DOCS / "figures" / name, optimize=True)


if __name__ == "__main__":
    main()
