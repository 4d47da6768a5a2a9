"""What files are that are dropped on the window, told from their first bytes."""

import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from app.runs.dropped_files import sort_files
from app.storage.store import Store

PRESET = '[cpu]\nquestion = "?"\nrepeats = 1\nmatrix = [{workload = "dummy", settings = {batch_size = [8, 16]}}]\n'


def database(path: Path) -> None:
    Store.open(path).close()


def foreign(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript("CREATE TABLE notes (text); PRAGMA application_id = 7;")


def text(contents: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(contents)


@pytest.mark.parametrize(
    ("name", "make", "kind", "words"),
    [
        ("runs.vscope", database, "database", ""),
        ("named-otherwise.json", database, "database", ""),
        ("notes.db", foreign, None, "another program's database"),
        ("model.py", text("def mlp(batch_size=32):\n    return None, None, None\n"), "workload", ""),
        ("train.py", text("x = 1"), "script", ""),
        ("mine.toml", text(PRESET.replace("[cpu]", "[gpu]")), "preset", ""),
        ("broken.toml", text("a ="), None, "is not a preset"),
        ("timeline.json", text('{"displayTimeUnit": "ms", "traceEvents": [{}]}'), None, "ui.perfetto.dev"),
        ("runs.csv", text("run,workload\n"), None, "export the runs to a .vscope file"),
        ("letter.odt", text("PK"), None, "not a file of this program"),
        ("folder", Path.mkdir, None, "A folder cannot be taken"),
        ("gone.db", lambda _: None, None, "There is no such file"),
    ],
)
def test_a_file_is_known_by_what_is_in_it(
    tmp_path: Path, database_path: Path, name: str, make: Callable[[Path], object], kind: str | None, words: str
) -> None:
    database(database_path)
    make(tmp_path / name)
    (dropped,) = sort_files([tmp_path / name], database_path, busy=False)
    assert dropped.kind == kind
    assert words in dropped.refusal
    assert bool(dropped.refusal) == (kind is None)


def test_while_something_runs_only_what_disturbs_nothing_is_taken(tmp_path: Path, database_path: Path) -> None:
    database(database_path)
    database(tmp_path / "runs.db")
    (tmp_path / "train.py").write_text("")
    dropped = sort_files([tmp_path / n for n in ("runs.db", "train.py")], database_path, busy=True)
    assert [file.kind for file in dropped] == [None, "script"]


def test_the_window_s_own_database_and_too_many_files_are_refused(database_path: Path) -> None:
    database(database_path)
    (own,) = sort_files([database_path], database_path, busy=False)
    assert (own.kind, own.refusal) == (None, "This database is already open in this window.")
    assert "7 files are too many" in sort_files([database_path] * 7, database_path, busy=False)[0].refusal
