"""`export` and `import` as commands: their arguments, output and progress."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from app.cli import progress
from app.cli.commands import UpperLayers
from app.cli.main import main
from app.cli.progress import PercentLine, StatusLines
from app.storage.store import Store
from tests.fakes.command_line import Run
from tests.fakes.runs import keep
from tests.fakes.terminal import screen, use_terminal


@pytest.fixture
def run(run: Run, database_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A command on a database of two runs, in its folder."""
    with Store.open(database_path) as store:
        keep(store)
        keep(store, uid="uid-2")
    monkeypatch.chdir(tmp_path)
    return run


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["1"], "export takes --format csv, json, parquet or trace, or -o FILE.vscope for runs, or --model FILE."),
        (
            ["1", "-o", "x.csv"],
            "export takes --format csv, json, parquet or trace, or -o FILE.vscope for runs, or --model FILE.",
        ),
        (
            ["1", "--format", "csv", "-o", "x.db"],
            "-o x.db writes a database, --format a folder of tables: give one of them.",
        ),
        (
            ["1", "--format", "trace", "-o", "x.db"],
            "--format trace writes one file: -o takes a name that ends in .json.",
        ),
        (["1", "2", "--model", "m.keras"], "--model writes the model of one run: give one run."),
        (["1", "--model", "m.keras", "-o", "x.db"], "--model excludes --format and -o: give one of them."),
    ],
)
def test_wrong_use_is_one_sentence(run: Run, words: list[str], sentence: str, database_path: Path) -> None:
    assert run("export", *words, status=2) == f"{sentence}\n"
    assert [path.name for path in Path.cwd().iterdir()] == [database_path.name]


def test_a_database_goes_out_and_comes_in_once(run: Run, tmp_path: Path) -> None:
    there = tmp_path / "there.db"
    assert run("export", "2", "1", "2", "-o", "two.db").startswith("Wrote 2 runs to two.db, ")
    assert run("import", "two.db", database=there) == "Imported 2 runs as runs 1 and 2.\n"
    assert run("import", "two.db", database=there).splitlines() == [
        "Nothing was imported: the file has no new runs.",
        "Here already, and left as they were: runs 1 and 2.",
    ]
    with Store.open(there) as store:
        assert sorted(row.uid for row in store.list_runs()) == ["uid-1", "uid-2"]


def test_tables_go_into_a_folder_named_after_their_runs(run: Run) -> None:
    assert "Wrote 2 runs to 18 files in runs-1-2" in run("export", "1", "2", "--format", "csv")
    assert (Path("runs-1-2") / "samples.csv").read_text(encoding="utf-8").startswith("run,device,t_ns,utc,power_mw")
    document = json.loads(run("export", "1", "--format", "json", "-o", "out", "--json"))
    assert sorted(document["files"]) == sorted(str(path) for path in Path("out").iterdir())
    assert document["runs"] == 1


def test_a_timeline_is_one_file_named_after_its_runs(run: Run) -> None:
    assert run("export", "2", "1", "--format", "trace").startswith("Wrote 2 runs to runs-2-1.trace.json, ")
    events = json.loads(Path("runs-2-1.trace.json").read_text(encoding="utf-8"))["traceEvents"]
    names = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    assert [name.partition(" ·")[0] for name in names] == ["run 2", "run 2", "run 1", "run 1"], "and its traced step"
    assert len({event["pid"] for event in events}) == 4


def test_a_folder_of_many_runs_says_of_how_many(run: Run, database_path: Path) -> None:
    with Store.open(database_path) as store:
        for n in range(3, 8):
            keep(store, uid=f"uid-{n}")
    assert "18 files in runs-1-2-3-4-5-and-2-more" in run("export", *"1234567", "--format", "csv")


def test_an_import_as_a_document(run: Run, database_path: Path, tmp_path: Path) -> None:
    document = json.loads(run("import", str(database_path), "--json", database=tmp_path / "there.db"))
    assert document.pop("seconds") > 0
    assert document.pop("imported") == [1, 2]
    assert document == {key: [] for key in ("already", "unfinished", "in_trash", "queue", "complete")}


def test_a_refused_file_is_one_sentence_and_status_1(run: Run, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no database, but long enough to be taken for one's header " * 3)
    said = run("import", "notes.txt", status=1)
    assert said == "notes.txt is not an SQLite database, or it is encrypted; nothing was imported.\n"


def line(monkeypatch: pytest.MonkeyPatch, *, is_live: bool) -> tuple[PercentLine, SimpleNamespace]:
    """A line whose clock the test sets."""
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: clock.now))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_live)
    return PercentLine("Importing", StatusLines()), clock


def test_progress_is_quiet_at_first_then_painted_over(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use_terminal(monkeypatch, sys.stderr, 80)
    shown, clock = line(monkeypatch, is_live=True)
    written, seen = "", []
    for at, share in ((100.5, 0.1), (101.0, 0.25), (101.05, 0.26), (101.2, 0.28)):
        clock.now = at
        shown.show(share)
        written += capsys.readouterr().err
        seen.append(screen(written)[-1].translate({ord(sign): "" for sign in "━╸"}).split())
    assert seen == [[], ["Importing", "…", "25", "%"], ["Importing", "…", "25", "%"], ["Importing", "…", "28", "%"]]
    shown.clear()
    assert screen(written + capsys.readouterr().err) == [""]


def test_progress_in_a_log_is_a_line_each_tenth(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown, clock = line(monkeypatch, is_live=False)
    for share in (0.2, 0.25, 0.31, 0.9):
        clock.now += 2
        shown.show(share)
    shown.clear()
    assert capsys.readouterr().err == "Importing …  20\xa0%\nImporting …  31\xa0%\nImporting …  90\xa0%\n"


def test_a_file_opens_in_the_window(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    opened: list[object] = []

    def window(database: Path | None, sample_ms: float | None, first: object) -> int:
        opened.append((database, first))
        return 0

    file = tmp_path / "list"
    file.write_text("")
    upper = UpperLayers(open_window=window, has_display=True)
    assert main([str(file)], upper) == 0
    assert main(["--db", "other.db", str(file)], upper) == 0
    assert opened == [(None, file), (Path("other.db"), file)]
    assert main(["open"], upper) == 2
    assert main([str(tmp_path / "none.vscope")], upper) == 1
    assert main([str(tmp_path / "none.py")], upper) == 1
    assert main([str(file)]) == 1
    for name in ("mine.py", "mine.toml"):
        (tmp_path / name).touch()
        assert main([str(tmp_path / name)], upper) == 1
    said = capsys.readouterr().err
    assert "No such command 'open'." in said
    assert f"There is no file {tmp_path / 'none.vscope'}.\n" in said
    assert f"There is no file {tmp_path / 'none.py'}.\n" in said
    assert f"`python -m app import {file}` adds the runs" in said
    assert f"`python -m app run {tmp_path / 'mine.py'}:NAME` starts" in said
    assert f"`python -m app experiment --preset {tmp_path / 'mine.toml'}` starts" in said
