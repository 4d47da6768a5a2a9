"""One entry of the queue being made: what is left of its experiment, run after run, then its trials."""

import contextlib
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from app.analysis.fairness import gave_up_on
from app.errors import UserError
from app.facts import GATE
from app.queries import CUT_OFF, EntryState, QueueEntry
from app.records import RunEvent, RunRow, RunStarted, StoredRun
from app.runs.carried import of_use, try_carried, untried
from app.runs.counted import Counted, Own, counted_here, made_alike, surroundings_here
from app.runs.experiment import Experiment, ExperimentSession, Turn
from app.runs.gate import Gate, GateLimits, Held
from app.runs.going import RunsGoing
from app.runs.leases import Lease
from app.runs.queued import Asked, asked_of
from app.runs.repeated import Repeated
from app.runs.session import RunServices, lease_for
from app.runs.sinks import Sink
from app.storage.store import Store
from workloads.catalog import Machine
from workloads.protocol import RunSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """An entry before its next run: how far it is, and runs `alike` that tell how long the rest takes."""

    entry: QueueEntry
    asked: Asked
    before: Experiment
    counted: Counted
    alike: tuple[RunRow, ...]
    machine: Machine


class Listener(Protocol):
    """Hears what becomes of entries; called on the threads that make them."""

    def began(self, begun: Begun) -> None:
        """An entry is begun, or goes on."""

    def sinks(self, turn: Turn) -> Sequence[Sink]:
        """A run begins; who hears of its events."""

    def waits(self, turn: Turn, held: Held) -> bool:
        """A run waits; whether it shall go on waiting. Asked several times a second."""

    def waited(self, turn: Turn) -> None:
        """It waits no longer."""

    def made(self, run: StoredRun, *, counts: bool) -> None:
        """A run has ended; one that does not count is made once more."""

    def says(self, sentence: str) -> None:
        """Anything else worth telling."""

    def ended(self, entry: QueueEntry, found: Experiment, how: EntryState) -> None:
        """No further run is made of an entry now."""


class EntrySession:
    """Makes what is left of an entry. `run` blocks its thread, once; the others may come from any thread.

    `may_begin` is asked before each run, and may end the entry there.
    """

    def __init__(
        self, entry: QueueEntry, services: RunServices, listener: Listener, may_begin: Callable[[], bool]
    ) -> None:
        self.entry = entry
        """The entry, with its experiment once it has one."""
        self._asked = asked_of(entry)
        self._services = services
        self._listener = listener
        self._may_begin = may_begin
        self._going = RunsGoing(services)
        self._ended = threading.Event()
        self._skipped = 0
        self._session: ExperimentSession | None = None
        self.is_over = False
        """Whether nothing is left that could be made: every run was, and every trial."""

    def end(self) -> None:
        """Begins no further run; returns at once."""
        self._ended.set()
        if self._session is not None:
            self._session.stop()

    def stop(self) -> None:
        """Stops what goes on, too; returns at once."""
        self.end()
        self._going.stop()

    def skip_wait(self) -> None:
        """Begins every run that waits for a fair machine."""
        self._skipped += 1

    def run(self) -> Experiment:
        """Makes the runs and the trials. Raises `UserError` where a run cannot be stored."""
        repeated = Repeated(self._asked.max_throttled_pct)
        begun = stored_so_far(self.entry, self._services, repeated)
        self._keep(run.row.run for run in begun.before.runs)
        self._drop_uncounted(begun)
        self._listener.began(replace(begun, entry=self.entry))
        with contextlib.closing(Gate(self._services.feed, _limits(self._asked.gate_s))) as gate:
            self._session = session = ExperimentSession(
                begun.before.plan,
                begun.before.runs,
                begun.machine,
                self._make,
                self._asked.budget_s,
                lend=self._lend,
                wait=lambda turn, may_go_on: self._wait(gate, turn, may_go_on),
                counts=lambda made: self._counts(repeated, made),
                parallel=self._asked.parallel,
            )
            if self._ended.is_set():
                session.stop()
            found = session.run()
        if words := found.given_up_words():
            self._listener.says(words)
        may_stay = found.state in CUT_OFF
        if not may_stay and found.plan.carried:
            found = self._with_trials(found, session.may_go_on)
            may_stay = bool(untried(found.plan, found.runs)) and not session.may_go_on()
        self.is_over = not may_stay
        return found

    def _lend(self, spec: RunSpec, devices: Sequence[str], gives_up: Callable[[float], bool]) -> Lease | None:
        if not self._may_begin():
            self.end()
            return None
        return lease_for(spec, self._services, told=self._listener.says, stopped=gives_up, devices=devices)

    def _wait(self, gate: Gate, turn: Turn, may_go_on: Callable[[], bool]) -> Mapping[str, str]:
        skipped = self._skipped

        def go_on(held: Held) -> bool:
            return self._listener.waits(turn, held) and may_go_on() and self._skipped == skipped

        facts = gate.wait(turn.lease.devices, go_on)
        self._listener.waited(turn)
        if gave_up_on(facts):
            self._listener.says(f"The wait before a run {facts[GATE]}.")
        return facts

    def _make(self, turn: Turn) -> StoredRun:
        sinks = (*self._listener.sinks(turn), _Member(self._keep))
        return self._going.make(turn.spec, sinks, facts=turn.facts, lease=turn.lease)

    def _counts(self, repeated: Repeated, made: StoredRun) -> bool:
        counts = repeated.counts(made)
        if not counts:
            with Store.open(self._services.database) as store:
                store.queue.drop(self.entry.entry, [made.row.run])
        self._listener.made(made, counts=counts)
        return counts

    def _drop_uncounted(self, begun: Begun) -> None:
        """Takes out what was cut off before, and made again now: it says nothing of the variants."""
        counted = {run.row.run for run in begun.counted.runs}
        with Store.open(self._services.database) as store:
            own = own_runs(store, self.entry, self._asked).runs
            store.queue.drop(self.entry.entry, sorted(own - counted))

    def _keep(self, runs: Iterable[int]) -> None:
        with Store.open(self._services.database) as store:
            experiment = store.queue.keep(self.entry.entry, list(runs))
        self.entry = replace(self.entry, experiment=experiment)

    def _with_trials(self, found: Experiment, may_go_on: Callable[[], bool]) -> Experiment:
        """The experiment once the weights that it saved were tried; what is left of that is said."""
        says = self._listener.says
        try:
            runs = try_carried(found.plan, found.runs, self._services, says, may_go_on)
        except UserError as error:
            says(str(error))
            return found
        if waiting := untried(found.plan, runs):
            says(f"Weights still to be tried in {', '.join(trial.implementation for trial in waiting)}.")
        return replace(found, runs=tuple(runs))


@dataclass(frozen=True, slots=True)
class _Member:
    """Makes a run part of the experiment when it begins: a program that is killed later has nothing to note."""

    keep: Callable[[Sequence[int]], None]

    def handle(self, event: RunEvent) -> None:
        if isinstance(event, RunStarted):
            self.keep([event.run])


def stored_so_far(entry: QueueEntry, services: RunServices, repeated: Repeated | None = None) -> Begun:
    """What of an entry is made: its own runs, wherever that was, and others of its variants that count here.

    `repeated` judges which were throttled too long to count, and then knows of them.
    """
    inventory, asked = services.feed.wait_inventory(), asked_of(entry)
    plan, machine = asked.plan, inventory.machine
    repeated = repeated or Repeated(asked.max_throttled_pct)
    with Store.open(services.database) as store:
        own = own_runs(store, entry, asked)
        counted = counted_here(store, plan, surroundings_here(inventory), machine, repeated, own)
        alike = tuple(made_alike(store.list_runs(), machine))
    stored = of_use(plan, counted.runs, services.database)
    before = Experiment.of(plan, "stopped", stored, machine)
    return Begun(entry=entry, asked=asked, before=before, counted=counted, alike=alike, machine=machine)


def own_runs(store: Store, entry: QueueEntry, asked: Asked) -> Own:
    """The runs that were made of an entry, here or elsewhere."""
    runs = () if entry.experiment is None else store.library.runs_of_experiment(entry.experiment)
    return Own(runs=frozenset(runs), alone=asked.again)


def _limits(most_s: float | None) -> GateLimits:
    return GateLimits() if most_s is None else GateLimits(wait_s=most_s)
