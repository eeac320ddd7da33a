"""The residual network of nine layers: its size, and that batch normalization folds away."""

from __future__ import annotations

import pytest
import torch

from nonvacuous.errors import Unrecognized
from nonvacuous.models import build
from nonvacuous.networks import fold_batch_norm


@pytest.mark.slow
def test_size_and_folding() -> None:
    network = build("resnet9", (3, 32, 32), 10, seed=0)
    assert sum(parameter.numel() for parameter in network.parameters()) == 6_573_130
    small = build("resnet9:4", (1, 28, 28), 10, seed=0)
    small(torch.rand(16, 1, 28, 28))  # statistics to fold
    small.eval()
    images = torch.rand(3, 1, 28, 28)
    folded = fold_batch_norm(small, images)
    assert not any("BatchNorm" in type(module).__name__ for module in folded.modules())
    torch.testing.assert_close(folded(images), small(images), rtol=1e-4, atol=1e-5)


def test_mirror_images_share_their_scores_when_predicting() -> None:
    images = torch.rand(4, 3, 16, 16)
    network = build("resnet9:4/mirror", (3, 16, 16), 5, seed=0).eval()
    torch.testing.assert_close(network(images), network(images.flip(3)))
    plain = build("resnet9:4", (3, 16, 16), 5, seed=0).eval()
    assert not torch.allclose(plain(images), plain(images.flip(3)))


def test_it_has_one_width() -> None:
    with pytest.raises(Unrecognized, match="one width"):
        build("resnet9:8,8", (3, 32, 32), 10)
