"""Integrals of kernels: ∫ k(x, t) dP(t) and ∬ k dP dP, in closed form and batched over laws."""

from nestquad.embeddings._closed_forms import ClosedForm, register, supported_pairs
from nestquad.embeddings._embed import double_embedding, mean_embedding

__all__ = ["ClosedForm", "double_embedding", "mean_embedding", "register", "supported_pairs"]
