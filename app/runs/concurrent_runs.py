"""Run several sessions at the same time, stop them together, and record which other GPUs were busy."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from app.environment_keys import CONCURRENT_GPUS_KEY
from app.records import RunHeader
from app.runs.host import host_of
from app.runs.leases import Lease
from app.runs.session import RunServices, RunSession
from app.runs.sinks import Sink
from app.storage.store import Store
from workloads.protocol import RunSpec


@dataclass(slots=True, eq=False)
class _ActiveRun:
    session: RunSession
    host: str
    devices: tuple[str, ...]
    other_devices: set[str] = field(default_factory=set)


class ConcurrentRuns:
    """Makes runs, and stores with each on which other GPUs of the host others of them went on at the same time.

    Thread: `run` blocks its thread, several at a time; `stop` any.
    """

    def __init__(self, services: RunServices) -> None:
        self._services = services
        # Reentrant: a signal's handler calls `stop` on a thread that may hold the lock.
        self._lock = threading.RLock()
        self._active: list[_ActiveRun] = []
        self._stopped = False

    def run(
        self,
        spec: RunSpec,
        sinks: Sequence[Sink],
        *,
        environment: Mapping[str, str] | None = None,
        lease: Lease | None = None,
    ) -> RunHeader:
        """Make one run and return its header as stored.

        Args:
            spec: What to run.
            sinks: Get its events.
            environment: What is known of its environment before it starts.
            lease: Its devices; None if its session leases them.

        Raises:
            UserError: It was not stored, or not whole.
        """
        session = RunSession(spec, self._services, sinks, environment=environment, lease=lease)
        host = host_of(lease, self._services.host).name
        with self._registered(_ActiveRun(session, host, lease.devices if lease else ())) as active:
            session.run()
        assert session.number is not None, "it was stored"
        with Store.open(self._services.database) as store:
            if active.other_devices:
                store.add_environment(session.number, {CONCURRENT_GPUS_KEY: self._device_names(active.other_devices)})
            return store.load_header(session.number)

    def stop(self) -> None:
        """Stop every current run, and each one started later; returns at once."""
        with self._lock:
            self._stopped = True
            for active in self._active:
                active.session.stop()

    @contextmanager
    def _registered(self, active: _ActiveRun) -> Iterator[_ActiveRun]:
        with self._lock:
            for other in (each for each in self._active if each.host == active.host):
                active.other_devices.update(other.devices)
                other.other_devices.update(active.devices)
            self._active.append(active)
            if self._stopped:
                active.session.stop()
        try:
            yield active
        finally:
            with self._lock:
                self._active.remove(active)

    def _device_names(self, uuids: set[str]) -> str:
        devices = self._services.host.inventory().devices
        return ", ".join(f"{device.name} ({device.device})" for device in devices if device.device in uuids)
