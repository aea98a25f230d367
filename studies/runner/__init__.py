# ruff: noqa: F401 - for `from studies.runner import …`
"""The runner of all studies: tasks, a ledger of runs, processes, verdicts, pages.

A study lists tasks; `collect` runs those that its `Ledger` lacks; tables and verdicts are made
from the rows. A `Study` returns a `Result`, which `run_studies` saves as JSON with a history of
earlier verdicts, and turns into a page together with the results of all other studies.
"""

from __future__ import annotations

from studies.runner.collect import Progress, collect, in_processes, say
from studies.runner.ledger import Ledger, Outcome, Run, Task, cells, sources
from studies.runner.page import (
    PAPER,
    PROMISES,
    Section,
    Words,
    html_page,
    markdown_page,
    markdown_table,
    plain_markdown,
)
from studies.runner.result import (
    Column,
    Drawing,
    Figure,
    Finding,
    Result,
    Status,
    Table,
    Verdict,
    columns,
    environment,
)
from studies.runner.study import Settings, Study, run_studies
from studies.runner.text import count, duration, factor, limit, number, seconds, short, times
