"""Certificates with all settings as keywords, as tests like to vary them one by one."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from nonvacuous import sparsity
from nonvacuous.sparsity import SparseSettings, SparsityCertificate
from nonvacuous.sparsity.certify import evaluator_of
from nonvacuous.sparsity.weights import Network

_NAMES = {field.name for field in fields(SparseSettings)}


def certify_sparse(*given: Any, **options: Any) -> SparsityCertificate:
    own = {name: options.pop(name) for name in list(options) if name in _NAMES}
    return sparsity.certify_sparse(*given, SparseSettings(**own), **options)


def judge(
    network: Network, prior: Network, *, sparse: bool, device: Any = "cpu", **own: Any
) -> Any:
    """What measures the network by a theorem; E unless another is asked for."""
    asked = SparseSettings(variant="sparse" if sparse else "dense", **own)
    return evaluator_of(network, prior, asked, device=device)
