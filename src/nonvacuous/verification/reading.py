"""Reading a certificate so that a damaged one can still be asked what is wrong with it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError, model_validator

from nonvacuous.certificate import Certificate
from nonvacuous.errors import InvalidCertificate
from nonvacuous.foreign import read_bytes
from nonvacuous.verification.findings import Collector, Disagreement, NotAsked


class Unsealed(Certificate):
    """The same record, readable although its parts may contradict one another or the seal."""

    @model_validator(mode="after")
    def _coherent(self) -> Unsealed:
        return self


@dataclass(frozen=True)
class Reading:
    """The certificate as far as it can be read, and the bytes it was read from, if from a file."""

    certificate: Certificate
    text: str
    content: bytes | None = None


def read(certificate: Certificate | str | os.PathLike[str], findings: Collector) -> Reading | None:
    """Read a certificate or take the one given; what fails becomes a finding."""

    def work() -> tuple[str, Reading]:
        content = None
        if isinstance(certificate, Certificate):
            text = certificate.model_dump_json()
        else:
            path = Path(certificate)
            if not path.is_file():
                raise Disagreement(f"there is no file {path}; check the path.")
            content = read_bytes(path)
            try:
                text = content.decode("utf-8")
            except UnicodeDecodeError as error:
                raise Disagreement(f"it is not UTF-8 text (byte {error.start}).") from error
        return "it is a certificate of this format.", Reading(_parse(text), text, content)

    return findings.learn("it can be read", "certificate", work)


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
        if reading.content is None:
            raise NotAsked("no file was given.", needed=False)
        if not intact:
            raise NotAsked("its content was changed already.", needed=False)
        expected = (reading.certificate.model_dump_json(indent=2) + "\n").encode()
        if reading.content != expected:
            pairs = enumerate(zip(reading.content, expected, strict=False))
            shorter = min(len(reading.content), len(expected))
            at = next((position for position, (a, b) in pairs if a != b), shorter)
            raise Disagreement(
                f"it is not written as certificates are; the first difference is at byte {at}."
            )
        return "the file is byte for byte what the library writes."

    findings.expect("the file is untouched", "certificate", canonical)


def _parse(text: str) -> Certificate:
    try:
        return Unsealed.from_json(text, source="it")
    except InvalidCertificate as error:
        field = None
        if isinstance(error.__cause__, ValidationError):
            first = error.__cause__.errors()[0]
            field = ".".join(str(part) for part in first["loc"]) or None
        raise Disagreement(str(error), field) from error
