"""Fixtures of all tests. Importable without Qt: the headless tests also run where Qt is not installed."""

import atexit
import gc
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from hypothesis import settings

from app.runs.leases import FOLDER_VARIABLE
from app.storage.reference import add_reference
from app.storage.store import Store
from tests.fakes.sshd import NO_SSHD, SshServer, running_sshd
from workloads.framework import FRAMEWORK
from workloads.machine import CACHE_VARIABLE

if TYPE_CHECKING:
    from PySide6.QtCore import QThread, QTimer

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
# Hundreds of processes are started: each would compile every source anew, a fifth of its time.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# Some modules of tests import TensorFlow, which reads this once: as every worker sets it.
for _name, _value in FRAMEWORK.default_variables.items():
    os.environ.setdefault(_name, _value)
# Else a machine with many CPU cores would start standby workers for runs on fake GPUs.
os.environ.setdefault("VARIANTSCOPE_STANDBY", "off")

# Logs and crash reports of tests are of no use to anybody later.
_LOG_FOLDER = tempfile.mkdtemp(prefix="variantscope-log-")
os.environ["VARIANTSCOPE_LOG_DIR"] = _LOG_FOLDER
atexit.register(shutil.rmtree, _LOG_FOLDER, ignore_errors=True)

settings.register_profile("long", max_examples=1_000, deadline=None, print_blob=True)

HAS_GPU = Path("/proc/driver/nvidia/version").exists() or shutil.which("nvidia-smi") is not None
MANY_OBJECTS = 30_000
"""More than a test leaves: all that was imported is several times as many."""
LEAVING_S = 60.0
"""Time that a process or thread may take to end after the request."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect tests that need a GPU, unless there is one or `-m` selects them."""
    if HAS_GPU or "gpu" in config.getoption("markexpr"):
        return
    gpu = [item for item in items if item.get_closest_marker("gpu")]
    if gpu:
        items[:] = [item for item in items if item not in gpu]
        config.hook.pytest_deselected(items=gpu)


@pytest.fixture(scope="session", autouse=True)
def imported_modules_stay() -> Iterator[None]:
    """Keep what was imported out of garbage collections, of which every test of the window makes some."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(scope="session", autouse=True)
def own_leases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Use temporary places for leases, hosts, grants, what processors can do and what windows remember.

    Tests in two processes do not wait for each other's runs, and none changes what the user who tests has.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FOLDER_VARIABLE, str(tmp_path_factory.mktemp("leases")))
        patch.setenv("VARIANTSCOPE_HOSTS", str(tmp_path_factory.mktemp("hosts") / "hosts.json"))
        patch.setenv("VARIANTSCOPE_GRANTS", str(tmp_path_factory.mktemp("grants") / "grants.json"))
        patch.setenv(CACHE_VARIABLE, str(tmp_path_factory.mktemp("cache")))
        patch.setenv("VARIANTSCOPE_WINDOW", str(tmp_path_factory.mktemp("window") / "window.ini"))
        yield


@pytest.fixture
def database_path(tmp_path: Path) -> Path:
    """Return the path of a test's own database, which does not exist yet."""
    return tmp_path / "profiles.db"


@pytest.fixture(scope="session")
def reference_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the path of a database of the reference runs alone, to read; a test that writes into it copies it."""
    path = tmp_path_factory.mktemp("reference") / "profiles.db"
    add_reference(path)
    return path


@pytest.fixture(scope="session")
def host_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where hosts that are this machine keep the program, so that it is sent and compiled once."""
    return tmp_path_factory.mktemp("host")


@pytest.fixture
def store(database_path: Path) -> Iterator[Store]:
    with Store.open(database_path) as opened:
        yield opened


@pytest.fixture
def sshd(tmp_path: Path, host_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SshServer]:
    """Run sshd, and let `ssh` reach it by the names of its config; the user's hosts are the test's own."""
    if NO_SSHD:
        pytest.skip(NO_SSHD)
    monkeypatch.setenv("VARIANTSCOPE_HOSTS", str(tmp_path / "hosts.json"))
    with running_sshd(tmp_path / "sshd", host_cache) as server:
        monkeypatch.setenv("PATH", f"{server.folder}/bin:{os.environ['PATH']}")
        yield server


@pytest.fixture(autouse=True)
def nothing_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that leaves a child process, a running QThread or an active QTimer behind."""
    processes = set(_processes_below())
    running = {id(thing) for thing in _running_qt_objects()} if "qapp" in request.fixturenames else set()
    yield
    left = [f"process {name}" for name in _left_processes(processes)]
    if "qapp" in request.fixturenames:
        left += [f"{name} still running" for name in _left_qt_objects(running)]
        if len(gc.get_objects()) > MANY_OBJECTS:
            gc.freeze()  # again: the end of the program's window thaws everything
    if left:
        pytest.fail(f"left behind: {', '.join(left)}", pytrace=False)


def _processes_below() -> list[psutil.Process]:
    """Return the children of this process and theirs, without reading all of /proc for a test that has none."""
    if sys.platform == "linux":
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)  # looks, and takes nobody's exit status
        except ChildProcessError:
            return []
    return psutil.Process().children(recursive=True)


def _left_processes(before: set[psutil.Process]) -> list[str]:
    """Return the command lines of new child processes that do not end in time, and kill them."""
    new = [process for process in _processes_below() if process not in before]
    _, alive = psutil.wait_procs(new, timeout=LEAVING_S)
    names = [_describe(process) for process in alive]
    for process in alive:
        process.kill()
    psutil.wait_procs(alive, timeout=LEAVING_S)
    return names


def _describe(process: psutil.Process) -> str:
    try:
        return f"{process.pid} ({' '.join(process.cmdline()[:6])})"
    except psutil.Error:
        return str(process.pid)


def _left_qt_objects(before: set[int]) -> list[str]:
    """Return the names of new threads that do not finish in time and of new timers that still tick."""
    from PySide6.QtCore import QEvent, QThread
    from PySide6.QtWidgets import QApplication

    gc.collect()
    QApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete.value)  # runs every pending deleteLater
    new = (thing for thing in _running_qt_objects() if id(thing) not in before)
    left = [thing for thing in new if not (isinstance(thing, QThread) and thing.wait(int(LEAVING_S * 1000)))]
    return [f"{type(thing).__name__} {thing.objectName()!r} of {thing.parent()!r}" for thing in left]


def _running_qt_objects() -> "list[QThread | QTimer]":
    """Return every running QThread and every ticking QTimer that Python has references to."""
    from PySide6.QtCore import QThread, QTimer
    from shiboken6 import isValid

    kinds = {*_with_subclasses(QThread), *_with_subclasses(QTimer)}
    found = [thing for thing in gc.get_objects() if type(thing) in kinds and isValid(thing)]
    threads = [thing for thing in found if isinstance(thing, QThread)]
    timers = [thing for thing in found if isinstance(thing, QTimer)]
    return [*(thread for thread in threads if thread.isRunning()), *(timer for timer in timers if timer.isActive())]


def _with_subclasses(kind: type[object]) -> Iterator[type[object]]:
    yield kind
    for each in kind.__subclasses__():
        yield from _with_subclasses(each)
