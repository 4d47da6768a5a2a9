"""The log of a process: where it is, what its lines say, and what children of the process add to it."""

import logging
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.log import (
    child_environment,
    configure,
    configure_child,
    log_file,
    log_folder,
    log_tail,
    remove_oldest,
    run_number,
)
from tests.present import present

ROOT = Path(__file__).parents[2]
LOG = logging.getLogger("variantscope.run")


@pytest.fixture(autouse=True)
def unconfigured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder of the test's own, and no log yet; afterwards all is as it was."""
    program = logging.getLogger("variantscope")
    handlers, level = program.handlers[:], program.level
    program.handlers.clear()
    monkeypatch.setenv("VARIANTSCOPE_LOG_DIR", str(tmp_path / "log"))
    yield
    for handler in program.handlers:
        handler.close()
    program.handlers[:] = handlers
    program.setLevel(level)


def test_a_line_has_level_area_and_message_and_the_file_comes_with_it() -> None:
    configure()
    path = present(log_file())
    assert not path.exists(), "a process that logs nothing leaves no file"
    LOG.info("one %s", "line")
    LOG.debug("nothing at this level")
    (line,) = path.read_text(encoding="utf-8").splitlines()
    assert path.parent == log_folder()
    assert line.endswith(f" INFO    {os.getpid()} variantscope.run: one line")


@pytest.mark.parametrize("start", ["program", "child"])
def test_a_log_is_its_users_alone(start: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if start == "program":
        configure()
    else:
        monkeypatch.setenv("VARIANTSCOPE_LOG_FILE", str(tmp_path / "child.log"))
        configure_child()
    LOG.error("a line")
    assert stat.S_IMODE(present(log_file()).stat().st_mode) == 0o600


def test_of_a_log_that_cannot_be_written_nothing_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    configure()
    path = present(log_file())
    path.mkdir()
    LOG.info("a line")
    assert capsys.readouterr().err == ""


def test_a_line_commands_no_terminal() -> None:
    configure()
    LOG.info("%s is lost", "a card\x1b]0;x\x07")
    assert log_tail(1).endswith(r"a card\u001b]0;x\u0007 is lost")


def test_lines_of_a_thread_that_makes_a_run_have_its_number_and_others_have_not() -> None:
    configure()
    token = run_number.set(12)
    LOG.info("of the run")
    other = threading.Thread(target=LOG.info, args=("of another thread",))
    other.start()
    other.join()
    run_number.reset(token)
    LOG.info("after it")
    assert [line.partition("variantscope.run:")[2] for line in log_tail(3).splitlines()] == [
        " run 12: of the run",
        " of another thread",
        " after it",
    ]


def test_a_level_is_that_of_the_option_else_of_the_variable_else_info(monkeypatch: pytest.MonkeyPatch) -> None:
    program = logging.getLogger("variantscope")
    configure()
    assert program.level == logging.INFO
    configure("debug")
    assert program.level == logging.DEBUG
    monkeypatch.setenv("VARIANTSCOPE_LOG_LEVEL", "WARNING")
    configure()
    assert program.level == logging.WARNING
    monkeypatch.setenv("VARIANTSCOPE_LOG_LEVEL", "much")
    configure()
    assert (program.level, len(program.handlers)) == (logging.WARNING, 1)


def test_a_child_appends_to_the_file_of_its_program() -> None:
    assert child_environment() == {}
    configure("warning")
    LOG.warning("of the program")
    code = (
        "import logging; from app.log import configure_child; configure_child();"
        "log = logging.getLogger('variantscope.telemetry'); log.warning('of the child'); log.info('too little')"
    )
    environment = {**os.environ, **child_environment(), "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, timeout=60)
    assert [line.partition(": ")[2] for line in log_tail(9).splitlines()] == ["of the program", "of the child"]


def test_a_full_file_is_rotated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.log._MAX_BYTES", 500)
    configure()
    for number in range(30):
        LOG.info("line %d", number)
    assert sorted(path.suffix for path in log_folder().iterdir()) == [".1", ".2", ".log"]


def test_old_files_are_removed_and_a_folder_that_cannot_be_made_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        (tmp_path / f"{number}.log").touch()
    remove_oldest(tmp_path.glob("*.log"), 2)
    assert sorted(path.name for path in tmp_path.glob("*.log")) == ["3.log", "4.log"]
    monkeypatch.setenv("VARIANTSCOPE_LOG_DIR", str(tmp_path / "3.log"))
    configure()
    LOG.warning("goes nowhere")
    assert (log_file(), log_tail(5)) == (None, "")
