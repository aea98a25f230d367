"""``nestquad voi``: value of information from tables."""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import nestquad as nq
from nestquad.cli._arguments import OUTPUT, Command, add_options, new_file, number, progress, wrote
from nestquad.pages import money, percent, span
from nestquad.voi import (
    Analysis,
    Audience,
    Study,
    analyze,
    save_voi_figures,
    write_voi_document,
    write_voi_report,
    write_voi_workbook,
)
from nestquad.voi.table import (
    DISCOUNT,
    KINDS,
    BinaryTrial,
    CountTrial,
    Design,
    NormalTrial,
    Outputs,
    Preview,
    SurvivalTrial,
    preview,
    read_csv,
)
from nestquad.voi.table._numbers import is_float
from nestquad.voi.table._population import ungrouped
from nestquad.voi.table._studies import read_sizes

if TYPE_CHECKING:
    import pandas as pd

_SUMMARY = "value of information from tables: EVPI, EVPPI, EVSI and ENBS"
_EPILOG = """\
examples:
  nestquad voi --parameters p.csv --costs c.csv --effects e.csv --wtp 20000 --report report.html
  nestquad voi --workbook model.xlsx --wtp 20000 30000 --pars p_cure,u_well --pars c_drug,c_stay
  nestquad voi --workbook model.xlsx --wtp 20000 --per-year 4000 --horizon 10 \\
      --trial binary:p_old,p_new --sizes 50 100 200 400 --fixed-cost 200000 --cost-each 2000 \\
      --duration 1 --duration-each 0.01 --report report.html --word submission.docx

Files have one header line and one row for each draw of a probabilistic sensitivity analysis: a
column for each parameter, and for costs and effects a column for each option, matched by name.
What is understood of them stands in the notes; --preview shows it and computes nothing.
"""


def add_voi(command: Command) -> None:
    """Add ``voi``."""
    parser = command("voi", _run, _SUMMARY, _EPILOG)
    for kind in KINDS:
        parser.add_argument(f"--{kind}", metavar="FILE.csv", help=f"draws of the {kind}")
    parser.add_argument(
        "--workbook",
        metavar="FILE.xlsx",
        help="instead: sheets parameters, costs and effects, or one sheet with all columns",
    )
    parser.add_argument(
        "--columns",
        nargs="+",
        action="extend",
        default=[],
        metavar="NAME=ROLE",
        help="of one sheet: input, 'cost of X', 'effect of X' or ignored (others are guessed; "
        "--preview shows them)",
    )
    parser.add_argument(
        "--sheets",
        nargs="+",
        action="extend",
        default=[],
        metavar="NAME",
        help="of the workbook, these sheets alone: one, or three in the order parameters, costs, "
        "effects (default: by their names)",
    )
    parser.add_argument(
        "--as-given", action="store_true", help="accept costs and effects that look swapped"
    )
    parser.add_argument(
        "--wtp",
        type=_amounts,
        nargs="+",
        action="extend",
        default=[],
        metavar="K",
        help="willingness to pay for a unit of effect; the report is about the first",
    )
    parser.add_argument(
        "--preview", action="store_true", help="say what is understood of the tables, and stop"
    )
    parser.add_argument(
        "--pars",
        action="append",
        type=_names,
        default=[],
        metavar="A,B",
        help="a group of parameters; may be given again for others (singles are always there); "
        "a name with a comma goes in quotes: '\"drug, day\",p'",
    )
    parser.add_argument(
        "--per-year",
        type=_amount,
        nargs="+",
        metavar="N",
        help="people a year, for values of a population; a number, or one for each year",
    )
    parser.add_argument(
        "--prevalence", type=_amount, default=0.0, metavar="N", help="people now (default 0)"
    )
    parser.add_argument(
        "--uptake",
        type=number,
        nargs="+",
        default=[1.0],
        metavar="S",
        help="share in whom the decision is implemented, or one for each year (default 1)",
    )
    parser.add_argument(
        "--horizon", type=number, metavar="Y", help="years of relevance, with --per-year"
    )
    parser.add_argument(
        "--discount", type=float, default=DISCOUNT, metavar="R", help="a year (default 0.035)"
    )
    parser.add_argument(
        "--trial",
        action="append",
        default=[],
        metavar="DESIGN",
        help=f"a study to value, or several by repeating: {_DESIGNS}",
    )
    parser.add_argument(
        "--sizes",
        type=_sizes,
        nargs="+",
        action="extend",
        default=[],
        metavar="N",
        help="participants in each arm (default 25 50 ... 800)",
    )
    parser.add_argument(
        "--ratio",
        type=number,
        nargs="+",
        metavar="R",
        help="sizes of the arms relative to N (default: equal)",
    )
    parser.add_argument(
        "--duration", type=number, default=0.0, metavar="Y", help="years until results (default 0)"
    )
    parser.add_argument(
        "--duration-each",
        type=number,
        default=0.0,
        metavar="Y",
        help="years more for each participant in an arm (default 0)",
    )
    parser.add_argument(
        "--fixed-cost", type=_amount, default=0.0, metavar="X", help="of the study (default 0)"
    )
    parser.add_argument(
        "--cost-each", type=_amount, default=0.0, metavar="X", help="per participant (default 0)"
    )
    for name, share, words in (
        ("scenario", "WEIGHT", "another model structure and its probability"),
        ("subgroup", "SHARE", "a part of the population, from the same draws, and its share"),
    ):
        parser.add_argument(
            f"--{name}",
            nargs=4,
            action="append",
            default=[],
            metavar=("NAME", share, "COSTS", "EFFECTS"),
            help=f"{words}, with its tables; repeat for others (the main tables have the rest)",
        )
    parser.add_argument("--title", metavar="TEXT", help="heading of the report")
    parser.add_argument("--currency", default="£", metavar="SIGN", help="default £")
    parser.add_argument("--effect", default="QALYs", metavar="WORD", help="default QALYs")
    for name, what in (("excel", "every table as a workbook"), ("word", "text, tables, figures")):
        suffix = {"excel": "TABLES.xlsx", "word": "SUBMISSION.docx"}[name]
        parser.add_argument(f"--{name}", type=new_file, metavar=suffix, help=what)
    parser.add_argument("--figures", type=Path, metavar="FOLDER", help="figures as SVG and PNG")
    parser.add_argument("--tables", type=Path, metavar="FOLDER", help="every table as .csv")
    parser.add_argument("--author", default="", metavar="NAME", help="of the report")
    add_options(parser, *OUTPUT)
    parser.set_defaults(seed=0)  # the same tables give the same numbers


def _run(args: argparse.Namespace) -> int:
    """Read, analyze, print, and write what was asked for."""
    seen = _tables(args)
    if args.preview:
        print(json.dumps(seen.to_dict(), indent=2) if args.json else seen)
        return 2 if seen.problems else 0
    if seen.problems and seen.problems[0].table == "costs and effects":
        asked = seen.problems[0].error
        advice = asked.advice.replace("say as_given", "add --as-given")
        raise nq.InputError(asked.argument, asked.given, asked.expected, advice)
    if not [k for some in args.wtp for k in some]:
        raise nq.InputError("--wtp", "nothing", "a willingness to pay, as --wtp 20000")
    outputs = seen.outputs([k for some in args.wtp for k in some])
    for note in seen.notes:
        print(f"note: {note}", file=sys.stderr)
    audience = _audience(args)
    sizes = [n for some in args.sizes for n in some] or [25, 50, 100, 200, 400, 800]
    costs = (args.fixed_cost, args.cost_each, args.duration, args.duration_each)
    analysis = analyze(
        outputs,
        seen.parameters,
        {" + ".join(names): names for names in args.pars},
        audience=audience,
        study=[Study(_design(text, args.ratio), sizes, *costs) for text in args.trial],
        scenarios=_parts_of(args, "scenario", outputs),
        subgroups=_parts_of(args, "subgroup", outputs),
        rng=args.seed,
        progress=progress(args),
        files=seen.files,
        notes=seen.notes,
    )
    if args.json:
        print(json.dumps(analysis.to_dict(), indent=2, allow_nan=False))
    else:
        _print(analysis, args)
    words = {"title": args.title, "currency": args.currency, "effect": args.effect}
    if args.report:
        written = write_voi_report(
            args.report, analysis, **words, author=args.author, command=args.line
        )
        wrote(args, written)
    if args.word:
        wrote(args, write_voi_document(args.word, analysis, **words, author=args.author))
    if args.excel:
        signs = {"currency": args.currency, "effect": args.effect}
        wrote(args, write_voi_workbook(args.excel, analysis, **signs))
    for path in save_voi_figures(args.figures, analysis) if args.figures else ():
        wrote(args, path)
    for name, table in analysis.tables.items() if args.tables else ():
        args.tables.mkdir(parents=True, exist_ok=True)
        table.map(_cell).to_csv(args.tables / f"{name}.csv", index=False)
        wrote(args, args.tables / f"{name}.csv")
    return 0


def _tables(args: argparse.Namespace) -> Preview:
    given = [name for name in KINDS if getattr(args, name)]
    if bool(args.workbook) == bool(given) or (given and len(given) < len(KINDS)):
        options = [f"--{name}" for name in given] + ["--workbook"] * bool(args.workbook)
        raise nq.InputError(
            "voi",
            " and ".join(options) or "no tables",
            "--parameters, --costs and --effects, or --workbook alone",
        )
    roles = {}
    for text in args.columns:
        name, mark, role = text.rpartition("=")
        if not mark:
            raise nq.InputError("--columns", repr(text), "NAME=ROLE, as 'total A=cost of A'")
        roles[name.strip()] = role.strip()
    if roles and not args.workbook:
        raise nq.InputError("--columns", "three tables", "--workbook with one sheet")
    if args.sheets and not args.workbook:
        raise nq.InputError("--sheets", "three tables", "--workbook")
    sources = [args.workbook] if args.workbook else [getattr(args, name) for name in KINDS]
    known = {"wtp": [k for some in args.wtp for k in some] or None, "as_given": args.as_given}
    return preview(*sources, columns=roles or None, sheets=args.sheets, **known)


def _parts_of(
    args: argparse.Namespace, kind: str, outputs: Outputs
) -> dict[str, tuple[float, Outputs]]:
    """Weights and outputs of scenarios or subgroups by name."""
    parts = {}
    for name, share, costs, effects in getattr(args, kind):
        if not is_float(share):
            raise nq.InputError(f"--{kind}", repr(share), "a number from 0 to 1", "As 0.3.")
        tables = read_csv(costs, "costs"), read_csv(effects, "effects")
        parts[name] = (float(share), Outputs(*tables, outputs.wtps, as_given=args.as_given))
    return parts


def _audience(args: argparse.Namespace) -> Audience | None:
    given = {"--per-year": args.per_year, "--horizon": args.horizon}
    missing = [name for name, value in given.items() if value is None]
    if len(missing) == 1:
        other = next(name for name in given if name not in missing)
        raise nq.InputError(other, f"{other} without {missing[0]}", "both, or neither")
    if missing:
        return None
    return Audience(args.per_year, args.horizon, args.discount, args.prevalence, args.uptake)


_DESIGNS = (
    "binary:P1[,P2...], normal:M1[,M2...]:SD, count:R1[,R2...][:TIME], "
    "survival:L1[,L2...]:FOLLOW_UP[:SHAPE]"
)


def _design(text: str, ratio: list[float] | None) -> Design:
    kind, *rest = _parts(text, ":")
    pars, rest = _names(rest[0]) if rest else [], [part.strip() for part in rest[1:]]
    try:
        if pars and kind == "binary" and not rest:
            return BinaryTrial(pars, ratio=ratio)
        if pars and kind == "normal" and len(rest) == 1:
            return NormalTrial(pars, float(rest[0]) if is_float(rest[0]) else rest[0], ratio=ratio)
        if pars and kind == "count" and len(rest) <= 1:
            return CountTrial(pars, *map(float, rest), ratio=ratio)
        if pars and kind == "survival" and 1 <= len(rest) <= 2:
            return SurvivalTrial(pars, *map(float, rest), ratio=ratio)
    except nq.InputError as error:
        raise nq.InputError(
            f"--{error.argument}" if error.argument == "ratio" else f"--trial {text}",
            error.given,
            error.expected,
            error.advice,
        ) from None
    except ValueError:
        pass
    raise nq.InputError(
        "--trial", repr(text), _DESIGNS, "P, M, R and L are parameters; SD is a number or one."
    )


def _print(analysis: Analysis, args: argparse.Namespace) -> None:
    def cash(value: float, half: float = 0.0) -> str:
        return money(value, args.currency, half)

    def half_width(row: Any, low: str = "lower", high: str = "upper") -> float:
        return float(getattr(row, high) - getattr(row, low)) / 2

    audience = analysis.audience
    for row in analysis.incremental.itertuples():
        print(
            f"{row.option} against {row.against} at {cash(row.wtp)}: incremental net benefit "
            f"{cash(row.inb, half_width(row))} ± {cash(half_width(row), half_width(row))} (95 %), "
            "better in "
            f"{percent(row.probability)} of draws"
        )
    for row in analysis.evpi.itertuples():
        half, everybody = half_width(row), ""
        if audience is not None:
            all_of = half * audience.size
            effects = money(row.population_effects, "", all_of / (row.wtp or np.inf))
            everybody = (
                f", {cash(row.population, all_of)} or {effects} {args.effect} for "
                f"{audience.size:,.0f} people (discounted)"
            )
        print(
            f"EVPI at {cash(row.wtp)}: {cash(row.evpi, half)} per person "
            f"(95 % {span(row.lower, row.upper, args.currency)}){everybody}"
        )
    for heading, table in (("parameter", analysis.singles), ("group", analysis.groups)):
        if len(table):
            print(f"\n{_listing(heading, table, len(analysis.evpi) > 1)}")
    for row in () if analysis.scenarios is None else analysis.scenarios.itertuples():
        if row.wtp in analysis.outputs.wtps:
            print(
                f"\nKnowing the scenario at {cash(row.wtp)}: "
                f"{cash(row.resolving, half_width(row))} "
                f"(95 % {span(row.lower, row.upper, args.currency)}) per person; best on average: "
                f"{row.best}"
            )
    if analysis.subgroups is not None:
        table = analysis.subgroups[analysis.subgroups["wtp"].isin(analysis.outputs.wtps)]
        known = table.assign(
            value=[cash(row.value, half_width(row)) for row in table.itertuples()],
            interval=[span(row.lower, row.upper, args.currency) for row in table.itertuples()],
        )
        columns = ["pars", "wtp", "decision", "share", "value", "interval", "flags"]
        print(f"\n{known[columns].to_string(index=False, float_format='{:,.6g}'.format)}")
    values = analysis.evsi if analysis.enbs is None else analysis.enbs
    if values is None:
        return
    several = values["design"].nunique() > 1
    print()
    for _, row in values.iterrows():
        net = ""
        if "enbs" in row:
            worth = cash(row.enbs, half_width(row, "enbs_lower", "enbs_upper"))
            net = f", ENBS {worth}{' (best)' * row.optimal}"
        of = f"{row.design}, " if several else ""
        print(
            f"EVSI of {of}{row.n:,} in each arm at {cash(row.wtp)}: "
            f"{cash(row.evsi, half_width(row))} "
            f"(95 % {span(row.lower, row.upper, args.currency)}) per person{net}"
        )
    for _, row in () if analysis.best_sizes is None else analysis.best_sizes.iterrows():
        worth = cash(row.enbs, half_width(row, "enbs_lower", "enbs_upper"))
        found = f"best size {row.n:,} in each arm, ENBS {worth}"
        near = f"; within 5 % of it: {row.near_from:,} to {row.near_to:,}"
        said = f"{found}{near}" if row.n else "no size pays"
        print(f"{row.design} at {cash(row.wtp)}: {said}" + f" ({row.notes})" * bool(row.notes))


def _cell(value: Any) -> Any:
    """Cell of a CSV file; a spreadsheet takes a text such as =A1 for a formula."""
    return f"'{value}" if isinstance(value, str) and value[:1] in tuple("=+-@\t\r") else value


def _listing(heading: str, table: pd.DataFrame, several: bool) -> str:
    """Lines of a table of EVPPI, with the digits that intervals support."""
    lines = [[heading, *(["wtp"] if several else []), "EVPPI", "95 % interval", "of EVPI", "flags"]]
    lines += [
        [
            row.pars,
            *([money(row.wtp)] if several else []),
            money(row.evppi, "", (row.upper - row.lower) / 2),
            span(row.lower, row.upper),
            percent(row["evppi/evpi"]),
            row["flags"],
        ]
        for _, row in table.iterrows()
    ]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            f"{cell:{'<' if j in (0, len(line) - 1) else '>'}{widths[j]}}"
            for j, cell in enumerate(line)
        ).rstrip()
        for line in lines
    )


def _amounts(text: str) -> list[float]:
    """One amount, or several with commas where none can be a separator of thousands."""
    return [_amount(text)] if ungrouped(text) else list(map(_amount, text.split(",")))


def _amount(text: str) -> float:
    """An amount of money or people; 20,000 and 20.000 are refused."""
    if meant := ungrouped(text.strip()):
        mark = "comma" if "," in text else "point and three digits" if "." in text else "separator"
        raise argparse.ArgumentTypeError(
            f"{text!r} has a {mark}; did you mean {meant}? "
            "Several values go with spaces, or with the option again"
        )
    return number(text.strip())


def _sizes(text: str) -> list[int]:
    try:
        return read_sizes(text)
    except nq.InputError as error:
        said = f"{error.given} is not {error.expected}. {error.advice}"
        raise argparse.ArgumentTypeError(said) from None


def _names(text: str) -> list[str]:
    return [name for part in _parts(text, ",") if (name := part.strip().strip('"').strip())]


def _parts(text: str, mark: str) -> list[str]:
    """Parts of a text between marks that are not inside quotes.

    Examples
    --------
    >>> _parts('binary:"cost: drug, day",p', ":")
    ['binary', '"cost: drug, day",p']
    """
    return re.split(rf'{mark}(?=(?:[^"]*"[^"]*")*[^"]*$)', text)
