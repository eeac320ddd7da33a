"""Certificates with all settings as keywords, as tests like to vary them one by one."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from nonvacuous import sparsity
from nonvacuous.sparsity import SparseSettings, SparsityCertificate

_NAMES = {field.name for field in fields(SparseSettings)}


def certify_sparse(*given: Any, **options: Any) -> SparsityCertificate:
    own = {name: options.pop(name) for name in list(options) if name in _NAMES}
    return sparsity.certify_sparse(*given, SparseSettings(**own), **options)
