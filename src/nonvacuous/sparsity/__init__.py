"""Sparsity and stability of activations: certificates for the network that is deployed."""

from __future__ import annotations

from nonvacuous.sparsity.certify import SparsityCertificate, certify_sparse
from nonvacuous.sparsity.constants import Charge
from nonvacuous.sparsity.conv_chain import ConvChain
from nonvacuous.sparsity.conv_reading import read_network
from nonvacuous.sparsity.conv_training import ConvTraining, train_conv
from nonvacuous.sparsity.findings import SparsityStudy
from nonvacuous.sparsity.norms import babel_norm, reduced_gram, row_norm, sparse_norm, spectral_norm
from nonvacuous.sparsity.radii import (
    LocalScales,
    NormTables,
    greedy_sparsity,
    growth,
    local_radii,
    local_scales,
    output_shift,
    stability_thresholds,
)
from nonvacuous.sparsity.setting import SparseSettings
from nonvacuous.sparsity.study import study
from nonvacuous.sparsity.weights import Layers

__all__ = [
    "Charge",
    "ConvChain",
    "ConvTraining",
    "Layers",
    "LocalScales",
    "NormTables",
    "SparseSettings",
    "SparsityCertificate",
    "SparsityStudy",
    "babel_norm",
    "certify_sparse",
    "greedy_sparsity",
    "growth",
    "local_radii",
    "local_scales",
    "output_shift",
    "read_network",
    "reduced_gram",
    "row_norm",
    "sparse_norm",
    "spectral_norm",
    "stability_thresholds",
    "study",
    "train_conv",
]
