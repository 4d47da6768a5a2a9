"""The messages between the program and a host's spool: runs that go on there without the program, and their lines.

`python -m app.agent.spool` takes orders on its stdin, one JSON object a line, and answers each on its stdout. A
detached run has a folder on its host. Its file of lines begins with its `Spooled`; then come the lines of the agent
that makes it, as `app.agent_protocol` has them. `FollowSpool` is answered by those lines, then by `SpoolDrained`.
"""

import msgspec

from app.agent_protocol import EndWorker, Refused
from workloads.protocol import TAG, Start

SPOOL_DAYS = 30
"""A spool that nobody fetched is removed so long after its last line."""
MOST_SPOOL_BYTES = 2_000_000_000
"""Beyond so much a spool gets no more telemetry: 8 GPUs at 20 Hz for half a day, one for four days."""

WORKER = 1
"""The number of a detached run's worker."""
BEGUN, EXITED = 1, 2
"""Numbers of the pongs that come when a run begins, once it has its devices, and when its worker is gone."""


class DetachRun(msgspec.Struct, frozen=True, kw_only=True, tag="detach_run", tag_field=TAG):
    """Make a run that goes on without the program; answered by `SpoolsListed` with it alone, or `Refused`.

    Attributes:
        uid: Id of the run in all databases, in hexadecimal digits.
        start: The worker's order, but for its GPUs; the path of the weights is a name in the agent's scratch folder.
        devices: What the run may lease, the preferred one first.
        count: How many of them it needs.
        hz: Readings a second.
        environment: What the program knows of the run's environment.
        utc_ns: The program's wall clock.
        version: The program's version.
        hello_s: How long the worker may take to begin, in seconds.
        message_gap_s: How long it may say nothing.
    """

    uid: str
    start: Start
    devices: tuple[str, ...]
    count: int
    hz: float
    environment: dict[str, str]
    utc_ns: int
    version: str
    hello_s: float
    message_gap_s: float


class ListSpools(msgspec.Struct, frozen=True, tag="list_spools", tag_field=TAG):
    """Ask for a `SpoolsListed`."""


class FollowSpool(msgspec.Struct, frozen=True, tag="follow_spool", tag_field=TAG):
    """Ask for a run's lines, from its `Spooled` to its end; meanwhile `EndWorker` is passed on to its agent."""

    uid: str


class RemoveSpool(msgspec.Struct, frozen=True, tag="remove_spool", tag_field=TAG):
    """Remove a run that is over from the spool; answered by `SpoolsListed` or `Refused`."""

    uid: str


SpoolOrder = DetachRun | ListSpools | FollowSpool | RemoveSpool | EndWorker


class Spooled(msgspec.Struct, frozen=True, kw_only=True, tag="spooled", tag_field=TAG):
    """A detached run: what was ordered, the agent's protocol, where and when; `t_ns` of the host's monotonic clock."""

    run: DetachRun
    protocol: int
    hostname: str
    host_id: str
    boot_id: str
    t_ns: int


class Spool(msgspec.Struct, frozen=True, kw_only=True):
    """A run in the spool, whether it still goes on, its lines' size, and when the last one came, by the wall clock."""

    spooled: Spooled
    goes_on: bool
    size_bytes: int
    changed_utc_ns: int


class SpoolsListed(msgspec.Struct, frozen=True, tag="spools_listed", tag_field=TAG):
    """The runs in the spool, the oldest first."""

    spools: tuple[Spool, ...]


class SpoolNote(msgspec.Struct, frozen=True, tag="spool_note", tag_field=TAG):
    """A line of the spool itself: why the run was ended on its host, in one sentence."""

    reason: str


class SpoolDrained(msgspec.Struct, frozen=True, tag="spool_drained", tag_field=TAG):
    """There are no more lines of a run and there will be none; `boot_id` is that of the host now."""

    boot_id: str


SpoolReport = SpoolsListed | SpoolDrained | Refused
