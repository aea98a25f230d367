"""The command line as a module: `python -m nestquad`."""

from __future__ import annotations

import sys

from nestquad.cli import main

if __name__ == "__main__":
    sys.exit(main())
