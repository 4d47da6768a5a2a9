"""The real program on a real screen with a window manager, by mouse and keyboard: from first start to report."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.storage.database import save_setting
from app.storage.known_settings import ANSWERED, FIRST_START
from app.storage.store import Store
from tests.desktop.first_hour import RUNS
from tests.fakes.display import NO_DISPLAY, running_display

pytestmark = pytest.mark.skipif(bool(NO_DISPLAY), reason=NO_DISPLAY)
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def display() -> Iterator[str]:
    with running_display() as name:
        yield name


def end_of(display: str, story: str, folder: Path) -> Any:
    """What a story prints when it ends."""
    environment = {
        **os.environ,
        "DISPLAY": display,
        "QT_QPA_PLATFORM": "xcb",
        "VARIANTSCOPE_WINDOW": str(folder / "window.ini"),
    }
    command = [sys.executable, "-m", "tests.desktop.first_hour", story, str(folder / "profiles.db"), str(folder)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_from_the_first_start_to_a_report_and_back_to_where_one_was(display: str, tmp_path: Path) -> None:
    ended = end_of(display, "first", tmp_path)
    assert ended["place"][2:] == [1100, 720]
    with Store.open(tmp_path / "profiles.db") as store:
        rows = store.list_runs()
        own = [row for row in rows if "reference" not in row.tags]
    assert len(rows) == RUNS
    assert [row.outcome.name for row in own if row.outcome] == ["completed"]
    report = (tmp_path / "report.html").read_text()
    assert "block_fused" in report or "Block-fused" in report
    assert end_of(display, "again", tmp_path) == ended


def test_every_screen_is_at_the_next_start_as_it_was_arranged(
    display: str, tmp_path: Path, reference_database: Path
) -> None:
    database = tmp_path / "profiles.db"
    shutil.copyfile(reference_database, database)
    save_setting(database, FIRST_START, ANSWERED)
    arranged = end_of(display, "arrange", tmp_path)
    assert arranged["History"]["text Search runs"] == "nchw"
    assert arranged["Run"]["text Batch size"] == "24"
    assert (arranged["Run"]["button 30 s "], arranged["Monitor"]["button 10 min "]) == (True, True)
    assert end_of(display, "look", tmp_path) == arranged
