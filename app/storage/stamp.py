"""Whether a database was written, told by its files: much cheaper than opening it."""

from pathlib import Path

Stamp = tuple[tuple[int, int], ...]
"""When each file of a database was last written, in nanoseconds, and its size in bytes."""


def stamp_of(path: Path) -> Stamp:
    """Another one as soon as any program wrote to the database at `path`; reading it leaves this as it is.

    A write goes to the write-ahead log and later to the database (https://www.sqlite.org/wal.html); an empty log is
    made and deleted by mere readers, and counts as none.
    """
    return tuple(map(_written, (path, path.with_name(f"{path.name}-wal"))))


def _written(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return (found.st_mtime_ns, found.st_size) if found.st_size else (0, 0)
