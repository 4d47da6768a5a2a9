"""Reads and writes measured data: a run's samples, evidence and portability checks, and device calibrations."""

from collections.abc import Collection, Iterable, Iterator, Sequence

import numpy as np
from sqlite_utils import Database

from app.fields import FAST_FIELDS, SLOW_FIELDS
from app.records import Floats, Ints, PortabilityResult, RunRow, SampleColumns
from app.samples import Device
from app.storage import rows
from workloads.protocol import Calibration, Evidence

_ALL_FIELDS = (*FAST_FIELDS, *SLOW_FIELDS)


def load_samples(db: Database, run: int) -> Iterator[SampleColumns]:
    """All samples of a run's devices."""
    for device_id, lost_t_ns, device in _load_devices(db, run):
        yield _load_columns(db, device_id, device, lost_t_ns, _ALL_FIELDS, _ALL_FIELDS)


def load_plotted_samples(db: Database, row: RunRow, fields: Collection[str]) -> Iterator[SampleColumns]:
    """These fields of what a run trained on: its GPUs, else the host; its other devices come without samples.

    What a device is known not to give is not read, which takes as long as if there were something.
    """
    on_gpus = bool(row.gpu_names) and row.spec.variant.get("gpus") != 0
    for device_id, lost_t_ns, device in _load_devices(db, row.run):
        available = [name for name in fields if not device.fields or name in device.fields]
        is_used = device.kind == ("gpu" if on_gpus else "host")
        yield _load_columns(db, device_id, device, lost_t_ns, fields, available if is_used else ())


def _load_devices(db: Database, run: int) -> Iterable[tuple[int, int | None, Device]]:
    columns = ", ".join(rows.DEVICE_COLUMNS)
    found = db.execute(f"SELECT device_id, lost_t_ns, {columns} FROM devices WHERE run = ? ORDER BY device_id", (run,))
    return [(device_id, lost_t_ns, rows.device(values)) for device_id, lost_t_ns, *values in found]


def _load_columns(
    db: Database,
    device_id: int,
    device: Device,
    lost_t_ns: int | None,
    fields: Collection[str],
    available: Collection[str],
) -> SampleColumns:
    """One device's samples with these fields, of which those given are read and the others are absent."""

    def read(table: str, known: Sequence[str]) -> tuple[Ints, dict[str, Floats]]:
        names = [name for name in known if name in available]
        t_ns, values = _read_fields(db, table, names, device_id)
        absent = np.full(t_ns.size, np.nan)
        return t_ns, {name: values.get(name, absent) for name in known if name in fields}

    t_ns, fast = read("samples", FAST_FIELDS)
    slow_t_ns, slow = read("slow_samples", SLOW_FIELDS)
    return SampleColumns(device=device, t_ns=t_ns, fields=fast, slow_t_ns=slow_t_ns, slow=slow, lost_t_ns=lost_t_ns)


def _read_fields(db: Database, table: str, names: Sequence[str], device_id: int) -> tuple[Ints, dict[str, Floats]]:
    """Times and values of these fields in time order, NULL as NaN; without any field, no times either.

    numpy takes each row as it comes: half the time of columns of Python's numbers.
    """
    found: Iterable[rows.Row] = ()
    if names:
        found = db.execute(
            f"SELECT t_ns, {', '.join(names)} FROM {table} WHERE device_id = ? ORDER BY t_ns", (device_id,)
        )
    records = np.fromiter(found, dtype=[("t_ns", np.int64), *((name, np.float64) for name in names)])
    columns = {name: np.ascontiguousarray(records[name]) for name in names}
    return np.ascontiguousarray(records["t_ns"]), columns


def insert_evidence(db: Database, run: int, evidence: Evidence) -> None:
    """Adds a run's evidence, its kernels, the one that took longest first, and each device's time."""
    rows.insert(db.conn, "evidence", ("run", *rows.EVIDENCE_COLUMNS), [(run, *rows.evidence_values(evidence))])
    ranked = ((run, rank, *rows.values(kernel, rows.KERNEL_COLUMNS)) for rank, kernel in enumerate(evidence.kernels))
    rows.insert(db.conn, "kernels", ("run", "rank", *rows.KERNEL_COLUMNS), ranked)
    times = ((run, *rows.values(time, rows.DEVICE_TIME_COLUMNS)) for time in evidence.devices)
    rows.insert(db.conn, "device_times", ("run", *rows.DEVICE_TIME_COLUMNS), times)


def load_evidence(db: Database, run: int) -> Evidence | None:
    """A run's evidence, None where it left none."""
    found = db.execute(f"SELECT {', '.join(rows.EVIDENCE_COLUMNS)} FROM evidence WHERE run = ?", (run,)).fetchone()
    kernels = db.execute(f"SELECT {', '.join(rows.KERNEL_COLUMNS)} FROM kernels WHERE run = ? ORDER BY rank", (run,))
    columns = ", ".join(rows.DEVICE_TIME_COLUMNS)
    times = db.execute(f"SELECT {columns} FROM device_times WHERE run = ? ORDER BY length(device), device", (run,))
    return rows.evidence(found, kernels, times) if found else None


def insert_portability(db: Database, run: int, checks: Iterable[PortabilityResult]) -> None:
    """Adds portability checks of a run's saved weights."""
    found = ((run, *rows.values(check, rows.PORTABILITY_COLUMNS)) for check in checks)
    rows.insert(db.conn, "portability", ("run", *rows.PORTABILITY_COLUMNS), found)


def load_portability(db: Database, run: int) -> tuple[PortabilityResult, ...]:
    """The portability checks of a run, in the order they were made."""
    columns = ", ".join(rows.PORTABILITY_COLUMNS)
    found = db.execute(f"SELECT {columns} FROM portability WHERE run = ? ORDER BY utc_ns", (run,))
    return tuple(rows.record(PortabilityResult, rows.PORTABILITY_COLUMNS, row) for row in found)


def save_calibration(db: Database, calibration: Calibration, utc_ns: int) -> None:
    """Keeps a device's calibration in place of an older one in the same precision."""
    values = (*rows.values(calibration, rows.CALIBRATION_COLUMNS), utc_ns)
    rows.insert(db.conn, "calibrations", (*rows.CALIBRATION_COLUMNS, "utc_ns"), [values], statement="INSERT OR REPLACE")


def load_calibration(db: Database, device: str, precision: str) -> Calibration | None:
    """A device's calibration in a precision, None before it was made."""
    found = db.execute(
        f"SELECT {', '.join(rows.CALIBRATION_COLUMNS)} FROM calibrations WHERE device = ? AND precision = ?",
        (device, precision),
    ).fetchone()
    return rows.record(Calibration, rows.CALIBRATION_COLUMNS, found) if found else None
