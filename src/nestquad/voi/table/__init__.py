"""Value of information from tables of a probabilistic sensitivity analysis, by regression."""

from nestquad.voi.table._decision import (
    ceac,
    expected_loss,
    icers,
    incremental,
    psa_summary,
    wtp_grid,
)
from nestquad.voi.table._evppi import evpi, evppi, parameter_sets
from nestquad.voi.table._files import KINDS, Preview, preview, read_csv, read_workbook
from nestquad.voi.table._numbers import pandas
from nestquad.voi.table._outputs import Outputs, as_outputs, input_table
from nestquad.voi.table._population import (
    DISCOUNT,
    amount,
    best_sizes,
    enbs,
    people,
    population,
    require,
)
from nestquad.voi.table._regression import has_trees
from nestquad.voi.table._scope import ENOUGH, convergence, implementation, scenarios, subgroups
from nestquad.voi.table._studies import (
    BinaryTrial,
    Combined,
    CountTrial,
    Design,
    NormalTrial,
    SurvivalTrial,
    as_design,
    design_names,
    evsi,
    study_sizes,
)
from nestquad.voi.table._tables import Problem

__all__ = [
    "DISCOUNT", "ENOUGH", "KINDS", "BinaryTrial", "Combined", "CountTrial",
    "Design", "NormalTrial", "Outputs", "Preview", "Problem", "SurvivalTrial", "amount",
    "as_design", "design_names", "as_outputs", "best_sizes", "ceac", "convergence", "enbs",
    "evpi", "evppi", "evsi", "expected_loss", "has_trees", "icers", "implementation",
    "incremental", "input_table", "pandas", "parameter_sets", "people", "population", "preview",
    "psa_summary", "read_csv", "read_workbook", "require", "scenarios", "study_sizes", "subgroups",
    "wtp_grid",
]  # fmt: skip
