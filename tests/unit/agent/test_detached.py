"""The recording of a run that goes on without the program: what a full disk and a full spool leave of it."""

import errno
import os
from pathlib import Path

import pytest

from app.agent import detached
from app.errors import UserError
from app.recording import read_events
from app.samples import LogLine, TelemetryGap
from tests.fakes.runs import SAMPLES


def recorded(folder: Path) -> list[object]:
    with (folder / detached._LINES).open("rb") as file:
        return list(read_events(file))


def test_a_full_spool_gets_no_more_samples_but_everything_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recording = detached._RecordingFile(tmp_path, "0.3.0")
    recording.handle(SAMPLES[0])
    monkeypatch.setattr(detached, "MOST_SPOOL_BYTES", recording._bytes)
    recording.handle(SAMPLES[0])
    for _ in range(3):
        recording.handle(SAMPLES[0])
    recording.handle(LogLine(1, "still here"))
    first, second, gap, last = recorded(tmp_path)
    assert first == second == SAMPLES[0], "the limit itself is not beyond it"
    assert isinstance(gap, TelemetryGap)
    assert last == LogLine(1, "still here")


def test_a_full_disk_ends_the_run_and_leaves_room_for_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording = detached._RecordingFile(tmp_path, "0.3.0")
    for number in range(1_000):
        recording.handle(LogLine(number, "x" * 100))
    write = os.write

    def fail_in_part(file: int, data: bytes) -> int:
        monkeypatch.setattr(os, "write", write)
        write(file, bytes(data)[:9])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", fail_in_part)
    with pytest.raises(UserError, match="had no room"):
        recording.handle(LogLine(1_000, "the last"))
    recording.handle(LogLine(1_001, "how it ended"))
    lines = recorded(tmp_path)
    assert lines[-1] == LogLine(1_001, "how it ended")
    lost = 1_001 - len(lines)
    assert 0 < lost < 100
    assert lines[:-1] == [LogLine(number, "x" * 100) for number in range(len(lines) - 1)]
