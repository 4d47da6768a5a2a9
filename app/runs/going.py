"""Runs that go on at the same time, each on a thread of its own: stopped together, and told of each other."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from app.errors import UserError
from app.facts import BESIDE
from app.records import StoredRun
from app.runs.leases import Lease
from app.runs.session import RunServices, RunSession
from app.runs.sinks import Sink
from app.storage.store import Store
from workloads.protocol import RunSpec


@dataclass(slots=True, eq=False)
class _Going:
    session: RunSession
    devices: tuple[str, ...]
    beside: set[str] = field(default_factory=set)


class RunsGoing:
    """Makes runs and stores with each on which other GPUs of this machine others of them went on meanwhile."""

    def __init__(self, services: RunServices) -> None:
        self._services = services
        # A signal's handler calls `stop` on a thread that may be inside already.
        self._turn = threading.RLock()
        self._going: list[_Going] = []
        self._stopped = False

    def make(
        self,
        spec: RunSpec,
        sinks: Sequence[Sink],
        *,
        facts: Mapping[str, str] | None = None,
        lease: Lease | None = None,
    ) -> StoredRun:
        """Makes one run, as it is stored; blocks its thread. Raises `UserError` where it cannot be stored."""
        session = RunSession(spec, self._services, sinks, facts=facts, lease=lease)
        with self._entered(_Going(session, lease.devices if lease else ())) as going:
            outcome = session.run()
        if session.number is None:
            raise UserError(outcome.reason or "The run could not be stored.")
        with Store.open(self._services.database) as store:
            if going.beside:
                store.add_environment(session.number, {BESIDE: self._names(going.beside)})
            stored = store.load(session.number)
        if stored.row.outcome is None:
            raise UserError(outcome.reason or "The end of the run could not be stored.")
        return stored

    def stop(self) -> None:
        """Stops every run that goes on, and any begun later; returns at once."""
        with self._turn:
            self._stopped = True
            for going in self._going:
                going.session.stop()

    @contextmanager
    def _entered(self, own: _Going) -> Iterator[_Going]:
        with self._turn:
            for other in self._going:
                own.beside.update(other.devices)
                other.beside.update(own.devices)
            self._going.append(own)
            if self._stopped:
                own.session.stop()
        try:
            yield own
        finally:
            with self._turn:
                self._going.remove(own)

    def _names(self, uuids: set[str]) -> str:
        devices = self._services.feed.wait_inventory().devices
        return ", ".join(f"{device.name} ({device.device})" for device in devices if device.device in uuids)
