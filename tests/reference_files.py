"""Make the reference runs in resources/reference from measured databases.

    python -m tests.reference_files resources/reference/lstm.db.gz "LSTM" MEASURED.db ...

The second argument names the experiment that groups the runs in History. A variant that several databases have is taken
from the last of them. The databases are copied first; the program's own export writes the file over the old one.
"""

import gzip
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from app.storage.store import Store
from app.storage.transfer.import_export import export_database, import_runs
from app.values.records import REFERENCE_TAG, StoredRun
from app.values.units import utc_time
from app.viewmodels.format.environment import environment_label
from tests.fakes.saved_experiments import save_experiment
from workloads.catalog import with_defaults
from workloads.protocol import RunSpec

_VERSIONS = ("tensorflow", "keras", "pytorch", "jax", "cudnn_loaded", "pytorch_cudnn", "driver")
_EVERY = 2
"""One sample of a GPU in `_EVERY` stays: its power changes every 100 ms, and was read every 50 ms."""

_PAGE_BYTES = 8192
"""With pages of 4096 every kernel whose name has over 1,000 characters takes a page of its own."""


def make(target: Path, what: str, measured: Sequence[Path]) -> int:
    """Write the completed runs of databases to one file, tagged as reference runs; return how many.

    Args:
        target: Path of the file, packed.
        what: The workload, in the name of the experiment that groups the runs.
        measured: The databases.
    """
    with tempfile.TemporaryDirectory() as folder:
        copy = _merge(measured, Path(folder))
        with Store.open(copy) as store:
            runs = [store.load(row.run) for row in reversed(store.list_runs())]
            numbers = [run.row.run for run in runs]
            store.library.add_tag(numbers, REFERENCE_TAG)
            for run in runs:
                store.library.set_note(run.row.run, _note(run))
            # The experiments that they were measured in would seem to be unfinished.
            store._db.execute("DELETE FROM experiments")
            store._db.conn.commit()
            cards = sorted({name for run in runs for name in run.row.gpu_names})
            save_experiment(
                store.library,
                numbers,
                name=f"Reference: {what} on {', '.join(cards)}",
                preset=None,
                plan='{"variants": [], "repeats": 1, "until_pct": null, "carried": []}',
                utc_ns=runs[0].row.started_utc_ns,
            )
        _thin(copy)
        exported = Path(folder) / target.stem
        export_database(copy, numbers, exported)
        _compact(exported)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(gzip.compress(exported.read_bytes(), mtime=0))
    return len(runs)


def _merge(measured: Sequence[Path], folder: Path) -> Path:
    """Make one database of the completed runs; of each variant those of the last database that has it."""
    merged, found = folder / "measured.db", set[str]()
    for index, path in enumerate(reversed(measured)):
        copy = folder / f"{index}.db"
        shutil.copyfile(path, copy)
        with Store.open(copy) as store:
            specs = {row.run: _spec_key(row.spec) for row in store.list_runs() if row.completed}
        numbers = [run for run, spec in sorted(specs.items()) if spec not in found]
        found |= set(specs.values())
        part = folder / f"part{index}.db"
        export_database(copy, numbers, part)
        import_runs(merged, part)
    return merged


def _spec_key(spec: RunSpec) -> str:
    """Return a text that is equal for equal specs, whichever GPUs they name."""
    whole = with_defaults(spec)
    return repr((whole.workload, sorted({**whole.variant, "devices": ""}.items())))


def _note(run: StoredRun) -> str:
    """Return the note of a run: GPUs, versions and date."""
    cards = f"{len(run.row.gpu_names)}x {run.row.gpu_names[0]}" if run.row.gpu_names else "CPU"
    versions = (f"{environment_label(key)} {run.environment[key]}" for key in _VERSIONS if key in run.environment)
    return ", ".join((cards, *versions, utc_time(run.row.started_utc_ns)[:10]))


def _thin(path: Path) -> None:
    """Remove every second sample of the GPUs, and the timelines of one step but for each variant's first."""
    with Store.open(path) as store:
        store._db.execute(
            "DELETE FROM samples WHERE (device_id, t_ns) IN (SELECT device_id, t_ns FROM"
            " (SELECT device_id, t_ns, row_number() OVER (PARTITION BY device_id ORDER BY t_ns) AS place"
            "  FROM samples JOIN devices USING (device_id) WHERE kind = 'gpu') WHERE place % ? = 0)",
            (_EVERY,),
        )
        for table in ("step_kernels", "step_streams", "step_traces"):
            store._db.execute(
                f"DELETE FROM {table} WHERE run NOT IN (SELECT min(run) FROM step_traces JOIN runs USING (run)"
                " GROUP BY workload, variant)"
            )
        store._db.conn.commit()


def _compact(path: Path) -> None:
    """Remove the write-ahead log and the empty pages of a database."""
    with Store.open(path) as store:
        for statement in ("PRAGMA journal_mode = DELETE", f"PRAGMA page_size = {_PAGE_BYTES}", "VACUUM"):
            store._db.conn.execute(statement).close()


if __name__ == "__main__":
    target, what, *measured = sys.argv[1:]
    print(make(Path(target), what, [Path(path) for path in measured]), "runs")
