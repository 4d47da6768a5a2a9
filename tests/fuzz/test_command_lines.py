"""Random words after `python -m app`: an exit status and one sentence, never a traceback."""

import itertools
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.cli.commands import HELP, UpperLayers
from app.cli.main import main, program
from app.errors import TelemetryError
from app.paths import PROGRAM
from app.storage.store import Store
from tests.fakes.runs import keep
from tests.fuzz.budget import one_in

CONTEXT = click.Context(program, info_name=PROGRAM, obj=UpperLayers())
COMMANDS = {name: command for name in HELP if (command := program.get_command(CONTEXT, name)) is not None}
SERVING = {"--events"}
"""It ends the process when its reader has gone, which would end the tests with status 0."""
OPTIONS = {
    name: sorted({word for param in command.params if isinstance(param, click.Option) for word in param.opts} - SERVING)
    for name, command in COMMANDS.items()
}
WORDS = """0 1 2 3 -1 1-3 nan inf 1e999 layout=NCHW gpus=0 = a=b=c -- dummy lstm cnn10 batch_size=1,2 seconds=-1 quick
no.toml . /dev/null \x1b[2J ß run=1 2026-01-01 30d json csv database ~ ../x %s -s"""
values = st.one_of(
    st.sampled_from([*WORDS.split(), "", " ", "\ud800", "x" * 3000, "9" * 400]),
    st.integers(-(2**70), 2**70).map(str),
    st.floats().map(str),
    st.text(st.characters(exclude_characters="\0"), max_size=10),  # no system gives a program a NUL
)


@st.composite
def command_lines(draw: st.DrawFn) -> list[str]:
    name = draw(st.sampled_from(sorted(COMMANDS)))
    words = draw(st.lists(st.one_of(st.sampled_from([*OPTIONS[name], "--help"]), values, values), max_size=7))
    return [name, *words]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Path]]:
    """Return what makes a folder with a database of two runs; nothing there can start a run or telemetry."""
    folder, counted = tmp_path_factory.mktemp("lines"), itertools.count()
    with Store.open(folder / "profiles.db") as store:
        for uid in ("uid-1", "uid-2"):
            keep(store, uid=uid)

    def make() -> Path:
        path = folder / str(next(counted))
        path.mkdir()
        shutil.copyfile(folder / "profiles.db", path / "profiles.db")
        return path

    def refuse(*_: object, **__: object) -> None:
        raise TelemetryError("There is no telemetry here.")

    with pytest.MonkeyPatch.context() as patch:
        for module in ("app.cli.services", "app.cli.services"):
            patch.setattr(f"{module}.TelemetryFeed", refuse, raising=False)
        yield make


@given(words=command_lines())
@example(words=["export", "1", "--model", "x" * 3000])
@example(words=["export", "1", "--format", "csv", "-o", "x" * 3000])
@example(words=["show", "9" * 400])
@example(words=["list", "--limit", "-1"])
@example(words=["gpus", "calibrate", "--precision", "\n"])
@example(words=["hosts", "add", "x", "ssh://\ud800"])
@example(words=["hosts", "add", "\x1b[2J", "ssh://x"])
@example(words=["hosts", "add", "x", "ssh://x", "--python", "\ud800"])
@example(words=["gpus", "--on", "ssh://[\x1b[2J]:99999999999"])
@example(words=["run", "dummy", "--on", "ssh://me:secret@x?python=\n"])
@one_in(1)
def test_any_words_end_with_a_status(
    words: list[str], machine: Callable[[], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = machine()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        status = main([*words, "--db", "profiles.db"], UpperLayers())
    said = capsys.readouterr()
    assert status in (0, 1, 2, 3, 4)
    assert "Traceback" not in said.err
    if status == 2:
        assert said.err.count("\n") == 1
