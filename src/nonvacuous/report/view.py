"""A certificate in words: everything that the page and the terminal say, said in one place."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nonvacuous.bounds.rounding import shown_up
from nonvacuous.certificate import Certificate
from nonvacuous.records import ProgressiveRecord
from nonvacuous.report import measured, promise, rescaling, sparsity, tables
from nonvacuous.report.curves import Curve, curves
from nonvacuous.report.measured import PREDICTOR, errors_on_test, is_test
from nonvacuous.report.promise import Sentence
from nonvacuous.report.wording import (
    capital,
    clean,
    declared_percent,
    nats,
    percent,
    percent_up,
    plural,
    shortened,
    visible,
    whole,
)

if TYPE_CHECKING:
    from nonvacuous.comparison import Comparison


@dataclass(frozen=True)
class Badge:
    """A short verdict. ``icon`` is a shape, so that the color is never alone in saying it."""

    text: str
    icon: str


@dataclass(frozen=True)
class Mark:
    """A place on the scale from 0 to 100%. ``kind`` decides shape and color."""

    kind: str
    name: str
    value: float
    text: str
    note: str = ""


@dataclass(frozen=True)
class Fact:
    term: str
    detail: str


@dataclass(frozen=True)
class View:
    """The report in words. Empty tuples are sections that have nothing to show."""

    title: str
    status: str
    #: "vacuous", "unshown" (not shown better than a constant answer) or "non-vacuous".
    weight: str
    promise: Sentence
    subject: str
    reasons: tuple[str, ...]
    badges: tuple[Badge, ...]
    confidence: Sentence
    verdict: str
    #: The given network itself, where the promise is about noise around it.
    own: str
    marks: tuple[Mark, ...]
    about: tuple[Fact, ...]
    statement: str
    measured: tuple[Fact, ...]
    theorem: Fact
    steps: tuple[tables.Bar, ...]
    ledger: tuple[tuple[str, str, str], ...]
    ledger_total: str
    grounds: tuple[tables.Grounds, ...]
    labels: tuple[tables.Bar, ...]
    labels_story: str
    rescaling: tuple[rescaling.Row, ...]
    rescaling_story: tuple[str, ...]
    noise: tuple[tuple[str, ...], ...]
    noise_story: tuple[str, ...]
    choices: tuple[tuple[str, ...], ...]
    choices_total: str
    layers: tuple[tables.Bar, ...]
    layers_total: str
    bounds: tuple[tables.Bar, ...]
    curves: tuple[Curve, ...]
    verify_command: str
    verify_python: str
    fingerprints: tuple[Fact, ...]
    software: str
    limits: tuple[str, ...]


def of(
    certificate: Certificate,
    *,
    comparison: Comparison | None = None,
    history: Sequence[Mapping[str, Any]] | None = None,
    run_folder: str | os.PathLike[str] | None = None,
    labels: Mapping[str, Any] | None = None,
) -> View:
    """Everything there is to say about a certificate.

    ``comparison`` comes from :func:`nonvacuous.comparison.compare`; ``history`` holds the events of
    the run (the lines of its ``events.jsonl``); ``run_folder`` is where a checker finds the files;
    ``labels`` is what ``nonvacuous randomize --run`` found with random labels.
    """
    against = tables.label_rows(certificate, labels)
    name, data = clean(certificate.model.architecture), clean(certificate.data.name)
    command, python = _verification(run_folder)
    return View(
        title=f"{shortened(name, 48)} on {shortened(data, 48)}",
        status=certificate.status,
        weight=promise.vacuity(certificate),
        promise=promise.promise(certificate),
        subject=promise.subject(certificate),
        reasons=promise.reasons(certificate),
        badges=_badges(certificate),
        confidence=promise.confidence(certificate),
        verdict=promise.verdict(certificate),
        own=measured.own_story(certificate),
        marks=marks_of(certificate),
        about=_about(certificate),
        statement=_statement(certificate),
        measured=_measured(certificate),
        theorem=Fact(tables.theorem_name(certificate.bound.name), clean(certificate.bound.theorem)),
        steps=tables.step_rows(certificate, comparison.steps) if comparison else (),
        ledger=tables.ledger_rows(certificate),
        ledger_total=f"{certificate.budget.failure:g}",
        grounds=tables.grounds(certificate),
        labels=against,
        labels_story=tables.label_story(against),
        rescaling=rescaling.rows(certificate),
        rescaling_story=rescaling.story(certificate) or _before_and_after(certificate),
        noise=sparsity.layers(certificate),
        noise_story=sparsity.story(certificate),
        choices=sparsity.choices(certificate),
        choices_total=sparsity.choices_total(certificate),
        layers=tables.layer_rows(certificate),
        layers_total=tables.layers_total(certificate),
        bounds=tables.bound_rows(certificate, comparison.bounds) if comparison else (),
        curves=curves(history or ()),
        verify_command=command,
        verify_python=python,
        fingerprints=_fingerprints(certificate),
        software=", ".join(
            f"{clean(key)} {clean(value)}" for key, value in sorted(certificate.software.items())
        ),
        limits=promise.limits(certificate),
    )


def _badges(certificate: Certificate) -> tuple[Badge, ...]:
    status = {
        "valid": Badge("Valid", "check"),
        "conditional": Badge("Conditional", "triangle"),
        "refused": Badge("Refused", "cross"),
    }[certificate.status]
    badges = [status]
    if certificate.status != "refused":
        badges.append(
            {
                "vacuous": Badge("Vacuous", "ring"),
                "unshown": Badge("Vacuous: not shown better than one class", "ring"),
                "non-vacuous": Badge("Non-vacuous", "disc"),
            }[promise.vacuity(certificate)]
        )
    predictor = PREDICTOR[certificate.predictor].removeprefix("the ")
    badges.append(Badge(f"Predictor: {predictor}", "none"))
    badges.append(Badge(f"Loss: {_loss(certificate)}", "none"))
    return tuple(badges)


def _loss(certificate: Certificate) -> str:
    plain = certificate.loss.name == "zero-one"
    return "zero-one (right or wrong)" if plain else clean(certificate.loss.name)


def marks_of(certificate: Certificate) -> tuple[Mark, ...]:
    """What stands on the scale: of a refused certificate, nothing that looks like a promise."""
    rate = certificate.empirical.mean
    held_out = not certificate.kind.prior
    name = "Error counted" if held_out else "Training error"
    counted = [o for o in certificate.observed if not is_test(o)]
    if certificate.sparsity is not None and counted:
        # What the bound starts from is the loss of noise; this is the network's own.
        rate = counted[0].errors / counted[0].trials
    if measured.is_given(certificate):
        name = "Training error, with noise"
    marks = [Mark("training", name, rate, percent(rate))]
    own = measured.own_error(certificate, test=True)
    note = "not part of the promise"
    if own is not None:
        rate = own.errors / own.trials
        marks.append(Mark("test", "Test error, your network", rate, percent(rate), note))
    for error in errors_on_test(certificate)[: 0 if own else 1]:
        # Both errors are the certified predictor's where it was tested; else the mark says whose.
        name = "Test error" if error.own else f"Test error, {error.whose}"
        marks.append(Mark("test", name, error.rate, percent(error.rate), note))
    if certificate.status != "refused":
        twin = certificate.held_out_twin
        if twin is not None:
            text = f"≤ {percent_up(twin.risk_upper)}"
            name = measured.twin_name(certificate)
            marks.append(Mark("twin", name, twin.risk_upper, text))
        if certificate.gate is None:
            text = f"≤ {promise.shown_risk(certificate)}"
            marks.append(Mark("certificate", "Certificate", certificate.risk_upper, text))
        else:
            passed = "Gate" if certificate.risk_upper < 1.0 else "Gate, not passed"
            text = f"< {declared_percent(certificate.gate)}"
            marks.append(Mark("certificate", passed, certificate.gate, text))
    baseline = certificate.baseline
    if certificate.counts_errors and baseline is not None:
        name = f"Always “{shortened(clean(baseline.name), 16)}”"
        marks.append(Mark("guessing", name, baseline.rate, percent(baseline.rate)))
    return tuple(marks)


def _about(certificate: Certificate) -> tuple[Fact, ...]:
    data = certificate.data
    examples = plural(data.bound.examples, "example")
    counted = f"{examples} counted by the bound"
    if data.prior is not None:
        first = "prior" if certificate.progressive is None else "first checkpoint"
        counted += f"; {whole(data.prior.examples)} others trained the {first}"
    elif certificate.kind.prior:
        counted += "; none shaped the prior"
    if data.held_out is not None:
        counted += f"; {whole(data.held_out.examples)} held out"
    facts = [
        Fact(
            "Network",
            f"{clean(certificate.model.architecture)}, "
            f"{plural(certificate.model.parameters, 'parameter')}",
        ),
        Fact("Data", f"{clean(data.name)}, {whole(data.classes)} classes; {counted}"),
        Fact("Inputs", capital(clean(data.preprocessing))),
    ]
    for term, record in (("Prior", certificate.prior), ("Posterior", certificate.posterior)):
        if record is not None:
            facts.append(Fact(term, clean(record.description)))
    if certificate.progressive is not None:
        facts.append(Fact("Tests", _tests(certificate.progressive)))
    if certificate.status != "refused" and certificate.gate is None:
        facts.append(Fact("Number before rounding", f"{certificate.risk_upper!r}"))
    return tuple(facts)


def _tests(record: ProgressiveRecord) -> str:
    counts = ", ".join(f"{b.errors} of {whole(b.examples.examples)}" for b in record.batches)
    return (
        f"{plural(len(record.batches), 'checkpoint')} of {clean(record.training)}, each before it "
        f"learned from its batch; wrong on {counts}"
    )


def _statement(certificate: Certificate) -> str:
    """The certificate's own words, with its number rounded as everywhere else on the page."""
    written = f"at most {shown_up(certificate.risk_upper)}."
    shown = f"at most {promise.shown_risk(certificate)}."
    return clean(certificate.statement).replace(written, shown)


def _before_and_after(certificate: Certificate) -> tuple[str, ...]:
    """All there is to say of a rescaling whose certificate is not a bound in the KL."""
    record = certificate.rescaling
    if record is None:
        return ()
    return (
        f"The KL was {nats(record.kl_before)} nats with the weights as they were given, and is "
        f"{nats(record.kl_after)} nats after rescaling.",
    )


def _measured(certificate: Certificate) -> tuple[Fact, ...]:
    return tuple(
        Fact(
            capital(clean(observation.name)),
            f"{percent(observation.errors / observation.trials)} "
            f"({whole(observation.errors)} of {whole(observation.trials)} wrong)",
        )
        for observation in certificate.observed
    )


def _verification(run_folder: str | os.PathLike[str] | None) -> tuple[str, str]:
    folder = Path("." if run_folder is None else run_folder)
    command = f"nonvacuous verify {shlex.quote(visible(str(folder)))}"
    file = visible(str(folder / "certificate.json"))
    python = f"nonvacuous.verify({file!r}, {visible(str(folder))!r}).raise_if_failed()"
    return command, python


def _fingerprints(certificate: Certificate) -> tuple[Fact, ...]:
    facts = [Fact("This certificate", certificate.digest)]
    facts += [Fact(clean(name), digest) for name, digest in sorted(certificate.artifacts.items())]
    return tuple(facts)
