"""What a sparsity certificate has to pay for, line by line, from the file alone.

Which constants of the network stand inside the loss follows from theorem, variant, setting and
layers; their values take the network to see. So every line must be there, none beside them, and
each must cost what its own words cost.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator

from nonvacuous.bounds.sparsity import choice_nats, integer_nats
from nonvacuous.records import ComplexityRecord
from nonvacuous.rules.derandomization import charge_records
from nonvacuous.sparsity.constants import EXPONENTS, FINENESS, LARGEST_TABLE, Charge, chosen_among
from nonvacuous.sparsity.setting import AnySetting, ConvSetting, Setting, UniformSetting, total_nats
from nonvacuous.sparsity_records import ChargeRecord, SparsityRecord
from nonvacuous.verification.findings import Disagreement, equal

_STEP = re.compile(r"reference x 2\^\((-?[0-9]{1,9})/([0-9]{1,9})\)")
_FIELD = "sparsity.charges"
_NAMED = "each pair of classes named"
_FORMS = ("one for all pairs", "each pair of classes as in the prior")
#: Steps per factor of two of distances from the prior: output layer, other layers, convolutions.
_OUTPUT_DISTANCE, _LAYER_DISTANCE, _CONV_DISTANCE = 1, 4, 4

#: Whether a line says something that can be, at the price that it has.
Rule = Callable[[ChargeRecord], bool]


def check_charges(
    record: SparsityRecord, setting: AnySetting, complexity: ComplexityRecord, *, classes: int
) -> None:
    """Raise unless the ledger has every line that it must have, and no other."""
    equal(record.grid_nats, total_nats(record.charges), "sparsity.grid_nats")
    listed = {charge.name: charge for charge in record.charges}
    if len(listed) != len(record.charges):
        raise Disagreement("a charge is listed twice.", _FIELD)
    widths = () if record.images is not None else hidden_widths(record, complexity, classes)
    chosen = charge_records(_chosen(record, setting, widths))
    for expected in chosen:
        equal(listed.get(expected.name), expected, _FIELD)
    rules = dict(_constants(record, setting, widths, classes))
    known = {line.name for line in chosen} | rules.keys()
    odd = [name for name in listed if name not in known]
    if odd:
        raise Disagreement(f"{odd[0]!r} is no choice of this theorem.", _FIELD)
    for name, allowed in rules.items():
        if name not in listed:
            raise Disagreement(f"{name!r} stands inside the loss, and nobody paid for it.", _FIELD)
        line = listed[name]
        if not allowed(line):
            why = f"{name!r} cannot be {line.choice!r} for {line.nats!r} nats."
            raise Disagreement(why, _FIELD)


def hidden_widths(
    record: SparsityRecord, complexity: ComplexityRecord, classes: int
) -> tuple[int, ...]:
    """Units of each hidden layer of a perceptron, from the sizes of its tensors, last one first."""
    sizes = {term.tensor: term.size for term in complexity.terms}
    outputs, widths = classes, list[int]()
    for layer in reversed(record.layers):
        weight, *bias = (sizes.get(name, 0) for name in layer.tensors)
        if weight < 1 or weight % outputs or bias not in ([], [outputs]):
            raise Disagreement(
                f"the tensors of layer {layer.name} do not have {outputs} outputs.",
                "sparsity.layers",
            )
        outputs = weight // outputs
        widths.append(outputs)
    return tuple(reversed(widths[:-1]))


def _chosen(
    record: SparsityRecord, setting: AnySetting, widths: tuple[int, ...]
) -> tuple[Charge, ...]:
    """The lines whose every word and price follows from the setting."""
    shared, sparse = chosen_among(record.choices), record.variant == "sparse"
    if not isinstance(setting, UniformSetting):
        return (*shared, *setting.charges(sparse=sparse))
    equal((len(setting.steps), len(setting.inactive)), (len(widths),) * 2, "sparsity.setting")
    return (*shared, *setting.charges(sparse=sparse, groups=widths))


def _constants(
    record: SparsityRecord, setting: AnySetting, widths: tuple[int, ...], classes: int
) -> Iterator[tuple[str, Rule]]:
    """The constants of the network inside the loss, by name."""
    names = [layer.name for layer in record.layers]
    if isinstance(setting, UniformSetting):
        for name in names:
            yield f"row norm of layer {name}", _step(FINENESS)
        for name in names[:-1]:
            yield f"norm of layer {name}", _step(FINENESS)
    elif isinstance(setting, ConvSetting):
        for name in names[1:-1]:
            yield f"operator norm of layer {name}", _step(FINENESS)
            yield f"kernel norm of layer {name}", _step(FINENESS)
            if record.variant == "sparse":
                yield f"distance of layer {name} from the prior", _step(_CONV_DISTANCE)
        yield "distance of output weights from the prior", _step(_CONV_DISTANCE)
    else:
        yield from _of_noise(record, setting, names[1:-1], widths[-1], classes)


def _of_noise(
    record: SparsityRecord, setting: Setting, inner: list[str], width: int, classes: int
) -> Iterator[tuple[str, Rule]]:
    """Theorems D, E and F on a perceptron; ``inner`` are the layers between first and last."""
    sparse, units = record.variant == "sparse", record.theorem == "F"
    each = sparse and record.theorem == "D"
    named = setting.named and classes * classes * (width + 1) <= LARGEST_TABLE
    pairs = classes * (classes - 1)
    yield from _pair_table("norms of output weights", each, pairs // 2 if named else 0)
    if not setting.anchored:
        yield from _pair_table("sums of output weights", sparse, pairs if named else 0)
    for name in inner:
        if units:
            yield f"row norms of the units of layer {name}", _step(FINENESS)
        else:
            yield from _table(f"row norms of layer {name}", each)
        yield f"spectral norm of layer {name}", _step(FINENESS)
        if units and setting.anchored:
            yield f"distance of layer {name} from the prior", _step(_LAYER_DISTANCE)
    if setting.anchored:
        yield "distance of output weights from the prior", _step(_OUTPUT_DISTANCE)


def _pair_table(name: str, each: bool, factors: int) -> Iterator[tuple[str, Rule]]:
    yield from _table(name, each)
    if factors:
        yield f"{name}: pairs", _factors(factors)
    forms = (_NAMED,) if factors else _FORMS
    yield f"{name}: form", _one_of(dict.fromkeys(forms, choice_nats(3)))


def _table(name: str, each: bool) -> Iterator[tuple[str, Rule]]:
    yield name, _step(FINENESS)
    if each:
        shapes = {
            f"reference to the power {exponent:g}": choice_nats(2 if exponent == 1.0 else 16)
            for exponent in EXPONENTS
        }
        yield f"{name}: shape", _one_of(shapes)


def _step(fineness: int) -> Rule:
    """A step of a grid, at the price of that step."""

    def allowed(line: ChargeRecord) -> bool:
        step = _STEP.fullmatch(line.choice)
        if step is None or int(step[2]) != fineness:
            return False
        return line.nats == integer_nats(int(step[1]))

    return allowed


def _one_of(prices: dict[str, float]) -> Rule:
    return lambda line: prices.get(line.choice) == line.nats


def _factors(count: int) -> Rule:
    """So many whole numbers; the cheapest of them costs ln 2, and which they are is not listed."""
    text = f"{count} factors 2^(-i/8)"
    return lambda line: line.choice == text and line.nats >= count * math.log(2.0)
