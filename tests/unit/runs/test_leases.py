"""Leases hold between threads, between processes, and no longer than their process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from app.runs.leases import Lease, Leases

ROOT = Path(__file__).parents[3]
GPUS = ["GPU-a", "GPU-b"]


@pytest.fixture
def leases(tmp_path: Path) -> Leases:
    return Leases(tmp_path)


def taken(lease: Lease | None) -> tuple[str, ...]:
    assert lease is not None
    return lease.devices


def test_the_first_free_ones_are_taken(leases: Leases) -> None:
    first, second = leases.take(GPUS, 1), leases.take(GPUS, 1)
    assert (taken(first), taken(second)) == (("GPU-a",), ("GPU-b",))
    assert leases.take(GPUS, 1) is None
    assert first is not None
    assert second is not None
    first.release()
    again = leases.take(GPUS, 1)
    assert taken(again) == ("GPU-a",)
    assert again is not None
    again.release()
    second.release()


def test_too_few_means_none(leases: Leases) -> None:
    one = leases.take(["GPU-b"], 1)
    assert leases.take(GPUS, 2) is None
    rest = leases.take(["GPU-a"], 1)
    assert taken(rest) == ("GPU-a",), "the failed attempt holds nothing"
    for lease in (one, rest):
        assert lease is not None
        lease.release()


def test_waiting_tells_once_and_ends_when_one_is_free(leases: Leases) -> None:
    held = leases.take(GPUS, 2)
    assert held is not None
    notices: list[str] = []
    slept: list[float] = []

    def stopped(seconds: float) -> bool:
        slept.append(seconds)
        if len(slept) == 3:
            held.release()
        return False

    lease = leases.wait(GPUS, 1, on_wait=lambda: notices.append("waiting"), wait_for_stop=stopped)
    assert (taken(lease), notices, len(slept)) == (("GPU-a",), ["waiting"], 3)
    assert lease is not None
    lease.release()


def test_waiting_can_be_given_up(leases: Leases) -> None:
    held = leases.take(GPUS, 2)
    assert held is not None
    assert leases.wait(GPUS, 1, on_wait=lambda: None, wait_for_stop=lambda _: True) is None
    held.release()


def test_a_killed_process_gives_its_lease_back(tmp_path: Path, leases: Leases) -> None:
    code = (
        "import sys; from pathlib import Path; from app.runs.leases import Leases\n"
        "lease = Leases(Path(sys.argv[1])).take(['GPU-a'], 1); print(lease.devices, flush=True); input()"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "('GPU-a',)\n"
    other = leases.take(GPUS, 1)
    assert taken(other) == ("GPU-b",)
    holder.kill()
    holder.communicate()
    back = leases.take(["GPU-a"], 1)
    assert taken(back) == ("GPU-a",)
    for lease in (other, back):
        assert lease is not None
        lease.release()


def test_a_child_started_meanwhile_does_not_keep_the_lease(leases: Leases) -> None:
    lease = leases.take(["GPU-a"], 1)
    assert lease is not None
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", "print('up', flush=True); input()"]
    child = subprocess.Popen(command, stdin=pipe, stdout=pipe, close_fds=False)
    assert child.stdout is not None
    assert child.stdout.readline() == b"up\n"
    lease.release()
    again = leases.take(["GPU-a"], 1)
    assert taken(again) == ("GPU-a",)
    assert again is not None
    again.release()
    child.communicate(b"\n")


def test_nor_does_one_that_is_only_just_forked(leases: Leases) -> None:
    """Until it executes its program it has a copy of every file."""
    lease = leases.take(["GPU-a"], 1)
    assert lease is not None
    copies = [os.dup(file) for file in lease._files]
    lease.release()
    again = leases.take(["GPU-a"], 1)
    assert taken(again) == ("GPU-a",)
    assert again is not None
    again.release()
    for copy in copies:
        os.close(copy)
