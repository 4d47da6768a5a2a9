"""Files of the user's: what has no end is refused before it is read, and the program works without a home."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from app.errors import UserError
from app.grants import FILE_VARIABLE, read_grants
from app.hosts import book
from app.paths import ROOT, config_path, expand_home, read_file
from app.runs.custom import read_source
from app.runs.experiment.presets import load_preset
from app.storage.files import is_database
from workloads.catalog import UsageError

READERS: dict[str, Callable[[Path], object]] = {
    "preset": lambda path: load_preset(str(path)),
    "grants": lambda path: read_grants(),
    "hosts": lambda path: book.read_hosts(),
    "workload": read_source,
    "database": is_database,
}


@pytest.fixture(params=["pipe", "device"])
def endless(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A pipe that nobody writes to, or a device without an end."""
    path = tmp_path / "endless.toml"
    if request.param == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    return path


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", READERS)
def test_what_has_no_end_is_refused_unread(kind: str, endless: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FILE_VARIABLE, str(endless))
    monkeypatch.setenv(book.FILE_VARIABLE, str(endless))
    with pytest.raises((UserError, UsageError), match=r"cannot be read \(it is not a regular file\)"):
        READERS[kind](endless)


def test_a_file_is_read_up_to_its_limit(tmp_path: Path) -> None:
    file = tmp_path / "sparse.toml"
    file.touch()
    os.truncate(file, 100)
    assert len(read_file(file, 100)) == 100
    with pytest.raises(OSError, match="it has more than 99 bytes"):
        read_file(file, 99)
    os.truncate(file, 6 * 2**40)
    with pytest.raises(UserError, match="it has more than 10,000,000 bytes"):
        load_preset(str(file))


def test_the_home_of_no_user_is_a_path(monkeypatch: pytest.MonkeyPatch) -> None:
    assert expand_home(Path("~")) == Path.home()
    path = Path("~nobody-has-this-name/own.py")
    monkeypatch.setenv("OWN_FILE", str(path))
    assert expand_home(path) == config_path("own.py", "OWN_FILE") == path
    with pytest.raises(UsageError, match=r"cannot be read \(No such file or directory\)"):
        read_source(path)


NO_USER = "import pwd\ndef getpwuid(uid): raise KeyError(uid)\npwd.getpwuid = getpwuid\n"
"""Leaves a Python without a list of users, as in a container of any user."""


def run_without_home(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The program as a user whom the list of users does not have, without HOME."""
    code = f"{NO_USER}import sys\nfrom app.__main__ import main\nsys.argv[1:] = {list(words)}\nsys.exit(main())"
    environment = {name: value for name, value in os.environ.items() if name not in ("HOME", *XDG_FOLDERS)}
    environment |= {"TMPDIR": str(folder), "VARIANTSCOPE_LOG_DIR": ""}
    return subprocess.run(
        [sys.executable, "-c", code],
        check=False,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment | {"PYTHONPATH": str(ROOT)},
        timeout=300,
    )


XDG_FOLDERS = (
    "XDG_STATE_HOME",
    "XDG_DATA_HOME",
    "XDG_CONFIG_HOME",
    "XDG_CACHE_HOME",
    FILE_VARIABLE,
    book.FILE_VARIABLE,
)


def test_a_user_without_a_home_has_one_below_the_temporary_folder(tmp_path: Path) -> None:
    assert "No hosts yet" in run_without_home(tmp_path, "hosts", "list").stdout
    home = tmp_path / f"variantscope-{os.geteuid()}"
    assert home.stat().st_mode & 0o777 == 0o700
    database = str(tmp_path / "p.db")
    done = run_without_home(tmp_path, "run", "dummy", "-s", "seconds=0.1", "-s", "warmup_steps=1", "--db", database)
    assert (done.returncode, "throughput" in done.stdout) == (0, True), done.stderr


@pytest.mark.parametrize("kind", ["open to others", "link"])
def test_no_home_is_taken_that_is_open_to_others(kind: str, tmp_path: Path) -> None:
    home = tmp_path / f"variantscope-{os.geteuid()}"
    if kind == "link":
        (tmp_path / "theirs").mkdir(0o700)
        home.symlink_to(tmp_path / "theirs")
    else:
        home.mkdir()
        home.chmod(0o770)
    done = run_without_home(tmp_path, "hosts", "list")
    assert done.returncode == 1
    assert done.stderr == f"This user has no home, and {home} is open to others; set HOME to a folder of your own.\n"
