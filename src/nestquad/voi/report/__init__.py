"""Analysis of tables: results, figures and report."""

from nestquad.voi.report._analysis import Analysis, Audience, Study, analyze
from nestquad.voi.report._figures import (
    plot_ceac,
    plot_convergence,
    plot_enbs,
    plot_evpi,
    plot_evsi,
    plot_frontier,
    plot_loss,
    plot_plane,
    plot_rank,
)
from nestquad.voi.report._report import (
    save_voi_figures,
    write_voi_document,
    write_voi_report,
    write_voi_workbook,
)

__all__ = [
    "Analysis", "Audience", "Study", "analyze", "plot_ceac",
    "plot_convergence", "plot_enbs", "plot_evpi", "plot_evsi", "plot_frontier", "plot_loss",
    "plot_plane", "plot_rank", "save_voi_figures", "write_voi_document",
    "write_voi_report", "write_voi_workbook",
]  # fmt: skip
