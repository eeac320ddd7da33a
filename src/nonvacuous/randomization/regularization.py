"""Explicit regularizers on and off, on true and on random labels.

If a regularizer were what makes a network generalize, a network without it would not, and a network
with it could not fit random labels. The matrix shows both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from nonvacuous.randomization.learners import Outcome
from nonvacuous.training.many_material import linear_layers_after_the_first

#: The usual values, fixed before anything was seen.
WEIGHT_DECAY = 5e-4
DROPOUT = 0.5

_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


@dataclass(frozen=True)
class RegularizationRow:
    """Errors with one regularizer, one number for each seed.

    note    why there are none, or how they came about
    """

    name: str
    true_train: tuple[float, ...] = ()
    true_test: tuple[float, ...] = ()
    random_train: tuple[float, ...] = ()
    random_test: tuple[float, ...] = ()
    note: str = ""


def regularizers(
    module: nn.Module, example_shape: tuple[int, ...]
) -> tuple[dict[str, dict[str, Any]], list[RegularizationRow]]:
    """What can be switched for this network and these inputs, and what cannot, with the reason.

    By name how training is told; nothing where the network itself is another. It is used up here.
    """
    rows: dict[str, dict[str, Any]] = {"weight decay": {"weight_decay": WEIGHT_DECAY}}
    missing: dict[str, str] = {}
    if linear_layers_after_the_first(module):
        rows["dropout"] = {"dropout": DROPOUT}
    else:
        missing["dropout"] = "the network has no linear layer after its first layer"
    if len(example_shape) == 3:
        rows["random crops"] = {"augmentation": "crop"}
    else:
        missing["random crops"] = "the inputs are not images"
    switched, how = switch_batch_norm(module)
    if switched is None:
        place = "hidden layers followed by ReLU in an nn.Sequential"
        missing["batch normalization"] = f"no place for it was found: {place}"
    else:
        rows[how] = {}
    return rows, [RegularizationRow(name, note=why) for name, why in missing.items()]


def switch_batch_norm(module: nn.Module) -> tuple[nn.Module | None, str]:
    """The network without its batch normalization, or with one between weights and ReLU.

    What is given is used up: it is changed, or its layers are taken over.
    """
    holder = nn.ModuleDict({"network": module})
    if _replace(holder, lambda child: nn.Identity() if isinstance(child, _NORMS) else None):
        return holder["network"], "no batch normalization"
    added = _replace(holder, _with)
    return (holder["network"] if added else None), "batch normalization"


def early_stopping(true: Sequence[Outcome], random: Sequence[Outcome]) -> RegularizationRow:
    """The best epoch of each network by its test error: no rule to stop early can do better."""
    columns: dict[str, tuple[float, ...]] = {}
    for name, outcomes in (("true", true), ("random", random)):
        watched = [
            [(p.test_errors, p.epoch, p.train_errors) for p in o.curve if p.test_errors is not None]
            for o in outcomes
        ]
        if not all(watched):
            return RegularizationRow("early stopping", note="training was not watched")
        pairs = list(zip(map(min, watched), outcomes, strict=True))
        columns[f"{name}_train"] = tuple(own / o.train_examples for (_, _, own), o in pairs)
        columns[f"{name}_test"] = tuple(test / o.test_examples for (test, _, _), o in pairs)
    note = "the best epoch, picked on the test examples: no rule can do better"
    return RegularizationRow("early stopping", **columns, note=note)


def row_of(name: str, true: Sequence[Outcome], random: Sequence[Outcome]) -> RegularizationRow:
    columns: dict[str, Any] = {
        f"{labels}_{part}": tuple(getattr(outcome, f"{part}_error") for outcome in outcomes)
        for labels, outcomes in (("true", true), ("random", random))
        for part in ("train", "test")
    }
    return RegularizationRow(name, **columns)


def _replace(module: nn.Module, change: Callable[[nn.Module], nn.Module | None]) -> int:
    """Put what ``change`` makes of a child in its place, wherever it makes something of it."""
    changed = 0
    # Not by named_children, which leaves out what stands in a second place.
    for name, child in list(module._modules.items()):
        if child is None:
            continue
        new = change(child)
        if new is not None:
            module.add_module(name, new)
            changed += 1
        else:
            changed += _replace(child, change)
    return changed


def _with(child: nn.Module) -> nn.Module | None:
    if not isinstance(child, nn.Sequential):
        return None
    layers: list[nn.Module] = []
    children = list(child)
    for layer, following in zip(children, [*children[1:], None], strict=True):
        layers.append(layer)
        if isinstance(following, nn.ReLU) and isinstance(layer, nn.Linear):
            layers.append(nn.BatchNorm1d(layer.out_features))
        elif isinstance(following, nn.ReLU) and isinstance(layer, nn.Conv2d):
            layers.append(nn.BatchNorm2d(layer.out_channels))
    return nn.Sequential(*layers) if len(layers) > len(children) else None
