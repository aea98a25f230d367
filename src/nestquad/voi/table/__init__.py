"""Value of information from tables of a probabilistic sensitivity analysis, by regression."""

from nestquad.voi.table._evppi import evpi, evppi, parameter_sets
from nestquad.voi.table._evsi import BinaryTrial, Design, NormalTrial, evsi
from nestquad.voi.table._files import read_csv, read_workbook
from nestquad.voi.table._flags import FLAG_WORDS
from nestquad.voi.table._outputs import Outputs, as_outputs, ceac, psa_summary, wtp_grid
from nestquad.voi.table._population import DISCOUNT, enbs, people, population
from nestquad.voi.table._preview import Preview, preview
from nestquad.voi.table._tables import Problem, pandas

__all__ = [
    "DISCOUNT",
    "FLAG_WORDS",
    "BinaryTrial",
    "Design",
    "NormalTrial",
    "Outputs",
    "Preview",
    "Problem",
    "as_outputs",
    "ceac",
    "enbs",
    "evpi",
    "evppi",
    "evsi",
    "pandas",
    "parameter_sets",
    "people",
    "population",
    "preview",
    "psa_summary",
    "read_csv",
    "read_workbook",
    "wtp_grid",
]
