"""The queue as values: one line for all of it, and one row an entry."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from app.queries import IN_QUEUE, QueueProgress
from app.viewmodels import units
from app.viewmodels.cells import Tone
from app.viewmodels.naming import short_name
from app.viewmodels.queue_told import LOOKS, Telling, ending, ending_words, offer
from app.viewmodels.variants import variant_names


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRow:
    """One entry: what is shown of it, and what can be done with it."""

    entry: int
    name: str
    symbol: str
    state: str
    tone: Tone
    done: str
    fraction: float
    left: str
    tooltip: str
    can_rise: bool = False
    can_sink: bool = False
    pause: Literal["pause", "resume", ""] = ""
    is_going_on: bool = False
    in_queue: bool = True
    experiment: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueState:
    """Everything the window shows of the queue; without rows and tellings nothing is shown.

    `count` is how many runs of all are done, `now` what goes on; both are empty where what is told says it already.
    `skip` says whether a wait goes on that can be skipped, `may_export` whether all of it rests and can be taken away.
    """

    rows: tuple[QueueRow, ...] = ()
    count: str = ""
    fraction: float = 0.0
    now: str = ""
    left: str = ""
    skip: bool = False
    hold: Literal["pause", "go on", ""] = ""
    may_export: bool = False
    offer: Telling | None = None
    ended: Telling | None = None

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to show."""
        return not self.rows and self.offer is None and self.ended is None


class QueueBoard:
    """Folds what is read of the queue and what its runner tells into what is shown.

    `goes_on` is whether this window makes its runs; an entry that runs all the same is made by another program.
    """

    def __init__(self) -> None:
        self._entries: tuple[QueueProgress, ...] = ()
        self._now: QueueProgress | None = None
        self._told_s = 0.0
        self._ended: tuple[QueueProgress, ...] = ()
        self._counted: frozenset[int] = frozenset()
        self._telling: Telling | None = None
        self._offered = False
        self.goes_on = False

    @property
    def told(self) -> QueueProgress | None:
        """What ended last, and is told of."""
        return None if self._telling is None else self._telling.progress

    @property
    def entries(self) -> tuple[QueueProgress, ...]:
        """What is in the queue, in its order."""
        return self._entries

    @property
    def runs_elsewhere(self) -> bool:
        """Whether another program makes runs of the queue, and this window none."""
        return not self.goes_on and any(entry.state == "running" for entry in self._entries)

    def begin(self) -> None:
        """The runner begins: from now on the count is about what it makes."""
        self.goes_on, self._offered = True, False
        self._counted = frozenset()

    def rest(self) -> None:
        """The runner has ended."""
        self.goes_on, self._now = False, None

    def read(self, entries: Sequence[QueueProgress]) -> None:
        """Take the entries as they stand in the database."""
        self._entries = tuple(entries)
        self._offered = self._offered and bool(entries) and all(entry.state != "running" for entry in entries)
        left = {entry.entry for entry in entries}
        # What ended and is in the queue still, as with its time spent, is shown as that and not twice.
        self._ended = tuple(ended for ended in self._ended if ended.entry not in left)

    def arrange(self, order: Sequence[int]) -> None:
        """Put the entries in this order before the database has them so: the eye follows the hand."""
        self._entries = tuple(sorted(self._entries, key=lambda entry: order.index(entry.entry)))

    def is_going_on(self, entry: int) -> bool:
        """Whether a run of this entry goes on in this window."""
        return self._now is not None and self._now.entry == entry

    def experiment_of(self, entry: int) -> int | None:
        """The number of an entry's experiment, be it in the queue or ended."""
        found = (each.experiment for each in (*self._entries, *self._ended) if each.entry == entry)
        return next(found, None)

    def tell(self, progress: QueueProgress, now_s: float) -> None:
        """Take what the runner tells, at `now_s` seconds of any clock."""
        self._told_s = now_s
        others = tuple(entry for entry in self._entries if entry.entry != progress.entry)
        if progress.state in IN_QUEUE:
            self._now = progress if progress.state == "running" else None
            told = (_with_pause(progress, entry) if entry.entry == progress.entry else entry for entry in self._entries)
            self._entries = tuple(told) if len(others) < len(self._entries) else (*others, progress)
            return
        self._now = None
        if progress.state == "stopped":  # it stays in the queue
            return
        self._entries = others
        if progress.state != "removed":
            self._ended = (*self._ended, progress)
            self._counted |= {progress.entry}
            self._telling = ending(progress)

    def tell_verdict(self, entry: int, verdict: str) -> None:
        """Say the verdict of an entry that ended, if that is what is told."""
        if self._telling is not None and self.told is not None and self.told.entry == entry:
            self._telling = replace(self._telling, words=ending_words(self.told, verdict))

    def offer(self) -> None:
        """Offer to go on with what is in the queue."""
        self._offered = bool(self._entries)

    def withdraw(self) -> None:
        """Offer no longer."""
        self._offered = False

    def forget(self) -> None:
        """Say no more of what ended, and list it no longer."""
        self._telling, self._ended = None, ()

    def state(self, now_s: float) -> QueueState:
        """What to show at `now_s`, on the clock of `tell`."""
        over = sum(ended.done for ended in self._ended if ended.entry in self._counted)
        done = over + sum(entry.done for entry in self._entries)
        planned = over + sum(entry.planned for entry in self._entries)
        return QueueState(
            rows=(*self._rows(now_s), *(_row(ended) for ended in reversed(self._ended))),
            count=f"{done}/{planned}" if self._entries and not self._offered else "",
            fraction=done / planned if planned else 0.0,
            now=self._now_words(),
            left=self._left_words(now_s),
            skip=self._now is not None and bool(self._now.waiting_for),
            hold=self._hold(),
            may_export=bool(self._entries) and not self.goes_on and not self.runs_elsewhere,
            offer=offer(self._entries) if self._offered else None,
            ended=self._telling,
        )

    def _rows(self, now_s: float) -> list[QueueRow]:
        last = len(self._entries) - 1
        return [
            replace(
                _row(self._as_of_now(entry, now_s), going_on=self.is_going_on(entry.entry)),
                can_rise=place > 0,
                can_sink=place < last,
                is_going_on=self.is_going_on(entry.entry),
            )
            for place, entry in enumerate(self._entries)
        ]

    def _as_of_now(self, entry: QueueProgress, now_s: float) -> QueueProgress:
        """The entry with what is left of it by now; while it waits nothing of that passes."""
        if not self.is_going_on(entry.entry) or entry.left_s is None or entry.waiting_for:
            return entry
        return replace(entry, left_s=max(0.0, entry.left_s - (now_s - self._told_s)))

    def _now_words(self) -> str:
        if self._offered or not self._entries:
            return ""
        if self._now is not None:
            if self._now.waiting_for:
                return f"Waiting: {self._now.waiting_for}"
            return _names(self._now) or self._now.name
        if self.runs_elsewhere:
            return "Another program makes these runs"
        if self.goes_on:
            return "The next run begins …"
        return "Paused"

    def _left_words(self, now_s: float) -> str:
        """Of what is to be made without being asked once more."""
        coming = [self._as_of_now(entry, now_s) for entry in self._entries if entry.state != "paused"]
        known = [entry.left_s for entry in coming if entry.left_s is not None]
        if not sum(known):
            return ""
        return f"{'' if len(known) == len(coming) else 'at least '}{units.duration(sum(known))} left"

    def _hold(self) -> Literal["pause", "go on", ""]:
        """What can be done with all: pause them if any is to come, go on where all rest."""
        if self._offered or self.runs_elsewhere or not self._entries:
            return ""
        return "pause" if self.goes_on and any(entry.state != "paused" for entry in self._entries) else "go on"


def _with_pause(told: QueueProgress, known: QueueProgress) -> QueueProgress:
    """What is told of an entry's run: that the entry is paused after it, the runner does not say."""
    return replace(told, state="paused") if known.state == "paused" else told


def _row(progress: QueueProgress, *, going_on: bool = False) -> QueueRow:
    elsewhere = progress.state == "running" and not going_on
    look = LOOKS[progress.state]
    left = "" if progress.left_s is None or progress.state not in IN_QUEUE else units.duration(progress.left_s)
    is_last = going_on and progress.state == "paused"
    in_queue = progress.state in IN_QUEUE
    return QueueRow(
        entry=progress.entry,
        name=progress.name,
        symbol=look.symbol,
        state="running elsewhere" if elsewhere else "its last run" if is_last else progress.state,
        tone=look.tone,
        done=f"{progress.done}/{progress.planned}",
        fraction=progress.done / progress.planned if progress.planned else 0.0,
        left=left,
        tooltip="\n".join(filter(None, (progress.name, _names(progress), progress.words))),
        pause=("resume" if progress.state == "paused" else "pause") if in_queue and not elsewhere else "",
        in_queue=in_queue,
        experiment=progress.experiment,
    )


def _names(progress: QueueProgress) -> str:
    """What goes on: one run by its name, several by their count, and two by what tells them apart."""
    if len(progress.specs) < 2:
        return "".join(map(short_name, progress.specs))
    apart = dict.fromkeys(variant_names(progress.specs)) if len(progress.specs) == 2 else ()
    return ": ".join(filter(None, (f"{len(progress.specs)} runs at once", "; ".join(apart))))
