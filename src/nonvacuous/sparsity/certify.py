"""A certificate for one fixed network: search, freeze, fresh noise, one number."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from nonvacuous.data.examples import Examples
from nonvacuous.errors import BadInput
from nonvacuous.progress import Progress
from nonvacuous.sparsity import constants, conv_search, conv_setting, noise, search
from nonvacuous.sparsity.certificate import SparsityCertificate, final_estimate
from nonvacuous.sparsity.conv_chain import ConvChain
from nonvacuous.sparsity.conv_noise import ConvInputs
from nonvacuous.sparsity.conv_reading import conv_chain
from nonvacuous.sparsity.conv_search import CONV_THEOREM, ConvEvaluator
from nonvacuous.sparsity.gauge import gauged
from nonvacuous.sparsity.search import Evaluator
from nonvacuous.sparsity.setting import SparseSettings
from nonvacuous.sparsity.theorem_a import UniformEvaluator, search_uniform, uniform_certificate
from nonvacuous.sparsity.weights import Layers


def certify_sparse(
    layers: Layers | ConvChain,
    prior: Layers | ConvChain,
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
    if isinstance(layers, ConvChain) or isinstance(prior, ConvChain):
        one, two = check_covered(layers, prior, theorem=chosen.theorem, gauge=chosen.gauge)
        return certify_sparse_conv(
            one, two, examples, chosen, seed=seed, device=device, progress=progress
        )
    layers.check_alive()
    layers.check_same_shape(prior)
    if chosen.gauge != "given":
        moved, given = gauged(layers, prior, chosen.gauge), replace(chosen, gauge="given")
        certificate = certify_sparse(
            moved.layers, moved.prior, examples, given, seed=seed, device=device, progress=progress
        )
        return replace(certificate, details={**certificate.details, "gauge": chosen.gauge})
    where = torch.device(device) if device is not None else examples.inputs.device
    inputs = noise.read_inputs(layers.to(where), constants.reference(prior).to(where), examples)
    evaluator = linear_evaluator(
        layers,
        prior,
        theorem=chosen.theorem,
        sparse=chosen.sparse,
        choices=chosen.choices,
        device=where,
        block=chosen.block,
    )
    if isinstance(evaluator, UniformEvaluator):
        final = search_uniform(evaluator, inputs, chosen, seed=seed, progress=progress)
        return uniform_certificate(evaluator, final, inputs, chosen, seed=seed)
    setting = search.search(evaluator, inputs, chosen, seed=seed, progress=progress)
    return final_estimate(evaluator, setting, inputs, chosen, seed=seed, progress=progress)


def linear_evaluator(
    layers: Layers,
    prior: Layers,
    *,
    theorem: str,
    sparse: bool,
    choices: int,
    device: torch.device | str,
    block: int = 1,
) -> Evaluator | UniformEvaluator:
    """The theorem for this network and prior, ready to judge a setting."""
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
    chosen = settings or SparseSettings()
    where = examples.inputs.device if device is None else torch.device(device)
    chain = _chain(module, examples.inputs).to(where)
    prior = _chain(prior_module, examples.inputs).to(where)
    chain.check_same_shape(prior)
    with torch.no_grad():
        inputs = conv_search.read_inputs(chain, conv_setting.reference(prior), examples)
        _check_alive(chain, inputs)
    # Norms of pooling use derivatives, so the evaluator is built where these are allowed.
    evaluator = ConvEvaluator(chain, prior, sparse=chosen.sparse, choices=chosen.choices)
    with torch.no_grad():
        setting = conv_search.search(evaluator, inputs, chosen, seed=seed, progress=progress)
        return final_estimate(evaluator, setting, inputs, chosen, seed=seed, progress=progress)


def check_covered(
    network: Layers | ConvChain, prior: Layers | ConvChain, *, theorem: str, gauge: str
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


def _chain(module: nn.Module | ConvChain, inputs: Tensor) -> ConvChain:
    return module if isinstance(module, ConvChain) else conv_chain(module, inputs[:2])


def _check_alive(chain: ConvChain, inputs: ConvInputs) -> None:
    images = inputs.images[:2048]
    for stage in chain.stages[:-1]:
        before = stage.layer(images)
        if not bool((before > 0).any()):
            raise BadInput(
                f"no unit of layer {stage.layer.name} is active on any of the first {len(images)} "
                "examples, so the network gives all of them the same scores; train it again with "
                "a smaller learning rate"
            )
        images = stage.pool(before.clamp(min=0))
