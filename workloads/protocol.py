"""The messages between the program and a worker: msgspec structs, one JSON object a line, both ways.

Down the worker's stdin goes one `Start`; closing stdin afterwards means "stop". Up a pipe of its own come `Hello`, then
any number of `PhaseStarted`, `Facts`, `Progress`, `Block`, `Epoch`, `DataReady`, `Flops`, `Calibration` and at most one
`Evidence`, then exactly one `Finished`.
All `t_ns` are `time.monotonic_ns()` of the worker's host; `Hello` ties that clock to the wall clock once.

Small jobs beside runs go to a process of another kind: one `Errand` down, one `Answer` up.
"""

import hashlib
from typing import Literal, TypeVar

import msgspec

PROTOCOL_VERSION = 3

STANDBY = "standby"
"""What a worker is told on its command line to import TensorFlow before it says `Hello`, its order not known yet."""

_TAG = "type"

Value = bool | int | float | str
Variant = dict[str, Value]

PhaseName = Literal["import", "build", "compile", "warmup", "measure", "evidence", "finish"]
TimedPhase = Literal["compile", "warmup", "measure"]
OutcomeName = Literal["completed", "stopped", "out_of_memory", "failed", "crashed", "refused"]
WorkerOutcome = Literal["completed", "stopped", "out_of_memory", "failed", "refused"]
KernelClass = Literal["gemm", "convolution", "rnn", "pointwise", "transpose", "copy", "communication", "other"]


class ProtocolError(Exception):
    """A line that is no message of this protocol."""


class RunSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to run: a workload and one full choice of its parameters."""

    workload: str
    variant: Variant


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """A user's file with workloads in it: its whole text, and where it lay, for its errors and for data beside it."""

    path: str
    text: str

    @property
    def sha256(self) -> str:
        """Tells one state of the file from all others, wherever it lies."""
        return hashlib.sha256(self.text.encode()).hexdigest()


class Start(msgspec.Struct, frozen=True, kw_only=True, tag="start", tag_field=_TAG):
    """The only message down: run this, on these GPUs (by UUID, in replica order; empty is the CPU).

    `weights_path` is where a run that saves its weights puts them, on the worker's own host; `calibrate` asks for a
    matrix-product calibration of the first device after the measured part; `source` holds a user's own workload.
    """

    protocol: int
    spec: RunSpec
    gpu_uuids: tuple[str, ...] = ()
    weights_path: str | None = None
    calibrate: bool = False
    source: Source | None = None


class Hello(msgspec.Struct, frozen=True, kw_only=True, tag="hello", tag_field=_TAG):
    """The worker lives and has claimed the pipe; `utc_ns` is the wall clock at `t_ns`."""

    protocol: int
    pid: int
    t_ns: int
    utc_ns: int


class PhaseStarted(msgspec.Struct, frozen=True, kw_only=True, tag="phase", tag_field=_TAG):
    """A phase begins, and the one before it ends."""

    phase: PhaseName
    t_ns: int


class EnvironmentInfo(msgspec.Struct, frozen=True, kw_only=True, tag="facts", tag_field=_TAG):
    """Facts of the environment as the worker sees them, e.g. `{"tensorflow": "2.21.0"}`; later add to earlier ones."""

    facts: dict[str, str]


class Progress(msgspec.Struct, frozen=True, kw_only=True, tag="progress", tag_field=_TAG):
    """How much of a phase is done, from 0 to 1."""

    phase: PhaseName
    fraction: float
    t_ns: int


class Block(msgspec.Struct, frozen=True, kw_only=True, tag="block", tag_field=_TAG):
    """A few steps timed together between two device synchronisations.

    `first_step` counts from 0 over the whole run (compile and warm-up steps included); `examples` is over all replicas;
    `loss` is that of the block's last step (None in inference); `allocator_bytes` is what TensorFlow's allocator holds
    on the first device after the block (None on the CPU), read outside the timed part.
    """

    phase: TimedPhase
    first_step: int
    steps: int
    examples: int
    start_ns: int
    end_ns: int
    loss: float | None = None
    allocator_bytes: int | None = None


class Epoch(msgspec.Struct, frozen=True, kw_only=True, tag="epoch", tag_field=_TAG):
    """One pass over the training data, the first is 1, and what was learnt by its end.

    It was trained from `start_ns` to `end_ns`, and tried on other data until `tested_ns`; `examples` is over all
    replicas, `loss` that of its last step, `accuracy` the share of the other data's examples that were classed rightly.
    """

    epoch: int
    steps: int
    examples: int
    start_ns: int
    end_ns: int
    tested_ns: int
    loss: float | None
    accuracy: float


class DataReady(msgspec.Struct, frozen=True, kw_only=True, tag="data_ready", tag_field=_TAG):
    """How long steps took, after the measured part, whose data were on the devices already.

    Told where data come from the host; what measured steps took beyond that they waited for data.
    """

    steps: int
    time_ns: int


class Flops(msgspec.Struct, frozen=True, kw_only=True, tag="flops", tag_field=_TAG):
    """The floating-point operations of one step over all replicas, by formula (a multiply-add is two)."""

    per_step: int


class Calibration(msgspec.Struct, frozen=True, kw_only=True, tag="calibration", tag_field=_TAG):
    """The rate of a large square matrix product on one device: the ceiling that utilisation is measured against.

    `device` is a GPU's UUID or `cpu`; the product is `size` x `size` x `size` in the variant's precision.
    """

    device: str
    precision: str
    size: int
    flops_per_s: float


class Kernel(msgspec.Struct, frozen=True, kw_only=True):
    """One kernel (on the CPU one op) of the traced steps by name: how often it ran, and its time over all devices.

    `tensor_cores` says whether its products were computed on them: None where the name does not tell, or it has none.
    """

    name: str
    kind: KernelClass
    count: int
    time_ns: int
    tensor_cores: bool | None = None


class DeviceTime(msgspec.Struct, frozen=True, kw_only=True):
    """Where one device's time went in the traced steps; `device` is as TensorFlow numbers it, `GPU:0`.

    `span_ns` is from its first kernel's start to its last one's end, `busy_ns` the part of it in which a kernel ran,
    `compute_ns` the part in which one ran that does not communicate; `communication_ns` is the part in which one ran
    that does, hidden behind computing or not. `kernels` is how many ran.
    """

    device: str
    span_ns: int
    busy_ns: int
    compute_ns: int
    communication_ns: int
    kernels: int


class Evidence(msgspec.Struct, frozen=True, kw_only=True, tag="evidence", tag_field=_TAG):
    """What really ran, beside what was asked, aspect by aspect (`implementation`, `precision`, `xla`, `layout` …).

    An aspect that could not be told is not in `ran`; `match` is None where nothing contradicts but something could not
    be told, and `reason` is one plain sentence where it is not true. `sources` are `graph` (the executed partition
    graph), `trace` (the profiler's) and `hlo` (XLA's optimised program); `notes` say what could not be seen and why.
    Of the `steps` traced after the measured part: `span_ns` is their time and `busy_ns` the part of it in which a
    kernel ran, both summed over the devices, and `devices` has each one's own; `kernels` has the one that took longest
    first.
    """

    asked: dict[str, str]
    ran: dict[str, str]
    match: bool | None
    reason: str | None = None
    sources: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    steps: int = 0
    span_ns: int = 0
    busy_ns: int = 0
    kernels: tuple[Kernel, ...] = ()
    devices: tuple[DeviceTime, ...] = ()


class Finished(msgspec.Struct, frozen=True, kw_only=True, tag="finished", tag_field=_TAG):
    """The worker's last word. `reason` is one plain sentence; `traceback` only for `failed`."""

    outcome: WorkerOutcome
    t_ns: int
    reason: str | None = None
    traceback: str | None = None
    allocator_peak_bytes: int | None = None


Message = (
    Hello
    | PhaseStarted
    | EnvironmentInfo
    | Progress
    | Block
    | Epoch
    | DataReady
    | Flops
    | Calibration
    | Evidence
    | Finished
)


class TryWeights(msgspec.Struct, frozen=True, kw_only=True, tag="try_weights", tag_field=_TAG):
    """The errand of loading saved weights elsewhere: into `spec`, on these GPUs (none is the CPU).

    `trained` is the variant of the run that saved them.
    """

    weights_path: str
    trained: Variant
    spec: RunSpec
    gpu_uuids: tuple[str, ...] = ()


class ExportModel(msgspec.Struct, frozen=True, kw_only=True, tag="export_model", tag_field=_TAG):
    """The errand of making a plain Keras model of saved weights, at each of these paths: a .keras file or a folder."""

    weights_path: str
    trained: Variant
    model_paths: tuple[str, ...]


class Calibrate(msgspec.Struct, frozen=True, kw_only=True, tag="calibrate", tag_field=_TAG):
    """The job of measuring the matrix-product rate of one GPU, or of the CPU, in a precision."""

    precision: str
    gpu_uuids: tuple[str, ...] = ()


class DescribeFile(msgspec.Struct, frozen=True, kw_only=True, tag="describe", tag_field=_TAG):
    """The errand of reading a user's file: the workload of that name in it, every one where `name` is empty."""

    source: Source
    name: str = ""


CustomParameterKind = Literal["choice", "integer", "number", "switch", "text"]


class CustomParameter(msgspec.Struct, frozen=True, kw_only=True):
    """A parameter of a user's own workload, as its function's signature has it; `choices` where it is a choice."""

    name: str
    kind: CustomParameterKind
    default: Value
    help: str = ""
    choices: tuple[str, ...] = ()


class CustomWorkload(msgspec.Struct, frozen=True, kw_only=True):
    """A function of a user's file that makes a workload; `batch_size` is its default in that function."""

    name: str
    help: str
    batch_size: int
    parameters: tuple[CustomParameter, ...] = ()


class FileDescription(msgspec.Struct, frozen=True, kw_only=True, tag="described", tag_field=_TAG):
    """The workloads of a user's file, in its order, at least one."""

    workloads: tuple[CustomWorkload, ...]


class OutputDifference(msgspec.Struct, frozen=True, kw_only=True, tag="compared", tag_field=_TAG):
    """How a model with the saved weights answers, against the trained model's own answers to the same inputs.

    `max_difference` is the largest absolute difference of an output, `max_output` the largest absolute output of the
    trained model, `tolerance` how large a difference the rounding of its precision explains.
    """

    max_difference: float
    max_output: float
    tolerance: float


class JobFailed(msgspec.Struct, frozen=True, kw_only=True, tag="declined", tag_field=_TAG):
    """Why an errand could not be done, in one plain sentence."""

    reason: str


JobRequest = TryWeights | ExportModel | Calibrate | DescribeFile
JobResult = OutputDifference | Calibration | FileDescription | JobFailed

_Decoded = TypeVar("_Decoded")
_encoder = msgspec.json.Encoder()
_message_decoder: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Message)
_start_decoder: msgspec.json.Decoder[Start] = msgspec.json.Decoder(Start)
_job_request_decoder: msgspec.json.Decoder[JobRequest] = msgspec.json.Decoder(JobRequest)
_job_result_decoder: msgspec.json.Decoder[JobResult] = msgspec.json.Decoder(JobResult)


def encode(message: Message | Start | JobRequest | JobResult) -> bytes:
    """The message as one line, newline included."""
    return _encoder.encode(message) + b"\n"


def decode_message(line: bytes) -> Message:
    """The message on one line from a worker; raises `ProtocolError`."""
    return _decode(_message_decoder, line, "a message of this protocol")


def decode_start(line: bytes) -> Start:
    """The order on a worker's first stdin line; raises `ProtocolError`, also for another protocol version."""
    start = _decode(_start_decoder, line, "a start order")
    if start.protocol != PROTOCOL_VERSION:
        raise ProtocolError(f"the program speaks protocol {start.protocol}, this worker {PROTOCOL_VERSION}")
    return start


def decode_job_request(line: bytes) -> JobRequest:
    """The errand on a process's only stdin line; raises `ProtocolError`."""
    return _decode(_job_request_decoder, line, "an errand")


def decode_job_result(line: bytes) -> JobResult:
    """The answer to an errand; raises `ProtocolError`."""
    return _decode(_job_result_decoder, line, "an answer")


def _decode(decoder: "msgspec.json.Decoder[_Decoded]", line: bytes, what: str) -> _Decoded:
    try:
        return decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ProtocolError(f"not {what} ({error}): {line[:200]!r}") from None
