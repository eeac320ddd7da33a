"""The setting of a certificate: everything that was chosen, and what naming the choice costs."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from itertools import accumulate
from typing import Any, ClassVar, Literal, Self, get_args

from pydantic import TypeAdapter, ValidationError

from nonvacuous.bounds import checks
from nonvacuous.bounds.sparsity import choice_nats, integer_nats
from nonvacuous.errors import BadInput
from nonvacuous.sparsity.constants import Charge
from nonvacuous.sparsity.gauge import Gauge
from nonvacuous.sparsity_records import ChargeRecord

Theorem = Literal["A", "D", "E", "F"]
Variant = Literal["sparse", "dense"]
THEOREMS: tuple[Theorem, ...] = ("A", "D", "E", "F")
#: The one proof for chains of convolutions.
CONV_THEOREM = "E"
#: Escape probabilities to choose from.
ESCAPES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.08, 0.12, 0.2, 0.3, 0.45)
#: Scales are 2^(j/4): the first layer's j is one of these, the others are steps between layers.
FIRST_SCALE = range(-80, 41)
_PER_DOUBLING = 4
#: Forms of the tail: of Theorem E, and of Theorem F, which compares the activations of every layer
#: with the reference's.
TAILS, SIZES = ("cap", "exponential"), "sizes"
#: How much of the product of norms may be added to the prior's gradients.
BLENDS = (0.0, 1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)
#: Steps per factor of two of the cap, and of the rate of the exponential tail.
_TAIL_FINENESS = {"cap": 8, "exponential": 4, SIZES: 16}


@dataclass(frozen=True)
class SparseSettings:
    """How a fixed network is certified.

    theorem, variant   to be chosen before looking at results: each is its own claim
    confidence         1 - failure of the PAC-Bayes bound alone; the Monte-Carlo estimate may fail
                       with ``sampling_failure`` on top, so the claim holds with confidence
                       ``confidence - sampling_failure``
    choices            how many certificates the reported one is chosen from (theorems, variants,
                       priors, seeds, all named in advance): each pays ln(choices) nats and gets
                       an equal share of ``sampling_failure``
    passes             noisy networks drawn for each example in the final estimate
    subset             examples on which settings are compared; by default 3000 (2000 where there
                       are convolutions)
    gauge              which weights that compute the same function the noise is put on: those
                       given, those "nearest" to the prior, or both networks "balanced"; to be
                       chosen before looking at results. Squared distances are those of the gauge
    block              Theorem A, sparse: hidden units are counted in blocks of so many neighbors;
                       to be chosen before looking at results, or paid for by `choices`
    """

    theorem: Theorem = "E"
    variant: Variant = "sparse"
    confidence: float = 0.95
    sampling_failure: float = 0.01
    choices: int = 1
    passes: int = 4
    subset: int | None = None
    gauge: Gauge = "given"
    block: int = 1

    def __post_init__(self) -> None:
        if self.theorem not in THEOREMS or self.variant not in get_args(Variant):
            raise BadInput(
                f"theorem must be one of {', '.join(THEOREMS)} and variant one of "
                f"{', '.join(get_args(Variant))}, got {self.theorem!r} and {self.variant!r}"
            )
        checks.failure_of(self.confidence)
        checks.failure_probability(self.sampling_failure, "sampling_failure")
        checks.count("choices", self.choices, minimum=1)
        checks.count("passes", self.passes, minimum=1)
        if checks.count("block", self.block, minimum=1) > 1 and self.theorem != "A":
            raise BadInput("blocks of units are for Theorem A: the others look at every unit")

    @property
    def failure(self) -> float:
        return checks.failure_of(self.confidence)

    @property
    def sampling_share(self) -> float:
        """What the Monte-Carlo estimate of each of the ``choices`` may fail with."""
        return self.sampling_failure / self.choices


class Scales:
    """What every theorem chooses, as a dataclass of these fields and its own.

    Seeds are derived from how a setting prints: the order of its fields stays as it is. Methods
    that take a stride give the neighbor along one coordinate, or None where the grid ends.

    first      the first layer's noise scale is 2^(first/4)
    steps      log2 of the ratio of the other layers' scales to the layer before, times 4
    escape     position in ESCAPES
    """

    __dataclass_fields__: ClassVar[dict[str, Any]]
    first: int
    steps: tuple[int, ...]
    escape: int

    @property
    def sigmas(self) -> tuple[float, ...]:
        positions = accumulate((self.first, *self.steps))
        return tuple(2.0 ** (position / _PER_DOUBLING) for position in positions)

    @property
    def escape_probability(self) -> float:
        return ESCAPES[self.escape]

    def scale_charges(self, noise: str = "noise scale") -> tuple[Charge, ...]:
        first = f"2^({self.first}/4)"
        lines = [Charge(f"{noise} of layer 1", first, choice_nats(len(FIRST_SCALE)))]
        for layer, step in enumerate(self.steps, start=2):
            text = f"2^({step}/4) times layer {layer - 1}'s"
            lines.append(Charge(f"{noise} of layer {layer}", text, integer_nats(step)))
        text = f"{self.escape_probability:g}"
        return (*lines, Charge("escape probability", text, choice_nats(len(ESCAPES))))

    def all_scales(self, stride: int) -> Self | None:
        """The noise of all layers together."""
        first = self.first + stride
        return replace(self, first=first) if first in FIRST_SCALE else None

    def one_scale(self, stride: int, *, layer: int) -> Self | None:
        """The noise of a single layer: the step into it grows, and the step out of it shrinks."""
        scales = [self.first, *self.steps]
        scales[layer] += stride
        if layer + 1 < len(scales):
            scales[layer + 1] -= stride
        first, *steps = scales
        return replace(self, first=first, steps=tuple(steps)) if first in FIRST_SCALE else None

    def other_escape(self, stride: int) -> Self | None:
        """The escape probability, always to the next on the list."""
        position = self.escape + (1 if stride > 0 else -1)
        return replace(self, escape=position) if 0 <= position < len(ESCAPES) else None


@dataclass(frozen=True)
class Tailed(Scales):
    """A setting that may have a tail.

    tail       how the spread is turned into a threshold. Theorem E: "cap": the variance must stay
               below R = the tail's factor times the reference network's variance V0, else the loss
               is 1, and the threshold is expected shortfall times sqrt(R); "exponential": lambda V
               / 2 + ln(1/p) / lambda, lambda = factor * sqrt(2 ln(1/p) / V0). Theorem F: "sizes":
               activations may be larger than the reference's by the factor
    factor     log2 of the tail's factor, in steps of the grid
    """

    first: int
    steps: tuple[int, ...]
    escape: int
    tail: str | None = None
    factor: int = 0

    @property
    def tail_factor(self) -> float:
        assert self.tail is not None
        return float(2.0 ** (self.factor / _TAIL_FINENESS[self.tail]))

    def own_charges(self) -> list[Charge]:
        lines = list(self.scale_charges())
        if self.tail is not None:
            name = "room above the reference's activations"
            if self.tail in TAILS:
                name = "tail: factor"
                lines.append(Charge("tail: form", self.tail, choice_nats(len(TAILS))))
            text = f"2^({self.factor}/{_TAIL_FINENESS[self.tail]})"
            lines.append(Charge(name, text, integer_nats(self.factor)))
        return lines

    def other_factor(self, stride: int) -> Self | None:
        return None if self.tail is None else replace(self, factor=self.factor + stride)

    def other_tail(self, stride: int) -> Self | None:
        """The other form of the tail, with the factor that it starts from."""
        if self.tail not in TAILS or stride < 0:
            return None
        other = "exponential" if self.tail == "cap" else "cap"
        return replace(self, tail=other, factor=1 if other == "cap" else 0)


@dataclass(frozen=True)
class Setting(Tailed):
    """Choices of Theorem D, E or F: noise scales, escape probability, tail, and

    anchored   E and F with sparsity only: whether mean shifts meet the prior's output weights
    named      whether constants of the output layer are named for each pair of classes
    """

    anchored: bool = False
    named: bool = False

    def charges(self, *, sparse: bool) -> tuple[Charge, ...]:
        """What naming these choices costs; constants of the network are charged elsewhere."""
        lines = self.own_charges()
        if self.tail is not None and sparse:
            way = "the prior's output weights" if self.anchored else "sums of the largest"
            lines.append(Charge("mean shifts: form", way, choice_nats(2)))
        return tuple(lines)

    def other_named(self, stride: int) -> Self | None:
        return replace(self, named=not self.named) if stride > 0 else None

    def unanchored(self, stride: int) -> Self | None:
        leaves = self.tail is not None and self.anchored and stride > 0
        return replace(self, anchored=False) if leaves else None


@dataclass(frozen=True)
class ConvSetting(Tailed):
    """Choices for convolutions: noise scales, escape probability, the tail of Theorem E, and

    blend      with sparsity, position in BLENDS: how much of the product of norms is added to the
               prior's gradients where the spread is expected
    """

    tail: str = "cap"
    factor: int = 1
    blend: int = 4

    def charges(self, *, sparse: bool) -> tuple[Charge, ...]:
        """What naming these choices costs; constants of the network are charged elsewhere."""
        blend = Charge("tail: share of norms", f"{BLENDS[self.blend]:g}", choice_nats(len(BLENDS)))
        return (*self.own_charges(), *((blend,) if sparse else ()))

    def other_blend(self, stride: int) -> Self | None:
        blend = self.blend + (1 if stride > 0 else -1)
        return replace(self, blend=blend) if 0 <= blend < len(BLENDS) else None


@dataclass(frozen=True)
class UniformSetting(Scales):
    """Choices of Theorem A: escape probability, noise levels relative to the norms, and

    inactive   s_k: how many units (blocks) of each hidden layer are asked to stay inactive
    """

    inactive: tuple[int, ...]
    first: int
    steps: tuple[int, ...]
    escape: int

    @property
    def epsilons(self) -> tuple[float, ...]:
        """Relative noise levels; the scales follow from them and the norms."""
        return self.sigmas

    def charges(self, *, sparse: bool, groups: tuple[int, ...]) -> tuple[Charge, ...]:
        """What naming these choices costs in a network with so many units (blocks) per layer."""
        lines = list(self.scale_charges("noise level"))
        asked = zip(self.inactive, groups, strict=True) if sparse else ()
        for layer, (count, width) in enumerate(asked, start=1):
            if count not in range(width):
                raise BadInput(
                    f"{count} inactive units are asked of layer {layer}, which has {width}; at "
                    f"most {width - 1} are among the choices that are paid for"
                )
            name = f"inactive units of layer {layer}"
            lines.append(Charge(name, str(count), choice_nats(width)))
        return tuple(lines)

    def other_inactive(self, stride: int, *, layer: int, width: int) -> Self | None:
        """How many units of one hidden layer are asked to stay inactive."""
        counts = list(self.inactive)
        counts[layer] += stride
        return replace(self, inactive=tuple(counts)) if 1 <= counts[layer] < width else None


def kl_nats(squared_distances: tuple[float, ...], sigmas: tuple[float, ...]) -> float:
    """KL divergence of equal Gaussians around two networks: sum of |W_k - W0_k|^2 / 2 sigma_k^2."""
    for sigma in sigmas:
        # Beyond, squares vanish or overflow.
        if not 1e-60 <= sigma <= 1e60:
            raise BadInput(f"a noise scale of {sigma:.0e} lies outside 1e-60 to 1e60")
    terms = (d / (2.0 * s * s) for d, s in zip(squared_distances, sigmas, strict=True))
    return math.fsum(terms) * (1.0 + 1e-12)


def total_nats(charges: Iterable[Charge | ChargeRecord]) -> float:
    """The sum of a ledger, rounded up."""
    return math.fsum(line.nats for line in charges) * (1.0 + 1e-12)


#: What the theorems choose.
AnySetting = Setting | UniformSetting | ConvSetting


def frozen_setting(
    theorem: str, variant: str, record: Mapping[str, Any], *, convolutional: bool = False
) -> AnySetting:
    """The setting that a record names; positions outside the grids are refused."""
    if theorem not in THEOREMS:
        raise BadInput(f"there is no Theorem {theorem!r}; there are {', '.join(THEOREMS)}")
    if convolutional and theorem != CONV_THEOREM:
        raise BadInput(
            f"theorem {theorem!r} does not cover convolutions; a convolutional network is "
            f"certified by theorem {CONV_THEOREM}"
        )
    kind: Any = ConvSetting if convolutional else UniformSetting if theorem == "A" else Setting
    names = {entry.name for entry in fields(kind)}
    if set(record) != names:
        odd = sorted(set(record) ^ names)
        raise BadInput(f"a setting of Theorem {theorem} has {sorted(names)}; see {odd}")
    try:
        # A record from a file may hold anything: positions are whole numbers, and no fractions.
        setting: AnySetting = TypeAdapter(kind).validate_json(json.dumps(dict(record)), strict=True)
    except (TypeError, ValidationError) as error:
        raise BadInput(f"the setting cannot be read: {error}") from error
    if setting.first not in FIRST_SCALE or setting.escape not in range(len(ESCAPES)):
        raise BadInput("the setting names a noise scale or an escape probability off its grid")
    _check_free(theorem, variant, setting)
    return setting


def _check_free(theorem: str, variant: str, setting: AnySetting) -> None:
    """A choice that costs nothing must be none: it would draw other noise, or ask for less."""
    if isinstance(setting, UniformSetting):
        if min(setting.inactive, default=0) < 0:
            raise BadInput("the setting asks for less than no inactive unit")
        if variant != "sparse" and any(setting.inactive):
            raise BadInput("a setting without the use of inactive units asks for some")
        return
    if setting.tail not in {"D": (None,), "E": TAILS, "F": (SIZES,)}[theorem]:
        raise BadInput(f"the setting's tail cannot be {setting.tail!r}")
    if isinstance(setting, ConvSetting):
        if setting.blend not in range(len(BLENDS)):
            raise BadInput("the setting names a share of norms off its grid")
        if variant != "sparse" and setting.blend != ConvSetting.blend:
            raise BadInput(
                "a setting without the use of inactive units has no share of norms to name"
            )
        return
    if theorem == "D" and setting.factor:
        raise BadInput("Theorem D has no tail, and the setting names a factor of it")
    if setting.anchored and (theorem == "D" or variant != "sparse"):
        raise BadInput(
            f"Theorem {theorem}, {variant}, has no mean shifts that meet the prior's weights"
        )
