"""Environments that the program makes: real ones, by pip and by uv, of wheels without content."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from app.environments import known
from app.environments.managed import list_environments, make_environment, remove_environment
from app.environments.records import EnvironmentOffer, EnvironmentProgress, EnvironmentRequest
from app.environments.steps import CancelledError, InstallError
from app.errors import UserError
from tests.fakes.wheels import FRAMEWORK_VERSION, use_wheels
from workloads.catalog import Machine, check, complete, environments_folder, find_python

TF221 = EnvironmentRequest(name="tf221", cuda=False)


@dataclass
class Following:
    """Agrees to everything, and records what it was told."""

    offers: list[EnvironmentOffer] = field(default_factory=list)
    titles: list[str] = field(default_factory=list)
    last: EnvironmentProgress | None = None
    on_offer: Callable[[], bool] = lambda: True
    cancelled: threading.Event = field(default_factory=threading.Event)

    def confirm(self, offer: EnvironmentOffer) -> bool:
        self.offers.append(offer)
        return self.on_offer()

    def progress(self, progress: EnvironmentProgress) -> None:
        self.titles.append(progress.title)
        self.last = progress if progress.total_bytes is not None else self.last

    def is_cancelled(self) -> bool:
        return self.cancelled.is_set()


@pytest.fixture
def by_uv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    use_wheels(monkeypatch, tmp_path, uv=True)
    return tmp_path


def states() -> dict[str, str]:
    return {each.name: each.state for each in list_environments()}


@pytest.mark.parametrize("tool", ["uv", "pip"])
def test_an_environment_is_offered_made_listed_and_removed(
    tool: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_wheels(monkeypatch, tmp_path, uv=tool == "uv")
    following = Following()
    made = make_environment(TF221, following)
    (offer,) = following.offers
    used = [path for path in (tmp_path / "wheels").iterdir() if not path.name.startswith(unused_framework())]
    assert (offer.tool, offer.packages) == (tool, len(used))
    assert offer.download_bytes == sum(path.stat().st_size for path in used)
    assert following.last is not None
    assert following.titles[-1] == "Trying it on this processor"
    assert (following.last.done_bytes, following.last.total_bytes) == (offer.download_bytes, offer.download_bytes)
    assert list_environments() == [made]
    assert (made.state, made.framework) == ("complete", FRAMEWORK_VERSION)
    assert made.python == offer.python == ".".join(map(str, sys.version_info[:3]))
    assert find_python("tf221") == Path(made.folder) / "bin" / "python"
    assert check(complete("lstm", {"interpreter": "tf221", "gpus": 0}, Machine()), Machine()) == ()
    again = Following()
    assert make_environment(TF221, again) == made
    assert again.offers == []
    remove_environment("tf221")
    assert list_environments() == []


def unused_framework() -> str:
    """The start of the name of the wheel that this platform does not take."""
    (requirement, *_) = known.requirements_of("tf221", (), cuda=False)
    return "tensorflow-" if requirement.startswith("tensorflow-cpu") else "tensorflow_cpu"


def test_one_whose_making_is_killed_is_not_there_and_is_made_anew(by_uv: Path) -> None:
    script = (
        "import sys, time\n"
        "from tests.unit.environments.test_managed import *\n"
        "class Held(Following):\n"
        "    def progress(self, progress):\n"
        "        if progress.total_bytes is not None:\n"
        "            print('installs', flush=True)\n"
        "            time.sleep(600)\n"
        "make_environment(TF221, Held())\n"
    )
    command = [sys.executable, "-c", script]
    root = str(Path(__file__).parents[3])
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": root}) as maker:
        assert maker.stdout is not None
        assert maker.stdout.readline() == "installs\n"
        maker.send_signal(signal.SIGKILL)
    assert states() == {"tf221": "unfinished"}
    assert find_python("tf221") is None
    assert make_environment(TF221, Following()).state == "complete"


def test_two_at_once_wait_for_each_other(by_uv: Path) -> None:
    asked, goes_on = threading.Event(), threading.Event()

    def hold() -> bool:
        asked.set()
        return goes_on.wait(60)

    first, second = Following(on_offer=hold), Following()
    makers = [threading.Thread(target=make_environment, args=(TF221, each)) for each in (first, second)]
    makers[0].start()
    assert asked.wait(60)
    with pytest.raises(UserError, match="tf221 is being made or removed by another program"):
        remove_environment("tf221")
    makers[1].start()
    while not second.titles:
        assert makers[1].is_alive()
        makers[1].join(0.05)
    goes_on.set()
    for maker in makers:
        maker.join(60)
    assert set(second.titles) == {"Waiting for another program that makes tf221"}
    assert second.offers == []
    assert states() == {"tf221": "complete"}


def test_what_is_declined_or_cancelled_leaves_nothing(by_uv: Path) -> None:
    with pytest.raises(CancelledError, match="tf221 was not made"):
        make_environment(TF221, Following(on_offer=lambda: False))
    following = Following()
    following.cancelled.set()
    with pytest.raises(CancelledError, match="was stopped; what was fetched is kept"):
        make_environment(TF221, following)
    assert states() == {}


def test_a_disk_that_is_or_gets_full_says_so(by_uv: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage("/")._replace(free=10)
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "disk_usage", lambda _path: usage)
        with pytest.raises(InstallError, match=r"tf221 needs about .* of disk space, and .* has 10\sB free; free some"):
            make_environment(TF221, Following())
    real = (by_uv / "programs/uv").resolve()
    (by_uv / "programs/uv").unlink()
    (by_uv / "programs/uv").write_text(
        f'#!/bin/sh\n[ "$2" = install ] && {{ echo "error: No space left on device (os error 28)"; exit 2; }}\n'
        f'exec {real} "$@"\n'
    )
    (by_uv / "programs/uv").chmod(0o755)
    with pytest.raises(InstallError, match="Installing the packages failed: the disk is full"):
        make_environment(TF221, Following())
    assert states() == {}


def test_without_a_network_one_sentence_says_what_to_do(by_uv: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (by_uv / "uv.toml").write_text("")
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9/simple")
    request = EnvironmentRequest(name="mine", packages=("no-such-package-of-these-tests",))
    with pytest.raises(InstallError, match="no network"):
        make_environment(request, Following())


def test_one_in_use_is_not_removed(by_uv: Path) -> None:
    make_environment(TF221, Following())
    with running(str(find_python("tf221")), "-c", "input()"), pytest.raises(UserError, match="tf221 is in use: a prog"):
        remove_environment("tf221")
    remove_environment("tf221")
    assert states() == {}


@contextlib.contextmanager
def running(*command: str) -> Iterator[None]:
    with subprocess.Popen(command, stdin=subprocess.PIPE):
        yield


def test_one_whose_python_was_removed_is_broken_and_refused(by_uv: Path) -> None:
    made = make_environment(TF221, Following())
    (Path(made.folder) / "bin" / "python").unlink()
    (Path(made.folder) / "bin" / "python3").unlink()
    assert states() == {"tf221": "broken"}
    (refusal,) = check(complete("lstm", {"interpreter": "tf221", "gpus": 0}, Machine()), Machine())
    assert "no complete environment called tf221" in refusal.reason
    assert make_environment(TF221, Following()).state == "complete"


@pytest.mark.parametrize("name", ["../tf221", "a/b", "..", ".hidden", "", "x" * 65])
def test_a_name_stays_in_its_folder(name: str) -> None:
    request = EnvironmentRequest(name=name, packages=("msgspec",))
    for attempt in (lambda: remove_environment(name), lambda: make_environment(request, Following())):
        with pytest.raises(UserError, match="cannot be the name of an environment"):
            attempt()


def test_a_name_with_other_packages_is_not_taken_for_the_one_there(by_uv: Path) -> None:
    make_environment(TF221, Following())
    other = EnvironmentRequest(name="tf221", packages=("keras",))
    with pytest.raises(UserError, match=r"tf221 is there already, with tensorflow.*; remove it first"):
        make_environment(other, Following())
    with pytest.raises(UserError, match=r"mine is none of the environments that are known \(tf221, .*--packages"):
        make_environment(EnvironmentRequest(name="mine"), Following())


def test_a_version_without_wheels_for_this_python_needs_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = known.requirements_of("tf219", ())
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InstallError, match=r"TensorFlow 2\.19 has packages for Python 3\.11 and 3\.12, and here is"):
        known.choose_python(wanted, None, minor=13)
    assert known.choose_python(wanted, "/bin/uv", minor=13) == "3.12"
    (tmp_path / "python3.12").symlink_to("/bin/false")
    (tmp_path / "python3.11").symlink_to(shutil.which("true", path="/bin:/usr/bin") or "")
    assert known.choose_python(wanted, None, minor=13) == str(tmp_path / "python3.11")


def test_cuda_follows_the_driver_unless_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known, "nvidia_driver", lambda: True)
    assert known.requirements_of("tf221", ())[0] == "tensorflow[and-cuda]==2.21.*"
    assert known.requirements_of("tf221", (), cuda=False)[0].startswith(("tensorflow==2.21", "tensorflow-cpu==2.21"))
    assert environments_folder().name == "envs"
