"""The store of runs: write a run while it is in progress, in batches of one transaction, and load stored runs."""

import json
import sqlite3
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Self

from sqlite_utils import Database

from app.analysis.summary import plausible_run
from app.environment_keys import BOOT_ID_KEY
from app.errors import UserError
from app.events import Outcome, Summary
from app.fields import Sample, SlowSample
from app.plain import without_nul
from app.records import EqualityCheck, Phase, PortabilityResult, RunHeader, RunRow, StoredRun
from app.samples import Device, DeviceLost, FieldsUpdated, LogLine
from app.storage import listing, measurements, rows
from app.storage.database import (
    BUSY_TIMEOUT_S,
    is_read_only,
    open_database,
    transaction,
    translate_sqlite_errors,
)
from app.storage.library import Library
from app.storage.owner import Owner, unfinished_runs
from app.storage.queue import Queue
from workloads.protocol import Block, Calibration, EnvironmentInfo, Epoch, Evidence, PhaseStarted, RunSpec

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
"""The boot of a run's host: an older run was made on the machine of the program that owned it."""
_END_PHASE = "UPDATE phases SET end_ns = max(?, start_ns) WHERE run = ? AND end_ns IS NULL"
"""The end of a run on another host may be known a little too early: no phase ends before it began."""


class Store:
    """The runs of one database file. Every write is one transaction.

    Methods raise `DatabaseError` where the file, the disk or another program is in the way.
    Thread: the one that opened it.
    """

    def __init__(self, db: Database, path: Path) -> None:
        self._db = db
        self.path = path

    @property
    def library(self) -> Library:
        """The library of the same connection: searches, annotations and trash."""
        return Library(self._db, self.path)

    @property
    def queue(self) -> Queue:
        """The queue of the same connection: experiments that are not finished."""
        return Queue(self._db, self.path)

    @classmethod
    def open(cls, path: Path, busy_s: float = BUSY_TIMEOUT_S) -> Self:
        """Open the database at `path`, created and migrated as needed; a write waits at most `busy_s` for its turn."""
        return cls(open_database(path, busy_s), path)

    @property
    def is_read_only(self) -> bool:
        """Whether the file may only be read, so that it was opened for that alone."""
        return is_read_only(self._db)

    def close(self) -> None:
        """Close the file."""
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

        It starts at `t_ns` by the monotonic clock, the same moment as `utc_ns` in nanoseconds since 1970. `uid` is its
        id in all databases; `owner` is the process that runs it. `environment` is what is known so far,
        `purpose` what it is made for, where not for its own result.

        Raises:
            UserError: A run with this uid is stored, as by another program that fetches it too.
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
            measurements.insert_samples(self._db, run, by_type.get(Sample, ()), by_type.get(SlowSample, ()))
            lines = enumerate(by_type.get(LogLine, ()), first_log_line)
            log_rows = ((number, line.t_ns, without_nul(line.text)) for number, line in lines)
            self._insert("log_lines", ("line", "t_ns", "text"), run, log_rows)
            for evidence in by_type.get(Evidence, ()):
                measurements.insert_evidence(self._db, run, evidence)
            for lost in by_type.get(DeviceLost, ()):
                measurements.mark_lost(self._db, run, lost)
            for seen in by_type.get(FieldsUpdated, ()):
                measurements.update_fields(self._db, run, seen)
            for environment in by_type.get(EnvironmentInfo, ()):
                measurements.update_environment(self._db, run, environment)
            for calibration in by_type.get(Calibration, ()):
                measurements.save_calibration(self._db, calibration, time.time_ns())

    def add_environment(self, run: int, info: Mapping[str, str]) -> None:
        """Add values to a run's environment."""
        self.write(run, [EnvironmentInfo(environment=dict(info))])

    def finish(
        self, run: int, *, outcome: Outcome, summary: Summary, t_ns: int, utc_ns: int, phases: Sequence[Phase] = ()
    ) -> None:
        """Store how a run ended, and end its last phase.

        It ended at `t_ns` by the monotonic clock, the same moment as `utc_ns` in nanoseconds since 1970. The phases
        have their energy.
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
            measurements.insert_checks(self._db, run, checks)

    def save_calibration(self, calibration: Calibration, utc_ns: int) -> None:
        """Store a device's calibration; it replaces an older one of the same precision."""
        with transaction(self._db, self.path):
            measurements.save_calibration(self._db, calibration, utc_ns)

    def calibration(self, device: str, precision: str) -> Calibration | None:
        """Return a device's calibration in a precision; None before it was measured."""
        with translate_sqlite_errors(self.path):
            return measurements.load_calibration(self._db, device, precision)

    def unfinished_runs(self) -> list[tuple[int, Owner]]:
        """Return the runs without an outcome, and the process each belongs to."""
        with translate_sqlite_errors(self.path):
            return unfinished_runs(self._db.conn)

    def list_runs(self) -> list[RunRow]:
        """Return all runs but those in the trash, newest first."""
        return list(self.each_run())

    def each_run(self) -> Iterator[RunRow]:
        """Yield all runs but those in the trash, newest first."""
        with translate_sqlite_errors(self.path):
            yield from listing.each_row(self._db, "deleted_utc_ns IS NULL ORDER BY started_utc_ns DESC, run DESC")

    def load(self, run: int, fields: Collection[str] | None = None) -> StoredRun:
        """Load everything stored of one run, in the trash or not, but readings that cannot be true (`plausible_run`).

        With `fields` only those are read, of the devices it trained on (its GPUs with the host's load, else the host),
        and neither log nor timeline, which is faster.

        Raises:
            UserError: There is no run of that number.
        """
        with translate_sqlite_errors(self.path):
            run_rows = listing.select_rows(self._db, "run = ?", run)
            if not run_rows:
                raise listing.no_such_run(run, self.path)
            t_ns, utc_ns, boot_id, environment = self._db.execute(
                f"SELECT started_t_ns, started_utc_ns, {_BOOT_ID}, environment FROM runs WHERE run = ?", (run,)
            ).fetchone()
            lines = self._run_rows("log_lines", ("t_ns", "text"), run, "line") if fields is None else ()
            stored = StoredRun(
                row=run_rows[0],
                anchor_t_ns=t_ns,
                anchor_utc_ns=utc_ns,
                phases=tuple(map(rows.phase, self._run_rows("phases", rows.PHASE_COLUMNS, run, "start_ns"))),
                blocks=rows.block_columns(self._run_rows("blocks", rows.BLOCK_COLUMNS, run, "first_step")),
                samples=tuple(measurements.load_samples(self._db, run_rows[0], fields)),
                environment=rows.environment(environment),
                boot_id=boot_id,
                evidence=measurements.load_evidence(self._db, run, timeline=fields is None),
                epochs=measurements.load_epochs(self._db, run),
                portability=measurements.load_portability(self._db, run),
                equality=measurements.load_equality(self._db, run),
                log=tuple(LogLine(*line) for line in lines),
            )
        return plausible_run(stored, None if fields is None else partial(self.load, run))

    def with_end(self, stored: StoredRun) -> StoredRun:
        """Return a run that was loaded before it ended with the end that is stored now; read no measurements again."""
        header = self.load_header(stored.row.run)
        with translate_sqlite_errors(self.path):
            phases = self._run_rows("phases", rows.PHASE_COLUMNS, stored.row.run, "start_ns")
        return replace(stored, row=header.row, environment=header.environment, phases=tuple(map(rows.phase, phases)))

    def load_header(self, run: int) -> RunHeader:
        """Load what is stored of one run except its measurements, in the trash or not.

        Raises:
            UserError: There is no run of that number.
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
                portability=measurements.load_portability(self._db, run),
                equality=measurements.load_equality(self._db, run),
                epochs=measurements.load_epochs(self._db, run),
            )

    def _run_rows(self, table: str, columns: Sequence[str], run: int, order: str) -> list[Any]:
        return self._db.execute(
            f"SELECT {', '.join(columns)} FROM {table} WHERE run = ? ORDER BY {order}", (run,)
        ).fetchall()

    def _begin_phase(self, run: int, phase: PhaseStarted) -> None:
        self._db.execute(_END_PHASE, (phase.t_ns, run))
        self._db.execute("INSERT INTO phases (run, phase, start_ns) VALUES (?, ?, ?)", (run, phase.phase, phase.t_ns))

    def _insert(self, table: str, columns: Sequence[str], run: int, values: Iterable[rows.Row]) -> None:
        rows.insert(self._db.conn, table, ("run", *columns), ((run, *row) for row in values))
