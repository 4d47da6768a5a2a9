"""Experiments as they are kept: what was asked, and which runs were made or counted for it."""

import json
from collections.abc import Sequence

from sqlite_utils import Database

from app.queries import StoredExperiment
from app.storage.listing import TRASH

_COLUMNS = ("experiment", "uid", "name", "preset", "created_utc_ns", "plan")
_RUNS = (
    "SELECT run FROM experiment_runs WHERE experiment_runs.experiment = experiments.experiment"
    f" AND run NOT IN ({TRASH}) ORDER BY place LIMIT -1"
)


def load_experiments(db: Database, experiment: int | None = None) -> list[StoredExperiment]:
    """One experiment, or all, newest first; runs in the trash are left out."""
    found = db.execute(
        f"SELECT {', '.join(_COLUMNS)}, (SELECT json_group_array(run) FROM ({_RUNS})) FROM experiments"
        " WHERE ?1 IS NULL OR experiment = ?1 ORDER BY created_utc_ns DESC, experiment DESC",
        (experiment,),
    )
    return [
        StoredExperiment(**dict(zip(_COLUMNS, values, strict=True)), runs=tuple(json.loads(runs)))
        for *values, runs in found
    ]


def save_experiment(
    db: Database, runs: Sequence[int], *, uid: str, name: str, preset: str | None, plan: str, utc_ns: int
) -> int:
    """The number of the experiment with these runs: the one of that name and those variants that has one of them.

    Where there is none it is made. `plan` is JSON with `variants`; more or fewer repeats make no other experiment.
    """
    found = db.execute(
        "SELECT experiment FROM experiments JOIN experiment_runs USING (experiment)"
        " WHERE name = ? AND json_extract(plan, '$.variants') = json_extract(?, '$.variants')"
        " AND run IN (SELECT value FROM json_each(?)) ORDER BY experiment DESC",
        (name, plan, json.dumps(list(runs))),
    ).fetchone()
    if found is None:
        values = (uid, name, preset, utc_ns, plan)
        found = db.execute(
            f"INSERT INTO experiments ({', '.join(_COLUMNS[1:])}) VALUES (?, ?, ?, ?, ?) RETURNING experiment", values
        ).fetchone()
    else:
        db.execute("UPDATE experiments SET plan = ? WHERE experiment = ?", (plan, found[0]))
    experiment: int = found[0]
    add_runs(db, experiment, runs)
    return experiment


def add_runs(db: Database, experiment: int, runs: Sequence[int]) -> None:
    """Adds the runs that it does not have yet after those it has."""
    last = db.execute("SELECT max(place) FROM experiment_runs WHERE experiment = ?", (experiment,)).fetchone()[0]
    positioned = enumerate(runs, 0 if last is None else last + 1)
    db.conn.executemany(
        "INSERT OR IGNORE INTO experiment_runs (experiment, run, place) VALUES (?, ?, ?)",
        ((experiment, run, position) for position, run in positioned),
    )


def delete_empty(db: Database) -> None:
    """Deletes the experiments that have no run left, in the trash or out of it."""
    db.execute("DELETE FROM experiments WHERE experiment NOT IN (SELECT experiment FROM experiment_runs)")
