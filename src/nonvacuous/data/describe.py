"""What is in a data set, as a plain record for the command line and for reports."""

from __future__ import annotations

from typing import Any

import torch

from nonvacuous.data.checks import count_repeats, find_duplicates
from nonvacuous.data.examples import Dataset, Examples


def describe(dataset: Dataset) -> dict[str, Any]:
    """Counts, shapes, class names, label histogram, duplicates and hashes; ready for JSON."""
    record: dict[str, Any] = {
        "name": dataset.name,
        "classes": dataset.train.classes,
        "class_names": list(dataset.train.class_names),
        "example_shape": list(dataset.train.example_shape),
        "train": _describe_part(dataset.train),
        "test": None,
        "duplicates_across": None,
        "unused": list(dataset.unused),
    }
    if dataset.test is not None:
        record["test"] = _describe_part(dataset.test)
        record["duplicates_across"] = {
            "inputs": len(find_duplicates(dataset.train, dataset.test, ignore_labels=True)),
            "inputs_and_labels": len(find_duplicates(dataset.train, dataset.test)),
        }
    return record


def _describe_part(examples: Examples) -> dict[str, Any]:
    counts = torch.bincount(examples.labels, minlength=examples.classes)
    repeated_inputs = count_repeats(examples, ignore_labels=True)
    repeated = count_repeats(examples)
    return {
        "name": examples.name,
        "examples": len(examples),
        "label_counts": counts.tolist(),
        "largest_class_fraction": int(counts.max()) / max(1, len(examples)),
        "lowest_input": float(examples.inputs.min()) if len(examples) else None,
        "highest_input": float(examples.inputs.max()) if len(examples) else None,
        "preprocessing": list(examples.preprocessing),
        "repeats": {"inputs": repeated_inputs, "inputs_and_labels": repeated},
        "content_hash": examples.content_hash(),
    }
