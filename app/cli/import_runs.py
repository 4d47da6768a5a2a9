"""`import`: runs of another database added to this one."""

from argparse import Namespace

from app.cli.export_progress import watched
from app.cli.services import opened_store
from app.cli.terminal import print_json
from app.report.export_words import imported_document, imported_words
from app.runs.queue_import import import_with_queue


def import_database(chosen: Namespace) -> int:
    """Imports what is not here yet and says what was and was not."""
    with opened_store(chosen.db, may_be_new=True) as store:
        path = store.path
    with watched("Importing") as watch:
        done = import_with_queue(path, chosen.file, watch)
    if chosen.json:
        print_json(imported_document(done))
    else:
        print("\n".join(imported_words(done)))
    return 0
