"""What a network computes and along which scales it can move without changing its function."""

from __future__ import annotations

from nonvacuous.networks.capture import capture
from nonvacuous.networks.folding import fold_batch_norm
from nonvacuous.networks.layer_graph import LayerGraph, Node, Reference, Support
from nonvacuous.networks.log_scale import LogScale
from nonvacuous.networks.operators.registry import (
    Passage,
    register_operator,
    registered_operators,
    unregister_operator,
)
from nonvacuous.networks.scale_groups import (
    AxisScale,
    Group,
    Pinned,
    ScaleGroups,
    rescaled,
)
from nonvacuous.networks.solution import preservation_error, scale_groups

__all__ = [
    "AxisScale",
    "Group",
    "LayerGraph",
    "LogScale",
    "Node",
    "Passage",
    "Pinned",
    "Reference",
    "ScaleGroups",
    "Support",
    "capture",
    "fold_batch_norm",
    "preservation_error",
    "register_operator",
    "registered_operators",
    "rescaled",
    "scale_groups",
    "unregister_operator",
]
