"""Workloads, their parameters and what can run where, as data: one source for form, command line and worker.

`complete` turns what a user gave into a full `RunSpec` (wrong use raises `UsageError`); `check` says what of it cannot
run on a machine (a refusal, no error). Both are pure.
"""

import difflib
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import msgspec

from workloads.protocol import RunSpec, Value, Variant

Kind = Literal["choice", "integer", "number", "switch", "text"]


class UsageError(Exception):
    """A workload, parameter or value that does not exist or is out of range: one sentence with what would be right."""


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU as NVML knows it. `compute_capability` is (major, minor)."""

    index: int
    uuid: str
    name: str
    memory_total_bytes: int | None = None
    compute_capability: tuple[int, int] | None = None


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """What a machine has, as far as variants depend on it. `platform` is `sys.platform`."""

    gpus: tuple[Gpu, ...] = ()
    cpu_count: int = 1
    platform: str = "linux"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    value: str
    label: str
    help: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One parameter of a workload: its form, limits and help. `cpu_default` replaces `default` where `gpus` is 0."""

    name: str
    kind: Kind
    label: str
    help: str
    default: Value
    cpu_default: Value | None = None
    choices: tuple[Choice, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    unit: str = ""
    advanced: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A workload: `example` is the word for one item of its training data (`image`, `sequence`)."""

    name: str
    title: str
    help: str
    example: str
    parameters: tuple[Parameter, ...]
    hidden: bool = False

    def parameter(self, name: str) -> Parameter:
        """The parameter of that name; raises `UsageError` naming near misses."""
        for parameter in self.parameters:
            if parameter.name == name:
                return parameter
        raise UsageError(_unknown(f"parameter of {self.name}", name, (p.name for p in self.parameters)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One line of the validity table: `broken` says whether a variant breaks it on a machine, `reason` why that is so.

    `parameters` are those a form marks: changing one of them can mend it. `reason` may use `{name}` of any parameter,
    `{gpu_count}` and `{cpu_count}`. `workloads` is empty where the rule holds for all.
    """

    parameters: tuple[str, ...]
    broken: Callable[[Variant, Machine], bool]
    reason: str
    workloads: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a variant cannot run here, in one sentence, and the parameters it depends on."""

    parameters: tuple[str, ...]
    reason: str


def _integer(name: str, label: str, help: str, default: int, minimum: int, maximum: int, **more: object) -> Parameter:
    return Parameter(
        name=name,
        kind="integer",
        label=label,
        help=help,
        default=default,
        minimum=minimum,
        maximum=maximum,
        **more,  # type: ignore[arg-type]
    )


_PRECISIONS = (
    Choice(value="float32", label="float32", help="32-bit storage and 32-bit products."),
    Choice(
        value="tf32", label="TF32", help="32-bit storage, products rounded to TF32 on tensor cores (Ampere and newer)."
    ),
    Choice(value="bfloat16", label="bfloat16", help="16-bit compute with the range of float32; weights stay float32."),
    Choice(value="float16", label="float16", help="16-bit compute with loss scaling; weights stay float32."),
)


def _common(batch_size: int, cpu_batch_size: int, example: str) -> tuple[Parameter, ...]:
    return (
        _integer(
            "gpus", "GPUs", "How many GPUs train together (data parallel); 0 runs on the CPU.", 1, 0, 64, cpu_default=0
        ),
        Parameter(
            name="devices",
            kind="text",
            label="Devices",
            help="Which GPUs, by index or UUID, separated by commas; empty takes the first free ones.",
            default="",
        ),
        _integer(
            "batch_size",
            "Batch size",
            f"{example.capitalize()}s a step over all GPUs together (the global batch).",
            batch_size,
            1,
            1_048_576,
            cpu_default=cpu_batch_size,
        ),
        Parameter(
            name="precision",
            kind="choice",
            label="Precision",
            help="The number format products are computed in.",
            default="float32",
            choices=_PRECISIONS,
        ),
        Parameter(
            name="xla",
            kind="switch",
            label="XLA",
            help="Compile the training step with XLA (jit_compile=True).",
            default=False,
        ),
        Parameter(
            name="layout_optimizer",
            kind="switch",
            label="Layout optimizer",
            help="Let TensorFlow's graph optimizer change the data layout. Off keeps the layout asked for.",
            default=False,
            advanced=True,
        ),
        Parameter(
            name="memory_growth",
            kind="switch",
            label="Memory growth",
            help="Take GPU memory as needed; off, TensorFlow takes nearly all of it at the start.",
            default=True,
            advanced=True,
        ),
        Parameter(
            name="mode",
            kind="choice",
            label="Mode",
            help="Train (forward, backward, update) or only infer (forward).",
            default="train",
            choices=(
                Choice(value="train", label="Train", help="Forward, backward and weight update."),
                Choice(value="inference", label="Inference", help="The forward pass alone."),
            ),
        ),
        Parameter(
            name="data",
            kind="choice",
            label="Data",
            help="Where the training data come from.",
            default="synthetic",
            choices=(Choice(value="synthetic", label="Synthetic", help="Made from the seed; lives on the device."),),
            advanced=True,
        ),
        Parameter(
            name="seconds",
            kind="number",
            label="Measure for",
            help="Length of the measured part; ignored where a number of steps is given.",
            default=10.0,
            minimum=0.1,
            maximum=86_400,
            unit="s",
        ),
        _integer(
            "steps",
            "Steps",
            "Measure exactly this many steps; 0 measures for the seconds above.",
            0,
            0,
            100_000_000,
            advanced=True,
        ),
        _integer(
            "warmup_steps",
            "Warm-up steps",
            "Steps after the first that are run but not measured.",
            20,
            0,
            1_000_000,
            cpu_default=5,
            advanced=True,
        ),
        _integer(
            "seed",
            "Seed",
            "Seed of weights and synthetic data: the same seed, the same start.",
            1,
            0,
            2_147_483_647,
            advanced=True,
        ),
        _integer(
            "cpu_threads",
            "CPU threads",
            "Threads TensorFlow may use on the CPU; 0 leaves it to TensorFlow.",
            0,
            0,
            1024,
            advanced=True,
        ),
    )


LSTM = Workload(
    name="lstm",
    title="LSTM · adding problem",
    help="A stack of LSTM layers learns to add two marked numbers of a noisy sequence (Hochreiter and Schmidhuber 1997).",
    example="sequence",
    parameters=(
        Parameter(
            name="implementation",
            kind="choice",
            label="Implementation",
            help="How the LSTM layers are computed.",
            default="cudnn",
            cpu_default="standard",
            choices=(
                Choice(
                    value="standard", label="Standard", help="Keras LSTM with use_cudnn=False: a loop over time steps."
                ),
                Choice(
                    value="cudnn",
                    label="cuDNN",
                    help="Keras LSTM with use_cudnn=True: NVIDIA's fused kernels; GPU only.",
                ),
            ),
        ),
        _integer("layers", "Layers", "LSTM layers, one on top of the other.", 1, 1, 16),
        _integer("units", "Units", "Hidden units of each layer.", 512, 1, 16_384, cpu_default=64),
        _integer("timesteps", "Time steps", "Length of each sequence.", 100, 2, 10_000, cpu_default=50),
        _integer(
            "features",
            "Features",
            "Inputs a time step: two informative ones, the rest noise.",
            512,
            2,
            16_384,
            cpu_default=16,
        ),
        Parameter(
            name="bidirectional",
            kind="switch",
            label="Bidirectional",
            help="Read each sequence in both directions and concatenate.",
            default=False,
        ),
        *_common(64, 32, "sequence"),
    ),
)

CNN10 = Workload(
    name="cnn10",
    title="CNN · 10 layers, 32 x 32 images",
    help="Three blocks of three 3x3 convolutions with batch norm and ReLU, average pooling between, on CIFAR-10-sized images.",
    example="image",
    parameters=(
        Parameter(
            name="layout",
            kind="choice",
            label="Layout",
            help="Order of an image tensor's axes in every convolution, normalisation and pooling.",
            default="NCHW",
            choices=(
                Choice(value="NCHW", label="NCHW", help="Channels first, Keras channels_first."),
                Choice(value="NHWC", label="NHWC", help="Channels last, Keras channels_last, TensorFlow's default."),
            ),
        ),
        _integer(
            "channels",
            "Channels",
            "Channels of the first block; they double in each of the next two.",
            64,
            1,
            1024,
            cpu_default=16,
        ),
        *_common(1024, 32, "image"),
    ),
)

DUMMY = Workload(
    name="dummy",
    title="Dummy · no TensorFlow",
    help="Blocks of sleep with a falling loss; for tests of the program itself.",
    example="step",
    hidden=True,
    parameters=(
        Parameter(
            name="behaviour",
            kind="choice",
            label="Behaviour",
            help="What the worker does.",
            default="train",
            choices=tuple(
                Choice(value=value, label=value)
                for value in (
                    "train",
                    "fail",
                    "out_of_memory",
                    "print_garbage",
                    "ignore_stop",
                    "hang",
                    "kill_self",
                    "not_finite",
                )
            ),
        ),
        Parameter(
            name="step_ms",
            kind="number",
            label="Step time",
            help="Length of one step.",
            default=5.0,
            minimum=0.01,
            maximum=60_000,
            unit="ms",
        ),
        *_common(8, 8, "step"),
    ),
)

WORKLOADS: tuple[Workload, ...] = (LSTM, CNN10, DUMMY)


def _gpu_count(machine: Machine) -> int:
    return len(machine.gpus)


def _wanted(variant: Variant) -> list[str]:
    return [word.strip() for word in str(variant["devices"]).split(",") if word.strip()]


def find_gpu(machine: Machine, word: str) -> Gpu | None:
    """The machine's GPU of that index or UUID."""
    for gpu in machine.gpus:
        if word in (str(gpu.index), gpu.uuid):
            return gpu
    return None


def _too_old_for_tf32(machine: Machine) -> bool:
    return any(gpu.compute_capability is not None and gpu.compute_capability < (8, 0) for gpu in machine.gpus)


RULES: tuple[Rule, ...] = (
    Rule(
        parameters=("gpus",),
        broken=lambda v, m: int(v["gpus"]) > _gpu_count(m) == 0,
        reason="{gpus} GPU(s) asked for, but this machine has no NVIDIA GPU that its driver shows; use gpus=0 for the CPU.",
    ),
    Rule(
        parameters=("gpus",),
        broken=lambda v, m: int(v["gpus"]) > _gpu_count(m) > 0,
        reason="{gpus} GPUs asked for, but this machine has {gpu_count}.",
    ),
    Rule(
        parameters=("devices",),
        broken=lambda v, m: any(find_gpu(m, word) is None for word in _wanted(v)),
        reason="devices={devices} names a GPU that this machine does not have; `python -m app gpus` lists them.",
    ),
    Rule(
        parameters=("devices", "gpus"),
        broken=lambda v, m: len(_wanted(v)) not in (0, int(v["gpus"])),
        reason="devices={devices} does not name as many GPUs as gpus={gpus}.",
    ),
    Rule(
        parameters=("batch_size", "gpus"),
        broken=lambda v, m: int(v["gpus"]) > 1 and int(v["batch_size"]) % int(v["gpus"]) != 0,
        reason="A global batch of {batch_size} does not divide evenly among {gpus} GPUs.",
    ),
    Rule(
        parameters=("gpus",),
        broken=lambda v, m: int(v["gpus"]) > 0 and m.platform == "darwin",
        reason="TensorFlow runs on the CPU only on macOS; use gpus=0.",
    ),
    Rule(
        parameters=("implementation", "gpus"),
        broken=lambda v, m: v["implementation"] == "cudnn" and int(v["gpus"]) == 0,
        reason="cuDNN needs an NVIDIA GPU, and this run is on the CPU; choose implementation=standard.",
        workloads=("lstm",),
    ),
    Rule(
        parameters=("implementation", "xla"),
        broken=lambda v, m: v["implementation"] == "cudnn" and bool(v["xla"]),
        reason="XLA cannot compile the cuDNN LSTM; use xla=false or implementation=standard.",
        workloads=("lstm",),
    ),
    Rule(
        parameters=("precision", "gpus"),
        broken=lambda v, m: v["precision"] == "tf32" and int(v["gpus"]) == 0,
        reason="TF32 is a tensor-core format of NVIDIA GPUs, and this run is on the CPU; use precision=float32.",
    ),
    Rule(
        parameters=("precision",),
        broken=lambda v, m: v["precision"] == "tf32" and int(v["gpus"]) > 0 and _too_old_for_tf32(m),
        reason="TF32 needs a GPU of the Ampere generation or newer (compute capability 8.0).",
    ),
    Rule(
        parameters=("precision", "layout", "gpus"),
        broken=lambda v, m: int(v["gpus"]) == 0 and v["layout"] == "NCHW" and v["precision"] == "float16",
        reason="TensorFlow has no float16 NCHW convolution on the CPU; use layout=NHWC or precision=float32.",
        workloads=("cnn10",),
    ),
    Rule(
        parameters=("cpu_threads",),
        broken=lambda v, m: int(v["cpu_threads"]) > m.cpu_count,
        reason="{cpu_threads} CPU threads asked for, but this machine has {cpu_count} processors.",
    ),
)


def workload(name: str) -> Workload:
    """The workload of that name; raises `UsageError` naming near misses."""
    for candidate in WORKLOADS:
        if candidate.name == name:
            return candidate
    raise UsageError(_unknown("workload", name, (w.name for w in WORKLOADS if not w.hidden)))


def parse(parameter: Parameter, text: str) -> Value:
    """The value a word on the command line stands for; raises `UsageError`."""
    word = text.strip()
    try:
        if parameter.kind == "integer":
            return _checked(parameter, int(word))
        if parameter.kind == "number":
            return _checked(parameter, float(word))
    except ValueError:
        noun = "a whole number" if parameter.kind == "integer" else "a number"
        raise UsageError(f"{parameter.name} takes {noun}, not {text!r}.") from None
    if parameter.kind == "switch":
        return _checked(parameter, _SWITCH_WORDS.get(word.lower(), word))
    return _checked(parameter, word)


_SWITCH_WORDS: Mapping[str, bool] = {
    "true": True, "on": True, "yes": True, "1": True, "false": False, "off": False, "no": False, "0": False,
}  # fmt: skip


def complete(name: str, given: Mapping[str, Value], machine: Machine) -> RunSpec:
    """The full variant: what was given, and defaults for the rest; raises `UsageError` for anything unknown or out of range.

    Without `gpus`, one GPU is used where the machine has one, else the CPU at sizes that fit it.
    """
    chosen = workload(name)
    values = {key: _checked(chosen.parameter(key), value) for key, value in given.items()}
    on_cpu = int(values.get("gpus", min(1, len(machine.gpus)))) == 0
    variant = {p.name: values.get(p.name, default_value(p, on_cpu=on_cpu)) for p in chosen.parameters}
    return RunSpec(workload=name, variant=variant)


def default_value(parameter: Parameter, *, on_cpu: bool) -> Value:
    """The parameter's default on a GPU or on the CPU."""
    return parameter.cpu_default if on_cpu and parameter.cpu_default is not None else parameter.default


def check(spec: RunSpec, machine: Machine) -> tuple[Refusal, ...]:
    """Every reason why this variant cannot run on this machine; empty when it can. `spec` must be complete."""
    facts = {**spec.variant, "gpu_count": len(machine.gpus), "cpu_count": machine.cpu_count}
    return tuple(
        Refusal(rule.parameters, rule.reason.format(**facts))
        for rule in RULES
        if (not rule.workloads or spec.workload in rule.workloads) and rule.broken(spec.variant, machine)
    )


def why_not(spec: RunSpec, name: str, value: Value, machine: Machine) -> str | None:
    """Why `name=value` cannot be chosen beside the spec's other values on this machine, or None when it can."""
    changed = RunSpec(workload=spec.workload, variant={**spec.variant, name: value})
    reasons = (refusal.reason for refusal in check(changed, machine) if name in refusal.parameters)
    return next(reasons, None)


def _checked(parameter: Parameter, value: Value) -> Value:
    """The value in the parameter's own type, or `UsageError` for a wrong type, an unknown choice, a number out of range."""
    name = parameter.name
    if parameter.kind == "switch":
        if not isinstance(value, bool):
            raise UsageError(f"{name} is on or off (true or false), not {value!r}.")
        return value
    if parameter.kind == "text":
        return str(value)
    if parameter.kind == "choice":
        if value not in {choice.value for choice in parameter.choices}:
            raise UsageError(_unknown(f"value of {name}", str(value), (choice.value for choice in parameter.choices)))
        return value
    return _in_range(parameter, value)


def _in_range(parameter: Parameter, value: Value) -> Value:
    whole = parameter.kind == "integer"
    if isinstance(value, bool | str) or (whole and int(value) != value):
        raise UsageError(f"{parameter.name} takes {'a whole number' if whole else 'a number'}, not {value!r}.")
    low, high = parameter.minimum, parameter.maximum
    if not math.isfinite(value) or (low is not None and value < low) or (high is not None and value > high):
        raise UsageError(f"{parameter.name} must be from {low:g} to {high:g}, not {value:g}.")
    return int(value) if whole else float(value)


def _unknown(what: str, word: str, known: Iterable[str]) -> str:
    names = list(known)
    near = difflib.get_close_matches(word, names, n=1)
    hint = f"Did you mean {near[0]}?" if near else f"There are: {', '.join(names)}."
    return f"There is no {what} called {word!r}. {hint}"
