"""What an export or import did, in sentences."""

from dataclasses import replace
from pathlib import Path

import pytest

from app.report.export_words import exported_document, exported_words, imported_document, imported_words
from app.storage.transfer import Exported, Imported, Known


def imported(
    runs: tuple[int, ...] = (),
    already: tuple[Known, ...] = (),
    unfinished: tuple[int, ...] = (),
    in_trash: tuple[int, ...] = (),
) -> Imported:
    return Imported(runs=runs, already=already, unfinished=unfinished, in_trash=in_trash, seconds=1.5)


@pytest.mark.parametrize(
    ("done", "words"),
    [
        (imported((4,)), ["Imported 1 run as run 4."]),
        (imported((4, 5)), ["Imported 2 runs as runs 4 and 5."]),
        (imported((4, 5, 6)), ["Imported 3 runs as runs 4–6."]),
        (imported((1, 3, 5)), ["Imported 3 runs as runs 1, 3 and 5."]),
        (imported(tuple(range(0, 40, 2))), ["Imported 20 runs as runs 0, 2, 4, 6, 8 and 15 more."]),
        (
            imported(already=(Known(2, ("note", "tags")), Known(7, ("note",)), Known(9, in_trash=True))),
            [
                "Imported nothing: the file has no run that is new here.",
                "Here already, and left as they were: runs 2, 7 and 9.",
                "The file has another note for runs 2 and 7; what is here stays.",
                "The file has other tags for run 2; what is here stays.",
                "In the trash here: run 9; `python -m app restore 9` takes it out.",
            ],
        ),
        (
            imported((1,), (Known(2),), (8,), (9, 11)),
            [
                "Imported 1 run as run 1.",
                "Here already, and left as it was: run 2.",
                "Left out, not ended there: run 8 of the file.",
                "Left out, in the trash there: runs 9 and 11 of the file.",
            ],
        ),
    ],
)
def test_an_import_says_what_came_and_why_the_rest_did_not(done: Imported, words: list[str]) -> None:
    assert imported_words(done) == words


def test_the_hint_on_many_runs_in_the_trash_does_not_claim_to_name_them_all() -> None:
    found = imported_words(imported(already=tuple(Known(n, in_trash=True) for n in range(10, 20))))
    assert found[-1] == (
        "In the trash here: runs 10–19; `python -m app restore 10 11 12 13 14 15 16 17 …` takes them out."
    )


def test_the_document_of_an_import() -> None:
    assert imported_document(imported((1,), (Known(2, ("note",), in_trash=True),), (8,), (9,))) == {
        "imported": [1],
        "already": [{"run": 2, "differs": ["note"], "in_trash": True}],
        "unfinished": [8],
        "in_trash": [9],
        "queue": [],
        "complete": [],
        "seconds": 1.5,
    }


def test_an_export_says_what_was_written_and_what_stays() -> None:
    target, weights = Path("runs.db"), Path("profiles.db.weights/uid.npz")
    done = Exported(files=(target,), runs=2, bytes=2048, seconds=0.5, weights=(weights,))
    assert exported_words(done, target) == [
        "Wrote 2 runs to runs.db, 2.0\N{NO-BREAK SPACE}KiB.",
        f"Saved weights stay where they are; to take them along, copy {weights}",
    ]
    folder = Path("out")
    files = Exported(files=(folder / "a.csv", folder / "b.csv"), runs=1, bytes=10, seconds=0.5)
    assert exported_words(files, folder) == ["Wrote 1 run to 2 files in out, 10\N{NO-BREAK SPACE}B."]
    assert exported_document(done) == {
        "runs": 2,
        "files": ["runs.db"],
        "bytes": 2048,
        "seconds": 0.5,
        "weights": [str(weights)],
        "queue": 0,
    }


def test_unfinished_experiments_that_come_along_are_told() -> None:
    target = Path("q.db")
    done = Exported(files=(target,), runs=2, bytes=10, seconds=0.5, entries=1)
    assert exported_words(done, target) == ["Wrote 2 runs and 1 unfinished experiment to q.db, 10\N{NO-BREAK SPACE}B."]
    assert imported_words(replace(imported(), entries=(3, 4))) == [
        "2 unfinished experiments came into the queue: `python -m app queue go-on 3 4` goes on."
    ]
