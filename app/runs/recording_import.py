"""Import the recording of a run: it is played into a private database, from which the run is copied as of any file."""

import os
from collections.abc import Iterable, Iterator
from contextvars import copy_context
from functools import partial
from pathlib import Path
from typing import BinaryIO

from app.errors import DatabaseError, UserError, read_error
from app.events import RunEnded, RunEvent, RunStarted
from app.fields import Sample, SlowSample
from app.recording import file_lines, open_recording, read_events
from app.runs.sinks import StoreSink
from app.samples import Waiting
from app.storage.run_store import RunStore
from app.storage.transfer.import_export import Imported, check_staged, import_played
from app.storage.transfer.progress import TransferProgress
from app.storage.transfer.source_file import translate_file_errors
from workloads.protocol import ProtocolError

_REPORTED_EVENTS = 2_000
_PLAYED_SHARE = 0.7
"""Of an import, until the run is in the private database."""


def import_recording(database: Path, file: Path, progress: TransferProgress) -> Imported:
    """Import the run of a recording; one that is here already stays as it is.

    Raises:
        DatabaseError: The file is no recording of one whole run, or the database cannot be used.
        UserError: The file cannot be read.
        StoppedError: `progress` stopped it.
    """
    try:
        with open_recording(file) as opened:
            events = read_events(file_lines(opened))
            started = next(events, None)
            if not isinstance(started, RunStarted):
                raise ProtocolError("not the recording of a run, for it does not begin as one")
            run = _with_progress(whole_run(started, events), opened, file.stat().st_size, progress)
            # The log of this thread is of no run, whatever becomes of the import.
            play = partial(_play, run, file, progress)
            return copy_context().run(import_played, database, file, started.uid, play, progress)
    except OSError as error:
        raise read_error(file, error) from error
    except ProtocolError as error:
        raise DatabaseError(f"{file} is {error}; nothing was imported.") from error


def _play(run: Iterable[RunEvent], file: Path, progress: TransferProgress, staged: Path) -> None:
    with RunStore.open(staged) as store, translate_file_errors(file):
        sink = StoreSink(store)
        try:
            for event in run:
                if isinstance(event, RunEnded):
                    sink.flush()
                    check_staged(staged, file, progress)  # figures are computed of values that can be
                sink.handle(event)
        except UserError as error:
            if isinstance(error.__cause__, OverflowError):
                raise ProtocolError("not the recording of a run, for it has a number of 64 bits or more") from error
            raise
        if sink.failure is not None:
            raise sink.failure


def _with_progress(
    run: Iterable[RunEvent], opened: BinaryIO, size: int, progress: TransferProgress
) -> Iterator[RunEvent]:
    for number, event in enumerate(run):
        if number % _REPORTED_EVENTS == 0:
            progress.check()
            progress.report(_PLAYED_SHARE * os.lseek(opened.fileno(), 0, os.SEEK_CUR) / size)
        yield event


def whole_run(started: RunStarted, events: Iterable[RunEvent]) -> Iterator[RunEvent]:
    """Yield the events of a run, which begins once and ends once; raises `ProtocolError` for others."""
    devices = {device.device for device in started.devices}
    if len(devices) < len(started.devices):
        raise ProtocolError("not the recording of a run, for it has a device twice")
    has_ended = False
    yield started
    for event in events:
        if has_ended or isinstance(event, RunStarted):
            raise ProtocolError("not the recording of one run, for more comes after its end or a second beginning")
        if isinstance(event, Sample | SlowSample) and event.device not in devices:
            raise ProtocolError(f"not the recording of a run, for it has samples of {event.device!r}, which it lacks")
        has_ended = isinstance(event, RunEnded)
        if not isinstance(event, Waiting):
            yield event
    if not has_ended:
        raise ProtocolError("not the recording of a whole run, for it ends before the run does")
