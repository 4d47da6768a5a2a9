"""Wait for processes that are no longer our children."""

import os
import select


def has_ended(pid: int, limit_s: float = 120.0) -> bool:
    """Wait until a process has ended; return false where it still runs at the limit."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        ready, _, _ = select.select([handle], [], [], limit_s)
        return bool(ready)
    finally:
        os.close(handle)
