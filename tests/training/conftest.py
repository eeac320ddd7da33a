"""Networks that a test builds on the spot take their weights from the global generator."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(autouse=True)
def _same_weights_in_every_run() -> None:
    torch.manual_seed(0)
