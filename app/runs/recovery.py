"""What a program that is gone left: its unfinished runs become `crashed`, and its queue waits to be asked for."""

import logging

from app.analysis.summary import summarise
from app.records import Outcome
from app.storage.store import Store

_log = logging.getLogger("variantscope.run")


def mark_crashed_runs(store: Store) -> list[int]:
    """Marks every unfinished run whose owner no longer lives as crashed, and returns their numbers."""
    orphaned = [run for run, owner in store.unfinished_runs() if not owner.is_alive()]
    for run in orphaned:
        _log.warning("run %d is marked as crashed: the program that owned it is gone", run)
        stored = store.load(run)
        last_ns = max(
            (int(columns.t_ns[-1]) for columns in stored.samples if columns.t_ns.size), default=stored.anchor_t_ns
        )
        reason = "The program that owned this run ended without finishing it; everything up to its last batch is kept."
        store.finish(
            run,
            outcome=Outcome(name="crashed", reason=reason),
            summary=summarise(stored),
            t_ns=last_ns,
            utc_ns=stored.anchor_utc_ns + last_ns - stored.anchor_t_ns,
        )
    return orphaned


def pause_unowned_queue(store: Store) -> None:
    """Pauses the whole queue where no living program makes its runs: what one that is gone left waiting begins no more.

    Its user is asked first.
    """
    entries = store.queue.entries()
    if not any(entry.owned for entry in entries):
        for entry in entries:
            store.queue.set_state(entry.entry, "paused")
