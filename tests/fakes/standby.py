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
    children = psutil.Process().children()
    return [child for child in children if child.status() != "zombie" and child.cmdline()[-1:] == ["standby"]]
