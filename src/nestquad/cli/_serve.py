"""``nestquad voi serve``: the page."""

from __future__ import annotations

import argparse

from nestquad.cli._arguments import Command
from nestquad.errors import optional_module

_SUMMARY = "value of information as a page in the browser, on this machine alone"
_EPILOG = """\
examples:
  nestquad voi serve
  nestquad voi serve --port 8080 --no-open

The address that it prints has a token: without it nobody gets in. Uploads are kept in a private
folder that is removed at the end (Ctrl-C).
"""


def add_serve(command: Command) -> None:
    """Add ``voi serve``."""
    parser = command("voi serve", _run, _SUMMARY, _EPILOG)
    parser.add_argument(
        "--port", type=int, default=0, metavar="N", help="of 127.0.0.1 (default: a free one)"
    )
    parser.add_argument("--no-open", action="store_true", help="do not open a browser")


def _run(args: argparse.Namespace) -> int:
    for module in ("starlette", "uvicorn", "multipart"):
        optional_module(module, "The page", "web")
    from nestquad.voi.serve import serve

    serve(args.port, open_browser=not args.no_open, say=lambda text: print(text, flush=True))
    return 0
