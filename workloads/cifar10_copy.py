"""Where a copy of CIFAR-10 lies on this machine. Nothing here reads it."""

import os
from pathlib import Path

from workloads.errors import RefusedError
from workloads.machine import cache_folder

URL = "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"
ARCHIVE = "cifar-10-python.tar.gz"
FOLDER = "cifar-10-batches-py"
TRAINING_FILES = tuple(f"data_batch_{number}" for number in range(1, 6))
FOLDER_VARIABLE = "VARIANTSCOPE_DATA"


def data_folder(folder: str) -> Path:
    """Return where to look for the copy: `folder`, else that of VARIANTSCOPE_DATA, else the cache folder."""
    named = folder.strip() or os.environ.get(FOLDER_VARIABLE, "").strip()
    return Path(named).expanduser() if named else cache_folder()


def find(folder: Path) -> Path:
    """Return the archive or its unpacked folder in `folder`, or `folder` itself if it is that folder; reads nothing."""
    source = next((path for path in (folder / ARCHIVE, folder / FOLDER, folder) if _contains_data(path)), None)
    if source is None:
        raise RefusedError(
            f"There is no {ARCHIVE} and no folder {FOLDER} in {folder}. Get the archive from {URL} and put it there, "
            f"give with data_folder or the environment variable {FOLDER_VARIABLE} where it lies, or use data=stand_in."
        )
    return source


def _contains_data(path: Path) -> bool:
    return path.is_file() if path.name == ARCHIVE else (path / TRAINING_FILES[0]).is_file()


def has_copy(folder: str) -> bool:
    """Return whether a copy lies where the parameter `data_folder` says."""
    try:
        find(data_folder(folder))
    except RefusedError:
        return False
    return True
