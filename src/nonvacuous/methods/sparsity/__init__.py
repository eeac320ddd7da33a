"""Certifying one fixed network by the sparsity and stability of its activations."""
