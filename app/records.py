"""The frozen values shared by all of the program: telemetry, run events, and what the database gives back."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from workloads.catalog import Machine
from workloads.protocol import (
    Block,
    Calibration,
    DataReady,
    Epoch,
    Evidence,
    Facts,
    Flops,
    OutcomeName,
    PhaseName,
    PhaseStarted,
    Progress,
    RunSpec,
)

HOST = "host"
"""The device id of the host itself; a GPU's is its UUID."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class FieldFacts(msgspec.Struct, frozen=True, kw_only=True):
    """How one field of a device is read: its unit, what one read costs, and how often the value is renewed.

    `cost_us` is the median of a few reads at the start (of a whole call where one call gives several fields);
    `period_ms` is found by watching the value change, None until it was seen to.
    """

    unit: str
    cost_us: float | None = None
    period_ms: float | None = None


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """One thing telemetry can read: a GPU (`device` is its UUID) or the host (`device` is `HOST`, `index` is -1).

    `fields` are those it gives; `absent` those it does not, with the reason (`not supported`, `no permission`, `lost`).
    """

    device: str
    kind: Literal["gpu", "host"]
    index: int
    name: str
    memory_total_bytes: int | None = None
    fields: dict[str, FieldFacts] = {}
    absent: dict[str, str] = {}


class Sample(msgspec.Struct, frozen=True, kw_only=True, tag="sample", tag_field="type"):
    """Cheap telemetry of one device at one time, stamped at the source; None is "this device does not say".

    On a GPU `power_mw` is instantaneous where the driver has that, `power_average_mw` the driver's one-second average,
    `memory_load_pct` the share of time memory was read or written, `memory_bytes` what programs hold (the driver's own
    reserve is in `SlowSample`), `throttle_reasons` NVML's bit mask of clock event reasons.
    On the host `load_pct` is CPU load over all processors, `power_mw` the processor packages' (RAPL), `memory_bytes`
    memory in use, and `worker_load_pct` (100 is one whole processor) and `worker_memory_bytes` (resident) are the
    worker's own.
    """

    t_ns: int
    device: str
    power_mw: int | None = None
    load_pct: float | None = None
    memory_bytes: int | None = None
    temperature_c: int | None = None
    sm_clock_mhz: int | None = None
    power_limit_mw: int | None = None
    worker_load_pct: float | None = None
    worker_memory_bytes: int | None = None
    power_average_mw: int | None = None
    memory_load_pct: float | None = None
    memory_clock_mhz: int | None = None
    throttle_reasons: int | None = None


class SlowSample(msgspec.Struct, frozen=True, kw_only=True, tag="slow_sample", tag_field="type"):
    """Dear or slowly changing telemetry of one device at one time; None is "not said" or "not read this time".

    `energy_mj` and the `throttled_*_ns` are counters since the driver was loaded; `pcie_*` and `nvlink_*` are bytes a
    second over the time since the reading before; the percentages from `sm_active_pct` on are GPM metrics (Hopper and
    newer) over that time. On the host `sampler_cpu_s` is the processor time the sampler itself has used.
    """

    t_ns: int
    device: str
    energy_mj: int | None = None
    memory_reserved_bytes: int | None = None
    memory_temperature_c: int | None = None
    fan_pct: int | None = None
    throttled_power_ns: int | None = None
    throttled_thermal_ns: int | None = None
    throttled_brake_ns: int | None = None
    pcie_tx_bytes_per_s: float | None = None
    pcie_rx_bytes_per_s: float | None = None
    nvlink_tx_bytes_per_s: float | None = None
    nvlink_rx_bytes_per_s: float | None = None
    sm_active_pct: float | None = None
    sm_occupancy_pct: float | None = None
    tensor_active_pct: float | None = None
    fp32_active_pct: float | None = None
    fp16_active_pct: float | None = None
    dram_active_pct: float | None = None
    sampler_cpu_s: float | None = None


class GpuProcess(msgspec.Struct, frozen=True, kw_only=True):
    """A process that uses a GPU; its memory is None where the driver does not tell this user."""

    pid: int
    name: str
    memory_bytes: int | None = None


class Processes(msgspec.Struct, frozen=True, kw_only=True, tag="processes", tag_field="type"):
    """Who uses a GPU now."""

    t_ns: int
    device: str
    processes: tuple[GpuProcess, ...]


class FieldsSeen(msgspec.Struct, frozen=True, kw_only=True, tag="fields_seen", tag_field="type"):
    """What watching has taught about a device's fields since the inventory: mostly how often they are renewed."""

    device: str
    fields: dict[str, FieldFacts]


class Inventory(msgspec.Struct, frozen=True, kw_only=True, tag="inventory", tag_field="type"):
    """What is here: the machine variants are checked against, every device, the driver, or why there is no GPU."""

    machine: Machine
    devices: tuple[Device, ...]
    driver: str | None = None
    cuda_driver: str | None = None
    no_gpu_reason: str | None = None


class DeviceLost(msgspec.Struct, frozen=True, kw_only=True, tag="device_lost", tag_field="type"):
    """A device stopped answering; its samples end here."""

    t_ns: int
    device: str
    reason: str


SAMPLE_FIELDS: tuple[str, ...] = tuple(name for name in Sample.__struct_fields__ if name not in ("t_ns", "device"))
SLOW_FIELDS: tuple[str, ...] = tuple(name for name in SlowSample.__struct_fields__ if name not in ("t_ns", "device"))


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
    | Facts
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
    | FieldsSeen
    | RunEnded
)
"""What a session hands to its sinks, in the order of one clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The figures of one run, over its `measure` phase; None is "not measured".

    `blocks` count; the `blocks_cut` before them were still a warm-up (`app.analysis.warmup`), None in runs older than
    that rule, where every measured block counts. Throughput is examples/s over the blocks that count; step times are of
    one step in milliseconds; power and energy are summed over the run's GPUs; `energy_error_pct` bounds the error of
    the energy from the edges of its window. `device_peak_bytes` is the highest memory use NVML (or psutil) saw on one
    of its devices, `allocator_peak_bytes` TensorFlow's own peak. `sample_hz` to `sampler_cpu_pct` are the telemetry's
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
    """One device's samples of a run: `t_ns` and, per field of `SAMPLE_FIELDS`, values with NaN where absent.

    `slow_t_ns` and `slow` are the same of its slow samples and `SLOW_FIELDS`; `lost_t_ns` is when it stopped answering.
    """

    device: Device
    t_ns: Ints
    fields: Mapping[str, Floats]
    slow_t_ns: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    slow: Mapping[str, Floats] = field(default_factory=dict)
    lost_t_ns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Portability:
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
    portability: tuple[Portability, ...] = ()
    epochs: tuple[Epoch, ...] = ()

    @property
    def measure_start_ns(self) -> int | None:
        """When `measure` began, the zero of every comparison."""
        return next((phase.start_ns for phase in self.phases if phase.name == "measure"), None)
