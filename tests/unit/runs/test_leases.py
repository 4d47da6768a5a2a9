"""Leases hold between threads, processes and users, and no longer than their process."""

import contextlib
import os
import stat
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest

from app.errors import UserError
from app.runs.leases import CPU, FOLDER_VARIABLE, Leases
from tests.present import present

ROOT = Path(__file__).parents[3]
GPUS = ["GPU-a", "GPU-b"]
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="abstract sockets are Linux's")


@pytest.fixture
def leases(tmp_path: Path) -> Leases:
    return Leases(tmp_path)


@pytest.fixture
def machine_wide(monkeypatch: pytest.MonkeyPatch) -> Leases:
    """Leases without a folder."""
    monkeypatch.delenv(FOLDER_VARIABLE)
    return Leases()


@contextlib.contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    yield
    os.umask(before)


def test_the_first_free_ones_are_taken(leases: Leases) -> None:
    first, second = present(leases.take(GPUS, 1)), present(leases.take(GPUS, 1))
    assert (first.devices, second.devices) == (("GPU-a",), ("GPU-b",))
    assert leases.take(GPUS, 1) is None
    first.release()
    again = present(leases.take(GPUS, 1))
    assert again.devices == ("GPU-a",)
    again.release()
    second.release()


def test_too_few_means_none(leases: Leases) -> None:
    one = present(leases.take(["GPU-b"], 1))
    assert leases.take(GPUS, 2) is None
    rest = present(leases.take(["GPU-a"], 1))
    assert rest.devices == ("GPU-a",), "the failed attempt holds nothing"
    one.release()
    rest.release()


def test_another_machine_s_devices_are_leased_apart_and_a_scheduler_s_never(leases: Leases, tmp_path: Path) -> None:
    here, host = present(leases.take(GPUS, 2)), Leases(tmp_path, host_id="lab")
    there = present(host.take(GPUS, 1))
    assert there.devices == ("GPU-a",)
    assert host.take(GPUS, 2) is None
    assert present(Leases(tmp_path, host_id="lab", schedules=True).take(GPUS, 2)).devices == ()
    here.release()
    there.release()


def test_waiting_tells_once_and_ends_when_one_is_free(leases: Leases) -> None:
    held = present(leases.take(GPUS, 2))
    notices: list[str] = []
    slept: list[float] = []

    def stopped(seconds: float) -> bool:
        slept.append(seconds)
        if len(slept) == 3:
            held.release()
        return False

    lease = present(leases.wait(GPUS, 1, on_wait=lambda: notices.append("waiting"), wait_for_stop=stopped))
    assert (lease.devices, notices, len(slept)) == (("GPU-a",), ["waiting"], 3)
    lease.release()


def test_who_waits_for_the_cpu_has_it_before_who_comes_when_it_is_freed(leases: Leases) -> None:
    held, waits = present(leases.take([CPU], 1)), threading.Event()
    order: list[str] = []

    def use(name: str, on_wait: Callable[[], None], retry_s: float) -> None:
        lease = present(leases.wait([CPU], 1, on_wait=on_wait, wait_for_stop=lambda _: threading.Event().wait(retry_s)))
        order.append(name)
        lease.release()

    reader = threading.Thread(target=use, args=("reader", waits.set, 0.1))
    reader.start()
    assert waits.wait(60)
    use("next run", held.release, 0.001)  # it looks sooner, and is later all the same
    reader.join()
    assert order == ["reader", "next run"]


def test_waiting_can_be_given_up(leases: Leases) -> None:
    held = present(leases.take(GPUS, 2))
    assert leases.wait(GPUS, 1, on_wait=lambda: None, wait_for_stop=lambda _: True) is None
    held.release()


def test_the_user_may_have_a_run_share_what_others_use(leases: Leases) -> None:
    held = present(leases.take(GPUS, 2))
    asked: list[str] = []

    def runs_anyway() -> bool:
        asked.append("anyway")
        return len(asked) == 2

    lease = leases.wait(GPUS, 1, on_wait=lambda: None, wait_for_stop=lambda _: False, runs_anyway=runs_anyway)
    assert present(lease).devices == ("GPU-a",)
    present(lease).release()
    assert leases.take(GPUS, 1) is None, "nothing was given back that others hold"
    held.release()


HOLD = (
    "import sys; from pathlib import Path; from app.runs.leases import Leases\n"
    "leases = Leases(*map(Path, sys.argv[2:]))\n"
    "lease = leases.take([sys.argv[1]], 1); print(lease.devices, flush=True); input()"
)


@contextlib.contextmanager
def another_process(device: str, *folder: Path) -> Iterator["subprocess.Popen[str]"]:
    """Another process that holds a device; it is killed at the end."""
    command = [sys.executable, "-c", HOLD, device, *map(str, folder)]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, text=True)
    assert present(holder.stdout).readline() == f"({device!r},)\n"
    try:
        yield holder
    finally:
        holder.kill()
        holder.communicate()


def test_a_killed_process_gives_its_lease_back(tmp_path: Path, leases: Leases) -> None:
    with another_process("GPU-a", tmp_path):
        other = present(leases.take(GPUS, 1))
        assert other.devices == ("GPU-b",)
    other.release()
    present(leases.take(["GPU-a"], 1)).release()


@linux_only
def test_without_a_folder_all_processes_of_the_machine_exclude_each_other(
    machine_wide: Leases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    device = f"GPU-{uuid.uuid4()}"
    with another_process(device):
        assert machine_wide.take([device], 1) is None
    for _ in range(2):
        lease = present(machine_wide.take([device], 1))
        assert machine_wide.take([device], 1) is None, "nor does this process get it twice"
        lease.release()
    assert list(tmp_path.iterdir()) == [], "there is no file that somebody could replace"


@linux_only
def test_who_holds_a_device_is_named_with_the_start_of_its_process(machine_wide: Leases, leases: Leases) -> None:
    device, other = f"GPU-{uuid.uuid4()}", f"GPU-{uuid.uuid4()}"
    with another_process(device) as holder:
        started = time.strftime("%H:%M", time.localtime(psutil.Process(holder.pid).create_time()))
        user = psutil.Process(holder.pid).username()
        assert machine_wide.describe_holder([other, device]) == f"{user}'s process {holder.pid}, started at {started},"
    assert machine_wide.describe_holder([device]) == ""
    lease = present(machine_wide.take([device], 1))
    assert machine_wide.describe_holder([device]) == "another run of this program"
    assert leases.describe_holder([device]) == "", "a lock file names nobody"
    lease.release()


@linux_only
def test_a_device_of_any_name_has_a_lease(machine_wide: Leases, leases: Leases, tmp_path: Path) -> None:
    name = f"../{uuid.uuid4()}\0\x1b/" + "x" * 3000
    for each in (machine_wide, leases):
        lease = present(each.take([name], 1))
        assert each.take([name], 1) is None
        lease.release()
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize(
    ("folder_mode", "file_mode"), [(0o700, 0o600), (0o755, 0o600), (0o1777, 0o644), (0o775, 0o644)]
)
@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_others_may_open_a_lock_file_only_where_the_folder_is_shared(
    leases: Leases, tmp_path: Path, folder_mode: int, file_mode: int, mask: int
) -> None:
    tmp_path.chmod(folder_mode)
    with umask(mask):
        present(leases.take(["GPU-a"], 1)).release()
    (file,) = tmp_path.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == file_mode


TAKE_AS_ANOTHER = """
import os, sys
from pathlib import Path
from app.runs.leases import Leases
known = Leases(), Leases(Path(sys.argv[2]))
os.setgid(4243)
os.setuid(4243)
print([leases.take([sys.argv[1]], 1) is None for leases in known])
"""


@linux_only
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_users_exclude_each_other_on_the_machine_and_in_a_folder_that_they_share(machine_wide: Leases) -> None:
    device = f"GPU-{uuid.uuid4()}"
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o1777)
        path = Path(folder) / f"variantscope-{device}.lock"
        path.touch(0o644)
        os.chown(path, 4242, 4242)  # of a third user: neither of the others may write to it
        command = [sys.executable, "-c", TAKE_AS_ANOTHER, device, folder]
        for all_held in (True, False):
            held = [leases.take([device], 1) for leases in (machine_wide, Leases(Path(folder)))] if all_held else []
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
            assert done.stdout == f"{[all_held, all_held]}\n"
            for lease in held:
                present(lease).release()


def link(path: Path) -> None:
    path.symlink_to(path.with_name("target"))


@pytest.mark.parametrize(
    ("place", "reason"),
    [(link, "Too many levels of symbolic links"), (Path.mkdir, "it is not a file"), (os.mkfifo, "it is not a file")],
)
def test_what_is_no_lock_file_is_a_sentence_and_nothing_is_held(
    leases: Leases, tmp_path: Path, place: Callable[[Path], object], reason: str
) -> None:
    path = tmp_path / "variantscope-GPU-b.lock"
    place(path)
    with pytest.raises(UserError) as caught:
        leases.take(GPUS, 2)
    assert str(caught.value).startswith(f"{path} cannot be locked ({reason}); delete it if it is not a lock file, or ")
    assert not path.with_name("target").exists(), "a link is not followed"
    present(leases.take(["GPU-a"], 1)).release()


def test_a_folder_that_is_not_there_is_a_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "nowhere"))
    with pytest.raises(UserError, match=r"No such file or directory.* VARIANTSCOPE_LOCK_DIR\."):
        Leases().take(GPUS, 1)


def test_a_child_started_meanwhile_does_not_keep_the_lease(leases: Leases) -> None:
    lease = present(leases.take(["GPU-a"], 1))
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", "print('up', flush=True); input()"]
    child = subprocess.Popen(command, stdin=pipe, stdout=pipe, close_fds=False)
    assert present(child.stdout).readline() == b"up\n"
    lease.release()
    present(leases.take(["GPU-a"], 1)).release()
    child.communicate(b"\n")


def test_nor_does_one_that_is_only_just_forked(leases: Leases) -> None:
    """Until it executes its program it has a copy of every file."""
    lease = present(leases.take(["GPU-a"], 1))
    assert isinstance(lease._give_back, partial)
    copies = [os.dup(file) for file in lease._give_back.args[0]]
    lease.release()
    present(leases.take(["GPU-a"], 1)).release()
    for copy in copies:
        os.close(copy)
