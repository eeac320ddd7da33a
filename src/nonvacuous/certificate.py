"""The certificate: a frozen record of one promise and of everything it takes to check it."""

from __future__ import annotations

import hashlib
import html
import json
import math
import os
import shlex
from collections import Counter
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, model_validator

from nonvacuous import records
from nonvacuous.bounds import ConfidenceBudget
from nonvacuous.bounds.rounding import shown_confidence, shown_down, shown_up
from nonvacuous.errors import InvalidCertificate
from nonvacuous.evaluation_records import EvaluationRecord, Slice, TestedBaseline
from nonvacuous.files import write_atomically
from nonvacuous.foreign import read_bytes
from nonvacuous.kinds import KINDS, AnyMode, Kind, Predictor
from nonvacuous.sparsity_records import SparsityRecord

Status = Literal["valid", "conditional", "refused"]

#: The assumption of a plain test, which only the user can make.
UNSEEN = "the network never saw these examples"
#: What the promise is about; see ``predictor``.
PREDICTORS = {
    "stochastic": "the randomized network (weights drawn afresh from the posterior for each input)",
    "drawn": "the one network drawn from the posterior",
    "deterministic": "the network",
    "mixture": "the randomized predictor (a checkpoint drawn for each input, by its share of the "
    "tests; not the last checkpoint)",
}
#: How many groups of a column the printed lines name.
_MOST_GROUPS = 4


class Certificate(records.Record):
    """How wrong a network can be on data it has not seen, with the evidence.

    Built by :func:`nonvacuous.certify`; saved, loaded and compared exactly. A certificate whose
    assumptions were found false is ``refused``: it is kept as a record, and promises nothing.
    """

    unwritten = ("sparsity", "baseline", "evaluation", "audit")
    later = ("progressive",)

    format: Literal["nonvacuous-certificate/1"] = "nonvacuous-certificate/1"
    statement: records.Text
    status: Status
    mode: AnyMode
    predictor: Predictor
    loss: records.LossRecord
    confidence: Annotated[float, Field(gt=0.0, lt=1.0)]
    risk_upper: records.Probability
    bound: records.BoundRecord
    budget: records.BudgetRecord
    data: records.DataRecord
    model: records.ModelRecord
    prior: records.DistributionRecord | None = None
    posterior: records.DistributionRecord | None = None
    complexity: records.ComplexityRecord | None = None
    rescaling: records.RescalingRecord | None = None
    #: The terms of a certificate of mode "sparsity"; other certificates do not have this field.
    sparsity: SparsityRecord | None = None
    #: The batches of a certificate of mode "progressive"; other certificates lack this field.
    progressive: records.ProgressiveRecord | None = None
    empirical: records.RiskRecord
    held_out_twin: records.TwinRecord | None = None
    #: The best constant answer; certificates made before there was a comparison lack it.
    baseline: TestedBaseline | records.BaselineRecord | None = None
    #: What a test says beside its promise; certificates from training data do not have this field.
    evaluation: EvaluationRecord | None = None
    observed: tuple[records.Observation, ...] = ()
    assumptions: Annotated[tuple[records.Assumption, ...], Field(min_length=1)]
    #: The version of the audit that asked these questions; without it, the first.
    audit: Annotated[int, Field(ge=2)] | None = None
    seed: int
    software: dict[str, str]
    #: SHA-256 of the files in the run folder that the promise rests on, by name.
    artifacts: dict[str, records.Digest] = {}
    #: SHA-256 of everything above: a certificate that was edited does not load.
    digest: records.Digest

    @classmethod
    def sealed(cls, **fields: Any) -> Certificate:
        """Build a certificate from everything but its digest. Parts are records, not dicts."""
        given: dict[str, Any] = {**dict.fromkeys(cls.later), **fields}
        return cls(**given, digest=_digest_of(cls.model_construct(**given, digest="")))

    @model_validator(mode="after")
    def _coherent(self) -> Certificate:
        expected = status_of(self.assumptions)
        if self.status != expected:
            raise ValueError(f"status is {self.status!r}, but the assumptions make it {expected!r}")
        if abs(self.confidence - (1.0 - self.budget.failure)) > 1e-15:
            raise ValueError(
                f"confidence {self.confidence!r} is not one minus the budget's failure "
                f"{self.budget.failure!r}"
            )
        # Raises where more is spent than there is.
        ConfidenceBudget.from_dict(self.budget.model_dump())
        random = (self.prior, self.posterior, self.complexity)
        if not self.kind.prior:
            if any(part is not None for part in random):
                raise ValueError("a held-out certificate has no prior, posterior or complexity")
        elif any(part is None for part in random):
            raise ValueError(f"mode {self.mode!r} needs a prior, a posterior and a complexity")
        if self.kind.noisy != (self.sparsity is not None):
            raise ValueError("the terms of a sparsity certificate belong to mode 'sparsity' alone")
        if self.kind.steps != (self.progressive is not None):
            raise ValueError("batches belong to mode 'progressive' alone, which must have them")
        if self.kind.evaluation != (self.evaluation is not None):
            raise ValueError("the claims of a test belong to mode 'evaluate' alone")
        if self.digest != _digest_of(self):
            raise ValueError("the digest does not match: something was changed after sealing")
        return self

    @property
    def kind(self) -> Kind:
        """What a certificate of this mode has."""
        return KINDS[self.mode]

    @property
    def is_vacuous(self) -> bool:
        """True when the promise says nothing worth knowing: a constant answer may do as well.

        (The kl-inverse stays below 1 however large the KL: comparing with 1 would call 0.9987 a
        result.)
        """
        if self.status == "refused" or self.risk_upper >= 1.0:
            return True
        return self.counts_errors and not self.shown_better

    @property
    def counts_errors(self) -> bool:
        """Whether the loss is at least 1 on every error, so that the promise bounds their rate."""
        return self.loss.name == "zero-one" or self.loss.name.startswith("margin ")

    @property
    def shown_better(self) -> bool:
        """Whether the predictor is shown to be better than always answering one class.

        Shown with failure at most that of the promise plus ``baseline.failure``; never without a
        baseline.
        """
        if isinstance(self.baseline, TestedBaseline):
            return self.baseline.shown_better
        return self.baseline is not None and self.risk_upper < self.baseline.risk_lower

    @property
    def risk_lower(self) -> float | None:
        """How wrong the predictor is at least, at the same confidence; tests alone have it."""
        return None if self.evaluation is None else self.evaluation.risk_lower

    @property
    def gate(self) -> float | None:
        """The threshold that was declared before the training, where there was one."""
        return self.bound.inputs.get("threshold") if self.bound.name == "gate" else None

    @property
    def groups(self) -> dict[str, dict[str, Slice]]:
        """Bounds for groups, by column and value; tests alone have them."""
        return {} if self.evaluation is None else self.evaluation.groups

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the certificate as JSON; a reader never sees half of it."""
        target = Path(path)
        write_atomically(target, self.written.decode())
        return target

    @property
    def written(self) -> bytes:
        """The very bytes of its file."""
        return (self.model_dump_json(indent=2) + "\n").encode()

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Certificate:
        """Read a certificate; raise :class:`InvalidCertificate` naming what is wrong with it."""
        try:
            text = read_bytes(Path(path)).decode()
        except UnicodeDecodeError as error:
            raise InvalidCertificate(f"{path} is not UTF-8 text: {error.reason}.") from error
        return cls.from_json(text, source=str(path))

    @classmethod
    def from_json(cls, text: str, *, source: str = "the text given") -> Certificate:
        _refuse_repeated_keys(text, source)
        try:
            return cls.model_validate_json(text, strict=True)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"]) or "the record"
            raise InvalidCertificate(
                f"{source} is not a valid certificate: {where}: {first['msg']} "
                f"({error.error_count()} problem(s) in all)."
            ) from error

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> tuple[str, ...]:
        """Four lines: the promise, the confidence, the terms, the caveats. Then a test's groups."""
        said = (self._promise(), self._confidence(), self._terms(), self._caveats())
        return tuple(_one_line(line) for line in (*said, *self._groups()))

    def _promise(self) -> str:
        what = f"{self.loss.name} risk of {PREDICTORS[self.predictor]}"
        if self.evaluation is not None:
            words = "error rate" if self.loss.name == "zero-one" else self.loss.name
            what = f"{words} of {self.model.architecture}"
            if selection := self.evaluation.settings.selection:
                what += f" on examples{selection}"
        if self.status == "refused":
            return f"REFUSED: no promise about the {what}."
        promised = f"{what} <= {shown_up(self.risk_upper)}{self.before_scaling}"
        if self.gate is not None:  # as it was declared, and strictly below
            promised = f"{what} < {self.gate!r}"
        if self.gate is not None and self.risk_upper >= 1.0:
            return (
                f"GATE NOT PASSED ({self.status.upper()}): the {what} is not shown to be below "
                f"{self.gate!r}, and no other number is promised"
            )
        if self.declared_unseen:
            promised += ", on examples that it never saw, as declared by the user"
        if not self.is_vacuous:
            return f"{self.status.upper()}: {promised}"
        nothing = "every network satisfies it" if self.risk_upper >= 1.0 else self.unshown
        return f"VACUOUS ({self.status.upper()}, but {nothing}): {promised}"

    @property
    def before_scaling(self) -> str:
        """What a test promises in the units of its declared range; nothing where it has none."""
        asked = None if self.evaluation is None else self.evaluation.settings
        if asked is None or asked.range is None or asked.metric == "score":
            return ""
        low, high = asked.range
        return f", that is {shown_up(low + self.risk_upper * (high - low))} before scaling"

    @property
    def declared_unseen(self) -> bool:
        """Whether a plain test rests on the user's word that the network never saw the examples."""
        return any(a.name == UNSEEN and a.status == "asserted" for a in self.assumptions)

    @property
    def dominated(self) -> bool:
        """Whether a plain held-out test on the same data promises at least as much."""
        twin = self.held_out_twin
        return self.status != "refused" and twin is not None and twin.risk_upper <= self.risk_upper

    @property
    def plain_test(self) -> str:
        """The command that gives what the held-out twin promises."""
        model, files = self.model, "--weights FILE --data FILE"
        name = shlex.quote(model.architecture) if model.built_in else "MODULE:FUNCTION"
        return f"nonvacuous certify --mode holdout --unseen {files} --model {name}"

    @property
    def unshown(self) -> str:
        """What is said until the predictor is shown to be better than a constant answer."""
        answer = "one class" if self.baseline is None else f"“{self.baseline.name}”"
        return f"not shown to be better than always answering {answer}"

    def _confidence(self) -> str:
        sure, count = shown_confidence(self.confidence, 6), self.data.bound.examples
        some = "s" * (count != 1)
        if self.evaluation is not None:
            low, high = self.evaluation.interval
            constant = ""
            if self.shown_better and (words := self.evaluation.settings.beside_constants):
                constant = f"; {words} every constant answer"
            return (
                f"with confidence {sure} over the draw of {count} "
                f"{self.evaluation.unit.removesuffix('s')}{some}; both ends at once: "
                f"{shown_down(low)} to {shown_up(high)}{constant}"
            )
        twin = self.held_out_twin
        beside = f"; held-out twin {shown_up(twin.risk_upper)}" if twin else "; no held-out twin"
        if self.dominated:
            command = self.plain_test
            beside += f" (tighter than this certificate; set examples aside and run: {command})"
        if self.baseline is not None and self.counts_errors:
            beside += (
                f"; always answering “{self.baseline.name}” errs on at least "
                f"{shown_down(self.baseline.risk_lower)} (failure {self.baseline.failure:g} more)"
            )
        return (
            f"with confidence {sure} over the draw of {count} example{some} of "
            f"{self.data.name}{beside}"
        )

    def _terms(self) -> str:
        risk = self.empirical
        if self.evaluation is not None:
            return f"{self.bound.theorem}: {risk.amount:g} in {risk.trials}"
        parts = [
            f"{'empirical' if self.sparsity is None else 'noisy loss'} "
            f"at most {shown_up(risk.risk_upper)} ({risk.amount:g} in {risk.trials} trials)"
        ]
        if self.complexity is not None:
            parts.append(f"KL {self.complexity.kl_nats:.1f} nats")
        if self.sparsity is not None:
            parts.append(f"settings named for {self.sparsity.grid_nats:.1f} nats")
            parts.append(f"divided by {1.0 - self.sparsity.escape:g}")
        parts += self.model.conversions
        searched = [f"{s.name} x{s.choices}" for s in self.budget.entries if s.choices > 1]
        if searched:
            parts.append("searches paid: " + ", ".join(searched))
        return f"{self.bound.name}: " + ", ".join(parts)

    @property
    def beside_guessing(self) -> str:
        """What is said where the network does no better than a constant answer; else nothing."""
        own = next((o for o in self.observed if o.name.endswith("on the bound examples")), None)
        if own is None or self.baseline is None or own.errors / own.trials < self.baseline.rate:
            return ""
        error, guessing = own.errors / own.trials, self.baseline.rate
        compared = (
            f"{own.name.removesuffix(' on the bound examples')} errs on {error:.1%} of the bound "
            f"examples, always answering “{self.baseline.name}” on {guessing:.1%}"
        )
        if error > guessing + 3 * math.sqrt(guessing * (1 - guessing) / own.trials):
            return f"{compared}: are the labels permuted, in another order than the scores?"
        return f"{compared}: it has learned nothing"

    def _caveats(self) -> str:
        beside = f"{self.beside_guessing}; " if self.beside_guessing else ""
        words = {"refused": "was found false", "conditional": "is in doubt"}
        troubled = [
            f"“{a.name}” {words[a.effect]}: {a.detail}"
            for a in self.assumptions
            if a.effect != "none"
        ]
        if troubled:
            return f"{beside}because {'; '.join(troubled).replace('.; ', '; ')}"
        unchecked = [a.name for a in self.assumptions if a.status != "checked"]
        return f"{beside}rests on (not checked here): {', '.join(unchecked) or 'nothing'}"

    def _groups(self) -> list[str]:
        """What holds for the worst groups of each declared column; the page has more of them."""
        if self.evaluation is None or self.status == "refused":
            return []
        lines = []
        for column, group in self.evaluation.declared.items():
            worst = sorted(group.items(), key=lambda item: -item[1].risk_upper)
            parts = [
                f"{value} <= {shown_up(part.risk_upper)} ({part.errors:g} in {part.examples})"
                for value, part in worst[:_MOST_GROUPS]
            ]
            more = [f"{len(worst) - len(parts)} more"] if len(worst) > len(parts) else []
            lines.append(f"by {column}, each alone: {', '.join(parts + more)}")
        return lines

    def _repr_html_(self) -> str:
        lines = "<br>".join(html.escape(line) for line in self.lines())
        return f'<div class="nonvacuous-certificate" data-status="{self.status}">{lines}</div>'


def _one_line(text: str) -> str:
    """A name with a line break or an escape sequence in it must not forge a line of its own."""
    return "".join(char if char.isprintable() else " " for char in text)


def status_of(assumptions: tuple[records.Assumption, ...]) -> Status:
    """The worst effect of any assumption decides."""
    effects = {assumption.effect for assumption in assumptions}
    if "refused" in effects:
        return "refused"
    return "conditional" if "conditional" in effects else "valid"


def _digest_of(certificate: Certificate) -> str:
    content = certificate.model_dump_json(exclude={"digest"})
    return hashlib.sha256(content.encode()).hexdigest()


def _refuse_repeated_keys(text: str, source: str) -> None:
    """Two values under one key let a reader see one and a checker the other."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        record = dict(pairs)
        if len(record) < len(pairs):
            times = Counter(key for key, _ in pairs)
            repeated = sorted(key for key, count in times.items() if count > 1)
            raise InvalidCertificate(f"{source} repeats the key(s) {repeated}.")
        return record

    try:
        json.loads(text, object_pairs_hook=unique)
    except ValueError as error:  # malformed, or a number longer than Python converts
        raise InvalidCertificate(f"{source} is not JSON: {error}.") from error
    except RecursionError as error:
        raise InvalidCertificate(f"{source} is nested too deeply to be a certificate.") from error
