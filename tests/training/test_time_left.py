"""The time left: neither validations nor a pause make the steps look slow."""

from types import SimpleNamespace

import pytest

from transformer.training import time_left
from transformer.training.time_left import TimeLeft, clock


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 500.0
        monkeypatch.setattr(time_left, "time", SimpleNamespace(perf_counter=lambda: self.now))


def test_steps_and_validations_that_are_left_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """100 steps of 2 seconds, validations of 30 seconds at 30, 60, 90 and 100."""
    clock_, left = Clock(monkeypatch), TimeLeft(100, 30)
    assert left.seconds(0) is None
    for step in range(1, 31):
        clock_.now += 70 if step == 1 else 2  # the first one also compiles
        left.step()
    assert left.seconds(2) == pytest.approx(196)  # of validations nothing is known yet
    clock_.now += 5  # a checkpoint is copied
    left.pause()
    clock_.now += 30
    left.validated()
    assert left.seconds(30) == pytest.approx(140 + 3 * 30)
    clock_.now += 2
    left.step()
    assert left.seconds(31) == pytest.approx(138 + 3 * 30)
    assert left.seconds(95) == pytest.approx(10 + 30)
    assert left.seconds(100) == pytest.approx(30)


def test_a_resumed_run_starts_to_measure_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    clock_, left = Clock(monkeypatch), TimeLeft(1000, 1000)
    for _ in range(3):
        clock_.now += 4
        left.step()
    assert left.seconds(903) == pytest.approx(97 * 4)


def test_the_latest_steps_count_most(monkeypatch: pytest.MonkeyPatch) -> None:
    clock_, left = Clock(monkeypatch), TimeLeft(1000, 1000)
    for step in range(500):
        clock_.now += 1 if step < 250 else 3
        left.step()
    assert left.seconds(500) == pytest.approx(1500, rel=0.01)


def test_a_time_is_shown_in_hours() -> None:
    assert [clock(seconds) for seconds in (None, 0.4, 59.6, 3600, 360_061)] == [
        "-:--:--",
        "0:00:00",
        "0:01:00",
        "1:00:00",
        "100:01:01",
    ]
