"""Immutable records of runs shared by the whole program: events, stored data, and the keys of a run's environment."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from app.fields import Sample, SlowSample
from app.samples import Device, DeviceLost, FieldsUpdated
from workloads.protocol import (
    Block,
    Calibration,
    DataReady,
    EnvironmentInfo,
    Epoch,
    Evidence,
    Flops,
    OutcomeName,
    PhaseName,
    PhaseStarted,
    Progress,
    RunSpec,
)

OTHERS_ON_GPU_KEY = "others_on_gpu"
"""The fact in a run's environment that says who else used its GPUs; absent where nobody was seen."""

GPUS_USED_KEY = "gpus_used"
"""The fact that names the GPUs that a run used."""

CONCURRENT_GPUS_KEY = "beside"
"""The fact that names the other GPUs on which runs of the same experiment went on meanwhile; absent where none did."""

IDLE_WAIT_KEY = "gate"
"""The fact that says how long an experiment waited before the run, and for what in vain."""

HOST_LOAD_KEY = "host_load_pct"
"""The fact that says the load of all processors just before the run."""

THROTTLED_KEY = "throttled_pct"
"""The fact that says for how much of its measured part the run was throttled; absent where it was not."""

CUSTOM_SOURCE_KEY = "own_source"
"""The whole text of the file that a user's own workload is in: so it travels with its runs."""

CUSTOM_PATH_KEY = "own_path"
"""Where that file lay."""

PER_RUN_KEYS = frozenset(
    {
        OTHERS_ON_GPU_KEY,
        CONCURRENT_GPUS_KEY,
        IDLE_WAIT_KEY,
        HOST_LOAD_KEY,
        THROTTLED_KEY,
        CUSTOM_SOURCE_KEY,
        CUSTOM_PATH_KEY,
    }
)
"""Facts of one run and not of its machine: that they differ between runs is no difference of environments."""


Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of the worker's stderr (its stdout too)."""

    t_ns: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a run ended: formed from the worker's last message and its exit code.

    `reason` is one plain sentence (None only for completed), `detail` a traceback or the like, `ended_by` the rung of
    the ladder that ended the process (`itself`, `closed stdin`, `terminated`, `killed`).
    """

    name: OutcomeName
    reason: str | None = None
    detail: str | None = None
    exit_code: int | None = None
    ended_by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted:
    """First event of a run: `run` is its number in the database; `t_ns` and `utc_ns` are one moment on both clocks."""

    run: int
    spec: RunSpec
    t_ns: int
    utc_ns: int
    devices: tuple[Device, ...]


@dataclass(frozen=True, slots=True)
class Waiting:
    """The run waits before its worker starts (a GPU is leased elsewhere); `reason` is one sentence."""

    t_ns: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnded:
    """Last event of a run."""

    run: int
    t_ns: int
    outcome: Outcome
    summary: "Summary"


RunEvent = (
    RunStarted
    | Waiting
    | PhaseStarted
    | EnvironmentInfo
    | Progress
    | Block
    | Epoch
    | DataReady
    | Flops
    | Calibration
    | Evidence
    | LogLine
    | Sample
    | SlowSample
    | DeviceLost
    | FieldsUpdated
    | RunEnded
)
"""What a session hands to its sinks, in the order of one clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The figures of one run, over its `measure` phase; None is "not measured".

    `blocks` count; the `blocks_cut` before them were still a warm-up (`app.analysis.summary`), None in runs older than
    that rule, where every measured block counts. Throughput is examples/s over the blocks that count; step times are of
    one step in milliseconds; power and energy are summed over the run's GPUs; `energy_error_pct` bounds the error of
    the energy from the edges of its window. `device_peak_bytes` is the highest memory use NVML (or psutil) saw on one
    of its devices, `allocator_peak_bytes` its allocator's peak. `sample_hz` to `sampler_cpu_pct` are the telemetry's
    audit of itself over the whole run: the rate achieved, how far readings were from their time, readings missed, and
    the sampler's own processor time in percent of one processor. `flops_per_step` is by formula, over all replicas;
    `peak_flops_per_s` is the calibrated rate of a matrix product in the run's precision, over its devices together.
    `ready_step_ms` is a step whose data were on the devices already, `waiting_pct` what measured steps took beyond
    that, in percent of the measured time: both are known where data come from the host.
    """

    throughput: float | None = None
    blocks: int = 0
    blocks_cut: int | None = None
    measured_steps: int = 0
    measured_examples: int = 0
    measured_s: float | None = None
    step_ms_p50: float | None = None
    step_ms_p95: float | None = None
    step_ms_p99: float | None = None
    loss_first: float | None = None
    loss_last: float | None = None
    compile_s: float | None = None
    mean_power_mw: float | None = None
    energy_mj_per_example: float | None = None
    energy_source: str | None = None
    energy_error_pct: float | None = None
    device_peak_bytes: int | None = None
    allocator_peak_bytes: int | None = None
    sample_hz: float | None = None
    sample_jitter_ms_p50: float | None = None
    sample_jitter_ms_p99: float | None = None
    samples_missed: int | None = None
    sampler_cpu_pct: float | None = None
    flops_per_step: int | None = None
    peak_flops_per_s: float | None = None
    ready_step_ms: float | None = None
    waiting_pct: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """One stored run as a list shows it. `outcome` is None while it runs; `uid` is the same in every database.

    `match` is the evidence's: whether what ran is what was asked, None where not known, `mismatch_reason` why it is not
    true, `has_evidence` whether it was looked for. `purpose` is what it was made for if not for its own sake.
    """

    run: int
    uid: str
    started_utc_ns: int
    ended_utc_ns: int | None
    spec: RunSpec
    outcome: Outcome | None
    summary: Summary
    gpu_names: tuple[str, ...] = ()
    match: bool | None = None
    mismatch_reason: str | None = None
    has_evidence: bool = False
    purpose: str | None = None
    note: str = ""
    tags: tuple[str, ...] = ()
    experiments: tuple[int, ...] = ()
    deleted_utc_ns: int | None = None

    @property
    def completed(self) -> bool:
        """Whether it ended as it was meant to."""
        return self.outcome is not None and self.outcome.name == "completed"


@dataclass(frozen=True, slots=True)
class Phase:
    """One phase of a run; `end_ns` is None while it lasts.

    `energy_mj` is that of the run's GPUs together, None where it could not be had; `energy_error_mj` bounds its error.
    """

    name: PhaseName
    start_ns: int
    end_ns: int | None
    energy_mj: float | None = None
    energy_error_mj: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockColumns:
    """All blocks of a run as columns of one length, in time order; `loss` is NaN where there is none.

    `measured` is true for blocks of the `measure` phase.
    """

    first_step: Ints
    steps: Ints
    examples: Ints
    start_ns: Ints
    end_ns: Ints
    loss: Floats
    measured: NDArray[np.bool_]
    allocator_bytes: Floats = field(default_factory=lambda: np.zeros(0))

    @property
    def throughput(self) -> Floats:
        """Examples/s of each block."""
        return np.asarray(self.examples / ((self.end_ns - self.start_ns) / 1e9), dtype=np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleColumns:
    """One device's samples of a run: `t_ns` and, per field of `FAST_FIELDS`, values with NaN where absent.

    `slow_t_ns` and `slow` are the same of its slow samples and `SLOW_FIELDS`; `lost_t_ns` is when it stopped answering.
    """

    device: Device
    t_ns: Ints
    fields: Mapping[str, Floats]
    slow_t_ns: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    slow: Mapping[str, Floats] = field(default_factory=dict)
    lost_t_ns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PortabilityResult:
    """What one run's saved weights gave elsewhere: the same inputs through another implementation on another device.

    `device` is `cpu` or a GPU's UUID; `max_difference` is the largest absolute difference of an output to the trained
    model's own, `max_output` the largest absolute output of that.
    """

    utc_ns: int
    implementation: str
    device: str
    device_name: str
    precision: str
    max_difference: float
    max_output: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunHeader:
    """A stored run without its measurements: what experiments and articles count, judge and compare it by.

    `gpu_uuids` are the GPUs it used.
    """

    row: RunRow
    environment: Mapping[str, str] = field(default_factory=dict)
    gpu_uuids: frozenset[str] = frozenset()
    portability: tuple[PortabilityResult, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRun:
    """Everything the database holds of one run."""

    row: RunRow
    anchor_t_ns: int
    anchor_utc_ns: int
    phases: tuple[Phase, ...]
    blocks: BlockColumns
    samples: tuple[SampleColumns, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    log: tuple[LogLine, ...] = ()
    evidence: Evidence | None = None
    portability: tuple[PortabilityResult, ...] = ()
    epochs: tuple[Epoch, ...] = ()

    @property
    def header(self) -> RunHeader:
        """The run without its measurements."""
        gpus = (columns.device for columns in self.samples if columns.device.kind == "gpu")
        return RunHeader(
            row=self.row,
            environment=self.environment,
            gpu_uuids=frozenset(gpu.device for gpu in gpus),
            portability=self.portability,
        )

    @property
    def measure_start_ns(self) -> int | None:
        """When `measure` began, the zero of every comparison."""
        return next((phase.start_ns for phase in self.phases if phase.name == "measure"), None)
