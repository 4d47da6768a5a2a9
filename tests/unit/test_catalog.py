"""The catalog: complete variants, plain sentences for wrong use, reasons for what cannot run."""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from tests.parameter_docs import PAGE, page
from workloads import catalog
from workloads.catalog import Gpu, Machine, UsageError, check, complete, parse, refusal_reason, with_defaults, workload
from workloads.framework import FRAMEWORKS
from workloads.protocol import RunSpec, Value
from workloads.recurrent_layers import LSTM_IMPLEMENTATIONS
from workloads.schema import Parameter

NO_GPU = Machine(cpu_count=2)
TWO_GPUS = Machine(
    gpus=tuple(Gpu(index=n, uuid=f"GPU-{n}", name="H200", compute_capability=(9, 0)) for n in range(2)), cpu_count=32
)
HIDDEN = Machine(gpus=TWO_GPUS.gpus[:1], hidden_by="CUDA_VISIBLE_DEVICES=0")
FOUR_GPUS = Machine(gpus=tuple(Gpu(index=n, uuid=f"GPU-{n}", name="H200") for n in range(4)), cpu_count=32)
MIG = Machine(gpus=tuple(Gpu(index=n, uuid=f"MIG-{n}", name="H200 MIG") for n in range(2)), cpu_count=8)
SMALL_GPU = Machine(gpus=(Gpu(index=0, uuid="GPU-0", name="A2000", memory_total_bytes=11 << 30),), cpu_count=8)
OLD_GPU = Machine(gpus=(Gpu(index=0, uuid="GPU-0", name="V100", compute_capability=(7, 0)),), cpu_count=8)


def reasons(machine: Machine, name: str, **given: Value) -> list[str]:
    return [refusal.reason for refusal in check(complete(name, given, machine), machine)]


@pytest.mark.parametrize("name", [w.name for w in catalog.WORKLOADS])
@pytest.mark.parametrize("machine", [NO_GPU, TWO_GPUS, OLD_GPU], ids=["cpu", "two", "old"])
def test_every_default_runs(name: str, machine: Machine) -> None:
    assert reasons(machine, name) == []


@pytest.mark.parametrize("name", [w.name for w in catalog.WORKLOADS])
def test_every_default_is_within_its_own_limits(name: str) -> None:
    for machine in (NO_GPU, TWO_GPUS):
        spec = complete(name, {}, machine)
        assert complete(name, spec.variant, machine) == spec
        assert set(spec.variant) == {parameter.name for parameter in workload(name).parameters}


def test_the_page_of_parameters_is_made_from_the_catalog() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "make it anew with: python -m tests.parameter_docs"


def test_the_guide_to_the_lstm_lists_every_implementation() -> None:
    guide = (PAGE.parent / "workloads.md").read_text(encoding="utf-8").partition("\n## LSTM\n")[2]
    rows = [line.split("`")[1] for line in guide.partition("## ")[0].splitlines() if line.startswith("| `")]
    assert sorted(rows) == sorted(each.name for each in LSTM_IMPLEMENTATIONS)


def test_defaults_follow_the_machine() -> None:
    assert complete("lstm", {}, NO_GPU).variant["implementation"] == "standard"
    assert complete("lstm", {}, TWO_GPUS).variant["implementation"] == "cudnn"
    assert complete("lstm", {"gpus": 0}, TWO_GPUS).variant["implementation"] == "standard"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"layot": "NCHW"}, "layout"),
        ({"layout": "NCWH"}, "NCHW"),
        ({"batch_size": 0}, "from 1 to"),
        ({"batch_size": 1.5}, "a whole number"),
        ({"batch_size": True}, "a whole number"),
        ({"batch_size": float("inf")}, "from 1 to"),
        ({"seconds": float("nan")}, "seconds must be"),
        ({"seconds": "long"}, "a number"),
        ({"xla": 1}, "true or false"),
    ],
)
def test_wrong_use_is_one_sentence_with_what_is_right(given: dict[str, Value], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        complete("cnn10", given, NO_GPU)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_unknown_workload_names_the_near_one_and_never_the_hidden() -> None:
    with pytest.raises(UsageError, match="Did you mean cnn10"):
        workload("cnn")
    with pytest.raises(UsageError) as caught:
        workload("transformer")
    assert "dummy" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("xla", "on", True),
        ("xla", "FALSE", False),
        ("seconds", "2.5", 2.5),
        ("gpus", " 2 ", 2),
        ("layout", "NHWC", "NHWC"),
        ("precision", "FP16", "float16"),
    ],
)
def test_words_of_the_command_line(name: str, text: str, value: Value) -> None:
    parsed = parse(workload("cnn10").parameter(name), text)
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(("name", "text"), [("gpus", "two"), ("gpus", "1e3"), ("seconds", "inf"), ("xla", "maybe")])
def test_words_that_stand_for_nothing(name: str, text: str) -> None:
    with pytest.raises(UsageError, match=name):
        parse(workload("cnn10").parameter(name), text)


@pytest.mark.parametrize(
    ("machine", "name", "given", "words"),
    [
        (NO_GPU, "cnn10", {"gpus": 1}, "no NVIDIA GPU"),
        (HIDDEN, "cnn10", {"gpus": 2}, "CUDA_VISIBLE_DEVICES=0 leaves runs 1"),
        (HIDDEN, "cnn10", {"gpus": 1, "devices": "1"}, "CUDA_VISIBLE_DEVICES=0 keeps it from runs"),
        (TWO_GPUS, "cnn10", {"gpus": 3, "batch_size": 3}, "this machine has 2"),
        (TWO_GPUS, "cnn10", {"devices": "GPU-9"}, "GPU-9"),
        (TWO_GPUS, "cnn10", {"devices": "0,1"}, "as many GPUs"),
        (TWO_GPUS, "cnn10", {"gpus": 2, "batch_size": 7}, "does not divide evenly"),
        (TWO_GPUS, "cnn10", {"all_reduce": "hierarchical"}, "nothing to exchange"),
        (FOUR_GPUS, "lstm", {"gpus": 3, "all_reduce": "hierarchical", "batch_size": 3}, "two equal halves"),
        (NO_GPU, "cnn10", {"memory_limit": 4}, "limit the memory of GPUs only"),
        (SMALL_GPU, "cnn10", {"memory_limit": 0.0005}, "a memory limit of 0.0005 GiB; use 0.1 or more"),
        (SMALL_GPU, "cnn10", {"memory_limit": 11.5}, "A memory limit of 11.5 GiB is more than a GPU here has"),
        (MIG, "cnn10", {"gpus": 2}, "one MIG instance"),
        (NO_GPU, "cnn10", {"precision": "tf32"}, "TF32"),
        (OLD_GPU, "cnn10", {"precision": "tf32"}, "Ampere"),
        (TWO_GPUS, "cnn10", {"implementation": "keras", "bias": True, "channels": 32}, "a bias along the width"),
        (TWO_GPUS, "wrn28-10", {"implementation": "keras", "bias": True, "widen": 2}, "a bias along the width"),
        (NO_GPU, "wrn28-10", {"depth": 12}, "6n + 4 layers"),
        (NO_GPU, "cnn10", {"scaling": "unit"}, "use data=cifar10 or data=stand_in, or"),
        (NO_GPU, "cnn10", {"schedule": "cosine"}, "has to know its last step"),
        (NO_GPU, "wrn28-10", {"weight_decay": 5e-4, "mode": "inference"}, "Inference learns nothing; use mode=train"),
        (NO_GPU, "cnn10", {"cpu_threads": 3}, "this machine has 2 processors"),
        (NO_GPU, "cnn10", {"interpreter": "/no/such/place"}, "neither a virtual environment's folder nor a Python"),
        (NO_GPU, "cnn10", {"interpreter": "3.12"}, "3.12 is neither a virtual environment's folder nor a Python"),
    ],
)
def test_what_cannot_run_says_why(machine: Machine, name: str, given: dict[str, Value], words: str) -> None:
    reasons_found = reasons(machine, name, **given)
    assert len(reasons_found) == 1
    assert words in reasons_found[0]
    assert "{" not in reasons_found[0]


@pytest.mark.parametrize(
    ("machine", "implementation", "given", "words"),
    [
        (NO_GPU, "cudnn", {}, "cuDNN needs an NVIDIA GPU"),
        (TWO_GPUS, "cudnn", {"xla": True}, "XLA cannot compile cuDNN's layers"),
        (TWO_GPUS, "cudnn_stack", {"xla": True}, "XLA cannot compile cuDNN's layers"),
        (TWO_GPUS, "auto", {"xla": True}, "Keras chooses cuDNN here, and XLA"),
        (TWO_GPUS, "cudnn", {"recurrent_dropout": 0.1}, "cuDNN has no recurrent dropout"),
        (TWO_GPUS, "cudnn_stack", {"dropout": 0.1}, "drops between layers only, and there is one"),
        (TWO_GPUS, "cudnn", {"sequence_lengths": "left_padded"}, "padding at the end only"),
        (TWO_GPUS, "cudnn_stack", {"sequence_lengths": "left_padded"}, "padding at the end only"),
        (TWO_GPUS, "auto", {"sequence_lengths": "left_padded"}, "fails at the first step"),
        (TWO_GPUS, "cudnn", {"activation": "relu"}, "This implementation has tanh built in"),
        (NO_GPU, "gemm8", {"activation": "relu"}, "This implementation has tanh built in"),
        (NO_GPU, "block_fused", {"xla": True}, "XLA cannot compile TensorFlow's block LSTM"),
        (NO_GPU, "block_cell", {"precision": "bfloat16"}, "float32 and float16 only"),
        (NO_GPU, "block_cell", {"unroll": 2}, "has its own loop"),
        (NO_GPU, "block_fused", {"recurrent_dropout": 0.1}, "has no recurrent dropout"),
        (NO_GPU, "standard", {"unroll": 5}, "use unroll=1, standard in JAX, or in TensorFlow one of gemm8, "),
        (TWO_GPUS, "cudnn", {"unroll": 5}, "has its own loop"),
        (NO_GPU, "gemm2", {"unroll": 20, "timesteps": 10}, "more than the 10 there are"),
        (NO_GPU, "wavefront", {"bidirectional": True}, "none can go backwards"),
    ],
)
def test_what_an_lstm_implementation_cannot_do(
    machine: Machine, implementation: str, given: dict[str, Value], words: str
) -> None:
    (reasons_found,) = reasons(machine, "lstm", implementation=implementation, **given)
    assert words in reasons_found
    assert "{" not in reasons_found
    assert reasons(TWO_GPUS, "lstm", implementation=implementation) == [], "it is the combination that cannot be"


@pytest.mark.parametrize(
    ("implementation", "given"),
    [
        ("auto", {"xla": True, "recurrent_dropout": 0.1}),
        ("auto", {"sequence_lengths": "left_padded", "activation": "relu"}),
        ("auto", {"gpus": 0, "xla": True, "sequence_lengths": "left_padded"}),
        ("standard", {"activation": "relu", "sequence_lengths": "left_padded", "recurrent_dropout": 0.5}),
        ("cudnn", {"sequence_lengths": "right_padded", "dropout": 0.5, "bidirectional": True, "precision": "bfloat16"}),
        ("cudnn_stack", {"sequence_lengths": "right_padded", "bidirectional": True, "layers": 4, "dropout": 0.5}),
        ("wavefront", {"xla": True, "sequence_lengths": "left_padded", "layers": 4, "recurrent_dropout": 0.5}),
        ("block_fused", {"bidirectional": True, "dropout": 0.5, "precision": "float16"}),
        ("block_fused", {"bidirectional": True, "sequence_lengths": "left_padded", "outputs": "all"}),
        ("block_cell", {"bidirectional": True, "dropout": 0.5, "recurrent_dropout": 0.5, "precision": "float16"}),
    ],
)
def test_what_an_lstm_implementation_can_do(implementation: str, given: dict[str, Value]) -> None:
    assert reasons(TWO_GPUS, "lstm", implementation=implementation, **given) == []


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"implementation": "cudnn_stack", "xla": True}, "XLA cannot compile cuDNN's layers"),
        ({"implementation": "auto", "sequence_lengths": "left_padded"}, "fails at the first step"),
        ({"implementation": "gemm6", "activation": "relu"}, "This implementation has tanh built in"),
        ({"implementation": "cudnn", "unroll": 2}, "gemm6, gemm2, gemm_batched, fused, combined_input, wavefront"),
        ({"implementation": "wavefront", "bidirectional": True}, "none can go backwards"),
        ({"implementation": "gemm2", "unroll": 9, "timesteps": 5}, "use unroll=5 at most"),
    ],
)
def test_a_gru_has_limits_of_its_own_implementations(given: dict[str, Value], words: str) -> None:
    (reasons_found,) = reasons(TWO_GPUS, "gru", **given)
    assert words in reasons_found
    assert "gemm8" not in reasons_found


def test_a_whole_gpu_beside_mig_instances_is_no_hindrance() -> None:
    mixed = Machine(gpus=(*MIG.gpus, *(Gpu(index=n, uuid=f"GPU-{n}", name="H200") for n in (2, 3))), cpu_count=8)
    assert reasons(mixed, "cnn10", gpus=2) == []
    assert reasons(MIG, "cnn10", gpus=1) == []


def test_keras_adds_a_bias_where_channels_are_last() -> None:
    assert reasons(NO_GPU, "cnn10", implementation="keras", bias=True) == []


def test_a_choice_says_why_it_cannot_be_taken() -> None:
    spec = complete("lstm", {}, NO_GPU)
    assert "cuDNN needs" in (refusal_reason(spec, "implementation", "cudnn", NO_GPU) or "")
    assert refusal_reason(spec, "implementation", "standard", NO_GPU) is None
    assert refusal_reason(spec, "precision", "bfloat16", NO_GPU) is None


def test_a_path_is_made_absolute_once_and_an_empty_one_stays_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/someone")
    for given, path in (("", ""), ("a/../b/", f"{tmp_path}/b"), ("~/tf", "/someone/tf"), ("/tf/b", "/tf/b")):
        assert complete("lstm", {"interpreter": given}, NO_GPU).variant["interpreter"] == path


def test_what_an_older_run_does_not_name_has_its_default_for_that_machine() -> None:
    full = complete("lstm", {"gpus": 0, "layers": 2}, TWO_GPUS)
    assert with_defaults(RunSpec(workload="lstm", variant={"gpus": 0, "layers": 2})) == full
    assert with_defaults(RunSpec(workload="lstm", variant={"gpus": 1})).variant["units"] == 512
    unknown = RunSpec(workload="mine", variant={"depth": 3})
    assert with_defaults(unknown) is unknown


def test_a_choice_of_another_version_is_a_refusal_and_no_crash() -> None:
    spec = with_defaults(RunSpec(workload="lstm", variant={"implementation": "quantum", "gpus": 0}))
    (refusal,) = check(spec, Machine())
    assert refusal.parameters == ("implementation",)
    assert "quantum" in refusal.reason


WORKLOADS_FOLDER = Path(catalog.__file__).parent
DECLARED_IN = {"catalog", "definitions", "image_parameters", "parameters", "schema", "validity"}
"""Modules that name parameters without a run that reads them."""
CHECKED_IN = {"aspects", "gru", "image_evidence", "lstm", "recurrent", "recurrent_evidence"}
"""Modules of all frameworks that say what a run should have done, and do none of it."""


@cache
def reads(path: Path) -> frozenset[object]:
    """The names that a module takes out of variants and configurations: `x["name"]`, `x.get("name")`, `x.name`."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    keys = [node.slice for node in nodes if isinstance(node, ast.Subscript)]
    calls = [node for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    keys += [call.args[0] for call in calls if ast.unparse(call.func).endswith(".get") and call.args]
    attributes = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    return frozenset({key.value for key in keys if isinstance(key, ast.Constant)} | attributes)


def imported(path: Path) -> Iterator[Path]:
    """The modules of `workloads` that a module imports."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("workloads"):
            for name in (str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)):
                module = WORKLOADS_FOLDER.parent / f"{name.replace('.', '/')}.py"
                yield from [module] if module.exists() else []


def code_of(framework: str) -> set[Path]:
    """The modules that a run of a framework executes, without those that only declare or check parameters."""
    left, seen = [*(WORKLOADS_FOLDER / framework).rglob("*.py"), WORKLOADS_FOLDER / "worker.py"], set[Path]()
    others = tuple(str(WORKLOADS_FOLDER / name) + "/" for name in FRAMEWORKS if name != framework)
    while left:
        path = left.pop()
        if path not in seen and not str(path).startswith(others):
            seen.add(path)
            left += imported(path)
    return {path for path in seen if path.stem not in DECLARED_IN | CHECKED_IN}


def unread(parameters: Iterable[Parameter]) -> set[tuple[str, str]]:
    """Parameters with a framework that they are declared for and whose code does not read them."""
    read = {name: frozenset[object]().union(*map(reads, code_of(name))) for name in FRAMEWORKS}
    return {
        (parameter.name, framework)
        for parameter in parameters
        for framework in parameter.frameworks or FRAMEWORKS
        if parameter.name not in read[framework]
    }


def test_every_framework_reads_the_parameters_that_it_has() -> None:
    parameters = {p for listed in catalog.WORKLOADS if not listed.hidden for p in listed.parameters}
    read_elsewhere = {workload("lstm").parameter(name) for name in ("data", "packages")}
    assert unread(parameters - read_elsewhere) == set(), "a run would be labelled with them"


def test_a_parameter_that_only_one_framework_reads_is_not_for_all() -> None:
    stem = Parameter("memory_growth", "Stem", "As a recipe for TensorFlow alone would add it.", 0, limits=(0, 1))
    assert unread([stem]) == {("memory_growth", "pytorch"), ("memory_growth", "jax")}
    assert unread([replace(stem, frameworks=("tensorflow",))]) == set()


@pytest.mark.parametrize(
    ("framework", "name", "given", "others"),
    [
        ("jax", "lstm", {"xla": True}, "use xla=false, or framework=tensorflow."),
        ("pytorch", "lstm", {"xla": True}, "use xla=false, or framework=tensorflow."),
        ("tensorflow", "lstm", {"compile": True}, "use compile=false, or framework=pytorch."),
        ("jax", "cnn10", {"cuda_graph": True}, "use cuda_graph=false, or framework=pytorch."),
        ("jax", "cnn10", {"cpu_threads": 2}, "use cpu_threads=0, or framework=tensorflow."),
        ("pytorch", "cnn10", {"memory_growth": False}, "use memory_growth=true, or framework=tensorflow."),
        ("pytorch", "gru", {"unroll": 2}, "use unroll=1, or framework=tensorflow."),
        ("jax", "lstm", {"input_steps": 2}, "use input_steps=0, or framework=tensorflow."),
        ("jax", "cnn10", {"augmentation": "none"}, "use augmentation=crop_mirror, or framework=tensorflow."),
    ],
)
def test_what_a_framework_does_not_read_is_refused_and_part_of_no_variant(
    framework: str, name: str, given: dict[str, Value], others: str
) -> None:
    (parameter,) = given
    said = f"{FRAMEWORKS[framework].name} has no parameter {parameter}; {others}"
    assert said in reasons(TWO_GPUS, name, framework=framework, **given)
    spec = complete(name, {"framework": framework}, TWO_GPUS)
    assert parameter in spec.variant, "stored variants name it"
    assert parameter not in catalog.own_variant(spec)
    assert refusal_reason(spec, parameter, given[parameter], TWO_GPUS) == said
    reader = complete(name, {"framework": others.rpartition("=")[2].rstrip(".")}, TWO_GPUS)
    assert parameter in catalog.own_variant(reader)
    assert not any("has no parameter" in reason for reason in reasons(TWO_GPUS, name, **{**reader.variant, **given}))


def test_a_custom_workload_s_own_parameter_has_any_framework_whatever_its_name() -> None:
    spec = RunSpec(workload="mine.py:net", variant={"framework": "jax", "unroll": 4, "xla": False})
    assert set(catalog.own_variant(spec)) == {"framework", "unroll"}
