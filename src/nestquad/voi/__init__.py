"""Value of information in health economics: EVPI, EVPPI, EVSI and ENBS, from tables and models."""

from __future__ import annotations

from nestquad.voi.model import Model
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
from nestquad.voi.table import (
    BinaryTrial,
    Combined,
    CountTrial,
    NormalTrial,
    Outputs,
    Preview,
    Problem,
    SurvivalTrial,
    best_sizes,
    ceac,
    convergence,
    enbs,
    evpi,
    evppi,
    evsi,
    expected_loss,
    icers,
    implementation,
    incremental,
    people,
    population,
    preview,
    psa_summary,
    read_csv,
    read_workbook,
    scenarios,
    subgroups,
)

__all__ = [
    "Analysis", "Audience", "BinaryTrial", "Combined", "CountTrial", "Model", "NormalTrial",
    "Outputs", "Preview", "Problem", "Study", "SurvivalTrial", "analyze", "best_sizes", "ceac",
    "convergence", "enbs", "evpi", "evppi", "evsi", "expected_loss", "icers", "implementation",
    "incremental", "people", "plot_ceac", "plot_convergence", "plot_enbs", "plot_evpi",
    "plot_evsi", "plot_frontier", "plot_loss", "plot_plane", "plot_rank", "population",
    "preview", "psa_summary", "read_csv", "read_workbook", "save_voi_figures", "scenarios",
    "subgroups", "write_voi_document", "write_voi_report", "write_voi_workbook",
]  # fmt: skip
