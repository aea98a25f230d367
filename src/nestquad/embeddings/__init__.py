"""Integrals of kernels: ∫ k(x, t) dP(t) and ∬ k dP dP, in closed form and batched over laws."""

# Importing a file of closed forms registers its pairs.
from nestquad.embeddings import _gaussian, _matern_normal, _matern_uniform, _sobolev
from nestquad.embeddings._embed import double_embedding, mean_embedding
from nestquad.embeddings._registry import supported_pairs

__all__ = ["double_embedding", "mean_embedding", "supported_pairs"]
del _gaussian, _matern_normal, _matern_uniform, _sobolev
