"""A worker stands by where the user says so, and else where runs use a GPU and processors are to spare."""

import pytest

from app.errors import DatabaseError
from app.runs.standby_setting import MIN_PROCESSORS, STANDBY_VARIABLE, is_standby_wanted, no_standby_reason
from app.telemetry.feed import TelemetryFeed
from workloads.catalog import Machine
from workloads.machine import Gpu

GPUS = (Gpu(index=0, uuid="GPU-1", name="a card"),)


@pytest.mark.parametrize(("chosen", "expected"), [("on", True), (" ON ", True), ("off", False), ("Off", False)])
def test_the_user_has_the_last_word(monkeypatch: pytest.MonkeyPatch, chosen: str, expected: bool) -> None:
    monkeypatch.setenv(STANDBY_VARIABLE, chosen)
    assert is_standby_wanted(TelemetryFeed()) is expected


@pytest.mark.parametrize(("said", "chosen", "expected"), [("", "on", True), ("on", "off", True), ("off", "on", False)])
def test_what_was_chosen_holds_where_the_variable_says_nothing(
    monkeypatch: pytest.MonkeyPatch, said: str, chosen: str, expected: bool
) -> None:
    monkeypatch.setenv(STANDBY_VARIABLE, said)
    assert is_standby_wanted(TelemetryFeed(), lambda: chosen) is expected


def test_none_is_wanted_where_the_database_does_not_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    def chosen() -> str:
        raise DatabaseError("a.db is no database.")

    monkeypatch.delenv(STANDBY_VARIABLE)
    assert not is_standby_wanted(TelemetryFeed(), chosen)


@pytest.mark.parametrize("chosen", ["", "1"])
def test_a_machine_that_nothing_is_known_of_has_none(monkeypatch: pytest.MonkeyPatch, chosen: str) -> None:
    monkeypatch.setenv(STANDBY_VARIABLE, chosen)
    feed = TelemetryFeed()
    monkeypatch.setattr(feed, "_ended", True)
    assert not is_standby_wanted(feed)


@pytest.mark.parametrize(
    ("gpus", "processors", "expected"),
    [(GPUS, MIN_PROCESSORS, True), (GPUS, MIN_PROCESSORS - 1, False), ((), 64, False)],
)
def test_the_machine_decides_where_nobody_says(gpus: tuple[Gpu, ...], processors: int, expected: bool) -> None:
    assert (not no_standby_reason(Machine(gpus=gpus, cpu_count=processors))) is expected
