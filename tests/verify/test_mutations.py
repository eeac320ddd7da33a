"""Any change of any byte of the evidence is found: bit flips, digits, cuts, insertions."""

from __future__ import annotations

import copy
import json
import random
import re
import shutil
from pathlib import Path

import pytest

from nonvacuous.errors import InvalidCertificate
from nonvacuous.verify import verify

from .runs import make_run

MUTATIONS = 60


def flip_bit(content: bytes, dice: random.Random) -> bytes:
    at, bit = dice.randrange(len(content)), 1 << dice.randrange(8)
    return content[:at] + bytes([content[at] ^ bit]) + content[at + 1 :]


def change_digit(content: bytes, dice: random.Random) -> bytes:
    digits = [match.start() for match in re.finditer(rb"[0-9]", content)]
    if not digits:
        return flip_bit(content, dice)
    at = dice.choice(digits)
    other = dice.choice([d for d in b"0123456789" if d != content[at]])
    return content[:at] + bytes([other]) + content[at + 1 :]


def delete_bytes(content: bytes, dice: random.Random) -> bytes:
    at, length = dice.randrange(len(content)), dice.choice((1, 1, 2, 7))
    return content[:at] + content[at + length :]


def insert_bytes(content: bytes, dice: random.Random) -> bytes:
    at = dice.randrange(len(content) + 1)
    return content[:at] + dice.choice((b" ", b"\n", b"0", b"\x00", b"7", b'"')) + content[at:]


def truncate(content: bytes, dice: random.Random) -> bytes:
    return content[: dice.randrange(len(content))]


KINDS_OF_DAMAGE = (flip_bit, change_digit, delete_bytes, insert_bytes, truncate)


@pytest.mark.slow
@pytest.mark.parametrize("mutations", [MUTATIONS, pytest.param(1000, marks=pytest.mark.nightly)])
@pytest.mark.parametrize(
    "kind", ["stochastic", "post-hoc", "sparsity", "convolutional", "drawn", "holdout"]
)
def test_every_change_of_every_file_is_found(tmp_path: Path, kind: str, mutations: int) -> None:
    certificate = make_run(tmp_path / "intact", kind)
    folder = tmp_path / "damaged"
    shutil.copytree(tmp_path / "intact", folder)
    assert verify(folder).passed
    files = ["certificate.json", *certificate.artifacts]
    dice = random.Random(2024)
    for number in range(mutations):
        # Every second change hits the certificate, which has the most to lose.
        name = files[0] if number % 2 else dice.choice(files)
        damage = dice.choice(KINDS_OF_DAMAGE)
        path = folder / name
        original = path.read_bytes()
        changed = damage(original, dice)
        if changed == original:
            continue
        path.write_bytes(changed)
        result = verify(folder)
        path.write_bytes(original)
        assert not result.passed, f"{damage.__name__} number {number} in {name} was not found"
    assert verify(folder).passed, "the folder was restored"


@pytest.mark.slow
def test_every_digit_of_the_certificate(tmp_path: Path) -> None:
    make_run(tmp_path)
    path = tmp_path / "certificate.json"
    original = path.read_bytes()
    digits = [match.start() for match in re.finditer(rb"[0-9]", original)]
    for at in digits[:: max(1, len(digits) // 150)]:
        other = b"9" if original[at : at + 1] != b"9" else b"1"
        path.write_bytes(original[:at] + other + original[at + 1 :])
        assert not verify(path).passed, original[max(0, at - 40) : at + 10]


VALUES: tuple[object, ...] = (
    None,
    True,
    -1,
    0,
    10**30,
    10**400,
    float("nan"),
    float("inf"),
    -0.0,
    1e308,
    "",
    "x" * 64,
    "0" * 64,
    "\ud800",
    [],
    {},
    [None],
    {"name": 1},
)


def leaves(node: object, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    children = (
        node.items()
        if isinstance(node, dict)
        else enumerate(node)
        if isinstance(node, list)
        else ()
    )
    found = [path] if path else []
    for key, child in children:
        found += leaves(child, (*path, key))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["stochastic", "post-hoc", "sparsity", "convolutional"])
def test_strange_values_anywhere_are_findings_and_never_tracebacks(
    tmp_path: Path, kind: str
) -> None:
    make_run(tmp_path, kind)
    path = tmp_path / "certificate.json"
    original = json.loads(path.read_text(encoding="utf-8"))
    dice = random.Random(7)
    places = leaves(original)
    for place in dice.sample(places, 250):
        changed = copy.deepcopy(original)
        parent = changed
        for key in place[:-1]:
            parent = parent[key]
        value = dice.choice(VALUES)
        if json.dumps(parent[place[-1]]) == json.dumps(value):
            continue
        parent[place[-1]] = value
        path.write_text(json.dumps(changed, indent=2) + "\n", encoding="utf-8")
        result = verify(tmp_path)
        assert not result.passed, (place, value)
        assert str(result)
        with pytest.raises(InvalidCertificate):
            result.raise_if_failed()


def test_files_that_are_no_evidence_do_not_matter(tmp_path: Path) -> None:
    make_run(tmp_path)
    (tmp_path / "events.jsonl").write_text("anything", encoding="utf-8")
    (tmp_path / "report.html").write_text("<p>", encoding="utf-8")
    assert verify(tmp_path).passed
