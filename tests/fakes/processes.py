"""Processes that are nobody's child any more: whether they have ended."""

import os
import select


def has_ended(pid: int, limit_s: float = 120.0) -> bool:
    """Waits until a process has ended; false where it goes on."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        ready, _, _ = select.select([handle], [], [], limit_s)
        return bool(ready)
    finally:
        os.close(handle)
