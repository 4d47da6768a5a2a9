"""A recording: the events of a run as lines of JSON, with one writer and one reader, wherever it travels.

The first line is its head, with the version of the format; each other one is an event, by `workloads.protocol.encode`.
A line that ends with `CUT` was not finished, and is skipped like a last line without an end; any other line that is no
event is a mistake. Types bound what is read: see `RunEvent`. In a file it may be compressed by gzip.
"""

import contextlib
import gzip
import zlib
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import BinaryIO, cast

import msgspec

from app import units
from app.environment_keys import wrong_numbers
from app.events import RunEvent, RunStarted
from app.paths import open_regular
from workloads.protocol import MOST_MESSAGE_BYTES, TAG, Count, EnvironmentInfo, Name, ProtocolError, decode, encode

RECORDING_VERSION = 1
CUT = b"\x18\n"
"""Ends a line that its writer was killed in; JSON has no such byte (cancel, ASCII)."""
MOST_RECORDING_BYTES, MOST_RECORDING_EVENTS = 4_000_000_000, 30_000_000
"""What is read of a recording in a file, after it was decompressed: a week of one GPU has 24 million events."""
_GZIP = b"\x1f\x8b"
_BEGINNING = b'{"type":"recording"'
_EVENT: msgspec.json.Decoder[RunEvent] = msgspec.json.Decoder(RunEvent)


class RecordingHead(msgspec.Struct, frozen=True, tag="recording", tag_field=TAG):
    """The first line: the version of the format, and of the program that wrote it."""

    version: Count
    program: Name


_HEAD = msgspec.json.Decoder(RecordingHead)


def head_line(program: str) -> bytes:
    """Return the first line of a recording that this version of the program writes."""
    return encode(RecordingHead(RECORDING_VERSION, program))


def read_events(lines: Iterable[bytes]) -> Iterator[RunEvent]:
    """Yield the events of a recording as their lines come.

    Raises:
        ProtocolError: A line is none of a recording, or the format is another one; its text ends a sentence.
    """
    is_first = True
    for line in lines:
        if line.endswith(CUT) or not line.endswith(b"\n"):
            continue
        if is_first:
            head = decode(_HEAD, line, "a recording")
            if head.version != RECORDING_VERSION:
                raise ProtocolError(
                    f"a recording of program version {head.program}, whose lines this version cannot read"
                )
            is_first = False
        else:
            yield decode_event(line)


def decode_event(line: bytes) -> RunEvent:
    """Return the event of one line; raises `ProtocolError`, whose text ends a sentence."""
    event = decode(_EVENT, line, "an event of a run")
    if isinstance(event, RunStarted | EnvironmentInfo) and (keys := wrong_numbers(event.environment)):
        raise ProtocolError(f"not an event of a run, for {keys[0]} of its environment is no number")
    return event


@contextlib.contextmanager
def open_recording(path: Path) -> Iterator[BinaryIO]:
    """Open a recording in a file, compressed or not; raises `OSError`."""
    with open_regular(path) as file, contextlib.ExitStack() as decompressed:
        if file.peek(len(_GZIP)).startswith(_GZIP):
            yield cast(BinaryIO, decompressed.enter_context(gzip.GzipFile(fileobj=file)))
        else:
            yield file


def is_recording(path: Path) -> bool:
    """Return whether a file can be read and begins as a recording does."""
    with contextlib.suppress(OSError, zlib.error, EOFError), open_recording(path) as file:
        return file.read(len(_BEGINNING)) == _BEGINNING
    return False


def file_lines(file: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of a recording that was opened.

    Raises:
        OSError: It cannot be read.
        ProtocolError: It is longer than any recording, has a line that is, or was damaged on its way.
    """
    try:
        for number, line in enumerate(iter(partial(file.readline, MOST_MESSAGE_BYTES), b"")):
            if len(line) == MOST_MESSAGE_BYTES:
                raise ProtocolError(
                    f"not a recording, for it has a line of more than {units.byte_size(MOST_MESSAGE_BYTES)}"
                )
            if number > MOST_RECORDING_EVENTS or file.tell() > MOST_RECORDING_BYTES:
                raise ProtocolError("longer than any recording")
            yield line
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise ProtocolError(f"damaged or only half copied ({error})") from None
