"""Analysis of tables: results, figures and report."""

from nestquad.voi.report._analysis import Analysis, Audience, Study, analyze
from nestquad.voi.report._figures import (
    plot_ceac,
    plot_enbs,
    plot_evpi,
    plot_evsi,
    plot_plane,
    plot_rank,
)
from nestquad.voi.report._report import money, write_voi_report

__all__ = [
    "Analysis",
    "Audience",
    "Study",
    "analyze",
    "money",
    "plot_ceac",
    "plot_enbs",
    "plot_evpi",
    "plot_evsi",
    "plot_plane",
    "plot_rank",
    "write_voi_report",
]
