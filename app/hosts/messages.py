"""What the program here and the program on a host say besides the events of runs: orders on its stdin, and reports.

One JSON object a line in both directions. The program there (`run --events`, `watch --events`, `hosts … --events`)
first writes the head of a recording and a `HostHello`; events, telemetry and reports follow.
It ends everything when its stdin closes, and when it has heard nothing for `LOST_S`. Times are of the host's clocks.

A file that an order or a job reads is sent as pieces before, one that it writes comes as pieces after; in the scratch
folder there it has its own name. Both sides are of the same wheel, so no message has a version.
"""

from typing import Annotated, Literal

import msgspec

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
    encode,
)

BEAT_S = 1.0
"""How often the program here beats; the program there answers each beat at once."""
LOST_S = 15.0
"""Whoever hears nothing for so long gives the other side up, though the pipe is open: a cut network closes nothing."""
MOST_LINE_BYTES = 2 * MOST_MESSAGE_BYTES
PIECE_BYTES = 2**18
MOST_FILE_BYTES = 4 * 2**30
"""Of weights or gradients that a host may send."""


PATH_VARIABLE = "VARIANTSCOPE_PATH"
"""The environment variable that has the PATH of the host's shell, where uv starts the program with another."""

TREE = "tree.tar.gz"
"""The frozen tree of a command, as a file that is sent."""


class Beat(msgspec.Struct, frozen=True, kw_only=True, tag="beat", tag_field=TAG):
    """Sent from here, and answered with the host's monotonic clock when it came."""

    t_ns: Nanoseconds = 0


class Piece(msgspec.Struct, frozen=True, kw_only=True, tag="piece", tag_field=TAG):
    """A part of a file, from `offset` on; the file is whole when it has `size` bytes."""

    name: Name
    offset: Bytes
    size: Bytes
    data: Annotated[bytes, msgspec.Meta(max_length=PIECE_BYTES)]


class JobOrder(msgspec.Struct, frozen=True, tag="job", tag_field=TAG):
    """Run a small job on the devices that it names; answered by `JobDone` or `Refused`."""

    request: JobRequest


class Stop(msgspec.Struct, frozen=True, tag="stop", tag_field=TAG):
    """End the run or job; with a reason, in one sentence, it is not the user who does."""

    reason: str = ""


class RunAnyway(msgspec.Struct, frozen=True, tag="run_anyway", tag_field=TAG):
    """Begin the run although others use its devices, or the machine is not idle."""


class Stored(msgspec.Struct, frozen=True, tag="stored", tag_field=TAG):
    """The run that was fetched is stored: remove its recording."""


Order = Beat | Piece | RunOrder | JobOrder | Stop | RunAnyway | Stored | SetRate


class HostFramework(msgspec.Struct, frozen=True, kw_only=True):
    """A framework by the value of the parameter, in the Python of runs that name none; None if that lacks it."""

    name: Name
    interpreter: Text
    version: Name | None


class HostHello(msgspec.Struct, frozen=True, kw_only=True, tag="host", tag_field=TAG):
    """The first report.

    Attributes:
        t_ns: Now on the host's monotonic clock, and `utc_ns` on its wall clock.
        environment: What only a process there knows of a run's environment, `host_info`.
        python: Version and path of the Python that runs the program there.
        user: The user there, and `home` its folder with that many free bytes.
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
    """Why an order was not followed, in one sentence; `cancelled` where it was stopped."""

    kind: Literal["user error", "job error", "job crashed", "cancelled", "bug"]
    reason: str


class TreeWanted(msgspec.Struct, frozen=True, tag="tree_wanted", tag_field=TAG):
    """The host lacks the frozen tree of the run's command: send it in pieces, once."""


class JobDone(msgspec.Struct, frozen=True, tag="job_done", tag_field=TAG):
    """What a job found."""

    result: JobResult


class DetachedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run that continues on a host without this program, or did."""

    uid: Name
    workload: Name
    variant: Text
    detached_utc_ns: Nanoseconds
    goes_on: bool
    size_bytes: Bytes
    problem: Sentence = ""


class DetachedRuns(msgspec.Struct, frozen=True, tag="detached", tag_field=TAG):
    """The detached runs of a host, the oldest first."""

    runs: Annotated[tuple[DetachedRun, ...], msgspec.Meta(max_length=1_000)]


class Drained(msgspec.Struct, frozen=True, tag="drained", tag_field=TAG):
    """A detached run was sent completely: it is over."""


_Answer = Refused | TreeWanted | JobDone | DetachedRuns | Drained
Report = Beat | Piece | HostHello | _Answer | Inventory | Processes | RunEvent
_REPORT: msgspec.json.Decoder[Report] = msgspec.json.Decoder(Report)


def decode_report(line: bytes) -> Report:
    """Return a report whose environment has numbers where they belong; raises `ProtocolError`, to end a sentence."""
    report = decode(_REPORT, line, "a report of this program")
    if isinstance(report, RunStarted | EnvironmentInfo) and (keys := wrong_numbers(report.environment)):
        raise ProtocolError(f"not an event of a run, because {keys[0]} of its environment is not a number")
    return report


RECORDING_VERSION = 1
CUT = b"\x18\n"
"""Ends a line of a recording that its writer was killed in; JSON has no such byte (cancel, ASCII)."""


class RecordingHead(msgspec.Struct, frozen=True, tag="recording", tag_field=TAG):
    """The first line: the version of the format, and of the program that wrote it."""

    version: Count
    program: Name


_HEAD = msgspec.json.Decoder(RecordingHead)
_BEGINNING = b'{"type":"recording"'


def head_line(program: str) -> bytes:
    """Return the first line of a recording that this version of the program writes."""
    return encode(RecordingHead(RECORDING_VERSION, program))


def is_head(line: bytes) -> bool:
    """Return whether a line is the first of a recording of this format; raises `ProtocolError` for another format."""
    if not line.startswith(_BEGINNING):
        return False
    head = decode(_HEAD, line, "a recording")
    if head.version != RECORDING_VERSION:
        raise ProtocolError(f"a recording of program version {head.program}, whose lines this version cannot read")
    return True
