"""The messages between the program and a worker: msgspec structs, one JSON object per line, in both directions.

The worker's stdin takes one `Start`; closing stdin afterwards means "stop". A separate pipe returns `Hello`, then any
number of `PhaseStarted`, `EnvironmentInfo`, `Progress`, `Block`, `Epoch`, and at most one `DataReady`, `Flops`,
`Calibration` and `Evidence`, then exactly one `Finished`. A table in `app.runs` says which may follow which. All `t_ns`
are `time.monotonic_ns()` of the worker's host; `Hello` anchors that clock to the wall clock.

Decoding checks limits: counts are so small that their sum over a run of days fits into 64 bits; texts are short enough
to store and display, and contain no control characters but line ends and tabs.
"""

import hashlib
import re
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import msgspec

from workloads.kernels import KernelClass

PROTOCOL_VERSION = 3

STANDBY = "standby"
"""The command-line word that makes a worker import the framework before `Hello`, to wait for an order."""

TAG = "type"

MOST_MESSAGE_BYTES = 4 * 2**20
"""A longer line is not a message."""
MOST_NAME_CHARS = 200
MOST_TEXT_CHARS = 20_000
MOST_TEXTS = 200
MOST_MODULES = 5_000
"""The most modules of the user's that a custom workload may need."""
MOST_REASON_CHARS = 2_000
MOST_TRACEBACK_CHARS = 100_000
MOST_KERNELS = 5_000
MOST_STEP_KERNELS = 20_000
MOST_STREAMS = 500

Nanoseconds = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
Bytes = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
Count = Annotated[int, msgspec.Meta(ge=0, le=10**12)]
AtLeastOne = Annotated[int, msgspec.Meta(ge=1, le=10**12)]
Share = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
Percent = Annotated[float, msgspec.Meta(ge=0.0, le=100.0)]
Rate = Annotated[float, msgspec.Meta(gt=0.0)]
_CONTROL = "\x00-\x08\x0b-\x1f\x7f-\x9f"
_PLAIN = f"^[^{_CONTROL}]*$"
Name = Annotated[str, msgspec.Meta(max_length=MOST_NAME_CHARS, pattern=_PLAIN)]
Text = Annotated[str, msgspec.Meta(max_length=MOST_TEXT_CHARS, pattern=_PLAIN)]
Sentence = Annotated[str, msgspec.Meta(max_length=MOST_REASON_CHARS, pattern=_PLAIN)]
Texts = Annotated[tuple[Text, ...], msgspec.Meta(max_length=MOST_TEXTS)]
TextByName = Annotated[dict[Name, Text], msgspec.Meta(max_length=MOST_TEXTS)]

Value = bool | int | float | str
Variant = dict[str, Value]

PhaseName = Literal["import", "build", "compile", "warmup", "measure", "evidence", "finish"]
TimedPhase = Literal["compile", "warmup", "measure"]
OutcomeName = Literal["completed", "stopped", "out_of_memory", "failed", "crashed", "refused"]
WorkerOutcome = Literal["completed", "stopped", "out_of_memory", "failed", "refused"]
EvidenceState = Literal["mismatch", "not verifiable", "verified in part", "verified"]


class ProtocolError(Exception):
    """A line that is not a message of this protocol."""


class RunSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The request for one run: a workload and a complete variant."""

    workload: str
    variant: Variant


class UserModule(msgspec.Struct, frozen=True, kw_only=True):
    """User code that a workload's file imports or executes; `name` is the module's, else the file's.

    `path` may lead into an archive; `sha256` is then the archive's.
    """

    name: Text
    path: Text
    sha256: str

    @classmethod
    def read(cls, name: str, path: str) -> "UserModule":
        """Return the module as it is now; its `sha256` is "" if there is no such file."""
        file = next((file for file in (Path(path), *Path(path).parents) if file.is_file()), None)
        if file is None:
            return cls(name=name, path=path, sha256="")
        with file.open("rb") as stream:
            return cls(name=name, path=path, sha256=hashlib.file_digest(stream, "sha256").hexdigest())


class Command(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A user's command that trains, with placeholders `{name}` and `{name?TEXT}` for parameters.

    Attributes:
        words: The program and its arguments.
        folder: Where it runs, relative to the root of the tree.
        loop: `FILE:LINE` of the loop whose iterations are steps.
        examples: The number of examples in a step, as an expression of numbers and placeholders.
        links: Paths in `folder` that the frozen tree lacks, with the absolute paths they lead to.
    """

    words: Texts
    folder: str = ""
    loop: str = ""
    examples: str = ""
    links: dict[str, str] = {}


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """A user's file with workloads: its text, the user's modules that it needs, and its path.

    The path serves error messages, and data next to the file. With a command it is the user's folder, and the modules
    are all files of a frozen copy, named by their path in it.
    """

    path: str
    text: str
    modules: Annotated[tuple[UserModule, ...], msgspec.Meta(max_length=MOST_MODULES)] = ()
    command: Command | None = None

    @property
    def sha256(self) -> str:
        """Return the hash that identifies this state of the code; without modules, that of the text."""
        text = hashlib.sha256(encode(self.command) if self.command else self.text.encode()).hexdigest()
        states = sorted((module.name, module.sha256) for module in self.modules)
        return hashlib.sha256(repr((text, states)).encode()).hexdigest() if states else text


class Start(msgspec.Struct, frozen=True, kw_only=True, tag="start", tag_field=TAG):
    """The only message to a worker: the order for one run.

    Attributes:
        protocol: `PROTOCOL_VERSION` of the program.
        gpu_uuids: The GPUs in replica order; none means the CPU.
        weights_path: Where to save the weights on the worker's host; None saves none.
        calibrate: Whether to calibrate the first device after the measured part.
        python: The words that replace `python` in a user's command, set by the launcher: another Python, or uv and
            packages.
    """

    protocol: int
    spec: RunSpec
    gpu_uuids: tuple[str, ...] = ()
    weights_path: str | None = None
    calibrate: bool = False
    source: Source | None = None
    python: Texts = ()


class Hello(msgspec.Struct, frozen=True, kw_only=True, tag="hello", tag_field=TAG):
    """The first message: the worker runs and has its pipe; `utc_ns` is the wall clock at `t_ns`."""

    protocol: Count
    pid: Count
    t_ns: Nanoseconds
    utc_ns: Nanoseconds


class PhaseStarted(msgspec.Struct, frozen=True, kw_only=True, tag="phase", tag_field=TAG):
    """A phase begins, and the one before it ends."""

    phase: PhaseName
    t_ns: Nanoseconds


class EnvironmentInfo(msgspec.Struct, frozen=True, kw_only=True, tag="facts", tag_field=TAG):
    """Facts about the worker's environment, such as `{"python": "3.12.3"}`; later messages add to earlier ones."""

    environment: TextByName = msgspec.field(name="facts")


class Progress(msgspec.Struct, frozen=True, kw_only=True, tag="progress", tag_field=TAG):
    """The completed share of a phase, from 0 to 1."""

    phase: PhaseName
    fraction: Share
    t_ns: Nanoseconds


class Block(msgspec.Struct, frozen=True, kw_only=True, tag="block", tag_field=TAG):
    """A few steps timed together between two device synchronisations.

    Attributes:
        first_step: Number of the first one, from 0 over the whole run, compile and warm-up steps included.
        examples: Examples over all replicas.
        start_ns: When the first step began.
        end_ns: When the last step ended on all devices.
        loss: The last step's; None in inference.
        allocator_bytes: What the framework's allocator holds on the first device after the block, read outside the
            timed part; None on the CPU.
    """

    phase: TimedPhase
    first_step: Count
    steps: AtLeastOne
    examples: AtLeastOne
    start_ns: Nanoseconds
    end_ns: Nanoseconds
    loss: float | None = None
    allocator_bytes: Bytes | None = None


class Epoch(msgspec.Struct, frozen=True, kw_only=True, tag="epoch", tag_field=TAG):
    """One pass over the training data, and the accuracy at its end.

    Attributes:
        epoch: Its number; the first is 1.
        examples: Its examples over all replicas.
        start_ns: When its training began.
        end_ns: When its training ended.
        tested_ns: When the test on other data ended.
        loss: The last step's.
        accuracy: The share of test examples that were classified correctly, from 0 to 1.
    """

    epoch: AtLeastOne
    steps: AtLeastOne
    examples: AtLeastOne
    start_ns: Nanoseconds
    end_ns: Nanoseconds
    tested_ns: Nanoseconds
    loss: float | None
    accuracy: Share


class DataReady(msgspec.Struct, frozen=True, kw_only=True, tag="data_ready", tag_field=TAG):
    """The time of steps, after the measured part, whose data were already on the devices.

    Sent if data come from the host: measured steps spent any time beyond this waiting for data.
    """

    steps: AtLeastOne
    time_ns: Annotated[int, msgspec.Meta(ge=1, le=2**62)]


class Flops(msgspec.Struct, frozen=True, kw_only=True, tag="flops", tag_field=TAG):
    """The floating-point operations of one step over all replicas, by formula (a multiply-add is two)."""

    per_step: Annotated[int, msgspec.Meta(ge=1, le=2**62)]


class Calibration(msgspec.Struct, frozen=True, kw_only=True, tag="calibration", tag_field=TAG):
    """The measured rate of a large matrix product on one device: the peak that utilisation refers to.

    `device` is a GPU's UUID or `cpu`; the product is `size` x `size` x `size` in `precision`.
    """

    device: Name
    precision: Name
    size: AtLeastOne
    flops_per_s: Rate


class Kernel(msgspec.Struct, frozen=True, kw_only=True):
    """One kernel (on the CPU one op) of the traced steps by name: its number of calls, and its time over all devices.

    `tensor_cores`: whether it computed products on them; None if the name does not say, or it has no products.
    `occupancy_pct`: the share of a GPU's warp slots that it can fill, weighted by time; None if the trace lacks it.
    """

    name: Text
    kind: KernelClass
    count: Count
    time_ns: Nanoseconds
    tensor_cores: bool | None = None
    occupancy_pct: Percent | None = None


class DeviceTime(msgspec.Struct, frozen=True, kw_only=True):
    """Where one device's time went in the traced steps.

    Attributes:
        device: Its name in the framework, such as `GPU:0`.
        span_ns: From the first kernel's start to the last one's end.
        busy_ns: The part of the span in which a kernel ran.
        compute_ns: The part in which a computing kernel ran.
        communication_ns: The part in which a communicating kernel ran, overlapped by computing or not.
        host_wait_ns: The part of the span in which no kernel ran because the host had not yet begun to launch the next
            one; None if the trace has no launches.
        kernel_wait_ns: The gaps between kernels that the host launched in time.
    """

    device: Name
    span_ns: Nanoseconds
    busy_ns: Nanoseconds
    compute_ns: Nanoseconds
    communication_ns: Nanoseconds
    kernels: Count
    host_wait_ns: Nanoseconds | None = None
    kernel_wait_ns: Nanoseconds | None = None


class Stream(msgspec.Struct, frozen=True, kw_only=True):
    """A stream of a GPU, or on the CPU a thread, as the profiler names it; `device` is as in `DeviceTime`."""

    device: Name
    name: Name


class StepKernel(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One kernel of a traced step, in four numbers, because there are thousands.

    `stream` and `rank` are the indices of its stream and its `Kernel`; `start_ns` counts from the step's start.
    """

    stream: Count
    rank: Count
    start_ns: Nanoseconds
    duration_ns: Nanoseconds


class StepTimeline(msgspec.Struct, frozen=True, kw_only=True):
    """When each kernel of one traced step ran, and on which stream.

    Attributes:
        start_ns: When its first kernel began, on the clock of `t_ns`.
        duration_ns: Time until the next step's first kernel, or until its own last kernel ends if no step follows.
        kernels: Its first kernels, in the order in which they began.
        left_out: The number of kernels beyond what a message takes.
    """

    start_ns: Nanoseconds
    duration_ns: Nanoseconds
    streams: Annotated[tuple[Stream, ...], msgspec.Meta(max_length=MOST_STREAMS)]
    kernels: Annotated[tuple[StepKernel, ...], msgspec.Meta(max_length=MOST_STEP_KERNELS)]
    left_out: Count = 0


CHOICE = "auto"
"""The value that leaves a parameter to the framework: whatever it chooses counts as requested."""


class Evidence(msgspec.Struct, frozen=True, kw_only=True, tag="evidence", tag_field=TAG):
    """What was requested and what actually ran, by aspect (`implementation`, `precision`, `xla`, `layout` …).

    Attributes:
        requested: The value of each aspect in the variant.
        actual: The value of each aspect that was observed.
        unverified: Why each other aspect was not observed, in one sentence.
        match: Whether all are as requested; None if nothing contradicts but some were not observed.
        reason: One sentence if `match` is not true, or if the framework fell back from what it could have chosen.
        sources: `graph` (the executed partition graph), `trace` (the profiler's) and `hlo` (XLA's optimised program).
        notes: What was not observed and why.
        steps: Steps traced after the measured part.
        span_ns: Their time, summed over the devices.
        busy_ns: The part of it in which a kernel ran, summed over the devices.
        kernels: The kernels, longest total time first.
        timeline: One of the steps, kernel by kernel.
    """

    requested: TextByName = msgspec.field(name="asked")
    actual: TextByName = msgspec.field(name="ran")
    unverified: TextByName = {}
    match: bool | None
    reason: Text | None = None
    sources: Texts = ()
    notes: Texts = ()
    steps: Count = 0
    span_ns: Nanoseconds = 0
    busy_ns: Nanoseconds = 0
    kernels: Annotated[tuple[Kernel, ...], msgspec.Meta(max_length=MOST_KERNELS)] = ()
    devices: Annotated[tuple[DeviceTime, ...], msgspec.Meta(max_length=1_000)] = ()
    timeline: StepTimeline | None = None

    @property
    def state(self) -> EvidenceState:
        """Return how much of what was requested is verified, if nothing contradicts: all, some or none."""
        if self.match is not None:
            return "verified" if self.match else "mismatch"
        return "verified in part" if self.actual else "not verifiable"


class Finished(msgspec.Struct, frozen=True, kw_only=True, tag="finished", tag_field=TAG):
    """The worker's last message. `reason` is one sentence; only `failed` has a `traceback`."""

    outcome: WorkerOutcome
    t_ns: Nanoseconds
    reason: Sentence | None = None
    traceback: Annotated[str, msgspec.Meta(max_length=MOST_TRACEBACK_CHARS, pattern=_PLAIN)] | None = None
    allocator_peak_bytes: Bytes | None = None


_Finding = Block | Epoch | DataReady | Flops | Calibration | Evidence
Message = Hello | PhaseStarted | EnvironmentInfo | Progress | _Finding | Finished


Decoded = TypeVar("Decoded")
_SHOWN_BYTES = 100
_encoder = msgspec.json.Encoder()
_message_decoder: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Message)
_start_decoder: msgspec.json.Decoder[Start] = msgspec.json.Decoder(Start)
STYLES = re.compile(r"\x1b\[[\d;]*m")
"""What colours a terminal's text."""


def plain(text: str) -> str:
    """Return a text as messages take it: control characters and invalid UTF-8 are replaced."""
    return re.sub(f"[{_CONTROL}\ud800-\udfff]", "\ufffd", text)


def sentence(text: str) -> str:
    """Return a text as a reason: plain, on one line, and no longer than a message takes."""
    return plain(" ".join(filter(None, map(str.strip, text.splitlines())))[:MOST_REASON_CHARS])


def encode(message: msgspec.Struct) -> bytes:
    return _encoder.encode(message) + b"\n"


def decode_message(line: bytes) -> Message:
    """Return the message on one line from a worker; raises `ProtocolError`."""
    return decode(_message_decoder, line, "a message of this protocol")


def decode_start(line: bytes) -> Start:
    """Return the order on a worker's first stdin line; raises `ProtocolError`, also for another protocol version."""
    start = decode(_start_decoder, line, "a start order")
    if start.protocol != PROTOCOL_VERSION:
        raise ProtocolError(f"the program speaks protocol {start.protocol}, this worker {PROTOCOL_VERSION}")
    return start


def decode(decoder: "msgspec.json.Decoder[Decoded]", line: bytes, what: str) -> Decoded:
    """Return the message on a line; `what` names the expected message in the error.

    Raises:
        ProtocolError: The line has another form.
    """
    if len(line) >= MOST_MESSAGE_BYTES:
        raise ProtocolError(
            f"not {what}, because it has more than {MOST_MESSAGE_BYTES // 2**20} MiB: {line[:_SHOWN_BYTES]!r}"
        )
    try:
        return decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(f"not {what} ({str(error)[:200]}): {line[:_SHOWN_BYTES]!r}") from None
