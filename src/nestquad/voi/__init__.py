"""Value of information in health economics: EVPI, EVPPI, EVSI and ENBS, from tables and models."""

from __future__ import annotations

from nestquad.voi.model import Model
from nestquad.voi.report import (
    Analysis,
    Audience,
    Study,
    analyze,
    plot_ceac,
    plot_enbs,
    plot_evpi,
    plot_evsi,
    plot_plane,
    plot_rank,
    write_voi_report,
)
from nestquad.voi.table import (
    BinaryTrial,
    NormalTrial,
    Outputs,
    ceac,
    enbs,
    evpi,
    evppi,
    evsi,
    people,
    population,
    psa_summary,
    read_csv,
    read_workbook,
)

__all__ = [
    "Analysis",
    "Audience",
    "BinaryTrial",
    "Model",
    "NormalTrial",
    "Outputs",
    "Study",
    "analyze",
    "ceac",
    "enbs",
    "evpi",
    "evppi",
    "evsi",
    "people",
    "plot_ceac",
    "plot_enbs",
    "plot_evpi",
    "plot_evsi",
    "plot_plane",
    "plot_rank",
    "population",
    "psa_summary",
    "read_csv",
    "read_workbook",
    "write_voi_report",
]
