"""Files and number types: safetensors in float64, and why not float32."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from nonvacuous.distributions.storage import load_tensors, save_tensors
from nonvacuous.errors import BadInput, Unsupported
from nonvacuous.memorization.evaluate import Residual
from nonvacuous.memorization.networks import MemorizingNetwork

KIND = "memorizing network"
_PLAN = ("blocks", "grid", "classes")


def save_network(network: MemorizingNetwork, path: str | Path) -> Path:
    """Write the module's numbers, each once, as safetensors."""
    target = Path(path)
    tensors: dict[str, Tensor] = {
        "direction": network.direction.weight[0],
        "knots": network.knots,
        "weights": network.output.weight[0],
        "blocks": torch.tensor(network.blocks, dtype=torch.int64),
        # 0 stands for none.
        "grid": torch.tensor([network.grid or 0]),
        "classes": torch.tensor([network.classes or 0]),
    }
    if network.end is not None:
        tensors["end"] = network.end
    save_tensors(target, tensors, kind=KIND)
    return target


def load_network(path: str | Path) -> MemorizingNetwork:
    """The module that :func:`save_network` wrote."""
    stored = load_tensors(Path(path), kind=KIND, device="cpu")
    missing = {"direction", "knots", "weights", *_PLAN} - stored.keys()
    if missing:
        raise BadInput(f"{path} lacks {', '.join(sorted(missing))}; save the network again")
    plan = {name: stored[name].tolist() for name in _PLAN}
    return MemorizingNetwork(
        stored["direction"],
        stored["knots"],
        stored["weights"],
        end=float(stored["end"]) if "end" in stored else None,
        blocks=tuple(plan["blocks"]),
        grid=plan["grid"][0] or None,
        classes=plan["classes"][0] or None,
    )


def refuse_dtype(dtype: torch.dtype, measured: Residual) -> Unsupported:
    """Why a narrower type than float64 will not do, with what it would have got wrong."""
    name = str(dtype).removeprefix("torch.")
    wrong = (
        f"{measured.wrong:,} of {measured.points:,} labels would be wrong"
        if measured.wrong is not None
        else f"the largest error at {measured.points:,} points would be {measured.largest:.2g}"
    )
    return Unsupported(
        f"{name} is refused: the positions of the points need up to 53 binary digits and {name} "
        f"has {_digits(dtype)}, so neighboring points fall together. Measured with these weights: "
        f"{wrong}. Use float64"
    )


def _digits(dtype: torch.dtype) -> int:
    return round(-torch.log2(torch.tensor(torch.finfo(dtype).eps)).item()) + 1
