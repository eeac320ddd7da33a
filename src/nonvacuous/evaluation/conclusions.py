"""From counts to claims: the promise, both ends, groups, classes and the best constant."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nonvacuous import bounds
from nonvacuous.bounds.rounding import as_risk, down, up
from nonvacuous.errors import BadInput, nearest
from nonvacuous.evaluation.sample import Sample
from nonvacuous.evaluation.tally import PREDICTED_CLASS, TRUE_CLASS, Tally
from nonvacuous.evaluation_records import ClassScore, EvaluationRecord, Slice, TestedBaseline
from nonvacuous.records import BoundRecord

TAIL = "Clopper and Pearson (1934): the exact binomial tail"
THEOREMS = {
    "held-out tail": TAIL,
    "betting": "Waudby-Smith and Ramdas (2024): betting, in an order that the seed and the "
    "columns' digests draw",
    "empirical Bernstein": "Maurer and Pontil (2009): from mean and variance, there being too many "
    "losses to keep",
}


@dataclass(frozen=True)
class Promise:
    """The number that the certificate is about, and where it came from."""

    errors: float
    trials: int
    risk_upper: float
    risk_lower: float
    interval: tuple[float, float]
    bound: BoundRecord
    beside: Mapping[str, float] = field(default_factory=dict)


def promise_of(tally: Tally, failure: float) -> Promise:
    """The metric's bounds: the upper end and the lower end each at ``failure``."""
    settings = tally.settings
    if settings.metric == "balanced error":
        return _balanced(tally, failure)
    if settings.metric in ("f1", "jaccard") and settings.positive is None:
        return _macro(tally, failure)
    sample = _sample(tally)
    inputs: dict[str, float | int] = {"examples": sample.examples, "failure": failure}
    if sample.squares is None:
        inputs = {"errors": int(sample.errors), **inputs}
    return Promise(
        errors=sample.errors,
        trials=sample.examples,
        **ends_of(sample.upper, sample.lower, failure),
        bound=BoundRecord(name=sample.theorem, theorem=THEOREMS[sample.theorem], inputs=inputs),
        beside={name: as_risk(end) for name, end in sample.beside(failure).items()},
    )


def ends_of(
    upper: Callable[[float], float], lower: Callable[[float], float], failure: float
) -> dict[str, Any]:
    """Each end at the whole failure, and both at once at half of it."""
    half = down(failure / 2)
    return {
        "risk_upper": upper(failure),
        "risk_lower": lower(failure),
        "interval": (lower(half), upper(half)),
    }


def _sample(tally: Tally) -> Sample:
    settings = tally.settings
    if settings.entry.counts != "classes":
        return tally.sample()
    code = tally.classes.code(settings.positive)
    if code < 0:
        seen = [str(value) for value in tally.classes.values]
        close = nearest(settings.positive, seen)
        hint = f" Did you mean {close!r}?" if close else ""
        raise BadInput(
            f"there is no class {settings.positive!r}.{hint} The classes are "
            f"{', '.join(seen[:20])}.",
            instead={"--positive": close or "CLASS"},
        )
    truths, answers, hits = (int(a[code]) for a in (tally.truths, tally.answers, tally.hits))
    total = {"recall": truths, "precision": answers}.get(settings.metric, truths + answers - hits)
    if total == 0:
        raise BadInput(f"no example is of the class {settings.positive!r} or was put into it.")
    return Sample(total - hits, total, f1=settings.metric == "f1")


def _balanced(tally: Tally, failure: float) -> Promise:
    examples = tally.truths.tolist()
    errors = (tally.truths - tally.hits).tolist()
    tilted = tally.settings.balance == "tilt"

    def upper(share: float) -> float:
        if not tilted:
            return bounds.balanced(errors=errors, examples=examples, failure=share)
        tilt = bounds.balanced_tilt(examples=examples, failure=share)
        return bounds.balanced_tilted(errors=errors, examples=examples, tilt=tilt, failure=share)

    def lower(share: float) -> float:
        """Of the balanced accuracy, a class without examples counting as always right."""
        seen = tally.truths > 0
        right, sizes = tally.hits[seen].tolist(), tally.truths[seen].tolist()
        end = bounds.balanced(errors=right, examples=sizes, failure=share)
        return as_risk(down(len(sizes) / len(examples) * (1.0 - end)))

    tail = "one tilted tail for all classes" if tilted else "one exact tail for each class"
    mean = [k / n if n else 1.0 for k, n in zip(errors, examples, strict=True)]
    return Promise(
        errors=math.fsum(mean),
        trials=len(mean),
        **ends_of(upper, lower, failure),
        bound=BoundRecord(
            name=f"balanced {tally.settings.balance}",
            theorem=tail,
            inputs={"classes": len(examples), "failure": failure},
        ),
    )


def _macro(tally: Tally, failure: float) -> Promise:
    """Mean of 1 - F1 (or Jaccard) over the classes; each class has its share."""
    relevant = tally.truths + tally.answers - tally.hits
    pairs = list(zip(tally.hits.tolist(), relevant.tolist(), strict=True))
    f1, size = tally.settings.metric == "f1", len(pairs)
    bound = bounds.f1_lower if f1 else bounds.jaccard_lower

    def upper(share: float) -> float:
        each = down(share / size)
        ends = [1.0 - bound(hits=h, relevant=r, failure=each) for h, r in pairs]
        return as_risk(up(math.fsum(ends) / size))

    def lower(share: float) -> float:
        each = down(share / size)
        ends = [bounds.holdout_lower(errors=r - h, examples=r, failure=each) for h, r in pairs if r]
        ends = [end / (2.0 - end) for end in ends] if f1 else ends
        return as_risk(down(math.fsum(ends) / size))

    scores = [h / r if r else 0.0 for h, r in pairs]
    scores = [2 * score / (1 + score) for score in scores] if f1 else scores
    return Promise(
        errors=math.fsum(1.0 - score for score in scores),
        trials=size,
        **ends_of(upper, lower, failure),
        bound=BoundRecord(
            name="mean over classes",
            theorem=f"{TAIL}, a share of the failure probability for each class",
            inputs={"classes": size, "failure": failure},
        ),
    )


def conclude(tally: Tally, failure: float) -> tuple[Promise, EvaluationRecord]:
    """Everything that the counts show; every claim at ``failure`` alone unless it says otherwise.

    ``failure`` is what is left for one predictor. The selective error takes half of it, the share
    of answers the other half.
    """
    settings = tally.settings
    selective = settings.metric == "selective error"
    own = down(failure / 2) if selective else failure
    promise = promise_of(tally, own)
    guess = 1.0 - 1.0 / max(2, len(tally.classes.values)) if tally.classes.values else 1.0
    slices = {name: _slices(tally.slices(f"group:{name}"), failure, guess) for name in tally.groups}
    worst = max((s.risk_upper for group in slices.values() for s in group.values()), default=None)
    if len(tally.answers) and not selective:
        for column in (TRUE_CLASS, PREDICTED_CLASS):
            slices[column] = _slices(tally.slices(column), failure, guess)
    rest = tally.rows - tally.counted
    record = EvaluationRecord(
        settings=settings,
        unit="clusters" if tally.clustered else "examples",
        rows=tally.rows,
        risk_lower=promise.risk_lower,
        interval=promise.interval,
        beside=dict(promise.beside),
        coverage_lower=as_risk(
            down(1.0 - bounds.holdout(errors=rest, examples=tally.rows, failure=own))
        )
        if selective
        else None,
        groups=slices,
        worst_group_upper=worst,
        scores={} if selective or tally.clustered else _scores(tally, failure),
        digests={role: digest.hexdigest() for role, digest in tally.digests.items()},
    )
    return promise, record


def baseline_of(tally: Tally, failure: float) -> TestedBaseline | None:
    """The comparison with the best constant answer, where there are classes."""
    if not len(tally.truths) or tally.settings.metric == "selective error":
        return None
    totals = tally.truths.tolist()
    if tally.clustered:
        ends = [(c.lower(failure), gain.lower(failure)) for c, gain in tally.constants()]
        margin, largest = down(2.0 * min(gain for _, gain in ends) - 1.0), int(np.argmax(totals))
        least = min(end for end, _ in ends)
    else:
        margin, largest = bounds.constant_margin(
            hits=tally.hits.tolist(), totals=totals, failure=failure
        )
        least = bounds.constant_lower(
            most_frequent=totals[largest], examples=sum(totals), failure=failure
        )
    return TestedBaseline(
        answer=largest,
        name=str(tally.classes.values[largest]),
        errors=sum(totals) - totals[largest],
        examples=sum(totals),
        failure=failure,
        risk_lower=least,
        margin_lower=max(-1.0, margin),
    )


def _slices(samples: dict[str, Sample], failure: float, guess: float) -> dict[str, Slice]:
    share = down(failure / max(1, len(samples)))
    return {
        name: Slice(
            errors=sample.errors,
            examples=sample.examples,
            risk_upper=(upper := sample.upper(failure)),
            risk_lower=sample.lower(failure),
            risk_upper_together=sample.upper(share),
            # Better than a guess, and enough examples to have shown half of it.
            sufficient=sample.examples > 0
            and upper < guess
            and bounds.holdout(errors=0, examples=sample.examples, failure=failure) < guess / 2,
        )
        for name, sample in samples.items()
    }


def _scores(tally: Tally, failure: float) -> dict[str, ClassScore]:
    if not len(tally.answers):
        return {}
    relevant = (tally.truths + tally.answers - tally.hits).tolist()
    return {
        str(value): ClassScore(
            hits=hits,
            relevant=total,
            f1_lower=bounds.f1_lower(hits=hits, relevant=total, failure=failure),
            jaccard_lower=bounds.jaccard_lower(hits=hits, relevant=total, failure=failure),
        )
        for value, hits, total in zip(
            tally.classes.values, tally.hits.tolist(), relevant, strict=True
        )
    }
