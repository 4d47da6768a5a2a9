"""Workers that stand by, for tests: libraries that import at once, and which workers there are."""

from pathlib import Path

import psutil


def empty_libraries(folder: Path) -> Path:
    """A folder with a `keras` and a `tensorflow` that hold no more than a version, for a worker's PYTHONPATH."""
    libraries = folder / "libraries"
    libraries.mkdir()
    for name in ("keras", "tensorflow"):
        (libraries / f"{name}.py").write_text("__version__ = '99.0'")
    return libraries


def standing_by() -> list[psutil.Process]:
    """Our children that stand by or did and have a run; not those that ended but were not waited for yet."""
    return [child for child in psutil.Process().children() if _command(child)[-1:] == ["standby"]]


def _command(process: psutil.Process) -> list[str]:
    """Nothing of one that ends at this moment."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []
