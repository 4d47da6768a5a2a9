"""Made-up runs of experiments: a throughput per variant, as a machine with H200s would have stored it."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path

from app.analysis.comparability import used_gpus
from app.paths import program_version
from app.queries import ExperimentProgress, QueueEntry
from app.runs.environment import sources_hash
from app.runs.experiment.estimates import Experiment
from app.runs.experiment.queue import ExperimentReading
from app.runs.experiment.reuse import ReusableRuns
from app.runs.experiment.session import ExperimentSession, PlannedRun, QueueListener
from app.runs.host import Host
from app.runs.leases import Lease
from app.runs.session import RunServices
from app.telemetry.feed import TelemetryFeed
from app.values.environment_keys import SOURCES_KEY
from app.values.plan import Plan, encode_plan
from app.values.records import RunHeader, StoredRun
from app.values.samples import Inventory
from tests.unit.viewmodels.stored import run_row, stored_run
from workloads.catalog import Machine, recorded_variables
from workloads.protocol import Evidence, OutcomeName, RunSpec

Lend = Callable[[RunSpec, Sequence[str], Callable[[float], bool]], Lease | None]
Make = Callable[[PlannedRun], RunHeader]


class FakeSession(ExperimentSession):
    """A session of an experiment whose runs are made by functions; it never waits, and every run counts.

    Nothing is stored, and its machine is only pretended.
    """

    def __init__(
        self,
        plan: Plan,
        stored: Sequence[RunHeader],
        machine: Machine,
        make: Make,
        lend: Lend,
        wait: Callable[[PlannedRun, Callable[[], bool]], Mapping[str, str]] = lambda *_: {},
        counts: Callable[[RunHeader], bool] = lambda _: True,
        listener: QueueListener | None = None,
    ) -> None:
        entry = QueueEntry(
            entry=1,
            uid="",
            name=plan.name,
            preset=None,
            plan=encode_plan(plan),
            state="running",
            added_utc_ns=0,
            experiment=None,
            owned=True,
        )
        services = RunServices(database=Path("none"), host=Host(telemetry=TelemetryFeed()))
        super().__init__(entry, services, listener or QueueListener(), lambda: True)
        self._stored = stored
        self._pretended = machine
        self._make, self._lend, self._wait, self._counts = make, lend, wait, counts

    def read(self) -> ExperimentReading:
        experiment = Experiment.from_runs(self._plan, "stopped", self._stored, self._pretended)
        return ExperimentReading(
            experiment=experiment,
            progress=ExperimentProgress(planned=experiment.planned, done=experiment.done),
            reusable=ReusableRuns(runs=experiment.runs),
            alike=(),
            machine=self._pretended,
        )

    def prepare(self) -> None:
        pass

    def lease(self, spec: RunSpec, devices: Sequence[str], sleep_or_give_up: Callable[[float], bool]) -> Lease | None:
        return self._lend(spec, devices, sleep_or_give_up)

    def wait_until_idle(self, planned_run: PlannedRun) -> Mapping[str, str]:
        return self._wait(planned_run, self.may_continue)

    def run_once(self, planned_run: PlannedRun) -> RunHeader:
        return self._make(planned_run)

    def accept(self, run: RunHeader) -> bool:
        return self._counts(run)

    def try_weights(self, experiment: Experiment) -> Experiment:
        return experiment


ENVIRONMENT = {
    "driver": "580.1",
    "cpu": "A processor",
    "tensorflow": "2.21.0",
    "program_version": "0.1.0",
    **recorded_variables({}),
}


def result(
    number: int,
    spec: RunSpec,
    throughput: float | None = 1000.0,
    *,
    outcome: OutcomeName = "completed",
    match: bool | None = True,
    seconds: float = 20.0,
    environment: Mapping[str, str] = ENVIRONMENT,
) -> StoredRun:
    """Return a stored run of a variant, on as many H200s as it requests."""
    found = Evidence(
        requested={"layout": "NHWC"},
        actual={"layout": "NHWC" if match else "NCHW"},
        match=match,
        reason=None if match else "TensorFlow's layout optimizer turned NHWC into NCHW.",
        sources=("graph",),
        steps=1,
        span_ns=0,
        busy_ns=0,
        kernels=(),
    )
    row = run_row(
        number,
        workload=spec.workload,
        outcome=outcome,
        throughput=throughput if outcome == "completed" else None,
        gpu_names=("NVIDIA H200",) * int(spec.variant["gpus"]),
        seconds=seconds,
        found=found,
        gpus=spec.variant["gpus"],
    )
    return stored_run(
        replace(row, spec=spec), measured=outcome == "completed", environment=dict(environment), evidence=found
    )


def aged(run: StoredRun, age_s: float) -> StoredRun:
    """Return the run as if it had been made so long ago."""
    started_ns, row = time.time_ns() - int(age_s * 1e9), run.row
    length_ns = (row.ended_utc_ns or 0) - row.started_utc_ns
    return replace(run, row=replace(row, started_utc_ns=started_ns, ended_utc_ns=started_ns + length_ns))


def header(
    number: int,
    spec: RunSpec,
    throughput: float | None = 1000.0,
    *,
    outcome: OutcomeName = "completed",
    seconds: float = 20.0,
) -> RunHeader:
    """Return such a run without its measurements."""
    return header_of(result(number, spec, throughput, outcome=outcome, seconds=seconds))


def header_of(run: StoredRun) -> RunHeader:
    """Return what `Store.load_header` reads of a run."""
    return RunHeader(
        row=run.row,
        environment=run.environment,
        gpu_uuids=used_gpus(run),
        portability=run.portability,
        equality=run.equality,
    )


def environment_here(inventory: Inventory) -> dict[str, str]:
    """Return the environment of a run that this program made on that machine, so that experiments reuse it."""
    return {
        "driver": str(inventory.driver),
        "tensorflow": metadata.version("tensorflow"),
        "program_version": program_version(),
        SOURCES_KEY: sources_hash(),
    }
