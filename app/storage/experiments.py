"""Experiments as stored: their plans, and the runs that were made or counted for them."""

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
    """Return one experiment, or all, newest first, without the runs in the trash."""
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
    """Save runs as an experiment and return its number.

    An experiment of the same name and variants that has one of the runs is extended: more or fewer repeats make no
    other experiment.

    Args:
        db: An open database, within a transaction.
        runs: The runs.
        uid: Number of a new experiment that is the same in every database.
        name: Its name.
        preset: Key of its preset, if any.
        plan: Its `Plan` as JSON.
        utc_ns: When a new one is made.
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
    """Add the runs that an experiment does not have yet, after those it has."""
    last = db.execute("SELECT max(place) FROM experiment_runs WHERE experiment = ?", (experiment,)).fetchone()[0]
    positioned = enumerate(runs, 0 if last is None else last + 1)
    db.conn.executemany(
        "INSERT OR IGNORE INTO experiment_runs (experiment, run, place) VALUES (?, ?, ?)",
        ((experiment, run, position) for position, run in positioned),
    )


def delete_empty(db: Database) -> None:
    """Delete the experiments that have no run left, in the trash or out of it."""
    db.execute("DELETE FROM experiments WHERE experiment NOT IN (SELECT experiment FROM experiment_runs)")
