"""`export`: stored runs taken away, as plain tables, as a small database, or as a Keras model."""

from argparse import Namespace
from pathlib import Path

from app.cli.export_model import export_models
from app.cli.export_progress import watched
from app.cli.services import opened_store
from app.cli.terminal import print_json
from app.report.export import export_files
from app.report.export_words import exported_document, exported_words
from app.storage.transfer import export_database
from workloads.catalog import UsageError

_DATABASE = ".db"


def export(chosen: Namespace) -> int:
    """Writes what was asked for and says where it is."""
    if chosen.model:
        if chosen.format or chosen.output:
            raise UsageError("--model goes without --format and -o: give one of them at a time.")
        return export_models(chosen)
    runs = list(dict.fromkeys(chosen.runs))
    target = chosen.output or Path("runs-" + "-".join(map(str, runs[:5])))
    is_database = chosen.format is None and target.suffix == _DATABASE
    if chosen.format is None and not is_database:
        raise UsageError("export takes --format csv, json or parquet, or -o FILE.db for a database, or --model FILE.")
    with opened_store(chosen.db) as store:
        path = store.path
    with watched("Exporting") as watch:
        if is_database:
            done = export_database(path, runs, target, watch)
        else:
            done = export_files(path, runs, target, chosen.format, watch)
    if chosen.json:
        print_json(exported_document(done))
    else:
        print("\n".join(exported_words(done, target)))
    return 0
