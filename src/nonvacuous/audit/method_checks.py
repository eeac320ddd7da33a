"""What only certificates of one method are asked.

Of one fixed network by derandomization: every term, and every choice inside it. The proofs are in
docs/theory/sparsity.md. The loss there may look at the noisy network, the example and the setting
only, so each constant of the network in it must be named, paid for, and not below the truth; the
noise must be drawn after all that was final.

Of checkpoints along a training: each was tested before it could learn from its batch.
"""

from __future__ import annotations

import math

import numpy as np
import torch

from nonvacuous.audit import complexity_checks, knowing, probing
from nonvacuous.audit.evidence import Evidence
from nonvacuous.audit.registry import Outcome, asserted, check, doubtful, holds, refuse
from nonvacuous.audit.sampling_checks import drawn_after
from nonvacuous.data import Examples
from nonvacuous.errors import BadInput
from nonvacuous.kinds import STEPS_MODES
from nonvacuous.records import ProgressiveRecord
from nonvacuous.rules import convolutions, digests
from nonvacuous.rules import derandomization as rules
from nonvacuous.rules.drawing import batches_of
from nonvacuous.sparsity.certify import final_seed, recount
from nonvacuous.sparsity.conv_chain import ConvChain
from nonvacuous.sparsity.conv_reading import misread, read_network
from nonvacuous.sparsity.conv_theorem import read_inputs as read_images
from nonvacuous.sparsity.noise import read_inputs
from nonvacuous.sparsity.setting import THEOREMS, total_nats
from nonvacuous.sparsity.weights import Layers, Network
from nonvacuous.sparsity_records import SparsityRecord

MODES = ("sparsity",)


def terms(evidence: Evidence) -> tuple[SparsityRecord, Network, Network]:
    """The record, the network and the prior; :class:`BadInput` if one is missing."""
    facts = (evidence.sparsity, evidence.layers, evidence.prior_layers)
    if facts[0] is None or facts[1] is None or facts[2] is None:
        raise BadInput("a sparsity certificate needs its terms, its network and its prior.")
    return facts[0], facts[1], facts[2]


@check(rows=(2, 17), since=1, name="the theorem was applied to the whole network", modes=MODES)
def whole_network(evidence: Evidence) -> Outcome:
    record, layers, prior = terms(evidence)
    if record.theorem not in THEOREMS:
        return refuse(f"there is no Theorem {record.theorem!r}; there are {', '.join(THEOREMS)}.")
    read = read_network(evidence.module, evidence.examples.inputs[:2])
    if read.digest() != layers.digest() or record.network_digest != layers.digest():
        return refuse(
            "the layers that the theorem was applied to are not those of the network: a layer was "
            "left out, or the weights changed. Read them with read_network."
        )
    if tuple(layer.name for layer in record.layers) != tuple(layers.names):
        return refuse(
            f"{len(record.layers)} layers are recorded; the network has {len(layers.names)}: "
            "what is left out is not paid for. Record every layer."
        )
    if isinstance(read, ConvChain) != (record.images is not None):
        return refuse("the record is that of a network of another kind.")
    # What the record says of kernels, strides, pooling and positions.
    chain = read if isinstance(read, ConvChain) else None
    if chain and (
        odd := convolutions.wrong_convolution(record) or convolutions.wrong_structure(record, chain)
    ):
        return refuse(f"{odd}. Record them with rules.convolutions.convolution_records.")
    if wrong := misread(evidence.module, read, evidence.bound_part):
        return refuse(f"{wrong}. The theorem is about the layers; the promise is for the module.")
    where = rules.layer_of_tensor(record)
    for name, parameter in evidence.module.named_parameters():
        if name not in where:
            return refuse(
                f"parameter {name!r} ({parameter.numel()} weights) is in no layer of the record, "
                "so neither noise nor KL covers it."
            )
    noise, noise_of_prior, _ = complexity_checks.parts(evidence)
    for who, kept, means in (
        ("network", layers, noise.means),
        ("prior", prior, noise_of_prior.means),
    ):
        if rules.layers_from(record, means).digest() != kept.digest():
            return refuse(
                f"the means of the {who}'s Gaussian are not the {who}'s weights. Center it there."
            )
    return holds(
        f"{len(layers.names)} layers, read from the network again, with all weights; the network "
        "predicts the bound examples as they do."
    )


@check(rows=(2, 20), since=1, name="prior and posterior have the noise of the setting", modes=MODES)
def same_noise(evidence: Evidence) -> Outcome:
    record, layers, prior = terms(evidence)
    noise, noise_of_prior, complexity = complexity_checks.parts(evidence)
    if complexity.symmetries:
        return refuse("the KL of the theorem has no symmetries to forget; count it in full.")
    expected = rules.evaluator_for(*terms(evidence)).scales(rules.setting_of(record))
    own = convolutions.tensor_scales(record)
    for layer, scale in zip(record.layers, expected, strict=True):
        if layer.scale != scale:
            return refuse(
                f"layer {layer.name} is recorded with noise {layer.scale!r}; its setting gives "
                f"{scale!r}."
            )
        for name in layer.tensors:
            for who, distribution in (("network", noise), ("prior", noise_of_prior)):
                if not bool((distribution.scales[name] == own[name]).all()):
                    return refuse(
                        f"the noise of {name!r} around the {who} is not {own[name]!r} everywhere: "
                        "the theorem's KL is that of equal noise. Use one scale for each layer, "
                        "and for the bias of a convolution that over the root of its positions."
                    )
    for layer, distance in zip(record.layers, layers.squared_distances(prior), strict=True):
        if not math.isclose(layer.squared_distance, distance, rel_tol=1e-9):
            return refuse(
                f"layer {layer.name} is recorded at squared distance {layer.squared_distance!r} "
                f"from the prior; it is at {distance!r}."
            )
    if wrong := rules.wrong_layer_distance(record, complexity) or convolutions.wrong_sizes(
        record, complexity
    ):
        return refuse(f"{wrong}.")
    return holds("one scale for each layer, the same around network and prior.")


@check(
    rows=(8, 26), since=1, name="every choice inside the loss is named and paid for", modes=MODES
)
def choices_paid(evidence: Evidence) -> Outcome:
    record, _, _ = terms(evidence)
    total = total_nats(record.charges)
    if record.grid_nats != total:
        return refuse(
            f"the charges sum to {total!r} nats, not to {record.grid_nats!r}. Sum them with "
            "sparsity.setting.total_nats."
        )
    # Measures the network again, and raises where a grid value is below the truth.
    evaluator = rules.evaluator_for(*terms(evidence))
    if odd := rules.odd_charge(record.charges, evaluator.charges(rules.setting_of(record))):
        return refuse(
            f"{odd}. The loss may use a constant of the network only as a grid value that is not "
            "below the truth, at the price of naming it."
        )
    return holds(
        f"{len(record.charges)} choices cost {total:.4g} nats; each constant was measured again, "
        "and its grid value is not below it."
    )


@check(rows=(25,), since=1, name="the bound is divided by what the noise lets through", modes=MODES)
def escape_paid(evidence: Evidence) -> Outcome:
    record, _, _ = terms(evidence)
    escape = rules.setting_of(record).escape_probability
    if record.escape != escape or evidence.bound.inputs.get("escape") != escape:
        return refuse(
            f"the setting lets noise miss an error with chance {escape!r}, but {record.escape!r} "
            f"is recorded and {evidence.bound.inputs.get('escape')!r} went into the bound: without "
            "the division the bound is one for the noisy loss, not for the network."
        )
    expected = rules.loss_upper_of(record.theorem, escape, evidence.risk)
    if record.loss_upper != expected:
        return refuse(
            f"the mean noisy loss enters the bound as {record.loss_upper!r}; the counts give "
            f"{expected!r}."
        )
    return holds(f"an error escapes the noisy loss with chance at most {escape:g}.")


@check(rows=(12, 27), since=1, name="the noise was drawn after the setting was final", modes=MODES)
def drawn_last(evidence: Evidence) -> Outcome:
    record, layers, _ = terms(evidence)
    expected = final_seed(evidence.seed, layers.digest(), rules.setting_of(record))
    if evidence.risk.seed != expected:
        return refuse(
            f"the losses were counted with seed {evidence.risk.seed}, not with the one derived "
            "from the network and the frozen setting: a setting that is chosen again after the "
            "noise, or noise that is drawn again, is fitted to it."
        )
    samples = 0 if record.theorem == "A" else 1
    used = "its seed is derived from the network and the frozen setting, and used once."
    return drawn_after(evidence, expected, what="setting", used=used, samples=samples)


@check(rows=(18, 28), since=1, name="every threshold uses the example's own norm", modes=MODES)
def own_norms(evidence: Evidence) -> Outcome:
    record, layers, prior = terms(evidence)
    constant = rules.counts_constant(layers)
    if odd := rules.odd_norm(record, evidence.bound_part, constant=constant):
        return refuse(
            f"the {odd[0]} bound example has norm {odd[2]!r}, but {odd[1]!r} is recorded: a norm "
            "read off the sample says nothing about new inputs. Use each example's own."
        )
    few = probing.probes(evidence, 128)
    if len(few) >= 100 and isinstance(layers, ConvChain):
        assert isinstance(prior, ConvChain)
        if not _own_patches(layers, prior, few):
            return refuse("what the thresholds know of the inputs is not that of the examples.")
    elif len(few) >= 100:
        assert isinstance(prior, Layers) and isinstance(layers, Layers)
        read = read_inputs(layers, prior, few).norms.cpu()
        own = rules.input_norms(few.inputs, constant=constant)
        if not torch.allclose(read, own, rtol=1e-12, atol=0.0):
            return refuse("the norms inside the thresholds are not those of the examples.")
    shortest, longest = record.shortest_input, record.longest_input
    return holds(f"norms of the bound examples run from {shortest:.4g} to {longest:.4g}.")


@check(rows=(15, 22), since=1, name="the noisy losses can be counted again", modes=MODES)
def losses_again(evidence: Evidence) -> Outcome:
    record = terms(evidence)[0]
    if evidence.loss.name != "zero-one":
        return refuse(
            f"the theorem bounds how often the network errs, not the loss {evidence.loss.name!r}."
        )
    again = recount(
        rules.evaluator_for(*terms(evidence), record.device),
        rules.setting_of(record),
        evidence.bound_part,
        passes=record.passes,
        seed=evidence.risk.seed,
    )
    risk = evidence.risk
    if risk.errors is None or not again.agrees_with(errors=risk.errors, trials=risk.trials):
        return refuse(
            f"the noisy losses are recorded as {risk.errors} in {risk.trials}; counted again from "
            f"the recorded seed they are {again.errors} in {again.trials}."
        )
    return holds(f"counted again from the recorded seed: {again.errors} in {again.trials}.")


def _own_patches(chain: ConvChain, prior: ConvChain, few: Examples) -> bool:
    """Whether each example meets its own image, and a norm of its patches not below the truth."""
    inputs = read_images(chain, prior, few)
    if not torch.equal(inputs.images.flatten(1).cpu(), few.inputs.flatten(1).double().cpu()):
        return False
    first = chain.stages[0]
    patches = first.layer.patches(inputs.images)
    if first.layer.bias is not None:
        share = torch.full_like(patches[:, :1], 1.0 / math.sqrt(first.positions))
        patches = torch.cat([patches, share], dim=1)
    # Singular values here; a power of the Gram matrix in the threshold.
    largest = torch.linalg.svdvals(patches)[:, 0]
    return bool((inputs.known[:, 0] >= largest * (1.0 - 1e-12)).all())


#: What trains checkpoints where the user gave no function.
BUILT_IN = "the training of this library"


def record_of(evidence: Evidence) -> ProgressiveRecord:
    if evidence.progressive is None:
        raise BadInput("a progressive certificate needs the record of its batches.")
    return evidence.progressive


def _batches(evidence: Evidence) -> tuple[np.ndarray, ...]:
    count = len(record_of(evidence).batches)
    return batches_of(evidence.examples, evidence.split, count, evidence.seed)


@check(
    rows=(1, 6),
    since=2,
    name="each checkpoint met its batch before training on it",
    says=("checked", "asserted"),
    modes=STEPS_MODES,
)
def tested_first(evidence: Evidence) -> Outcome:
    record, batches, trained = record_of(evidence), _batches(evidence), evidence.trained_on
    for number, (batch, indices) in enumerate(zip(record.batches, batches, strict=True), 1):
        if batch.examples != digests.example_set(evidence.examples, indices):
            return refuse(
                f"batch {number} is not the one that the seed gives: an order that was chosen by "
                "looking would be a search. Make it with rules.drawing.batches_of."
            )
    if trained is None or len(trained) != len(batches):
        return refuse("what each checkpoint was trained on is not on record.")
    hashes = evidence.examples.input_hashes()
    for number, saw in enumerate(trained, 1):
        later = np.concatenate(batches[number - 1 :])
        early = later[np.isin(hashes[later], hashes[saw])]
        if early.size:
            return refuse(
                f"checkpoint {number} was trained on {early.size} examples (the first is "
                f"{int(early[0])}), or copies of them, that it or a later one is tested on."
            )
    words = (
        f"{len(batches)} batches, disjoint, in the order of the seed; none trained the checkpoint"
    )
    if record.training != BUILT_IN:
        if taught := _knows_anyway(evidence):
            return doubtful(f"{taught} {record.training} {_ELSEWHERE}")
        return asserted(
            f"{words} that it tested, as far as the examples go that {record.training} was given; "
            "that it looks at no others is stated by the one who wrote it."
        )
    return holds(f"{words} that it tested.")


#: What was taught wrongly knows too much from so many standard deviations below guessing, and from
#: this part on of what guessing and the start err: 500 honest functions, from a few steps of
#: training to many epochs, with 2 to 10 classes, left no network that errs on less than 0.86 of it.
_TOO_MANY, _TOO_WELL = 4.0, 0.8
_ELSEWHERE = (
    "has them from elsewhere than its arguments: a loader or a path that it reads, a list, network "
    "or file that it keeps from call to call. Train on what is given alone. Weights that "
    "were trained on other, independent data belong into the network that is given: declare those."
)


def _knows_anyway(evidence: Evidence) -> str | None:
    """Whether training on wrong labels ended in a network that is right, in words."""
    taught = evidence.taught_wrong
    if taught is None:
        return None
    guessing = 1.0 - max(evidence.examples.class_counts(evidence.split.bound)) / taught.trials
    deviation = math.sqrt(guessing * (1.0 - guessing) / taught.trials)
    error = taught.errors / taught.trials
    # A few steps from a lucky start err about as that does, less what its scores are off by.
    known = guessing
    if evidence.start is not None:
        known = min(guessing, knowing.knowledge(evidence.start, evidence.bound_part).error)
    if error >= min(guessing - _TOO_MANY * deviation, _TOO_WELL * known):
        return None
    return (
        "called once more, with a few examples of the first part and mostly wrong labels, the "
        f"training gave a network that errs on only {error:.1%} of the bound examples (guessing: "
        f"{guessing:.1%}):"
    )


@check(
    rows=(15, 17, 18),
    since=2,
    name="the errors of every batch can be counted again",
    modes=STEPS_MODES,
)
def batches_recounted(evidence: Evidence) -> Outcome:
    record, counted = record_of(evidence), 0
    pairs = zip(
        record.batches, _batches(evidence), probing.networks_of(evidence.module), strict=True
    )
    for number, (batch, indices, network) in enumerate(pairs, 1):
        again = probing.recount(
            probing.Network.of(network), evidence.examples.subset(indices), evidence.loss
        )
        if not again.agrees_with(errors=batch.errors, total=None):
            return refuse(
                f"checkpoint {number} is recorded with {batch.errors} errors among "
                f"{len(indices)}; counted again they are {again.total:g}."
            )
        counted += batch.errors
    if counted != evidence.risk.errors:
        return refuse(f"the batches have {counted} errors, not {evidence.risk.errors}.")
    given = evidence.bound.inputs.get("batches", len(record.batches))
    if given != len(record.batches):
        return refuse(f"the theorem is told of {given} batches; there are {len(record.batches)}.")
    return holds(f"{counted} errors, batch by batch.")
