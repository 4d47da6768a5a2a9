"""Read and write measured data: a run's samples, evidence and checks, and device calibrations."""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice

import msgspec
import numpy as np
from sqlite_utils import Database

from app.fields import FAST_FIELDS, SLOW_FIELDS, Sample, SlowSample
from app.records import EqualityCheck, Floats, Ints, PortabilityResult, RunRow, SampleColumns
from app.samples import Device, DeviceLost, FieldsUpdated
from app.storage import rows
from workloads.protocol import Calibration, EnvironmentInfo, Epoch, Evidence, StepKernel, StepTimeline, Stream

_ALL_FIELDS = (*FAST_FIELDS, *SLOW_FIELDS)
_PART_ROWS = 1 << 16


_HOST_LOAD = ("load_pct", "worker_load_pct")
"""Fields of the host that tell of other programs, also next to a run on GPUs."""


def load_samples(db: Database, row: RunRow, fields: Collection[str] | None) -> Iterator[SampleColumns]:
    """Yield the samples of a run, device by device.

    With `fields` only those are read, and only of the devices that it trained on: its GPUs, else the host, and of the
    host next to GPUs only its load. Those that a device is known not to report are not read: that would take as long as
    if they had values. None reads all.
    """
    on_gpus = bool(row.gpu_names) and row.spec.variant.get("gpus") != 0
    for device_id, lost_t_ns, device in _load_devices(db, row.run):
        if fields is None:
            yield _load_columns(db, device_id, device, lost_t_ns, _ALL_FIELDS, _ALL_FIELDS)
            continue
        available = [name for name in fields if not device.fields or name in device.fields]
        if device.kind != ("gpu" if on_gpus else "host"):
            available = [name for name in available if device.kind == "host" and name in _HOST_LOAD]
        yield _load_columns(db, device_id, device, lost_t_ns, fields, available)


def _load_devices(db: Database, run: int) -> Iterable[tuple[int, int | None, Device]]:
    columns = ", ".join(rows.DEVICE_COLUMNS)
    cursor = db.execute(
        f"SELECT device_id, lost_t_ns, lost_reason, {columns} FROM devices WHERE run = ? ORDER BY device_id", (run,)
    )
    return [
        (device_id, lost_t_ns, msgspec.structs.replace(rows.device(values), lost=reason))
        for device_id, lost_t_ns, reason, *values in cursor
    ]


def _load_columns(
    db: Database,
    device_id: int,
    device: Device,
    lost_t_ns: int | None,
    fields: Collection[str],
    available: Collection[str],
) -> SampleColumns:
    """Return one device's samples with `fields`; those not in `available` are NaN."""

    def read(table: str, candidates: Sequence[str]) -> tuple[Ints, dict[str, Floats]]:
        names = [name for name in candidates if name in available]
        t_ns, values = _read_fields(db, table, names, device_id)
        reported = {name: column for name, column in values.items() if not np.isnan(column).all()}
        absent = np.broadcast_to(np.nan, t_ns.shape)  # takes no memory
        return t_ns, {name: reported.get(name, absent) for name in candidates if name in fields}

    t_ns, fast = read("samples", FAST_FIELDS)
    slow_t_ns, slow = read("slow_samples", SLOW_FIELDS)
    return SampleColumns(device=device, t_ns=t_ns, fields=fast, slow_t_ns=slow_t_ns, slow=slow, lost_t_ns=lost_t_ns)


def update_fields(db: Database, run: int, seen: FieldsUpdated) -> None:
    """Store what is known now of a device's fields, in the caller's transaction."""
    db.execute(
        "UPDATE devices SET fields = ?, absent = ? WHERE run = ? AND device = ?",
        (rows.encode_fields(seen.fields), json.dumps(seen.absent), run, seen.device),
    )


def update_environment(db: Database, run: int, info: EnvironmentInfo) -> None:
    """Add values to a run's environment, in the caller's transaction."""
    db.execute(
        "UPDATE runs SET environment = json_patch(environment, ?) WHERE run = ?", (json.dumps(info.environment), run)
    )


def mark_lost(db: Database, run: int, lost: DeviceLost) -> None:
    """Store when and why a device was lost, the first time in a run."""
    db.execute(
        "UPDATE devices SET lost_t_ns = ?, lost_reason = ? WHERE run = ? AND device = ? AND lost_t_ns IS NULL",
        (lost.t_ns, lost.reason, run, lost.device),
    )


def _read_fields(db: Database, table: str, names: Sequence[str], device_id: int) -> tuple[Ints, dict[str, Floats]]:
    """Return times and values of these fields in time order, NULL as NaN; without any field, no times either.

    numpy consumes the rows as they come, which takes half the time of columns of Python numbers, a part of them at a
    time: the rows of hours would take twice the memory of their columns.
    """
    if not names:
        return np.empty(0, dtype=np.int64), {}
    # Samples that a run stores meanwhile are newer, and beyond the limit.
    (size,) = db.execute(f"SELECT count(*) FROM {table} WHERE device_id = ?", (device_id,)).fetchone()
    rows_in_order = db.execute(
        f"SELECT t_ns, {', '.join(names)} FROM {table} WHERE device_id = ? ORDER BY t_ns LIMIT ?", (device_id, size)
    )
    t_ns = np.empty(size, dtype=np.int64)
    columns = {name: np.empty(size) for name in names}
    dtype = [("t_ns", np.int64), *((name, np.float64) for name in names)]
    start = 0
    while (part := np.fromiter(islice(rows_in_order, _PART_ROWS), dtype=dtype)).size:
        end = start + part.size
        t_ns[start:end] = part["t_ns"]
        for name, values in columns.items():
            values[start:end] = part[name]
        start = end
    if start < size:  # another program has just deleted some
        return t_ns[:start].copy(), {name: values[:start].copy() for name, values in columns.items()}
    return t_ns, columns


def insert_samples(db: Database, run: int, fast: Sequence[Sample], slow: Sequence[SlowSample]) -> None:
    """Insert samples of a run's devices, in the caller's transaction."""
    if not fast and not slow:
        return
    ids = dict(db.execute("SELECT device, device_id FROM devices WHERE run = ?", (run,)).fetchall())
    tables: tuple[tuple[str, Sequence[str], Sequence[Sample | SlowSample]], ...] = (
        ("samples", FAST_FIELDS, fast),
        ("slow_samples", SLOW_FIELDS, slow),
    )
    _count_implausible(db, ids, (*fast, *slow))
    for table, names, samples in tables:
        sample_rows = ((ids[sample.device], sample.t_ns, *rows.values(sample, names)) for sample in samples)
        # Two readings within one clock tick are one sample: keep the first.
        rows.insert(db.conn, table, ("device_id", "t_ns", *names), sample_rows, statement="INSERT OR IGNORE")


def _count_implausible(db: Database, ids: Mapping[str, int], samples: Iterable[Sample | SlowSample]) -> None:
    counts: dict[str, Counter[str]] = {}
    for sample in samples:
        if sample.implausible:
            counts.setdefault(sample.device, Counter()).update(sample.implausible)
    for device, count in counts.items():
        (before,) = db.execute("SELECT implausible FROM devices WHERE device_id = ?", (ids[device],)).fetchone()
        total = json.dumps(count + Counter(json.loads(before)))
        db.execute("UPDATE devices SET implausible = ? WHERE device_id = ?", (total, ids[device]))


def insert_evidence(db: Database, run: int, evidence: Evidence) -> None:
    """Insert a run's evidence, its kernels, the times of its devices, and one step, in the caller's transaction.

    The kernels are ranked by their order.
    """
    rows.insert(db.conn, "evidence", ("run", *rows.EVIDENCE_COLUMNS), [(run, *rows.evidence_values(evidence))])
    ranked = ((run, rank, *rows.values(kernel, rows.KERNEL_COLUMNS)) for rank, kernel in enumerate(evidence.kernels))
    rows.insert(db.conn, "kernels", ("run", "rank", *rows.KERNEL_COLUMNS), ranked)
    times = ((run, *rows.values(time, rows.DEVICE_TIME_COLUMNS)) for time in evidence.devices)
    rows.insert(db.conn, "device_times", ("run", *rows.DEVICE_TIME_COLUMNS), times)
    if evidence.timeline is not None:
        _insert_timeline(db, run, evidence.timeline)


_STEP_COLUMNS = ("start_ns", "duration_ns", "left_out")


def _insert_timeline(db: Database, run: int, step: StepTimeline) -> None:
    rows.insert(db.conn, "step_traces", ("run", *_STEP_COLUMNS), [(run, *rows.values(step, _STEP_COLUMNS))])
    streams = ((run, number, stream.device, stream.name) for number, stream in enumerate(step.streams))
    rows.insert(db.conn, "step_streams", ("run", "stream", *rows.STREAM_COLUMNS), streams)
    kernels = ((run, number, *msgspec.structs.astuple(kernel)) for number, kernel in enumerate(step.kernels))
    rows.insert(db.conn, "step_kernels", ("run", "number", *rows.STEP_KERNEL_COLUMNS), kernels)


def _load_timeline(db: Database, run: int) -> StepTimeline | None:
    """Return when the kernels of one step of a run ran; None where that was not stored."""
    row = db.execute(f"SELECT {', '.join(_STEP_COLUMNS)} FROM step_traces WHERE run = ?", (run,)).fetchone()
    if row is None:
        return None
    streams = db.execute("SELECT device, name FROM step_streams WHERE run = ? ORDER BY stream", (run,))
    columns = ", ".join(rows.STEP_KERNEL_COLUMNS)
    kernels = db.execute(f"SELECT {columns} FROM step_kernels WHERE run = ? ORDER BY number", (run,))
    return StepTimeline(
        **dict(zip(_STEP_COLUMNS, row, strict=True)),
        streams=tuple(Stream(device=device, name=name) for device, name in streams),
        kernels=tuple(StepKernel(*kernel) for kernel in kernels),
    )


def load_evidence(db: Database, run: int, *, timeline: bool = False) -> Evidence | None:
    """Return a run's evidence, with its step's `timeline` if asked; None where there is none."""
    row = db.execute(f"SELECT {', '.join(rows.EVIDENCE_COLUMNS)} FROM evidence WHERE run = ?", (run,)).fetchone()
    columns = ", ".join(rows.READ_KERNEL_COLUMNS)
    kernels = db.execute(f"SELECT {columns} FROM kernels WHERE run = ? ORDER BY rank", (run,))
    columns = ", ".join(rows.DEVICE_TIME_COLUMNS)
    times = db.execute(f"SELECT {columns} FROM device_times WHERE run = ? ORDER BY length(device), device", (run,))
    return rows.evidence(row, kernels, times, _load_timeline(db, run) if timeline else None) if row else None


def load_epochs(db: Database, run: int) -> tuple[Epoch, ...]:
    """Return the passes of a run over its training data."""
    cursor = db.execute(f"SELECT {', '.join(rows.EPOCH_COLUMNS)} FROM epochs WHERE run = ? ORDER BY epoch", (run,))
    return tuple(rows.record(Epoch, rows.EPOCH_COLUMNS, row) for row in cursor)


def insert_checks(db: Database, run: int, checks: Iterable[PortabilityResult | EqualityCheck]) -> None:
    """Insert checks of a run's saved weights, and of what its variant computes, in the caller's transaction."""
    for check in checks:
        if isinstance(check, EqualityCheck):
            rows.insert(db.conn, "equality", ("run", *rows.EQUALITY_COLUMNS), [(run, *rows.equality_values(check))])
        else:
            values = (run, *rows.values(check, rows.PORTABILITY_COLUMNS))
            rows.insert(db.conn, "portability", ("run", *rows.PORTABILITY_COLUMNS), [values])


def load_portability(db: Database, run: int) -> tuple[PortabilityResult, ...]:
    """Return the portability checks of a run, oldest first."""
    columns = ", ".join(rows.PORTABILITY_COLUMNS)
    cursor = db.execute(f"SELECT {columns} FROM portability WHERE run = ? ORDER BY utc_ns", (run,))
    return tuple(rows.record(PortabilityResult, rows.PORTABILITY_COLUMNS, row) for row in cursor)


def load_equality(db: Database, run: int) -> tuple[EqualityCheck, ...]:
    """Return the checks of what a run's variant computes, oldest first."""
    columns = ", ".join(rows.EQUALITY_COLUMNS)
    cursor = db.execute(f"SELECT {columns} FROM equality WHERE run = ? ORDER BY utc_ns", (run,))
    return tuple(map(rows.equality_check, cursor))


def save_calibration(db: Database, calibration: Calibration, utc_ns: int) -> None:
    """Store a device's calibration, in the caller's transaction; it replaces an older one of the same precision.

    It was measured at `utc_ns`, in nanoseconds since 1970.
    """
    values = (*rows.values(calibration, rows.CALIBRATION_COLUMNS), utc_ns)
    rows.insert(db.conn, "calibrations", (*rows.CALIBRATION_COLUMNS, "utc_ns"), [values], statement="INSERT OR REPLACE")


def load_calibration(db: Database, device: str, precision: str) -> Calibration | None:
    """Return the calibration of a device, the UUID of a GPU or the host, for matrix products in a precision.

    Returns:
        The calibration; None where the device was not calibrated in this precision.
    """
    row = db.execute(
        f"SELECT {', '.join(rows.CALIBRATION_COLUMNS)} FROM calibrations WHERE device = ? AND precision = ?",
        (device, precision),
    ).fetchone()
    return rows.record(Calibration, rows.CALIBRATION_COLUMNS, row) if row else None
