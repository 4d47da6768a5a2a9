"""`link`: kill whoever has a part in a run on another host, at random moments, and look what is left.

Each kill has a host of its own, this machine through an agent, and a run of `dummy` that would take ten minutes. The
carrier, the agent or its guard, its sampler or a worker gets SIGKILL; or all of the host stands still, as where a
network is cut, until the link is given up (after 4 s here).
"""

import contextlib
import os
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import psutil

from app.errors import UserError
from app.grants import typed
from app.hosts.book import find_host
from app.hosts.connection import connect
from app.hosts.link import LinkLimits
from app.hosts.open import carrier_of
from app.runs import leases
from app.runs.session import RunServices, RunSession
from benchmarks.harness import Result
from tests.reliability.invariants import BROKEN, broken_in
from workloads import catalog

KILLS = 60

Victim = Literal["carrier", "guard", "agent", "sampler", "worker", "link"]

_LIMITS = LinkLimits(ping_s=0.1, warn_s=1.0, lost_s=4.0)
_MODULES: dict[Victim, str] = {"sampler": "app.telemetry.sampler", "worker": "workloads.worker"}
_LATEST_S = 1.0
"""After the click; a run measures after about half of it."""
_LEFT = ("runs that did not end", "processes left")
_END_S = 60.0
"""Time in which a run whose worker or host is gone must have an outcome, even on a busy machine."""


def measure(on: str = "sh:", kills: int = KILLS) -> Sequence[Result]:
    """Kill so often; return how runs ended, and how much was left or broken."""
    broken: Counter[str] = Counter()
    endings: Counter[str] = Counter()
    moments = np.random.default_rng()
    with tempfile.TemporaryDirectory() as folder:
        os.environ[leases.FOLDER_VARIABLE] = folder
        for number in range(kills):
            victim = get_args(Victim)[number % len(get_args(Victim))]
            with closing(_Run(on, Path(folder) / "profiles.db")) as run:
                time.sleep(moments.uniform(0.0, _LATEST_S))
                run.end(victim)
                broken["runs that did not end"] += not run.has_ended()
                endings[f"{victim}: {run.ending}"] += 1
            broken["processes left"] += run.processes_left()
        broken += broken_in(Path(folder), ended=True)
    return [
        *(Result(name=ending, value=count, unit="runs") for ending, count in sorted(endings.items())),
        *(Result(name=name, value=broken[name], unit="", limit=0) for name in (*_LEFT, *BROKEN)),
    ]


class _Run:
    """A run on a host of its own."""

    def __init__(self, on: str, database: Path) -> None:
        entry = find_host(on, typed)
        self._connection = connect(carrier_of(entry.full_address), name=entry.name, limits=_LIMITS)
        self.ending = "never began"
        spec = catalog.complete("dummy", {"gpus": 0, "seconds": 600.0}, self._connection.host.machine)
        self._session = RunSession(spec, RunServices(database=database, host=self._connection.host))
        self._thread = threading.Thread(target=self._make, daemon=True)
        agent = psutil.Process(self._connection.hello.pid)
        self._host = [agent, *agent.parents()[:1], *agent.children(recursive=True)]
        self._thread.start()

    def _make(self) -> None:
        with contextlib.suppress(UserError):  # its host is gone
            self.ending = self._session.run().name

    def end(self, victim: Victim) -> None:
        """Kill who is there, and stop a run that goes on: a sampler's, or that of a worker that was not started yet."""
        agent, guard = self._host[:2]
        with contextlib.suppress(psutil.NoSuchProcess):
            self._host += agent.children(recursive=True)
        match victim:
            case "carrier":
                for process in psutil.Process().children():  # ssh, or where there is only a shell the guard
                    process.kill()
            case "guard":
                guard.kill()
            case "agent":
                agent.kill()
            case "link":
                for process in self._host:
                    process.suspend()
                self._thread.join(_END_S)
                for process in self._host:
                    with contextlib.suppress(psutil.NoSuchProcess):
                        process.resume()
            case "sampler" | "worker":
                found = [process for process in agent.children() if _MODULES[victim] in process.cmdline()]
                for process in found:
                    process.kill()
                if victim == "sampler" or not found:
                    self._session.stop()

    def has_ended(self) -> bool:
        """Wait until the run has an outcome, and return whether it has."""
        self._thread.join(_END_S)
        return not self._thread.is_alive()

    def close(self) -> None:
        """Disconnect."""
        self._connection.close()

    def processes_left(self) -> int:
        """Return how many processes of the host outlive the connection."""
        return len(psutil.wait_procs(self._host, timeout=_END_S)[1])
