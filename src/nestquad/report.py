"""Another name of :mod:`nestquad.pages`, kept for scripts."""

from nestquad.pages import write_report

__all__ = ["write_report"]
