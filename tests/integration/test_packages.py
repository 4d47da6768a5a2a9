"""Packages of a variant: real uv, in a cache of the test, with wheels that it writes."""

import errno
import os
import shutil
import signal
import site
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from app.environments import packages
from app.environments.packages import fetch_packages, find_uv, uv_folder, worker_command
from app.environments.steps import CancelledError, InstallError
from app.errors import UserError
from app.grants import Grant, refuse, require, typed
from app.runs.leases import Leases
from app.runs.standby import StandbyLauncher
from app.telemetry.feed import TelemetryFeed
from app.values.events import Outcome
from tests.fakes.processes import has_ended
from tests.fakes.sessions import dummy, going, is_measured, run_through, services, with_launcher
from tests.fakes.standby import standing_by
from tests.fakes.wheels import use_wheels, write_wheel
from tests.present import present
from workloads.catalog import Machine, check, complete
from workloads.protocol import Block

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VARIANTSCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("VARIANTSCOPE_GRANTS", str(tmp_path / "grants.json"))
    return use_wheels(monkeypatch, tmp_path)


def allow(*sets: str) -> None:
    require([Grant(kind="packages", value=value) for value in sets], typed)


def fetch(value: str, interpreter: str = "") -> list[str]:
    """Fetch packages, and return what was reported."""
    lines: list[str] = []
    allow(value)
    fetch_packages(value, interpreter, lambda line: not lines.append(line))  # type: ignore[func-returns-value]
    return list(filter(None, lines))


def run(tmp_path: Path, feed: TelemetryFeed, **settings: str) -> Outcome:
    outcome, _, _ = run_through(dummy(feed.wait_inventory(), **settings), services(tmp_path, feed))
    return outcome


def test_each_set_of_packages_has_an_environment_that_the_next_run_shares(tmp_path: Path, feed: TelemetryFeed) -> None:
    for version in ("1.0", "2.0"):
        assert run(tmp_path, feed, packages=f"tiny=={version}").name == "completed"
    installed = sorted(tmp_path.glob("uv/environments-v*/*/*"))
    assert run(tmp_path, feed, packages="tiny==1.0").name == "completed"
    assert sorted(tmp_path.glob("uv/environments-v*/*/*")) == installed


def test_the_environment_has_the_packages_alone_and_a_version_names_a_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Where this Python was started by its path alone, uv would look for another of its version.
    monkeypatch.setenv("PATH", str(Path(sys.base_prefix, "bin")), prepend=os.pathsep)
    fetch("tiny<2")
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    code = "import sys, tiny, importlib.util as u; print(tiny.__version__, sys.version_info[:2], u.find_spec('psutil'))"
    for interpreter in ("", here, sys.prefix):
        fetch("tiny<2", interpreter)
        command = worker_command("tiny<2", interpreter, ["-c", code])
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        assert done.stdout == f"1.0 {sys.version_info[:2]} None\n"
    refused = {"interpreter": "3.12", "packages": ""}, {"interpreter": "tf219", "packages": "tiny"}
    for settings in refused:
        (refusal,) = check(complete("dummy", {"gpus": 0, **settings}, Machine()), Machine())
        assert refusal.reason.startswith(f"{settings['interpreter']} is neither a virtual environment's folder")
    assert not check(complete("dummy", {"gpus": 0, "interpreter": "3.12", "packages": "tiny"}, Machine()), Machine())


def test_uv_reads_nothing_of_the_current_folder_in_which_the_worker_runs(
    tmp_path: Path, feed: TelemetryFeed, wheels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders, theirs = tmp_path / "folders", tmp_path / "theirs"
    theirs.mkdir()
    note = f"open({str(folders)!r}, 'a').write(path + '|')"
    code = f"import os; os.chdir = lambda path, go=os.chdir: ({note}, go(path))\n"
    write_wheel(wheels, "tiny", "3.0", {"tiny.pth": code.encode()})
    evil = f"import os; open({str(tmp_path / 'evil')!r}, 'w')\n".encode()
    write_wheel(theirs, "tiny", "4.0", {"tiny.pth": evil})
    settings = f'find-links = ["{theirs}"]\n'
    (theirs / "uv.toml").write_text(settings)
    (theirs / "pyproject.toml").write_text(f'[project]\nname = "x"\nversion = "1"\n[tool.uv]\n{settings}')
    (theirs / ".python-version").write_text("3.99\n")
    config = tmp_path / "config" / "uv"
    config.mkdir(parents=True)
    shutil.copy(os.environ["UV_CONFIG_FILE"], config / "uv.toml")
    monkeypatch.delenv("UV_CONFIG_FILE")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(config.parent))
    monkeypatch.chdir(theirs)
    assert run(tmp_path, feed, packages="tiny").name == "completed"
    assert not (tmp_path / "evil").exists()
    assert set(folders.read_text().split("|")) == {str(theirs), ""}


def test_a_worker_stands_by_for_each_set(tmp_path: Path, feed: TelemetryFeed, wheels: Path) -> None:
    write_wheel(wheels, "tiny", "3.0", {f"{name}.py": b"__version__ = '99.0'" for name in ("keras", "tensorflow")})
    write_wheel(wheels, "numpy", "9.0", {"ours.pth": "\n".join(site.getsitepackages()).encode()})
    spec = dummy(feed.wait_inventory(), gpus=1, packages="tiny==3.0")
    with closing(StandbyLauncher(Leases(tmp_path), lambda: True)) as launcher:
        served = with_launcher(services(tmp_path, feed), launcher)
        runs = []
        for _ in range(2):
            outcome, _, stored = run_through(spec, served)
            assert outcome.name == "completed", outcome
            assert launcher.wait_ready()
            runs.append(stored)
        assert sum("--with=tiny==3.0" in process.cmdline() for process in standing_by()) == 1
    assert [stored.environment.get("standby") for stored in runs] == [None, "yes"]


def test_a_signal_that_ends_the_worker_is_told_and_its_own_load_is_recorded(
    tmp_path: Path, feed: TelemetryFeed
) -> None:
    spec = dummy(feed.wait_inventory(), steps=0, seconds=600.0, packages="tiny")
    with going(spec, services(tmp_path, feed)) as run:
        run.recorder.wait(Block, is_measured)
        (worker,) = (
            child
            for uv in psutil.Process().children()
            for child in uv.children()
            if "workloads.worker" in child.cmdline()
        )
        assert feed._followed == [worker.pid]
        worker.send_signal(signal.SIGSEGV)
        outcome = run.result()
    assert (outcome.name, outcome.exit_code) == ("crashed", -signal.SIGSEGV)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the end of stdin ends the worker")
def test_the_worker_ends_with_a_program_that_is_killed() -> None:
    fetch("tiny")
    as_a_worker = "import ctypes, os, time; ctypes.CDLL(None).prctl(1, 9, 0, 0, 0); print(os.getpid(), flush=True)"
    command = worker_command("tiny", "", ["-c", f"{as_a_worker}; time.sleep(600)"])
    code = f"import subprocess, sys, time; subprocess.Popen({command!r}); time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as program:
        worker = int(present(program.stdout).readline())
        program.kill()
    assert has_ended(worker)


def test_what_uv_cannot_do_is_one_sentence(
    tmp_path: Path, feed: TelemetryFeed, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = run(tmp_path, feed, packages="tiny==99")
    assert outcome.name == "refused"
    reason = outcome.reason or ""
    assert reason.startswith("Looking for the packages failed: error: No solution found when resolving dependencies: ")
    assert "Because there is no version of tiny==99" in reason
    monkeypatch.setenv("UV_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9/simple")
    with pytest.raises(InstallError, match="no network"):
        fetch("no-such-package-of-these-tests")
    monkeypatch.delenv("UV_DEFAULT_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:8/simple")
    with pytest.raises(InstallError, match="no network"):
        fetch("no-such-package-of-these-tests")
    assert any("http://127.0.0.1:8/simple" in log.read_text() for log in uv_folder().glob("*.log"))


@pytest.mark.parametrize("word", ["--config-file=uv.toml", "tiny,tiny", ","])
def test_an_option_and_several_values_are_no_package(word: str) -> None:
    with pytest.raises(InstallError, match=f"^{word} is not a package"):
        fetch(f"tiny {word}")


def test_a_disk_that_fills_while_packages_are_looked_for_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def write(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_text", write)
    with pytest.raises(UserError, match="cannot be written"):
        fetch("no-such-package-of-these-tests")


def test_who_stops_gets_nothing(tmp_path: Path) -> None:
    allow("tiny")
    with pytest.raises(CancelledError):
        fetch_packages("tiny", "", lambda _: False)
    assert not list(tmp_path.glob("uv/environments-v*/*/*")), "nothing was installed"


def test_a_set_is_asked_for_once_and_installed_by_nobody_else(tmp_path: Path, feed: TelemetryFeed) -> None:
    asked: list[Sequence[Grant]] = []

    def consent(grants: Sequence[Grant]) -> bool:
        asked.append(grants)
        return True

    with pytest.raises(Exception, match="nobody has allowed VariantScope to install and run the packages tiny"):
        fetch_packages("tiny", "", lambda _: True)
    given = services(tmp_path, feed)
    specs = [dummy(feed.wait_inventory(), packages=value) for value in ("tiny", "tiny==1.0", "tiny")]
    given.admit(specs, consent)
    given.admit(specs, refuse)
    (grants,) = asked
    assert [(grant.kind, grant.value) for grant in grants] == [("packages", "tiny"), ("packages", "tiny==1.0")]
    assert grants[1].command.endswith("run dummy -s packages=tiny==1.0")


LOCK = """lock-version = "1.0"
[[packages]]
name = "tiny"
wheels = [{{ url = "https://a/tiny.whl", size = {size} }}, {{ url = "https://a/other.whl", size = 300 }}]
[[packages]]
name = "other"
sdist = {{ url = "https://a/other.tar.gz", size = 1_000_000 }}
"""


@pytest.mark.parametrize(
    ("size", "said"), [(199_000_000, []), (199_000_001, ["tiny: 2 packages, 191\xa0MiB to download at most."])]
)
def test_what_is_large_is_said_before_the_download(
    tmp_path: Path, size: int, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lock").write_text(LOCK.format(size=size))
    uv, script = find_uv(), tmp_path / "script"
    script.write_text(
        '#!/bin/sh\nout=\nfor word; do [ "$last" = --output-file ] && out=$word; last=$word; done\n'
        f'[ "$2" = compile ] && exec cp {tmp_path}/lock "$out"\n'
        f'case "$*" in *--offline*) exit 1;; esac\nexec {uv} "$@"\n'
    )
    script.chmod(0o755)
    monkeypatch.setattr(packages, "find_uv", lambda: str(script))
    lines = fetch("tiny")
    assert [line for line in lines if "at most" in line] == said


def test_pytorch_is_the_build_for_this_machine_unless_the_user_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    def index(value: str) -> str:
        words = worker_command(value, "", ())
        return words[words.index("--index") + 1].rpartition("/")[2] if "--index" in words else ""

    for name in ("UV_TORCH_BACKEND", "UV_INDEX"):
        monkeypatch.delenv(name, raising=False)
    for has_driver, build in ((True, ""), (False, "cpu")):
        monkeypatch.setattr(packages, "nvidia_driver", lambda has_driver=has_driver: has_driver)
        assert (index("torch==2.9.*"), index("torchaudio tiny")) == (build, "")
    monkeypatch.setenv("UV_TORCH_BACKEND", "cu126")
    assert (index("tiny torch"), index("tiny")) == ("cu126", "")
    monkeypatch.setenv("UV_INDEX", "file:///mirror")
    assert index("torch") == ""


def test_a_host_without_the_wheel_of_uv_takes_its_own_or_is_told_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Path(find_uv()).name == "uv"
    monkeypatch.setitem(sys.modules, "uv", None)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(InstallError, match=r"is not on .*; install it there: curl "):
        find_uv()
    program = tmp_path / ".local/bin/uv"
    program.parent.mkdir(parents=True)
    program.touch(0o755)
    assert find_uv() == str(program)
