"""Which file holds a run's weights, and where they can be tried on which machine."""

from pathlib import Path

import pytest

from app.errors import UserError
from app.runs.probes import _precisions
from app.runs.weight_transfer import transfer_targets, weights_file
from app.values.events import Outcome, Summary
from app.values.records import RunRow
from workloads.catalog import Gpu, Machine, UsageError, check, complete
from workloads.protocol import OutcomeName, RunSpec, Value

CPU = Machine(cpu_count=4)
GPU = Machine(gpus=(Gpu(index=0, uuid="GPU-a", name="NVIDIA H200", compute_capability=(9, 0)),), cpu_count=4)


def spec_of(machine: Machine = CPU, **given: Value) -> RunSpec:
    return complete("lstm", {"save_weights": True, **given}, machine)


def row(spec: RunSpec, outcome: OutcomeName | None = "completed") -> RunRow:
    return RunRow(
        run=3,
        uid="abc",
        started_utc_ns=0,
        ended_utc_ns=1,
        spec=spec,
        outcome=None if outcome is None else Outcome(name=outcome),
        summary=Summary(),
    )


def names(specs: tuple[RunSpec, ...]) -> list[str]:
    return [str(spec.variant["implementation"]) for spec in specs]


def test_weights_lie_beside_the_database_unless_they_were_moved() -> None:
    run = row(spec_of())
    assert weights_file(run, Path("/d/profiles.db"), None) == Path("/d/profiles.db.weights/abc.npz")
    assert weights_file(run, Path("/d/profiles.db"), Path("moved.npz")) == Path("moved.npz")


@pytest.mark.parametrize(
    ("run", "sentence"),
    [
        (
            row(spec_of(save_weights=False)),
            "Run 3 did not save its weights: run the variant again with -s save_weights",
        ),
        (row(spec_of(), "out_of_memory"), "Run 3 is out of memory, and weights are saved when a run completes"),
        (row(spec_of(), None), "Run 3 is still running"),
        (row(complete("dummy", {}, CPU)), "Run 3 is of dummy; only lstm, gru, cnn10 and wrn28-10 runs save"),
    ],
)
def test_a_run_without_weights_says_how_to_have_them(run: RunRow, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        weights_file(run, Path("profiles.db"), None)


def test_what_trained_on_a_gpu_is_tried_in_all_that_the_cpu_has() -> None:
    trained = spec_of(GPU, implementation="cudnn_stack", precision="tf32", devices="0", dropout=0.0, layers=2)
    wanted = transfer_targets(trained, [], 0, CPU)
    assert {"standard", "block_fused", "wavefront"} <= set(names(wanted.possible))
    assert set(wanted.excluded) == {"cudnn", "cudnn_stack"}
    assert all(check(spec, CPU) == () for spec in wanted.possible)
    variant = wanted.possible[0].variant
    assert (variant["precision"], variant["mode"], variant["gpus"]) == ("float32", "inference", 0)
    assert (variant["layers"], variant["units"]) == (2, 512), "the model stays as it is"


def test_what_training_alone_has_keeps_no_implementation_away() -> None:
    trained = spec_of(recurrent_dropout=0.5, precision="bfloat16", xla=True, cpu_threads=1)
    assert {"cudnn", "cudnn_stack", "block_fused"} <= set(names(transfer_targets(trained, [], 1, GPU).possible))


def test_how_several_gpus_of_pytorch_trained_keeps_no_implementation_away() -> None:
    gpus = tuple(Gpu(index=n, uuid=f"GPU-{n}", name="NVIDIA H200") for n in range(2))
    given: dict[str, Value] = {"framework": "pytorch", "gpus": 2, "all_reduce": "data_parallel", "batch_size": 8}
    trained = complete("lstm", {**given, "save_weights": True}, Machine(gpus=gpus, cpu_count=2))
    captured = {**trained.variant, "cuda_graph": True, "compile": True}
    found = transfer_targets(RunSpec(workload="lstm", variant=captured), [], 0, CPU)
    assert names(found.possible) == ["standard"]
    assert {"cudnn", "cudnn_stack", "gemm2"} <= set(found.excluded)


def test_what_is_named_must_be_possible() -> None:
    assert names(transfer_targets(spec_of(), ["gemm2", "standard"], 0, CPU).possible) == ["gemm2", "standard"]
    with pytest.raises(UserError, match="cuDNN needs an NVIDIA GPU"):
        transfer_targets(spec_of(), ["standard", "cudnn"], 0, CPU)
    with pytest.raises(UserError, match="shows no NVIDIA GPU"):
        transfer_targets(spec_of(), [], 1, CPU)
    with pytest.raises(UsageError, match="Did you mean block_fused"):
        transfer_targets(spec_of(), ["block_fusd"], 0, CPU)


def test_every_precision_that_a_machine_has_is_calibrated() -> None:
    assert _precisions(CPU, []) == ["float32", "bfloat16", "float16"]
    assert _precisions(GPU, []) == ["float32", "tf32", "bfloat16", "float16"]
    with pytest.raises(UserError, match="TF32 is a tensor-core format"):
        _precisions(CPU, ["float32", "tf32"])


def test_weights_of_an_image_network_are_tried_without_what_only_training_has() -> None:
    given: dict[str, Value] = {"epochs": 3, "data": "cifar10", "data_folder": "/elsewhere", "schedule": "cosine"}
    saving: dict[str, Value] = {"save_weights": True, "weights_from": "best", "augmentation": "none"}
    trained = complete("cnn10", {**given, **saving, "layout": "NHWC", "channels": 8}, CPU)
    targets = transfer_targets(trained, (), 0, CPU)
    assert [spec.variant["implementation"] for spec in targets.possible] == ["native", "keras"]
    assert not targets.excluded
    same: dict[str, Value] = {"mode": "inference", "layout": "NHWC", "channels": 8, "epochs": 0}
    assert targets.possible[0].variant.items() >= same.items()
