"""Benchmark `worker`: measure a run's throughput against a bare script, and how fast runs start, follow and stop.

Cold and standby workers take turns; each time a run follows another at once, as in an experiment.

Baseline: `python -m benchmarks.bare`, the same step without messages, telemetry or database, interleaved with runs.
"""

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from app.cli.run import run_services
from app.paths import python_environment
from app.runs.session import RunServices, RunSession
from app.runs.standby import StandbyLauncher
from app.values.events import RunEvent
from app.values.records import StoredRun
from benchmarks.harness import Result
from workloads import catalog
from workloads.catalog import Machine
from workloads.protocol import PROTOCOL_VERSION, Block, PhaseName, PhaseStarted, RunSpec, Start, encode

_TURNS = 3
_FIRST_STEP_S = 1.5
_GAP_S = 0.5


def first_step_results(spec: RunSpec, services: RunServices) -> Sequence[Result]:
    """Measure seconds from click to measuring without compiling, and from a run's end to the next one's build.

    On the CPU the standby worker imports before the first of two runs, which starts cold: no import runs during it.
    On a GPU the standby worker starts with the first run, as in an experiment.
    """
    cold: list[_ConsecutiveRun] = []
    warm: list[_ConsecutiveRun] = []
    with closing(StandbyLauncher(services.host.leases, lambda: True)) as launcher:
        standby = replace(services, host=replace(services.host, launcher=launcher))
        for _ in range(_TURNS):
            cold.append(_run_consecutive(spec, services, services))
            launcher.prepare()
            launcher.wait_ready()
            warm.append(_run_consecutive(spec, standby if int(spec.variant["gpus"]) else services, standby))
    return [
        _median("click to measuring less compiling, cold", [run.first_step_s for run in cold]),
        _median("click to measuring less compiling, standby", [run.first_step_s for run in warm], _FIRST_STEP_S),
        _median("last step to the next run's build, cold", [run.gap_s for run in cold]),
        _median("last step to the next run's build, standby", [run.gap_s for run in warm], _GAP_S),
    ]


@dataclass(frozen=True, slots=True)
class _ConsecutiveRun:
    """A run that followed another at once."""

    first_step_s: float
    gap_s: float


@dataclass(slots=True)
class _PhaseTimes:
    """A sink that notes when a run's phases began."""

    phases_ns: dict[PhaseName, int] = field(default_factory=dict)

    def handle(self, event: RunEvent) -> None:
        if isinstance(event, PhaseStarted):
            self.phases_ns[event.phase] = event.t_ns


def _run_consecutive(spec: RunSpec, first: RunServices, second: RunServices) -> _ConsecutiveRun:
    before, watch = _PhaseTimes(), _PhaseTimes()
    RunSession(spec, first, [before]).run()
    clicked_ns = time.monotonic_ns()
    RunSession(spec, second, [watch]).run()
    began = watch.phases_ns
    if "measure" not in began:
        raise RuntimeError("the benchmark's run never reached its measured part")
    compiling_ns = began["warmup"] - began["compile"]
    return _ConsecutiveRun(
        first_step_s=(began["measure"] - clicked_ns - compiling_ns) / 1e9,
        gap_s=(began["build"] - before.phases_ns["finish"]) / 1e9,
    )


def _median(name: str, seconds: Sequence[float], limit: float | None = None) -> Result:
    return Result(name=name, value=statistics.median(seconds), unit="s", limit=limit)


_PAIRS = 6
_SECONDS = 4.0
_OVERHEAD_S = 0.3
_STOP_S = 1.5
_CONCURRENT_IMPORT_S = 10.0
"""Seconds that runs on GPUs measure by default; the next worker imports during them."""


def measure() -> Sequence[Result]:
    """Measure throughput against the bare script, the start of a run, the gap to the next, and the time to stop."""
    with tempfile.TemporaryDirectory() as folder, run_services(Path(folder) / "bench.db") as services:
        machine = services.host.machine
        return [
            _throughput(_spec("lstm", machine), services),
            _throughput(_spec("cnn10", machine), services),
            _overhead(_spec("lstm", machine, seconds=0.5), services),
            *first_step_results(
                _spec("lstm", machine, seconds=_CONCURRENT_IMPORT_S if machine.gpus else 0.5), services
            ),
            _stop(_spec("lstm", machine, seconds=60.0), services),
        ]


def _spec(workload: str, machine: Machine, seconds: float = _SECONDS) -> RunSpec:
    return catalog.complete(workload, {"seconds": seconds}, machine)


def _throughput(spec: RunSpec, services: RunServices) -> Result:
    bare: list[float] = []
    program: list[float] = []
    for pair in range(_PAIRS):
        # A B B A: drift affects both alike.
        order = (bare, program) if pair % 2 == 0 else (program, bare)
        for figures in order:
            figures.append(_bare(spec, services) if figures is bare else _run(spec, services))
    return Result(
        name=f"{spec.workload} through run",
        value=statistics.median(program),
        unit="examples/s",
        baseline=statistics.median(bare),
        limit=0.98,
        at_least=True,
    )


def _bare(spec: RunSpec, services: RunServices) -> float:
    gpus = services.host.machine.gpus[: int(spec.variant["gpus"])]
    start = Start(protocol=PROTOCOL_VERSION, spec=spec, gpu_uuids=tuple(gpu.uuid for gpu in gpus))
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.bare"],
        input=encode(start),
        capture_output=True,
        check=True,
        env=python_environment(),
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
    if session.stored is None:
        raise RuntimeError("the benchmark's run was not stored")
    return session.stored


def _overhead(spec: RunSpec, services: RunServices) -> Result:
    """Measure the seconds from click to the first measured step outside import, build, compile and warm-up."""
    clicked_ns = time.monotonic_ns()
    run = _stored(spec, services)
    measured_ns = run.measure_start_ns
    if measured_ns is None:
        raise RuntimeError("the benchmark's run never reached its measured part")
    phases = [phase for phase in run.phases if phase.end_ns is not None and phase.end_ns <= measured_ns]
    phases_s = sum((phase.end_ns or 0) - phase.start_ns for phase in phases) / 1e9
    overhead_s = (measured_ns - clicked_ns) / 1e9 - phases_s
    return Result(name="click to first measured step, less the phases", value=overhead_s, unit="s", limit=_OVERHEAD_S)


@dataclass(slots=True)
class _StopAtFirstBlock:
    """A sink that stops its session as soon as a measured block arrives, and notes when."""

    session: RunSession | None = None
    requested_s: float = 0.0

    def handle(self, event: RunEvent) -> None:
        if isinstance(event, Block) and event.phase == "measure" and not self.requested_s and self.session is not None:
            self.requested_s = time.monotonic()
            self.session.stop()


def _stop(spec: RunSpec, services: RunServices) -> Result:
    sink = _StopAtFirstBlock()
    sink.session = RunSession(spec, services, [sink])
    sink.session.run()
    return Result(name="stop to process gone", value=time.monotonic() - sink.requested_s, unit="s", limit=_STOP_S)
