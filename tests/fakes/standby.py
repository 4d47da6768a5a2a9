"""Standby workers for tests: libraries that import at once, and the list of these workers."""

from pathlib import Path

import psutil


def empty_libraries(folder: Path) -> Path:
    """Make a folder for a worker's PYTHONPATH with a `keras` and a `tensorflow` that have only a version."""
    libraries = folder / "libraries"
    libraries.mkdir()
    for name in ("keras", "tensorflow"):
        (libraries / f"{name}.py").write_text("__version__ = '99.0'")
    return libraries


def standing_by() -> list[psutil.Process]:
    """Return our children that were started as standby workers, without those that have ended."""
    return [child for child in psutil.Process().children() if _command(child)[-2:-1] == ["standby"]]


def _command(process: psutil.Process) -> list[str]:
    """Return a process's command line; [] where it has just ended."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []
