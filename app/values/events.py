"""The events of a run, from `RunStarted` to `RunEnded`, which all consumers of a run receive."""

from dataclasses import dataclass

import msgspec

from app.values.fields import Sample, SlowSample
from app.values.limits import Integer, Nanoseconds
from app.values.samples import Device, DeviceLost, FieldsUpdated, LogLine, TelemetryGap, Waiting
from workloads.protocol import (
    TAG,
    Block,
    Calibration,
    DataReady,
    EnvironmentInfo,
    Epoch,
    Evidence,
    Flops,
    OutcomeName,
    PhaseStarted,
    Progress,
    RunSpec,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a run ended.

    Attributes:
        name: The outcome.
        reason: One sentence; None only for `completed`.
        detail: For example a traceback.
        exit_code: Exit status of the worker; a negative one is a signal.
        ended_by: The last step that was needed to end the worker: `itself`, `closed stdin`, `terminated`, `killed`.
    """

    name: OutcomeName
    reason: str | None = None
    detail: str | None = None
    exit_code: Integer | None = None
    ended_by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The figures of one run's `measure` phase; None means "not measured".

    Attributes:
        throughput: Examples per second over the blocks that count.
        blocks: Number of blocks that count.
        blocks_cut: Measured blocks before them that were still a warm-up (`app.analysis.summary`); None in runs older
            than that rule, where every measured block counts.
        step_ms_p50: Percentiles of the time of one step, in milliseconds.
        mean_power_mw: Power, like energy, is summed over the run's GPUs.
        energy_error_pct: Bound of the energy's error, from the edges of its window.
        device_peak_bytes: Highest memory use that NVML (or psutil) saw on one of its devices.
        allocator_peak_bytes: Highest memory use of the framework's allocator.
        sample_hz: The achieved rate of telemetry over the whole run.
        sample_jitter_ms_p50: The deviation of readings from their schedule.
        samples_missed: Readings that were missed.
        sampler_cpu_pct: The sampler's processor time, in percent of one processor.
        flops_per_step: Operations of one step by formula, over all replicas.
        peak_flops_per_s: Calibrated rate of a matrix product in the run's precision, summed over its devices.
        ready_step_ms: Time of a step whose data were already on the devices; known if data come from the host.
        waiting_pct: The measured steps' time beyond that, in percent of the measured time.
        gpu_step_ms: Time in which kernels ran in a traced step, averaged over GPUs, `without_waits`; None on the CPU.
        occupancy_pct: Share of a GPU's warp slots that its kernels can fill, weighted by time.
    """

    throughput: float | None = None
    blocks: Integer = 0
    blocks_cut: Integer | None = None
    measured_steps: Integer = 0
    measured_examples: Integer = 0
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
    device_peak_bytes: Integer | None = None
    allocator_peak_bytes: Integer | None = None
    sample_hz: float | None = None
    sample_jitter_ms_p50: float | None = None
    sample_jitter_ms_p99: float | None = None
    samples_missed: Integer | None = None
    sampler_cpu_pct: float | None = None
    flops_per_step: Integer | None = None
    peak_flops_per_s: float | None = None
    ready_step_ms: float | None = None
    waiting_pct: float | None = None
    gpu_step_ms: float | None = None
    occupancy_pct: float | None = None


class RunStarted(msgspec.Struct, frozen=True, kw_only=True, tag="run_started", tag_field=TAG):
    """First event of a run.

    Attributes:
        run: Its number in the database; 0 until it has one.
        uid: Its id in all databases.
        spec: What runs.
        t_ns: Its start on its host's monotonic clock.
        utc_ns: The same moment on the wall clock.
        devices: Its GPUs and the host.
        environment: Its environment as known before its worker starts.
        purpose: Its purpose, unless it runs for its own sake.
    """

    run: Integer = 0
    uid: str = ""
    spec: RunSpec
    t_ns: Nanoseconds
    utc_ns: Nanoseconds
    devices: tuple[Device, ...]
    environment: dict[str, str] = {}
    purpose: str | None = None


class RunEnded(msgspec.Struct, frozen=True, kw_only=True, tag="run_ended", tag_field=TAG):
    """Last event of a run.

    Its summary has only what the worker alone knows (`allocator_peak_bytes`); the rest is computed from the stored
    events.
    """

    run: Integer = 0
    t_ns: Nanoseconds
    outcome: Outcome
    summary: Summary = Summary()


TelemetryEvent = Sample | SlowSample | DeviceLost | FieldsUpdated | TelemetryGap
"""The telemetry events of a run; all others are the worker's or the session's."""

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
    | TelemetryEvent
    | RunEnded
)
"""The events that a session passes to its sinks, in the order of one clock."""
