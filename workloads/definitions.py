"""The built-in workloads as data: every parameter with its type, limits, default and help."""

from workloads.image_parameters import IMAGE_DATA, IMAGE_TRAINING
from workloads.parameters import FRAMEWORK_CHOICE, FRAMEWORK_COMPUTATION, SAVED_WEIGHTS, common_parameters
from workloads.recurrent_layers import RECURRENT_LAYERS
from workloads.schema import Choice, Parameter, Workload

_RECURRENT_DETAILS = (
    Parameter(
        "dropout",
        "Dropout",
        "Share of each layer's inputs dropped in training, the same at all steps of a sequence; cudnn_stack "
        "drops others at each step, and none of the first layer's.",
        0.0,
        limits=(0.0, 0.9),
    ),
    Parameter(
        "recurrent_dropout",
        "Recurrent dropout",
        "Share of each layer's own last outputs dropped in training, the same at all steps of a sequence.",
        0.0,
        limits=(0.0, 0.9),
    ),
    Parameter(
        "sequence_lengths",
        "Sequence lengths",
        "Whether sequences fill all time steps, or half of them to all, the rest padding that is masked out.",
        "fixed",
        choices=(
            Choice("fixed", "All the same", "Every sequence fills all time steps; no mask."),
            Choice("right_padded", "Padded at the end", "Lengths differ; zeros follow the sequence."),
            Choice("left_padded", "Padded at the start", "Lengths differ; zeros precede it."),
        ),
    ),
    Parameter(
        "outputs",
        "Outputs",
        "What the dense head reads: one answer per sequence, or one per time step, as in sequence labelling.",
        "last",
        choices=(
            Choice("last", "Last", "The sum of both marked numbers, after the sequence."),
            Choice("all", "All", "At every step the sum so far; padding does not count."),
        ),
        silent=True,
    ),
    Parameter(
        "activation",
        "Activation",
        "The function of the cell's input and output; the fused kernels have tanh only.",
        "tanh",
        choices=(
            Choice("tanh", "tanh", "The cell's own."),
            Choice("relu", "ReLU", "In loops of Keras and JAX only."),
        ),
    ),
    Parameter(
        "unroll",
        "Unroll factor",
        "Time steps per iteration of the loop, for the implementations that loop in this program, and JAX's scans: "
        "fewer iterations, a longer program to compile.",
        1,
        limits=(1, 10_000),
        frameworks=("tensorflow", "jax"),
        silent=True,
        same_result=True,
    ),
    Parameter(
        "input_steps",
        "Steps per input product",
        "Time steps whose input products are computed as one before the loop, for the implementations that combine "
        "them.",
        0,
        limits=(0, 10_000),
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
                "implementation",
                "Implementation",
                f"How the {label} layers are computed.",
                "cudnn",
                cpu_default="standard",
                choices=tuple(Choice(option.name, option.label, option.help) for option in layer.implementations),
                common=True,
                named="first",
                identifies=True,
                same_result=True,
            ),
            Parameter("layers", "Layers", f"{label} layers, one on top of the other.", 1, limits=(1, 16), common=True),
            Parameter(
                "units", "Units", "Hidden units of each layer.", 512, limits=(1, 16_384), cpu_default=64, common=True
            ),
            Parameter("timesteps", "Time steps", "Length of each sequence.", 100, limits=(2, 10_000), cpu_default=50),
            Parameter(
                "features",
                "Features",
                "Inputs per time step: two informative ones, the rest noise.",
                512,
                limits=(2, 16_384),
                cpu_default=16,
            ),
            Parameter(
                "bidirectional",
                "Bidirectional",
                "Read each sequence in both directions and concatenate.",
                False,
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
        "implementation",
        "Implementation",
        "How the layers are computed.",
        "native",
        choices=(
            Choice("native", "Native", "The framework's own operations, with fused batch norm."),
            Choice("keras", "Keras", "Keras layers with data_format and axis given on each."),
        ),
        common=True,
        named="first",
        identifies=True,
        same_result=True,
    ),
    Parameter(
        "layout",
        "Layout",
        "Order of an image tensor's axes in every convolution, normalisation and pooling.",
        "NCHW",
        cpu_default="NHWC",  # TensorFlow supports it on every processor in every precision
        choices=(
            Choice("NCHW", "NCHW", "Channels first: Keras's channels_first, PyTorch's contiguous."),
            Choice("NHWC", "NHWC", "Channels last: TensorFlow's default, PyTorch's channels_last."),
        ),
        common=True,
        named="first",
        identifies=True,
        same_result=True,
    ),
)

_POOLING = Parameter(
    "pooling",
    "Downsampling",
    "How images are halved between the blocks.",
    "average",
    choices=(
        Choice("average", "Average pooling", "The mean of 2x2 pixels."),
        Choice("max", "Maximum pooling", "The largest of 2x2 pixels."),
        Choice(
            "strided",
            "Strided convolution",
            "No pooling: the last convolution of a block has stride 2, with the same weights.",
        ),
    ),
    silent=True,
)

_BIAS = Parameter(
    "bias",
    "Bias",
    "Add a bias to each convolution, as Keras does by default; batch norm subtracts it again.",
    False,
    silent=True,
)

CNN10 = Workload(
    name="cnn10",
    title="CNN · 10 layers, 32×32 images",
    help="Three blocks of three 3×3 convolutions with batch norm and ReLU, and pooling in between, for 32×32 images.",
    example="image",
    parameters=(
        *_CNN_COMPUTATION,
        Parameter(
            "channels",
            "Channels",
            "Channels of the first block; they double in each of the next two.",
            64,
            limits=(1, 1024),
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
        Parameter("depth", "Depth", "Layers: 10, 16, 22, 28 … (6n + 4).", 28, limits=(10, 100), cpu_default=10),
        Parameter(
            "widen",
            "Width",
            "Channels, in multiples of a narrow network's 16, 32, 64.",
            10,
            limits=(1, 20),
            cpu_default=1,
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
            "behaviour",
            "Behaviour",
            "What the worker does.",
            "train",
            choices=tuple(
                Choice(value, value)
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
        Parameter(
            "fitting_batch_size",
            "Batch that fits",
            "The largest batch size at which the behaviour out_of_memory has enough memory.",
            0,
            limits=(0, 1_048_576),
        ),
        Parameter("step_ms", "Step time", "Length of one step.", 5.0, limits=(0.01, 60_000), unit="ms"),
        *common_parameters(8, 8, "example"),
    ),
)

WORKLOADS: tuple[Workload, ...] = (*map(_recurrent_workload, RECURRENT_LAYERS), CNN10, WRN, DUMMY)
