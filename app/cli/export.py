"""`export`: stored runs taken away, as plain tables, a timeline, a small database, or a Keras model."""

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from app.cli.export_arguments import TRACE
from app.cli.export_model import export_models
from app.cli.export_progress import watched
from app.cli.services import opened_store
from app.cli.terminal import print_json
from app.report.export import export_files
from app.report.export_trace import export_trace
from app.report.export_words import exported_document, exported_words
from app.runs.queue_export import to_take_away
from app.storage.transfer import export_database
from workloads.catalog import UsageError

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
    with opened_store(chosen.db) as store:
        path = store.path
        entries, made = to_take_away(store) if chosen.queue else ([], [])
    runs = list(dict.fromkeys([*chosen.runs, *made]))
    with watched("Exporting") as watch:
        if target.suffix == _DATABASE:
            done = export_database(path, runs, target, watch, entries)
        elif chosen.format == TRACE:
            done = export_trace(path, runs, target, watch)
        else:
            done = export_files(path, runs, target, chosen.format, watch)
    if chosen.json:
        print_json(exported_document(done))
    else:
        print("\n".join(exported_words(done, target)))
    return 0


def _target(chosen: Namespace) -> Path:
    """Where to write; raises `UsageError` where that and what is asked for do not go together."""
    is_trace = chosen.format == TRACE
    target = chosen.output or Path(_folder(chosen.runs) + (f".trace{_TIMELINE}" if is_trace else ""))
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


def _folder(asked: Sequence[int]) -> str:
    runs = list(dict.fromkeys(asked))
    more = f"-and-{len(runs) - _NAMED}-more" if len(runs) > _NAMED else ""
    return f"runs-{'-'.join(map(str, runs[:_NAMED]))}{more}"
