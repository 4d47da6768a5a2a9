"""The store of runs: writes a run while it is in progress, in one transaction per batch, and loads stored runs."""

import contextlib
import json
import os
import sqlite3
import tempfile
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, Self

import msgspec
import numpy as np
from sqlite_utils import Database

from app.analysis.steps import without_waits
from app.errors import DatabaseError, DatabaseGoneError, UserError
from app.storage import listing, rows
from app.storage.database import (
    BUSY_TIMEOUT_S,
    is_read_only,
    open_database,
    read_only_error,
    transaction,
    translate_sqlite_errors,
)
from app.storage.library import Library
from app.storage.owner import Owner, unfinished_runs
from app.storage.queue import Queue
from app.values.environment_keys import BOOT_ID_KEY
from app.values.events import Outcome, Summary
from app.values.fields import FAST_FIELDS, SLOW_FIELDS, Sample, SlowSample
from app.values.plain import without_nul
from app.values.records import (
    EqualityCheck,
    Floats,
    Ints,
    Phase,
    PortabilityResult,
    RunHeader,
    RunRow,
    SampleColumns,
    StoredRun,
)
from app.values.samples import Device, DeviceLost, FieldsUpdated, LogLine
from workloads.protocol import (
    Block,
    Calibration,
    EnvironmentInfo,
    Epoch,
    Evidence,
    PhaseStarted,
    RunSpec,
    StepKernel,
    StepTimeline,
    Stream,
)

StoredEvent = (
    PhaseStarted
    | Block
    | Sample
    | SlowSample
    | LogLine
    | DeviceLost
    | FieldsUpdated
    | Evidence
    | Epoch
    | EnvironmentInfo
    | Calibration
)
"""The events of a run that are stored as rows."""

_BOOT_ID = f"coalesce(json_extract(environment, '$.{BOOT_ID_KEY}'), owner_boot_id)"
"""The boot of a run's host; an older run's host is the machine of the program that owned it."""
_END_PHASE = "UPDATE phases SET end_ns = max(?, start_ns) WHERE run = ? AND end_ns IS NULL"
"""The end of a run on another host may be recorded slightly early: no phase ends before it began."""


class Store:
    """The runs of one database file. Every write is one transaction.

    Methods raise `DatabaseError` if the file, the disk or another program prevents access. Thread: the one that opened
    it.
    """

    def __init__(self, db: Database, path: Path) -> None:
        self._db = db
        self.path = path

    @property
    def library(self) -> Library:
        """Return the library on the same connection: searches, annotations and trash."""
        return Library(self._db, self.path)

    @property
    def queue(self) -> Queue:
        """Return the queue on the same connection: unfinished experiments."""
        return Queue(self._db, self.path)

    @classmethod
    def open(cls, path: Path, busy_s: float = BUSY_TIMEOUT_S) -> Self:
        """Open the database at `path`, created and migrated as needed; a write waits at most `busy_s` for a lock."""
        return cls(open_database(path, busy_s), path)

    @property
    def is_read_only(self) -> bool:
        """Return whether the file is read-only."""
        return is_read_only(self._db)

    def close(self) -> None:
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def begin(
        self,
        spec: RunSpec,
        *,
        uid: str,
        owner: Owner,
        t_ns: int,
        utc_ns: int,
        devices: Sequence[Device],
        environment: Mapping[str, str],
        purpose: str | None = None,
    ) -> int:
        """Store a run that starts now; return its number.

        It starts at `t_ns` on the monotonic clock, which is `utc_ns` in nanoseconds since 1970. `uid` is its id in all
        databases; `owner` is the process that runs it. `environment` is what is known so far; `purpose` says why it
        ran, if not for its own figures.

        Raises:
            UserError: A run with this uid is already stored, for example by another program that also fetches it.
        """
        try:
            with transaction(self._db, self.path):
                cursor = self._db.execute(
                    "INSERT INTO runs (uid, workload, variant, started_utc_ns, started_t_ns, environment,"
                    " owner_pid, owner_started_s, owner_boot_id, purpose) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    (
                        uid,
                        spec.workload,
                        json.dumps(spec.variant),
                        utc_ns,
                        t_ns,
                        json.dumps(dict(environment)),
                        owner.pid,
                        owner.started_s,
                        owner.boot_id,
                        purpose,
                    ),
                )
                run = cursor.lastrowid
                assert run is not None, "SQLite names the row it inserted"
                self._insert("devices", rows.DEVICE_COLUMNS, run, map(rows.device_values, devices))
        except sqlite3.IntegrityError as error:
            raise UserError(f"This run is in {self.path} already: another program stores it.") from error
        return run

    def write(self, run: int, events: Iterable[StoredEvent], *, first_log_line: int = 0) -> None:
        """Store a batch of a run's events in one transaction.

        `first_log_line` is the number of the first log line among them.
        """
        by_type: dict[type, list[Any]] = {}
        for event in events:
            by_type.setdefault(type(event), []).append(event)
        with transaction(self._db, self.path):
            for phase in by_type.get(PhaseStarted, ()):
                self._begin_phase(run, phase)
            for table, columns, kind in (("blocks", rows.BLOCK_COLUMNS, Block), ("epochs", rows.EPOCH_COLUMNS, Epoch)):
                self._insert(table, columns, run, (rows.values(event, columns) for event in by_type.get(kind, ())))
            _insert_samples(self._db, run, by_type.get(Sample, ()), by_type.get(SlowSample, ()))
            lines = enumerate(by_type.get(LogLine, ()), first_log_line)
            log_rows = ((number, line.t_ns, without_nul(line.text)) for number, line in lines)
            self._insert("log_lines", ("line", "t_ns", "text"), run, log_rows)
            for evidence in by_type.get(Evidence, ()):
                _insert_evidence(self._db, run, evidence)
            for lost in by_type.get(DeviceLost, ()):
                # Set only once in a run.
                self._db.execute(
                    "UPDATE devices SET lost_t_ns = ?, lost_reason = ?"
                    " WHERE run = ? AND device = ? AND lost_t_ns IS NULL",
                    (lost.t_ns, lost.reason, run, lost.device),
                )
            for seen in by_type.get(FieldsUpdated, ()):
                self._db.execute(
                    "UPDATE devices SET fields = ?, absent = ? WHERE run = ? AND device = ?",
                    (rows.encode_fields(seen.fields), json.dumps(seen.absent), run, seen.device),
                )
            for environment in by_type.get(EnvironmentInfo, ()):
                self._db.execute(
                    "UPDATE runs SET environment = json_patch(environment, ?) WHERE run = ?",
                    (json.dumps(environment.environment), run),
                )
            for calibration in by_type.get(Calibration, ()):
                _save_calibration(self._db, calibration, time.time_ns())

    def add_environment(self, run: int, info: Mapping[str, str]) -> None:
        self.write(run, [EnvironmentInfo(environment=dict(info))])

    def finish(
        self, run: int, *, outcome: Outcome, summary: Summary, t_ns: int, utc_ns: int, phases: Sequence[Phase] = ()
    ) -> None:
        """Store how a run ended, and end its last phase.

        It ended at `t_ns` on the monotonic clock, which is `utc_ns` in nanoseconds since 1970. The phases include their
        energy.
        """
        columns = (*rows.OUTCOME_COLUMNS, *rows.SUMMARY_COLUMNS, "ended_utc_ns")
        values = (*rows.outcome_values(outcome), *rows.values(summary, rows.SUMMARY_COLUMNS), utc_ns)
        with transaction(self._db, self.path):
            self._db.execute(
                f"UPDATE runs SET {', '.join(f'{name} = ?' for name in columns)} WHERE run = ?", (*values, run)
            )
            self._db.execute(_END_PHASE, (t_ns, run))
            self._db.conn.executemany(
                "UPDATE phases SET energy_mj = ?, energy_error_mj = ? WHERE run = ? AND start_ns = ?",
                ((phase.energy_mj, phase.energy_error_mj, run, phase.start_ns) for phase in phases),
            )

    def add_checks(self, run: int, checks: Sequence[PortabilityResult | EqualityCheck]) -> None:
        """Add checks of a run's saved weights, or of what its variant computes."""
        with transaction(self._db, self.path):
            for check in checks:
                if isinstance(check, EqualityCheck):
                    self._insert("equality", rows.EQUALITY_COLUMNS, run, [rows.equality_values(check)])
                else:
                    values = rows.values(check, rows.PORTABILITY_COLUMNS)
                    self._insert("portability", rows.PORTABILITY_COLUMNS, run, [values])

    def save_calibration(self, calibration: Calibration, utc_ns: int) -> None:
        """Store a device's calibration; it replaces an older one of the same precision."""
        with transaction(self._db, self.path):
            _save_calibration(self._db, calibration, utc_ns)

    def calibration(self, device: str, precision: str) -> Calibration | None:
        """Return a device's calibration in a precision, by its GPU's UUID or host; None if not measured."""
        with translate_sqlite_errors(self.path):
            row = self._db.execute(
                f"SELECT {', '.join(rows.CALIBRATION_COLUMNS)} FROM calibrations WHERE device = ? AND precision = ?",
                (device, precision),
            ).fetchone()
        return rows.record(Calibration, rows.CALIBRATION_COLUMNS, row) if row else None

    def unfinished_runs(self) -> list[tuple[int, Owner]]:
        """Return the runs without an outcome, with the process that owns each."""
        with translate_sqlite_errors(self.path):
            return unfinished_runs(self._db.conn)

    def list_runs(self) -> list[RunRow]:
        """Return all runs except those in the trash, newest first."""
        return list(self.each_run())

    def each_run(self) -> Iterator[RunRow]:
        """Yield all runs except those in the trash, newest first."""
        with translate_sqlite_errors(self.path):
            yield from listing.each_row(self._db, "deleted_utc_ns IS NULL ORDER BY started_utc_ns DESC, run DESC")

    def load(self, run: int, fields: Collection[str] | None = None) -> StoredRun:
        """Load everything stored of one run, in the trash or not.

        With `fields` only those are read, of the devices it trained on (its GPUs with the host's load, else the host),
        and neither log nor timeline, which is faster.

        Raises:
            UserError: The run does not exist.
        """
        with translate_sqlite_errors(self.path):
            run_rows = listing.select_rows(self._db, "run = ?", run)
            if not run_rows:
                raise listing.no_such_run(run, self.path)
            t_ns, utc_ns, boot_id, environment = self._db.execute(
                f"SELECT started_t_ns, started_utc_ns, {_BOOT_ID}, environment FROM runs WHERE run = ?", (run,)
            ).fetchone()
            epochs = self._run_rows("epochs", rows.EPOCH_COLUMNS, run, "epoch")
            lines = self._run_rows("log_lines", ("t_ns", "text"), run, "line") if fields is None else ()
            return StoredRun(
                row=run_rows[0],
                anchor_t_ns=t_ns,
                anchor_utc_ns=utc_ns,
                phases=tuple(map(rows.phase, self._run_rows("phases", rows.PHASE_COLUMNS, run, "start_ns"))),
                blocks=rows.block_columns(self._run_rows("blocks", rows.READ_BLOCK_COLUMNS, run, "first_step")),
                samples=tuple(_load_samples(self._db, run_rows[0], fields)),
                environment=rows.environment(environment),
                boot_id=boot_id,
                evidence=self._load_evidence(run, timeline=fields is None),
                epochs=tuple(rows.record(Epoch, rows.EPOCH_COLUMNS, row) for row in epochs),
                **self._load_checks(run),
                log=tuple(LogLine(*line) for line in lines),
            )

    def with_end(self, stored: StoredRun) -> StoredRun:
        """Return a run that was loaded before it ended with its stored end, without reading measurements again."""
        header = self.load_header(stored.row.run)
        with translate_sqlite_errors(self.path):
            phases = self._run_rows("phases", rows.PHASE_COLUMNS, stored.row.run, "start_ns")
        return replace(stored, row=header.row, environment=header.environment, phases=tuple(map(rows.phase, phases)))

    def load_header(self, run: int) -> RunHeader:
        """Load everything stored of one run except its measurements, in the trash or not.

        Raises:
            UserError: The run does not exist.
        """
        with translate_sqlite_errors(self.path):
            run_rows = listing.select_rows(self._db, "run = ?", run)
            if not run_rows:
                raise listing.no_such_run(run, self.path)
            (environment,) = self._db.execute("SELECT environment FROM runs WHERE run = ?", (run,)).fetchone()
            gpus = self._db.execute("SELECT device FROM devices WHERE run = ? AND kind = 'gpu'", (run,))
            return RunHeader(
                row=run_rows[0],
                environment=rows.environment(environment),
                gpu_uuids=rows.gpu_set(tuple(device for (device,) in gpus.fetchall())),
                **self._load_checks(run),
            )

    def _load_checks(self, run: int) -> dict[str, Any]:
        """Return what a run and its header have in common, oldest first."""
        trials = self._run_rows("portability", rows.PORTABILITY_COLUMNS, run, "utc_ns")
        checks = self._run_rows("equality", rows.EQUALITY_COLUMNS, run, "utc_ns")
        return {
            "portability": tuple(rows.record(PortabilityResult, rows.PORTABILITY_COLUMNS, row) for row in trials),
            "equality": tuple(map(rows.equality_check, checks)),
        }

    def _load_evidence(self, run: int, *, timeline: bool) -> Evidence | None:
        """Return a run's evidence `without_waits`, with its step's `timeline` if requested; None without evidence."""
        stored = self._run_rows("evidence", rows.EVIDENCE_COLUMNS, run, "run")
        if not stored:
            return None
        kernels = self._run_rows("kernels", rows.READ_KERNEL_COLUMNS, run, "rank")
        times = self._run_rows("device_times", rows.DEVICE_TIME_COLUMNS, run, "length(device), device")
        return without_waits(rows.evidence(stored[0], kernels, times, self._load_timeline(run) if timeline else None))

    def _load_timeline(self, run: int) -> StepTimeline | None:
        """Return when the kernels of one step of a run ran; None if not stored."""
        traces = self._run_rows("step_traces", _STEP_COLUMNS, run, "run")
        if not traces:
            return None
        streams = self._run_rows("step_streams", ("device", "name"), run, "stream")
        kernels = self._run_rows("step_kernels", rows.STEP_KERNEL_COLUMNS, run, "number")
        return StepTimeline(
            **dict(zip(_STEP_COLUMNS, traces[0], strict=True)),
            streams=tuple(Stream(device=device, name=name) for device, name in streams),
            kernels=tuple(StepKernel(*kernel) for kernel in kernels),
        )

    def _run_rows(self, table: str, columns: Sequence[str], run: int, order: str) -> list[Any]:
        stored = self._db.execute(f"SELECT {', '.join(columns)} FROM {table} WHERE run = ? ORDER BY {order}", (run,))
        # In a block only the loss can be infinite, which `rows.block_columns` leaves out: its time counts.
        return [row for row in stored if table == "blocks" or rows.INFINITE.isdisjoint(row)]

    def _begin_phase(self, run: int, phase: PhaseStarted) -> None:
        self._db.execute(_END_PHASE, (phase.t_ns, run))
        self._db.execute("INSERT INTO phases (run, phase, start_ns) VALUES (?, ?, ?)", (run, phase.phase, phase.t_ns))

    def _insert(self, table: str, columns: Sequence[str], run: int, values: Iterable[rows.Row]) -> None:
        rows.insert(self._db.conn, table, ("run", *columns), ((run, *row) for row in values))


_ALL_FIELDS = (*FAST_FIELDS, *SLOW_FIELDS)
_PART_ROWS = 1 << 16


_HOST_LOAD = ("load_pct", "worker_load_pct")
"""Fields of the host that reveal other programs, even beside a run on GPUs."""


def _load_samples(db: Database, row: RunRow, fields: Collection[str] | None) -> Iterator[SampleColumns]:
    """Yield the samples of a run, device by device.

    With `fields` only those are read, of the devices that it trained on: its GPUs with the host's load, else the host.
    Fields that a device does not report are skipped, because reading them would take as long as reading values. None
    reads all.
    """
    on_gpus = bool(row.gpu_names) and row.spec.variant.get("gpus") != 0
    columns = ", ".join(rows.DEVICE_COLUMNS)
    cursor = db.execute(
        f"SELECT device_id, lost_t_ns, lost_reason, {columns} FROM devices WHERE run = ? ORDER BY device_id", (row.run,)
    )
    for device_id, lost_t_ns, lost_reason, *values in cursor.fetchall():
        device = msgspec.structs.replace(rows.device(values), lost=lost_reason)
        if fields is None:
            yield _load_columns(db, device_id, device, lost_t_ns, _ALL_FIELDS, _ALL_FIELDS)
            continue
        available = [name for name in fields if not device.fields or name in device.fields]
        if device.kind != ("gpu" if on_gpus else "host"):
            available = [name for name in available if device.kind == "host" and name in _HOST_LOAD]
        yield _load_columns(db, device_id, device, lost_t_ns, fields, available)


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


def _read_fields(db: Database, table: str, names: Sequence[str], device_id: int) -> tuple[Ints, dict[str, Floats]]:
    """Return times and values of these fields in time order, NULL as NaN; without any field, no times either.

    numpy consumes the rows as they arrive, which takes half the time of columns of Python numbers, and part by part,
    because the rows of hours would take twice the memory of their columns.
    """
    if not names:
        return np.empty(0, dtype=np.int64), {}
    rows_in_order = db.execute(
        f"SELECT t_ns, {', '.join(names)} FROM {table} WHERE device_id = ? ORDER BY t_ns", (device_id,)
    )
    dtype = [("t_ns", np.int64), *((name, np.float64) for name in names)]
    part, size = np.fromiter(islice(rows_in_order, _PART_ROWS), dtype=dtype), 0
    if part.size == _PART_ROWS:
        # The statement above has not ended, so both read one snapshot of the database.
        (size,) = db.execute(f"SELECT count(*) FROM {table} WHERE device_id = ?", (device_id,)).fetchone()
    t_ns = np.empty(max(size, part.size), dtype=np.int64)
    columns = {name: np.empty(t_ns.size) for name in names}
    start = 0
    while part.size:
        end = start + part.size
        t_ns[start:end] = part["t_ns"]
        for name, values in columns.items():
            values[start:end] = part[name]
        start, part = end, np.fromiter(islice(rows_in_order, _PART_ROWS), dtype=dtype)
    return t_ns, columns


def _insert_samples(db: Database, run: int, fast: Sequence[Sample], slow: Sequence[SlowSample]) -> None:
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
        (stored,) = db.execute("SELECT implausible FROM devices WHERE device_id = ?", (ids[device],)).fetchone()
        total = json.dumps(count + Counter(json.loads(stored)))
        db.execute("UPDATE devices SET implausible = ? WHERE device_id = ?", (total, ids[device]))


def _insert_evidence(db: Database, run: int, evidence: Evidence) -> None:
    """Insert a run's evidence, its kernels, the times of its devices, and one step, in the caller's transaction.

    The kernels are ranked by their order.
    """
    rows.insert(db.conn, "evidence", ("run", *rows.EVIDENCE_COLUMNS), [(run, *rows.evidence_values(evidence))])
    ranked = ((run, rank, *rows.values(kernel, rows.KERNEL_COLUMNS)) for rank, kernel in enumerate(evidence.kernels))
    rows.insert(db.conn, "kernels", ("run", "rank", *rows.KERNEL_COLUMNS), ranked)
    times = ((run, *rows.values(time, rows.DEVICE_TIME_COLUMNS)) for time in evidence.devices)
    rows.insert(db.conn, "device_times", ("run", *rows.DEVICE_TIME_COLUMNS), times)
    if evidence.timeline is not None:
        step = evidence.timeline
        rows.insert(db.conn, "step_traces", ("run", *_STEP_COLUMNS), [(run, *rows.values(step, _STEP_COLUMNS))])
        streams = ((run, number, stream.device, stream.name) for number, stream in enumerate(step.streams))
        rows.insert(db.conn, "step_streams", ("run", "stream", *rows.STREAM_COLUMNS), streams)
        kernels = ((run, number, *msgspec.structs.astuple(kernel)) for number, kernel in enumerate(step.kernels))
        rows.insert(db.conn, "step_kernels", ("run", "number", *rows.STEP_KERNEL_COLUMNS), kernels)


_STEP_COLUMNS = ("start_ns", "duration_ns", "left_out")


def _save_calibration(db: Database, calibration: Calibration, utc_ns: int) -> None:
    """Store a device's calibration, in the caller's transaction; it replaces an older one of the same precision.

    It was measured at `utc_ns`, in nanoseconds since 1970.
    """
    values = (*rows.values(calibration, rows.CALIBRATION_COLUMNS), utc_ns)
    rows.insert(db.conn, "calibrations", (*rows.CALIBRATION_COLUMNS, "utc_ns"), [values], statement="INSERT OR REPLACE")


_RESERVED_BYTES = 256_000
"""Reserved for a run's end: some pages of the log."""


class RunStore(Store):
    """A store for one run; batches are refused once the opened database was replaced or deleted."""

    def __init__(self, db: Database, path: Path) -> None:
        super().__init__(db, path)
        self._file_id = _file_id(path)
        self._reserve = contextlib.ExitStack()
        try:
            if self.is_read_only:
                raise read_only_error(path)
            self._reserve.enter_context(_reserve_space(path))
        except BaseException:
            self._reserve.close()
            db.close()
            raise

    def wait_at_most(self, seconds: float) -> None:
        """Let each later write wait at most this long for a lock."""
        self._db.execute(f"PRAGMA busy_timeout = {int(1000 * seconds)}").fetchall()

    def write(self, run: int, events: Iterable[StoredEvent], *, first_log_line: int = 0) -> None:
        """Store a batch as `Store.write` does; raises `DatabaseGoneError` if the database no longer exists."""
        self._require_file()
        try:
            super().write(run, events, first_log_line=first_log_line)
        except (DatabaseError, sqlite3.Error):
            self._require_file()
            raise

    def use_reserve(self) -> None:
        """Free the reserved space, so that a run's end can be stored on a full disk."""
        self._reserve.close()

    def close(self) -> None:
        """Close the file; if another file now has its name, leave no log that SQLite would write into that."""
        self.use_reserve()
        if _file_id(self.path) != self._file_id:
            with contextlib.suppress(sqlite3.Error):  # https://www.sqlite.org/howtocorrupt.html, section 2.4
                self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        super().close()

    def _require_file(self) -> None:
        """Raise `DatabaseGoneError` if another file now has the database's name, which SQLite does not notice."""
        if (file_id := _file_id(self.path)) != self._file_id:
            problem = "was deleted, or its disk is gone" if file_id is None else "was replaced by another file"
            raise DatabaseGoneError(f"{self.path} {problem}; the end of the run is not stored.")


def _file_id(path: Path) -> tuple[int, int] | None:
    """Return device and inode of a file; None if there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


@contextlib.contextmanager
def _reserve_space(database: Path) -> Iterator[None]:
    """Reserve space beside the database with an unnamed file, which disappears when the process ends."""
    try:
        with tempfile.TemporaryFile(dir=database.absolute().parent) as file:
            file.write(os.urandom(_RESERVED_BYTES))
            file.flush()
            yield
    except OSError as error:
        raise DatabaseError(
            f"The disk that holds {database} cannot be written ({error.strerror}); free some space, then run again."
        ) from error
