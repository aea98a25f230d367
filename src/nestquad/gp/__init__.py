"""Gaussian processes: dense with trend and nugget, on lattices by FFT, and their lengthscales."""

from nestquad.gp._dense import (
    Correlation,
    Hyperparameters,
    PolynomialTrend,
    RestrictedLikelihood,
    Shape,
    fit_gp,
    trends,
)
from nestquad.gp._integrated import (
    IntegratedGP,
    JointFit,
    JointPriors,
    ScoreKind,
    fit_integrated,
)
from nestquad.gp._lattice import (
    JointLikelihood,
    LatticeLikelihood,
    LatticeProcess,
    PeriodicKernel,
    fit_periodic,
    in_lattice_order,
    in_sequence_order,
    interpolate,
    lattice_steps,
    omega,
    refine_kernel,
)
from nestquad.gp._lengthscale import (
    amplitude,
    fit_lengthscale,
    median_lengthscale,
    restricted_likelihood,
)
from nestquad.gp._optimizer import maximum_likelihood
from nestquad.gp._surrogate import (
    Surrogate,
    SurrogateKind,
    first_kinds,
    fit_surrogate,
    near_kinds,
)
from nestquad.points import reversed_bits

__all__ = [
    "Correlation",
    "Hyperparameters",
    "IntegratedGP",
    "JointFit",
    "JointLikelihood",
    "JointPriors",
    "LatticeLikelihood",
    "LatticeProcess",
    "PeriodicKernel",
    "RestrictedLikelihood",
    "ScoreKind",
    "Shape",
    "Surrogate",
    "SurrogateKind",
    "PolynomialTrend",
    "amplitude",
    "first_kinds",
    "fit_gp",
    "fit_integrated",
    "fit_lengthscale",
    "fit_periodic",
    "fit_surrogate",
    "in_lattice_order",
    "in_sequence_order",
    "interpolate",
    "lattice_steps",
    "maximum_likelihood",
    "median_lengthscale",
    "near_kinds",
    "omega",
    "refine_kernel",
    "restricted_likelihood",
    "reversed_bits",
    "trends",
]
