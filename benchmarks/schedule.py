"""Benchmark `schedule`: an experiment of 1,000 runs over 64 pretended GPUs of eight hosts, as the queue makes it.

The hosts are simulated: no process is started, and a run only waits. Database, queue, leases and balance are real. A
run's scheduling time ends when it begins; it starts when the run before it on its GPU is stored, or, where several GPUs
become free at once, when the run that was scheduled before it begins. Baseline: twenty runs on one GPU.
"""

import contextlib
import random
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from app.events import Outcome, Summary
from app.hosts.pool import PoolSampler, pool_of
from app.plan import Plan
from app.queries import QueueEntry
from app.records import RunHeader
from app.runs.experiment.queue import enqueue
from app.runs.experiment.session import ExperimentSession, PlannedRun, QueueListener
from app.runs.host import Host
from app.runs.leases import Leases
from app.runs.session import RunServices
from app.samples import HOST, Device, Inventory
from app.storage.owner import this_process
from app.storage.store import Store
from app.telemetry.feed import TelemetryFeed
from benchmarks.harness import Result
from workloads.catalog import Gpu, Machine, complete

RUNS = 1_000
_HOSTS, _GPUS = 8, 8
_VARIANTS = 50
_BASELINE_RUNS = 20
_RUN_S = (2.0, 4.0)
"""A run is that long, drawn anew for each."""
_LIMIT_MS = 50.0
_SEED = 17


def measure(runs: int = RUNS, run_s: tuple[float, float] = _RUN_S) -> Sequence[Result]:
    """Measure how long the next run takes to schedule in a large experiment and in a small one, in milliseconds.

    Args:
        runs: Runs of the large one.
        run_s: The shortest and the longest run.
    """
    large = float(np.percentile(_scheduling_ms(_HOSTS, _GPUS, min(_VARIANTS, runs // 2), runs, run_s), 95))
    small = float(np.percentile(_scheduling_ms(1, 1, 2, _BASELINE_RUNS, (0.0, 0.0)), 95))
    name = f"scheduling of {runs:,} runs over {_HOSTS * _GPUS} GPUs, p95"
    return [
        Result(name=name, value=large, unit="ms", limit=_LIMIT_MS),
        Result(name=f"{name}, against {_BASELINE_RUNS} on one", value=large, unit="ms", baseline=small),
    ]


def _scheduling_ms(hosts: int, gpus: int, variants: int, runs: int, run_s: tuple[float, float]) -> list[float]:
    """Return the scheduling time of each run but the first of each GPU."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        members = [_host(folder, number, gpus) for number in range(hosts)]
        pool = pool_of(members, "pool")
        for member in (*members, pool):
            stack.callback(member.telemetry.close)
        services = RunServices(database=folder / "bench.db", host=pool)
        specs = tuple(complete("dummy", {"gpus": 1, "step_ms": 1.0 + n}, pool.machine) for n in range(variants))
        plan = Plan(name="schedule", variants=specs, repeats=runs // variants, parallel=hosts * gpus)
        with Store.open(services.database) as store:
            entry, _ = enqueue(store, plan)
            store.queue.claim(entry.entry)
        session = _SimulatedEntry(entry, services, run_s)
        session.run()
    return session.scheduling_ms


def _host(folder: Path, number: int, gpus: int) -> Host:
    cards = [
        Gpu(index=index, uuid=f"GPU-{number}-{index}", name="NVIDIA H200", memory_total_bytes=150 << 30)
        for index in range(gpus)
    ]
    devices = [Device(device=card.uuid, kind="gpu", index=card.index, name=card.name) for card in cards]
    inventory = Inventory(
        machine=Machine(gpus=tuple(cards), cpu_count=8),
        devices=(Device(device=HOST, kind="host", index=-1, name="simulated"), *devices),
    )
    feed = TelemetryFeed(start_sampler=lambda _: PoolSampler(lambda: inventory))
    feed.start()
    return Host(telemetry=feed, leases=Leases(folder), name=f"host{number}")


class _SimulatedEntry(ExperimentSession):
    """An entry whose runs are stored, and wait in place of a worker; `scheduling_ms` collects scheduling times.

    Thread: as `ExperimentSession`.
    """

    def __init__(self, entry: QueueEntry, services: RunServices, run_s: tuple[float, float]) -> None:
        super().__init__(entry, services, QueueListener(), lambda: _is_next(services.database, entry))
        self._database = services.database
        self._run_s = run_s
        self._random = random.Random(_SEED)  # noqa: S311 - nothing secret
        self._began_s = 0.0
        self._ended_s: dict[str, float] = {}
        self.scheduling_ms: list[float] = []

    def wait_until_idle(self, _planned_run: PlannedRun) -> Mapping[str, str]:
        return {}

    def run_once(self, planned_run: PlannedRun) -> RunHeader:
        began_s, (device,) = time.monotonic(), planned_run.lease.devices
        if device in self._ended_s:
            self.scheduling_ms.append(1e3 * (began_s - max(self._ended_s[device], self._began_s)))
        self._began_s = began_s
        with Store.open(self._database) as store:
            run = store.begin(
                planned_run.spec,
                uid=uuid.uuid4().hex,
                owner=this_process(),
                t_ns=time.monotonic_ns(),
                utc_ns=time.time_ns(),
                devices=(Device(device=device, kind="gpu", index=0, name="NVIDIA H200"),),
                environment={},
            )
            self._add_runs([run])
            time.sleep(self._random.uniform(*self._run_s))
            store.finish(
                run,
                outcome=Outcome(name="completed"),
                summary=Summary(throughput=self._random.gauss(1000, 5), blocks=10),
                t_ns=time.monotonic_ns(),
                utc_ns=time.time_ns(),
            )
            self._ended_s[device] = time.monotonic()
            return store.load_header(run)


def _is_next(database: Path, entry: QueueEntry) -> bool:
    """Return whether an entry is the queue's next still, as its runner asks before each run."""
    with Store.open(database) as store:
        return store.queue.entries()[0].entry == entry.entry
