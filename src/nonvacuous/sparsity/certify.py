"""A certificate for one fixed network: search, freeze, fresh noise, one number."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from nonvacuous.data.examples import Examples
from nonvacuous.errors import BadInput
from nonvacuous.progress import Progress
from nonvacuous.sparsity import conv_search, noise
from nonvacuous.sparsity.certificate import SparsityCertificate, final_estimate
from nonvacuous.sparsity.conv_chain import ConvChain
from nonvacuous.sparsity.conv_reading import conv_chain
from nonvacuous.sparsity.conv_search import CONV_THEOREM, ConvEvaluator
from nonvacuous.sparsity.gauge import gauged
from nonvacuous.sparsity.judging import Judge, Network
from nonvacuous.sparsity.search import Evaluator
from nonvacuous.sparsity.setting import SparseSettings
from nonvacuous.sparsity.theorem_a import UniformEvaluator


def certify_sparse(
    layers: Network,
    prior: Network,
    examples: Examples,
    settings: SparseSettings | None = None,
    *,
    seed: int = 0,
    device: torch.device | str | None = None,
    progress: Progress | None = None,
) -> SparsityCertificate:
    """Certify the fixed network ``layers`` with examples that ``prior`` has not seen.

    A chain of convolutions has Theorem E and the gauge it is given in.

    device   where noise is drawn and losses are counted, in float64; without it, where the examples
             lie. Constants of the network are measured on the processor. Each kind of device has
             random numbers of its own: the same seed gives another certificate there, which is as
             valid
    """
    chosen = settings or SparseSettings()
    where = examples.inputs.device if device is None else torch.device(device)
    if isinstance(layers, ConvChain) or isinstance(prior, ConvChain):
        chain, center = check_covered(layers, prior, theorem=chosen.theorem, gauge=chosen.gauge)
        chain.check_same_shape(center)
        layers, prior = chain.to(where), center.to(where)
    else:
        layers.check_alive()
        layers.check_same_shape(prior)
        layers, prior = gauged(layers, prior, chosen.gauge)
    with torch.no_grad():
        inputs = read_inputs(layers, prior, examples, where)
        if isinstance(layers, ConvChain):
            _check_alive(layers, inputs.images)
    judge = evaluator_of(
        layers,
        prior,
        theorem=chosen.theorem,
        variant=chosen.variant,
        choices=chosen.choices,
        device=where,
        block=chosen.block,
    )
    with torch.no_grad():
        setting = judge.search(inputs, chosen, seed=seed, progress=progress)
        certificate = final_estimate(judge, setting, inputs, chosen, seed=seed, progress=progress)
    if chosen.gauge == "given":
        return certificate
    return replace(certificate, details={**certificate.details, "gauge": chosen.gauge})


def read_inputs(
    network: Network, prior: Network, examples: Examples, device: torch.device | str
) -> Any:
    """What the theorems for such a network need of the examples, on the device."""
    read: Any = conv_search if isinstance(network, ConvChain) else noise
    return read.read_inputs(network.to(device), prior.to(device), examples)


def evaluator_of(
    layers: Network,
    prior: Network,
    *,
    theorem: str,
    variant: str,
    choices: int = 1,
    device: torch.device | str = "cpu",
    block: int = 1,
) -> Judge[Any, Any, Any]:
    """The theorem for this network and prior, ready to judge a setting."""
    sparse = variant == "sparse"
    if isinstance(layers, ConvChain) or isinstance(prior, ConvChain):
        chain, center = check_covered(layers, prior, theorem=theorem, gauge="given")
        chain.check_same_shape(center)
        # Norms of pooling use derivatives.
        with torch.enable_grad():
            moved = chain.to(device), center.to(device)
            return ConvEvaluator(*moved, sparse=sparse, choices=choices)
    if theorem == "A":
        return UniformEvaluator(
            layers, prior, sparse=sparse, choices=choices, device=device, block=block
        )
    return Evaluator(layers, prior, theorem=theorem, sparse=sparse, choices=choices, device=device)


def certify_sparse_conv(
    module: nn.Module | ConvChain,
    prior_module: nn.Module | ConvChain,
    examples: Examples,
    settings: SparseSettings | None = None,
    *,
    seed: int = 0,
    device: torch.device | str | None = None,
    progress: Progress | None = None,
) -> SparsityCertificate:
    """Certify the fixed network ``module`` with examples that ``prior_module`` has not seen.

    Covered are chains of convolutions and linear layers with ReLU between them, each followed by
    at most one max or average pooling; every other layer is refused by name. The theorem is E
    (docs/theory/sparsity.md, 10). ``device`` is by default where the examples are.
    """
    network, prior = (
        one if isinstance(one, ConvChain) else conv_chain(one, examples.inputs[:2])
        for one in (module, prior_module)
    )
    return certify_sparse(
        network, prior, examples, settings, seed=seed, device=device, progress=progress
    )


def check_covered(
    network: Network, prior: Network, *, theorem: str, gauge: str
) -> tuple[ConvChain, ConvChain]:
    """Network and prior if Theorem E covers both, else a refusal."""
    if not isinstance(network, ConvChain) or not isinstance(prior, ConvChain):
        raise BadInput(
            "of the network and its prior, one has convolutions and the other has none; build the "
            "prior as the network is built"
        )
    if theorem != CONV_THEOREM:
        raise BadInput(
            f"theorem {theorem} covers linear layers only; a convolutional network is certified "
            f'by theorem "{CONV_THEOREM}"'
        )
    if gauge != "given":
        raise BadInput(
            f"gauge {gauge!r} is there for linear layers only; a convolutional network is "
            'certified with the weights it has: gauge="given"'
        )
    return network, prior


def _check_alive(chain: ConvChain, images: Tensor) -> None:
    images = images[:2048]
    for stage in chain.stages[:-1]:
        before = stage.layer(images)
        if not bool((before > 0).any()):
            raise BadInput(
                f"no unit of layer {stage.layer.name} is active on any of the first {len(images)} "
                "examples, so the network gives all of them the same scores; train it again with "
                "a smaller learning rate"
            )
        images = stage.pool(before.clamp(min=0))
