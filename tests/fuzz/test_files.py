"""Presets and databases from elsewhere: read, or refused in one sentence."""

import contextlib
import itertools
import json
import math
import random
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.cli.main import main
from app.errors import UserError
from app.runs.experiment.presets import PRESET_FOLDER, load_preset
from app.storage.store import Store
from app.storage.transfer.copying import TRANSFERRED
from app.storage.transfer.validation import _JSON
from tests.fakes.reference import copy_reference
from tests.fakes.runs import keep
from tests.fuzz.budget import one_in
from workloads.catalog import Gpu, Machine, UsageError

MACHINES = (
    Machine(cpu_count=2, platform="linux"),
    Machine(cpu_count=2, platform="linux", gpus=(Gpu(index=0, uuid="GPU-x", name="NVIDIA H200"),)),
)
QUICK = (PRESET_FOLDER / "quick.toml").read_text(encoding="utf-8")
toml_values = st.one_of(
    st.integers().map(str),
    st.floats().map(str),
    st.text(max_size=8).map(json.dumps),
    st.sampled_from(["true", "[]", "{}", "[1, 2]", '["a", 1]', "1979-05-27", "[[", "9" * 30, "nan", "0x7f", "[1e999]"]),
)


@st.composite
def damaged(draw: st.DrawFn, text: str) -> str:
    """A text with lines left out, doubled, cut or changed, or with other values."""
    lines = text.splitlines()
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(lines) - 1))
        lines[at : at + 1] = draw(st.sampled_from(_changes(lines[at], draw)))
        lines = lines or [""]
    return "\n".join(lines)


def _changes(line: str, draw: st.DrawFn) -> list[list[str]]:
    place, more = draw(st.integers(0, len(line))), draw(st.text(max_size=3))
    name, equals, _ = line.partition("=")
    value = draw(toml_values)
    return [[], [line, line], [line[:place]], [line[:place] + more + line[place:]], [f"{name}{equals}{value}"]]


@given(text=st.one_of(damaged(QUICK), st.text(max_size=40)))
@example(text=f"x={'[' * 3000}{']' * 3000}")
@example(text="\x00")
@one_in(1)
def test_a_preset_is_read_or_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    try:
        preset = load_preset(str(path))
        for machine in MACHINES:
            preset.plan(machine)
        preset.all_plans()
    except (UserError, UsageError) as error:
        assert_sentence(str(error))


def assert_sentence(text: str) -> None:
    """One line to read, not a page."""
    assert text
    assert len(text) < 2_000
    assert "\n" not in text


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database of two runs as export writes it."""
    folder = tmp_path_factory.mktemp("theirs")
    with Store.open(folder / "profiles.db") as store:
        for uid in ("uid-1", "uid-2"):
            keep(store, uid=uid)
    assert main(["export", "1", "2", "-o", str(folder / "f.db"), "--db", str(folder / "profiles.db")]) == 0
    return folder / "f.db"


def _columns(path: Path) -> list[tuple[str, str]]:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        tables = [table.name for table in TRANSFERRED]
        return [
            (table, row[1])
            for table in tables
            if connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
            for row in connection.execute(f"PRAGMA table_info({table})")
        ]


cells = st.one_of(
    st.none(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.text(max_size=12),
    st.binary(max_size=12),
    st.sampled_from([0, 1, -1, "", "\x00", "a\x00/../../../x", "\x1b[2J", "\u202e", "x" * 70_000, "[]", "{}", "null"]),
)
"""What a column may be set to."""
strange_values: st.SearchStrategy[Any] = st.sampled_from(
    ["", "many", "nan", "9" * 5_000, "x" * 70_000, 10**30, -1, 0, 1.5, True, None, [], [[]], {"a": {}}]
)
edits = st.one_of(
    st.tuples(st.just("cell"), st.integers(0, 10_000), cells),
    st.tuples(st.just("json"), st.integers(0, 2**32), strange_values),
    st.tuples(st.just("bytes"), st.integers(0, 2**32), st.integers(1, 40)),
    st.tuples(st.just("cut"), st.floats(0, 1), st.just(0)),
)


def damage(path: Path, edit: tuple[str, Any, Any]) -> None:
    """Change a column's values, bytes, or the length of a file."""
    kind, first, second = edit
    content = bytearray(path.read_bytes())
    if kind == "cut":
        path.write_bytes(content[: int(first * len(content))])
    elif kind == "json":
        _damage_json(path, random.Random(first), second)
    elif kind == "bytes":
        generator = random.Random(first)
        for _ in range(second):
            content[generator.randrange(len(content))] ^= 1 << generator.randrange(8)
        path.write_bytes(content)
    else:
        columns = _columns(path)
        table, column = columns[first % len(columns)]
        with contextlib.closing(sqlite3.connect(path)) as connection, contextlib.suppress(sqlite3.Error, UnicodeError):
            connection.execute(f"UPDATE {table} SET {column} = ?", (second,))
            connection.commit()


JSON_COLUMNS = tuple(_JSON)
NUMBER_KEYS = (
    "cpu_count",
    "throttled_pct",
    "stood_still_s",
    "host",
    "planned_repeats",
    "replicas",
    "batch_size",
    "gpus",
)
"""Keys of environments, evidence and variants that are read as numbers, which a run may lack."""


def _damage_json(path: Path, generator: random.Random, value: Any) -> None:
    """Set any key of the JSON in one column, at any depth, or the whole of it; in one row, or in all."""
    table, column = generator.choice(JSON_COLUMNS)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        texts = [text for (text,) in connection.execute(f"SELECT DISTINCT {column} FROM {table} ORDER BY 1")]
        if not texts:
            return
        document = [json.loads(text := generator.choice(texts))]
        inner: Any = document
        while True:
            keys = [*inner, *NUMBER_KEYS] if isinstance(inner, dict) else [*range(len(inner))]
            key = generator.choice(keys)
            deeper = inner.get(key) if isinstance(inner, dict) else inner[key]
            if (
                not deeper
                or not isinstance(deeper, dict | list)
                or (inner is not document and generator.random() < 0.3)
            ):
                break
            inner = deeper
        inner[key] = value
        in_one = "" if generator.random() < 0.5 else f" WHERE {column} = ?2"
        connection.execute(
            f"UPDATE {table} SET {column} = ?1{in_one}", (json.dumps(document[0]), text)[: 1 + bool(in_one)]
        )
        connection.commit()


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database of reference runs, a run of our own, an experiment and an entry of the queue."""
    folder = tmp_path_factory.mktemp("opened")
    database, some, theirs = (folder / name for name in ("own.db", "some.vscope", "theirs.db"))
    copy_reference("cnn", theirs)
    with Store.open(theirs) as store:
        runs = [str(row.run) for row in store.list_runs() if row.spec.workload == "cnn10"][:3]
    assert main(["export", *runs, "-o", str(some), "--db", str(theirs)]) == 0
    assert main(["import", str(some), "--db", str(database)]) == 0
    with Store.open(database) as store:
        keep(store, uid="mine")
    assert main([*QUEUED, "--db", str(database)]) == 0
    return database


QUEUED = ("experiment", "dummy", "-s", "batch_size=2,8", "-s", "seconds=1", "--queue")
READERS = (
    ("list",),
    ("list", "--json"),
    *(("show", run, *words) for run in ("1", "4") for words in ((), ("--json",))),
    ("compare", "1", "2", "3", "4"),
    ("compare", "1", "4", "--json"),
    ("compare", "1", "2", "--report", "{folder}/report.html"),
    ("compare", "--diff", "1", "4"),
    ("compare", "--scaling", "1", "2", "3", "4"),
    ("export", "1", "4", "-o", "{folder}/runs.vscope"),
    ("export", "1", "4", "-o", "{folder}/runs.json"),
    ("queue",),
    ("queue", "--json"),
    ("experiment", "--preset", "quick", "--show"),
    QUEUED,
)


@given(edit=edits)
@example(edit=("bytes", 4712575, 12))
@example(edit=("bytes", 20, 13))
@example(edit=("bytes", 19, 12))
@example(edit=("bytes", 4, 4))
@example(edit=("cell", 5, math.inf))
@example(edit=("json", 3, "many"))
@one_in(10)
def test_a_database_that_is_opened_is_shown_or_refused(
    edit: tuple[str, Any, Any],
    opened: Path,
    tmp_path_factory: pytest.TempPathFactory,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Nobody has checked its values; what is damaged is absent, or named in a sentence."""
    folder = tmp_path_factory.mktemp("edited")
    shutil.copyfile(opened, folder / "own.db")
    damage(folder / "own.db", edit)
    for words in READERS:
        capsys.readouterr()
        status = main([*(word.format(folder=folder) for word in words), "--db", str(folder / "own.db")])
        err = capsys.readouterr().err
        assert status in (0, 1, 2), words
        assert "Traceback" not in err, words
        if status:
            assert_sentence(err.rstrip("\n").splitlines()[-1])


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    """Return what makes a database with one run of our own."""
    folder, counted = tmp_path_factory.mktemp("ours"), itertools.count()
    with Store.open(folder / "own.db") as store:
        keep(store, uid="mine")

    def make() -> Path:
        path = folder / f"{next(counted)}.db"
        shutil.copyfile(folder / "own.db", path)
        return path

    return make


@given(edit=edits)
@one_in(5)
def test_a_database_is_imported_whole_or_refused(
    edit: tuple[str, Any, Any],
    theirs: Path,
    ours: Callable[[], Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file, database = tmp_path / "f.db", ours()
    shutil.copyfile(theirs, file)
    damage(file, edit)
    capsys.readouterr()

    def said(*words: str, status: int = 0) -> str:
        found, (out, err) = main([*words, "--db", str(database)]), capsys.readouterr()
        assert found in (0, 1) if status else found == 0, err
        assert "Traceback" not in err
        if found:
            assert_sentence(err.rstrip("\n"))
        return out

    said("import", str(file), status=1)
    runs = [str(row["run"]) for row in json.loads(said("list", "--json"))["runs"]]
    assert runs[-1] == "1"
    for run in runs:
        json.loads(said("show", run, "--json"))
    said("list")
    if len(runs) > 1:
        said("compare", *runs, status=1)
    said("delete", *runs)
    said("delete", *runs, "--for-good")
    assert json.loads(said("list", "--json"))["runs"] == []
