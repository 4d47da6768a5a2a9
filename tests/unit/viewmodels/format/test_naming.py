"""Names of variants, runs and GPUs."""

import shlex
from dataclasses import replace

import pytest

from app.analysis.effects import step_differences
from app.viewmodels.format.naming import (
    differing_parameters,
    experiment_name,
    format_gpu_counts,
    parameter_label,
    run_command,
    shared_settings,
    short_gpu_name,
    short_name,
    variant_names,
)
from tests.unit.viewmodels.stored import run_row, stored_run
from workloads.catalog import Gpu, Machine, complete, with_defaults
from workloads.protocol import RunSpec, Value

MIXED = ("NVIDIA H200", "NVIDIA GeForce RTX 4090", "NVIDIA H200")


def test_cards_of_each_name_are_counted_in_the_order_they_come_without_maker_and_brand() -> None:
    assert [short_gpu_name(name) for name in MIXED[:2]] == ["H200", "RTX 4090"]
    assert format_gpu_counts(MIXED) == "2× H200, 1× RTX 4090"
    assert format_gpu_counts(()) == ""
    assert format_gpu_counts(MIXED, separator=" + ", single_prefix="") == "2× H200 + RTX 4090"


MACHINE = Machine(gpus=(Gpu(index=0, uuid="a", name="H200"), Gpu(index=1, uuid="b", name="H200")), cpu_count=8)


ON_CPU = "lstm TensorFlow Standard · CPU · batch 32"


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        (
            complete("cnn10", {"gpus": 2, "precision": "bfloat16", "xla": True}, MACHINE),
            "cnn10 TensorFlow Native NCHW · 2 GPUs · batch 1024 · bfloat16 · XLA",
        ),
        (complete("lstm", {}, Machine()), ON_CPU),
        (complete("lstm", {"layers": 4}, MACHINE), "lstm TensorFlow cuDNN · 1 GPU · batch 64 · layers 4"),
        (RunSpec(workload="mine", variant={"gpus": 1, "depth": 3}), "mine TensorFlow · 1 GPU · depth 3"),
        (complete("lstm", {"seconds": 3, "seed": 7}, Machine()), ON_CPU),
    ],
)
def test_a_name_says_what_runs_where_and_what_is_unusual_and_not_what_is_measured_and_kept(
    spec: RunSpec, name: str
) -> None:
    assert short_name(spec) == name


def test_an_experiment_names_the_value_that_is_empty() -> None:
    specs = [complete("lstm", {"packages": packages}, Machine()) for packages in ("", "six==1.16.0")]
    assert experiment_name(specs) == "lstm: Packages none, six==1.16.0"
    specs = [complete("lstm", {"interpreter": path}, Machine()) for path in ("", "/envs/tf216")]
    assert experiment_name(specs) == "lstm: Python own, …/tf216"


def test_an_experiment_is_named_by_what_varies_and_by_what_is_not_as_usual() -> None:
    layouts = [complete("cnn10", {"layout": layout, "batch_size": 16}, MACHINE) for layout in ("NHWC", "NCHW")]
    assert experiment_name(layouts) == "cnn10: Layout NHWC, NCHW · batch size 16"
    assert experiment_name([complete("cnn10", {"layout": layout}, MACHINE) for layout in ("NHWC", "NCHW")]) == (
        "cnn10: Layout NHWC, NCHW"
    )


def test_another_python_is_named_by_its_folder() -> None:
    paths = ("", "/envs/TF216", "/envs/tf219/bin/python", "/mine/.venv", "/usr/bin/python3.12", "tf219")
    specs = [complete("lstm", {"interpreter": path}, Machine()) for path in paths]
    names = [
        "own Python",
        "Python …/TF216",
        "Python …/tf219",
        "Python …/mine/.venv",
        "Python …/python3.12",
        "Python tf219",
    ]
    assert variant_names(specs) == names
    assert short_name(specs[1]) == "lstm TensorFlow Standard · CPU · batch 32 · Python …/TF216"


def test_packages_are_named_as_they_were_typed() -> None:
    specs = [complete("lstm", {"packages": packages}, Machine()) for packages in ("", "torch==2.9.1 numpy<2")]
    assert variant_names(specs) == ["No packages", "Packages torch==2.9.1 numpy<2"]
    assert short_name(specs[1]).endswith(" · packages torch==2.9.1 numpy<2")


def test_a_run_older_than_a_parameter_is_named_and_told_apart_as_if_it_had_its_default() -> None:
    new = complete("lstm", {"gpus": 1, "bidirectional": True}, MACHINE)
    old = with_defaults(RunSpec(workload="lstm", variant={"gpus": 1, "batch_size": 64}))
    assert short_name(old) == "lstm TensorFlow cuDNN · 1 GPU · batch 64"
    assert differing_parameters([old, new]) == ["bidirectional"]
    assert variant_names([old, new]) == ["Bidirectional off", "Bidirectional on"]
    assert shared_settings([old, new]) == "lstm · cuDNN · 1 GPU · Batch size 64 · float32"


def test_two_cards_are_told_apart_by_the_beginning_of_their_uuids() -> None:
    cards = ("GPU-0f9e5287-edb2-c8c9-1256-8f3cfce86682", "GPU-aecba51d-2b55-8e10-305a-1f850af2323a")
    specs = [
        RunSpec(workload="lstm", variant={"implementation": "cudnn", "gpus": 1, "devices": card}) for card in cards
    ]
    assert variant_names(specs) == ["on GPU-0f9e5287", "on GPU-aecba51d"]


def test_how_long_is_measured_is_named_only_of_those_that_nothing_else_tells_apart() -> None:
    variants = (("NHWC", 10), ("NHWC", 20), ("NCHW", 20))
    specs = [
        complete("cnn10", {"gpus": 0, "layout": layout, "warmup_steps": steps}, Machine()) for layout, steps in variants
    ]
    assert variant_names(specs) == ["NHWC · Warm-up steps 10", "NHWC · Warm-up steps 20", "NCHW"]
    assert short_name(specs[0]) == short_name(specs[1])


def test_of_many_differences_those_at_their_default_are_not_named() -> None:
    settings: list[dict[str, Value]] = [
        {},
        {"implementation": "block_fused"},
        {"layers": 4, "mode": "inference"},
        {"batch_size": 64, "bidirectional": True},
        {"timesteps": 25},
    ]
    specs = [complete("lstm", {"gpus": 0, **each}, Machine()) for each in settings]
    assert variant_names(specs) == [
        "Standard · Batch size 32",
        "Block-fused · Batch size 32",
        "Standard · Layers 4 · Batch size 32 · Inference",
        "Standard · Bidirectional on · Batch size 64",
        "Standard · Time steps 25 · Batch size 32",
    ]
    assert variant_names([specs[0], specs[2]]) == ["Layers 1 · Train", "Layers 4 · Inference"]


def test_a_switch_that_is_off_is_named_only_where_a_variant_has_no_other_name() -> None:
    def names(*settings: dict[str, Value]) -> list[str]:
        return variant_names([complete("cnn10", {"gpus": 1, **each}, MACHINE) for each in settings])

    assert names({"batch_size": 128}, {"batch_size": 256, "xla": True}, {"gpus": 2, "all_reduce": "hierarchical"}) == [
        "1 GPU · Batch size 128",
        "1 GPU · Batch size 256 · XLA on",
        "2 GPUs · Batch size 1024 · Hierarchical copy",
    ]
    switches = names({}, {"xla": True}, {"xla": True, "layout_optimizer": True})
    assert switches[0] == "XLA off · Layout optimizer off"


def test_what_a_framework_does_not_have_is_in_no_name_and_no_difference() -> None:
    tensorflow, compiled, torch, jax = (
        complete("lstm", {"implementation": "standard", **given}, MACHINE)
        for given in ({}, {"xla": True}, {"framework": "pytorch"}, {"framework": "jax"})
    )
    assert variant_names([jax, compiled]) == ["JAX", "TensorFlow · XLA on"]
    assert variant_names([jax, tensorflow]) == ["JAX", "TensorFlow"]
    assert variant_names([torch, compiled]) == ["PyTorch", "TensorFlow · XLA on"]
    assert variant_names([tensorflow, compiled, jax]) == ["TensorFlow", "TensorFlow · XLA on", "JAX"]
    assert step_differences(jax, compiled) == ["framework"]
    assert step_differences(tensorflow, compiled) == ["xla"]
    assert differing_parameters([jax, tensorflow]) == ["framework"]
    assert "XLA" not in shared_settings([compiled, jax])
    wider = RunSpec(workload="lstm", variant={**compiled.variant, "units": 256})
    assert "XLA on" in shared_settings([compiled, wider])


def test_variants_of_one_workload_are_not_told_apart_from_those_of_another() -> None:
    image = [complete("cnn10", {"gpus": 0, "layout": layout}, Machine()) for layout in ("NHWC", "NCHW")]
    specs = [*image, *(complete("lstm", {"gpus": 0, "batch_size": size}, Machine()) for size in (8, 16))]
    assert variant_names(specs) == [
        "cnn10 · Native · NHWC",
        "cnn10 · Native · NCHW",
        "lstm · Standard · Batch size 8",
        "lstm · Standard · Batch size 16",
    ]


def test_a_workload_of_the_user_s_own_is_named_by_what_its_file_adds_and_by_the_state_of_it() -> None:
    variant = {**complete("dummy", {}, Machine()).variant, "units": 8, "source": "ab" * 32}
    del variant["behaviour"], variant["step_ms"], variant["fitting_batch_size"], variant["data"]
    before = RunSpec(workload="mlp.py:mlp", variant=variant)
    after = RunSpec(workload="mlp.py:mlp", variant={**variant, "source": "cd" * 32})
    assert short_name(before) == "mlp.py:mlp TensorFlow · CPU · batch 8 · units 8"
    assert differing_parameters([before, after]) == ["source"]
    assert variant_names([before, after]) == ["source abababab", "source cdcdcdcd"]


@pytest.mark.parametrize(
    ("given", "ending"),
    [
        ({"data": "cifar10"}, " · data CIFAR-10"),
        ({"data": "stand_in"}, " · data stand-in"),
        ({"all_reduce": "data_parallel", "gpus": 2}, " · all-reduce DataParallel"),
        ({"all_reduce": "hierarchical", "gpus": 2}, " · all-reduce hierarchical copy"),
        ({"framework": "pytorch", "gpus": 1, "layout": "NHWC", "cuda_graph": True}, " · CUDA graph"),
    ],
)
def test_a_value_that_is_a_name_keeps_its_capitals(given: dict[str, Value], ending: str) -> None:
    assert short_name(complete("cnn10", given, Machine())).endswith(ending)


def test_the_command_of_a_stored_run_names_the_file_of_one_s_own_workload() -> None:
    spec = RunSpec(workload="mlp.py:mlp", variant={"gpus": 0, "units": 8, "source": "ab" * 32})
    run = stored_run(replace(run_row(1), spec=spec), environment={"own_path": "/mine/mlp.py"})
    assert run_command(run) == "python -m app run /mine/mlp.py:mlp -s gpus=0 -s units=8"


@pytest.mark.parametrize(
    ("workload", "path", "word"),
    [
        ("lstm", "/theirs/evil.py", "lstm"),
        ("evil.py:net", "--on=sh:?python=./evil", "evil.py:net"),
        ("evil.py:net", "evil.py", "evil.py:net"),
        ("--on=evil.py:net", "", "./--on=evil.py:net"),
    ],
)
def test_a_copied_command_has_no_file_or_option_that_the_run_s_author_put_there(
    workload: str, path: str, word: str
) -> None:
    run = stored_run(
        replace(run_row(1), spec=RunSpec(workload=workload, variant={"gpus": 0})), environment={"own_path": path}
    )
    assert shlex.split(run_command(run)) == ["python", "-m", "app", "run", word, "-s", "gpus=0"]


def test_a_parameter_without_a_label_has_one_made_of_its_name() -> None:
    spec = RunSpec(workload="no_longer_known", variant={"hidden_units": 64, "_": 1})
    assert parameter_label(spec, "hidden_units") == "Hidden units"
    assert parameter_label(spec, "_") == "_"
    assert parameter_label(spec, "cuda_graph") == "CUDA graph", "as of workloads that have it: a script shows it, too"
