"""Where the program, its resources and its databases are on disk, what starts it, and which version it is."""

import contextlib
import errno
import fcntl
import functools
import os
import stat
from collections.abc import Callable, Iterator
from io import BufferedReader
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
"""The folder of `app` and `workloads`: a checkout's root, or where packages are installed."""

RESOURCES = ROOT / "resources"
"""Icons, presets, and reference runs, next to the packages."""

DATABASE_NAME = "profiles.db"
RUNS_SUFFIX = ".vscope"
"""Of a small database with exported runs."""

DATABASE_SUFFIXES = (RUNS_SUFFIX, ".db")
"""Of every file that an export makes as a database."""

"""Of a file of telemetry that the desktop opens with this program."""

DESKTOP_NAME = "variantscope"
"""Of the entry in the desktop's menu, without `.desktop`, by which the desktop knows the window, and of its icon."""

COMPLETE_VARIABLE = "_VARIANTSCOPE_COMPLETE"
"""The environment variable by which a shell asks to complete a line."""

_MAX_NAME_CHARS = 200
"""Of a file's name without its suffix: file systems allow 255 bytes."""


def checkout_root() -> Path | None:
    """Return the checkout that this program runs from; None if it is installed elsewhere."""
    return ROOT if (ROOT / "start.py").is_file() and (ROOT / "pyproject.toml").is_file() else None


PROGRAM = "variantscope" if checkout_root() is None else "python -m app"
"""What a user types to start it, for every sentence that names a command."""


@functools.cache
def program_version() -> str:
    """Return the version of this program, from its pyproject.toml or, where that was not installed, its metadata."""
    import importlib.metadata  # here: the window's first paint needs neither
    import tomllib

    if checkout_root() is None:
        return importlib.metadata.version("variantscope")
    with (ROOT / "pyproject.toml").open("rb") as file:
        return str(tomllib.load(file)["project"]["version"])


def python_environment() -> dict[str, str]:
    """Return this process's environment for another Python that runs a module of this program with `-m`.

    The program's root is first on its path, and the current folder nowhere, where a file may have a library's name: not
    as an empty entry either, nor in what that Python starts.
    """
    paths = [str(ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONSAFEPATH": "1"}


def default_database() -> Path:
    """Return `profiles.db` in the checkout's root, or in the user's data folder if installed elsewhere."""
    import platformdirs

    return (checkout_root() or platformdirs.user_data_path("variantscope")) / DATABASE_NAME


def open_private(path: str, flags: int) -> int:
    """Open a file as the `opener` of `open`: if it is created, only its user may read it, whatever the umask."""
    return os.open(path, flags, 0o600)


def open_regular(path: Path) -> BufferedReader:
    """Open a file of the user's for reading; raises `OSError`, also for a device or a pipe, which may have no end."""
    mode = path.stat().st_mode  # before it is opened: a pipe waits for its writer
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise OSError(errno.EINVAL, "it is not a regular file")
    return path.open("rb")


def read_file(path: Path, most_bytes: int = 10_000_000) -> bytes:
    """Return what a file of the user's holds; raises `OSError`, also where these are more bytes."""
    with open_regular(path) as file:
        if os.fstat(file.fileno()).st_size <= most_bytes and len(content := file.read(most_bytes + 1)) <= most_bytes:
            return content
    raise OSError(errno.EFBIG, f"it has more than {most_bytes:,} bytes")


def ensure_home() -> None:
    """Set HOME where neither it nor the list of users has one, as in a container of any user: below the temporary one.

    Raises:
        SystemExit: That folder is somebody else's.
    """
    if expand_home(Path("~")) != Path("~"):
        return
    import tempfile  # here: who has a home does not wait for it

    folder = Path(tempfile.gettempdir()) / f"variantscope-{os.geteuid()}"
    with contextlib.suppress(FileExistsError):
        folder.mkdir(0o700)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise SystemExit(f"This user has no home, and {folder} is open to others; set HOME to a folder of your own.")
    os.environ["HOME"] = str(folder)


def expand_home(path: Path) -> Path:
    """Return a path with a home instead of its `~`; pathlib raises `RuntimeError` if there is no such user."""
    return Path(os.path.expanduser(path))  # noqa: PTH111


def config_path(name: str, variable: str) -> Path:
    """Return a file of the user's config folder, or the one that an environment variable names in its place."""
    if named := os.environ.get(variable):
        return expand_home(Path(named))
    import platformdirs

    return platformdirs.user_config_path("variantscope") / name


def rewrite_private(path: Path, change: Callable[[], bytes]) -> None:
    """Replace a file of the user's whole, while no other program does; `change` returns its text. Raises `OSError`."""
    path.parent.mkdir(0o700, parents=True, exist_ok=True)
    with _locked(path.parent):
        new = path.with_name(f".{path.name}.new")
        with open(new, "wb", opener=open_private) as file:
            file.write(change() + b"\n")
        new.replace(path)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def weights_path(database: Path, uid: str) -> Path:
    """Return the file for the weights of the run with that uid, in a folder next to the database.

    Uids of this program are names of files already. Older versions imported a uid with any character after a NUL: it is
    quoted, so that it names a file in that folder, and no other run's.
    """
    from urllib.parse import quote  # here: the window's first paint does not need it

    return database.with_name(f"{database.name}.weights") / f"{quote(uid, safe='')[:_MAX_NAME_CHARS]}.npz"
