"""Reading a certificate so that a damaged one can still be asked what is wrong with it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError, model_validator

from nonvacuous.certificate import Certificate
from nonvacuous.errors import InvalidCertificate
from nonvacuous.foreign import read_bytes
from nonvacuous.verification.findings import Collector, Disagreement


class Unsealed(Certificate):
    """The same record, readable although its parts may contradict one another or the seal."""

    @model_validator(mode="after")
    def _coherent(self) -> Unsealed:
        return self


@dataclass
class Reading:
    """The certificate as far as it can be read, and the bytes it was read from, if from a file."""

    source: str
    certificate: Certificate | None = None
    text: str = ""
    content: bytes | None = None


def read(certificate: Certificate | str | os.PathLike[str], findings: Collector) -> Reading:
    """Read a certificate or take the one given; what fails becomes a finding."""
    given = isinstance(certificate, Certificate)
    reading = Reading("the certificate" if given else str(certificate))

    def work() -> str:
        if isinstance(certificate, Certificate):
            reading.text = certificate.model_dump_json()
        else:
            path = Path(certificate)
            if not path.is_file():
                raise Disagreement(f"there is no file {path}; check the path.")
            reading.content = read_bytes(path)
            try:
                reading.text = reading.content.decode("utf-8")
            except UnicodeDecodeError as error:
                raise Disagreement(f"it is not UTF-8 text (byte {error.start}).") from error
        reading.certificate = _parse(reading.text)
        return "it is a certificate of this format."

    findings.expect("it can be read", "certificate", work)
    return reading


def check_seal(reading: Reading, findings: Collector) -> None:
    """The digest over everything, and the very bytes of the file."""

    def sealed() -> str:
        try:
            Certificate.from_json(reading.text, source="it")
        except InvalidCertificate as error:
            raise Disagreement(str(error)) from error
        return "the digest over all fields matches."

    intact = findings.expect("nothing was changed after sealing", "digest", sealed)

    def canonical() -> str:
        assert reading.certificate is not None and reading.content is not None
        expected = (reading.certificate.model_dump_json(indent=2) + "\n").encode()
        if reading.content != expected:
            pairs = enumerate(zip(reading.content, expected, strict=False))
            shorter = min(len(reading.content), len(expected))
            at = next((position for position, (a, b) in pairs if a != b), shorter)
            raise Disagreement(
                f"it is not written as certificates are; the first difference is at byte {at}."
            )
        return "the file is byte for byte what the library writes."

    question = "the file is untouched", "certificate"
    if reading.content is not None and intact:
        findings.expect(*question, canonical)
    else:
        absent = reading.content is None
        why = "no file was given." if absent else "its content was changed already."
        findings.skip(*question, why, needed=False)


def _parse(text: str) -> Certificate:
    try:
        return Unsealed.from_json(text, source="it")
    except InvalidCertificate as error:
        field = None
        if isinstance(error.__cause__, ValidationError):
            first = error.__cause__.errors()[0]
            field = ".".join(str(part) for part in first["loc"]) or None
        raise Disagreement(str(error), field) from error
