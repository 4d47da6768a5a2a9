"""The parameters of every workload: which devices compute, how, and for how long."""

from workloads.framework import FRAMEWORK
from workloads.schema import Choice, Parameter

BETWEEN_PACKAGES = r",(?!\s*[<>=!~])(?![^\[]*\])"
"""A comma between two values, not within one requirement: `torch>=2.9,<2.11`, `jax[cuda12,k8s]`."""


def integer_parameter(
    name: str, label: str, help: str, default: int, minimum: int, maximum: int, **more: object
) -> Parameter:
    """Return a parameter that is a whole number; `more` are other attributes of `Parameter`."""
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


PRECISION = Parameter(
    name="precision",
    kind="choice",
    label="Precision",
    help="The number format products are computed in.",
    default="float32",
    choices=(
        Choice(value="float32", label="float32", help="32-bit storage and 32-bit products."),
        Choice(
            value="tf32",
            label="TF32",
            help="32-bit storage, products rounded to TF32 on tensor cores (Ampere and newer).",
        ),
        Choice(
            value="bfloat16", label="bfloat16", help="16-bit compute with the range of float32; weights stay float32."
        ),
        Choice(value="float16", label="float16", help="16-bit compute with loss scaling; weights stay float32."),
    ),
    common=True,
    named="special",
    identifies=True,
    same_result=True,
)

FRAMEWORK_CHOICE = Parameter(
    name="framework",
    kind="choice",
    label="Framework",
    help="Which framework computes; each run has its own process.",
    default="tensorflow",
    choices=(
        Choice(value="tensorflow", label="TensorFlow", help="TensorFlow with Keras."),
        Choice(value="pytorch", label="PyTorch", help="The same model, data and step in PyTorch."),
        Choice(value="jax", label="JAX", help="The same model, data and step in JAX, compiled whole by XLA."),
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
        name="compile",
        kind="switch",
        label="torch.compile",
        help="Compile forward and backward pass with PyTorch's Inductor (torch.compile).",
        default=False,
        common=True,
        frameworks=("pytorch",),
        silent=True,
        same_result=True,
    ),
    Parameter(
        name="cuda_graph",
        kind="switch",
        label="CUDA graph",
        help="Capture PyTorch's whole step in one CUDA graph, which the host launches in one call.",
        default=False,
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
        name="xla",
        kind="switch",
        label="XLA",
        help="Compile the training step with XLA (jit_compile=True).",
        default=False,
        common=True,
        frameworks=("tensorflow",),
        named="special",
        silent=True,
        same_result=True,
    ),
    Parameter(
        name="all_reduce",
        kind="choice",
        label="All-reduce",
        help="How several GPUs exchange their gradients at the end of a step.",
        default="nccl",
        choices=(
            Choice(
                value="nccl",
                label="NCCL",
                help="NVIDIA's library: all GPUs add in a ring or a tree; PyTorch uses it in DistributedDataParallel, "
                "with a process per GPU.",
            ),
            Choice(value="hierarchical", label="Hierarchical copy", help="Copies between two halves of the GPUs."),
            Choice(value="one_device", label="One device", help="Copied to one GPU, added there and copied back."),
            Choice(
                value="data_parallel",
                label="DataParallel",
                help="PyTorch's older way: one process copies the weights to all GPUs in each step and adds their "
                "gradients on one.",
            ),
        ),
        scales=True,
        silent=True,
        same_result=True,
    ),
    Parameter(
        name="layout_optimizer",
        kind="switch",
        label="Layout optimizer",
        help=f"Let {FRAMEWORK.name}'s graph optimizer change the data layout. Off keeps the requested layout.",
        default=False,
        frameworks=("tensorflow",),
        silent=True,
        same_result=True,
    ),
    Parameter(
        name="memory_growth",
        kind="switch",
        label="Memory growth",
        help=f"Take GPU memory as needed; off, {FRAMEWORK.name} takes nearly all of it at the start.",
        default=True,
        frameworks=("tensorflow",),
        silent=True,
        same_result=True,
    ),
    Parameter(
        name="memory_limit",
        kind="number",
        label="Memory limit",
        help="Limit the framework to this much of each GPU's memory, as on a smaller GPU; 0 sets no limit.",
        default=0.0,
        minimum=0.0,
        maximum=1024.0,
        unit="GiB",
        unset="off",
        same_result=True,
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
        name="evidence",
        kind="choice",
        label="Evidence",
        help="What is stored as proof of what ran; none of it costs time in the measured part.",
        default="trace",
        choices=(
            Choice(value="trace", label="Graph and trace", help="The executed graph, and the kernels of a few steps."),
            Choice(value="graph", label="Graph", help="The executed graph alone."),
            Choice(value="off", label="Off", help="Nothing: what really ran stays unknown."),
        ),
        affects_step=False,
    ),
)

SYNTHETIC = Choice(value="synthetic", label="Synthetic", help="Generated from the seed; stays on the device.")

SYNTHETIC_DATA: tuple[Parameter, ...] = (
    Parameter(
        name="data",
        kind="choice",
        label="Data",
        help="Where the training data come from.",
        default="synthetic",
        choices=(SYNTHETIC,),
    ),
)

SAVED_WEIGHTS: tuple[Parameter, ...] = (
    Parameter(
        name="save_weights",
        kind="switch",
        label="Save weights",
        help="Save the weights next to the database at the end of the run, to export the model.",
        default=False,
        affects_step=False,
        silent=True,
    ),
    Parameter(
        name="weights_from",
        kind="choice",
        label="Weights from",
        help="Which weights are saved.",
        default="last",
        choices=(
            Choice(value="last", label="Last step", help="Those after the last measured step."),
            Choice(
                value="best",
                label="Best so far",
                help="Those with the highest accuracy after an epoch; without epochs with the lowest loss after a "
                "measured block.",
            ),
        ),
        affects_step=False,
        silent=True,
    ),
)

_DURATION: tuple[Parameter, ...] = (
    Parameter(
        name="seconds",
        kind="number",
        label="Measure for",
        help="Length of the measured part; ignored if a number of steps is given.",
        default=10.0,
        minimum=0.1,
        maximum=86_400,
        unit="s",
        common=True,
        affects_step=False,
        repeats=True,
    ),
    integer_parameter(
        "steps",
        "Steps",
        "Measure exactly this many steps; 0 measures for the seconds above.",
        0,
        0,
        100_000_000,
        unset="off",
        affects_step=False,
        repeats=True,
    ),
    integer_parameter(
        "warmup_steps",
        "Warm-up steps",
        "Steps after the first that are run but not measured.",
        20,
        0,
        1_000_000,
        cpu_default=5,
        affects_step=False,
        repeats=True,
    ),
    integer_parameter(
        "seed",
        "Seed",
        "Seed of weights and synthetic data: the same seed, the same start.",
        1,
        0,
        2_147_483_647,
        affects_step=False,
        repeats=True,
    ),
    integer_parameter(
        "cpu_threads",
        "CPU threads",
        "Threads the framework may use on the CPU; 0 leaves it to the framework.",
        0,
        0,
        1024,
        unset="automatic",
        frameworks=("tensorflow", "pytorch"),
        same_result=True,
    ),
    Parameter(
        name="interpreter",
        kind="path",
        label="Python",
        help="The path of a virtual environment's folder or Python, with other versions of the libraries; it needs the "
        "framework, numpy and msgspec. Empty is this program's own. With packages, a version such as 3.12 is enough.",
        default="",
        unset="this program's own",
        same_result=True,
    ),
    Parameter(
        name="packages",
        kind="text",
        label="Packages",
        help="What uv installs for the run, in pip's syntax, separated by spaces: torch==2.9.* "
        "numpy==2.*. Empty is what the Python has.",
        default="",
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
        integer_parameter(
            "gpus",
            "GPUs",
            "How many GPUs train together (data parallel); 0 runs on the CPU.",
            1,
            0,
            64,
            cpu_default=0,
            common=True,
            named="special",
            identifies=True,
            scales=True,
            same_result=True,
        ),
        Parameter(
            name="devices",
            kind="text",
            label="Devices",
            help="Which GPUs, by index or UUID, separated by commas; empty takes the first free ones.",
            default="",
            unset="first free ones",
            affects_step=False,
        ),
        integer_parameter(
            "batch_size",
            "Batch size",
            f"{example.capitalize()}s per step over all GPUs together (the global batch).",
            batch_size,
            1,
            1_048_576,
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
