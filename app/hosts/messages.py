"""The messages between this program and the one on a host, besides events: orders on its stdin, and reports.

One JSON object per line in both directions. The program there (`run --events`) first writes a `HostHello`; events,
telemetry and answers follow. It ends everything when its stdin closes, or after `LOST_S` without a message. Times are
on the host's clocks. Files that an order or a job reads are sent in pieces before it, files that it writes come in
pieces afterwards; the scratch folder there uses other names. Both sides come from the same wheel, so messages have no
version.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from app.errors import read_error, write_error
from app.paths import open_private
from app.runs.host import RunOrder
from app.telemetry.messages import SetRate
from app.values.environment_keys import wrong_numbers
from app.values.events import RunEvent, RunStarted
from app.values.samples import Inventory, Processes
from workloads.job_protocol import JobRequest, JobResult
from workloads.protocol import (
    MOST_MESSAGE_BYTES,
    TAG,
    Bytes,
    Count,
    EnvironmentInfo,
    Name,
    Nanoseconds,
    ProtocolError,
    Sentence,
    Text,
    decode,
)

BEAT_S = 1.0
"""How often the program here sends a beat, which the program there answers immediately."""
LOST_S = 15.0
"""After this time without a message either side gives up, even if the pipe is open: a cut network closes nothing."""
MOST_LINE_BYTES = 2 * MOST_MESSAGE_BYTES
PIECE_BYTES = 2**18
MOST_FILE_BYTES = 4 * 2**30
"""The most bytes of weights or gradients that a host may send."""

PATH_VARIABLE = "VARIANTSCOPE_PATH"
"""The environment variable with the PATH of the host's shell, because uv starts the program with another."""

TREE = "tree.tar.gz"
"""The name of a command's frozen tree, sent as a file."""

WEIGHTS = "weights.npz"

HELLO = b'{"type":"host"'
"""The beginning of the program's first line."""

CUT = b"\x18\n"
"""Ends a line of a recording that was cut; JSON contains no such byte (cancel, ASCII)."""


class Beat(msgspec.Struct, frozen=True, kw_only=True, tag="beat", tag_field=TAG):
    """Sent from here, and answered with the host's monotonic clock on arrival."""

    t_ns: Nanoseconds = 0


class Piece(msgspec.Struct, frozen=True, kw_only=True, tag="piece", tag_field=TAG):
    """A part of a file, from `offset` on; the file is complete with `size` bytes."""

    name: Name
    offset: Bytes
    size: Bytes
    data: Annotated[bytes, msgspec.Meta(max_length=PIECE_BYTES)]


class Stop(msgspec.Struct, frozen=True, tag="stop", tag_field=TAG):
    """End the run or job; a reason, in one sentence, means that it was not the user."""

    reason: str = ""


class RunAnyway(msgspec.Struct, frozen=True, tag="run_anyway", tag_field=TAG):
    """Start the run although others use its devices, or the machine is not idle."""


class DetachedOrder(msgspec.Struct, frozen=True, tag="detached_order", tag_field=TAG):
    """List the detached runs, or stop, send or remove one; `DetachedEnd` ends the answer."""

    action: Literal["list", "stop", "fetch", "remove"]
    uid: Name = ""


Order = Beat | Piece | RunOrder | JobRequest | Stop | RunAnyway | DetachedOrder | SetRate
"""`SetRate` starts telemetry. A job is answered by its result."""


class HostFramework(msgspec.Struct, frozen=True, kw_only=True):
    """A framework, as in the parameter, in the Python of runs that name none; None if that lacks it."""

    name: Name
    interpreter: Text
    version: Name | None


class HostHello(msgspec.Struct, frozen=True, kw_only=True, tag="host", tag_field=TAG):
    """The first report.

    Attributes:
        t_ns: The time on the host's monotonic clock; `utc_ns` is its wall clock.
        environment: The environment that only a process there knows, `host_info`.
        python: Version and path of the program's Python there.
        user: The user there; `home` is the home folder, with its free bytes.
    """

    pid: Count
    t_ns: Nanoseconds
    utc_ns: Nanoseconds
    environment: dict[Name, Text]
    python: tuple[Name, Text]
    user: Name
    home: Text
    home_free_bytes: Bytes
    frameworks: Annotated[tuple[HostFramework, ...], msgspec.Meta(max_length=10)]


class Refused(msgspec.Struct, frozen=True, kw_only=True, tag="refused", tag_field=TAG):
    """Why an order was not executed, in one sentence; `kind` is the error's type."""

    reason: str
    kind: str = ""


class TreeWanted(msgspec.Struct, frozen=True, tag="tree_wanted", tag_field=TAG):
    """The host lacks the frozen tree of the run's command: send it in pieces, and the order again."""


class DetachedRun(msgspec.Struct, frozen=True, kw_only=True, tag="detached", tag_field=TAG):
    """A run that continues, or continued, on a host without this program."""

    uid: Name
    workload: Name
    variant: Text
    detached_utc_ns: Nanoseconds
    goes_on: bool
    size_bytes: Bytes
    problem: Sentence = ""


class DetachedEnd(msgspec.Struct, frozen=True, tag="detached_end", tag_field=TAG):
    """The end of what an order about detached runs is answered with."""


DetachedAnswer = DetachedRun | DetachedEnd
Report = Beat | Piece | HostHello | Refused | TreeWanted | DetachedAnswer | JobResult | Inventory | Processes | RunEvent
_REPORT: msgspec.json.Decoder[Report] = msgspec.json.Decoder(Report)


def decode_report(line: bytes) -> Report:
    """Return a report, after checking numbers in its environment; the text of a `ProtocolError` ends a sentence."""
    report = decode(_REPORT, line, "a report of this program")
    if isinstance(report, HostHello | RunStarted | EnvironmentInfo) and (keys := wrong_numbers(report.environment)):
        raise ProtocolError(f"not a report of this program, because {keys[0]} of its environment is not a number")
    return report


def pieces(path: Path, name: str) -> Iterator[Piece]:
    """Yield a file in pieces; raises `UserError` if it cannot be read."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            for offset in range(0, max(1, size), PIECE_BYTES):
                yield Piece(name=name, offset=offset, size=size, data=file.read(PIECE_BYTES))
    except OSError as error:
        raise read_error(path, error) from error


def add_piece(path: Path, piece: Piece) -> None:
    """Add the next piece to a file; the first one restarts it, the last one completes it.

    Raises:
        ProtocolError: It is not the next one.
        UserError: It cannot be written.
    """
    part, end = path.with_name(f"{path.name}.part"), piece.offset + len(piece.data)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(part, "ab" if piece.offset else "wb", opener=open_private) as file:
            if file.tell() != piece.offset or end > piece.size or piece.size > MOST_FILE_BYTES:
                raise ProtocolError("a file whose pieces do not fit together")
            file.write(piece.data)
        if end == piece.size:
            part.replace(path)
    except OSError as error:
        raise write_error(path, error) from None
