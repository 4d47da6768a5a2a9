"""The messages between the program and a host's spool: runs that go on there without the program, and their recordings.

`python -m app.agent.detached` takes orders on its stdin, one JSON object a line, and answers each on its stdout.
`FollowSpool` is answered by the lines of the run's recording (`app.recording`) as they come, then by `SpoolDrained`, or
by the pieces of its weights before that.
"""

import msgspec

from app.agent_protocol import Refused
from workloads.protocol import TAG, Bytes, Count, Nanoseconds, Start, Text

SPOOL_DAYS = 30
"""A spool that nobody fetched is removed so long after its last line."""
MOST_SPOOL_BYTES = 2_000_000_000
"""Beyond so much a spool gets no more telemetry: 8 GPUs at 20 Hz for half a day, one for four days."""


class DetachRun(msgspec.Struct, frozen=True, kw_only=True, tag="detach_run", tag_field=TAG):
    """Make a run that goes on without the program; answered by `SpoolsListed` with it alone, or `Refused`.

    Attributes:
        uid: Id of the run in all databases, in hexadecimal digits.
        start: The worker's order, but for its GPUs; with a path of weights they are saved.
        hz: Readings a second.
        environment: What the program knows of the run's environment.
        utc_ns: The program's wall clock.
        version: The program's version.
        hello_s: How long the worker may take to begin, in seconds.
        message_gap_s: How long it may say nothing.
    """

    uid: str
    start: Start
    hz: float
    environment: dict[str, str]
    utc_ns: Nanoseconds
    version: str
    hello_s: float
    message_gap_s: float


class ListSpools(msgspec.Struct, frozen=True, tag="list_spools", tag_field=TAG):
    """Ask for a `SpoolsListed`."""


class FollowSpool(msgspec.Struct, frozen=True, tag="follow_spool", tag_field=TAG):
    """Ask for a run's recording, from its begin to its end."""

    uid: str


class StopSpool(msgspec.Struct, frozen=True, tag="stop_spool", tag_field=TAG):
    """End a run, as its user would; not answered, for its recording says how it ended."""

    uid: str


class RemoveSpool(msgspec.Struct, frozen=True, tag="remove_spool", tag_field=TAG):
    """Remove a run that is over from the spool; answered by `SpoolsListed` or `Refused`."""

    uid: str


SpoolOrder = DetachRun | ListSpools | FollowSpool | StopSpool | RemoveSpool


class Spool(msgspec.Struct, frozen=True, kw_only=True):
    """A run in the spool.

    Attributes:
        run: What was ordered.
        goes_on: Whether it is still made.
        boot_id: The boot of its host in which it began.
        size_bytes: Size of its recording.
        changed_utc_ns: When its last line came, by the host's wall clock.
    """

    run: DetachRun
    goes_on: bool
    boot_id: Text
    size_bytes: Bytes
    changed_utc_ns: Nanoseconds


class SpoolsListed(msgspec.Struct, frozen=True, tag="spools_listed", tag_field=TAG):
    """The runs in the spool, the oldest first, and how many are there that another version of the program detached."""

    spools: tuple[Spool, ...]
    unreadable: Count = 0


class SpoolDrained(msgspec.Struct, frozen=True, tag="spool_drained", tag_field=TAG):
    """There are no more lines of a run and there will be none; `boot_id` is that of the host now."""

    boot_id: Text


SpoolReport = SpoolsListed | SpoolDrained | Refused
