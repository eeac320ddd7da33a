"""A certificate for one fixed convolutional network: search, freeze, fresh noise, one number."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from nonvacuous.bounds import checks
from nonvacuous.data.examples import Examples
from nonvacuous.errors import BadInput
from nonvacuous.progress import Progress
from nonvacuous.sparsity.certificate import (
    VARIANTS,
    SparsityCertificate,
    Variant,
    final_estimate,
)
from nonvacuous.sparsity.conv_chain import ConvChain
from nonvacuous.sparsity.conv_noise import ConvInputs
from nonvacuous.sparsity.conv_reading import conv_chain
from nonvacuous.sparsity.conv_search import CONV_THEOREM, ConvEvaluator, read_inputs, search
from nonvacuous.sparsity.conv_setting import reference
from nonvacuous.sparsity.weights import Layers


def certify_sparse_conv(
    module: nn.Module | ConvChain,
    prior_module: nn.Module | ConvChain,
    examples: Examples,
    *,
    variant: Variant = "sparse",
    confidence: float = 0.95,
    sampling_failure: float = 0.01,
    choices: int = 1,
    passes: int = 4,
    subset: int = 2000,
    seed: int = 0,
    device: torch.device | str | None = None,
    progress: Progress | None = None,
) -> SparsityCertificate:
    """Certify the fixed network ``module`` with examples that ``prior_module`` has not seen.

    Covered are chains of convolutions and linear layers with ReLU between them, each followed by
    at most one max or average pooling; every other layer is refused by name. The theorem is E
    (docs/theory/sparsity.md, 10).

    confidence         1 - failure of the PAC-Bayes bound alone; the Monte-Carlo estimate may fail
                       with ``sampling_failure`` on top
    variant            to be chosen before looking at results: each is its own claim
    choices            how many certificates the reported one is chosen from, all named in advance
    passes             noisy networks drawn for each example in the final estimate
    subset             examples on which settings are compared
    device             where to compute; by default where the examples are
    """
    if variant not in VARIANTS:
        raise BadInput(f"variant must be one of {', '.join(VARIANTS)}, got {variant!r}")
    failure = checks.failure_of(confidence)
    checks.failure_probability(sampling_failure, "sampling_failure")
    shares = checks.count("choices", choices, minimum=1)
    checks.count("passes", passes, minimum=1)
    place = examples.inputs.device if device is None else torch.device(device)
    chain = _chain(module, examples.inputs).to(place)
    prior = _chain(prior_module, examples.inputs).to(place)
    chain.check_same_shape(prior)
    with torch.no_grad():
        inputs = read_inputs(chain, reference(prior), examples)
        _check_alive(chain, inputs)
    # Norms of pooling use derivatives, so the evaluator is built where these are allowed.
    evaluator = ConvEvaluator(chain, prior, sparse=variant == "sparse", choices=shares)
    with torch.no_grad():
        setting = search(
            evaluator,
            inputs,
            failure=failure,
            sampling_failure=sampling_failure / shares,
            trials=passes * len(inputs),
            subset=min(subset, len(inputs)),
            seed=seed,
            progress=progress,
        )
        return final_estimate(
            evaluator,
            setting,
            inputs,
            failure=failure,
            sampling_failure=sampling_failure / shares,
            passes=passes,
            seed=seed,
            progress=progress,
        )


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
