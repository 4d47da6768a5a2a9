"""The command line as users run it: `python -m app …` in a process of its own."""

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import pytest

from app.cli.commands import UpperLayers
from app.cli.main import main, program
from app.paths import PROGRAM
from app.runs.leases import FOLDER_VARIABLE

ROOT = Path(__file__).parents[2]
LIMIT_S = 240.0
Process = subprocess.Popen[str]
Run = Callable[..., str]
"""A command of the program in this process; returns what it prints."""


class CommandLine:
    """`python -m app` with its own folder for database and leases."""

    def __init__(self, folder: Path, more: Mapping[str, str] | None = None) -> None:
        self.database = folder / "profiles.db"
        # It must not wait for runs of other tests.
        ours = {FOLDER_VARIABLE: str(folder), "PYTHONUNBUFFERED": ""}
        self.own = {**(more or {}), **ours}
        self._environment = {**os.environ, **self.own}

    def start(
        self, *words: str, database: Path | None = None, stdout: IO[str] | None = None, redirect: str = ""
    ) -> Process:
        command = [sys.executable, "-m", "app", *_with_options(words, "--db", str(database or self.database))]
        if redirect:
            command = ["bash", "-c", f'exec "$@" {redirect}', "bash", *command]
        pipe = subprocess.PIPE
        return subprocess.Popen(
            command,
            cwd=ROOT,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=pipe if stdout is None else stdout,
            stderr=pipe,
            text=True,
        )

    def __call__(
        self, *words: str, database: Path | None = None, redirect: str = ""
    ) -> "subprocess.CompletedProcess[str]":
        """Run to the end, by default on the folder's database; `redirect` is the shell's."""
        process = self.start(*words, database=database, redirect=redirect)
        out, err = process.communicate(timeout=LIMIT_S)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def inside(self, *words: str, database: Path | None = None) -> "subprocess.CompletedProcess[str]":
        """Run in this process, which costs half a second less, where the process is not what is tested."""
        out, err = io.StringIO(), io.StringIO()
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            for name, value in self.own.items():
                patch.setenv(name, value)
            status = main(_with_options(words, "--db", str(database or self.database)))
        return subprocess.CompletedProcess(words, status, out.getvalue(), err.getvalue())

    def read(self, *words: str, status: int = 0) -> dict[str, Any]:
        """Run with `--json` in this process; return the document."""
        return _document(self.inside(*_with_options(words, "--json")), status)

    def json(self, *words: str, status: int = 0) -> dict[str, Any]:
        """Run with `--json`; return the document on stdout."""
        return _document(self(*_with_options(words, "--json")), status)


def _with_options(words: Sequence[str], *options: str) -> list[str]:
    """Add options to the program's words, before the command of another program."""
    end = words.index("--") if "--" in words else len(words)
    return [*words[:end], *options, *words[end:]]


def _document(done: "subprocess.CompletedProcess[str]", status: int) -> dict[str, Any]:
    assert done.returncode == status, done.stderr
    document = json.loads(done.stdout)
    assert isinstance(document, dict)
    return document


def parse_arguments(*words: str, upper: UpperLayers | None = None) -> SimpleNamespace:
    """Return the parameters that a command would get; raises `click.UsageError`."""
    with program.make_context(PROGRAM, list(words), obj=upper or UpperLayers()) as top:
        name, command, rest = program.resolve_command(top, [*top._protected_args, *top.args])
        assert command is not None
        with command.make_context(name, rest, parent=top) as context:
            return SimpleNamespace(**context.params)


def dummy_arguments(**given: object) -> list[str]:
    """Return the arguments of `dummy` with a few short steps on the CPU; `given` overrides parameters."""
    settings = {"gpus": 0, "step_ms": 1.0, "steps": 20, "warmup_steps": 1, **given}
    return ["dummy", *(word for name, value in settings.items() for word in ("-s", f"{name}={value}"))]
