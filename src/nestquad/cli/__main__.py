"""``python -m nestquad.cli``."""

from nestquad.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
