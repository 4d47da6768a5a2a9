"""Crash reports: what leaves one, what is in it, and which are offered at the next start."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from app.crash import dismiss_reports, new_reports, write_report

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VARIANTSCOPE_LOG_DIR", str(tmp_path))
    return tmp_path


def crash(code: str) -> subprocess.CompletedProcess[str]:
    """A process that starts its log and its hooks, and then does this."""
    start = "import logging, threading; from app import crash, log; log.configure(); crash.install_hooks()\n"
    return subprocess.run(
        [sys.executable, "-c", f"{start}logging.getLogger('variantscope.gui').info('about to')\n{code}"],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


@pytest.mark.parametrize(
    "code", ["1 / 0", "thread = threading.Thread(target=lambda: 1 / 0); thread.start(); thread.join()"]
)
def test_an_exception_that_nobody_handles_leaves_a_report_and_its_traceback_as_ever(code: str) -> None:
    done = crash(code)
    assert "ZeroDivisionError: division by zero" in done.stderr
    (report,) = new_reports()
    assert stat.S_IMODE(report.stat().st_mode) == 0o600
    text = report.read_text(encoding="utf-8")
    assert text.startswith("ZeroDivisionError: division by zero\n")
    assert "Traceback (most recent call last)" in text
    assert f"Python {sys.version.split()[0]} on " in text
    assert "VariantScope " in text
    assert "msgspec " in text
    assert "about to" in text, "the end of the log"


def test_ctrl_c_and_an_exit_are_no_crash() -> None:
    crash("raise KeyboardInterrupt")
    crash("raise SystemExit(3)")
    assert new_reports() == []


def test_a_fatal_signal_leaves_the_stacks_and_a_good_end_nothing() -> None:
    crash("crash.watch_faults()")
    assert new_reports() == []
    crash("crash.watch_faults(); import faulthandler; faulthandler._sigsegv()")
    (report,) = new_reports()
    assert stat.S_IMODE(report.stat().st_mode) == 0o600
    assert "Segmentation fault" in report.read_text(encoding="utf-8")


def test_what_is_dismissed_is_kept_and_offered_no_more(folder: Path) -> None:
    first, second = write_report("one", "first"), write_report("two", "second")
    assert new_reports() == [first, second]
    dismiss_reports(new_reports())
    assert new_reports() == []
    assert len(list(folder.glob("seen-crash-*.txt"))) == 2


def test_a_folder_that_cannot_be_written_is_no_second_crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("VARIANTSCOPE_LOG_DIR", str(tmp_path / "file"))
    assert write_report("one", "first") is None
