"""Whatever state a crash leaves of a database, it is sound, and no run or batch that was safe is missing."""

import logging
import os
import random
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from app.errors import DatabaseError
from tests import crash_states
from tests.crash_states import NAME, check, check_states, first_session, record, states

COUNT = int(os.environ.get("VARIANTSCOPE_CRASH_STATES", "2000"))


def test_every_state_that_a_crash_leaves_is_opened_sound_and_whole(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, "variantscope")
    checked, changes = check_states(COUNT)
    assert checked >= COUNT
    assert changes > 500


def test_a_state_that_breaks_the_promise_is_found(tmp_path: Path) -> None:
    folder, scratch = tmp_path / "recorded", tmp_path / "state"
    folder.mkdir()
    scratch.mkdir()
    recording, initial, expected = record(folder / NAME, first_session)
    *_, last = states(recording, initial, 0, 0)
    check(last, expected, scratch, {})
    with pytest.raises(AssertionError, match="it is whole up to no commit"):
        check(replace(last, first=0, last=len(expected) - 2), expected, scratch, {})
    damaged = bytearray(last.files[NAME] or b"")
    damaged[-4096:] = bytes(4096)
    with pytest.raises((AssertionError, sqlite3.DatabaseError, DatabaseError)):
        check(replace(last, files={NAME: bytes(damaged)}), expected, scratch, {})


def test_sectors_of_a_write_are_kept_or_lost_each_by_itself() -> None:
    chance = random.Random(1)
    write = crash_states.Change("write", NAME, 100, bytes(range(256)) * 8)
    for _ in range(20):
        for piece in crash_states._torn(write, chance):
            assert piece.data == write.data[piece.offset - 100 :][: len(piece.data)]
            assert piece.offset == 100 or piece.offset % 512 == 0
            assert len(piece.data) <= 512
