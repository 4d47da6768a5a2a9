"""`reference`: the runs measured on real GPUs that come with the program."""

from argparse import Namespace
from typing import Any

from app.cli.export_progress import watched
from app.cli.services import opened_store
from app.cli.terminal import print_json, print_table
from app.report.documents import iso_utc
from app.report.export_words import added_words, removed_words
from app.storage.reference import ReferenceFile, add_reference, reference_files, reference_runs, remove_reference
from app.viewmodels import units
from app.viewmodels.environment import fact_name


def reference(chosen: Namespace) -> int:
    """Adds or removes the reference runs where that is asked for; else says what there is of them."""
    with opened_store(chosen.db, may_be_new=chosen.add) as store:
        path, here = store.path, reference_runs(store)
    said = []
    if chosen.add:
        with watched("Adding the reference runs") as watch:
            here = add_reference(path, watch)
        said = [added_words(here)]
    elif chosen.remove:
        said, here = [removed_words(remove_reference(path))], []
    if chosen.json:
        print_json({"files": [_document(file) for file in reference_files()], "runs": here})
    elif said:
        print("\n".join(said))
    else:
        _print_files(here)
    return 0


def _print_files(here: list[int]) -> None:
    rows = [
        (file.path.stem, str(len(file.uids)), ", ".join(file.cards), _day(file), _versions(file))
        for file in reference_files()
    ]
    print_table(("reference", "runs", "card", "measured", "versions"), rows, right=frozenset({1}))
    print()
    if here:
        print(f"{len(here)} of these runs are in this database: `python -m app list --tag reference`.")
    else:
        print("None of these runs is in this database; `python -m app reference --add` puts copies of them there.")


def _day(file: ReferenceFile) -> str:
    return " to ".join(dict.fromkeys(units.utc_time(utc_ns)[:10] for utc_ns in (file.first_utc_ns, file.last_utc_ns)))


def _versions(file: ReferenceFile) -> str:
    return ", ".join(f"{fact_name(key)} {' and '.join(values)}" for key, values in file.versions.items())


def _document(file: ReferenceFile) -> dict[str, Any]:
    return {
        "name": file.path.stem,
        "path": str(file.path),
        "runs": len(file.uids),
        "cards": list(file.cards),
        "first_started_utc": iso_utc(file.first_utc_ns),
        "last_started_utc": iso_utc(file.last_utc_ns),
        "versions": {key: list(values) for key, values in file.versions.items()},
    }
