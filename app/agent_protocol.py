"""The messages between the program and an agent, which makes runs on a host: orders on its stdin, reports on stdout.

One JSON object a line in both directions. The messages of the host's telemetry (`app.telemetry.messages`) come between
the reports: each has a tag of its own. Everything on the host ends when the agent's stdin closes, and when the agent
has heard nothing for `LOST_S`; its stdout closes when nothing is left there. Times are of the host's clocks. A reader
skips a last line without an end; any other line that is no message is a mistake.

Paths in orders are names in the agent's scratch folder, such as `weights.npz`: `Start.weights_path`, and those of jobs.
The program sends what a job reads (`WriteFile`), and fetches (`ReadFile`) and removes what a job or a worker wrote. The
path of a custom workload's source stays the user's: it is only named in errors there.
"""

from typing import Annotated, Literal

import msgspec

from app.samples import Inventory
from workloads.job_protocol import JobRequest, JobResult
from workloads.protocol import MOST_TEXT_CHARS, TAG, Bytes, Count, Name, Nanoseconds, Start, Text, TextByName, Texts

AGENT_PROTOCOL = 1
"""Version of these messages. The agent is sent by the program, by the hash of its sources: both have the same one."""
HEARTBEAT_S = 1.0
"""How often the program pings an agent; an agent answers each ping at once."""
LOST_S = 15.0
"""An agent that hears nothing for so long ends everything, though its stdin is open: a cut network closes nothing."""
FILE_PIECE_BYTES = 2**18
"""The most bytes in one `FilePart` or `WriteFile`: what comes after them on the link must not wait for long."""
MOST_EVENTS = 2_000
"""Events of one run that an agent sends before the program has taken them (`Took`)."""

Line = Annotated[str, msgspec.Meta(max_length=MOST_TEXT_CHARS)]
RefusedKind = Literal["user error", "os error", "job error", "job crashed", "cancelled", "bug"]
Number = Annotated[int, msgspec.Meta(ge=0)]
"""Chosen by the program: it counts the orders that are answered, and the runs, leases and jobs that they make."""


class Ping(msgspec.Struct, frozen=True, tag="ping", tag_field=TAG):
    """Ask for a `Pong`."""

    number: Number


class StartTelemetry(msgspec.Struct, frozen=True, tag="start_telemetry", tag_field=TAG):
    """Say what telemetry says from now on, the inventory first, with so many readings a second."""

    hz: float


class StopTelemetry(msgspec.Struct, frozen=True, tag="stop_telemetry", tag_field=TAG):
    """Say no telemetry from now on; answered by `TelemetryEnded`."""


class ChangeRate(msgspec.Struct, frozen=True, tag="change_rate", tag_field=TAG):
    """Read so many times a second from now on."""

    hz: float


class StartRun(msgspec.Struct, frozen=True, kw_only=True, tag="start_run", tag_field=TAG):
    """Make a run on devices that are leased; answered by its events (`RunSaid`), or `Refused`.

    Attributes:
        number: The run on this link.
        start: The worker's order, complete; `start.weights_path` is a name in the scratch folder, and the file is there
            when the run has completed.
        hello_s: How long the worker may take to begin, in seconds.
        message_gap_s: How long it may say nothing.
    """

    number: Number
    start: Start
    hello_s: float
    message_gap_s: float


class StopRun(msgspec.Struct, frozen=True, kw_only=True, tag="stop_run", tag_field=TAG):
    """End a run, as its user would; with a reason, in one sentence, somebody else does."""

    run: Number
    reason: str = ""


class Took(msgspec.Struct, frozen=True, kw_only=True, tag="took", tag_field=TAG):
    """Say that so many events of a run were taken: it may send as many more."""

    run: Number
    events: int


class TakeLease(msgspec.Struct, frozen=True, kw_only=True, tag="take_lease", tag_field=TAG):
    """Lease the first `count` free devices; answered by `Leased` or `Refused`."""

    number: Number
    devices: tuple[str, ...]
    count: int


class ReleaseLease(msgspec.Struct, frozen=True, tag="release_lease", tag_field=TAG):
    """Give the devices of a lease back; `lease` is the number of its order."""

    lease: Number


class StartJob(msgspec.Struct, frozen=True, kw_only=True, tag="start_job", tag_field=TAG):
    """Run a small job; answered by `JobDone` or `Refused`."""

    number: Number
    request: JobRequest


class CancelJob(msgspec.Struct, frozen=True, tag="cancel_job", tag_field=TAG):
    """End a job that takes too long; it is still answered."""

    job: Number


class DescribeHost(msgspec.Struct, frozen=True, tag="describe_host", tag_field=TAG):
    """Ask for a `HostDescribed`: what only a process on the host can tell of a run's environment (`host_info`)."""

    number: Number


class InspectHost(msgspec.Struct, frozen=True, kw_only=True, tag="inspect_host", tag_field=TAG):
    """Ask for a `HostInspected`: what a check of the host shows."""

    number: Number


class KeepStandby(msgspec.Struct, frozen=True, tag="keep_standby", tag_field=TAG):
    """Have standby workers from now on, or none."""

    wanted: bool


class ReadFile(msgspec.Struct, frozen=True, kw_only=True, tag="read_file", tag_field=TAG):
    """Ask for the piece of a file from `offset` on; answered by `FilePart`, or `Refused`.

    It is the last piece where `offset` and the piece make the size.
    """

    number: Number
    name: str
    offset: Bytes


class WriteFile(msgspec.Struct, frozen=True, kw_only=True, tag="write_file", tag_field=TAG):
    """Add a piece to a file, which 0 begins anew; answered by `FilePart` without data, or `Refused`."""

    number: Number
    name: str
    offset: Bytes
    data: bytes


class RemoveFile(msgspec.Struct, frozen=True, kw_only=True, tag="remove_file", tag_field=TAG):
    """Remove a file, whether it is there or not; nothing is said unless it is `Refused`."""

    number: Number
    name: str


Order = (
    Ping
    | StartTelemetry
    | StopTelemetry
    | ChangeRate
    | StartRun
    | StopRun
    | Took
    | TakeLease
    | ReleaseLease
    | StartJob
    | CancelJob
    | DescribeHost
    | InspectHost
    | KeepStandby
    | ReadFile
    | WriteFile
    | RemoveFile
)


AnsweredOrder = TakeLease | StartJob | DescribeHost | InspectHost | ReadFile | WriteFile


class AgentHello(msgspec.Struct, frozen=True, kw_only=True, tag="agent_hello", tag_field=TAG):
    """The agent's first report.

    Attributes:
        protocol: `AGENT_PROTOCOL` of its sources.
        pid: Its process id.
        t_ns: Now on the host's monotonic clock.
        utc_ns: The same moment on its wall clock.
        host_id: A hash of its machine id; the same for every name under which it is reached.
        boot_id: The boot that its monotonic clock counts from.
        python: Version of the agent's Python.
        scratch: The agent's own folder for files of jobs and weights; it is gone with the agent.
        frameworks: The frameworks, by the value of the parameter, that runs have which name no Python.
    """

    protocol: int
    pid: Count
    t_ns: Nanoseconds
    utc_ns: Nanoseconds
    host_id: Text
    boot_id: Text
    python: Name
    scratch: Text
    frameworks: Texts = ()


class Pong(msgspec.Struct, frozen=True, kw_only=True, tag="pong", tag_field=TAG):
    """The answer to a ping: the host's clocks when it came."""

    number: Number
    t_ns: Nanoseconds
    utc_ns: Nanoseconds


class Refused(msgspec.Struct, frozen=True, kw_only=True, tag="refused", tag_field=TAG):
    """Why an order could not be followed, in one sentence for the user; `kind` says which error it was there."""

    number: Number
    kind: RefusedKind
    reason: str


class TelemetryEnded(msgspec.Struct, frozen=True, tag="telemetry_ended", tag_field=TAG):
    """There is no telemetry any more: it was to stop, or for this reason, in one sentence."""

    reason: Line | None = None


class RunSaid(msgspec.Struct, frozen=True, kw_only=True, tag="run_said", tag_field=TAG):
    """An event of a run, as a recording has it; the last is `RunEnded`."""

    run: Number
    event: msgspec.Raw


class Leased(msgspec.Struct, frozen=True, kw_only=True, tag="leased", tag_field=TAG):
    """The devices that were leased; none, with nothing held, if fewer were free than wanted."""

    number: Number
    devices: tuple[str, ...] | None


class JobDone(msgspec.Struct, frozen=True, kw_only=True, tag="job_done", tag_field=TAG):
    """What a job found."""

    number: Number
    result: JobResult


class HostDescribed(msgspec.Struct, frozen=True, kw_only=True, tag="host_described", tag_field=TAG):
    """What the agent knows of a run's environment, by key."""

    number: Number
    environment: TextByName


class InspectedFramework(msgspec.Struct, frozen=True, kw_only=True):
    """A framework by the value of the parameter, in the Python of runs that name none; None where that lacks it."""

    name: Name
    interpreter: Text
    version: Name | None


class HostInspected(msgspec.Struct, frozen=True, kw_only=True, tag="host_inspected", tag_field=TAG):
    """What a check of the host shows.

    Attributes:
        number: Of the order.
        user: The user that the agent runs as.
        home: The user's home folder.
        home_free_bytes: Space in it that the user may use.
        frameworks: All that the program knows, there or not.
    """

    number: Number
    user: Name
    home: Text
    home_free_bytes: Bytes
    frameworks: Annotated[tuple[InspectedFramework, ...], msgspec.Meta(max_length=10)]


class FilePart(msgspec.Struct, frozen=True, kw_only=True, tag="file_part", tag_field=TAG):
    """A piece of a file, and the file's size."""

    number: Number
    data: bytes = b""
    size: Bytes


Report = (
    AgentHello | Pong | Refused | TelemetryEnded | RunSaid | Leased | JobDone | HostDescribed | HostInspected | FilePart
)


RAY_MARK = "variantscope-ray"
"""Begins a line of the stderr of a driver of Ray: `failed` or `ended` with a sentence for the user, or `lost` with a
node's id. What it says on stdout are the messages below, one JSON object a line (`app.agent.ray`)."""


class RayNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node of the cluster.

    Attributes:
        node: Its id.
        name: Its host's name, with a part of its id where several nodes have that name.
        gpus: How many GPUs Ray may give away there, and `free_gpus` how many of them nobody has.
        cpus: The same for processors, and `free_cpus`.
        inventory: What its sampler finds there; None until it is known.
        problem: Why that is not known, in one sentence.
        has_reporter: Whether Ray's reporter runs there, which reads the GPUs and processes every few seconds.
    """

    node: str
    name: str
    gpus: int
    free_gpus: float
    cpus: float
    free_cpus: float
    inventory: Inventory | None = None
    problem: str | None = None
    has_reporter: bool = False


class RayNodes(msgspec.Struct, frozen=True, tag="ray_nodes", tag_field=TAG):
    """All nodes that are alive, and the cluster's version of Ray."""

    nodes: tuple[RayNode, ...]
    ray: str


class RayPlaced(msgspec.Struct, frozen=True, kw_only=True, tag="ray_placed", tag_field=TAG):
    """An agent was started on a node; `visible` is what CUDA sees there: indices in NVML's order, or UUIDs."""

    node: str
    visible: str
