"""What was found out about runs and devices: evidence with its kernels, portability checks, calibrations."""

from collections.abc import Iterable

from sqlite_utils import Database

from app.records import Portability
from app.storage import rows
from workloads.protocol import Calibration, Evidence


def insert_evidence(db: Database, run: int, evidence: Evidence) -> None:
    """Adds a run's evidence, its kernels, the one that took longest first, and each device's time."""
    rows.insert(db.conn, "evidence", ("run", *rows.EVIDENCE_COLUMNS), [(run, *rows.evidence_values(evidence))])
    ranked = ((run, rank, *rows.values(kernel, rows.KERNEL_COLUMNS)) for rank, kernel in enumerate(evidence.kernels))
    rows.insert(db.conn, "kernels", ("run", "rank", *rows.KERNEL_COLUMNS), ranked)
    times = ((run, *rows.values(time, rows.DEVICE_TIME_COLUMNS)) for time in evidence.devices)
    rows.insert(db.conn, "device_times", ("run", *rows.DEVICE_TIME_COLUMNS), times)


def evidence_of(db: Database, run: int) -> Evidence | None:
    """A run's evidence, None where it left none."""
    found = db.execute(f"SELECT {', '.join(rows.EVIDENCE_COLUMNS)} FROM evidence WHERE run = ?", (run,)).fetchone()
    kernels = db.execute(f"SELECT {', '.join(rows.KERNEL_COLUMNS)} FROM kernels WHERE run = ? ORDER BY rank", (run,))
    columns = ", ".join(rows.DEVICE_TIME_COLUMNS)
    times = db.execute(f"SELECT {columns} FROM device_times WHERE run = ? ORDER BY length(device), device", (run,))
    return rows.evidence(found, kernels, times) if found else None


def insert_portability(db: Database, run: int, checks: Iterable[Portability]) -> None:
    """Adds portability checks of a run's saved weights."""
    found = ((run, *rows.values(check, rows.PORTABILITY_COLUMNS)) for check in checks)
    rows.insert(db.conn, "portability", ("run", *rows.PORTABILITY_COLUMNS), found)


def portability_of(db: Database, run: int) -> tuple[Portability, ...]:
    """The portability checks of a run, in the order they were made."""
    columns = ", ".join(rows.PORTABILITY_COLUMNS)
    found = db.execute(f"SELECT {columns} FROM portability WHERE run = ? ORDER BY utc_ns", (run,))
    return tuple(rows.record(Portability, rows.PORTABILITY_COLUMNS, row) for row in found)


def keep_calibration(db: Database, calibration: Calibration, utc_ns: int) -> None:
    """Keeps a device's calibration in place of an older one in the same precision."""
    values = (*rows.values(calibration, rows.CALIBRATION_COLUMNS), utc_ns)
    rows.insert(db.conn, "calibrations", (*rows.CALIBRATION_COLUMNS, "utc_ns"), [values], verb="INSERT OR REPLACE")


def calibration_of(db: Database, device: str, precision: str) -> Calibration | None:
    """A device's calibration in a precision, None before it was made."""
    found = db.execute(
        f"SELECT {', '.join(rows.CALIBRATION_COLUMNS)} FROM calibrations WHERE device = ? AND precision = ?",
        (device, precision),
    ).fetchone()
    return rows.record(Calibration, rows.CALIBRATION_COLUMNS, found) if found else None
