"""Multilevel methods: a telescoping sum over numbers of inner points."""

from nestquad.methods.multilevel.mlkq import MLKQ as MLKQ
from nestquad.methods.multilevel.mlmc import MLMC as MLMC
