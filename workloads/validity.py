"""The validity table: which variants cannot run on which machines, and why, one rule per entry."""

import math
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from workloads.cifar10_copy import ARCHIVE, FOLDER, FOLDER_VARIABLE, URL, has_copy
from workloads.cnn import has_square_channels
from workloads.definitions import WORKLOADS
from workloads.framework import FRAMEWORK, FRAMEWORKS, Framework, framework_of
from workloads.image_parameters import IMAGE_DATA, IMAGE_TRAINING
from workloads.interpreter import NO_PYTHON, find_python, is_version, lacks_framework
from workloads.machine import Gpu, Machine
from workloads.parameters import EAGER_STEPS
from workloads.protocol import Variant
from workloads.recurrent_layers import RECURRENT_LAYERS, RecurrentLayer
from workloads.schema import Rule, Workload


def _gpu_count(machine: Machine) -> int:
    return len(machine.gpus)


def _requested_devices(variant: Variant) -> list[str]:
    return [word.strip() for word in str(variant["devices"]).split(",") if word.strip()]


def find_gpu(machine: Machine, word: str) -> Gpu | None:
    for gpu in machine.gpus:
        if word in (str(gpu.index), gpu.uuid):
            return gpu
    return None


def _lacks_device(variant: Variant, machine: Machine) -> bool:
    return any(find_gpu(machine, word) is None for word in _requested_devices(variant))


_LEAST_MEMORY_LIMIT_GIB = 0.1
"""TensorFlow counts in MiB, and takes 0 MiB as no limit."""


def _too_few_whole_gpus(variant: Variant, machine: Machine) -> bool:
    count = int(variant["gpus"])
    named = [find_gpu(machine, word) for word in _requested_devices(variant)]
    choice = [gpu for gpu in named if gpu is not None] or machine.gpus
    instances = sum(gpu.uuid.startswith("MIG-") for gpu in choice)
    return count > 1 and instances > 0 and len(choice) - instances < count


def _lacks_python(variant: Variant, machine: Machine) -> bool:
    python = str(variant["interpreter"])
    if not python or (variant["packages"] and is_version(python)):
        return False
    return find_python(python) is None if machine.local else not os.path.isabs(python)  # noqa: PTH117


PRECISION_RULES: tuple[Rule, ...] = (
    Rule(
        parameters=("precision", "gpus"),
        broken=lambda v, _: v["precision"] == "tf32" and int(v["gpus"]) == 0,
        reason="TF32 is a tensor-core format of NVIDIA GPUs, and this run is on the CPU; use precision=float32.",
    ),
    Rule(
        parameters=("precision",),
        broken=lambda v, m: (
            v["precision"] == "tf32"
            and int(v["gpus"]) > 0
            and any((gpu.compute_capability or (8, 0)) < (8, 0) for gpu in m.gpus)
        ),
        reason="TF32 needs a GPU of the Ampere generation or newer (compute capability 8.0).",
    ),
)
"""Rules on `precision` and `gpus` alone, so that they also apply to a calibration."""

_GENERAL: tuple[Rule, ...] = (
    Rule(
        parameters=("gpus",),
        broken=lambda v, m: int(v["gpus"]) > _gpu_count(m) == 0 and not m.hidden_by,
        reason="This machine shows no NVIDIA GPU; use gpus=0 for the CPU.",
    ),
    Rule(
        parameters=("gpus",),
        broken=lambda v, m: int(v["gpus"]) > _gpu_count(m) > 0 and not m.hidden_by,
        reason="{gpus} GPUs asked for, but this machine has {gpu_count}.",
    ),
    Rule(
        parameters=("gpus",),
        broken=lambda v, m: int(v["gpus"]) > _gpu_count(m) and bool(m.hidden_by),
        reason="{gpus} GPUs requested, but {hidden_by} leaves runs {gpu_count}; change that and start again, or use "
        "gpus={gpu_count}.",
    ),
    Rule(
        parameters=("devices",),
        broken=lambda v, m: _lacks_device(v, m) and not m.hidden_by,
        reason="A GPU of “{devices}” is not in this machine; the command `gpus` lists them.",
    ),
    Rule(
        parameters=("devices",),
        broken=lambda v, m: _lacks_device(v, m) and bool(m.hidden_by),
        reason="A GPU of “{devices}” is not in this machine, or {hidden_by} keeps it from runs; change one of the two.",
    ),
    Rule(
        parameters=("devices", "gpus"),
        broken=lambda v, _: len(_requested_devices(v)) not in (0, int(v["gpus"])),
        reason="“{devices}” does not name as many GPUs as requested, {gpus}.",
    ),
    Rule(
        parameters=("batch_size", "gpus"),
        broken=lambda v, _: int(v["gpus"]) > 1 and int(v["batch_size"]) % int(v["gpus"]) != 0,
        reason="A global batch of {batch_size} does not divide evenly among {gpus} GPUs.",
    ),
    Rule(
        parameters=("all_reduce", "gpus"),
        broken=lambda v, _: v["all_reduce"] != "nccl" and int(v["gpus"]) < 2,
        reason="One device has nothing to exchange with another; use all_reduce=nccl, or two GPUs or more.",
    ),
    Rule(
        parameters=("all_reduce", "gpus"),
        broken=lambda v, _: v["all_reduce"] == "hierarchical" and int(v["gpus"]) > 2 and int(v["gpus"]) % 2 == 1,
        reason="A hierarchical copy is between two equal halves, and {gpus} GPUs have none; use all_reduce=nccl.",
    ),
    Rule(
        parameters=("all_reduce", "framework"),
        broken=lambda v, _: v["all_reduce"] == "data_parallel" and v.get("framework") != "pytorch",
        reason="DataParallel is PyTorch's; use all_reduce=nccl, or framework=pytorch.",
    ),
    Rule(
        parameters=("gpus",),
        broken=lambda v, m: int(v["gpus"]) > 0 and m.platform == "darwin",
        reason="Runs are on the CPU alone on macOS; use gpus=0.",
    ),
    Rule(
        parameters=("gpus", "devices"),
        broken=_too_few_whole_gpus,
        reason="CUDA gives one process one MIG instance, and {gpus} GPUs are more; use gpus=1 or whole GPUs.",
    ),
    *PRECISION_RULES,
    Rule(
        parameters=("memory_limit", "gpus"),
        broken=lambda v, _: float(v["memory_limit"]) > 0 and int(v["gpus"]) == 0,
        reason="Frameworks can limit the memory of GPUs only, and this run is on the CPU; use memory_limit=0.",
    ),
    Rule(
        parameters=("memory_limit",),
        broken=lambda v, _: 0 < float(v["memory_limit"]) < _LEAST_MEMORY_LIMIT_GIB,
        reason="A run cannot begin with a memory limit of {memory_limit:g} GiB; "
        f"use {_LEAST_MEMORY_LIMIT_GIB} or more, or 0 for no limit.",
    ),
    Rule(
        parameters=("memory_limit", "gpus"),
        broken=lambda v, m: (
            int(v["gpus"]) > 0
            and any(float(v["memory_limit"]) * 2**30 > (gpu.memory_total_bytes or math.inf) for gpu in m.gpus)
        ),
        reason="A memory limit of {memory_limit:g} GiB is more than a GPU here has; use less, or 0 for no limit.",
    ),
    Rule(
        parameters=("cpu_threads",),
        broken=lambda v, m: int(v["cpu_threads"]) > m.cpu_count,
        reason="{cpu_threads} CPU threads asked for, but this machine has {cpu_count} processors.",
    ),
    Rule(parameters=("interpreter",), broken=lambda v, m: m.local and _lacks_python(v, m), reason=NO_PYTHON),
    Rule(
        parameters=("interpreter",),
        broken=lambda v, m: not m.local and _lacks_python(v, m),
        reason="{interpreter} is not an absolute path, so it names no Python of a host.",
    ),
)


def _recurrent_rules(workload: str, layer: RecurrentLayer) -> Iterator[Rule]:
    def rule(parameters: str, broken: Callable[[Variant], bool], reason: str) -> Rule:
        return Rule(
            parameters=("implementation", *parameters.split()),
            broken=lambda variant, _: broken(variant),
            reason=reason,
            workloads=(workload,),
        )

    for name, limit in (
        (implementation.name, limit) for implementation in layer.implementations for limit in implementation.limits
    ):
        yield rule(
            limit.parameter,
            lambda v, name=name, limit=limit: v["implementation"] == name and limit.broken(v),  # type: ignore[misc]
            limit.reason,
        )
    yield rule(
        "activation",
        lambda v: v["activation"] not in layer.find(str(v["implementation"])).activations and not _scans(v),
        "This implementation has tanh built in; use activation=tanh or implementation=standard.",
    )
    yield rule(
        "unroll",
        lambda v: int(v["unroll"]) > 1 and v["implementation"] not in layer.ladder and not _scans(v),
        f"This implementation has its own loop; use unroll=1, standard in JAX, or in TensorFlow one of "
        f"{', '.join(layer.ladder)}.",
    )
    yield rule(
        "unroll timesteps",
        lambda v: int(v["unroll"]) > int(v["timesteps"]),
        "{unroll} steps per iteration are more than the {timesteps} there are; use unroll={timesteps} at most.",
    )
    combining = [implementation.name for implementation in layer.implementations if implementation.combines_inputs]
    yield rule(
        "input_steps",
        lambda v: int(v["input_steps"]) > 0 and v["implementation"] not in combining,
        "This implementation computes each step's input product in its loop; "
        f"use input_steps=0 or, in TensorFlow, {' or '.join(combining)}.",
    )
    yield rule(
        "input_steps timesteps",
        lambda v: int(v["input_steps"]) > int(v["timesteps"]),
        "{input_steps} steps per input product are more than the {timesteps} there are; use input_steps=0 for all.",
    )


def _scans(variant: Variant) -> bool:
    return variant.get("framework") == "jax" and variant["implementation"] in ("standard", "combined_input")


_IMAGE_WORKLOADS = ("cnn10", "wrn28-10")
_PYTORCH_STACKS = ("standard", "cudnn", "cudnn_stack")
_JAX_STACKS = ("standard", "combined_input", "cudnn")


_STACKED_WORKLOADS = tuple(RECURRENT_LAYERS)


def _framework_rule(
    frameworks: str, parameters: str, broken: Callable[[Variant], bool], reason: str, workloads: tuple[str, ...] = ()
) -> Rule:
    return Rule(
        parameters=("framework", *parameters.split()),
        broken=lambda variant, _: variant.get("framework") in frameworks.split() and broken(variant),
        reason=reason,
        workloads=workloads,
    )


def missing_framework(variant: Variant, machine: Machine) -> Framework | None:
    """Return the framework of a variant if the machine is known to lack it.

    A host has reported what it has. Nothing looks for this machine's TensorFlow: the worker finds out. uv resolves what
    packages contain.
    """
    if variant.get("packages"):
        return None
    name, interpreter = str(variant.get("framework", "")), str(variant["interpreter"])
    if machine.local:
        framework = framework_of(variant)
        is_missing = framework is not FRAMEWORK and lacks_framework(interpreter, framework)
    else:
        lists_frameworks = machine.frameworks is not None and not interpreter and name in FRAMEWORKS
        is_missing = lists_frameworks and name not in (machine.frameworks or ())
    return FRAMEWORKS[name] if is_missing else None


def _missing_rule(framework: Framework) -> Rule:
    return Rule(
        parameters=("framework", "interpreter", "packages"),
        broken=lambda variant, machine: missing_framework(variant, machine) is framework,
        reason=f"{framework.name} is not installed for these runs; use packages={framework.distributions[0]}, or the "
        "interpreter of an environment that has it.",
    )


def _unread_rules(definitions: Sequence[Workload]) -> Iterator[Rule]:
    """Yield a rule for each parameter and each framework that does not read it: another value would mislead."""
    limited = {p.name: p for workload in definitions for p in workload.parameters if p.frameworks}
    for name, parameter in limited.items():
        workloads = tuple(workload.name for workload in definitions if parameter in workload.parameters)
        for key in (key for key in FRAMEWORKS if key not in parameter.frameworks):
            yield _framework_rule(
                key,
                name,
                partial(lambda parameter, v: v[parameter.name] != parameter.default, parameter),
                f"{FRAMEWORKS[key].name} has no parameter {name}; use {name}={str(parameter.default).lower()}, or "
                f"framework={parameter.frameworks[0]}.",
                # Custom workloads use the names common to every workload with the same meaning, and others for their
                # own parameters.
                () if len(workloads) == len(definitions) else workloads,
            )


_FRAMEWORKS: tuple[Rule, ...] = (
    *map(_missing_rule, FRAMEWORKS.values()),
    _framework_rule(
        "pytorch",
        "cuda_graph warmup_steps",
        lambda v: bool(v["cuda_graph"]) and int(v["warmup_steps"]) < EAGER_STEPS - 1,
        f"A step is captured after {EAGER_STEPS} others, which must not be measured; "
        f"use warmup_steps={EAGER_STEPS - 1} or more.",
    ),
    _framework_rule(
        "pytorch",
        "cuda_graph epochs",
        lambda v: bool(v["cuda_graph"]) and bool(v["epochs"]),
        f"A step is captured after {EAGER_STEPS} others, and epochs are measured from their first step on; "
        "use cuda_graph=false, or epochs=0.",
        _IMAGE_WORKLOADS,
    ),
    _framework_rule(
        "pytorch",
        "compile implementation",
        lambda v: bool(v["compile"]) and v["implementation"] != "standard",
        "Inductor cannot compile cuDNN's layers; use compile=false or implementation=standard.",
        _STACKED_WORKLOADS,
    ),
    _framework_rule(
        "pytorch",
        "cuda_graph gpus",
        lambda v: bool(v["cuda_graph"]) and int(v["gpus"]) != 1,
        "A step is captured on one GPU; use cuda_graph=false, or gpus=1.",
    ),
    _framework_rule(
        "pytorch",
        "all_reduce",
        lambda v: v["all_reduce"] in ("hierarchical", "one_device"),
        "PyTorch exchanges gradients by NCCL or DataParallel here; use all_reduce=nccl or all_reduce=data_parallel.",
    ),
    _framework_rule(
        "pytorch",
        "compile all_reduce",
        lambda v: bool(v["compile"]) and v["all_reduce"] == "data_parallel",
        "DataParallel copies the model in each step, so nothing stays compiled; use compile=false or all_reduce=nccl.",
    ),
    _framework_rule(
        "jax",
        "all_reduce",
        lambda v: v["all_reduce"] in ("hierarchical", "one_device"),
        "XLA exchanges JAX's gradients by NCCL; use all_reduce=nccl.",
    ),
    _framework_rule(
        "jax",
        "data",
        lambda v: v["data"] != "synthetic",
        "Stored images cannot be read in JAX yet; use data=synthetic, or another framework.",
        _IMAGE_WORKLOADS,
    ),
    _framework_rule(
        "pytorch",
        "implementation",
        lambda v: v["implementation"] not in _PYTORCH_STACKS,
        f"PyTorch has no counterpart of this implementation; use one of {', '.join(_PYTORCH_STACKS)}.",
        _STACKED_WORKLOADS,
    ),
    _framework_rule(
        "jax",
        "implementation",
        lambda v: v["implementation"] not in _JAX_STACKS,
        f"JAX has no counterpart of this implementation here; use one of {', '.join(_JAX_STACKS)}.",
        _STACKED_WORKLOADS,
    ),
    _framework_rule(
        "jax",
        "implementation",
        lambda v: v["implementation"] == "cudnn",
        "JAX calls cuDNN for an LSTM alone; use implementation=standard.",
        ("gru",),
    ),
    _framework_rule(
        "jax",
        "implementation precision sequence_lengths",
        lambda v: (
            v["implementation"] == "cudnn"
            and (v["precision"] in ("bfloat16", "float16") or v["sequence_lengths"] != "fixed")
        ),
        "JAX calls cuDNN's LSTM in float32 and TF32 alone, and for sequences of one length; use such, or "
        "implementation=standard.",
        ("lstm",),
    ),
    _framework_rule(
        "pytorch",
        "sequence_lengths implementation",
        lambda v: v["sequence_lengths"] != "fixed" and v["implementation"] in ("cudnn", "cudnn_stack"),
        "PyTorch's cuDNN layers read sequences of different lengths only packed, in another shape for each batch; use "
        "implementation=standard or sequence_lengths=fixed.",
        _STACKED_WORKLOADS,
    ),
    _framework_rule(
        "pytorch jax",
        "implementation",
        lambda v: v["implementation"] == "keras",
        "Keras's layers are TensorFlow's here; use implementation=native.",
        _IMAGE_WORKLOADS,
    ),
)

_OF_STORED_IMAGES: Variant = {
    parameter.name: parameter.default
    for parameter in IMAGE_DATA
    if parameter.name in ("images", "augmentation", "scaling")
}
_OF_TRAINING: Variant = {parameter.name: parameter.default for parameter in IMAGE_TRAINING}


def _differs(variant: Variant, defaults: Variant) -> bool:
    return any(variant[name] != value for name, value in defaults.items())


def _misplaced_bias_rule(workload: str) -> Rule:
    """Return the rule for `ops.add` of Keras 3.15, which adds a bias as long as the last axis along that axis."""
    return Rule(
        parameters=("implementation", "layout", "bias"),
        broken=lambda v, _: (
            bool(v["bias"])
            and v["implementation"] == "keras"
            and v["layout"] == "NCHW"
            and has_square_channels(workload, v)
        ),
        reason="Where channels_first images are as wide as they have channels, Keras adds a bias along the width; use "
        "bias=false, implementation=native or layout=NHWC.",
        workloads=(workload,),
    )


_BEST_WEIGHTS: tuple[Rule, ...] = (
    Rule(
        parameters=("weights_from", "save_weights", "mode"),
        broken=lambda v, _: v["weights_from"] == "best" and not (v["save_weights"] and v["mode"] == "train"),
        reason="There are no best weights to save; use save_weights=true and mode=train, or weights_from=last.",
        workloads=(*RECURRENT_LAYERS, *_IMAGE_WORKLOADS),
    ),
)


def _copy_rule(concerned: Callable[[Variant], bool], where: str) -> Rule:
    """Return the rule that runs on this machine need its copy of CIFAR-10; a host checks its own."""
    return Rule(
        parameters=("data", "data_folder"),
        broken=lambda v, m: v["data"] == "cifar10" and m.local and concerned(v) and not has_copy(str(v["data_folder"])),
        reason=f"There is no {ARCHIVE} and no folder {FOLDER} in " + where,
        workloads=_IMAGE_WORKLOADS,
    )


_CNN: tuple[Rule, ...] = (
    *map(_misplaced_bias_rule, _IMAGE_WORKLOADS),
    Rule(
        parameters=("epochs", "data"),
        broken=lambda v, _: bool(v["epochs"]) and v["data"] == "synthetic",
        reason="Synthetic images have no end to pass over; use data=cifar10 or data=stand_in, or epochs=0.",
        workloads=_IMAGE_WORKLOADS,
    ),
    _copy_rule(
        lambda v: bool(v["data_folder"]), "{data_folder}; get the archive from " + f"{URL}, or use data=stand_in."
    ),
    _copy_rule(
        lambda v: not v["data_folder"],
        f"the usual place; get the archive from {URL}. Give its folder with data_folder or {FOLDER_VARIABLE}, or use "
        "data=stand_in.",
    ),
    Rule(
        parameters=("augmentation", "scaling", "images", "data"),
        broken=lambda v, _: v["data"] == "synthetic" and _differs(v, _OF_STORED_IMAGES),
        reason="Synthetic images are generated as they are used, as many as a step takes; use data=cifar10 or "
        "data=stand_in, or augmentation=crop_mirror, scaling=standard and images=0.",
        workloads=_IMAGE_WORKLOADS,
    ),
    Rule(
        parameters=("schedule", "epochs", "steps"),
        broken=lambda v, _: v["schedule"] != "constant" and not v["epochs"] and not v["steps"],
        reason="A schedule of the learning rate has to know its last step; give epochs or steps, or use "
        "schedule=constant.",
        workloads=_IMAGE_WORKLOADS,
    ),
    Rule(
        parameters=("learning_rate", "schedule", "weight_decay", "mode"),
        broken=lambda v, _: v["mode"] == "inference" and _differs(v, _OF_TRAINING),
        reason="Inference learns nothing; use mode=train, or learning_rate=0.05, schedule=constant and weight_decay=0.",
        workloads=_IMAGE_WORKLOADS,
    ),
    Rule(
        parameters=("epochs", "mode"),
        broken=lambda v, _: bool(v["epochs"]) and v["mode"] == "inference",
        reason="Inference learns nothing, so there is no accuracy by epoch; use mode=train, or epochs=0.",
        workloads=_IMAGE_WORKLOADS,
    ),
    Rule(
        parameters=("depth",),
        broken=lambda v, _: (int(v["depth"]) - 4) % 6 != 0,
        reason="A wide residual network has 6n + 4 layers (10, 16, 22, 28 …), and {depth} is not one of these.",
        workloads=("wrn28-10",),
    ),
)

RULES: tuple[Rule, ...] = (
    *_GENERAL,
    *_unread_rules([workload for workload in WORKLOADS if not workload.hidden]),
    *(rule for workload, layer in RECURRENT_LAYERS.items() for rule in _recurrent_rules(workload, layer)),
    *_FRAMEWORKS,
    *_CNN,
    *_BEST_WEIGHTS,
)
