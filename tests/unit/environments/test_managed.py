"""Environments that the program makes: real ones, by uv, of wheels without content."""

import contextlib
import errno
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from app.environments import known, managed
from app.environments.managed import list_environments, manage_environments
from app.environments.records import Action, Environment, EnvironmentOffer, EnvironmentRequest, make
from app.environments.steps import CancelledError, InstallError
from app.errors import UserError
from tests.fakes.wheels import FRAMEWORK_VERSION, use_wheels
from workloads.catalog import (
    FRAMEWORKS,
    Machine,
    check,
    complete,
    default_interpreter,
    environments_folder,
    find_python,
)

TF221 = EnvironmentRequest(name="tf221", cuda=False)
ROOT = Path(__file__).parents[3]


@dataclass
class Following:
    """Agrees to everything, and records what it was told."""

    offers: list[EnvironmentOffer] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    on_offer: Callable[[], bool] = lambda: True
    cancelled: threading.Event = field(default_factory=threading.Event)

    def ask(self, offer: EnvironmentOffer) -> bool:
        self.offers.append(offer)
        return self.on_offer()

    def report(self, line: str) -> bool:
        self.lines.append(line)
        return not self.cancelled.is_set()

    def make(self, request: EnvironmentRequest = TF221) -> Environment:
        return make(manage_environments, request, self.ask, self.report)


@pytest.fixture(autouse=True)
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    use_wheels(monkeypatch, tmp_path)
    return tmp_path


def remove(name: str) -> None:
    manage_environments("remove", EnvironmentRequest(name=name), Following().report)


def states() -> dict[str, str]:
    return {each.name: each.state for each in list_environments()}


def test_an_environment_is_offered_made_listed_and_removed() -> None:
    following = Following()
    environment = following.make()
    (offer,) = following.offers
    assert (offer.packages, offer.download_bytes) == (5, None), "of files in a folder uv says no size"
    assert "tf221: 5 packages, of unknown size to download at most, for Python 3." in offer.sentence
    assert following.lines[-1].startswith("Trying it on this processor")
    assert list_environments() == [environment]
    assert (environment.state, environment.frameworks) == ("complete", {"tensorflow": FRAMEWORK_VERSION})
    assert environment.python == offer.python == ".".join(map(str, sys.version_info[:3]))
    assert find_python("tf221") == Path(environment.folder) / "bin" / "python"
    assert check(complete("lstm", {"interpreter": "tf221", "gpus": 0}, Machine()), Machine()) == ()
    again = Following()
    assert again.make() == environment
    assert again.offers == []
    remove("tf221")
    assert list_environments() == []


LOCK = """lock-version = "1.0"
[[packages]]
name = "tensorflow-cpu"
version = "2.21.0"
wheels = [{ url = "https://a/tensorflow_cpu.whl", size = 300 }, { url = "https://a/other.whl", size = 400 }]
[[packages]]
name = "keras"
sdist = { url = "https://a/keras.tar.gz", size = 20 }
"""


def use_uv(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Let a script stand before uv; what it does not end goes on in the real one."""
    script = f'#!/bin/sh\nfor last; do :; done\n{script}\nexec {known.find_uv()} "$@"\n'
    (folder / "uv").write_text(script)
    (folder / "uv").chmod(0o755)
    monkeypatch.setattr(managed, "find_uv", lambda: str(folder / "uv"))


def test_the_size_is_that_of_the_largest_file_that_fits_and_must_fit_the_disk(
    wheels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (wheels / "pylock.toml").write_text(LOCK)
    copy = f'cp {wheels}/pylock.toml "$(dirname "$last")/pylock.toml"'
    use_uv(wheels, monkeypatch, f'[ "$2" = compile ] && {{ {copy}; exit 0; }}')
    usage, needed = shutil.disk_usage("/"), 5 * (400 + 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage._replace(free=needed))
    offer = manage_environments("offer", TF221, Following().report).offer
    assert offer is not None
    assert (offer.packages, offer.download_bytes, offer.free_bytes) == (2, 420, needed)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage._replace(free=needed - 1))
    with pytest.raises(InstallError, match=r"tf221 needs about .* of disk space, and .* free; free some"):
        Following().make()
    assert states() == {}


def test_one_whose_making_is_killed_is_not_there_and_is_made_anew() -> None:
    script = "from tests.unit.environments.test_managed import *\nprint(flush=True)\nFollowing().make()"
    environment, chance = {**os.environ, "PYTHONPATH": str(ROOT)}, random.Random(34)
    for limit_s in (0.0, *(chance.uniform(0.0, 1.5) for _ in range(4))):
        command = [sys.executable, "-c", script]
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as maker:
            assert maker.stdout is not None
            maker.stdout.readline()
            with contextlib.suppress(subprocess.TimeoutExpired):
                maker.wait(limit_s)
            maker.send_signal(signal.SIGKILL)
        assert (find_python("tf221") is None) == (states().get("tf221") != "complete")
        assert Following().make().state == "complete"
        assert installed() == {"tensorflow_cpu", "tensorflow", "keras", "msgspec", "numpy", "platformdirs"} - unused()
        remove("tf221")


def installed() -> set[str]:
    return {path.stem for path in environments_folder().glob("tf221/lib/python*/site-packages/[a-z]*.py")}


def unused() -> set[str]:
    """The wheel that this platform does not take."""
    (requirement, *_) = known.requirements_of("tf221", (), cuda=False)
    return {"tensorflow"} if requirement.startswith("tensorflow-cpu") else {"tensorflow_cpu"}


def test_one_that_is_killed_while_packages_come_is_unfinished() -> None:
    script = (
        "import time\n"
        "from tests.unit.environments.test_managed import *\n"
        "class Held(Following):\n"
        "    def report(self, line):\n"
        "        if line.startswith('Installing'):\n"
        "            print('installs', flush=True)\n"
        "            time.sleep(600)\n"
        "        return True\n"
        "Held().make()\n"
    )
    command, environment = [sys.executable, "-c", script], {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as maker:
        assert maker.stdout is not None
        assert maker.stdout.readline() == "installs\n"
        maker.send_signal(signal.SIGKILL)
    assert states() == {"tf221": "unfinished"}
    assert find_python("tf221") is None
    assert Following().make().state == "complete", "after the uv that lives on, if it does"


def test_two_at_once_wait_for_each_other() -> None:
    asked, goes_on = threading.Event(), threading.Event()

    class Held(Following):
        def report(self, line: str) -> bool:
            if line.startswith("Installing"):
                asked.set()
                goes_on.wait(60)
            return super().report(line)

    first, second = Held(), Following()
    makers = [threading.Thread(target=each.make) for each in (first, second)]
    makers[0].start()
    assert asked.wait(60)
    with pytest.raises(UserError, match="tf221 is being made or removed by another program"):
        remove("tf221")
    makers[1].start()
    waiting = "Waiting for another program that makes tf221"
    while waiting not in second.lines:
        assert makers[1].is_alive()
        makers[1].join(0.05)
    goes_on.set()
    for maker in makers:
        maker.join(60)
    assert second.lines[-1] == waiting, "what the other program made is taken"
    assert states() == {"tf221": "complete"}


def test_what_is_declined_or_cancelled_leaves_nothing() -> None:
    with pytest.raises(CancelledError, match="tf221 was not made"):
        Following(on_offer=lambda: False).make()
    following = Following()
    following.cancelled.set()
    with pytest.raises(CancelledError, match="was stopped; what was fetched is kept"):
        following.make()
    with pytest.raises(CancelledError, match="was stopped; what was fetched is kept"):
        manage_environments("add", TF221, following.report)
    assert states() == {}


def test_a_disk_that_gets_full_says_so_and_nothing_is_left(wheels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_file: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(InstallError, match="tf221 failed: the disk is full"):
            Following().make()
    assert states() == {}
    full_disk = 'echo "error: No space left on device (os error 28)"; exit 2'
    use_uv(wheels, monkeypatch, f'[ "$2" = install ] && {{ {full_disk}; }}')
    with pytest.raises(InstallError, match="Installing the packages failed: the disk is full"):
        Following().make()
    assert states() == {}


CAN_MOUNT = sys.platform == "linux" and not subprocess.run(["unshare", "-rm", "true"], check=False).returncode


@pytest.mark.skipif(not CAN_MOUNT, reason="mounts a small disk in a namespace of its own, which is not permitted here")
@pytest.mark.parametrize("size", ["8k", "32k", "64k", "128k"])
def test_on_a_disk_that_is_too_small_nothing_is_left(size: str, wheels: Path) -> None:
    code = (
        "from tests.unit.environments.test_managed import *\n"
        "try:\n    Following().make()\n"
        "except InstallError as error:\n    print(error, states())"
    )
    mount = f'mkdir "$0"; mount -t tmpfs -o size={size} none "$0" && exec "$@"'
    shell = ["unshare", "-rm", "sh", "-c", mount, str(wheels / "user"), sys.executable, "-c", code]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(shell, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "the disk is full" in done.stdout
    assert done.stdout.endswith(" {}\n")


def test_without_a_network_one_sentence_says_what_to_do(wheels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (wheels / "uv.toml").write_text("")
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9/simple")
    request = EnvironmentRequest(name="mine", packages=("no-such-package-of-these-tests",))
    with pytest.raises(InstallError, match="no network"):
        Following().make(request)
    monkeypatch.delenv("UV_DEFAULT_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:8/simple")
    with pytest.raises(InstallError, match="no network"):
        Following().make(request)
    assert "http://127.0.0.1:8/simple" in environments_folder().joinpath(".mine.log").read_text()


def test_one_in_use_is_not_removed() -> None:
    Following().make()
    with running(str(find_python("tf221")), "-c", "input()"), pytest.raises(UserError, match="tf221 is in use: a prog"):
        remove("tf221")
    remove("tf221")
    assert states() == {}


@contextlib.contextmanager
def running(*command: str) -> Iterator[None]:
    with subprocess.Popen(command, stdin=subprocess.PIPE):
        yield


def test_one_whose_python_was_removed_is_broken_and_refused() -> None:
    environment = Following().make()
    (Path(environment.folder) / "bin" / "python").unlink()
    (Path(environment.folder) / "bin" / "python3").unlink()
    assert states() == {"tf221": "broken"}
    (refusal,) = check(complete("lstm", {"interpreter": "tf221", "gpus": 0}, Machine()), Machine())
    assert "no complete environment called tf221" in refusal.reason
    assert Following().make().state == "complete"


NAMES = ["../x", "a/b", "/tmp/x", ".", "..", ".hidden", "-x", "", " ", "a b", "a\n", "a\0", "é", "٣", "x" * 65]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("action", ["offer", "add", "remove"])
def test_a_name_stays_in_its_folder(action: Action, name: str) -> None:
    with pytest.raises(UserError, match="cannot be the name of an environment"):
        manage_environments(action, EnvironmentRequest(name=name), Following().report)


def test_a_name_of_64_characters_can_be_one() -> None:
    name = "x" * 64
    assert Following().make(EnvironmentRequest(name=name, packages=("msgspec",))).state == "complete"
    remove(name)


def test_a_name_with_other_packages_is_not_taken_for_the_one_there() -> None:
    Following().make()
    with pytest.raises(UserError, match=r"tf221 is there already, with tensorflow.*; remove it first"):
        Following().make(EnvironmentRequest(name="tf221", packages=("keras",)))


@pytest.mark.parametrize(
    ("name", "example"), [("mine", "tensorflow==2.21"), ("pytorch", "torch==2.15"), ("my-JAX", "jax==0.10")]
)
def test_a_name_that_says_nothing_of_packages_gets_an_example_of_its_framework(name: str, example: str) -> None:
    with pytest.raises(
        UserError, match=rf"{name} is none of the .* \(tf221, .*env add {name} --packages '{example}\.\*'"
    ):
        Following().make(EnvironmentRequest(name=name))


def test_a_version_without_wheels_for_this_python_needs_another_one() -> None:
    wanted = known.requirements_of("tf219", ())
    assert known.choose_python(wanted, minor=12) == str(Path(sys.executable).resolve())
    assert known.choose_python(wanted, minor=13) == ">=3.11,<3.13"
    assert known.choose_python(wanted, minor=10) == ">=3.11,<3.13"
    assert known.choose_python(("numpy",), minor=13) == str(Path(sys.executable).resolve())


def test_a_host_without_the_wheel_of_uv_takes_its_own_or_is_told_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Path(known.find_uv()).name == "uv"
    monkeypatch.setitem(sys.modules, "uv", None)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(InstallError, match=r"is not on .*; install it there: curl "):
        known.find_uv()
    program = tmp_path / ".local/bin/uv"
    program.parent.mkdir(parents=True)
    program.touch(0o755)
    assert known.find_uv() == str(program)


def test_an_environment_of_pytorch_has_no_tensorflow_and_the_build_for_the_processor(
    wheels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Following().make()
    seen = wheels / "seen"
    use_uv(wheels, monkeypatch, f'[ "$2" = compile ] && echo "$@" > {seen}')
    environment = Following().make(EnvironmentRequest(name="torch215", cuda=False))
    assert environment.frameworks == {"pytorch": "2.15.0"}
    assert environment.packages[0] == "torch==2.15.*"
    assert "--torch-backend cpu" in seen.read_text()
    assert Following().make(EnvironmentRequest(name="jax010", cuda=False)).frameworks == {"jax": "0.10.2"}
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)
    defaults = [default_interpreter(framework) for framework in FRAMEWORKS.values()]
    assert defaults == ["tf221", "torch215", "jax010"], "runs that name no Python get one that has their framework"
    spec = complete("lstm", {"framework": "pytorch", "interpreter": "tf221", "gpus": 0}, Machine())
    assert ["PyTorch is not installed" in refusal.reason for refusal in check(spec, Machine())] == [True]


def test_uv_chooses_pytorch_s_build_by_the_driver_unless_it_is_said() -> None:
    torch = known.requirements_of("torch29", ())
    assert known.torch_options(torch) == ("--torch-backend", "auto")
    assert known.torch_options(torch, cuda=True) == ()
    assert known.torch_options(("torchmetrics", "numpy")) == ()
    assert known.choose_python(torch, minor=14) == str(Path(sys.executable).resolve())
    assert known.choose_python(torch, minor=15) == ">=3.11,<3.15"


def test_jax_has_cuda_by_the_driver_and_its_own_oldest_python(monkeypatch: pytest.MonkeyPatch) -> None:
    assert known.requirements_of("jax011", (), cuda=True)[0] == "jax[cuda12]==0.11.*"
    monkeypatch.setattr(known, "nvidia_driver", lambda: False)
    requirements = known.requirements_of("jax011", ())
    assert requirements[0] == "jax==0.11.*"
    assert known.choose_python(requirements, minor=11) == ">=3.12,<3.15"
    assert known.choose_python(requirements, minor=12) == str(Path(sys.executable).resolve())


def test_cuda_follows_the_driver_unless_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known, "nvidia_driver", lambda: True)
    assert known.requirements_of("tf221", ())[0] == "tensorflow[and-cuda]==2.21.*"
    assert known.requirements_of("tf221", (), cuda=False)[0].startswith(("tensorflow==2.21", "tensorflow-cpu==2.21"))
    assert environments_folder().name == "envs"
