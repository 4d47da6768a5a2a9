"""Immutable records of stored runs, shared by the whole program."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from app.values.events import Outcome, Summary
from app.values.samples import Device, LogLine
from workloads.protocol import Epoch, Evidence, EvidenceState, PhaseName, RunSpec, Variant

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
REFERENCE_TAG = "reference"
"""The tag of every run that comes with the program."""


def worst_state(states: Iterable[EvidenceState]) -> EvidenceState | None:
    return min(states, key=get_args(EvidenceState).index, default=None)


def match_of(state: EvidenceState | None) -> bool | None:
    """Return whether all ran as requested, by what was verified; None if unknown."""
    return state == "verified" if state in ("verified", "mismatch") else None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """A stored run's row in a list.

    Attributes:
        run: Its number in this database.
        uid: The same in every database.
        ended_utc_ns: None while it runs, like `outcome`.
        spec: What ran, complete.
        evidence_state: How much of the request its evidence verified; None without evidence.
        evidence_reason: Why it did not verify everything.
        purpose: Its purpose, unless it ran for its own sake.
        planned: How many repeats its experiment planned (`PLANNED_KEY`); None for a manual run, or before 0.3.
        deleted_utc_ns: When it was moved to the trash; None if not there.
        host: The user's name for its host; None for the program's own machine.
        gpus: UUIDs of its GPUs.
        framework: What trained it, as settings name it; "" for a script that told none.
    """

    run: int
    uid: str
    started_utc_ns: int
    ended_utc_ns: int | None
    spec: RunSpec
    outcome: Outcome | None
    summary: Summary
    gpu_names: tuple[str, ...] = ()
    evidence_state: EvidenceState | None = None
    evidence_reason: str | None = None
    purpose: str | None = None
    planned: str | None = None
    note: str = ""
    tags: tuple[str, ...] = ()
    experiments: tuple[int, ...] = ()
    deleted_utc_ns: int | None = None
    host: str | None = None
    gpus: tuple[str, ...] = ()
    framework: str = ""

    @property
    def completed(self) -> bool:
        return self.outcome is not None and self.outcome.name == "completed"

    @property
    def is_reference(self) -> bool:
        return REFERENCE_TAG in self.tags


@dataclass(frozen=True, slots=True)
class Phase:
    """One phase of a run; `end_ns` is None while it lasts.

    `energy_mj` is the total of the run's GPUs, None if not measured; `energy_error_mj` bounds its error.
    """

    name: PhaseName
    start_ns: int
    end_ns: int | None
    energy_mj: float | None = None
    energy_error_mj: float | None = None

    @property
    def seconds(self) -> float | None:
        return None if self.end_ns is None else (self.end_ns - self.start_ns) / 1e9

    @property
    def mean_power_mw(self) -> float | None:
        return self.energy_mj / self.seconds if self.energy_mj is not None and self.seconds else None


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockColumns:
    """All blocks of a run as columns of one length, in time order; `loss` is NaN in inference.

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
        return np.asarray(self.examples / ((self.end_ns - self.start_ns) / 1e9), dtype=np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleColumns:
    """One device's samples of a run: `t_ns` and, per field of `FAST_FIELDS`, values with NaN where absent.

    `slow_t_ns` and `slow` are the same of its slow samples and `SLOW_FIELDS`; `lost_t_ns` is when it first stopped
    answering, `device.lost` why.
    """

    device: Device
    t_ns: Ints
    fields: Mapping[str, Floats]
    slow_t_ns: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    slow: Mapping[str, Floats] = field(default_factory=dict)
    lost_t_ns: int | None = None

    def readings(self, name: str) -> tuple[Ints, Floats]:
        """Return the times and values of a field, of the fast or slow samples, NaN where one has none."""
        is_fast = name in self.fields
        return (self.t_ns, self.fields[name]) if is_fast else (self.slow_t_ns, self.slow.get(name, np.zeros(0)))

    def present(self, name: str) -> tuple[Ints, Ints, Floats]:
        """Return which fast or slow samples have a value of a field, their times and the values."""
        t_ns, values = self.readings(name)
        readings = np.flatnonzero(np.isfinite(values))
        return readings, t_ns[readings], values[readings]


@dataclass(frozen=True, slots=True, kw_only=True)
class PortabilityResult:
    """The result of one weight transfer: the same inputs through another implementation, on another device.

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
class EqualityCheck:
    """Relative differences of loss (None in inference) and, the largest, of a gradient or output, to another variant's.

    `baseline` is that variant, of the same workload; `reason` is why they were not compared.
    """

    utc_ns: int
    baseline: Variant
    loss_difference: float | None = None
    difference: float | None = None
    tensor: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunHeader:
    """A stored run without its measurements, as experiments need it. `gpu_uuids` are the GPUs it used."""

    row: RunRow
    environment: Mapping[str, str] = field(default_factory=dict)
    gpu_uuids: frozenset[str] = frozenset()
    portability: tuple[PortabilityResult, ...] = ()
    equality: tuple[EqualityCheck, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRun:
    """Everything that the database holds about one run; `boot_id` is of the machine's boot in which it ran."""

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
    equality: tuple[EqualityCheck, ...] = ()
    epochs: tuple[Epoch, ...] = ()
    boot_id: str = ""

    @property
    def measure_start_ns(self) -> int | None:
        """When its `measure` phase began, the time 0 of comparisons; None if it never did."""
        return next((phase.start_ns for phase in self.phases if phase.name == "measure"), None)
