"""Write docs/reproduction.md from a quick run: `python docs/update_reproduction.py results`.

Parts with more replicates than that are named with their number: `… results bo=40` takes the first
40 of the full run. A part without runs keeps the section that the page has, and the page says so.
Verdicts, captions and figures are those of the runs; nothing is typed in by hand.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS.parent))

from studies.paper import parts, section_of  # noqa: E402
from studies.paper.part import Effort, Runs  # noqa: E402
from studies.runner.ledger import Ledger  # noqa: E402
from studies.runner.page import PAPER, markdown_section  # noqa: E402
from studies.runner.text import duration  # noqa: E402

COMMAND, PREFIX = "python -m studies paper all --out results", "reproduce_"
_PLURAL = {"holds": "hold", "holds better": "hold better", "does not hold": "do not hold"}
_PLURAL |= {"cannot tell": "are left open"}
_TABLE = re.compile(r"((?:^\|.*\n)+)", re.M)  # in a box of their own, for narrow screens

HEAD = """\
<!-- Written by `python docs/update_reproduction.py results` from studies/paper. -->
# The paper, reproduced

Every figure and table of the experiments and appendices of *Nested Expectations with Kernel
Quadrature*, computed again: the published configuration first, our default beside it. Below each
figure stand the claims that it supports. Of {total} claims of the paper {counts}.

“Holds better” means that what is claimed is reached and the number is better; “does not hold” that
the 95 % interval of these runs excludes the claim; “cannot tell” that they leave it open. “Ours”
marks what the paper does not claim: it is measured without a verdict, and not counted.
“Sensitivity” is the same measurement with a setting that the paper leaves open. These are the quick
runs with seed {seed} ([run them yourself](#run-it-yourself)): {runs:,} runs, {took} of CPU
time, with nestquad {version}; “ours” is the default of that version.{more}

“As published” is `nq.NKQ.as_published(problem)`. The paper leaves some choices open, or they
cannot be followed to the letter:

* Its Matérn kernels are isotropic with s = ν + d/2; ours are products over coordinates with
  ν = s − ½ in each. For one coordinate they are the same.
* λ<sub>0</sub> comes from the paper's grid {{0.01, 0.1, 1}}. The paper names no criterion; here it
  is the smallest leave-one-out error, which needs no truth.
* A Gaussian kernel has no finite s, and the schedule of λ no limit but zero: the smallest ridge
  that keeps the weights tame takes its place. For s ≥ 0.6 the schedule is followed as printed.
* Health names closed-form embeddings under normal laws, and not whether variables were
  standardized; all readings are [below](#which-variables).
* Methods with Sobol points, the rival NQMC included, have powers of two.

Of the point sets that the paper mentions for kernel quadrature, determinantal point processes and
fully symmetric sets are not implemented. Importance sampling is a change of the law, and adaptive
designs are those of `ckq` and `joint`.

"""
TAIL = """
## Run it yourself

One command in a clone, or its short form `make reproduce`:

```console
{command}
```

It writes `results/index.html`, a self-contained page with the reasons of all verdicts; every run is
a line of `results/data/runs.csv`, and each figure is there as PNG, SVG and CSV. Interrupt it at any
time: the same command continues from there. `--full` takes the paper's numbers of replicates (1000
and 100), `--jobs` sets the number of processes, and the same `--seed` gives the same numbers
whatever their number. One part alone:

```console
python -m studies paper finance --jobs 2
```

Bayesian optimisation (`python -m studies paper bo`) takes longer than all others together and needs
the extra `botorch`; without it `all` leaves it out, and the page says so.
"""


def main() -> None:
    """Write the page and copy its figures."""
    results, seed = Path(sys.argv[1] if len(sys.argv) > 1 else "results"), 0
    larger = {name: int(n) for name, _, n in (word.partition("=") for word in sys.argv[2:])}
    ledger = Ledger(results / "data" / "runs.csv", seed)
    page = DOCS / "reproduction.md"
    earlier = dict(re.findall(r"^(## .+)\n((?:(?!## ).*\n)*)", page.read_text("utf-8"), re.M))
    texts: list[str] = []
    used, kept = {}, []
    for part in parts().values():
        wanted = larger.get(part.name)
        effort = Effort("quick") if wanted is None else Effort("full", wanted)
        tasks = effort.capped(part.tasks(effort))
        if ledger.missing(tasks):
            heading = f"## {part.title}"
            texts.append(f"{heading}\n{earlier[heading].rstrip()}\n")
            kept.append(part.name)
            continue
        runs = Runs.of(ledger, tasks)
        section = section_of(part, runs, effort, provenance=False)
        for finding in section.findings:
            if finding.drawing:
                name = finding.drawing.name
                copy_small(results / "figures" / f"{name}.png", f"{PREFIX}{name}.png")
        used |= runs.by_task
        text = markdown_section(section, PAPER, prefix=PREFIX, tables=False)
        texts.append(_TABLE.sub(r'<div class="verdicts" markdown="1">\n\n\1\n</div>\n', text))
    more = "".join(
        f"\n`{name}` has {n} replicates (`python -m studies paper {name} --full --replicates {n}`)"
        f"{', run earlier and not in that number' if name in kept else ''}."
        for name, n in larger.items()
    )
    if others := [name for name in kept if name not in larger]:
        more += f"\nThe runs of {', '.join(others)} are earlier ones, not in that number."
    body = "\n".join(texts)
    found = Counter(re.findall(rf"\| ({'|'.join(_PLURAL)}) \|", body))
    head = HEAD.format(
        total=found.total(),
        counts=", ".join(f"{found[status]} {words}" for status, words in _PLURAL.items()),
        seed=seed,
        runs=len(used),
        version=" and ".join(sorted({run.version for run in used.values()})),
        took=duration(sum(run.seconds for run in used.values())),
        more=more,
    )
    page.write_text(head + body + TAIL.format(command=COMMAND), encoding="utf-8")


def copy_small(source: Path, name: str) -> None:
    """The figure with 128 colors, which looks the same and takes a third of the space."""
    from PIL import Image

    with Image.open(source) as picture:
        picture.convert("RGB").quantize(128).save(DOCS / "figures" / name, optimize=True)


if __name__ == "__main__":
    main()
