"""A network as people have it, read as what every promise is about: float32 scores, one per class.

Parameters keep their names: only what goes in and what comes out is converted, by hooks on a copy.
Scores in doubles stay as they are where the network casts its inputs itself.

Post-hoc certificates of networks with batch normalization are about the folded network. The running
statistics are neither random nor fixed before the data, so no KL covers them. Folded into the
layers they are weights like any others: those of the trained network belong to the posterior, those
of the network that the prior is centered on to the prior. Both predict as the given ones do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from nonvacuous.certification.candidate import frozen_copy
from nonvacuous.certification.forgetting import forgetting
from nonvacuous.data import Examples
from nonvacuous.distributions.copying import copied_network
from nonvacuous.distributions.gaussian import check_same_tensors
from nonvacuous.distributions.priors import Prior, at_initialization
from nonvacuous.errors import BadInput, NonvacuousError, Unsupported
from nonvacuous.networks import fold_batch_norm
from nonvacuous.risk.forward import check_reads_its_weights

TOKENS = "inputs read as whole numbers"
LOGITS = "scores taken from the network's several outputs"
ONE_LOGIT = "one logit for two classes: the second class where it is above 0"
ONE_PROBABILITY = "one probability for two classes: the second class where it is above 0.5"
PROBABILITIES = "probabilities for scores: the largest is the answer"
#: All but those of the weights' precision: who verifies may hold them in float32 already.
CONVERSIONS = (TOKENS, LOGITS, ONE_LOGIT, ONE_PROBABILITY, PROBABILITIES)
#: Operations that only move numbers about, and those that end in probabilities, or in logits.
_MOVES = ["View", "Reshape", "Squeeze", "Unsqueeze", "Select", "Slice", "Transpose", "T", "ToCopy"]
_CHANCES = ["Sigmoid", "Softmax"]
_LINEAR = ["Addmm", "Mm", "Bmm", "Mv", "Convolution"]
#: Examples whose outputs are looked at, and the smallest probability that becomes a logit.
_LOOKED_AT, _LEAST = 256, 1e-7


def adapted(model: Any, examples: Examples) -> tuple[nn.Module, tuple[str, ...]]:
    """The network, or a copy that converts; and what it converts, in words.

    Raises BadInput where it cannot be read as a classifier of these examples.
    """
    _check_network(model)
    network, conversions = model, []
    kinds = {t.dtype for t in model.parameters() if t.is_floating_point()} - {torch.float32}
    inputs = examples.inputs[:2]
    converted = copied_network(model).float() if kinds else model
    # A network in doubles that casts its inputs itself loses no digit as it is, and cannot be
    # converted: its own code would go on handing doubles to the converted weights.
    as_it_is = kinds == {torch.float64} and not _reads(converted, inputs) and _reads(model, inputs)
    if kinds and not as_it_is:
        network = converted
        names = ", ".join(sorted(str(kind).removeprefix("torch.") for kind in kinds))
        conversions.append(f"weights converted from {names} to float32")
    probe = frozen_copy(network)
    outputs, tokens = _called(probe, inputs, examples)
    if tokens:
        conversions.append(TOKENS)
    check_reads_its_weights(network, _beside(network, inputs.long() if tokens else inputs))
    scores = _scores(outputs)
    if scores is None:
        raise BadInput(
            f"the network returned a {type(outputs).__name__} without scores; it must return one "
            f"row of {examples.classes} scores for each example, as a tensor, as the first of "
            "several outputs, or as the output or the attribute 'logits'"
        )
    if scores is not outputs:
        conversions.append(LOGITS)
    one = examples.classes == 2 and tuple(scores.shape) in ((len(inputs), 1), (len(inputs),))
    if not one and tuple(scores.shape) != (len(inputs), examples.classes):
        raise BadInput(_misfit(tuple(scores.shape), len(inputs), examples))
    chances = _are_chances(probe, examples, tokens=tokens, one=one)
    if one:
        conversions.append(ONE_PROBABILITY if chances else ONE_LOGIT)
    elif chances:
        conversions.append(PROBABILITIES)
    passing = forgetting(network, examples.inputs.long() if tokens else examples.inputs)
    overwrites = not tokens and _writes_into(probe, _beside(network, inputs))
    if (conversions or overwrites or passing is not None) and network is model:
        network = copied_network(model)
    if tokens:
        network.register_forward_pre_hook(lambda _, given: (given[0].long(), *given[1:]))
    elif overwrites:
        network.register_forward_pre_hook(lambda _, given: tuple(v.clone() for v in given))
    if scores is not outputs or one:
        network.register_forward_hook(partial(_as_scores, one, chances))
    if passing is not None:
        network.register_forward_hook(passing)
        passing.clear(network)
    return network, tuple(conversions)


def _are_chances(network: nn.Module, examples: Examples, *, tokens: bool, one: bool) -> bool:
    """Whether it returns probabilities: by the operation that made them, and by their range.

    One score is read as a logit or as a probability, which answer differently: in doubt, ask.
    """
    inputs = _beside(network, examples.inputs[:: max(1, len(examples) // _LOOKED_AT)][:_LOOKED_AT])
    asked = copied_network(network).requires_grad_(True)
    try:
        with torch.enable_grad():
            scores = _scores(asked(inputs.long() if tokens else inputs))
    except Exception:  # it read two examples; what it makes of more is seen when it is measured
        return False
    if scores is None or bool((scores < 0).any() | (scores > 1).any()):
        return False
    step = scores.grad_fn
    while step is not None and _operation(step) in _MOVES:
        step = step.next_functions[0][0]
    if step is not None and _operation(step) in _CHANCES:
        return True
    summing = scores.detach().reshape(len(inputs), -1).double().sum(1)
    if not one:
        return bool((summing - 1).abs().max() < 1e-4)
    if step is not None and _operation(step) in _LINEAR:
        return False
    raise BadInput(
        "the network returns one score for two classes, and all of them lie between 0 and 1: that "
        "may be a probability (the second class above 0.5) or a logit (above 0). End it with the "
        "last linear layer, or with a sigmoid"
    )


def _operation(step: Any) -> str:
    return str(step.name()).partition("Backward")[0].lstrip("_")


def _as_scores(one: bool, chances: bool, _network: nn.Module, _given: Any, outputs: Any) -> Tensor:
    scores = _scores(outputs)
    assert scores is not None
    if not one:
        return scores
    logits = torch.logit(scores, eps=_LEAST) if chances else scores
    return nn.functional.pad(logits.reshape(-1, 1), (1, 0))  # the first class scores 0


def _scores(outputs: Any) -> Tensor | None:
    """The one output, or the scores among several: those called logits, else the first."""
    if isinstance(outputs, Tensor):
        return outputs
    if isinstance(outputs, Mapping):
        first = outputs.get("logits", next(iter(outputs.values()), None))
    elif hasattr(outputs, "logits"):
        first = outputs.logits
    else:
        first = outputs[0] if isinstance(outputs, tuple | list) and outputs else None
    return first if isinstance(first, Tensor) else None


def _beside(network: nn.Module, inputs: Tensor) -> Tensor:
    """A copy of the inputs on the network's device: some networks write into theirs."""
    parameter = next(network.parameters(), None)
    return inputs.clone() if parameter is None else inputs.to(parameter.device, copy=True)


def _answer(network: nn.Module, inputs: Tensor) -> Any:
    """What it returns for these inputs, or the error: the user's code may raise anything."""
    try:
        with torch.no_grad():
            return network(_beside(network, inputs))
    except Exception as error:
        return error


def _writes_into(network: nn.Module, inputs: Tensor) -> bool:
    before = inputs._version
    with torch.no_grad():
        network(inputs)
    return inputs._version != before


def _reads(network: nn.Module, inputs: Tensor) -> bool:
    return not isinstance(_answer(frozen_copy(network), inputs), Exception)


def _called(network: nn.Module, inputs: Tensor, examples: Examples) -> tuple[Any, bool]:
    """What it returns for two examples, and whether it takes them as whole numbers only."""
    outputs = _answer(network, inputs)
    if not isinstance(outputs, Exception):
        return outputs, False
    if torch.equal(inputs, inputs.round()):
        looked_up = _answer(network, inputs.long())
        if not isinstance(looked_up, Exception):
            _check_vocabulary(network, examples)
            return looked_up, True
    raise BadInput(  # the first error says more
        f"the network cannot read inputs of shape {examples.example_shape} from "
        f"{examples.name} ({type(outputs).__name__}: {outputs}); give it the inputs it was made for"
    ) from outputs


def _check_vocabulary(network: nn.Module, examples: Examples) -> None:
    """Whether the smallest and the largest token can be looked up, before anything is computed."""
    flat = examples.inputs.flatten(1)
    if not torch.equal(flat, flat.round()):
        raise BadInput(f"{examples.name}: the network reads whole numbers, and some have fractions")
    rows = torch.stack([flat.amin(1).argmin(), flat.amax(1).argmax()])
    error = _answer(network, examples.inputs[rows].long())
    if isinstance(error, Exception):
        raise BadInput(
            f"the network cannot read the inputs of {examples.name}, whole numbers from "
            f"{int(flat.min())} to {int(flat.max())} ({error}); make its embedding large enough"
        ) from error


def _check_network(model: Any) -> None:
    if isinstance(model, type) and issubclass(model, nn.Module):
        raise BadInput(f"{model.__name__} is a class; give a network of it, {model.__name__}(...)")
    if not isinstance(model, nn.Module):
        kind = "an estimator" if hasattr(model, "predict") else f"a {type(model).__name__}"
        raise BadInput(
            f"certify takes a torch.nn.Module, and this is {kind}: its weights are what the theory "
            "speaks about. Any other predictor can be tested on examples that it never saw: "
            "nv.evaluate(predictor, (inputs, labels), unseen=True)"
        )
    if isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
        raise BadInput(
            f"{type(model).__name__} spreads a network over devices; give the network itself, "
            "model.module"
        )
    kept = [name for name, value in model.state_dict().items() if not isinstance(value, Tensor)]
    if kept:
        raise BadInput(
            f"the network keeps {kept[0]!r} in its state_dict, which is no tensor (as networks "
            "quantized dynamically do, and layers with get_extra_state): nothing here can tell "
            "whether training changed it, nor store it. Certify the network as it was before "
            "quantization, or keep tensors alone (register_buffer). It can be tested on examples "
            "that it never saw: nv.evaluate(predictor, (inputs, labels), unseen=True)"
        )
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if tensor.is_meta:
            raise BadInput(
                f"{name!r} is on the device meta, which holds shapes and no numbers; load the "
                "weights first: model.to_empty(device='cpu'), then model.load_state_dict(...)"
            )
        if tensor.is_complex():
            raise BadInput(f"{name!r} is complex, and no theorem here covers complex weights")
        if isinstance(tensor, nn.Parameter) and not tensor.numel():
            raise BadInput(f"the parameter {name!r} holds no number; leave it out of the network")
        if isinstance(tensor, nn.Parameter) and not tensor.is_floating_point():
            raise BadInput(
                f"the parameter {name!r} holds {tensor.dtype} numbers, which no prior here draws; "
                "keep it as a buffer: register_buffer"
            )


def _misfit(shape: tuple[int, ...], count: int, examples: Examples) -> str:
    text = (
        f"the network returned {shape} for {count} examples of {examples.classes} classes; it must "
        f"return one row of {examples.classes} scores for each example"
    )
    if shape in ((count, 1), (count,)):
        text += ". One number for each example is regression (or one logit, for two classes only)"
        text += ": no promise here covers it; make classes of ranges of the target"
    elif len(shape) == 2 and shape[1] < examples.classes:
        text += f"; if it knows {shape[1]} classes, leave the other labels out of the data"
    return text


FOLDED = ", batch normalization folded into them"


def has_batch_norm(module: nn.Module) -> bool:
    return any(isinstance(part, _BatchNorm) for part in module.modules())


def folded(model: nn.Module, inputs: Tensor) -> nn.Module:
    """The network in evaluation mode without batch normalization, or a refusal that says how."""
    device = next(model.parameters()).device
    try:
        return fold_batch_norm(copied_network(model).eval(), inputs.to(device))
    except NonvacuousError as error:
        raise Unsupported(
            f"the network has batch normalization that could not be folded ({error}). A post-hoc "
            "certificate needs it gone: certify nv.fold_batch_norm(network, example) with the "
            "initial network folded in the same way, or use group or layer normalization."
        ) from error


def folded_prior(model: nn.Module, prior: Prior, inputs: Tensor) -> Prior:
    """The same family around the folded center; one centered on zero is as it was."""
    if prior.means is None:
        return replace(prior, fixed=None) if prior.fixed is not None else prior
    center = copied_network(model).cpu().eval()
    stored = {**prior.means, **(prior.fixed or {})}
    own = {**dict(center.named_parameters()), **dict(center.named_buffers())}
    # What the prior does not have would stay as training left it, and nobody would pay for it.
    check_same_tensors("the network", own, "the prior", {n: stored[n] for n in own if n in stored})
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(stored[name])
    twin = at_initialization(folded(center, inputs), grid=prior.grid)
    recipe = prior.recipe
    if recipe is not None:
        made = recipe.make
        recipe = replace(recipe, make=lambda: folded(made(), inputs))
    # Folding leaves them alone; those of this copy are the trained network's.
    fixed = {name: stored[name] for name in twin.fixed or {} if name in stored}
    return replace(prior, means=twin.means, fixed=fixed, recipe=recipe)
