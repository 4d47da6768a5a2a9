"""A recording: the events of a run as lines of JSON, with one writer and one reader, wherever it travels.

The first line is its head, with the version of the format; each other one is an event, by `workloads.protocol.encode`.
A line that ends with `CUT` was not finished, and is skipped like a last line without an end; any other line that is no
event is a mistake. Types bound what is read: see `RunEvent`.
"""

from collections.abc import Iterable, Iterator

import msgspec

from app.values.environment_keys import wrong_numbers
from app.values.events import RunEvent, RunStarted
from workloads.protocol import TAG, Count, EnvironmentInfo, Name, ProtocolError, decode, encode

RECORDING_VERSION = 1
CUT = b"\x18\n"
"""Ends a line that its writer was killed in; JSON has no such byte (cancel, ASCII)."""
_EVENT: msgspec.json.Decoder[RunEvent] = msgspec.json.Decoder(RunEvent)


class RecordingHead(msgspec.Struct, frozen=True, tag="recording", tag_field=TAG):
    """The first line: the version of the format, and of the program that wrote it."""

    version: Count
    program: Name


_HEAD = msgspec.json.Decoder(RecordingHead)
_BEGINNING = b'{"type":"recording"'


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
            if not is_head(line):
                raise ProtocolError("not a recording")
            is_first = False
        else:
            yield decode_event(line)


def decode_event(line: bytes) -> RunEvent:
    """Return the event of one line; raises `ProtocolError`, whose text ends a sentence."""
    return checked_event(decode(_EVENT, line, "an event of a run"))


def is_head(line: bytes) -> bool:
    """Return whether a line is the first of a recording of this format; raises `ProtocolError` for another format."""
    if not line.startswith(_BEGINNING):
        return False
    head = decode(_HEAD, line, "a recording")
    if head.version != RECORDING_VERSION:
        raise ProtocolError(f"a recording of program version {head.program}, whose lines this version cannot read")
    return True


def checked_event(event: RunEvent) -> RunEvent:
    """Return an event whose environment has numbers where they belong; raises `ProtocolError`."""
    if isinstance(event, RunStarted | EnvironmentInfo) and (keys := wrong_numbers(event.environment)):
        raise ProtocolError(f"not an event of a run, for {keys[0]} of its environment is no number")
    return event
