"""Runs whose saved weights are tried: which one it is, which trials it has, and when it has to be made again."""

from dataclasses import replace
from pathlib import Path

from app.paths import weights_path
from app.runs.weight_transfer import latest_trial, run_to_transfer, runs_with_weights
from app.values.plan import Plan, WeightTransfer
from app.values.records import PortabilityResult, RunHeader
from tests.fakes.experiments import header
from tests.present import present
from workloads.catalog import Machine, complete

CPU = Machine(cpu_count=4)
SPEC = complete("lstm", {"gpus": 0, "save_weights": True}, CPU)
OTHER = complete("lstm", {"gpus": 0}, CPU)
TRANSFER = WeightTransfer(spec=SPEC, into=("standard", "fused"), gpus=0)
PLAN = Plan(name="one", variants=(OTHER,), repeats=2, weight_transfers=(TRANSFER,))


def trial(implementation: str, device: str = "cpu", difference: float = 1e-7) -> PortabilityResult:
    return PortabilityResult(
        utc_ns=1,
        implementation=implementation,
        device=device,
        device_name="A device",
        precision="float32",
        max_difference=difference,
        max_output=1.0,
    )


def tried(number: int, *trials: PortabilityResult) -> RunHeader:
    return replace(header(number, SPEC), portability=trials)


def test_it_is_the_newest_completed_run_of_the_variant() -> None:
    runs = [header(1, SPEC), header(2, SPEC), header(3, SPEC, outcome="failed"), header(4, OTHER)]
    assert present(run_to_transfer(TRANSFER, runs)).row.run == 2
    assert run_to_transfer(TRANSFER, runs[2:]) is None


def test_a_trial_is_the_newest_on_that_kind_of_device() -> None:
    run = tried(1, trial("standard", difference=0.5), trial("standard"), trial("standard", "GPU-0", 0.25))
    on_cpu, on_gpu = (latest_trial(run, "standard", gpus) for gpus in (0, 1))
    assert on_cpu is not None
    assert on_gpu is not None
    assert (on_cpu.max_difference, on_gpu.max_difference) == (1e-7, 0.25)
    assert latest_trial(run, "fused", 0) is None


def test_a_run_whose_weights_are_gone_counts_only_when_all_was_tried(database_path: Path) -> None:
    other, half, whole = header(1, OTHER), tried(2, trial("standard")), tried(2, trial("standard"), trial("fused"))
    assert runs_with_weights(PLAN, (other, half), database_path) == (other,)
    assert runs_with_weights(PLAN, (other, whole), database_path) == (other, whole)
    path = weights_path(database_path, half.row.uid)
    path.parent.mkdir()
    path.touch()
    assert runs_with_weights(PLAN, (other, half), database_path) == (other, half)
