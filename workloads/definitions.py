"""The built-in workloads as data: every parameter with its type, limits, default and help."""

from workloads.image_parameters import IMAGE_DATA, IMAGE_TRAINING
from workloads.parameters import (
    FRAMEWORK_CHOICE,
    FRAMEWORK_COMPUTATION,
    SAVED_WEIGHTS,
    common_parameters,
    integer_parameter,
)
from workloads.recurrent_layers import RECURRENT_LAYERS
from workloads.schema import Choice, Parameter, Workload

_RECURRENT_DETAILS = (
    Parameter(
        name="dropout",
        kind="number",
        label="Dropout",
        help="Share of each layer's inputs dropped in training, the same at all steps of a sequence; cudnn_stack "
        "drops others at each step, and none of the first layer's.",
        default=0.0,
        minimum=0.0,
        maximum=0.9,
    ),
    Parameter(
        name="recurrent_dropout",
        kind="number",
        label="Recurrent dropout",
        help="Share of each layer's own last outputs dropped in training, the same at all steps of a sequence.",
        default=0.0,
        minimum=0.0,
        maximum=0.9,
    ),
    Parameter(
        name="sequence_lengths",
        kind="choice",
        label="Sequence lengths",
        help="Whether sequences fill all time steps, or half of them to all, the rest padding that is masked out.",
        default="fixed",
        choices=(
            Choice(value="fixed", label="All the same", help="Every sequence fills all time steps; no mask."),
            Choice(value="right_padded", label="Padded at the end", help="Lengths differ; zeros follow the sequence."),
            Choice(value="left_padded", label="Padded at the start", help="Lengths differ; zeros precede it."),
        ),
    ),
    Parameter(
        name="outputs",
        kind="choice",
        label="Outputs",
        help="What the dense head reads: one answer per sequence, or one per time step, as in sequence labelling.",
        default="last",
        choices=(
            Choice(value="last", label="Last", help="The sum of both marked numbers, after the sequence."),
            Choice(value="all", label="All", help="At every step the sum so far; padding does not count."),
        ),
        silent=True,
    ),
    Parameter(
        name="activation",
        kind="choice",
        label="Activation",
        help="The function of the cell's input and output; the fused kernels have tanh only.",
        default="tanh",
        choices=(
            Choice(value="tanh", label="tanh", help="The cell's own."),
            Choice(value="relu", label="ReLU", help="In loops of Keras and JAX only."),
        ),
    ),
    integer_parameter(
        "unroll",
        "Unroll factor",
        "Time steps per iteration of the loop, for the implementations that loop in this program, and JAX's scans: "
        "fewer iterations, a longer program to compile.",
        1,
        1,
        10_000,
        frameworks=("tensorflow", "jax"),
        silent=True,
        same_result=True,
    ),
    integer_parameter(
        "input_steps",
        "Steps per input product",
        "Time steps whose input products are computed as one before the loop, for the implementations that combine "
        "them.",
        0,
        0,
        10_000,
        unset="all",
        frameworks=("tensorflow",),
        silent=True,
        same_result=True,
    ),
    *SAVED_WEIGHTS,
)


def _recurrent_workload(name: str) -> Workload:
    """Return the workload of one kind of recurrent layer; all have the same parameters."""
    layer = RECURRENT_LAYERS[name]
    label = layer.config.keras_name
    return Workload(
        name=name,
        title=f"{label} · adding problem",
        help=f"A stack of {label} layers learns to add two marked numbers of a noisy sequence "
        "(Hochreiter, Schmidhuber 1997).",
        example="sequence",
        parameters=(
            FRAMEWORK_CHOICE,
            Parameter(
                name="implementation",
                kind="choice",
                label="Implementation",
                help=f"How the {label} layers are computed.",
                default="cudnn",
                cpu_default="standard",
                choices=tuple(
                    Choice(value=option.name, label=option.label, help=option.help) for option in layer.implementations
                ),
                common=True,
                named="first",
                identifies=True,
                same_result=True,
            ),
            integer_parameter("layers", "Layers", f"{label} layers, one on top of the other.", 1, 1, 16, common=True),
            integer_parameter(
                "units", "Units", "Hidden units of each layer.", 512, 1, 16_384, cpu_default=64, common=True
            ),
            integer_parameter("timesteps", "Time steps", "Length of each sequence.", 100, 2, 10_000, cpu_default=50),
            integer_parameter(
                "features",
                "Features",
                "Inputs per time step: two informative ones, the rest noise.",
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
                silent=True,
            ),
            *_RECURRENT_DETAILS,
            *FRAMEWORK_COMPUTATION,
            *common_parameters(64, 32, "sequence"),
        ),
    )


_CNN_COMPUTATION = (
    FRAMEWORK_CHOICE,
    Parameter(
        name="implementation",
        kind="choice",
        label="Implementation",
        help="How the layers are computed.",
        default="native",
        choices=(
            Choice(value="native", label="Native", help="The framework's own operations, with fused batch norm."),
            Choice(value="keras", label="Keras", help="Keras layers with data_format and axis given on each."),
        ),
        common=True,
        named="first",
        identifies=True,
        same_result=True,
    ),
    Parameter(
        name="layout",
        kind="choice",
        label="Layout",
        help="Order of an image tensor's axes in every convolution, normalisation and pooling.",
        default="NCHW",
        cpu_default="NHWC",  # TensorFlow supports it on every processor in every precision
        choices=(
            Choice(value="NCHW", label="NCHW", help="Channels first: Keras's channels_first, PyTorch's contiguous."),
            Choice(value="NHWC", label="NHWC", help="Channels last: TensorFlow's default, PyTorch's channels_last."),
        ),
        common=True,
        named="first",
        identifies=True,
        same_result=True,
    ),
)

_POOLING = Parameter(
    name="pooling",
    kind="choice",
    label="Downsampling",
    help="How images are halved between the blocks.",
    default="average",
    choices=(
        Choice(value="average", label="Average pooling", help="The mean of 2x2 pixels."),
        Choice(value="max", label="Maximum pooling", help="The largest of 2x2 pixels."),
        Choice(
            value="strided",
            label="Strided convolution",
            help="No pooling: the last convolution of a block has stride 2, with the same weights.",
        ),
    ),
    silent=True,
)

_BIAS = Parameter(
    name="bias",
    kind="switch",
    label="Bias",
    help="Add a bias to each convolution, as Keras does by default; batch norm subtracts it again.",
    default=False,
    silent=True,
)

CNN10 = Workload(
    name="cnn10",
    title="CNN · 10 layers, 32×32 images",
    help="Three blocks of three 3×3 convolutions with batch norm and ReLU, and pooling in between, for 32×32 images.",
    example="image",
    parameters=(
        *_CNN_COMPUTATION,
        integer_parameter(
            "channels",
            "Channels",
            "Channels of the first block; they double in each of the next two.",
            64,
            1,
            1024,
            cpu_default=16,
        ),
        _POOLING,
        _BIAS,
        *IMAGE_TRAINING,
        *SAVED_WEIGHTS,
        *FRAMEWORK_COMPUTATION,
        *common_parameters(1024, 32, "image", IMAGE_DATA),
    ),
)

WRN = Workload(
    name="wrn28-10",
    title="Wide ResNet · 28 layers, 32×32 images",
    help="A wide residual network (Zagoruyko, Komodakis 2016) on CIFAR-10-sized images: 36.5 million weights.",
    example="image",
    parameters=(
        *_CNN_COMPUTATION,
        integer_parameter("depth", "Depth", "Layers: 10, 16, 22, 28 … (6n + 4).", 28, 10, 100, cpu_default=10),
        integer_parameter(
            "widen", "Width", "Channels, in multiples of a narrow network's 16, 32, 64.", 10, 1, 20, cpu_default=1
        ),
        _BIAS,
        *IMAGE_TRAINING,
        *SAVED_WEIGHTS,
        *FRAMEWORK_COMPUTATION,
        *common_parameters(128, 16, "image", IMAGE_DATA),
    ),
)

DUMMY = Workload(
    name="dummy",
    title="Dummy · no TensorFlow",
    help="Blocks of sleep with a falling loss; for tests of the program itself.",
    example="example",
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
            named="first",
        ),
        integer_parameter(
            "fitting_batch_size",
            "Batch that fits",
            "The largest batch size at which the behaviour out_of_memory has enough memory.",
            0,
            0,
            1_048_576,
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
        *common_parameters(8, 8, "example"),
    ),
)

WORKLOADS: tuple[Workload, ...] = (*map(_recurrent_workload, RECURRENT_LAYERS), CNN10, WRN, DUMMY)
