"""The queue as values: a summary line, a row of cells per entry, and banners with their answers."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from msgspec import structs

from app.queries import QUEUED_STATES, EntryState, ExperimentProgress, TimeLeft
from app.values import units
from app.viewmodels.format.cells import Bar, Cell, Column, Tone
from app.viewmodels.format.naming import short_name, variant_names
from app.viewmodels.format.sentences import format_time_left

BannerAction = Literal["go on", "not now", "remove", "show", "dismiss", "unfold"]
"""What a banner can be answered with."""


class StateStyle(NamedTuple):
    """How a state is displayed: always with a text, never by colour alone; "" means the state's own name."""

    symbol: str
    tone: Tone
    text: str = ""


STATE_STYLES: dict[EntryState, StateStyle] = {
    "running": StateStyle("▶", "busy"),
    "waiting": StateStyle("○", "quiet"),
    "paused": StateStyle("‖", "quiet"),
    "complete": StateStyle("✔", "good"),
    "settled": StateStyle("✔", "good", "precision reached"),
    "stopped": StateStyle("■", "quiet"),
    "out of budget": StateStyle("◔", "warning"),
    "failed": StateStyle("✖", "bad"),
    "removed": StateStyle("■", "quiet"),
}

_MAX_NAME_LENGTH = 60
"""The longest name within a sentence; names of large matrices are longer."""
_END_PHRASES: dict[EntryState, str] = {
    "complete": "is complete",
    "settled": "has reached its target precision",
    "out of budget": "has used its time limit; resuming gives it as much again",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictText:
    """The verdict on a finished experiment: its first sentence, whether that is an answer, and the rest."""

    sentence: str = ""
    rest: str = ""
    is_answer: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Banner:
    """A sentence above the queue with its answers, the expected one first; `detail` is less important."""

    text: str
    detail: str = ""
    symbol: str
    tone: Tone
    actions: tuple[tuple[BannerAction, str], ...]
    progress: ExperimentProgress | None = None


NO_VERDICT = VerdictText()


def _format_runs_made(done: int, planned: int) -> str:
    return f"{done} of {planned} {units.plural('run', planned)} done"


def resume_banner(entries: Sequence[ExperimentProgress]) -> Banner:
    done, planned = sum(entry.done for entry in entries), sum(entry.planned for entry in entries)
    imported = sum(entry.imported for entry in entries)
    resume: tuple[tuple[BannerAction, str], ...] = (("go on", "Resume"),)
    if len(entries) == 1:
        text = f"{quote_name(entries[0].name)} is unfinished: {_format_runs_made(done, planned)}."
        text = " ".join(filter(None, (text, describe_place(entries[0]))))
        other_actions: tuple[tuple[BannerAction, str], ...] = (("remove", "Remove"),)
    else:
        text = f"{len(entries)} experiments are unfinished: {_format_runs_made(done, planned)}."
        other_actions = (("unfold", "Show them"),)
        if imported:
            came, subject = ("comes", "it is") if imported == 1 else ("come", "each is")
            text += (
                f" {imported} of them {came} from another database: {subject} resumed automatically once you have "
                f"seen it."
            )
        resume = resume if imported < len(entries) else ()
    sentences = dict.fromkeys(entry.message for entry in entries if entry.message)
    return Banner(
        text=" ".join([text, *sentences]),
        symbol=STATE_STYLES["paused"].symbol,
        tone="busy",
        actions=(*resume, ("not now", "Not now"), *other_actions),
    )


def describe_place(progress: ExperimentProgress) -> str:
    """Return a sentence on its host and its runs' Pythons; "" for the program's own."""
    host = f"on {progress.host}" if progress.host else ""
    pythons = f"by the Python {', '.join(progress.interpreters)}" if progress.interpreters else ""
    where = " ".join(filter(None, (host, pythons)))
    return f"Its runs are made {where}." if where else ""


def describe_ending(progress: ExperimentProgress) -> str:
    if progress.state == "failed":
        runs = units.plural("run", progress.planned)
        text = f"{quote_name(progress.name)} has ended: {progress.done} of {progress.planned} {runs} gave a result."
    else:
        text = (
            f"{quote_name(progress.name)} {_END_PHRASES[progress.state]}: "
            f"{_format_runs_made(progress.done, progress.planned)}."
        )
    return " ".join(filter(None, (text, progress.message)))


def ended_banner(progress: ExperimentProgress, verdict: VerdictText = NO_VERDICT) -> Banner:
    """Return the verdict, if known, and the outcome of a finished entry, with a link to its runs."""
    ending = describe_ending(progress)
    style = STATE_STYLES[progress.state]
    show: tuple[tuple[BannerAction, str], ...] = (
        ("show", "Show the run" if progress.planned == 1 else "Show verdict"),
    )
    return Banner(
        text=verdict.sentence or ending,
        detail=" ".join(filter(None, (ending, verdict.rest))) if verdict.sentence else "",
        symbol=style.symbol,
        tone=style.tone,
        actions=(*(show if progress.experiment is not None else ()), ("dismiss", "Dismiss")),
        progress=progress,
    )


def quote_name(name: str) -> str:
    """Return a name in quotes; a long one is cut after a whole word."""
    if len(name) > _MAX_NAME_LENGTH:
        beginning = name[:_MAX_NAME_LENGTH]
        name = f"{beginning.rpartition(' ')[0] or beginning} …"
    return f"“{name}”"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRow:
    """One entry: its name, a cell for each column, and the possible actions."""

    entry: int
    name: str
    cells: tuple[Cell, ...]
    can_move_up: bool = False
    can_move_down: bool = False
    pause_action: Literal["pause", "resume", ""] = ""
    is_running_here: bool = False
    in_queue: bool = True
    experiment: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueState:
    """Everything that the window shows of the queue; hidden without rows and banners.

    Attributes:
        rows: The entries, then the finished ones.
        count: Completed runs of the running experiment, else of all that wait; "" if a banner says it.
        activity: The current activity; "" if a banner says it.
        time_left: Expected time of the counted runs, and of everything that runs without another question.
        pause_action: The action of the button for all entries; "" hides it.
    """

    rows: tuple[QueueRow, ...] = ()
    count: str = ""
    fraction: float = 0.0
    activity: str = ""
    time_left: str = ""
    can_skip_wait: bool = False
    pause_action: Literal["pause", "go on", ""] = ""
    offer: Banner | None = None
    ended: Banner | None = None

    @property
    def is_empty(self) -> bool:
        return not self.rows and self.offer is None and self.ended is None


class QueueModel:
    """Combines the queue in the database with the progress of its runner.

    `is_running`: this window runs it; an entry that runs although it does not belongs to another program.
    `waits_for_run`: it starts by itself after this window's current run, which is not from the queue.
    """

    def __init__(self) -> None:
        self.entries: tuple[ExperimentProgress, ...] = ()
        """The entries of the queue, in order."""
        self._current: ExperimentProgress | None = None
        self._progress_s = 0.0
        self._ended: tuple[ExperimentProgress, ...] = ()
        self._banner: Banner | None = None
        self._offered = False
        self.is_running = False
        self.waits_for_run = False

    @property
    def last_ended(self) -> ExperimentProgress | None:
        return None if self._banner is None else self._banner.progress

    @property
    def runs_elsewhere(self) -> bool:
        """Return whether another program, not this window, runs the queue."""
        return not self.is_running and any(entry.state == "running" for entry in self.entries)

    def begin(self) -> None:
        """Record that the runner starts: earlier endings are no longer news."""
        self.is_running, self._offered, self._banner = True, False, None

    def finish(self) -> None:
        self.is_running, self._current = False, None

    def update(self, entries: Sequence[ExperimentProgress]) -> None:
        self.entries = tuple(entries)
        self._offered = self._offered and bool(entries) and all(entry.state != "running" for entry in entries)
        remaining = {entry.entry for entry in entries}
        # An ended entry that is still in the queue, for example out of time, must not appear twice.
        self._ended = tuple(ended for ended in self._ended if ended.entry not in remaining)

    def move(self, entry: int, by: int) -> int | None:
        """Move an entry by that many places, up if negative; return the entry that then follows it, None at the end.

        It is displayed immediately, before the database has it.
        """
        others = [progress for progress in self.entries if progress.entry != entry]
        old_index = [progress.entry for progress in self.entries].index(entry)
        index = max(0, old_index + by)
        following = others[index].entry if index < len(others) else None
        others.insert(index, self.entries[old_index])
        self.entries = tuple(others)
        return following

    def is_running_here(self, entry: int) -> bool:
        return self._current is not None and self._current.entry == entry

    def experiment_number(self, entry: int) -> int | None:
        return next((one.experiment for one in (*self.entries, *self._ended) if one.entry == entry), None)

    def handle(self, progress: ExperimentProgress, now_s: float) -> None:
        """Take the runner's progress, at `now_s` seconds of any clock."""
        self._progress_s = now_s
        others = tuple(entry for entry in self.entries if entry.entry != progress.entry)
        if progress.state in QUEUED_STATES:
            self._current = progress if progress.state == "running" else None
            entries = (
                (replace(progress, state="paused") if entry.state == "paused" else progress)
                if entry.entry == progress.entry
                else entry
                for entry in self.entries
            )
            self.entries = tuple(entries) if len(others) < len(self.entries) else (*others, progress)
            return
        self._current = None
        if progress.state == "stopped":  # it stays in the queue
            return
        self.entries = others
        if progress.state != "removed":
            self._ended = (*self._ended, progress)
            self._banner = ended_banner(progress)

    def set_verdict(self, entry: int, verdict: VerdictText) -> None:
        if self._banner is not None and self.last_ended is not None and self.last_ended.entry == entry:
            self._banner = ended_banner(self.last_ended, verdict)

    def offer_resume(self) -> None:
        self._offered = bool(self.entries)

    def withdraw_offer(self) -> None:
        self._offered = False

    def mark_seen(self, entry: int) -> None:
        """Mark a finished entry as seen: its line remains after the others."""
        if self.last_ended is not None and self.last_ended.entry == entry:
            self._banner = None
        if not self.entries:
            self._ended = tuple(ended for ended in self._ended if ended.entry != entry)

    def dismiss_ended(self) -> None:
        self._banner, self._ended = None, ()

    def state(self, now_s: float) -> QueueState:
        counted = self._counted()
        done, planned = sum(entry.done for entry in counted), sum(entry.planned for entry in counted)
        return QueueState(
            rows=_with_names_of_their_own([*self._rows(now_s), *(_row(ended) for ended in reversed(self._ended))]),
            count=f"{done}/{planned}" if self.entries and not self._offered else "",
            fraction=done / planned if planned else 0.0,
            activity=self._describe_activity(),
            time_left=self._format_time_left(now_s),
            can_skip_wait=self._current is not None
            and (bool(self._current.waiting_for) or self._current.waits_for_device),
            pause_action=self._pause_action(),
            offer=resume_banner(self.entries) if self._offered else None,
            ended=self._banner,
        )

    def _counted(self) -> Sequence[ExperimentProgress]:
        """Return the entries that progress refers to: the running one, else those that are not paused, else all."""
        if self._current is not None:
            return (self._current,)
        running = [entry for entry in self.entries if entry.state == "running"]
        return running or [entry for entry in self.entries if entry.state != "paused"] or self.entries

    def _rows(self, now_s: float) -> list[QueueRow]:
        last = len(self.entries) - 1
        return [
            replace(
                _row(self._with_time_left(entry, now_s), running_here=self.is_running_here(entry.entry)),
                can_move_up=index > 0,
                can_move_down=index < last,
                is_running_here=self.is_running_here(entry.entry),
            )
            for index, entry in enumerate(self.entries)
        ]

    def _with_time_left(self, entry: ExperimentProgress, now_s: float) -> ExperimentProgress:
        """Return the entry with its current time left, which does not pass during a wait."""
        if not self.is_running_here(entry.entry) or entry.waiting_for:
            return entry
        return replace(entry, left=entry.left.plus(self._progress_s - now_s))

    def _describe_activity(self) -> str:
        if self._offered or not self.entries:
            return ""
        if self._current is not None:
            if self._current.waiting_for:
                return f"Waiting: {self._current.waiting_for}"
            wait = self._current.message if self._current.waits_for_device else ""
            return _describe_runs(self._current) or wait or self._current.name
        if self.runs_elsewhere:
            return "Running in another program"
        if self.is_running:
            return "Starting the next run …"
        if self.waits_for_run and any(entry.state == "waiting" for entry in self.entries):
            return "Waiting for the current run to end"
        return "Paused"

    def _format_time_left(self, now_s: float) -> str:
        """Return the time left of the counted entries, and of everything that runs without another question."""
        paused = {entry.entry for entry in self.entries if entry.state == "paused"}
        own, pending = (
            [self._with_time_left(entry, now_s).left for entry in entries if entry.entry not in paused]
            for entries in (self._counted(), self.entries)
        )
        left, total = TimeLeft.total(own), TimeLeft.total(pending)
        text = f"{format_time_left(left)} left" if left.most_s else ""
        return f"{text}, {format_time_left(total)} for all" if text and len(pending) > len(own) else text

    def _pause_action(self) -> Literal["pause", "go on", ""]:
        """Return the action of the button for all entries: pause if any is to come, resume if all are paused."""
        if self._offered or self.runs_elsewhere or not self.entries:
            return ""
        goes_on = self.is_running or self.waits_for_run
        return "pause" if goes_on and any(entry.state != "paused" for entry in self.entries) else "go on"


def _with_names_of_their_own(rows: Sequence[QueueRow]) -> tuple[QueueRow, ...]:
    """Return the rows, with a number added to names that occur twice."""
    counts = Counter(row.name for row in rows)

    def numbered(row: QueueRow) -> QueueRow:
        if counts[row.name] == 1:
            return row
        name, (first, *others) = f"{row.name} · entry {row.entry}", row.cells
        return replace(row, name=name, cells=(structs.replace(first, text=name), *others))

    return tuple(map(numbered, rows))


def _row(progress: ExperimentProgress, *, running_here: bool = False) -> QueueRow:
    elsewhere = progress.state == "running" and not running_here
    style = STATE_STYLES[progress.state]
    in_queue = progress.state in QUEUED_STATES
    is_pausing = running_here and progress.state == "paused"
    state = "running elsewhere" if elsewhere else "pausing" if is_pausing else style.text or progress.state
    is_left = in_queue and progress.done < progress.planned
    fraction = progress.done / progress.planned if progress.planned else 0.0
    interpreters = ", ".join(progress.interpreters)
    sentences = (progress.name, _describe_runs(progress), describe_place(progress), progress.message)
    tooltip = "\n".join(filter(None, sentences))
    return QueueRow(
        entry=progress.entry,
        name=progress.name,
        cells=(
            Cell(text=progress.name, symbol=style.symbol, tooltip=tooltip),
            Cell(text=progress.host, tone="quiet", tooltip=progress.host),
            Cell(text=interpreters, tone="quiet", tooltip=interpreters),
            Cell(text=state, tone=style.tone, tooltip=tooltip),
            Cell(
                text=f"{progress.done}/{progress.planned}", key=fraction, tooltip=tooltip, bar=Bar(fraction, leads=True)
            ),
            Cell(text=format_time_left(progress.left) if is_left else "", key=0),
        ),
        pause_action=("resume" if progress.state == "paused" else "pause") if in_queue and not elsewhere else "",
        in_queue=in_queue,
        experiment=progress.experiment,
    )


def _describe_runs(progress: ExperimentProgress) -> str:
    """Return the current runs: one by its name, two by their difference, more by their number."""
    if len(progress.specs) < 2:
        return "".join(map(short_name, progress.specs))
    names = dict.fromkeys(variant_names(progress.specs)) if len(progress.specs) == 2 else ()
    return ": ".join(filter(None, (f"{len(progress.specs)} runs at once", "; ".join(names))))


QUEUE_COLUMNS = (
    Column("Experiment", "Name of the experiment", numeric=False, shrink="text", least=160, most=480),
    Column("Host", "The host it runs on; empty for this machine", numeric=False),
    Column("Python", "The Pythons that its runs name; empty for this program's own", numeric=False),
    Column("State", "Its state", numeric=False),
    Column("Runs", "Runs with a result, of all planned"),
    Column("Left", "Expected time for the remaining runs"),
)
NAME_COLUMN, HOST_COLUMN, PYTHON_COLUMN, STATE_COLUMN = range(4)
WIDEST_CELLS = (
    Cell(text=""),
    Cell(text="gpu-server-1"),
    Cell(text="tf219, tf216"),
    Cell(text="running elsewhere"),
    Cell(text="000/000"),
    Cell(text="40 to 60 min"),
)
"""For each column, a cell as wide as any is expected to be."""
