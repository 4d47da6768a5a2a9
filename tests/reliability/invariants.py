"""What holds of a database and of this machine after every kill, whoever was killed when."""

import fcntl
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

_SQL = {
    "blocks with a gap before them": (
        "SELECT count(*) FROM (SELECT first_step - lag(first_step + steps) OVER of_run AS gap,"
        " start_ns - lag(end_ns) OVER of_run AS pause, end_ns - start_ns AS took"
        " FROM blocks WINDOW of_run AS (PARTITION BY run ORDER BY first_step)) WHERE gap != 0 OR pause < 0 OR took <= 0"
    ),
    "phases out of order": (
        "SELECT count(*) FROM (SELECT start_ns - lag(end_ns) OVER of_run AS pause, end_ns - start_ns AS took"
        " FROM phases WINDOW of_run AS (PARTITION BY run ORDER BY start_ns)) WHERE pause < 0 OR took < 0"
    ),
    "samples from outside their run": (
        "SELECT count(*) FROM samples JOIN devices USING (device_id) JOIN runs USING (run) WHERE"
        " t_ns NOT BETWEEN started_t_ns - 1e9 AND started_t_ns + coalesce(ended_utc_ns, 9e18) - started_utc_ns + 1e9"
    ),
    "runs of two experiments": "SELECT count(*) - count(DISTINCT run) FROM experiment_runs",
}
"""Queries that count what must not be. That sample times rise, `PRIMARY KEY` and the integrity check say."""
_UNENDED = "SELECT count(*) FROM runs WHERE outcome IS NULL"

BROKEN = ("damaged databases", *_SQL, "runs without an outcome", "leases held by nobody", "tracebacks")
"""The names of everything that `broken_in` can find."""


def broken_in(folder: Path, *, ended: bool) -> Counter[str]:
    """Count what is broken in a folder with a database, lock files and logs; no process uses it any more.

    Where the program ended by itself, every run has an outcome.
    """
    found: Counter[str] = Counter()
    if (folder / "profiles.db").exists():
        with closing(sqlite3.connect(folder / "profiles.db")) as connection:
            found += _broken_rows(connection, ended=ended)
    found["leases held by nobody"] += sum(map(_is_locked, folder.rglob("*.lock")))
    found["tracebacks"] += sum(map(_is_bug, folder.glob("crash-*.txt")))
    return found


def _broken_rows(connection: sqlite3.Connection, *, ended: bool) -> Counter[str]:
    (integrity,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    foreign_keys = connection.execute("PRAGMA foreign_key_check").fetchall()
    found = Counter({"damaged databases": int(integrity != "ok" or bool(foreign_keys))})
    if connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'runs'").fetchone():
        for name, query in _SQL.items():
            found[name] = connection.execute(query).fetchone()[0]
        found["runs without an outcome"] = connection.execute(_UNENDED).fetchone()[0] if ended else 0
    return found


def _is_locked(path: Path) -> bool:
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _is_bug(report: Path) -> bool:
    """Return whether a crash report is of the program, not of a run whose worker was killed."""
    return "Traceback" in report.read_text(encoding="utf-8")
