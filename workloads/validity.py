"""The validity table: which variants cannot run on which machines, and why, one rule a line."""

from workloads.kinds import Gpu, Machine, Rule
from workloads.protocol import Variant


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
        reason="{gpus} GPU(s) asked for, but this machine shows no NVIDIA GPU; use gpus=0 for the CPU.",
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
        broken=lambda v, _: len(_wanted(v)) not in (0, int(v["gpus"])),
        reason="devices={devices} does not name as many GPUs as gpus={gpus}.",
    ),
    Rule(
        parameters=("batch_size", "gpus"),
        broken=lambda v, _: int(v["gpus"]) > 1 and int(v["batch_size"]) % int(v["gpus"]) != 0,
        reason="A global batch of {batch_size} does not divide evenly among {gpus} GPUs.",
    ),
    Rule(
        parameters=("gpus",),
        broken=lambda v, m: int(v["gpus"]) > 0 and m.platform == "darwin",
        reason="TensorFlow runs on the CPU only on macOS; use gpus=0.",
    ),
    Rule(
        parameters=("implementation", "gpus"),
        broken=lambda v, _: v["implementation"] == "cudnn" and int(v["gpus"]) == 0,
        reason="cuDNN needs an NVIDIA GPU, and this run is on the CPU; choose implementation=standard.",
        workloads=("lstm",),
    ),
    Rule(
        parameters=("implementation", "xla"),
        broken=lambda v, _: v["implementation"] == "cudnn" and bool(v["xla"]),
        reason="XLA cannot compile the cuDNN LSTM; use xla=false or implementation=standard.",
        workloads=("lstm",),
    ),
    Rule(
        parameters=("precision", "gpus"),
        broken=lambda v, _: v["precision"] == "tf32" and int(v["gpus"]) == 0,
        reason="TF32 is a tensor-core format of NVIDIA GPUs, and this run is on the CPU; use precision=float32.",
    ),
    Rule(
        parameters=("precision",),
        broken=lambda v, m: v["precision"] == "tf32" and int(v["gpus"]) > 0 and _too_old_for_tf32(m),
        reason="TF32 needs a GPU of the Ampere generation or newer (compute capability 8.0).",
    ),
    Rule(
        parameters=("precision", "layout", "xla", "gpus"),
        broken=lambda v, _: (
            int(v["gpus"]) == 0 and v["layout"] == "NCHW" and v["precision"] == "float16" and not v["xla"]
        ),
        reason="TensorFlow has no float16 NCHW pooling on the CPU; use layout=NHWC, precision=float32 or xla=true.",
        workloads=("cnn10",),
    ),
    Rule(
        parameters=("cpu_threads",),
        broken=lambda v, m: int(v["cpu_threads"]) > m.cpu_count,
        reason="{cpu_threads} CPU threads asked for, but this machine has {cpu_count} processors.",
    ),
)
