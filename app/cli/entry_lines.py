"""What the command line says while it makes entries of the queue: what is ahead, each run's progress, each wait."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from app.cli.experiment_words import ahead_words, refused_words, throttled_words
from app.cli.gate import GateLine
from app.cli.services import interrupts
from app.cli.terminal import ProgressSink, StatusLine, say
from app.errors import UserError
from app.queries import CUT_OFF, FINISHED, IN_QUEUE, EntryState, QueueEntry
from app.records import StoredRun
from app.runs.carried import untried
from app.runs.entry_session import Begun, stored_so_far
from app.runs.experiment import Experiment, Turn
from app.runs.gate import Held
from app.runs.queue_progress import brought_words
from app.runs.queue_runner import QueueRunner
from app.runs.session import RunServices
from app.runs.sinks import Sink
from app.storage.store import Store
from app.viewmodels.ahead import uncounted_sentences


@dataclass(frozen=True, slots=True)
class Ended:
    """An entry of which no further run is made now, its experiment as far as it is, and how it stands."""

    entry: QueueEntry
    found: Experiment
    how: EntryState

    @property
    def stays(self) -> int | None:
        """The number under which it stays in the queue, None where it is out of it."""
        return self.entry.entry if self.how in (*IN_QUEUE, *CUT_OFF) else None

    @property
    def is_elsewhere(self) -> bool:
        """Whether another program goes on with it."""
        return self.how == "running"


class EntryLines:
    """A listener of `QueueRunner` that says everything on stderr."""

    def __init__(self) -> None:
        self._ended: dict[int, Ended] = {}
        self._line = StatusLine()
        self._waits: dict[int, GateLine] = {}

    def began(self, begun: Begun) -> None:
        """Says what is ahead."""
        plan, machine = begun.before.plan, begun.machine
        ahead = ahead_words(begun.before, begun.alike, machine, begun.asked.budget_s, begun.asked.parallel)
        counted = begun.counted
        uncounted = uncounted_sentences(counted.elsewhere, counted.because)
        brought = filter(None, [brought_words(counted.brought, counted.brought_with)])
        for sentence in (*uncounted, *brought, *refused_words(plan, machine), *ahead):
            say(sentence)

    def sinks(self, turn: Turn) -> Sequence[Sink]:
        """A line of progress."""
        return (ProgressSink(f"[{turn.place}/{turn.planned}] ", self._line),)

    def waits(self, turn: Turn, held: Held) -> bool:
        """A line of the wait, which Enter ends."""
        return self._waits.setdefault(turn.place, GateLine(self._line))(held)

    def waited(self, turn: Turn) -> None:
        """Takes that line away."""
        if (line := self._waits.pop(turn.place, None)) is not None:
            line.clear()

    def made(self, run: StoredRun, *, counts: bool) -> None:
        """Says of a run that it does not count."""
        if not counts:
            self._line.say(throttled_words(run))

    def says(self, sentence: str) -> None:
        """Says it."""
        self._line.say(sentence)

    def ended(self, entry: QueueEntry, found: Experiment, how: EntryState) -> None:
        """Keeps what was found; an entry that another went before, or of which more was asked, ends more than once."""
        self._ended.pop(entry.entry, None)
        self._ended[entry.entry] = Ended(entry, found, how)

    @property
    def all_ended(self) -> list[Ended]:
        """The entries as they ended last, in that order."""
        return list(self._ended.values())


def make_entries(
    services: RunServices, only: Sequence[int] | None = None, failed: Callable[[UserError], object] | None = None
) -> list[Ended]:
    """Makes entries of the queue with their progress on stderr, and returns those that ended; Ctrl-C ends it.

    One that was left before its end, for another that came first, is returned as it is when all is over.
    `failed` hears of one that cannot be made, and the others go on; without it `UserError` is raised.
    """
    lines = EntryLines()
    runner = QueueRunner(services, lines)
    with interrupts(runner.stop):
        runner.run(only, failed)
    return [_seen_anew(ended, services) for ended in lines.all_ended]


def _seen_anew(ended: Ended, services: RunServices) -> Ended:
    """The same, or what another program made of it since it was left: it may go on with it, or be done."""
    if ended.stays is None:
        return ended
    with Store.open(services.database) as store:
        now = next((entry for entry in store.queue.entries() if entry.entry == ended.stays), None)
    if now is not None:
        return replace(ended, how="running") if now.owned else ended
    found = stored_so_far(ended.entry, services).before
    return replace(ended, found=found, how=found.state if found.state in FINISHED else "removed")


def made_elsewhere_words(what: str) -> str:
    """That another program makes an entry, and how to see how far it is."""
    return f"Another program makes {what}: `python -m app queue` shows how far it is."


def exit_status(all_ended: Sequence[Ended]) -> int:
    """0 where every planned run has a result, at least one of them figures, and every trial was made.

    What another program goes on with is left to that one.
    """
    return 0 if all(ended.is_elsewhere or _is_whole(ended) for ended in all_ended) else 1


def _is_whole(ended: Ended) -> bool:
    return ended.found.measured and ended.found.state in FINISHED and not untried(ended.found.plan, ended.found.runs)
