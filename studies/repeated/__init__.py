"""Repeated expectations: random families, decisions, options, and a randomized rival."""
