"""start.py: its decisions for a machine, and its behaviour as a real process when it is interrupted."""

import ast
import os
import re
import shutil
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

import start
from app.environments.steps import CancelledError, InstallError, explain, loadable, run_step

ROOT = Path(__file__).parents[2]

ADMIN = start.Host(root=True, apt=True, uv=None)
USER = replace(ADMIN, root=False)
FEDORA = replace(USER, apt=False)
WHOLE = start.Stamp("3.11", "abc", ["gui", "tensorflow"], libraries=True)


@pytest.mark.parametrize("version", [(3, 11), (3, 12), (3, 13)])
def test_supported_pythons_pass(version: tuple[int, int]) -> None:
    start.check_python(version, "linux")


def test_an_old_python_can_read_what_tells_it_to_be_too_old() -> None:
    for name in ("start.py", "app/environments/steps.py", "app/errors.py"):
        ast.parse((ROOT / name).read_bytes(), feature_version=(3, 7))


@pytest.mark.parametrize("version", [(3, 8), (3, 10), (3, 14), (4, 0)])
def test_other_pythons_are_named_with_the_right_ones(version: tuple[int, int]) -> None:
    with pytest.raises(InstallError, match=rf"Python {version[0]}\.{version[1]};.* 3\.11, 3\.12 or 3\.13"):
        start.check_python(version, "darwin")


def test_windows_is_sent_to_wsl() -> None:
    with pytest.raises(InstallError, match="WSL2"):
        start.check_python((3, 12), "win32")


@pytest.mark.parametrize(
    ("words", "driver", "extras", "qt"),
    [
        ([], False, ["parquet", "tensorflow"], True),
        ([], True, ["parquet", "cuda"], True),
        (["run", "lstm"], True, ["parquet", "cuda"], False),
        (["test"], False, ["parquet", "tensorflow", "dev"], True),
        (["list", "test"], False, ["parquet", "tensorflow"], False),
    ],
)
def test_words_say_which_extras_and_whether_qt(words: list[str], driver: bool, extras: list[str], qt: bool) -> None:
    assert start.needs(words, driver=driver) == (extras, qt)


@pytest.mark.parametrize(
    ("words", "platform", "environment", "expected"),
    [
        ([], "linux", {"DISPLAY": ":0"}, []),
        ([], "linux", {"WAYLAND_DISPLAY": "wayland-0"}, []),
        ([], "darwin", {}, []),
        ([], "linux", {}, ["experiment", "--preset", "quick"]),
        ([], "linux", {"DISPLAY": ""}, ["experiment", "--preset", "quick"]),
        (["gpus"], "linux", {}, ["gpus"]),
    ],
)
def test_without_words_and_display_the_quick_comparison_runs(
    words: list[str], platform: str, environment: dict[str, str], expected: list[str]
) -> None:
    assert start.app_arguments(words, platform, environment) == expected


@pytest.mark.parametrize(
    ("stamp", "wanted", "step"),
    [
        (None, WHOLE, "make"),
        (replace(WHOLE, python="3.12"), WHOLE, "make"),
        (WHOLE, WHOLE, "nothing"),
        (replace(WHOLE, extras=["dev", "gui", "tensorflow"]), WHOLE, "nothing"),
        (WHOLE, replace(WHOLE, extras=["gui", "tensorflow", "dev"]), "update"),
        (WHOLE, replace(WHOLE, digest="def"), "update"),
    ],
)
def test_next_step(stamp: start.Stamp | None, wanted: start.Stamp, step: str) -> None:
    assert start.next_step(stamp, wanted) == step


def test_root_installs_by_apt_and_others_are_told_the_one_line() -> None:
    packages = ["libegl1", "libgl1"]
    update, install = start.apt_commands(packages, "Qt needs two libraries", ADMIN)
    assert update == ["apt-get", "update"]
    assert install[:3] == ["apt-get", "install", "--yes"]
    assert install[-2:] == packages
    with pytest.raises(InstallError, match=r"type: sudo apt-get install libegl1 libgl1$"):
        start.apt_commands(packages, "Qt needs two libraries", USER)
    with pytest.raises(InstallError, match=r"^Qt needs two libraries.*package manager"):
        start.apt_commands(packages, "Qt needs two libraries", FEDORA)


@pytest.mark.parametrize(
    ("library", "package"),
    [
        ("libEGL.so.1", "libegl1"),
        ("libX11.so.6", "libx11-6"),
        ("libX11-xcb.so.1", "libx11-xcb1"),
        ("libdbus-1.so.3", "libdbus-1-3"),
        ("libglib-2.0.so.0", "libglib2.0-0"),
        ("libxcb-icccm.so.4", "libxcb-icccm4"),
        ("libxcb-render-util.so.0", "libxcb-render-util0"),
        ("libxkbcommon-x11.so.0", "libxkbcommon-x11-0"),
    ],
)
def test_packages_are_named_as_debian_and_ubuntu_name_them(library: str, package: str) -> None:
    assert f"{library}={package}" in start.QT_LIBRARIES.split()


@pytest.mark.skipif(not shutil.which("readelf"), reason="reads Qt's own files with readelf")
def test_the_list_holds_all_that_qt_is_linked_against() -> None:
    pyside = pytest.importorskip("PySide6")
    qt = Path(pyside.__file__).parent
    plugins = [qt / f"Qt/plugins/platforms/libq{name}.so" for name in ("xcb", "wayland", "offscreen")]
    names = ("Gui", "Widgets", "Svg", "DBus", "XcbQpa", "WaylandClient")
    files = [*plugins, *(qt / f"Qt/lib/libQt6{name}.so.6" for name in names)]
    command = ["readelf", "-d", *map(str, files)]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    linked = {line.split("[")[1].rstrip("]") for line in lines if "(NEEDED)" in line}
    of_every_system = {"libstdc++.so.6", "libm.so.6", "libgcc_s.so.1", "libc.so.6", "libz.so.1", "libgthread-2.0.so.0"}
    assert {name for name in linked if not name.startswith("libQt6")} - of_every_system == {
        pair.split("=")[0] for pair in start.QT_LIBRARIES.split()
    }


def test_uv_installs_where_it_is_and_pip_elsewhere() -> None:
    python = Path("/a b/python")
    assert start.installer(python, None)[:4] == ["/a b/python", "-m", "pip", "install"]
    assert start.installer(python, "/bin/uv") == ["/bin/uv", "pip", "install", "--python", "/a b/python"]


def test_uv_finds_packages_where_pip_does() -> None:
    best_of_all = "UV_INDEX_STRATEGY=unsafe-best-match"
    settings = (
        ":env:.extra-index-url='B=\\nC'\nglobal.extra-index-url='X'\nglobal.timeout='9'\ninstall.find-links='D E'\n"
    )
    assert start.uv_variables(settings) == [best_of_all, "UV_INDEX=B= C", "UV_FIND_LINKS=D,E"]
    assert start.uv_variables("global.index-url='A'") == [best_of_all, "UV_DEFAULT_INDEX=A"]
    with pytest.raises(InstallError, match="no index"):
        start.uv_variables("global.no-index='true'")


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ("WARNING: Retrying ... NewConnectionError(...)\nERROR: No matching distribution", "no network"),
        ("error: Failed to fetch\n  Caused by: dns error", "Connect, or name a mirror"),
        (
            "error: Failed to fetch: https://download.pytorch.org/whl/cpu/torch\n  dns error",
            "or take that of PyPI, with CUDA",
        ),
        ("OSError: [Errno 28] No space left on device", "disk is full"),
        ("Collecting a\nERROR: Cannot install a and b\n\n[notice] x", "ERROR: Cannot install a and b"),
        ("E: Unable to locate package x", "E: Unable to locate package x"),
        (
            "error: No solution found\n  cause: Because x was not found\n",
            "No solution found: Because x was not found (the",
        ),
        ("something odd", "something odd"),
        ("", "the whole log: build/start.log"),
    ],
)
def test_a_failed_step_is_explained_in_one_line(log: str, words: str) -> None:
    sentence = explain("Installing packages", log, Path("build/start.log"))
    assert words in sentence
    assert "\n" not in sentence


def test_a_library_is_found_or_not() -> None:
    assert loadable("libc.so.6" if sys.platform == "linux" else "libSystem.dylib")
    assert not loadable("libno-such-library.so.1")


def test_a_step_is_said_whole_or_as_a_number() -> None:
    assert start.brief_step("Installing collected packages: numpy, keras, tensorflow") == "Unpacking 3 packages"
    assert start.brief_step("Collecting numpy") == "Collecting numpy"
    assert start.brief_step(f"Downloading {'x' * 60}") == f"Downloading {'x' * 46} …"


def test_a_step_says_its_last_line_and_ends_with_all_it_started_where_that_is_enough(tmp_path: Path) -> None:
    code = "import time; print('Collecting numpy', flush=True); print('no', end='', flush=True); time.sleep(600)"
    lines: list[str] = []

    def watch(line: str, _seconds: int) -> bool:
        lines.append(line)
        return not line

    with pytest.raises(CancelledError, match="Looking was stopped"):
        run_step("Looking", [sys.executable, "-c", code], tmp_path / "log", watch=watch)
    assert (set(lines[:-1]), lines[-1]) == ({""} if lines[1:] else set(), "Collecting numpy")


def test_a_step_that_fails_raises_what_it_said(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "print('ERROR: the cupboard is bare'); raise SystemExit(3)"]
    with pytest.raises(InstallError, match="Looking failed: ERROR: the cupboard is bare"):
        start.run_logged("Looking", command, tmp_path)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A minimal checkout for start.py under a path with a space; its app prints how it was called."""
    folder = tmp_path / "a checkout"
    (folder / "app").mkdir(parents=True)
    shutil.copy(ROOT / "start.py", folder)
    for name in ("app/errors.py", "app/environments/__init__.py", "app/environments/steps.py"):
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    (folder / "constraints.txt").touch()
    (folder / "pyproject.toml").write_text(
        '[project]\ndependencies = ["pip"]\n'  # there already: needs no network
        "[project.optional-dependencies]\nparquet = []\ntensorflow = []\ncuda = []\ndev = []\n"
    )
    (folder / "app/__init__.py").touch()
    (folder / "app/__main__.py").write_text("import os, sys\nprint(os.getcwd(), sys.argv[1:])\nsys.exit(7)\n")
    return folder


def started(checkout: Path, where: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Start with these arguments from a folder; return the finished process."""
    environment = {
        name: value for name, value in os.environ.items() if name not in ("DISPLAY", "WAYLAND_DISPLAY", "PYTHONPATH")
    }
    environment["PATH"] = os.defpath  # without a uv of this machine
    environment |= {"PIP_INDEX_URL": f"{checkout.as_uri()}/none", "PIP_FIND_LINKS": checkout.as_uri()}  # nor a network
    command = [sys.executable, str(checkout / "start.py"), *words]
    return subprocess.run(command, check=False, capture_output=True, text=True, cwd=where, env=environment, timeout=240)


def with_uv(checkout: Path, status: int) -> Path:
    """Let a checkout need a uv that does nothing but write its words into a file; return the file."""
    words, info = checkout / "words", "uv-1.dist-info"
    script = f"#!/bin/sh\necho \"$UV_DEFAULT_INDEX $UV_FIND_LINKS $*\" > '{words}'\nexit {status}\n"
    with zipfile.ZipFile(checkout / "uv-1-py3-none-any.whl", "w") as wheel:
        program = zipfile.ZipInfo("uv-1.data/scripts/uv")
        program.external_attr = 0o100_755 << 16
        wheel.writestr(program, script)
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: uv\nVersion: 1\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    project = checkout / "pyproject.toml"
    project.write_text(project.read_text().replace('"pip"', '"pip", "uv>=1"'))
    return words


def test_first_start_sets_up_and_later_ones_pass_on_at_once(checkout: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "app").mkdir(parents=True)
    (elsewhere / "app/__main__.py").write_text("raise SystemExit('the wrong app')")
    words = with_uv(checkout, status=0)
    asked = started(checkout, elsewhere, "list", "--help")
    assert (asked.returncode, "docs/cli.md" in asked.stdout, asked.stderr) == (0, True, ""), "nothing is installed"
    first = started(checkout, elsewhere, "list", "--json")
    assert (first.returncode, first.stdout) == (7, f"{elsewhere} ['list', '--json']\n"), first.stderr
    assert "Setting up VariantScope" in first.stderr
    uri, python, constraints = checkout.as_uri(), f"{checkout}/.venv/bin/python", f"{checkout}/constraints.txt"
    assert words.read_text() == (
        f"{uri}/none {uri} pip install --python {python} --constraint {constraints} pip uv>=1\n"
    )
    second = started(checkout, elsewhere)
    assert (second.returncode, second.stdout) == (7, f"{elsewhere} ['experiment', '--preset', 'quick']\n")
    assert second.stderr == ""
    project = checkout / "pyproject.toml"
    whole = project.read_text()
    project.write_text(whole.replace('"pip", "uv>=1"', '"./no-such-folder"'))
    failed = started(checkout, checkout, "list")
    assert failed.returncode == 1
    assert failed.stderr.splitlines()[-1].startswith("VariantScope: Installing packages failed: ")
    project.write_text(whole)
    mended = started(checkout, checkout, "list")
    assert mended.returncode == 7
    assert "Setting up VariantScope" not in mended.stderr


def test_an_install_cut_short_is_made_anew_by_pip_where_its_own_uv_cannot(checkout: Path) -> None:
    (checkout / ".venv/bin").mkdir(parents=True)
    (checkout / ".venv/bin/python").symlink_to(sys.executable)
    (checkout / ".venv/start.json").write_text('{"python": "3.')
    words = with_uv(checkout, status=3)
    process = started(checkout, checkout, "list")
    assert process.returncode == 7, process.stderr
    assert words.exists()


BROKEN = "tests/test_broken.py"


@pytest.fixture
def checks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two files of tests, one of which fails, and a Python that has pytest."""
    python = tmp_path / start.PYTHON
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_sound.py").write_text("def test_sound():\n    print('ERROR    a line of a log')\n")
    (tmp_path / BROKEN).write_text(
        "import pytest\n"
        "@pytest.mark.parametrize('word', ['a b', 'c'])\n"
        "def test_word(word):\n    assert word == 'c', 'it is - not'\n"
        "@pytest.fixture\ndef absent():\n    raise LookupError\n"
        "def test_set_up(absent):\n    pass\n"
    )
    commands = ("json.tool --help", "pytest -ra tests/test_sound.py", f"pytest -ra {BROKEN}", "json.tool absent.json")
    monkeypatch.setattr(start, "CHECKS", commands)
    return tmp_path


def test_what_failed_is_named_test_by_test_and_of_what_passed_the_last_line(
    checks: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [f"{BROKEN}::test_word[a b]", f"{BROKEN}::test_set_up", "json.tool absent.json"]
    assert sorted(start.run_all_checks(checks)) == sorted(names)
    output = capsys.readouterr().out
    assert "= ERRORS =" in output
    assert "test session starts" not in output, "of a log only what failed"
    assert re.search(r"^== pytest -ra tests/test_sound.py\n=+ 1 passed in .* =+$", output, re.MULTILINE)
    assert "test session starts" in (checks / start.CHECK_LOG.format(1)).read_text()
