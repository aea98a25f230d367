"""``nestquad voi``: value of information from tables."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

import nestquad as nq
from nestquad.cli._arguments import Command, add_output, listed, number, progress, wrote
from nestquad.result import NORMAL_95
from nestquad.voi.report import Analysis, Audience, Study, analyze, money, write_voi_report
from nestquad.voi.table import (
    DISCOUNT,
    BinaryTrial,
    Design,
    NormalTrial,
    Outputs,
    read_csv,
    read_workbook,
)

if TYPE_CHECKING:
    import pandas as pd

_SUMMARY = "value of information from tables: EVPI, EVPPI, EVSI and ENBS"
_EPILOG = """\
examples:
  nestquad voi --parameters p.csv --costs c.csv --effects e.csv --wtp 20000 --report report.html
  nestquad voi --workbook model.xlsx --wtp 20000,30000 --pars p_cure,u_well --pars c_drug,c_stay
  nestquad voi --parameters p.csv --costs c.csv --effects e.csv --wtp 20000 \\
      --trial binary:p_old,p_new --sizes 50,100,200,400 --fixed-cost 200000 --cost-each 2000

Files have one header line and one row for each draw of a probabilistic sensitivity analysis: a
column for each parameter, and for costs and effects a column for each option, in the same order.
"""


def add_voi(command: Command) -> None:
    """Add ``voi``."""
    parser = command("voi", _run, _SUMMARY, _EPILOG)
    for kind in ("parameters", "costs", "effects"):
        parser.add_argument(f"--{kind}", metavar="FILE.csv", help=f"draws of the {kind}")
    parser.add_argument(
        "--workbook", metavar="FILE.xlsx", help="instead: sheets parameters, costs and effects"
    )
    parser.add_argument(
        "--wtp",
        type=listed(number),
        required=True,
        metavar="K[,K...]",
        help="willingness to pay for a unit of effect; the report is about the first",
    )
    parser.add_argument(
        "--pars",
        action="append",
        type=_names,
        default=[],
        metavar="A,B",
        help="a group of parameters; may be given again for others (singles are always there)",
    )
    parser.add_argument(
        "--per-year", type=float, default=1000.0, metavar="N", help="people a year (default 1000)"
    )
    parser.add_argument(
        "--horizon", type=float, default=10.0, metavar="Y", help="years of relevance (default 10)"
    )
    parser.add_argument(
        "--discount", type=float, default=DISCOUNT, metavar="R", help="a year (default 0.035)"
    )
    parser.add_argument(
        "--trial",
        metavar="DESIGN",
        help="a study to value: binary:P1[,P2...] (probabilities), or normal:M1[,M2...]:SD",
    )
    parser.add_argument(
        "--sizes",
        type=listed(number),
        default=[25.0, 50.0, 100.0, 200.0, 400.0, 800.0],
        metavar="N[,N...]",
        help="participants in each arm (default 25,50,...,800)",
    )
    parser.add_argument(
        "--fixed-cost", type=float, default=0.0, metavar="X", help="of the study (default 0)"
    )
    parser.add_argument(
        "--cost-each", type=float, default=0.0, metavar="X", help="per participant (default 0)"
    )
    parser.add_argument("--title", metavar="TEXT", help="heading of the report")
    parser.add_argument("--currency", default="£", metavar="SIGN", help="default £")
    parser.add_argument("--effect", default="QALYs", metavar="WORD", help="default QALYs")
    add_output(parser)
    parser.set_defaults(seed=0)  # the same tables give the same numbers


def _run(args: argparse.Namespace) -> int:
    """Read, analyze, print, and write the report."""
    inputs, outputs = _tables(args)
    groups = {" + ".join(names): names for names in args.pars}
    study = None
    if args.trial:
        sizes = [int(n) for n in args.sizes]
        study = Study(_design(args.trial), sizes, args.fixed_cost, args.cost_each)
    analysis = analyze(
        outputs,
        inputs,
        groups,
        audience=Audience(args.per_year, args.horizon, args.discount),
        study=study,
        rng=args.seed,
        progress=progress(args),
    )
    if args.json:
        print(json.dumps(analysis.to_dict(), indent=2, allow_nan=False))
    else:
        _print(analysis, args)
    if args.report:
        page = write_voi_report(
            args.report,
            analysis,
            title=args.title,
            currency=args.currency,
            effect=args.effect,
            command=args.line,
        )
        wrote(args, page)
    return 0


def _tables(args: argparse.Namespace) -> tuple[pd.DataFrame, Outputs]:
    kinds = ("parameters", "costs", "effects")
    given = [name for name in kinds if getattr(args, name)]
    if bool(args.workbook) == bool(given) or (given and len(given) < len(kinds)):
        options = [f"--{name}" for name in given] + ["--workbook"] * bool(args.workbook)
        raise nq.InputError(
            "voi",
            " and ".join(options) or "no tables",
            "--parameters, --costs and --effects, or --workbook alone",
        )
    if args.workbook:
        tables = read_workbook(args.workbook)
    else:
        tables = {name: read_csv(getattr(args, name), name) for name in kinds}
    return tables["parameters"], Outputs(tables["costs"], tables["effects"], args.wtp)


def _design(text: str) -> Design:
    kind, _, rest = text.partition(":")
    pars, _, sd = rest.partition(":")
    if kind == "binary" and pars and not sd:
        return BinaryTrial(_names(pars))
    if kind == "normal" and pars and sd:
        return NormalTrial(_names(pars), _number_or_name(sd))
    raise nq.InputError(
        "--trial",
        repr(text),
        "binary:P1[,P2...] or normal:M1[,M2...]:SD",
        "P and M are parameters; SD is a number or a parameter.",
    )


def _print(analysis: Analysis, args: argparse.Namespace) -> None:
    for row in analysis.evpi.itertuples():
        print(
            f"EVPI at {money(row.wtp, args.currency)}: {money(row.evpi, args.currency)} per person "
            f"(95 % {money(row.lower, args.currency)} to {money(row.upper, args.currency)}), "
            f"{money(row.population, args.currency)} or {row.population_effects:,.4g} "
            f"{args.effect} for {analysis.audience.size:,.0f} people (discounted)"
        )
    for heading, table in (("parameter", analysis.singles), ("group", analysis.groups)):
        if len(table):
            print(f"\n{_listing(heading, table, len(args.wtp) > 1)}")
    if analysis.enbs is not None:
        print()
        for row in analysis.enbs.itertuples():
            print(
                f"EVSI of {row.n:,} in each arm at {money(row.wtp, args.currency)}: "
                f"{money(row.evsi, args.currency)} ± {money(NORMAL_95 * row.se, args.currency)} "
                f"per person, ENBS {money(row.enbs, args.currency)}{' (best)' * row.optimal}"
            )


def _listing(heading: str, table: pd.DataFrame, several: bool) -> str:
    width = max(len(heading), *(len(name) for name in table["pars"]))
    wtp = f"{'wtp':>10}" if several else ""
    lines = [
        f"{heading:<{width}}{wtp}{'EVPPI':>10}{'se':>9}{'lower':>10}{'upper':>10}  of EVPI  flags"
    ]
    for _, row in table.iterrows():
        numbers = "".join(f"{row[name]:>10,.4g}" for name in ("lower", "upper"))
        at = f"{row.wtp:>10,.0f}" if several else ""
        share = (
            "–" if row["evppi/evpi"] != row["evppi/evpi"] else f"{100 * row['evppi/evpi']:.0f} %"
        )
        lines.append(
            f"{row.pars:<{width}}{at}{row.evppi:>10,.4g}{row.se:>9,.3g}{numbers}{share:>9}  "
            f"{row['flags']}".rstrip()
        )
    return "\n".join(lines)


def _names(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _number_or_name(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text
