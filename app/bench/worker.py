"""`bench worker`: what a run costs beside a bare script with the same step, how fast it starts, follows and stops.

Baseline: `python -m workloads.bare`, the same step without messages, telemetry or database, interleaved with runs.
"""

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from app.bench import first_step
from app.bench.result import Result
from app.cli.services import run_services
from app.records import RunEvent, StoredRun
from app.runs.launcher import checkout_environment
from app.runs.session import RunServices, RunSession
from app.storage.store import Store
from workloads import catalog
from workloads.catalog import Machine
from workloads.protocol import PROTOCOL_VERSION, Block, RunSpec, Start, encode

_PAIRS = 6
_SECONDS = 4.0
_OVERHEAD_S = 0.3
_STOP_S = 1.5
_BESIDE_IMPORT_S = 10.0
"""How long runs on GPUs measure by default; the next one's import goes on beside them."""


def measure() -> Sequence[Result]:
    """Throughput against the bare script, how soon a run measures, follows another, and is gone when stopped."""
    with tempfile.TemporaryDirectory() as folder, run_services(Path(folder) / "bench.db") as services:
        machine = services.feed.wait_inventory().machine
        return [
            _throughput(_spec("lstm", machine), services),
            _throughput(_spec("cnn10", machine), services),
            _overhead(_spec("lstm", machine, seconds=0.5), services),
            *first_step.results(_spec("lstm", machine, seconds=_BESIDE_IMPORT_S if machine.gpus else 0.5), services),
            _stop(_spec("lstm", machine, seconds=60.0), services),
        ]


def _spec(workload: str, machine: Machine, seconds: float = _SECONDS) -> RunSpec:
    return catalog.complete(workload, {"seconds": seconds}, machine)


def _throughput(spec: RunSpec, services: RunServices) -> Result:
    bare: list[float] = []
    ours: list[float] = []
    for pair in range(_PAIRS):
        # A B B A: drift falls on both.
        order = (bare, ours) if pair % 2 == 0 else (ours, bare)
        for figures in order:
            figures.append(_bare(spec, services) if figures is bare else _run(spec, services))
    return Result(
        name=f"{spec.workload} through run",
        value=statistics.median(ours),
        unit="examples/s",
        baseline=statistics.median(bare),
        limit=0.98,
        at_least=True,
    )


def _bare(spec: RunSpec, services: RunServices) -> float:
    gpus = services.feed.wait_inventory().machine.gpus[: int(spec.variant["gpus"])]
    start = Start(protocol=PROTOCOL_VERSION, spec=spec, gpu_uuids=tuple(gpu.uuid for gpu in gpus))
    done = subprocess.run(
        [sys.executable, "-m", "workloads.bare"],
        input=encode(start),
        capture_output=True,
        check=True,
        env=checkout_environment(),
    )
    return float(msgspec.json.decode(done.stdout.splitlines()[-1])["examples_per_s"])


def _run(spec: RunSpec, services: RunServices) -> float:
    throughput = _stored(spec, services).row.summary.throughput
    if throughput is None:
        raise RuntimeError("the benchmark's run measured nothing")
    return throughput


def _stored(spec: RunSpec, services: RunServices) -> StoredRun:
    session = RunSession(spec, services)
    session.run()
    if session.number is None:
        raise RuntimeError("the benchmark's run was not stored")
    with Store.open(services.database) as store:
        return store.load(session.number)


def _overhead(spec: RunSpec, services: RunServices) -> Result:
    """Seconds from the click to the first measured step that are not TensorFlow's import, build, compile or warm-up."""
    clicked_ns = time.monotonic_ns()
    run = _stored(spec, services)
    measured_ns = run.measure_start_ns
    if measured_ns is None:
        raise RuntimeError("the benchmark's run never reached its measured part")
    phases = [phase for phase in run.phases if phase.end_ns is not None and phase.end_ns <= measured_ns]
    own_s = sum((phase.end_ns or 0) - phase.start_ns for phase in phases) / 1e9
    overhead_s = (measured_ns - clicked_ns) / 1e9 - own_s
    return Result(name="click to first measured step, less the phases", value=overhead_s, unit="s", limit=_OVERHEAD_S)


@dataclass(slots=True)
class _StopAtFirstBlock:
    """Stops its session as soon as a measured block arrives, and notes when."""

    session: RunSession | None = None
    asked_s: float = 0.0

    def handle(self, event: RunEvent) -> None:
        if isinstance(event, Block) and event.phase == "measure" and not self.asked_s and self.session is not None:
            self.asked_s = time.monotonic()
            self.session.stop()


def _stop(spec: RunSpec, services: RunServices) -> Result:
    sink = _StopAtFirstBlock()
    sink.session = RunSession(spec, services, [sink])
    sink.session.run()
    return Result(name="stop to process gone", value=time.monotonic() - sink.asked_s, unit="s", limit=_STOP_S)
