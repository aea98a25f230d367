"""Integrals of kernels: ∫ k(x, t) dP(t) and ∬ k dP dP, in closed form and batched over laws."""

# Importing a file of closed forms registers its pairs.
from nestquad.embeddings import _gaussian, _matern, _sobolev
from nestquad.embeddings._closed_forms import ClosedForm, register, supported_pairs
from nestquad.embeddings._embed import double_embedding, mean_embedding

__all__ = ["ClosedForm", "double_embedding", "mean_embedding", "register", "supported_pairs"]
del _gaussian, _matern, _sobolev
