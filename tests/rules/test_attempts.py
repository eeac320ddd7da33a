"""The ledger of attempts: complete, durable, and indifferent to damage."""

from __future__ import annotations

import json
import multiprocessing
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from nonvacuous.errors import BadInput
from nonvacuous.rules.attempts import (
    FILE_NAME,
    Attempt,
    Standing,
    ledger_beside,
    read_attempts,
    record_attempt,
    standing,
)

DATA, BOUND, OTHER = "a" * 64, "b" * 64, "c" * 64


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    return tmp_path / FILE_NAME


def attempt(config: str, outcome: str = "0" * 64, **changes: object) -> Attempt:
    return replace(Attempt(DATA, BOUND, config, outcome=outcome), **changes)


def earlier(ledger: Path, new: Attempt) -> tuple[int, ...]:
    """What the ledger would say, without writing into it."""
    return standing(read_attempts(ledger), new).earlier


def test_other_settings_count_and_the_same_do_not(ledger: Path) -> None:
    assert record_attempt(ledger, attempt("one")) == Standing(issued=1)
    assert record_attempt(ledger, attempt("one")) == Standing(issued=1)
    assert record_attempt(ledger, attempt("two")).earlier == (1,)
    assert record_attempt(ledger, attempt("two")).earlier == (1,)
    assert earlier(ledger, attempt("three")) == (1, 1)


def test_the_same_settings_with_another_outcome_count(ledger: Path) -> None:
    for number in range(4):
        found = record_attempt(ledger, attempt("one", f"{number}" * 64))
        assert len(found.earlier) == number


def test_other_examples_do_not_count(ledger: Path) -> None:
    record_attempt(ledger, attempt("one"))
    assert not earlier(ledger, attempt("two", examples=OTHER, bound=OTHER))


def test_another_split_of_the_same_examples_counts(ledger: Path) -> None:
    for number in range(3):
        found = record_attempt(ledger, attempt(f"seed {number}", bound=f"{number}" * 64))
        assert len(found.earlier) == number


def test_a_part_of_the_examples_with_the_same_bound_part_counts(ledger: Path) -> None:
    record_attempt(ledger, attempt("one"))
    assert earlier(ledger, attempt("two", examples=OTHER)) == (1,)


def test_lines_of_older_versions_count_each(ledger: Path) -> None:
    old = [
        {"bound": BOUND, "config": "one"},
        {"bound": OTHER, "config": "two"},
        {"examples": DATA, "bound": BOUND, "config": "three", "paid": 4},
    ]
    ledger.write_text("".join(f"\n{json.dumps(entry)}\n" for entry in old), encoding="utf-8")
    assert earlier(ledger, attempt("new")) == (1, 4)
    assert earlier(ledger, attempt("new", bound="d" * 64)) == (4,)
    # What came out of it nobody knows: the same settings again are another attempt.
    assert earlier(ledger, attempt("one")) == (1, 4)
    # The line itself stands where it was written.
    assert standing(read_attempts(ledger), read_attempts(ledger)[2]).earlier == (1,)


def test_older_versions_can_read_new_lines(ledger: Path) -> None:
    record_attempt(ledger, attempt("one"))
    (line,) = ledger.read_text(encoding="utf-8").split("\n")[1:-1]
    entry = json.loads(line)
    assert (entry["bound"], entry["config"], entry["paid"]) == (BOUND, "one", 1)


def test_a_resumed_run_finds_the_number_it_had(ledger: Path) -> None:
    for config in ("one", "two", "three"):
        record_attempt(ledger, attempt(config))
    for number, config in enumerate(("one", "two", "three")):
        assert len(record_attempt(ledger, attempt(config)).earlier) == number


def test_what_was_begun_counts_until_it_ends(ledger: Path) -> None:
    begun = attempt("one", "", begun="e" * 64)
    assert record_attempt(ledger, begun) == Standing(issued=1)
    assert earlier(ledger, attempt("two")) == (1,), "somebody may have looked, and stopped it"
    assert earlier(ledger, attempt("one", begun="f" * 64)) == (1,), "it began with something else"
    # Begun again, or gone on with, it is the same attempt; its place is where it began.
    record_attempt(ledger, attempt("two"))
    record_attempt(ledger, begun)
    assert record_attempt(ledger, attempt("one", begun="e" * 64)) == Standing(issued=1)
    assert earlier(ledger, attempt("three")) == (1, 1)
    # Another end of the same beginning is another attempt, and comes last.
    assert record_attempt(ledger, attempt("one", "9" * 64, begun="e" * 64)).earlier == (1, 1)
    record_attempt(ledger, begun)
    assert earlier(ledger, attempt("three")) == (1, 1, 1)


def test_spent_confidence_stays_spent(ledger: Path) -> None:
    record_attempt(ledger, attempt("one", paid=2))
    # Computed again for a million, the first one has spent its half all the same.
    assert record_attempt(ledger, attempt("one", paid=10**6)) == Standing(issued=2)
    assert record_attempt(ledger, attempt("two", paid=2)).shares(2) == 1
    record_attempt(ledger, attempt("two", paid=10**6))
    third = record_attempt(ledger, attempt("three", paid=10**6))
    assert third.earlier == (2, 2) and third.shares(10**6) > 1
    # Taking more than at first pays for all that came between.
    more = record_attempt(ledger, attempt("one", paid=1))
    assert more.earlier == (2, 10**6) and more.shares(1) > 1
    assert record_attempt(ledger, attempt("four", paid=5)).earlier == (1, 2, 10**6)


def test_no_sequence_of_valid_ones_spends_more_than_there_is(ledger: Path) -> None:
    import random

    choose = random.Random(0)
    taken: dict[str, Fraction] = {}
    for _ in range(200):
        name, paid = f"{choose.randrange(12)}", choose.choice((1, 2, 3, 4, 8, 10**6))
        if record_attempt(ledger, attempt(name, paid=paid)).shares(paid) <= 1:
            taken[name] = max(taken.get(name, Fraction(0)), Fraction(1, paid))
        assert sum(taken.values()) <= 1


def test_examples_in_other_clothes(ledger: Path) -> None:
    def dressed(*classes: int, **changes: object) -> Attempt:
        # Nothing is the same but the number of examples of each class.
        return attempt("one", examples=f"{classes}", bound=f"{classes}", classes=classes, **changes)

    record_attempt(ledger, attempt("one", classes=(600, 400)))
    for classes in ((600, 400), (600, 399), (605, 395), (604, 394), (600, 400, 10)):
        found = standing(read_attempts(ledger), dressed(*classes))
        assert (found.earlier, found.alike) == ((), (1,))
    for classes in ((606, 394), (600, 389), (500, 500), (600, 200, 200), (6000, 4000)):
        assert not standing(read_attempts(ledger), dressed(*classes)).alike
    declared = record_attempt(ledger, dressed(600, 399, different="another city"))
    assert declared == Standing(declared=("another city",), issued=1)
    # Said once, it is known to both: it stands on the later certificate too.
    again = standing(read_attempts(ledger), attempt("two", classes=(600, 400)))
    assert again == Standing(earlier=(1,), declared=("another city",), issued=1)


def test_known_data_sets_of_one_size_are_told_apart() -> None:
    mnist = (6742, 6265, 6131, 5958, 5949, 5923, 5918, 5851, 5842, 5421)
    one, other = attempt("one", classes=mnist), attempt("two", classes=(6000,) * 10)
    assert not one.same_labels(other)


def test_the_same_attempt_is_written_once(ledger: Path) -> None:
    for _ in range(3):
        record_attempt(ledger, attempt("one"))
    assert len(read_attempts(ledger)) == 1


def test_earlier_lines_are_never_rewritten(ledger: Path) -> None:
    record_attempt(ledger, attempt("one"))
    before = ledger.read_bytes()
    record_attempt(ledger, attempt("two"))
    assert ledger.read_bytes().startswith(before)


@pytest.mark.parametrize(
    "torn",
    [
        b'{"bound": "bb',
        b"\xff\xfe\x00garbage",
        b"[1, 2]",
        b'{"bound": 3, "config": 4}',
        b'{"config": "x"}',
        b'{"bound": "b", "config": "x", "paid": 0}',
        b'{"bound": "b", "config": "x", "classes": 5}',
        b"\x00" * 64,
        b"[" * 10_000,
    ],
)
def test_a_torn_line_hides_nothing(ledger: Path, torn: bytes) -> None:
    record_attempt(ledger, attempt("one"))
    with open(ledger, "ab") as stream:
        stream.write(torn)  # no line break: the power failed here
    record_attempt(ledger, attempt("two"))
    assert earlier(ledger, attempt("three")) == (1, 1)


@pytest.mark.parametrize("front", ["", "\ufeff"])
@pytest.mark.parametrize("words", ["other patients", "\udcff", "\U0001f431"])
def test_no_odd_letter_hides_an_attempt(ledger: Path, front: str, words: str) -> None:
    """Neither a byte order mark that an editor left nor what a terminal passed on in raw bytes."""
    record_attempt(ledger, attempt("one", different=words))
    line = ledger.read_text(encoding="utf-8").strip()
    ledger.write_text(f"{front}{line}\n", encoding="utf-8")
    assert earlier(ledger, attempt("two")) == (1,)


@pytest.mark.slow
def test_a_cut_at_any_place_loses_at_most_the_last_line(ledger: Path) -> None:
    for config in ("one", "two", "three"):
        record_attempt(ledger, attempt(config))
    content = ledger.read_bytes()
    for length in range(len(content)):
        ledger.write_bytes(content[:length])
        assert len(earlier(ledger, attempt("four"))) == content[:length].count(b"}")


def _record_many(ledger: str, worker: int, count: int, valid: str) -> None:
    for number in range(count):
        found = record_attempt(ledger, attempt(f"{worker}-{number}", paid=5))
        if found.shares(5) <= 1:
            with open(valid, "a", encoding="utf-8") as stream:
                stream.write(f"{worker}-{number}\n")


def test_processes_lose_no_line_and_see_one_another(ledger: Path, tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    arguments = [(str(ledger), worker, 25, str(tmp_path / "valid")) for worker in range(4)]
    workers = [context.Process(target=_record_many, args=each) for each in arguments]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert all(worker.exitcode == 0 for worker in workers)
    assert len(earlier(ledger, attempt("another"))) == 100
    # Computed at the same moment, five fifths are valid and not one more.
    assert len((tmp_path / "valid").read_text(encoding="utf-8").split()) == 5


def test_the_folder_is_made_and_bad_digests_are_refused(tmp_path: Path) -> None:
    ledger = ledger_beside(tmp_path / "runs" / "first")
    assert ledger == tmp_path / "runs" / FILE_NAME
    record_attempt(ledger, attempt("one"))
    assert earlier(ledger, attempt("two")) == (1,)
    with pytest.raises(BadInput, match="bound digest"):
        attempt("one", bound="")
    with pytest.raises(BadInput, match="config digest"):
        attempt(None)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="number of certificates"):
        attempt("one", paid=0)


def test_a_ledger_that_forgets_is_refused(tmp_path: Path) -> None:
    for forgetful in (Path("/dev/null"), tmp_path):
        with pytest.raises(BadInput, match="keeps what is written"):
            record_attempt(forgetful, attempt("one"))


def test_a_folder_that_cannot_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    with pytest.raises(BadInput, match="Cannot"):
        record_attempt(tmp_path / "file" / FILE_NAME, attempt("one"))
