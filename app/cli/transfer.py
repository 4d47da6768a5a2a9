"""`export`, `import` and `reference`: runs written to files, read from other databases, and the reference runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import click

from app.cli.commands import UpperLayers
from app.cli.options import FILE, Verb, command, runs_argument
from app.cli.progress import progress_watch
from app.cli.services import open_store
from app.cli.terminal import print_json, print_table, say
from app.errors import UserError
from app.paths import DATABASE_SUFFIXES, PROGRAM
from app.report.documents import iso_utc
from app.report.export import (
    Format,
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
from app.values import units
from app.viewmodels.format.environment import environment_label
from workloads.catalog import UsageError

_SUFFIXES = ("", ".keras")
_TIMELINE = ".json"
_NAMED = 5
"""The most runs in the name of a folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions:
    """The parameters of `export`."""

    database: Path | None
    as_json: bool
    runs: Sequence[int]
    queue: bool
    format: Format | Literal["trace"] | None
    raw_text: bool
    output: Path | None
    model: Sequence[Path]
    weights: Path | None


@command("export", "export 12 13 --format csv", "export 12 13 -o runs.vscope", "export 12 --model lstm.keras")
@runs_argument(required=False)
@click.option(
    "--queue",
    is_flag=True,
    help="With -o FILE.vscope: unfinished experiments with their runs, to continue elsewhere.",
)
@click.option(
    "--format",
    type=click.Choice((*get_args(Format), "trace")),
    help="Tables in this format, a file each, in a folder; or trace: one timeline that ui.perfetto.dev opens.",
)
@click.option(
    "--raw-text",
    is_flag=True,
    help="With --format csv: write texts unchanged, even those that a spreadsheet would evaluate.",
)
@click.option(
    "-o",
    "output",
    type=FILE,
    metavar="PATH",
    help="The folder to create (default: runs-NUMBERS), FILE.json for a timeline (runs-NUMBERS.trace.json),"
    " or FILE.vscope (or .db) for a database that `import` reads.",
)
@click.option(
    "--model",
    type=FILE,
    multiple=True,
    metavar="PATH",
    help="A Keras model of one run's saved weights: a file that ends in .keras, or a folder for a SavedModel;"
    " may be repeated.",
)
@click.option("--weights", type=FILE, metavar="PATH", help="With --model: its weights file, if it was moved.")
def export(**values: Any) -> int:
    """Write what is requested and print where it is."""
    options = ExportOptions(**values)
    if not options.model:
        return _export(options)
    if options.format or options.output:
        raise UsageError("--model excludes --format and -o: give one of them.")
    return _export_models(options)


def _export_models(options: ExportOptions) -> int:
    _check_model_paths(options.model)
    if len(options.runs) != 1:
        raise UsageError("--model writes the model of one run: give one run.")
    with open_store(options.database) as store:
        run = store.load(options.runs[0]).row
        weights = weights_file(run, store.path, options.weights)
    say(f"Writing a Keras model of run {run.run} …")
    export = export_model(run, weights, options.model, Leases(), say)
    if options.as_json:
        models = [str(path) for path in options.model]
        differences = {"max_difference": export.max_difference, "max_output": export.max_output}
        print_json({"run": run.run, "models": models, **differences, "tolerance": export.tolerance})
        return 0
    for path in options.model:
        load = "keras.saving.load_model" if path.suffix else "tf.saved_model.load"
        print(f'Wrote {path}: load it with {load}("{path}").')
    print(
        f"It answers as the trained model does: within {export.max_difference:.1e} of outputs up to "
        f"{units.number(export.max_output)}."
    )
    return 0


def _check_model_paths(paths: Sequence[Path]) -> None:
    """Raise `UsageError` for another type of file, `UserError` for an existing file."""
    for path in paths:
        if path.suffix not in _SUFFIXES:
            raise UsageError(
                f"--model takes a file that ends in .keras, or a folder for a SavedModel, not {path.name}."
            )
        if path.exists():
            raise UserError(f"{path} already exists; name another, or delete it first.")


@command("import", "import runs.vscope")
@click.argument("file", type=FILE, metavar="FILE", help="A database, from any machine.")
def import_database(database: Path | None, as_json: bool, file: Path) -> int:
    """Import what is not here yet, and print what was and was not."""
    with open_store(database, may_be_new=True) as store:
        path = store.path
    with progress_watch("Importing") as watch:
        imported = import_with_queue(path, file, watch)
    if as_json:
        print_json(import_document(imported))
    else:
        print("\n".join(describe_import(imported)))
    return 0


@command("FILE", "runs.vscope")
@click.argument("file", type=FILE, metavar="FILE", help="A database of this program.")
@click.pass_context
def open_file(context: click.Context, database: Path | None, as_json: bool, file: Path) -> int:
    """Open the window, which asks before it adds runs."""
    upper = context.ensure_object(UpperLayers)
    if not file.is_file():
        raise UserError(f"There is no file {file}.")
    ways = {".py": f"run {file}:NAME", ".toml": f"experiment --preset {file}"}
    if way := ways.get(file.suffix):
        raise UserError(f"`{PROGRAM} {way}` starts what {file.name} describes; or drop the file on the window.")
    if as_json or upper.open_window is None or not upper.has_display:
        raise UserError(
            f"There is no window to open {file.name} in: `{PROGRAM} import {file}` adds the runs of a database."
        )
    return upper.open_window(database, None, file)


@command("reference", "reference", "reference add")
@click.argument(
    "action",
    type=Verb(("list", "add", "remove")),
    default="list",
    metavar="[ACTION]",
    help="list; add copies of them to the database, tagged reference; or remove these copies (default: list).",
)
def reference(database: Path | None, as_json: bool, action: str) -> int:
    """Add or remove the reference runs where that is requested; else print what there is of them."""
    with open_store(database, may_be_new=action == "add") as store:
        path, runs = store.path, reference_runs(store)
    sentences = []
    if action == "add":
        with progress_watch("Adding the reference runs") as watch:
            runs = add_reference(path, watch)
        sentences = [describe_reference_added(runs)]
    elif action == "remove":
        sentences, runs = [describe_reference_removed(remove_reference(path))], []
    if as_json:
        print_json({"files": [_document(file) for file in reference_files()], "runs": runs})
    elif sentences:
        print("\n".join(sentences))
    else:
        _print_files(runs)
    return 0


def _print_files(runs: list[int]) -> None:
    rows = [
        (
            file.name,
            str(len(file.uids)),
            ", ".join(file.gpu_names),
            " to ".join(dict.fromkeys(units.utc_time(utc_ns)[:10] for utc_ns in (file.first_utc_ns, file.last_utc_ns))),
            ", ".join(f"{environment_label(key)} {' and '.join(values)}" for key, values in file.versions.items()),
        )
        for file in reference_files()
    ]
    print_table(("reference", "runs", "card", "measured", "versions"), rows, right=frozenset({1}))
    print()
    if runs:
        print(f"{len(runs)} of these runs are in this database: `{PROGRAM} list --tag reference`.")
    else:
        print(f"None of these runs is in this database; `{PROGRAM} reference add` adds copies.")


def _document(file: ReferenceFile) -> dict[str, Any]:
    return {
        "name": file.name,
        "path": str(file.path),
        "runs": len(file.uids),
        "cards": list(file.gpu_names),
        "first_started_utc": iso_utc(file.first_utc_ns),
        "last_started_utc": iso_utc(file.last_utc_ns),
        "versions": {key: list(values) for key, values in file.versions.items()},
    }


def _export(options: ExportOptions) -> int:
    """Write tables, a timeline or a database, and print where it is."""
    if not options.runs and not options.queue:
        raise UsageError("export needs the numbers of runs, or --queue for the experiments that are not finished.")
    target = _target(options)
    with open_store(options.database) as store:
        path = store.path
        entries, queued_runs = exportable_queue(store) if options.queue else ([], [])
    runs = list(dict.fromkeys([*options.runs, *queued_runs]))
    with progress_watch("Exporting") as watch:
        if target.suffix in DATABASE_SUFFIXES:
            exported = export_database(path, runs, target, watch, entries)
        elif options.format == "trace":
            exported = export_trace(path, runs, target, watch)
        else:
            assert options.format is not None
            exported = export_files(path, runs, target, options.format, watch, raw_text=options.raw_text)
    if options.as_json:
        print_json(export_document(exported))
    else:
        print("\n".join(describe_export(exported, target)))
    return 0


def _target(options: ExportOptions) -> Path:
    """Return where to write; raises `UsageError` for conflicting options."""
    is_trace = options.format == "trace"
    runs = list(dict.fromkeys(options.runs))
    more = f"-and-{len(runs) - _NAMED}-more" if len(runs) > _NAMED else ""
    name = f"runs-{'-'.join(map(str, runs[:_NAMED]))}{more}"
    target = options.output or Path(name + (f".trace{_TIMELINE}" if is_trace else ""))
    if is_trace and target.suffix != _TIMELINE:
        raise UsageError(f"--format trace writes one file: -o takes a name that ends in {_TIMELINE}.")
    is_database = target.suffix in DATABASE_SUFFIXES
    if is_database and options.format:
        raise UsageError(f"-o {target} writes a database, --format a folder of tables: give one of them.")
    if not is_database and options.format is None:
        raise UsageError(
            "export takes --format csv, json, parquet or trace, or -o FILE.vscope for runs, or --model FILE."
        )
    if options.raw_text and options.format != "csv":
        raise UsageError("--raw-text goes with --format csv: other formats keep texts unchanged.")
    if options.queue and not is_database:
        raise UsageError("--queue goes with -o FILE.vscope: only a database holds experiments that can continue.")
    return target
