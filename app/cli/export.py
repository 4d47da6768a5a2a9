"""`export`: stored runs taken away, as plain tables, as a small database, or as a Keras model."""

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from app.cli.export_model import export_models
from app.cli.export_progress import watched
from app.cli.services import opened_store
from app.cli.terminal import print_json
from app.report.export import export_files
from app.report.export_words import exported_document, exported_words
from app.runs.queue_export import to_take_away
from app.storage.transfer import export_database
from workloads.catalog import UsageError

_DATABASE = ".db"
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
    runs = list(dict.fromkeys(chosen.runs))
    target = chosen.output or Path(_folder(runs))
    is_database = target.suffix == _DATABASE
    if is_database and chosen.format:
        raise UsageError(f"-o {target} makes a database, --format a folder of tables: give one of them at a time.")
    if not is_database and chosen.format is None:
        raise UsageError("export takes --format csv, json or parquet, or -o FILE.db for a database, or --model FILE.")
    if chosen.queue and not is_database:
        raise UsageError("--queue goes with -o FILE.db: only a database holds experiments that can go on.")
    with opened_store(chosen.db) as store:
        path = store.path
        entries, made = to_take_away(store) if chosen.queue else ([], [])
        runs = list(dict.fromkeys([*runs, *made]))
    with watched("Exporting") as watch:
        if is_database:
            done = export_database(path, runs, target, watch, entries)
        else:
            done = export_files(path, runs, target, chosen.format, watch)
    if chosen.json:
        print_json(exported_document(done))
    else:
        print("\n".join(exported_words(done, target)))
    return 0


def _folder(runs: Sequence[int]) -> str:
    more = f"-and-{len(runs) - _NAMED}-more" if len(runs) > _NAMED else ""
    return f"runs-{'-'.join(map(str, runs[:_NAMED]))}{more}"
