"""The samples of a run as arrays: all of them, or what a comparison draws."""

from collections.abc import Collection, Iterable, Iterator, Sequence

import numpy as np
from sqlite_utils import Database

from app.records import Floats, Ints, RunRow, SampleColumns
from app.samples import SAMPLE_FIELDS, SLOW_FIELDS, Device
from app.storage import rows

_ALL = (*SAMPLE_FIELDS, *SLOW_FIELDS)


def samples_of(db: Database, run: int) -> Iterator[SampleColumns]:
    """All samples of a run's devices."""
    for device_id, lost_t_ns, device in _devices(db, run):
        yield _columns(db, device_id, device, lost_t_ns, _ALL, _ALL)


def drawn_samples_of(db: Database, row: RunRow, fields: Collection[str]) -> Iterator[SampleColumns]:
    """These fields of what a run trained on: its GPUs, else the host; its other devices come without samples.

    What a device is known not to give is not read, which takes as long as if there were something.
    """
    on_gpus = bool(row.gpu_names) and row.spec.variant.get("gpus") != 0
    for device_id, lost_t_ns, device in _devices(db, row.run):
        given = [name for name in fields if not device.fields or name in device.fields]
        is_used = device.kind == ("gpu" if on_gpus else "host")
        yield _columns(db, device_id, device, lost_t_ns, fields, given if is_used else ())


def _devices(db: Database, run: int) -> Iterable[tuple[int, int | None, Device]]:
    columns = ", ".join(rows.DEVICE_COLUMNS)
    found = db.execute(f"SELECT device_id, lost_t_ns, {columns} FROM devices WHERE run = ? ORDER BY device_id", (run,))
    return [(device_id, lost_t_ns, rows.device(values)) for device_id, lost_t_ns, *values in found]


def _columns(
    db: Database,
    device_id: int,
    device: Device,
    lost_t_ns: int | None,
    fields: Collection[str],
    given: Collection[str],
) -> SampleColumns:
    """One device's samples with these fields, of which those given are read and the others are absent."""

    def read(table: str, known: Sequence[str]) -> tuple[Ints, dict[str, Floats]]:
        names = [name for name in known if name in given]
        t_ns, values = _timed(db, table, names, device_id)
        absent = np.full(t_ns.size, np.nan)
        return t_ns, {name: values.get(name, absent) for name in known if name in fields}

    t_ns, quick = read("samples", SAMPLE_FIELDS)
    slow_t_ns, slow = read("slow_samples", SLOW_FIELDS)
    return SampleColumns(device=device, t_ns=t_ns, fields=quick, slow_t_ns=slow_t_ns, slow=slow, lost_t_ns=lost_t_ns)


def _timed(db: Database, table: str, names: Sequence[str], device_id: int) -> tuple[Ints, dict[str, Floats]]:
    """Times and values of these fields in time order, NULL as NaN; without any field, no times either.

    numpy takes each row as it comes: half the time of columns of Python's numbers.
    """
    found: Iterable[rows.Row] = ()
    if names:
        found = db.execute(
            f"SELECT t_ns, {', '.join(names)} FROM {table} WHERE device_id = ? ORDER BY t_ns", (device_id,)
        )
    table_of = np.fromiter(found, dtype=[("t_ns", np.int64), *((name, np.float64) for name in names)])
    columns = {name: np.ascontiguousarray(table_of[name]) for name in names}
    return np.ascontiguousarray(table_of["t_ns"]), columns
