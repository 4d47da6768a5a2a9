"""The wheel: its files, and the program installed from it, used from an empty folder without the checkout."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
from uv import find_uv_bin

from app.paths import program_version
from app.runs.leases import FOLDER_VARIABLE
from tests.fakes.command_line import dummy_arguments

ROOT = Path(__file__).parents[2]
LIMIT_S = 240.0
EPOCH = "1767225600"  # of every file in the wheel: 2026-01-01
PARTS = ("app", "workloads", "resources", "variantscope")

BUILD = "from hatchling.build import build_sdist, build_wheel; build_wheel('.'); build_sdist('.')"
OTHER = "another package of that name"
IMPORT_ALL = """
import importlib, json, pkgutil, sys
from pathlib import Path
import variantscope
sys.path.insert(0, str(Path(variantscope.__file__).parent))
import app, workloads
mains = ("workloads.tensorflow", "workloads.entry")
names = [m.name for p in (app, workloads) for m in pkgutil.walk_packages(p.__path__, p.__name__ + ".")]
for name in names:
    if not name.endswith("__main__") and not name.startswith(mains):
        importlib.import_module(name)
ours = {name: m.__file__ for name, m in sys.modules.items() if name.partition(".")[0] in ("app", "workloads", "tests")}
print(json.dumps({"path": sys.path, "files": ours}))
"""


def shipped_files() -> set[str]:
    """What git knows or would take in of the parts that an install has."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *PARTS]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
    return {name for name in names if name and (ROOT / name).is_file()}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel as pip does, from a copy that is gone afterwards."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    for name in {*shipped_files(), "pyproject.toml", "README.md", "LICENSE", "tests/contract/test_wheel.py"}:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, source / name)
    environment = {**os.environ, "SOURCE_DATE_EPOCH": EPOCH}
    run([sys.executable, "-c", BUILD], source, environment)
    (built,) = source.glob("*.whl")
    built = built.rename(folder / built.name)
    (archive,) = source.glob("*.tar.gz")
    archive.rename(folder / archive.name)
    shutil.rmtree(source)
    return built


@dataclass(frozen=True)
class Installed:
    """The program in an environment of its own; commands start in a folder with another `app` and `workloads`."""

    folder: Path
    environment: dict[str, str]

    @property
    def site(self) -> Path:
        (site,) = self.folder.glob("lib/python*/site-packages")
        return site

    def command(self, *words: str) -> list[str]:
        return [str(self.folder / "bin" / "variantscope"), *words]

    def __call__(self, *words: str) -> str:
        return run(self.command(*words), self.folder / "elsewhere", self.environment)


@pytest.fixture(scope="module")
def installed(wheel: Path) -> Installed:
    """Install the wheel; its dependencies are those of the tests."""
    folder = wheel.parent / "environment"
    run([sys.executable, "-m", "venv", "--without-pip", str(folder)], wheel.parent, dict(os.environ))
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    python = str(folder / "bin" / "python")
    pip = [find_uv_bin(), "pip", "install", "--python", python]
    run([*pip, "--no-deps", "--no-index", str(wheel)], wheel.parent, dict(os.environ))
    for name in ("app", "workloads", "resources"):  # beside it in the environment, and in the current folder
        for other in (site / name / "__init__.py", folder / "elsewhere" / name / "__init__.py"):
            other.parent.mkdir(parents=True)
            other.write_text(f"raise SystemExit('{OTHER}')\n")
    home = {"HOME": str(folder), "XDG_DATA_HOME": str(folder / "data"), FOLDER_VARIABLE: str(folder)}
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    # The last entry of this path is empty: the current folder.
    return Installed(folder, {**inherited, **home, "PYTHONPATH": f"{folder / 'none'}:"})


def run(command: list[str], folder: Path, environment: dict[str, str]) -> str:
    """Run a command to its end and return what it printed; it must not fail."""
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_wheel_has_exactly_the_program(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        files = [info for info in archive.infolist() if ".dist-info/" not in info.filename]
    parts = {f"variantscope/{name.removeprefix('variantscope/')}" for name in shipped_files()}
    assert {info.filename for info in files} == parts
    assert {info.date_time for info in files} == {(2026, 1, 1, 0, 0, 0)}, "the same sources make the same wheel"


def test_an_archive_of_the_sources_has_the_tests(wheel: Path) -> None:
    (archive,) = wheel.parent.glob("*.tar.gz")
    with tarfile.open(archive) as sources:
        names = {name.partition("/")[2] for name in sources.getnames()}
    assert {"tests/contract/test_wheel.py", "start.py", "app/__main__.py"} - names == {"start.py"}, (
        "no start.py was there"
    )


def test_an_install_touches_no_other_name(installed: Installed) -> None:
    (record,) = installed.site.glob("variantscope-*.dist-info/RECORD")
    tops = {line.partition("/")[0] for line in record.read_text().splitlines()}
    assert {top for top in tops if top != ".."} == {"variantscope", record.parent.name}
    assert (installed.site / "app" / "__init__.py").read_text().count(OTHER) == 1
    assert run(
        [str(installed.folder / "bin" / "python"), "-m", "variantscope", "--version"],
        installed.folder,
        installed.environment,
    )


def test_the_window_opens_without_arguments(installed: Installed) -> None:
    database = installed.folder / "data" / "variantscope" / "profiles.db"
    with started(installed) as window:
        while not database.exists():  # made after the first paint
            with contextlib.suppress(subprocess.TimeoutExpired):
                window.wait(0.05)
            assert window.poll() is None, window.communicate()
        window.send_signal(signal.SIGTERM)
        _, err = window.communicate(timeout=LIMIT_S)
    assert (window.returncode, "Traceback" in err) == (0, False), err


@contextlib.contextmanager
def started(installed: Installed) -> Iterator["subprocess.Popen[str]"]:
    """Start the window, and kill it if it is still there."""
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        installed.command(),
        cwd=installed.folder / "elsewhere",
        env=installed.environment,
        stdout=pipe,
        stderr=pipe,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_run_is_made_stored_and_exported(installed: Installed) -> None:
    database, exported = installed.folder / "runs.db", installed.folder / "exported.vscope"
    made = json.loads(installed("--db", str(database), "run", *dummy_arguments(), "--json"))
    assert made["outcome"] == "completed"
    installed("--db", str(database), "export", "1", "-o", str(exported))
    assert exported.stat().st_size > 0
    assert "gpus" in json.loads(installed("gpus", "--json"))


def test_the_command_line_names_itself(installed: Installed) -> None:
    assert installed("--version") == f"VariantScope {program_version()}\n"
    assert "variantscope gpus" in installed("gpus", "--help")


def test_nothing_comes_from_the_checkout(installed: Installed) -> None:
    command = [str(installed.folder / "bin" / "python"), "-P", "-c", IMPORT_ALL]
    found = msgspec.json.decode(
        run(command, installed.folder, {**installed.environment, "PYTHONPATH": ""}), type=dict[str, object]
    )
    files = msgspec.convert(found["files"], dict[str, str | None])
    assert str(ROOT) not in msgspec.convert(found["path"], list[str])
    assert len(files) > 200
    assert [name for name, file in files.items() if file and not Path(file).is_relative_to(installed.site)] == []
