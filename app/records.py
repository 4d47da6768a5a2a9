"""The frozen values shared by all of the program: telemetry, run events, and what the database gives back."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from workloads.catalog import Machine
from workloads.protocol import Block, Facts, OutcomeName, PhaseName, PhaseStarted, Progress, RunSpec

HOST = "host"
"""The device id of the host itself; a GPU's is its UUID."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """One thing telemetry can read: a GPU (`device` is its UUID) or the host (`device` is `HOST`, `index` is -1).

    `cuda` is the GPU's compute capability as "9.0"; `absent` names fields that the device cannot give, with the reason.
    """

    device: str
    kind: Literal["gpu", "host"]
    index: int
    name: str
    memory_total_bytes: int | None = None
    absent: dict[str, str] = {}


class Sample(msgspec.Struct, frozen=True, kw_only=True, tag="sample", tag_field="type"):
    """Telemetry of one device at one time, stamped at the source; None is "this device does not say".

    On the host `load_pct` is CPU load over all processors, `memory_bytes` memory in use, and `worker_load_pct` (100 is
    one whole processor) and `worker_memory_bytes` (resident) are the worker's own.
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


class Inventory(msgspec.Struct, frozen=True, kw_only=True, tag="inventory", tag_field="type"):
    """What is here: the machine variants are checked against, every device, the driver, and why there is no GPU if so."""

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


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of the worker's stderr (its stdout too)."""

    t_ns: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a run ended: formed from the worker's last message and its exit code.

    `reason` is one plain sentence (None only for completed), `detail` a traceback or the like, `ended_by` the rung of the
    ladder that ended the process (`itself`, `closed stdin`, `terminated`, `killed`).
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


RunEvent = RunStarted | Waiting | PhaseStarted | Facts | Progress | Block | LogLine | Sample | DeviceLost | RunEnded
"""What a session hands to its sinks, in the order of one clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The figures of one run, over its `measure` phase; None is "not measured".

    Throughput is examples/s over the measured blocks; step times are of one step in milliseconds; power and energy are
    summed over the run's GPUs; `device_peak_bytes` is the highest memory use NVML (or psutil) saw on one of its devices,
    `allocator_peak_bytes` TensorFlow's own peak.
    """

    throughput: float | None = None
    blocks: int = 0
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
    device_peak_bytes: int | None = None
    allocator_peak_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """One stored run as a list shows it. `outcome` is None while it runs; `uid` is the same in every database."""

    run: int
    uid: str
    started_utc_ns: int
    ended_utc_ns: int | None
    spec: RunSpec
    outcome: Outcome | None
    summary: Summary
    gpu_names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Phase:
    """One phase of a run; `end_ns` is None while it lasts."""

    name: PhaseName
    start_ns: int
    end_ns: int | None


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

    @property
    def throughput(self) -> Floats:
        """Examples/s of each block."""
        return np.asarray(self.examples / ((self.end_ns - self.start_ns) / 1e9), dtype=np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleColumns:
    """One device's samples of a run: `t_ns` and, per field of `SAMPLE_FIELDS`, values with NaN where absent."""

    device: Device
    t_ns: Ints
    fields: Mapping[str, Floats]


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

    @property
    def measure_start_ns(self) -> int | None:
        """When `measure` began, the zero of every comparison."""
        return next((phase.start_ns for phase in self.phases if phase.name == "measure"), None)
