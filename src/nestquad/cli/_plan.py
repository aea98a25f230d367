"""``nestquad plan`` and ``nestquad analyze``: points to a file, values from files."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from nestquad._files import check_size
from nestquad.cli._arguments import (
    GOAL,
    TARGET,
    Command,
    add_options,
    load_expectation,
    new_file,
)
from nestquad.errors import InputError
from nestquad.pages import write_report
from nestquad.plan import Plan, ValueRows, plan, replay, value_rows

_PLAN_SUMMARY = "write down the points at which g is to be evaluated elsewhere"
_PLAN_EPILOG = """\
examples:
  nestquad plan model.py:problem --budget 1e3 --method nkq --seed 1 --out points.csv
  my-simulator points.csv > values.csv
  nestquad analyze points.plan.json values.csv

The g of the problem is not called and may be missing. Beside the points (columns id, theta_1, ...,
x_1, ...) a file *.plan.json is written, which says how they came about. The values come back in
any order: a column id and one column for each output of g.
"""
_ANALYZE_SUMMARY = "the estimate from values at the points of a plan"
_ANALYZE_EPILOG = """\
examples:
  nestquad analyze points.plan.json values.csv
  nestquad analyze points.plan.json values.csv --next more.csv
  nestquad analyze points.plan.json values.csv more-values.csv --json

Methods that learn ask for points in several blocks: --next writes the next one, and the values of
all blocks so far are given together the next time.
"""
_FORMAT = {"format": "nestquad plan", "version": 1}
_SETTINGS = ("target", "budget", "tol", "rtol", "method", "seed")


def add_plan(command: Command) -> None:
    """Add ``plan`` and ``analyze``."""
    parser = command("plan", _run_plan, _PLAN_SUMMARY, _PLAN_EPILOG)
    add_options(parser, *GOAL, "seed", target=TARGET)
    where: dict[str, Any] = {"type": new_file, "metavar": "POINTS.csv"}
    to = "where the points go; .parquet writes Parquet"
    parser.add_argument("--out", required=True, help=to, **where)

    parser = command("analyze", _run_analyze, _ANALYZE_SUMMARY, _ANALYZE_EPILOG)
    parser.add_argument("plan", metavar="PLAN.json", help="what `nestquad plan` wrote")
    parser.add_argument("values", nargs="+", metavar="VALUES.csv", help="CSV or Parquet files")
    parser.add_argument("--next", help="write the points to evaluate next", **where)
    add_options(parser, "json", "report")


def _run_plan(args: argparse.Namespace) -> int:
    settings = {name: getattr(args, name) for name in _SETTINGS}
    made = _made(settings)
    _write(made, args.out)
    description = args.out.with_suffix(".plan.json")
    content = {**_FORMAT, "id": made.id, **settings}
    description.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    print(f"{made}\nwrote {args.out} and {description}")
    return 0


def _run_analyze(args: argparse.Namespace) -> int:
    estimate, following = replay(_read(Path(args.plan)), _together(args.values))
    print(estimate.to_json(indent=2) if args.json else estimate)
    say = sys.stderr if args.json else sys.stdout
    if args.next is not None and following is not None:
        _write(following, args.next)
        print(f"{following}\nwrote {args.next}", file=say)
    elif following is not None:
        advice = "--next POINTS.csv writes them"
        print(f"the method asks for {following.n_points:,} more points; {advice}", file=say)
    elif args.next is not None:
        print("the method asks for no more points", file=say)
    if args.report:
        print(f"wrote {write_report(args.report, estimate=estimate, command=args.line)}", file=say)
    return 0


def _made(settings: dict[str, Any]) -> Plan:
    options = {name: settings[name] for name in ("budget", "tol", "rtol", "method")}
    return plan(load_expectation(settings["target"]), rng=settings["seed"], **options)


def _write(made: Plan, path: Path) -> None:
    if path.suffix == ".parquet":
        made.to_parquet(path)
    else:
        made.to_csv(path)


def _read(path: Path) -> Plan:
    check_size(path, "PLAN.json")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        known = {name: content[name] for name in _FORMAT} == _FORMAT
        known &= {*_SETTINGS, "id"} <= set(content) and isinstance(content["target"], str)
    except (ValueError, KeyError, TypeError, OSError, RecursionError):
        known = False
    if not known:
        given = f"{str(path)!r}, which is no plan of this version"
        raise InputError("PLAN.json", given, "a file *.plan.json that `nestquad plan` wrote")
    made = _made(content)
    if made.id != content["id"]:
        given = f"plan {content['id']}, which {content['target']} no longer gives (now {made.id})"
        advice = "Take back what was changed in its laws, or make new points."
        raise InputError("PLAN.json", given, "the problem for which the points were made", advice)
    return made


def _together(paths: list[str]) -> ValueRows:
    """The rows of several files as one table."""
    tables = [value_rows(path) for path in paths]
    shapes = {table.values.shape[1:] for table in tables}
    if len(shapes) > 1:
        raise InputError("VALUES.csv", "files with different columns", "the same in all files")
    ids = [row_id for table in tables for row_id in table.ids or ()]
    return ValueRows(ids, np.concatenate([table.values for table in tables]))
