"""Accuracy: error propagation, calibration of bars, smoothness of f, sample sizes."""

from nestquad.accuracy._allocation import Allocation as Allocation
from nestquad.accuracy._allocation import Level as Level
from nestquad.accuracy._allocation import allocate as allocate
from nestquad.accuracy._errors import degrees_of_freedom as degrees_of_freedom
from nestquad.accuracy._errors import finite_average as finite_average
from nestquad.accuracy._errors import linearized_covariance as linearized_covariance
from nestquad.accuracy._errors import propagated as propagated
from nestquad.accuracy._errors import replicate_errors as replicate_errors
from nestquad.accuracy._errors import size_of as size_of
from nestquad.accuracy._errors import tail_index as tail_index
from nestquad.accuracy._smoothness import characteristics as characteristics
from nestquad.accuracy._smoothness import is_discontinuous as is_discontinuous
from nestquad.accuracy._smoothness import needs_positive as needs_positive
from nestquad.accuracy._smoothness import order_near as order_near
from nestquad.accuracy._smoothness import order_of_smoothness as order_of_smoothness
from nestquad.accuracy._smoothness import takes as takes
