"""The command line: parses, calls the library, prints."""

from nestquad.cli._arguments import load_problem
from nestquad.cli._main import main

__all__ = ["load_problem", "main"]
