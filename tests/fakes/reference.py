"""The real reference runs, loaded from a copy of their file."""

import shutil
from pathlib import Path

from app.storage.reference import reference_files, unpacked
from app.storage.store import Store
from app.values.records import StoredRun
from workloads.protocol import Value


def copy_reference(name: str, database: Path) -> None:
    """Make a database of the runs of one file."""
    (file,) = (file for file in reference_files() if file.name == name)
    with unpacked(file.path) as source:
        shutil.copyfile(source, database)


def load_reference(folder: Path, name: str = "cnn") -> list[StoredRun]:
    """Return the reference runs of one file, the image networks', without their samples; `folder` takes the copy."""
    database = folder / f"{name}.db"
    copy_reference(name, database)
    with Store.open(database) as store:
        return [store.load(row.run, ()) for row in reversed(store.list_runs())]


def runs_with(runs: list[StoredRun], workload: str, **settings: Value) -> list[StoredRun]:
    """Return the runs of a workload on one GPU in TF32 without XLA that have these settings."""
    wanted = {"gpus": 1, "precision": "tf32", "xla": False, **settings}.items()
    return [run for run in runs if run.row.spec.workload == workload and wanted <= run.row.spec.variant.items()]
