"""Rouchouse, Gonon, Gribonval, Guedj: Can Rescaling Invariances Help? (arXiv 2509.26149)."""
