"""The accounts of a sparsity certificate: its noise layer by layer, its choices item by item."""

from __future__ import annotations

import math

from nonvacuous.certificate import Certificate
from nonvacuous.report.wording import capital, clean, nats, percent, plural, whole
from nonvacuous.sparsity_records import SparsityRecord


def layers(certificate: Certificate) -> tuple[tuple[str, ...], ...]:
    """Every layer, first layer first: its name, noise, distance from the prior, and its cost."""
    return tuple(
        (
            clean(layer.name),
            f"{layer.scale:.3g}",
            f"{math.sqrt(layer.squared_distance):.3g}",
            nats(layer.squared_distance / (2.0 * layer.scale**2)),
        )
        for layer in (certificate.sparsity.layers if certificate.sparsity else ())
    )


def choices(certificate: Certificate) -> tuple[tuple[str, ...], ...]:
    """The ledger in nats, dearest first: what was chosen, what it is, what naming it costs."""
    charges = certificate.sparsity.charges if certificate.sparsity else ()
    return tuple(
        (capital(clean(charge.name)), clean(charge.choice), nats(charge.nats))
        for charge in sorted(charges, key=lambda charge: -charge.nats)
    )


def story(certificate: Certificate) -> tuple[str, ...]:
    """How a promise about one fixed network comes out of noise, in a few sentences."""
    record = certificate.sparsity
    if record is None:
        return ()
    missed = (
        f"An error of the network escapes the noise with chance at most {percent(record.escape)}, "
        "so the bound for the noise is divided by the rest."
    )
    return (*_measured(certificate, record), *_shared(record), missed)


def _shared(record: SparsityRecord) -> tuple[str, ...]:
    """What is different where a kernel reads at many positions."""
    if record.images is None:
        return ()
    most = max(layer.convolution.positions for layer in record.layers if layer.convolution)
    return (
        f"A kernel's noise is the same at all of its positions, of which a layer has up to "
        f"{whole(most)}; noise on a bias is smaller by the root of their number, so the distance "
        "of a bias counts as often as its layer has positions.",
    )


def _measured(certificate: Certificate, record: SparsityRecord) -> tuple[str, ...]:
    variant = "with" if record.variant == "sparse" else "without"
    first = (
        f"Theorem {clean(record.theorem)}, {variant} the use of units that stay inactive. Noise is "
        "put on the weights, and an example counts as lost where the margin of the noisy network "
        "does not exceed a threshold that forgives what noise can do."
    )
    counted, examples = certificate.empirical, certificate.data.bound.examples
    if record.passes == 0:
        lost = f"{whole(counted.errors or 0)} of {plural(examples, 'example')}"
        second = f"No noise is drawn: {lost} fail the theorem's conditions on the network itself."
    else:
        second = (
            f"{plural(record.passes, 'noisy network')} for each of {plural(examples, 'example')}: "
            f"{whole(counted.errors or 0)} of {whole(counted.trials)} losses."
        )
    if record.threshold is not None and record.margin is not None:
        second += (
            f" Half of them have a margin above {record.margin:.3g}, and a threshold below "
            f"{record.threshold:.3g}."
        )
    return first, second
