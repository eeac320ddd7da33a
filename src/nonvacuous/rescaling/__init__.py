"""Rescaling: the same function with other weights, at a smaller complexity."""
