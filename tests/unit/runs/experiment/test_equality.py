"""When an experiment checks its variants, what it says, and what its runs store; the jobs' results are made up."""

import json
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from app.cli.main import main
from app.runs.experiment.equality import ExperimentEquality, costs_little
from app.runs.experiment.estimates import Experiment
from app.runs.jobs import JobError
from app.runs.leases import Leases
from app.runs.session import RunServices
from app.storage.store import Store
from app.values.plan import Plan
from app.values.records import EqualityCheck
from tests.fakes.experiments import header
from tests.fakes.runs import begin
from workloads.catalog import Machine, complete
from workloads.job_protocol import ComputedGradients, ComputeGradients
from workloads.protocol import RunSpec, Value

CPU = Machine(cpu_count=4)


def spec(workload: str = "lstm", **given: Value) -> RunSpec:
    return complete(workload, {"gpus": 0, **given}, CPU)


STANDARD, FUSED, GEMM2 = (spec(implementation=name) for name in ("standard", "fused", "gemm2"))
PLAN = Plan(name="three", variants=(STANDARD, FUSED, GEMM2), repeats=3)


@dataclass
class MadeUpHost:
    """A host whose jobs write the gradient of their implementation."""

    folder: Path
    gradients: dict[str, float] = field(default_factory=dict)
    losses: tuple[float, ...] = (1.0, 1.0)
    batch: tuple[float, ...] = (0.5,)
    requests: list[ComputeGradients] = field(default_factory=list)
    machine: Machine = CPU
    name = ""
    is_played = False

    def refusal(self, _spec: RunSpec) -> None:
        """Refuse nothing."""

    def lease_for_run(self, spec: RunSpec, **_: Any) -> Any:
        return Leases(self.folder).take(["cpu"], 1)

    def run_job(self, request: ComputeGradients, _type: type, is_overdue: Callable[[], bool]) -> ComputedGradients:
        name = str(request.spec.variant["implementation"])
        self.requests.append(request)
        assert Leases(self.folder).take(["cpu"], 1) is None, "the job has the device to itself"
        if is_overdue():
            raise TimeoutError
        if name == "wavefront":
            raise JobError("The GPU's memory is full.\nTraceback …")
        value = np.array([1.0, self.gradients.get(name, 1.0)], np.float32)
        np.savez(request.path, names=np.array(["kernel"]), gradient0=value)
        is_first = request.start_path is None
        return ComputedGradients(
            losses=(1.0, 1.0) if is_first else self.losses, batch=(0.5,) if is_first else self.batch
        )


@pytest.fixture
def host(tmp_path: Path) -> MadeUpHost:
    return MadeUpHost(tmp_path)


def checks(
    plan: Plan, host: MadeUpHost, database: Path, *, going_on: bool = True
) -> tuple[ExperimentEquality, list[str]]:
    said: list[str] = []
    services = RunServices(database=database, host=host)  # type: ignore[arg-type]
    found = ExperimentEquality(Experiment.from_runs(plan, "stopped", [], CPU), services, said.append)
    found.make(lambda: going_on)
    return found, [sentence.replace("\xa0", " ") for sentence in said]


def test_it_is_made_by_default_where_it_costs_at_most_a_quarter() -> None:
    assert costs_little(PLAN)
    assert not costs_little(structs.replace(PLAN, repeats=2))
    assert not costs_little(structs.replace(PLAN, variants=tuple(spec(seconds=seconds) for seconds in (5, 6))))
    assert not costs_little(structs.replace(PLAN, variants=tuple(spec(steps=steps) for steps in (5, 6))))


@pytest.mark.parametrize(
    ("plan", "jobs"),
    [
        (PLAN, 3),
        (structs.replace(PLAN, repeats=1), 0),
        (structs.replace(PLAN, repeats=1, check_equality=True), 3),
        (structs.replace(PLAN, check_equality=False), 0),
        (structs.replace(PLAN, variants=(spec("dummy"), spec("dummy", step_ms=3.0)), check_equality=True), 0),
        (structs.replace(PLAN, variants=(STANDARD, spec(implementation="cudnn"))), 0),
    ],
    ids=["cheap", "slow", "wanted", "unwanted", "nothing computed", "cannot run here"],
)
def test_when_it_is_made(plan: Plan, jobs: int, host: MadeUpHost, database_path: Path) -> None:
    _, said = checks(plan, host, database_path)
    assert len(host.requests) == jobs
    assert bool(said) is bool(jobs)


def test_all_start_from_the_baseline_s_weights_and_each_run_stores_its_check(
    host: MadeUpHost, database_path: Path
) -> None:
    host.gradients["gemm2"] = 1.5
    found, said = checks(PLAN, host, database_path)
    first, *others = host.requests
    assert (first.start_path, [other.start_path for other in others]) == (None, [first.path] * 2)
    assert said == [
        "Checking that the variants compute the same …",
        "1 variant computes the same as the baseline: loss equal, gradients equal.",
        (
            "implementation=gemm2 does not compute the same as the baseline: loss equal and gradients off by 35 % "
            "(kernel). Rounding explains 1.0e-05 and 1.0e-04."
        ),
    ]
    with Store.open(database_path) as store:
        for number, each in enumerate((STANDARD, FUSED, GEMM2), 1):
            found.store(begin(store, uid=f"uid-{number}", spec=each), each)
        stored = [store.load(run).equality for run in (1, 2, 3)]
    assert stored[0] == ()
    assert [(check.baseline, check.difference) for of_run in stored[1:] for check in of_run] == [
        (STANDARD.variant, 0.0),
        (STANDARD.variant, pytest.approx(0.5 / 2**0.5)),
    ]


def test_a_variant_that_a_stored_run_has_a_check_of_is_not_checked_again(host: MadeUpHost, database_path: Path) -> None:
    known = EqualityCheck(utc_ns=5, baseline=STANDARD.variant, loss_difference=0.0, difference=0.25, tensor="kernel")
    failed = EqualityCheck(utc_ns=6, baseline=STANDARD.variant, reason="it took longer than 10 minutes")
    runs = [replace(header(1, FUSED), equality=(known, failed)), replace(header(2, GEMM2), equality=(failed,))]
    services = RunServices(database=database_path, host=host)  # type: ignore[arg-type]
    found = ExperimentEquality(Experiment.from_runs(PLAN, "stopped", runs, CPU), services, lambda _: None)
    found.make(lambda: True)
    assert [request.spec.variant["implementation"] for request in host.requests] == ["standard", "gemm2"]
    with Store.open(database_path) as store:
        found.store(begin(store, spec=FUSED), FUSED)
        assert store.load(1).equality == (known,)


@pytest.mark.parametrize(
    ("variant", "changes", "reason"),
    [
        (spec(batch_size=8), {}, "batch_size=8 computes the same: they differ in batch size."),
        (spec(implementation="wavefront"), {}, "implementation=wavefront computes the same: The GPU's memory is full."),
        (FUSED, {"losses": (1.0, 1.1)}, "the loss of one batch changes from step to step, as with random masks."),
        (FUSED, {"batch": (0.6,)}, "its batch is another one."),
    ],
    ids=["other work", "failed", "random", "other data"],
)
def test_what_cannot_be_compared_is_said_and_costs_nothing(
    variant: RunSpec, changes: dict[str, Any], reason: str, host: MadeUpHost, database_path: Path
) -> None:
    plan = structs.replace(PLAN, variants=(STANDARD, variant))
    found, said = checks(plan, replace(host, **changes), database_path)
    assert said[1].startswith("Not checked whether ")
    assert said[1].endswith(reason)
    with Store.open(database_path) as store:
        found.store(begin(store, spec=variant), variant)
        (check,) = store.load(1).equality
    assert (check.difference, bool(check.reason)) == (None, True)


def test_a_stop_ends_it_without_a_result(host: MadeUpHost, database_path: Path) -> None:
    _, said = checks(PLAN, host, database_path, going_on=False)
    assert (len(host.requests), said) == (1, ["Checking that the variants compute the same …"])
    assert Leases(host.folder).take(["cpu"], 1) is not None


def test_the_command_checks_stored_runs_and_stores_what_came_of_it(
    host: MadeUpHost, database_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    host.gradients["fused"] = 2.0
    services = RunServices(database=database_path, host=host)  # type: ignore[arg-type]
    monkeypatch.setattr("app.cli.run.run_services", lambda _, on: nullcontext(services))
    with Store.open(database_path) as store:
        for uid, variant in (("uid-1", STANDARD), ("uid-2", FUSED)):
            begin(store, uid=uid, spec=variant)
        assert main(["check-equal", "2", "1", "--json", "--db", str(database_path)]) == 1
        (check,) = json.loads(capsys.readouterr().out)["checks"]
        assert (check["runs"], check["state"]) == ([1], "differs")
        (stored,) = store.load(1).equality
        assert (stored.baseline["implementation"], stored.difference) == ("fused", check["difference"])
        assert store.load(2).equality == ()
    assert main(["check-equal", "1", "--db", str(database_path)]) == 2
    assert "takes runs of two variants or more" in capsys.readouterr().err
