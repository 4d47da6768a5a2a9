"""The paths of the program, its resources and its databases, the command that starts it, and its version."""

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
"""The folder of `app` and `workloads`: a checkout's root, or the installation folder."""

RESOURCES = ROOT / "resources"
"""Icons, presets, and reference runs, next to the packages."""

DATABASE_NAME = "profiles.db"
RUNS_SUFFIX = ".vscope"
"""The suffix of a small database with exported runs."""

DATABASE_SUFFIXES = (RUNS_SUFFIX, ".db")
"""The suffixes of exported databases."""

DESKTOP_NAME = "variantscope"
"""The name of the desktop entry, without `.desktop`, by which the desktop identifies the window, and of its icon."""

COMPLETE_VARIABLE = "_VARIANTSCOPE_COMPLETE"
"""The environment variable with which a shell requests completion of a line."""

_MAX_NAME_CHARS = 200
"""The longest file name without its suffix: file systems allow 255 bytes."""


def checkout_root() -> Path | None:
    """Return the checkout from which this program runs; None if it is installed elsewhere."""
    return ROOT if (ROOT / "start.py").is_file() and (ROOT / "pyproject.toml").is_file() else None


PROGRAM = "variantscope" if checkout_root() is None else "python -m app"
"""The command that starts it, for every sentence that names a command."""


@functools.cache
def program_version() -> str:
    """Return this program's version, from its pyproject.toml or, without that, its metadata."""
    import importlib.metadata  # here: the window's first paint does not need it
    import tomllib

    if checkout_root() is None:
        return importlib.metadata.version("variantscope")
    with (ROOT / "pyproject.toml").open("rb") as file:
        return str(tomllib.load(file)["project"]["version"])


def python_environment() -> dict[str, str]:
    """Return this process's environment for another Python that runs a module of this program with `-m`.

    The program's root is first on the path. The current folder, which may contain a file with a library's name, is not
    on it, even as an empty entry or for child processes.
    """
    paths = [str(ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONSAFEPATH": "1"}
    if environment.pop("PYTHONDONTWRITEBYTECODE", ""):
        from workloads.machine import bytecode_folder

        # Many containers set it, and each process would compile all that it imports: 7 of 10 s of PyTorch's import.
        environment.setdefault("PYTHONPYCACHEPREFIX", str(bytecode_folder()))
    return environment


def default_database() -> Path:
    """Return `profiles.db` in the checkout's root, or in the user's data folder if installed elsewhere."""
    import platformdirs

    return (checkout_root() or platformdirs.user_data_path("variantscope")) / DATABASE_NAME


def open_private(path: str, flags: int) -> int:
    """Open a file as the `opener` of `open`: a new file is readable only by its user, whatever the umask."""
    return os.open(path, flags, 0o600)


def open_regular(path: Path) -> BufferedReader:
    """Open a user's file for reading; raises `OSError`, also for a device or a pipe, which may have no end."""
    mode = path.stat().st_mode  # before opening: a pipe would wait for its writer
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise OSError(errno.EINVAL, "it is not a regular file")
    return path.open("rb")


def read_file(path: Path, most_bytes: int = 10_000_000) -> bytes:
    """Return the content of a user's file; raises `OSError`, also for more bytes."""
    with open_regular(path) as file:
        if os.fstat(file.fileno()).st_size <= most_bytes and len(content := file.read(most_bytes + 1)) <= most_bytes:
            return content
    raise OSError(errno.EFBIG, f"it has more than {most_bytes:,} bytes")


def ensure_home() -> None:
    """Set a missing HOME to a temporary folder, for example in a container under an arbitrary user id.

    Raises:
        SystemExit: That folder belongs to another user.
    """
    if expand_home(Path("~")) != Path("~"):
        return
    import tempfile  # here: most users have a home

    folder = Path(tempfile.gettempdir()) / f"variantscope-{os.geteuid()}"
    with contextlib.suppress(FileExistsError):
        folder.mkdir(0o700)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise SystemExit(f"This user has no home, and {folder} is open to others; set HOME to a folder of your own.")
    os.environ["HOME"] = str(folder)


def expand_home(path: Path) -> Path:
    """Return a path with its `~` expanded; pathlib raises `RuntimeError` for an unknown user."""
    return Path(os.path.expanduser(path))  # noqa: PTH111


def config_path(name: str, variable: str) -> Path:
    """Return a file in the user's config folder, or the one that an environment variable names instead."""
    if named := os.environ.get(variable):
        return expand_home(Path(named))
    import platformdirs

    return platformdirs.user_config_path("variantscope") / name


def rewrite_private(path: Path, change: Callable[[], bytes]) -> None:
    """Replace a user's file completely, under a lock; `change` returns its text. Raises `OSError`."""
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
    """Return the file for the weights of the run with that uid, in a folder beside the database.

    This program's uids are valid file names. Older versions imported uids with any character after a NUL: these are
    quoted, so that they name a unique file in that folder.
    """
    from urllib.parse import quote  # here: the window's first paint does not need it

    return database.with_name(f"{database.name}.weights") / f"{quote(uid, safe='')[:_MAX_NAME_CHARS]}.npz"
