"""Time left, and reports that are neither too many nor missing at the end."""

from __future__ import annotations

from nonvacuous.progress import Reporter, describe_seconds


class Clock:
    """A clock that tests move by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def said(*, done: int, first: int = 0, total: int = 10, after: float = 6.0) -> str:
    clock, messages = Clock(), []
    reporter = Reporter(lambda *report: messages.append(report[3]), "x", done=first, clock=clock)
    clock.now += after
    reporter.report(done, total, "epoch")
    return messages[0]


def test_time_left_is_proportional_to_what_is_left() -> None:
    assert said(done=0) == "epoch"
    assert said(done=2) == "epoch, about 24 s left"
    assert said(done=10) == "epoch"


def test_work_done_before_a_resume_does_not_count_as_speed() -> None:
    assert said(done=95, first=90, total=100, after=5.0) == "epoch, about 5 s left"


def test_reporter_skips_quick_steps_but_never_the_ones_it_must_tell() -> None:
    clock, told = Clock(), []
    reporter = Reporter(
        lambda phase, done, total, message: told.append((phase, done, total, message)),
        "prior",
        every=1.0,
        clock=clock,
    )
    for done in range(1, 101):
        clock.now += 0.1
        reporter.report(done, 100, "epoch 1 of 1")
    reporter.report(100, 100, "done", always=True)
    assert 9 <= len(told) <= 12
    assert told[0][:3] == ("prior", 1, 100)
    assert told[0][3] == "epoch 1 of 1, about 10 s left"
    assert told[-1] == ("prior", 100, 100, "done")


def test_a_reporter_without_a_listener_is_silent() -> None:
    Reporter(None, "prior").report(1, 2, "nobody listens", always=True)


def test_durations_carry_over() -> None:
    assert describe_seconds(59.6) == "1 min 00 s"
    assert describe_seconds(3599.7) == "1 h 00 min"
    assert describe_seconds(-1.0) == "0 s"
