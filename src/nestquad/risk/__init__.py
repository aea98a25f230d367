"""Risk: value at risk, expected shortfall, exceedance and exposure of J(θ) = E[loss | θ]."""

from nestquad.risk._contributions import Contributions, Greeks
from nestquad.risk._distribution import LossDistribution
from nestquad.risk._exposure import Exposure
from nestquad.risk._measure import Forecast, forecast, measure
from nestquad.risk._report import Incremental, RiskReport
from nestquad.risk._stresses import Stress
from nestquad.risk._table import from_table
from nestquad.risk._validate import ValidationReport, validate

__all__ = [
    "Contributions",
    "Exposure",
    "Forecast",
    "Greeks",
    "Incremental",
    "LossDistribution",
    "RiskReport",
    "Stress",
    "ValidationReport",
    "forecast",
    "from_table",
    "measure",
    "validate",
]
