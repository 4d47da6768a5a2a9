"""Made-up runs of experiments: a throughput per variant, as a machine with H200s would have stored it."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import metadata

from app.environment_keys import SOURCES_KEY
from app.paths import program_version
from app.records import RunHeader, StoredRun
from app.runs.environment import sources_hash
from app.runs.experiment.session import PlannedRun
from app.runs.leases import Lease
from app.samples import Inventory
from tests.unit.viewmodels.stored import run_row, stored_run
from workloads.catalog import FRAMEWORK
from workloads.protocol import Evidence, OutcomeName, RunSpec

Lend = Callable[[RunSpec, Sequence[str], Callable[[float], bool]], Lease | None]
Make = Callable[[PlannedRun], RunHeader]


@dataclass(frozen=True)
class FakeExecutor:
    """The executor of an experiment's session, made of functions; it never waits, and every run counts."""

    make: Make
    lend: Lend
    wait: Callable[[PlannedRun, Callable[[], bool]], Mapping[str, str]] = lambda *_: {}
    counts: Callable[[RunHeader], bool] = lambda _: True

    def prepare(self, may_continue: Callable[[], bool]) -> None:
        pass

    def lease(self, spec: RunSpec, devices: Sequence[str], sleep_or_give_up: Callable[[float], bool]) -> Lease | None:
        return self.lend(spec, devices, sleep_or_give_up)

    def wait_until_idle(self, planned_run: PlannedRun, may_continue: Callable[[], bool]) -> Mapping[str, str]:
        return self.wait(planned_run, may_continue)

    def run_once(self, planned_run: PlannedRun) -> RunHeader:
        return self.make(planned_run)

    def accept(self, run: RunHeader) -> bool:
        return self.counts(run)


ENVIRONMENT = {
    "driver": "580.1",
    "cpu": "A processor",
    "tensorflow": "2.21.0",
    "program_version": "0.1.0",
    **FRAMEWORK.variables({}),
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
    return result(number, spec, throughput, outcome=outcome, seconds=seconds).header


def environment_here(inventory: Inventory) -> dict[str, str]:
    """Return the environment of a run that this program made on that machine, so that experiments reuse it."""
    return {
        "driver": str(inventory.driver),
        "tensorflow": metadata.version("tensorflow"),
        "program_version": program_version(),
        SOURCES_KEY: sources_hash(),
    }
