"""Nothing from elsewhere runs unasked: every way from a file or a database to a process, tried with a real payload.

Each payload makes the file `marker`. Its Python is a script, its source a module, its host `sh:`, this machine.
"""

import json
import os
import pty
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from app.grants import read_grants
from app.runs.experiment.presets import list_user_preset_file
from tests.fakes.attacker import Attacker
from tests.fakes.command_line import LIMIT_S, ROOT, CommandLine
from tests.fakes.hosts import HERE
from workloads.protocol import RunSpec

REFUSED = "There is no terminal to ask whether to "


@pytest.fixture
def grants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host_cache: Path) -> Path:
    path = tmp_path / "config" / "grants.json"
    monkeypatch.setenv("VARIANTSCOPE_GRANTS", str(path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(host_cache))
    return path


@pytest.fixture
def attacker(tmp_path: Path) -> Attacker:
    (tmp_path / "theirs").mkdir()
    return Attacker(tmp_path / "theirs")


@pytest.fixture
def command(tmp_path: Path, grants: Path) -> CommandLine:
    return CommandLine(tmp_path)


GO_ON = ("queue", "run", "1", "--no-standby")
"""For entries that came from elsewhere."""


def by_a_python(attacker: Attacker) -> None:
    attacker.queue(*attacker.specs(interpreter=str(attacker.python)))


def by_a_shell_on_a_host(attacker: Attacker) -> None:
    """The first run would write its order over a file of the program there, which the second has a shell read."""
    tee, sh = attacker.specs(x=f"$(touch {attacker.marker})")
    by_tee, by_sh = (
        RunSpec(workload=spec.workload, variant={**spec.variant, "interpreter": program})
        for spec, program in ((tee, "/usr/bin/tee"), (sh, "/bin/sh"))
    )
    attacker.queue(by_tee, by_sh, host=HERE)


def by_a_host(attacker: Attacker) -> None:
    attacker.queue(*attacker.specs(), host=f"sh:?python={attacker.python}")


def by_the_interpreter_of_a_host(attacker: Attacker) -> None:
    attacker.queue(*attacker.specs(), host=f"sh:?interpreter={attacker.python.parents[1]}")


def by_a_source(attacker: Attacker) -> None:
    attacker.queue(*attacker.custom_specs())


@pytest.mark.parametrize(
    "plant", [by_a_python, by_a_shell_on_a_host, by_a_host, by_the_interpreter_of_a_host, by_a_source]
)
@pytest.mark.parametrize("is_opened", [False, True])
def test_an_entry_of_the_queue_starts_nothing(
    command: CommandLine, attacker: Attacker, grants: Path, plant: Callable[[Attacker], None], is_opened: bool
) -> None:
    plant(attacker)
    if not is_opened:
        assert command.inside("import", str(attacker.database)).returncode == 0
    done = command.inside(*GO_ON, database=attacker.database if is_opened else None)
    assert done.returncode == 1, done.stderr
    expected = REFUSED if is_opened or plant is not by_a_source else "was never opened here"
    assert expected in done.stderr
    assert not attacker.marker.exists()
    assert not grants.exists()


@pytest.mark.parametrize(
    "words",
    [
        ("experiment", "--variants-of", "1,2", "--no-gate", "--no-standby", "--no-check-equal"),
        ("experiment", "--variants-of", "1,2", "--no-gate", "--no-standby", "--on", HERE),
        ("check-equal", "1", "2"),
        ("check-equal", "1", "2", "--on", HERE),
    ],
)
@pytest.mark.parametrize("is_opened", [False, True])
def test_what_stored_runs_were_of_is_not_started_by_their_python(
    command: CommandLine, attacker: Attacker, words: tuple[str, ...], is_opened: bool
) -> None:
    attacker.keep(*attacker.specs("lstm", interpreter=str(attacker.python)))
    if not is_opened:
        assert command.inside("import", str(attacker.database)).returncode == 0
    done = command.inside(*words, database=attacker.database if is_opened else None)
    assert done.returncode == 1
    assert f"{REFUSED}run {attacker.python} as Python" in done.stderr
    assert not attacker.marker.exists()


@pytest.mark.parametrize(
    "words",
    [
        ("queue", "run", "1"),
        ("experiment", "--variants-of", "1,2", "--no-gate"),
        ("check-equal", "1", "2"),
        ("experiment", "--variants-of", "1,2", "--no-gate", "--on", HERE),
    ],
)
def test_a_relative_path_is_no_python_wherever_the_program_is_started(
    command: CommandLine, attacker: Attacker, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.chdir(attacker.folder)
    specs = attacker.specs("lstm", interpreter="./env")
    attacker.keep(*specs)
    attacker.queue(*specs)
    assert command.inside("import", str(attacker.database)).returncode == 0
    done = command.inside(*words)
    assert done.returncode == 1
    assert "./env" in done.stderr
    assert not attacker.marker.exists()


@pytest.mark.parametrize("options", [(), ("--show",), ("--queue",)])
def test_a_preset_does_not_run_the_file_that_it_names(
    command: CommandLine, attacker: Attacker, options: tuple[str, ...]
) -> None:
    done = command.inside("experiment", "--preset", str(attacker.preset()), *options)
    assert done.returncode == 1
    assert (
        "has not been read yet" if "--show" in options else f"{REFUSED}run the code of {attacker.module}"
    ) in done.stderr
    assert not attacker.marker.exists()


def test_a_database_that_is_opened_makes_nothing_allowed(command: CommandLine, attacker: Attacker) -> None:
    """Its settings name the source of its runs, files to offer and presets to list."""
    attacker.keep(*attacker.custom_specs())
    list_user_preset_file(attacker.database, str(attacker.preset()))
    for words, status in ((("list", "presets"), 0), (("experiment", "--variants-of", "1,2", "--no-gate"), 1)):
        done = command.inside(*words, database=attacker.database)
        assert done.returncode == status, done.stderr
        assert not attacker.marker.exists(), words
    assert read_grants() == ()


def test_what_is_typed_runs_and_is_allowed_from_then_on(command: CommandLine, attacker: Attacker, grants: Path) -> None:
    attacker.queue(*attacker.specs(interpreter=str(attacker.python)))
    assert command.inside("import", str(attacker.database)).returncode == 0
    words = ("run", "dummy", "-s", "gpus=0", "-s", f"interpreter={attacker.python}")
    assert command.inside(*words).returncode == 1, "the payload is no Python"
    assert attacker.marker.exists()
    attacker.marker.unlink()
    command.inside(*GO_ON)
    assert attacker.marker.exists()
    assert stat.S_IMODE(grants.stat().st_mode) == 0o600
    assert [(grant.kind, grant.value, grant.host) for grant in read_grants()] == [
        ("interpreter", str(attacker.python), "")
    ]


def test_a_typed_file_and_a_typed_host_are_allowed(command: CommandLine, attacker: Attacker) -> None:
    assert command.inside("list", "parameters", str(attacker.module)).returncode == 0
    assert attacker.marker.exists()
    attacker.marker.unlink()
    command.inside("hosts", "check", f"sh:?python={attacker.python}")
    assert attacker.marker.exists()
    assert {grant.kind for grant in read_grants()} == {"source", "host"}


def test_a_python_of_a_host_is_one_of_that_host(command: CommandLine, attacker: Attacker) -> None:
    typed = ("run", "dummy", "-s", "gpus=0", "-s", f"interpreter={attacker.python}")
    command.inside(*typed, "--on", HERE)
    assert attacker.marker.exists()
    attacker.marker.unlink()
    attacker.queue(*attacker.specs(interpreter=str(attacker.python)))
    done = command.inside(*GO_ON, database=attacker.database)
    assert REFUSED in done.stderr, "here it was never typed"
    assert not attacker.marker.exists()


@pytest.mark.parametrize("program", ["/usr/bin/tee", "/bin/sh"])
def test_a_host_starts_no_program_that_is_no_python_even_if_it_was_typed(
    command: CommandLine, tmp_path: Path, program: str
) -> None:
    words = ("run", "dummy", "-s", "gpus=0", "-s", f"interpreter={program}", "--on", HERE)
    document = json.loads(command.inside(*words, "--json").stdout)
    assert document["outcome"] == "refused"
    assert f"{program} is neither a virtual environment's folder nor a Python on sh:" in document["reason"]


@pytest.mark.parametrize(("answer", "is_allowed"), [("y", True), ("n", False), ("", False)])
def test_a_terminal_asks_once_and_shows_all_of_it(
    command: CommandLine, attacker: Attacker, answer: str, is_allowed: bool
) -> None:
    attacker.queue(*attacker.specs(interpreter=str(attacker.python)))
    assert command.inside("import", str(attacker.database)).returncode == 0
    said = answered(command, answer, *GO_ON)
    assert f"  run {attacker.python} as Python" in said
    assert said.count("Allow that") == 1
    assert attacker.marker.exists() == is_allowed
    assert len(read_grants()) == int(is_allowed)


def answered(command: CommandLine, answer: str, *words: str) -> str:
    """Run a command in a terminal, give one answer, and return what it showed."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "app", *words, "--db", str(command.database)],
        cwd=ROOT,
        env={**os.environ, **command.own},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    said = b""
    try:
        while part := os.read(ours, 4096):
            said += part
            if said.endswith(b"[y/N] "):
                os.write(ours, answer.encode() + b"\n")
    except OSError:  # the other end is closed
        pass
    os.close(ours)
    process.wait(LIMIT_S)
    return said.decode().replace("\r\n", "\n")
