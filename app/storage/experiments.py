"""Experiments as they are kept: what was asked, and which runs were made or counted for it."""

from sqlite_utils import Database

from app.queries import StoredExperiment

_COLUMNS = ("experiment", "uid", "name", "preset", "created_utc_ns", "plan")


def stored(db: Database, experiment: int | None = None) -> list[StoredExperiment]:
    """One experiment, or all, newest first; runs in the trash are left out."""
    runs: dict[int, list[int]] = {}
    for number, run in db.execute(
        "SELECT experiment, run FROM experiment_runs JOIN runs USING (run)"
        " WHERE deleted_utc_ns IS NULL AND (?1 IS NULL OR experiment = ?1) ORDER BY experiment, place",
        (experiment,),
    ):
        runs.setdefault(number, []).append(run)
    found = db.execute(
        f"SELECT {', '.join(_COLUMNS)} FROM experiments WHERE ?1 IS NULL OR experiment = ?1"
        " ORDER BY created_utc_ns DESC, experiment DESC",
        (experiment,),
    )
    return [
        StoredExperiment(**dict(zip(_COLUMNS, row, strict=True)), runs=tuple(runs.get(row[0], ()))) for row in found
    ]


def delete_empty(db: Database) -> None:
    """Deletes the experiments that have no run left, in the trash or out of it."""
    db.execute("DELETE FROM experiments WHERE experiment NOT IN (SELECT experiment FROM experiment_runs)")
