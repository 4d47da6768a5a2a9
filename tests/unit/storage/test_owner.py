"""The owner of a run is alive only as long as exactly that process runs."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from app.storage import owner
from app.storage.owner import Owner, this_process
from tests.present import present


def test_this_process_is_alive() -> None:
    me = this_process()
    assert me.pid == os.getpid()
    assert me.is_alive()


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(replace(this_process(), boot_id="another boot"), id="another boot"),
        pytest.param(replace(this_process(), started_s=1.0), id="the same number, another process"),
        pytest.param(replace(this_process(), pid=2**22 + 1), id="no such process"),
    ],
)
def test_another_process_is_not_this_one(other: Owner) -> None:
    assert not other.is_alive()


def test_a_child_is_alive_until_it_ends_and_its_remains_are_not() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    started_s = present(owner._started_s(child.pid))
    it = Owner(child.pid, started_s, owner.boot_id())
    assert it.is_alive()
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # ended, but not yet taken off the process table
    assert psutil.Process(child.pid).status() == psutil.STATUS_ZOMBIE
    assert not it.is_alive()
    child.communicate()
    assert not it.is_alive()


def test_without_proc_the_wall_clock_start_is_taken() -> None:
    assert owner._started_s_from_psutil(os.getpid()) == psutil.Process().create_time()
    assert owner._started_s_from_psutil(2**22 + 1) is None


def test_host_id_is_the_same_each_time_and_not_the_machines_own_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "machine-id"
    monkeypatch.setattr(owner, "_MACHINE_IDS", (path,))
    without = owner.host_id()
    path.write_text("0123456789abcdef0123456789abcdef\n")
    assert owner.host_id() == owner.host_id() != without
    assert owner.host_id() not in path.read_text()
