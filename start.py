"""Set up VariantScope in this folder and start it: `python3 start.py [ARGUMENTS...]`; `python3 start.py test` tests it.

The packages of pyproject.toml go into .venv at the versions of constraints.txt, installed from its lists and not by
`pip install -e .`: so nothing is built, and nothing is written into the checkout. A .pth file in .venv puts the
checkout on Python's path, and the user's folder stays the current one.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))  # PYTHONSAFEPATH keeps it off
from app.environments.steps import InstallError, loadable, locked, nvidia_driver, run_step

PYTHON = Path(".venv/bin/python")
STAMP = Path(".venv/start.json")  # the contents of .venv; exists only while its install is complete
LOG = Path("build/start.log")  # output of the last install step

# What PySide6 6.11 and its xcb, wayland and offscreen platforms are linked against, and the Debian and Ubuntu packages.
QT_LIBRARIES = """
libdbus-1.so.3=libdbus-1-3 libEGL.so.1=libegl1 libfontconfig.so.1=libfontconfig1 libfreetype.so.6=libfreetype6
libGL.so.1=libgl1 libglib-2.0.so.0=libglib2.0-0 libwayland-client.so.0=libwayland-client0
libwayland-cursor.so.0=libwayland-cursor0 libX11-xcb.so.1=libx11-xcb1 libX11.so.6=libx11-6
libxcb-cursor.so.0=libxcb-cursor0 libxcb-icccm.so.4=libxcb-icccm4 libxcb-image.so.0=libxcb-image0
libxcb-keysyms.so.1=libxcb-keysyms1 libxcb-randr.so.0=libxcb-randr0 libxcb-render-util.so.0=libxcb-render-util0
libxcb-render.so.0=libxcb-render0 libxcb-shape.so.0=libxcb-shape0 libxcb-shm.so.0=libxcb-shm0
libxcb-sync.so.1=libxcb-sync1 libxcb-util.so.1=libxcb-util1 libxcb-xfixes.so.0=libxcb-xfixes0
libxcb-xkb.so.1=libxcb-xkb1 libxcb.so.1=libxcb1 libxkbcommon-x11.so.0=libxkbcommon-x11-0 libxkbcommon.so.0=libxkbcommon0
"""

_STEP_WIDTH = 60
UV_VARIABLES = {"index-url": "UV_DEFAULT_INDEX", "extra-index-url": "UV_INDEX", "find-links": "UV_FIND_LINKS"}
"""uv's environment variable for each place of packages that pip is told of."""

WORKLOADS, RAY = "tests/unit/workloads", "tests/integration/test_ray.py"
ALL_FRAMEWORKS = f"{WORKLOADS}/test_frameworks.py"
PYTORCH, TENSORFLOW, JAX = FRAMEWORKS = [f"{WORKLOADS}/{name}" for name in ("pytorch", "tensorflow", "jax")]
OF_SMALL_FILES = ["tests/contract", "tests/fuzz", "tests/scenarios"]
PARTS = (  # the longest first
    ["tests/integration", f"--ignore={RAY}", "--ignore-glob=tests/integration/test_[a-p]*"],
    [f"--ignore={path}" for path in ("tests/unit", "tests/integration", *OF_SMALL_FILES)],
    ["tests/unit", f"--ignore={WORKLOADS}"],
    ["tests/integration", f"--ignore={RAY}", "--ignore-glob=tests/integration/test_[q-z]*"],
    [WORKLOADS, *(f"--ignore={path}" for path in (*FRAMEWORKS, ALL_FRAMEWORKS))],
    [PYTORCH, ALL_FRAMEWORKS],  # without TensorFlow, which ends in a segmentation fault beside Triton
    [*OF_SMALL_FILES, RAY],
    [JAX],
    [TENSORFLOW],
)
CHECKS = (
    "ruff check .",
    "ruff format --check .",
    "mypy",
    *(" ".join(["pytest -p no:cacheprovider", *part]) for part in PARTS),
)
CHECK_LOG = "build/check{}.log"
FAILED_TEST = re.compile(r"^(?:FAILED|ERROR) (tests/.+?)(?: - .*)?$", re.MULTILINE)  # of pytest's short summary
_END_LINES = 50


@dataclass(frozen=True)
class Stamp:
    """The contents of .venv: its Python, a digest of the requirements, the extras, whether Qt found its libraries."""

    python: str
    digest: str
    extras: list[str]
    libraries: bool


@dataclass(frozen=True)
class Host:
    """How packages can be installed on this machine."""

    root: bool
    apt: bool
    uv: str | None


def check_python(version: tuple[int, int], platform: str) -> None:
    """Raise `InstallError` where this Python or platform is not supported (works from Python 3.7 on)."""
    if platform == "win32":
        raise InstallError("Windows itself is not supported; start it inside WSL2.")
    if not (3, 11) <= version <= (3, 13):
        here = f"this is Python {version[0]}.{version[1]}; TensorFlow and Qt together need 3.11, 3.12 or 3.13"
        raise InstallError(f"{here}: start with one of these, as in: python3.12 start.py")


def needs(words: Sequence[str], *, driver: bool) -> tuple[list[str], bool]:
    """Return the extras that the arguments need (CUDA only with a driver), and whether Qt must be able to start."""
    extras = ["parquet", "cuda" if driver else "tensorflow", *(["dev"] if list(words[:1]) == ["test"] else [])]
    return extras, not words or words[0] == "test"


def app_arguments(words: Sequence[str], platform: str, environment: Mapping[str, str]) -> list[str]:
    """Return the arguments of `python -m app`: the user's, or the quick comparison where no window can be shown."""
    display = platform != "linux" or environment.get("DISPLAY") or environment.get("WAYLAND_DISPLAY")
    return list(words) if words or display else ["experiment", "--preset", "quick"]


def next_step(stamp: Stamp | None, goal: Stamp) -> str:
    """Return `nothing`, `update` (other requirements) or `make` (no complete environment, or of another Python)."""
    if stamp is None or stamp.python != goal.python:
        return "make"
    return "nothing" if stamp.digest == goal.digest and set(goal.extras) <= set(stamp.extras) else "update"


def apt_commands(packages: Sequence[str], need: str, host: Host) -> list[list[str]]:
    """Return the apt-get commands that install packages; `need` is why they are needed, for the message.

    Raises:
        InstallError: The user may not run them; it says what to type.
    """
    if not host.apt:
        raise InstallError(f"{need}; install it with this system's package manager and start again.")
    if not host.root:
        raise InstallError(f"{need}; type: sudo apt-get install {' '.join(packages)}")
    return [["apt-get", "update"], ["apt-get", "install", "--yes", "--no-install-recommends", *packages]]


def read_stamp(folder: Path) -> Stamp | None:
    """Return the stamp of a complete environment; None where there is none, or its install was interrupted."""
    try:
        return Stamp(**json.loads((folder / STAMP).read_text())) if (folder / PYTHON).exists() else None
    except (FileNotFoundError, ValueError, TypeError):
        return None


def run_logged(title: str, command: Sequence[str], folder: Path) -> None:
    """Run one install step with its output in the log of the checkout, and show its progress every second.

    Raises:
        InstallError: The step failed.
    """
    run_step(title, command, folder / LOG, watch=ShownProgress(title))
    print("\r\033[K" if sys.stderr.isatty() else "", end="", file=sys.stderr, flush=True)


def brief_step(line: str) -> str:
    """Return what an installer does now in a part of a line; of the last and longest step how much it is."""
    names = line.removeprefix("Installing collected packages:")
    if names != line:
        return f"Unpacking {names.count(',') + 1} packages"
    return line if len(line) <= _STEP_WIDTH else f"{line[: _STEP_WIDTH - 2]} …"


class ShownProgress:
    """Shows a step's last output: one updated line on a terminal, elsewhere a line every 10 s since its start."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._seconds = -1

    def __call__(self, line: str, seconds: int) -> bool:
        """Show the line once a second, and go on."""
        erase, end = ("\r\033[K", "") if sys.stderr.isatty() else ("", "\n")
        if seconds != self._seconds and (erase or seconds % 10 == 0):
            text = f"  {seconds // 60}:{seconds % 60:02} {self._title}  {brief_step(line)}"
            print(f"{erase}{text}", end=end, file=sys.stderr, flush=True)
        self._seconds = seconds
        return True


@functools.cache
def say_waiting() -> bool:
    """Say, once, that another start holds the lock, and go on waiting."""
    print("Another start is installing here; waiting for it.", file=sys.stderr)
    return True


def make_environment(folder: Path, host: Host) -> None:
    """Make a new, empty virtual environment in place of any old one."""
    base = os.path.realpath(sys.executable)  # not the Python inside the environment about to be replaced
    if not host.uv and importlib.util.find_spec("ensurepip") is None:
        package = f"python{sys.version_info[0]}.{sys.version_info[1]}-venv"
        for command in apt_commands([package], f"this Python comes without ensurepip (package {package})", host):
            run_logged(f"Installing {package}", command, folder)
    shutil.rmtree(folder / ".venv", ignore_errors=True)
    venv = [host.uv, "venv", "--python", base] if host.uv else [base, "-m", "venv"]
    run_logged("Making .venv", [*venv, str(folder / ".venv")], folder)


def installer(python: Path, uv: str | None) -> list[str]:
    """Return the command that installs into an environment: uv's where it is; else pip's, with which Python comes."""
    if uv:
        return [uv, "pip", "install", "--python", str(python)]
    return [str(python), "-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--progress-bar", "off"]


def install(folder: Path, uv: str | None, extras: Collection[str]) -> None:
    """Install pyproject's packages with those of the extras into .venv, and put the checkout on its path."""
    import tomllib  # only here: the version of Python must be checked first

    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    packages = [
        *project["dependencies"],
        *(name for extra in extras for name in project["optional-dependencies"][extra]),
    ]
    constraints = ["--constraint", str(folder / "constraints.txt")]
    pip = [*installer(folder / PYTHON, None), *constraints]
    own = [name for name in packages if re.match(r"uv\b", name)]
    plain_torch = "dev" in extras and "cuda" not in extras
    words = [*constraints, *packages]
    if uv:
        install_by_uv(folder, installer(folder / PYTHON, uv), words, plain_torch)
    elif not own or not installs_with_own_uv(folder, [*pip, *own], words, plain_torch):
        run_logged("Installing packages", [*pip, *packages], folder)
    for site in folder.glob(".venv/lib/python*/site-packages"):
        (site / "variantscope.pth").write_text("../../../..\n")  # relative, so that the checkout can be moved


def install_by_uv(folder: Path, uv: Sequence[str], words: Sequence[str], plain_torch: bool) -> None:
    """Install with uv; with `plain_torch` PyTorch's build without CUDA, where its own index can be reached."""
    backend = ["--torch-backend", "cpu"]
    try:
        if plain_torch:
            run_logged("Looking for PyTorch without CUDA", [*uv, "--dry-run", *backend, "torch"], folder)
    except InstallError:
        plain_torch = False  # the default index has the build with CUDA alone, which computes the same on the CPU
    run_logged("Installing packages", [*uv, *(backend if plain_torch else ()), *words], folder)


def installs_with_own_uv(folder: Path, get_uv: Sequence[str], words: Sequence[str], plain_torch: bool) -> bool:
    """Install with the uv that is one of the packages, several times as fast as pip; return whether it could."""
    try:
        run_logged("Installing uv", get_uv, folder)
        settings = subprocess.run(
            [str(folder / PYTHON), "-m", "pip", "config", "list"], check=True, capture_output=True, text=True
        ).stdout
        uv = installer(folder / PYTHON, str(folder / ".venv/bin/uv"))
        install_by_uv(folder, ["env", *uv_variables(settings), *uv], words, plain_torch)
    except (InstallError, subprocess.CalledProcessError):
        return False  # pip has settings that uv lacks, and says what is wrong
    return True


def uv_variables(settings: str) -> list[str]:
    """Return what tells uv where pip finds packages, from `pip config list`; pip takes the best of all its indexes.

    Raises:
        InstallError: It may use no index: pip installs as it is told.
    """
    variables = {"UV_INDEX_STRATEGY": "unsafe-best-match"}
    for line in sorted(settings.splitlines(), key=lambda line: line.startswith(":env:")):  # which win, as with pip
        name, _, value = line.partition("=")
        name, values = name.rpartition(".")[2], str(ast.literal_eval(value)).split()
        if name == "no-index":
            raise InstallError("uv cannot be told by a variable to use no index.")
        if name in UV_VARIABLES:
            variables[UV_VARIABLES[name]] = ("," if name == "find-links" else " ").join(values)
    return [f"{name}={value}" for name, value in variables.items()]


def find_libraries(folder: Path, host: Host, *, must: bool) -> bool:
    """Return whether Qt finds its system libraries, after installing them where this is possible.

    `must` is whether Qt must be able to start.

    Raises:
        InstallError: It must, and the libraries are missing.
    """
    libraries = [pair.split("=") for pair in QT_LIBRARIES.split() if sys.platform == "linux"]
    missing = {library: package for library, package in libraries if not loadable(library)}
    need = f"the window needs system libraries ({', '.join(missing)})"
    try:
        for command in apt_commands(list(missing.values()), need, host) if missing else ():
            run_logged("Installing Qt's system libraries", command, folder)
    except InstallError as error:
        if must:
            raise
        print(f"Note: {error}", file=sys.stderr)
        return False
    return True


def prepare(folder: Path, extras: list[str], qt: bool) -> None:
    """Make sure that .venv has the extras; quick where it has them already.

    `qt` is whether Qt must be able to start.
    """
    requirements = b"".join((folder / name).read_bytes() for name in ("pyproject.toml", "constraints.txt"))
    python = f"{sys.version_info[0]}.{sys.version_info[1]}"
    goal = Stamp(python, hashlib.sha256(requirements).hexdigest(), extras, libraries=True)
    old = read_stamp(folder)
    if old and next_step(old, goal) == "nothing" and (old.libraries or not qt):
        return
    if not os.access(folder, os.W_OK):
        raise InstallError(f"{folder} cannot be written; clone VariantScope into a folder of your own.")
    host = Host(root=os.geteuid() == 0, apt=shutil.which("apt-get") is not None, uv=shutil.which("uv"))
    with locked(folder, on_wait=say_waiting):
        bring_to(folder, host, replace(goal, libraries=find_libraries(folder, host, must=qt)))


def bring_to(folder: Path, host: Host, goal: Stamp) -> None:
    """Make .venv as `goal`, or update it; its stamp is deleted meanwhile, so an interrupted install is repeated."""
    old = read_stamp(folder)
    step = next_step(old, goal)
    (folder / STAMP).unlink(missing_ok=True)
    if step == "make":
        sizes = {"cuda": "3.6 GB, CUDA with it,", "dev": "1.3 GB, or 3.8 GB with PyTorch's build for CUDA,"}
        size = next((sizes[extra] for extra in sizes if extra in goal.extras), "about 800 MB")
        print(f"Setting up VariantScope in {folder / '.venv'}, once: {size} to download.", file=sys.stderr)
        make_environment(folder, host)
    elif old:
        goal = replace(goal, extras=sorted({*old.extras, *goal.extras}))
    try:
        if step != "nothing":
            install(folder, host.uv, goal.extras)
    except InstallError:  # the installer failed by itself and leaves no partial package: the next start continues
        (folder / STAMP).write_text(json.dumps(asdict(replace(goal, digest=""))))
        raise
    (folder / STAMP).write_text(json.dumps(asdict(goal)))


def run_checks(folder: Path, words: Sequence[str]) -> int:
    """Run every check that needs no GPU, or only pytest with these arguments; return the exit status."""
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # four parts at once: its threads spin while they wait
    for installs in ("tests.fakes.sshd", "tests.fakes.display"):
        passes(folder, [installs])
    if words:
        return int(not passes(folder, ["pytest", *words]))
    failed = run_all_checks(folder)
    print(*(["== failed:", *failed] if failed else ["== all passed"]), sep="\n")
    return bool(failed)


def run_all_checks(folder: Path) -> list[str]:
    """Run the checks, one more at once than there are cores; return the tests, or whole checks, that failed.

    Many tests wait more than they compute. The output of a check that goes on is in its log.
    """
    (folder / "build").mkdir(exist_ok=True)
    at_once = (os.cpu_count() or 1) + 1
    print(f"== {len(CHECKS)} checks, {at_once} at once; logs in build/", flush=True)

    def run(number: int) -> tuple[int, str]:
        log = folder / CHECK_LOG.format(number)
        with log.open("w") as file:
            command = check_command(folder, CHECKS[number].split())
            status = subprocess.run(command, cwd=folder, stdout=file, stderr=file, check=False).returncode
        return status, log.read_text(errors="replace").strip()

    failed = []
    pool = ThreadPoolExecutor(at_once)
    try:
        running = {pool.submit(run, number): check for number, check in enumerate(CHECKS)}
        for done in as_completed(running):
            (status, output), check = done.result(), running[done]
            print(f"== {check}", failed_part(output) if status else output.rpartition("\n")[2], sep="\n", flush=True)
            failed += failures(check, status, output)
    finally:
        pool.shutdown(cancel_futures=True)  # Ctrl+C ends those that run, and begins none
    return failed


def failures(check: str, status: int, output: str) -> list[str]:
    """Return the names of the tests that failed; that of the check itself if none did and it failed all the same."""
    return (FAILED_TEST.findall(output) or [check]) if status else []


def failed_part(output: str) -> str:
    """Return the part of pytest's output that tells of failures; the end of any other."""
    begin = re.search(r"^=+ (FAILURES|ERRORS) =+$", output, re.MULTILINE)
    return output[begin.start() :] if begin else "\n".join(output.splitlines()[-_END_LINES:])


def passes(folder: Path, check: Sequence[str]) -> bool:
    """Run one check with its output on the terminal; return whether it passed."""
    print("==", *check, flush=True)
    return not subprocess.run(check_command(folder, check), cwd=folder, check=False).returncode


def check_command(folder: Path, check: Sequence[str]) -> list[str]:
    """Return a check as a command of .venv's Python."""
    return [str(folder / PYTHON), "-m", *check]


def main(words: list[str]) -> int:
    """Set up, then become the app or run the checks; return the exit status."""
    folder = Path(__file__).resolve().parent
    if {"--help", "-h"} & set(words) and not (folder / STAMP).exists():
        print((__doc__ or "").splitlines()[0])
        print("The first start downloads packages; until then docs/cli.md has the help of every command.")
        return 0
    try:
        check_python(sys.version_info[:2], sys.platform)
        words = app_arguments(words, sys.platform, os.environ)
        prepare(folder, *needs(words, driver=nvidia_driver()))
        os.environ["PYTHONSAFEPATH"] = "1"  # a folder `app` in the user's current folder is not this app
        if words[:1] == ["test"]:
            return run_checks(folder, words[1:])
        os.execv(folder / PYTHON, [str(folder / PYTHON), "-m", "app", *words])  # noqa: S606 (no shell is meant)
    except InstallError as error:
        print(f"VariantScope: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nStopped; start again to continue.", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
