"""Stored runs as an experiment, as the queue stores those of an entry."""

import time
import uuid
from collections.abc import Sequence

from app.storage import queue
from app.storage.database import transaction
from app.storage.library import Library


def save_experiment(
    library: Library, runs: Sequence[int], *, name: str, preset: str | None, plan: str, utc_ns: int | None = None
) -> int:
    """The number of the experiment that began at a time in nanoseconds since 1970, by default now."""
    began_ns = time.time_ns() if utc_ns is None else utc_ns
    with transaction(library._db, library.path):
        return queue.save_experiment(
            library._db, runs, uid=uuid.uuid4().hex, name=name, preset=preset, plan=plan, utc_ns=began_ns
        )
