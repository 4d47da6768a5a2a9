"""The parameters of every workload: which devices compute, how, and for how long."""

from workloads.framework import FRAMEWORK
from workloads.schema import Choice, Parameter

BETWEEN_PACKAGES = r",(?!\s*[<>=!~])(?![^\[]*\])"
"""A comma between two values, not within one requirement: `torch>=2.9,<2.11`, `jax[cuda12,k8s]`."""

PRECISION = Parameter(
    "precision",
    "Precision",
    "The number format products are computed in.",
    "float32",
    choices=(
        Choice("float32", "float32", "32-bit storage and 32-bit products."),
        Choice("tf32", "TF32", "32-bit storage, products rounded to TF32 on tensor cores (Ampere and newer)."),
        Choice("bfloat16", "bfloat16", "16-bit compute with the range of float32; weights stay float32."),
        Choice("float16", "float16", "16-bit compute with loss scaling; weights stay float32."),
    ),
    common=True,
    named="special",
    identifies=True,
    same_result=True,
)

FRAMEWORK_CHOICE = Parameter(
    "framework",
    "Framework",
    "Which framework computes; each run has its own process.",
    "tensorflow",
    choices=(
        Choice("tensorflow", "TensorFlow", "TensorFlow with Keras."),
        Choice("pytorch", "PyTorch", "The same model, data and step in PyTorch."),
        Choice("jax", "JAX", "The same model, data and step in JAX, compiled whole by XLA."),
    ),
    common=True,
    named="special",
    same_result=True,
)

EAGER_STEPS = 3
"""Steps before one is captured in a CUDA graph: in them cuDNN tries its algorithms, and optimizers create their state.
"""

FRAMEWORK_COMPUTATION: tuple[Parameter, ...] = (
    Parameter(
        "compile",
        "torch.compile",
        "Compile forward and backward pass with PyTorch's Inductor (torch.compile).",
        False,
        common=True,
        frameworks=("pytorch",),
        silent=True,
        same_result=True,
    ),
    Parameter(
        "cuda_graph",
        "CUDA graph",
        "Capture PyTorch's whole step in one CUDA graph, which the host launches in one call.",
        False,
        common=True,
        frameworks=("pytorch",),
        silent=True,
        same_result=True,
    ),
)
"""How a step is executed, for workloads that several frameworks implement."""

_COMPUTATION: tuple[Parameter, ...] = (
    PRECISION,
    Parameter(
        "xla",
        "XLA",
        "Compile the training step with XLA (jit_compile=True).",
        False,
        common=True,
        frameworks=("tensorflow",),
        named="special",
        silent=True,
        same_result=True,
    ),
    Parameter(
        "all_reduce",
        "All-reduce",
        "How several GPUs exchange their gradients at the end of a step.",
        "nccl",
        choices=(
            Choice(
                "nccl",
                "NCCL",
                "NVIDIA's library: all GPUs add in a ring or a tree; PyTorch uses it in DistributedDataParallel, "
                "with a process per GPU.",
            ),
            Choice("hierarchical", "Hierarchical copy", "Copies between two halves of the GPUs."),
            Choice("one_device", "One device", "Copied to one GPU, added there and copied back."),
            Choice(
                "data_parallel",
                "DataParallel",
                "PyTorch's older way: one process copies the weights to all GPUs in each step and adds their "
                "gradients on one.",
            ),
        ),
        scales=True,
        silent=True,
        same_result=True,
    ),
    Parameter(
        "layout_optimizer",
        "Layout optimizer",
        f"Let {FRAMEWORK.name}'s graph optimizer change the data layout. Off keeps the requested layout.",
        False,
        frameworks=("tensorflow",),
        silent=True,
        same_result=True,
    ),
    Parameter(
        "memory_growth",
        "Memory growth",
        f"Take GPU memory as needed; off, {FRAMEWORK.name} takes nearly all of it at the start.",
        True,
        frameworks=("tensorflow",),
        silent=True,
        same_result=True,
    ),
    Parameter(
        "memory_limit",
        "Memory limit",
        "Limit the framework to this much of each GPU's memory, as on a smaller GPU; 0 sets no limit.",
        0.0,
        limits=(0.0, 1024.0),
        unit="GiB",
        unset="off",
        same_result=True,
    ),
    Parameter(
        "mode",
        "Mode",
        "Train (forward, backward, update) or only infer (forward).",
        "train",
        choices=(
            Choice("train", "Train", "Forward, backward and weight update."),
            Choice("inference", "Inference", "The forward pass alone."),
        ),
    ),
    Parameter(
        "evidence",
        "Evidence",
        "What is stored as proof of what ran; none of it costs time in the measured part.",
        "trace",
        choices=(
            Choice("trace", "Graph and trace", "The executed graph, and the kernels of a few steps."),
            Choice("graph", "Graph", "The executed graph alone."),
            Choice("off", "Off", "Nothing: what really ran stays unknown."),
        ),
        affects_step=False,
    ),
)

SYNTHETIC = Choice("synthetic", "Synthetic", "Generated from the seed; stays on the device.")

SYNTHETIC_DATA: tuple[Parameter, ...] = (
    Parameter("data", "Data", "Where the training data come from.", "synthetic", choices=(SYNTHETIC,)),
)

SAVED_WEIGHTS: tuple[Parameter, ...] = (
    Parameter(
        "save_weights",
        "Save weights",
        "Save the weights next to the database at the end of the run, to export the model.",
        False,
        affects_step=False,
        silent=True,
    ),
    Parameter(
        "weights_from",
        "Weights from",
        "Which weights are saved.",
        "last",
        choices=(
            Choice("last", "Last step", "Those after the last measured step."),
            Choice(
                "best",
                "Best so far",
                "Those with the highest accuracy after an epoch; without epochs with the lowest loss after a "
                "measured block.",
            ),
        ),
        affects_step=False,
        silent=True,
    ),
)

_DURATION: tuple[Parameter, ...] = (
    Parameter(
        "seconds",
        "Measure for",
        "Length of the measured part; ignored if a number of steps is given.",
        10.0,
        limits=(0.1, 86_400),
        unit="s",
        common=True,
        affects_step=False,
        repeats=True,
    ),
    Parameter(
        "steps",
        "Steps",
        "Measure exactly this many steps; 0 measures for the seconds above.",
        0,
        limits=(0, 100_000_000),
        unset="off",
        affects_step=False,
        repeats=True,
    ),
    Parameter(
        "warmup_steps",
        "Warm-up steps",
        "Steps after the first that are run but not measured.",
        20,
        limits=(0, 1_000_000),
        cpu_default=5,
        affects_step=False,
        repeats=True,
    ),
    Parameter(
        "seed",
        "Seed",
        "Seed of weights and synthetic data: the same seed, the same start.",
        1,
        limits=(0, 2_147_483_647),
        affects_step=False,
        repeats=True,
    ),
    Parameter(
        "cpu_threads",
        "CPU threads",
        "Threads the framework may use on the CPU; 0 leaves it to the framework.",
        0,
        limits=(0, 1024),
        unset="automatic",
        frameworks=("tensorflow", "pytorch"),
        same_result=True,
    ),
    Parameter(
        "interpreter",
        "Python",
        "The path of a virtual environment's folder or Python, with other versions of the libraries; it needs the "
        "framework, numpy and msgspec. Empty is this program's own. With packages, a version such as 3.12 is enough.",
        "",
        is_path=True,
        unset="this program's own",
        same_result=True,
    ),
    Parameter(
        "packages",
        "Packages",
        "What uv installs for the run, in pip's syntax, separated by spaces: torch==2.9.* "
        "numpy==2.*. Empty is what the Python has.",
        "",
        unset="what the Python has",
        same_result=True,
    ),
)


def common_parameters(
    batch_size: int, cpu_batch_size: int, example: str, data: tuple[Parameter, ...] = SYNTHETIC_DATA
) -> tuple[Parameter, ...]:
    """Return the parameters that every workload has.

    `batch_size` is the default on GPUs. `example` is the word for one item of the data; `data` are the parameters that
    choose them.
    """
    return (
        Parameter(
            "gpus",
            "GPUs",
            "How many GPUs train together (data parallel); 0 runs on the CPU.",
            1,
            limits=(0, 64),
            cpu_default=0,
            common=True,
            named="special",
            identifies=True,
            scales=True,
            same_result=True,
        ),
        Parameter(
            "devices",
            "Devices",
            "Which GPUs, by index or UUID, separated by commas; empty takes the first free ones.",
            "",
            unset="first free ones",
            affects_step=False,
        ),
        Parameter(
            "batch_size",
            "Batch size",
            f"{example.capitalize()}s per step over all GPUs together (the global batch).",
            batch_size,
            limits=(1, 1_048_576),
            cpu_default=cpu_batch_size,
            common=True,
            named="special",
            identifies=True,
            scales=True,
        ),
        *_COMPUTATION,
        *data,
        *_DURATION,
    )
