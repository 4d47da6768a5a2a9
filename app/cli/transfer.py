"""`export`, `import` and `reference`: runs written to files, read from other databases, and the reference runs."""

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from app import units
from app.cli.arguments_transfer import TRACE
from app.cli.progress import progress_watch
from app.cli.services import open_store
from app.cli.terminal import print_json, print_table, say
from app.errors import UserError
from app.report.documents import iso_utc
from app.report.export import (
    describe_export,
    describe_import,
    describe_reference_added,
    describe_reference_removed,
    export_document,
    export_files,
    import_document,
)
from app.report.trace import export_trace
from app.runs.experiment.queue import exportable_queue, import_with_queue
from app.runs.leases import Leases
from app.runs.weight_transfer import export_model, weights_file
from app.storage.reference import ReferenceFile, add_reference, reference_files, reference_runs, remove_reference
from app.storage.transfer.import_export import export_database
from app.viewmodels.format.environment import environment_label
from workloads.catalog import UsageError

_SUFFIXES = ("", ".keras")


def export_models(chosen: Namespace) -> int:
    """Writes the models and says how well they answer."""
    _check_model_paths(chosen.model)
    if len(chosen.runs) != 1:
        raise UsageError("--model makes a model of one run; name that run alone.")
    with open_store(chosen.db) as store:
        run = store.load(chosen.runs[0]).row
        weights = weights_file(run, store.path, chosen.weights)
    say(f"Making a Keras model of run {run.run} …")
    found = export_model(run, weights, chosen.model, Leases(), say)
    if chosen.json:
        models = [str(path) for path in chosen.model]
        differences = {"max_difference": found.max_difference, "max_output": found.max_output}
        print_json({"run": run.run, "models": models, **differences, "tolerance": found.tolerance})
        return 0
    for path in chosen.model:
        load = "keras.saving.load_model" if path.suffix else "tf.saved_model.load"
        print(f'Wrote {path}: load it with {load}("{path}").')
    print(
        f"It answers as the trained model does: within {found.max_difference:.1e} of outputs up to "
        f"{units.number(found.max_output)}."
    )
    return 0


def _check_model_paths(paths: Sequence[Path]) -> None:
    """Raises `UsageError` for a kind of file that this does not write, `UserError` for one that is there already."""
    for path in paths:
        if path.suffix not in _SUFFIXES:
            raise UsageError(
                f"--model takes a file that ends in .keras, or a folder for a SavedModel, not {path.name}."
            )
        if path.exists():
            raise UserError(f"{path} is there already; name another, or delete it first.")


def import_database(chosen: Namespace) -> int:
    """Imports what is not here yet and says what was and was not."""
    with open_store(chosen.db, may_be_new=True) as store:
        path = store.path
    with progress_watch("Importing") as watch:
        done = import_with_queue(path, chosen.file, watch)
    if chosen.json:
        print_json(import_document(done))
    else:
        print("\n".join(describe_import(done)))
    return 0


def reference(chosen: Namespace) -> int:
    """Adds or removes the reference runs where that is asked for; else says what there is of them."""
    with open_store(chosen.db, may_be_new=chosen.add) as store:
        path, runs = store.path, reference_runs(store)
    sentences = []
    if chosen.add:
        with progress_watch("Adding the reference runs") as watch:
            runs = add_reference(path, watch)
        sentences = [describe_reference_added(runs)]
    elif chosen.remove:
        sentences, runs = [describe_reference_removed(remove_reference(path))], []
    if chosen.json:
        print_json({"files": [_document(file) for file in reference_files()], "runs": runs})
    elif sentences:
        print("\n".join(sentences))
    else:
        _print_files(runs)
    return 0


def _print_files(runs: list[int]) -> None:
    rows = [
        (file.path.stem, str(len(file.uids)), ", ".join(file.gpu_names), _day(file), _versions(file))
        for file in reference_files()
    ]
    print_table(("reference", "runs", "card", "measured", "versions"), rows, right=frozenset({1}))
    print()
    if runs:
        print(f"{len(runs)} of these runs are in this database: `python -m app list --tag reference`.")
    else:
        print("None of these runs is in this database; `python -m app reference --add` puts copies of them there.")


def _day(file: ReferenceFile) -> str:
    return " to ".join(dict.fromkeys(units.utc_time(utc_ns)[:10] for utc_ns in (file.first_utc_ns, file.last_utc_ns)))


def _versions(file: ReferenceFile) -> str:
    return ", ".join(f"{environment_label(key)} {' and '.join(values)}" for key, values in file.versions.items())


def _document(file: ReferenceFile) -> dict[str, Any]:
    return {
        "name": file.path.stem,
        "path": str(file.path),
        "runs": len(file.uids),
        "cards": list(file.gpu_names),
        "first_started_utc": iso_utc(file.first_utc_ns),
        "last_started_utc": iso_utc(file.last_utc_ns),
        "versions": {key: list(values) for key, values in file.versions.items()},
    }


_DATABASE = ".db"
_TIMELINE = ".json"
_NAMED = 5
"""Runs that the name of a folder names."""


def export(chosen: Namespace) -> int:
    """Writes what was asked for and says where it is."""
    if chosen.model:
        if chosen.format or chosen.output:
            raise UsageError("--model goes without --format and -o: give one of them at a time.")
        return export_models(chosen)
    if not chosen.runs and not chosen.queue:
        raise UsageError("export needs the numbers of runs, or --queue for the experiments that are not finished.")
    target = _target(chosen)
    with open_store(chosen.db) as store:
        path = store.path
        entries, made = exportable_queue(store) if chosen.queue else ([], [])
    runs = list(dict.fromkeys([*chosen.runs, *made]))
    with progress_watch("Exporting") as watch:
        if target.suffix == _DATABASE:
            done = export_database(path, runs, target, watch, entries)
        elif chosen.format == TRACE:
            done = export_trace(path, runs, target, watch)
        else:
            done = export_files(path, runs, target, chosen.format, watch)
    if chosen.json:
        print_json(export_document(done))
    else:
        print("\n".join(describe_export(done, target)))
    return 0


def _target(chosen: Namespace) -> Path:
    """Where to write; raises `UsageError` where that and what is asked for do not go together."""
    is_trace = chosen.format == TRACE
    target = chosen.output or Path(_default_name(chosen.runs) + (f".trace{_TIMELINE}" if is_trace else ""))
    if is_trace and target.suffix != _TIMELINE:
        raise UsageError(f"--format trace writes one file: -o takes a name that ends in {_TIMELINE}.")
    is_database = target.suffix == _DATABASE
    if is_database and chosen.format:
        raise UsageError(f"-o {target} makes a database, --format a folder of tables: give one of them at a time.")
    if not is_database and chosen.format is None:
        raise UsageError(
            "export takes --format csv, json, parquet or trace, or -o FILE.db for a database, or --model FILE."
        )
    if chosen.queue and not is_database:
        raise UsageError("--queue goes with -o FILE.db: only a database holds experiments that can go on.")
    return target


def _default_name(numbers: Sequence[int]) -> str:
    runs = list(dict.fromkeys(numbers))
    more = f"-and-{len(runs) - _NAMED}-more" if len(runs) > _NAMED else ""
    return f"runs-{'-'.join(map(str, runs[:_NAMED]))}{more}"
