"""Exports as tables and documents, and what is said of exports and imports."""

import csv
import gc
import json
import re
import sys
import tracemalloc
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from app.cli.main import main
from app.errors import UserError
from app.report.documents import run_document
from app.report.export import (
    TABLE_WRITERS,
    Format,
    describe_export,
    describe_import,
    export_document,
    export_files,
    import_document,
    utc_text,
)
from app.storage.library import Library
from app.storage.store import Store
from app.storage.transfer.flat_tables import FlatTable, open_flat_tables
from app.storage.transfer.import_export import ExistingRun, Exported, Imported
from app.storage.transfer.progress import NO_PROGRESS, StoppedError, TransferProgress
from app.values.fields import SlowSample
from app.values.samples import LogLine
from tests.fakes.runs import GPU, UTC_NS, S, begin, keep

DOCS = Path(__file__).parents[3] / "docs" / "export.md"
Table = tuple[list[str], list[list[Any]]]


@pytest.fixture
def stored(database_path: Path) -> Path:
    """Three runs, the second with odd texts."""
    with Store.open(database_path) as store:
        for uid in ("uid-1", "uid-2", "uid-3"):
            run = keep(store, uid=uid)
            store.write(run, [SlowSample(t_ns=4 * S, device=GPU.device, energy_mj=7, sm_active_pct=93.5)])
        library = Library(store._db, database_path)
        library.set_note(2, 'a "note",\nin two lines; =1+1')
        library.add_tag([2, 3], "nightly")
        store._db.execute("INSERT INTO experiments VALUES (1, 'e-1', 'two', NULL, ?, '{}')", (UTC_NS + 5,))
        store._db.execute("INSERT INTO experiment_runs VALUES (1, 2, 0)")
        store._db.conn.commit()
    return database_path


def expected(database: Path, runs: Sequence[int]) -> dict[str, Table]:
    """Every plain table with its moments as text."""
    with open_flat_tables(database, runs, NO_PROGRESS) as found:
        return {
            table.name: (
                [column.name for column in table.columns],
                [_flat_row(row, table) for batch in found.batches(table) for row in batch],
            )
            for table in found.tables
        }


def _flat_row(row: Sequence[Any], table: FlatTable) -> list[Any]:
    return [
        utc_text(value) if column.kind == "utc" and value is not None else value
        for value, column in zip(row, table.columns, strict=True)
    ]


def read_csv(path: Path) -> Table:
    """Numbers are what reads as one."""
    with path.open(newline="", encoding="utf-8") as file:
        names, *rows = csv.reader(file)
    return names, rows


def as_csv(table: Table) -> Table:
    return table[0], [["" if value is None else str(value) for value in row] for row in table[1]]


def read_json(path: Path) -> Table:
    document = json.loads(path.read_text(encoding="utf-8"))
    return document["columns"], document["data"]


def read_parquet(path: Path) -> Table:
    found = pq.read_table(path)
    for place, field in enumerate(found.schema):
        if str(field.type) == "timestamp[ns, tz=UTC]":
            values = [value.value for value in found.column(place)]
            texts = [None if value is None else utc_text(value) for value in values]
            found = found.set_column(place, field.name, [texts])
    columns = [column.to_pylist() for column in found.columns]
    return found.column_names, [list(row) for row in zip(*columns, strict=True)]


READ: dict[Format, Callable[[Path], Table]] = {"csv": read_csv, "json": read_json, "parquet": read_parquet}


@pytest.mark.parametrize("format", TABLE_WRITERS)
def test_every_format_reads_back_what_the_database_holds(stored: Path, tmp_path: Path, format: Format) -> None:
    folder = tmp_path / "out"
    done = export_files(stored, [3, 2], folder, format)
    tables = expected(stored, [3, 2])
    names = {f"{name}.{format}" for name in tables} | ({"documents.json"} if format == "json" else set())
    assert {path.name for path in done.files} == names
    assert {path.name for path in folder.iterdir()} == names
    for name, table in tables.items():
        assert table[1], f"{name} is put to the test"
        assert READ[format](folder / f"{name}.{format}") == (as_csv(table) if format == "csv" else table), name


@pytest.mark.parametrize("raw_text", [False, True])
def test_a_spreadsheet_computes_no_text_unless_it_is_wanted_raw(stored: Path, tmp_path: Path, raw_text: bool) -> None:
    formulas = [
        "=cmd|' /C calc'!A0",
        "+1",
        "-1",
        "@SUM(A1)",
        "\t=1",
        "\r=1",
        "\n=1",
        "\uff1d1",
        "'=1",
        "a=1",
        '"=1',
        "",
        "\x1b[31m\u202e",
    ]
    with Store.open(stored) as store:
        for line, text in enumerate(formulas):
            store.write(2, [LogLine(S, text)], first_log_line=100 + line)
        store._db.execute("UPDATE runs SET loss_last = -2.5 WHERE run = 2")
        store._db.conn.commit()
    words = ["export", "2", "--format", "csv", "-o", str(tmp_path / "out"), "--db", str(stored)]
    assert main([*words, *(["--raw-text"] if raw_text else [])]) == 0
    names, rows = read_csv(tmp_path / "out" / "log_lines.csv")
    written = [row[names.index("text")] for row in rows if int(row[names.index("line")]) >= 100]
    plain = [
        *(f"'{text}" for text in formulas[:5]),
        "'\\u000d=1",
        "'\n=1",
        "'\uff1d1",
        *formulas[8:-1],
        r"\u001b[31m\u202e",
    ]
    assert written == (formulas if raw_text else plain)
    names, rows = read_csv(tmp_path / "out" / "runs.csv")
    assert rows[0][names.index("loss_last")] == "-2.5", "a number stays one"


def test_raw_text_is_a_matter_of_csv(stored: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["export", "2", "--format", "json", "--raw-text", "-o", str(tmp_path / "out"), "--db", str(stored)]
    assert main(words) == 2
    assert "--raw-text goes with --format csv" in capsys.readouterr().err


def test_rows_are_those_of_the_store(stored: Path) -> None:
    tables = expected(stored, [2])
    with Store.open(stored) as store:
        run = store.load(2)

    def column(table: str, name: str) -> list[Any]:
        names, rows = tables[table]
        return [row[names.index(name)] for row in rows]

    assert column("runs", "uid") == ["uid-2"]
    assert column("runs", "note") == [run.row.note]
    assert json.loads(column("runs", "variant")[0]) == run.row.spec.variant
    assert column("blocks", "steps") == run.blocks.steps.tolist()
    assert column("log_lines", "text") == [line.text for line in run.log]
    assert column("kernels", "name") == [kernel.name for kernel in run.evidence.kernels] if run.evidence else []
    assert column("kernels", "kind") == [kernel.kind for kernel in run.evidence.kernels] if run.evidence else []
    assert column("samples", "device") == [GPU.device, GPU.device, "host"]
    assert column("samples", "power_mw") == [688_123, None, None]
    assert column("tags", "tag") == ["nightly"]
    assert (column("experiments", "uid"), column("experiments", "name")) == (["e-1"], ["two"])


def test_times_are_since_the_start_of_the_run_and_as_utc(stored: Path) -> None:
    tables = expected(stored, [1])
    names, rows = tables["phases"]
    start, utc, end, end_utc = (names.index(name) for name in ("start_ns", "start_utc", "end_ns", "end_utc"))
    assert [(row[start], row[end]) for row in rows] == [(S // 2, S * 5 // 2), (S * 5 // 2, S * 11 // 2)]
    assert [(row[utc], row[end_utc]) for row in rows] == [
        ("2025-10-09T08:53:20.500000000Z", "2025-10-09T08:53:22.500000000Z"),
        ("2025-10-09T08:53:22.500000000Z", "2025-10-09T08:53:25.500000000Z"),
    ]
    assert [row[2:4] for row in tables["samples"][1]][-1] == [S * 5 // 2 + 1, "2025-10-09T08:53:22.500000001Z"]
    names, rows = tables["runs"]
    assert rows[0][names.index("started_utc")] == "2025-10-09T08:53:20.000000000Z"


def test_documents_are_what_show_prints(stored: Path, tmp_path: Path) -> None:
    export_files(stored, [1, 2], tmp_path / "out", "json")
    document = json.loads((tmp_path / "out" / "documents.json").read_text(encoding="utf-8"))
    with Store.open(stored) as store:
        assert document == {"runs": [json.loads(json.dumps(run_document(store.load(run)))) for run in (1, 2)]}


@pytest.mark.parametrize("format", TABLE_WRITERS)
def test_long_runs_are_never_whole_in_memory(stored: Path, tmp_path: Path, format: Format) -> None:
    with open_flat_tables(stored, [1], NO_PROGRESS) as found:
        (table,) = (table for table in found.tables if table.name == "blocks")
    tracemalloc.start()
    try:
        with TABLE_WRITERS[format](tmp_path / "long", table.columns) as write:
            for start in range(0, 30_000, 3_000):
                write([[1, n, "measure", 4, 32, n, n, n, n, n / 7, None, 77] for n in range(start, start + 3_000)])
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 6_000_000, "a batch takes some 2 MB, all of them together 20"


def test_rows_come_in_batches_in_the_order_of_time(stored: Path) -> None:
    with Store.open(stored) as store:
        store._db.conn.executemany(
            "INSERT INTO samples (device_id, t_ns, power_mw) VALUES (1, ?, ?)",
            ((10 * S + n, n) for n in reversed(range(50_000))),
        )
        store._db.conn.commit()
    with open_flat_tables(stored, [1], NO_PROGRESS) as found:
        (table,) = (table for table in found.tables if table.name == "samples")
        batches = list(found.batches(table))
    assert [len(batch) for batch in batches] == [20_000, 20_000, 10_003]
    times = [row[2] for batch in batches for row in batch if row[1] == GPU.device]
    assert times == sorted(times)


def test_without_pyarrow_parquet_says_how_to_get_it(
    stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UserError, match=r"^Parquet needs the package pyarrow.*extra parquet"):
        export_files(stored, [1], tmp_path / "out", "parquet")
    assert not (tmp_path / "out").exists()


def test_what_is_there_is_never_written_over(stored: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    export_files(stored, [1], folder, "csv")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(UserError, match="already exists"):
        export_files(stored, [2], folder, "csv")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_nothing_is_left_of_an_export_that_was_stopped_or_refused(stored: Path, tmp_path: Path) -> None:
    with Store.open(stored) as store:
        begin(store, uid="uid-4")
    before = sorted(tmp_path.iterdir())
    with pytest.raises(StoppedError):
        export_files(stored, [1, 2], tmp_path / "out", "csv", TransferProgress(should_stop=lambda: True))
    with pytest.raises(UserError, match="Run 4 is still in progress"):
        export_files(stored, [1, 4], tmp_path / "out", "csv")
    with pytest.raises(UserError, match="cannot be written"):
        export_files(stored, [1], tmp_path / "nowhere" / "out", "csv")
    assert sorted(tmp_path.iterdir()) == before


def test_what_a_stopped_export_leaves_behind_may_be_dropped_on_any_thread(
    stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.storage.transfer.progress._CHECK_EVERY_ROWS", 1)
    unraised: list[object] = []
    monkeypatch.setattr("sys.unraisablehook", lambda event: unraised.append(event.exc_value))
    with ThreadPoolExecutor(1) as thread:
        ended = thread.submit(
            export_files, stored, [1, 2], tmp_path / "out", "csv", TransferProgress(should_stop=lambda: True)
        )
    assert isinstance(ended.exception(), StoppedError)
    del ended
    gc.collect()
    assert unraised == []


def test_how_far_it_is_is_told(stored: Path, tmp_path: Path) -> None:
    shares: list[float] = []
    export_files(stored, [1, 2], tmp_path / "out", "csv", TransferProgress(report=shares.append))
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_the_page_about_exports_names_every_column(stored: Path) -> None:
    text = DOCS.read_text(encoding="utf-8")
    for name, (columns, _) in expected(stored, [1]).items():
        section = re.search(rf"^### `{name}`\n(.*?)(?=^##|\Z)", text, re.DOTALL | re.MULTILINE)
        assert section, f"a section on {name}"
        named = set(re.findall(r"`(\w+)`", section[1]))
        assert [column for column in columns if column not in named] == [], name


def imported(
    runs: tuple[int, ...] = (),
    already: tuple[ExistingRun, ...] = (),
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
            imported(
                already=(ExistingRun(2, ("note", "tags")), ExistingRun(7, ("note",)), ExistingRun(9, in_trash=True))
            ),
            [
                "Nothing was imported: the file has no new runs.",
                "Here already, and left as they were: runs 2, 7 and 9.",
                "The file has another note for runs 2 and 7; what is here stays.",
                "The file has other tags for run 2; what is here stays.",
                "In the trash here: run 9; `python -m app restore 9` restores it.",
            ],
        ),
        (
            imported((1,), (ExistingRun(2),), (8,), (9, 11)),
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
    assert describe_import(done) == words


def test_the_hint_on_many_runs_in_the_trash_does_not_claim_to_name_them_all() -> None:
    sentence = describe_import(imported(already=tuple(ExistingRun(n, in_trash=True) for n in range(10, 20))))
    assert sentence[-1] == (
        "In the trash here: runs 10–19; `python -m app restore 10 11 12 13 14 15 16 17 …` restores them."
    )


def test_the_document_of_an_import() -> None:
    assert import_document(imported((1,), (ExistingRun(2, ("note",), in_trash=True),), (8,), (9,))) == {
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
    held = "It holds paths, environment variables, log lines, notes and names of hosts"
    assert describe_export(done, target) == [
        "Wrote 2 runs to runs.db, 2.0\N{NO-BREAK SPACE}KiB.",
        f"{held}, and the whole text of your own workloads' files.",
        f"Saved weights are not part of it; to export them too, copy {weights}",
    ]
    folder = Path("out")
    files = Exported(files=(folder / "a.csv", folder / "b.csv"), runs=1, bytes=10, seconds=0.5)
    assert describe_export(files, folder)[0] == "Wrote 1 run to 2 files in out, 10\N{NO-BREAK SPACE}B."
    assert describe_export(files, folder)[1] == describe_export(done, target)[1]
    timeline = Exported(files=(Path("a.json"),), runs=1, bytes=10, seconds=0.5)
    assert describe_export(timeline, Path("a.json"))[1] == f"{held}."
    assert export_document(done) == {
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
    wrote = "Wrote 2 runs and 1 unfinished experiment to q.db, 10\N{NO-BREAK SPACE}B."
    assert describe_export(done, target)[0] == wrote
    assert describe_import(replace(imported(), entries=(3, 4))) == [
        "2 unfinished experiments joined the queue: `python -m app queue run 3 4` continues."
    ]
