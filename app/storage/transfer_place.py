"""Writing a file or a folder under its name only when it is whole."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from app.errors import UserError, unwritable


@contextlib.contextmanager
def written_whole(target: Path) -> Iterator[Path]:
    """Where to write what shall be at `target`: it gets that name at the end, and nothing of it stays without an end.

    Raises `UserError` where something is there already (an empty folder does not count) or nothing can be written.
    """
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise UserError(f"{target} is there already; name another place, or delete it first.")
    try:
        with tempfile.TemporaryDirectory(prefix=f"{target.name}.part-", dir=target.absolute().parent) as folder:
            part = Path(folder) / target.name
            yield part
            part.rename(target)
    except OSError as error:
        raise unwritable(target, error) from error
