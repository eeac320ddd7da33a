"""Muthukumar, Sulam: Sparsity-aware generalization theory for deep neural networks (COLT 2023)."""
