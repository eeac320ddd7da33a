"""The memory of earlier certificates: complete, durable, and indifferent to damage."""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path

import pytest

from nonvacuous.audit.attempts import FILE_NAME, Attempt, earlier_attempts, record_attempt
from nonvacuous.errors import BadInput

DATA, BOUND, OTHER = "a" * 64, "b" * 64, "c" * 64


def attempt(config: str, *, examples: str = DATA, bound: str = BOUND) -> Attempt:
    return Attempt(examples=examples, bound=bound, config=config)


def test_other_settings_count_and_the_same_do_not(tmp_path: Path) -> None:
    assert len(earlier_attempts(tmp_path, attempt("one"))) == 0
    record_attempt(tmp_path, attempt("one"))
    assert len(earlier_attempts(tmp_path, attempt("one"))) == 0
    assert len(earlier_attempts(tmp_path, attempt("two"))) == 1
    record_attempt(tmp_path, attempt("two"))
    record_attempt(tmp_path, attempt("two"))
    assert len(earlier_attempts(tmp_path, attempt("three"))) == 2


def test_other_examples_do_not_count(tmp_path: Path) -> None:
    record_attempt(tmp_path, attempt("one"))
    assert not earlier_attempts(tmp_path, attempt("two", examples=OTHER, bound=OTHER))


def test_another_split_of_the_same_examples_counts(tmp_path: Path) -> None:
    for number in range(3):
        other = attempt(f"seed {number}", bound=f"{number}" * 64)
        assert len(earlier_attempts(tmp_path, other)) == number
        record_attempt(tmp_path, other)


def test_a_part_of_the_examples_with_the_same_bound_part_counts(tmp_path: Path) -> None:
    record_attempt(tmp_path, attempt("one"))
    assert len(earlier_attempts(tmp_path, attempt("two", examples=OTHER))) == 1


def test_lines_of_older_versions_count_for_their_bound_examples(tmp_path: Path) -> None:
    old = [{"bound": BOUND, "config": "one"}, {"bound": OTHER, "config": "two"}]
    text = "".join(f"\n{json.dumps(entry)}\n" for entry in old)
    (tmp_path / FILE_NAME).write_text(text, encoding="utf-8")
    assert len(earlier_attempts(tmp_path, attempt("three"))) == 1
    assert not earlier_attempts(tmp_path, attempt("three", bound="d" * 64))
    assert not earlier_attempts(tmp_path, attempt("one")), "the same settings are no other ones"
    # Recorded again, the old attempt is seen by other splits too, and still counts once.
    record_attempt(tmp_path, attempt("one"))
    assert len(earlier_attempts(tmp_path, attempt("three"))) == 1
    assert len(earlier_attempts(tmp_path, attempt("three", bound="d" * 64))) == 1


def test_older_versions_can_read_new_lines(tmp_path: Path) -> None:
    record_attempt(tmp_path, attempt("one"))
    (line,) = (tmp_path / FILE_NAME).read_text(encoding="utf-8").split("\n")[1:-1]
    entry = json.loads(line)
    assert (entry["bound"], entry["config"]) == (BOUND, "one")


def test_a_resumed_run_finds_the_number_it_had(tmp_path: Path) -> None:
    for config in ("one", "two", "three"):
        record_attempt(tmp_path, attempt(config))
    for number, config in enumerate(("one", "two", "three")):
        assert len(earlier_attempts(tmp_path, attempt(config))) == number


def test_what_each_paid_is_remembered_and_may_be_raised(tmp_path: Path) -> None:
    def paying(config: str, paid: int) -> Attempt:
        return Attempt(DATA, BOUND, config, paid)

    for config, paid in (("one", 1), ("two", 2), ("three", 3)):
        record_attempt(tmp_path, paying(config, paid))
    assert earlier_attempts(tmp_path, attempt("four")) == (1, 2, 3)
    # Computed again for three, the first one promises less; its place stays the first.
    record_attempt(tmp_path, paying("one", 3))
    assert earlier_attempts(tmp_path, attempt("four")) == (3, 2, 3)
    assert earlier_attempts(tmp_path, paying("one", 3)) == ()
    assert earlier_attempts(tmp_path, paying("two", 3)) == (3,)
    with pytest.raises(BadInput, match="number of certificates"):
        paying("five", 0)


def test_the_same_settings_are_written_once(tmp_path: Path) -> None:
    for _ in range(3):
        record_attempt(tmp_path, attempt("one"))
    lines = (tmp_path / FILE_NAME).read_text(encoding="utf-8").split()
    assert len([line for line in lines if "config" in line]) == 1


def test_earlier_lines_are_never_rewritten(tmp_path: Path) -> None:
    record_attempt(tmp_path, attempt("one"))
    before = (tmp_path / FILE_NAME).read_bytes()
    record_attempt(tmp_path, attempt("two"))
    assert (tmp_path / FILE_NAME).read_bytes().startswith(before)


@pytest.mark.parametrize(
    "torn",
    [
        b'{"bound": "bb',
        b"\xff\xfe\x00garbage",
        b"[1, 2]",
        b'{"bound": 3, "config": 4}',
        b'{"config": "x"}',
        b"\x00" * 64,
        b"[" * 10_000,
    ],
)
def test_a_torn_line_hides_nothing(tmp_path: Path, torn: bytes) -> None:
    record_attempt(tmp_path, attempt("one"))
    with open(tmp_path / FILE_NAME, "ab") as stream:
        stream.write(torn)  # no line break: the power failed here
    record_attempt(tmp_path, attempt("two"))
    assert len(earlier_attempts(tmp_path, attempt("three"))) == 2


def test_a_cut_at_any_place_loses_at_most_the_last_line(tmp_path: Path) -> None:
    for config in ("one", "two", "three"):
        record_attempt(tmp_path, attempt(config))
    content = (tmp_path / FILE_NAME).read_bytes()
    for length in range(len(content)):
        (tmp_path / FILE_NAME).write_bytes(content[:length])
        whole = content[:length].count(b"}")
        assert len(earlier_attempts(tmp_path, attempt("four"))) == whole


def _record_many(folder: str, worker: int, count: int) -> None:
    for number in range(count):
        record_attempt(folder, attempt(f"{worker}-{number}"))


def test_processes_do_not_lose_one_anothers_lines(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    workers = [
        context.Process(target=_record_many, args=(str(tmp_path), worker, 25))
        for worker in range(4)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert all(worker.exitcode == 0 for worker in workers)
    assert len(earlier_attempts(tmp_path, attempt("another"))) == 100
    for line in (tmp_path / FILE_NAME).read_text(encoding="utf-8").splitlines():
        assert not line or json.loads(line)["bound"] == BOUND


def test_the_folder_is_made_and_bad_digests_are_refused(tmp_path: Path) -> None:
    record_attempt(tmp_path / "runs", attempt("one"))
    assert len(earlier_attempts(tmp_path / "runs", attempt("two"))) == 1
    with pytest.raises(BadInput, match="bound digest"):
        attempt("one", bound="")
    with pytest.raises(BadInput, match="config digest"):
        attempt(None)  # type: ignore[arg-type]


def test_a_folder_that_cannot_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    with pytest.raises(BadInput, match="Cannot"):
        record_attempt(tmp_path / "file", attempt("one"))
