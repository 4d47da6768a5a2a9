"""How far the entries of the queue are: as they are stored, and as they go on."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from app.errors import UserError
from app.queries import EntryState, QueueEntry, QueueProgress
from app.records import RunRow, StoredRun
from app.runs.ahead import learnt_from, look_ahead
from app.runs.entry_session import Begun, own_runs
from app.runs.experiment import Experiment, Turn
from app.runs.gate import Held
from app.runs.own import is_changed
from app.runs.queued import asked_of
from app.runs.repeated import Repeated
from app.runs.schedule import Plan, done, left, room_of, together_s
from app.runs.sinks import Sink
from app.samples import Inventory
from app.storage.store import Store
from workloads.catalog import runnable
from workloads.protocol import RunSpec


def standings(store: Store, inventory: Inventory) -> list[QueueProgress]:
    """How far every entry is, in their order; one that another version wrote has nothing planned, and words on it."""
    stored = store.list_runs()
    return [_standing(store, entry, inventory, stored) for entry in store.queue.entries()]


def left_s(begun: Begun, runs: Sequence[RunRow], alike: Sequence[RunRow]) -> float | None:
    """How long what is left after `runs` takes, learnt from runs `alike`; None where there is nothing to learn from."""
    plan, machine = begun.before.plan, begun.machine
    possible = runnable(left(plan, runs, machine), machine)
    if possible and not learnt_from(possible, alike):
        return None
    return together_s(possible, alike, room_of(plan, machine, begun.asked.parallel))


def brought_words(brought: int, brought_with: Sequence[str]) -> str:
    """That runs count which were made in other surroundings, and what differs; "" where there are none."""
    if not brought:
        return ""
    runs, they = ("1 run was", "it counts") if brought == 1 else (f"{brought} runs were", "they count")
    elsewhere = " on another machine," if {"CPU", "card"} & set(brought_with) else ""
    return f"{runs} made{elsewhere} with another {', another '.join(brought_with)}: {they} all the same."


def _standing(store: Store, entry: QueueEntry, inventory: Inventory, stored: Sequence[RunRow]) -> QueueProgress:
    try:
        asked = asked_of(entry)
    except UserError as error:
        return QueueProgress(entry=entry.entry, name=entry.name, state=entry.state, done=0, planned=0, words=str(error))
    repeated = Repeated(asked.max_throttled_pct)
    ahead = look_ahead(store, asked.plan, inventory, own_runs(store, entry, asked), repeated, asked.parallel, stored)
    is_known = ahead.learnt_from or ahead.done == ahead.planned
    brought = brought_words(ahead.brought, ahead.brought_with)
    return QueueProgress(
        entry=entry.entry,
        name=entry.name,
        state=entry.state,
        done=ahead.done,
        planned=ahead.planned,
        left_s=ahead.left_s if is_known else None,
        experiment=entry.experiment,
        words=" ".join(filter(None, (brought, _changed_words(entry, asked.plan, store.path)))),
    )


def _changed_words(entry: QueueEntry, plan: Plan, database: Path) -> str:
    """That an entry is of an older text of the user's file, by which it is told from one of the same name."""
    # All variants are of one text.
    if not is_changed(plan.variants[0], database):
        return ""
    return f"Entry {entry.entry} is made with the workload's file as it was then; the file has changed since."


class ProgressTeller:
    """Tells how far the entry that goes on is, whenever that changes; a listener of `QueueRunner`.

    `told` is called on the threads that make runs; `sinks` are asked for anew at each run.
    """

    def __init__(self, told: Callable[[QueueProgress], None], sinks: Callable[[], Sequence[Sink]]) -> None:
        self._told = told
        self._sinks = sinks
        self._begun: Begun | None = None
        self._made: list[RunRow] = []
        self._now: QueueProgress | None = None
        self._going: list[RunSpec] = []
        self._waits: dict[int, str] = {}
        self._turn = threading.Lock()

    def began(self, begun: Begun) -> None:
        """An entry is begun."""
        self._begun, self._made, self._going, self._waits = begun, [], [], {}
        self._now = QueueProgress(
            entry=begun.entry.entry,
            name=begun.entry.name,
            state="running",
            done=begun.before.done,
            planned=begun.before.planned,
            left_s=self._left_s(),
            experiment=begun.entry.experiment,
            words=brought_words(begun.counted.brought, begun.counted.brought_with),
        )
        self._told(self._now)

    def sinks(self, turn: Turn) -> Sequence[Sink]:
        """A run begins."""
        self._going.append(turn.spec)
        self._change(lambda now: replace(now, place=turn.place, specs=tuple(self._going)))
        return self._sinks()

    def waits(self, turn: Turn, held: Held) -> bool:
        """A run waits."""
        self._waits[turn.place] = f"{held.words} ({held.limit_s:.0f} s at most)"
        self._change(lambda now: replace(now, waiting_for=self._waiting_for()))
        return True

    def waited(self, turn: Turn) -> None:
        """It waits no longer."""
        self._waits.pop(turn.place, None)
        self._change(lambda now: replace(now, waiting_for=self._waiting_for()))

    def made(self, run: StoredRun, *, counts: bool) -> None:
        """A run has ended."""
        if counts:
            self._made.append(run.row)
        self._going.remove(run.row.spec)
        plan, rows = self._plan_and_rows()
        self._change(lambda now: replace(now, specs=tuple(self._going), done=done(plan, rows), left_s=self._left_s()))

    def says(self, sentence: str) -> None:
        """A sentence of the entry."""
        self._change(lambda now: replace(now, words=sentence))

    def ended(self, entry: QueueEntry, found: Experiment, how: EntryState) -> None:
        """An entry goes on no longer."""
        experiment, made = entry.experiment, found.done
        self._change(lambda now: replace(now, state=how, specs=(), waiting_for="", done=made, experiment=experiment))

    def _waiting_for(self) -> str:
        return "; ".join(self._waits.copy().values())

    def _plan_and_rows(self) -> tuple[Plan, list[RunRow]]:
        assert self._begun is not None, "an entry begins before it is told of"
        before = self._begun.before
        return before.plan, [*(run.row for run in before.runs), *self._made]

    def _left_s(self) -> float | None:
        assert self._begun is not None, "an entry begins before it is told of"
        _, rows = self._plan_and_rows()
        return left_s(self._begun, rows, [*self._begun.alike, *self._made])

    def _change(self, changed: Callable[[QueueProgress], QueueProgress]) -> None:
        """Several runs may go on at once: one change at a time, told in its order."""
        with self._turn:
            if self._now is not None and (now := changed(self._now)) != self._now:
                self._now = now
                self._told(now)
