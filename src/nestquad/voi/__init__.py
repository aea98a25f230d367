"""Value of information in health economics: EVPI, EVPPI, EVSI and ENBS, from tables and models."""

from __future__ import annotations

from nestquad.voi._analysis import Analysis, Audience, Study, analyze
from nestquad.voi._designs import BinaryTrial, NormalTrial
from nestquad.voi._evppi import evpi, evppi
from nestquad.voi._evsi import evsi
from nestquad.voi._figures import (
    plot_ceac,
    plot_enbs,
    plot_evpi,
    plot_evsi,
    plot_plane,
    plot_rank,
)
from nestquad.voi._model import Model
from nestquad.voi._outputs import Outputs
from nestquad.voi._population import enbs, people, population
from nestquad.voi._psa import ceac, psa_summary
from nestquad.voi._read import read_csv, read_workbook
from nestquad.voi._report import write_voi_report

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
