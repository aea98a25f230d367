"""Promises of the documentation, measured: ``python -m studies promises`` writes benchmarks.md.

A new study is a module with a `STUDY`, listed here.
"""

from __future__ import annotations

from studies.promises import accuracy, bo_accuracy, cluster, imports, voi, voi_sets

__all__ = ["HEAD", "STUDIES"]

_MODULES = (accuracy, cluster, imports, voi, voi_sets, bo_accuracy)
STUDIES = tuple(module.STUDY for module in _MODULES)

HEAD = """\
<!-- Written by `python -m studies promises`; change studies/promises, not this page. -->
# Benchmarks

Random problems that nobody tuned on come first: [families](families.md). Here are shipped problems
and promises on them.

What nestquad promises, and what is measured. `make bench` runs everything on this page and writes
it, missed targets included; `python -m studies promises --only NAME` reruns one study and
`python -m studies promises --redraw` makes page and figures again from the saved results in
`data/`. Accuracy keeps each of its runs in `data/accuracy_runs.csv.gz` and continues where it
stopped. Errors are absolute, against exact values, and averaged over seeds 0, 1, 2, …; the number
after ± is the standard error of that average.
"""
