"""What an attempt came to: the posterior, the predictions on the bound examples, the counts.

A study that shows a bound lets its reader choose by it. So it is an attempt like a certificate, and
the certificates that come after it know (:class:`Shown`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from nonvacuous.data import Examples
from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.rules import attempts, digests

_BATCH = 2048


def outcome_digest(
    module: nn.Module,
    bound_part: Examples,
    *,
    distributions: Sequence[DiagonalGaussian | None],
    numbers: Mapping[str, Any],
) -> str:
    """SHA-256 over all that the promise rests on and settings do not know.

    The scores of every bound example are part of it, bit by bit: a number in the network's code
    that changes the function changes them, whatever the weights are.
    """
    facts = {
        "distributions": [None if each is None else each.digest() for each in distributions],
        "network": digests.tensors_digest(digests.fixed_tensors(module)),
        "predictions": predictions_digest(module, bound_part),
        "numbers": dict(numbers),
    }
    return _digest(facts)


def beginning_digest(module: nn.Module, bound_part: Examples) -> str:
    """SHA-256 over what training begins with: the predictions, and numbers that shape training."""
    shaping = {
        f"{name}.{key}": repr(value)
        for name, part in module.named_modules()
        for key, value in vars(part).items()
        if key != "training" and isinstance(value, bool | int | float | str)
    }
    facts = {"predictions": predictions_digest(module, bound_part), "attributes": shaping}
    return _digest(facts)


def predictions(module: nn.Module, examples: Examples) -> Iterator[tuple[Tensor, Tensor]]:
    """Scores of a network in evaluation mode, and labels, batch by batch on its device."""
    device = next(module.parameters(), torch.empty(0)).device
    for start in range(0, len(examples), _BATCH):
        inputs, labels = (t[start : start + _BATCH] for t in (examples.inputs, examples.labels))
        with torch.no_grad():
            scores = module(inputs.to(device))
        yield scores, labels.to(device)


def predictions_digest(module: nn.Module, examples: Examples) -> str:
    """SHA-256 over the scores, in the order of the examples."""
    digest = hashlib.sha256()
    for scores, _ in predictions(module, examples):
        raw = scores.detach().cpu().contiguous()
        digest.update(f"{raw.dtype}|{tuple(raw.shape)}|".encode())
        digest.update(raw.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def class_sizes(examples: Examples) -> tuple[int, ...]:
    """Examples of each class, largest first: the same whatever the classes are called."""
    return tuple(sorted((count for count in examples.class_counts() if count), reverse=True))


def _digest(facts: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


#: The ledger of runs that are not told where to go.
USUAL_LEDGER = Path("runs") / attempts.FILE_NAME


def ledger_of(named: Path | None, folder: Path | None) -> Path:
    """The named ledger, else the one beside the folder of the results, else that of all runs."""
    return named or (USUAL_LEDGER if folder is None else attempts.ledger_beside(folder))


class Shown:
    """Bounds that one command shows on some examples.

    examples   all that were loaded, before any of them were cut off or scaled: what is shown about
               a part of them or about other clothes of them is known to all
    """

    def __init__(self, ledger: Path, examples: Examples, *, command: str) -> None:
        self._ledger, self._examples, self._command = ledger, examples, command

    def record(self, settings: Mapping[str, Any], *, paid: int = 1) -> None:
        """Enter a bound with these settings, before anybody sees it.

        paid   the number of certificates that it shares the failure probability with
        """
        text = json.dumps({"command": self._command, **settings}, sort_keys=True, default=str)
        config = hashlib.sha256(text.encode()).hexdigest()
        attempt = attempts.Attempt(
            examples=self._digest,
            bound=self._examples.content_hash(),
            config=config,
            paid=paid,
            begun=config,
            classes=class_sizes(self._examples),
            command=self._command,
        )
        attempts.record_attempt(self._ledger, attempt)

    @cached_property
    def _digest(self) -> str:
        return digests.all_examples_digest(self._examples)
