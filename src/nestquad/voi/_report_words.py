"""Sentences of the report: methods with citations, and what flags mean."""

from __future__ import annotations

__all__ = ["EVSI_METHODS", "FLAG_WORDS", "METHODS", "POPULATION", "REFERENCES"]

METHODS = """\
Values of information were estimated from {n} draws of a probabilistic sensitivity analysis with
{p} parameters by nestquad {version}. The expected value of perfect information (EVPI) is the mean
over draws of the largest net benefit, less the largest mean net benefit. The expected value of
partial perfect information (EVPPI) is by nonparametric regression [1, 2]: conditional means of
incremental costs and effects given the parameters of interest were estimated by Gaussian-process
regression with noise on cubic-spline eigenfunctions of each parameter and products of them (an
ANOVA decomposition [3]), with variances fitted by penalized marginal likelihood; the estimate is
the mean of the largest conditional net benefit less the largest mean. Standard errors and 95 %
intervals are from posterior draws under Bayesian-bootstrap weights [4]. Five-fold cross-fitting
tells values that cannot be distinguished from zero, and fits that held-out draws contradict. \
"""
EVSI_METHODS = """\
The expected value of sample information (EVSI) is by the same regression on summaries of one
simulated data set for each draw [5]; the expected net benefit of sampling (ENBS) is its value for
the population less the costs of the study. """
POPULATION = """\
Values for the population are for {per_year} people a year over {horizon} years, discounted at
{discount} a year."""
REFERENCES = (
    "Strong M, Oakley JE, Brennan A. Estimating multiparameter partial expected value of perfect "
    "information from a probabilistic sensitivity analysis sample: a nonparametric regression "
    "approach. Medical Decision Making 2014; 34: 311–326.",
    "Heath A, Manolopoulou I, Baio G. A review of methods for analysis of the expected value of "
    "information. Medical Decision Making 2017; 37: 747–758.",
    "Wahba G. Spline models for observational data. Philadelphia: SIAM, 1990.",
    "Rubin DB. The Bayesian bootstrap. Annals of Statistics 1981; 9: 130–134.",
    "Strong M, Oakley JE, Brennan A, Breeze P. Estimating the expected value of sample information "
    "using the probabilistic sensitivity analysis sample: a fast, nonparametric regression-based "
    "method. Medical Decision Making 2015; 35: 570–583.",
)
FLAG_WORDS = {
    "not distinguishable from 0": "deciding by these parameters gained nothing in held-out draws "
    "beyond what chance does; the value may well be zero.",
    "misfit": "held-out draws contradict the regression; shown is what deciding by it gained in "
    "them, which is rather too low than too high.",
    "too few rows": "more draws are needed for a number to rely on.",
    "above EVPI": "knowing part cannot be worth more than knowing all; the excess is noise.",
    "below its member": "knowing more cannot be worth less; the difference is noise.",
    "constant column": "a parameter that does not vary has no value of information.",
    "repeats": "the column tells nothing that the other does not.",
}
