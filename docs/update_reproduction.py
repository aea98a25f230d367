"""Write docs/reproduction.md from a quick run: `python docs/update_reproduction.py results`.

Parts with more replicates than that are named with their number: `… results bo=40` takes the first
40 of the full run. Verdicts, captions and figures are those of the runs; nothing is typed in by
hand.
"""

from __future__ import annotations

import sys
from pathlib import Path

from nestquad.reproduce._part import Content, Part
from nestquad.reproduce._registry import absent, parts
from nestquad.reproduce._runs import Ledger, Runs
from nestquad.reproduce._task import Effort
from nestquad.reproduce._text import duration

DOCS = Path(__file__).resolve().parent
COMMAND = "nestquad reproduce all --out results"

HEAD = """\
<!-- Written by `python docs/update_reproduction.py results` from src/nestquad/reproduce. -->
# The paper, reproduced

One command computes every figure and table of the experiments and appendices of *Nested
Expectations with Kernel Quadrature* again, the published configuration first and our default beside
it:

```console
{command}
```

`make reproduce` is its short form. It writes `results/index.html`, a page that needs nothing else,
where each figure stands with the claims it supports and the reasons of the verdicts; every run is a
line of `results/data/runs.csv`, and each figure is there as PNG, SVG and CSV. Stop it when you
like: the same command goes on from there. `--full` takes the paper's numbers of replicates (1000
and 100), `--jobs` sets the number of processes, and the same `--seed` gives the same numbers
whatever their number. One part alone:

```console
nestquad reproduce finance --jobs 2
```

Bayesian optimisation (`nestquad reproduce bo`) takes longer than all others together and needs the
extra `botorch`; without it `all` leaves it out, and the page says so.

What follows is the quick run, seed {seed}: {runs:,} runs, {took} of CPU time.{more}{absent}

## Verdicts

“Holds better” stands for a number that is better than claimed, or for our default beside the
published configuration; “does not hold” means that the 95 % interval of these runs excludes the
claim, and “cannot tell” that they leave it open.

| part | claim | paper | measured here | verdict |
| --- | --- | --- | --- | --- |
"""


def main() -> None:
    """Write the page and copy its figures."""
    results, seed = Path(sys.argv[1] if len(sys.argv) > 1 else "results"), 0
    larger = {name: int(n) for name, _, n in (word.partition("=") for word in sys.argv[2:])}
    ledger = Ledger(results / "data" / "runs.csv", seed)
    found: list[tuple[Part, Content]] = []
    used = {}
    missing = absent()
    for part in parts().values():
        wanted = larger.get(part.name)
        effort = Effort("quick") if wanted is None else Effort("full", wanted)
        tasks = effort.capped(part.tasks(effort))
        if ledger.missing(tasks):  # as where an extra that it needs was not installed
            missing.append(part.title)
            continue
        runs = Runs.of(ledger, tasks)
        content = part.analyze(runs, effort)
        drawings = [finding.drawing for finding in content.findings if finding.drawing]
        if not all((results / "figures" / f"{one.name}.png").exists() for one in drawings):
            missing.append(part.title)  # one without runs that was not asked for
            continue
        used |= runs.by_task
        found.append((part, content))
    more = "".join(
        f" `{name}` has {n} replicates (`nestquad reproduce {name} --full --replicates {n}`)."
        for name, n in larger.items()
    )
    without = f" Not among them: {', '.join(missing)}." if missing else ""
    text = HEAD.format(
        command=COMMAND,
        seed=seed,
        runs=len(used),
        took=duration(sum(run.seconds for run in used.values())),
        more=more,
        absent=without,
    )
    for part, content in found:
        for v in content.verdicts:
            link = f"[{part.name}](#{anchor(part.title)})"
            cells = [link, *map(plain, (v.claim, v.paper, v.ours)), v.status]
            text += "| " + " | ".join(cells) + " |\n"
    for part, content in found:
        text += section(part, content, results)
    (DOCS / "reproduction.md").write_text(text, encoding="utf-8")


def section(part: Part, content: Content, results: Path) -> str:
    """A part: its figures with their captions, copied beside the page."""
    about = plain(f"In the paper: {part.source}. {part.about}")
    text = f"\n## {part.title}\n\n{about}\n"
    for finding in content.findings:
        if finding.title:
            text += f"\n### {plain(finding.title)}\n"
        for paragraph in filter(None, finding.text.split("\n\n")):
            text += f"\n{plain(paragraph)}\n"
        if finding.drawing is not None:
            name = f"reproduce_{finding.drawing.name}.png"
            copy_small(results / "figures" / f"{finding.drawing.name}.png", DOCS / "figures" / name)
            caption = plain(finding.drawing.caption)
            text += f"\n![{caption}](figures/{name})\n\n*{caption}*\n"
    return text


def copy_small(source: Path, target: Path) -> None:
    """The figure with 128 colors, which looks the same and takes a third of the space."""
    from PIL import Image

    with Image.open(source) as picture:
        picture.convert("RGB").quantize(128).save(target, optimize=True)


def plain(text: str) -> str:
    """Text whose signs Markdown leaves alone."""
    for sign in "\\_*|[]":
        text = text.replace(sign, f"\\{sign}")
    return text


def anchor(title: str) -> str:
    """What Markdown makes of a heading."""
    return "".join(c for c in title.lower().replace(" ", "-") if c.isalnum() or c == "-")


if __name__ == "__main__":
    main()
