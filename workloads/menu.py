"""The workloads as data: every parameter with its form, limits, default and help."""

from workloads.kinds import Choice, Parameter, Workload


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


_HOW: tuple[Parameter, ...] = (
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
        name="all_reduce",
        kind="choice",
        label="All-reduce",
        help="How several GPUs exchange their gradients at the end of a step.",
        default="nccl",
        choices=(
            Choice(value="nccl", label="NCCL", help="NVIDIA's library: all GPUs add in a ring or a tree."),
            Choice(value="hierarchical", label="Hierarchical copy", help="Copies between two halves of the GPUs."),
            Choice(value="one_device", label="One device", help="Copied to one GPU, added there and copied back."),
        ),
        advanced=True,
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
        name="evidence",
        kind="choice",
        label="Evidence",
        help="What is kept as proof of what ran: nothing of it costs time in the measured part.",
        default="trace",
        choices=(
            Choice(value="trace", label="Graph and trace", help="The executed graph, and the kernels of a few steps."),
            Choice(value="graph", label="Graph", help="The executed graph alone."),
            Choice(value="off", label="Off", help="Nothing: whether it ran as asked stays unknown."),
        ),
        advanced=True,
    ),
)

_HOW_LONG: tuple[Parameter, ...] = (
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
        *_HOW,
        *_HOW_LONG,
    )


_IMPLEMENTATIONS = (
    Choice(value="standard", label="Standard", help="Keras LSTM with use_cudnn=False: a loop over time steps."),
    Choice(value="cudnn", label="cuDNN", help="Keras LSTM with use_cudnn=True: NVIDIA's fused kernels; GPU only."),
    Choice(value="auto", label="Keras decides", help="Keras LSTM with use_cudnn='auto': it falls back without a word."),
    Choice(value="block_fused", label="Block-fused", help="One BlockLSTMV2 op a layer and direction; GPU and CPU."),
    Choice(value="cudnn_stack", label="cuDNN, whole stack", help="All layers in one cuDNN call; GPU only."),
    Choice(value="gemm8", label="8 products", help="The ladder's start: eight matrix products a step, single ops."),
    Choice(value="gemm2", label="2 products", help="All gates together: one input, one recurrent product a step."),
    Choice(value="gemm_batched", label="Batched products", help="Both products of a step side by side, as one batch."),
    Choice(value="fused", label="Fused gates", help="And all arithmetic of the gates in one compiled kernel."),
    Choice(value="pretransposed", label="Pre-transposed", help="And the weights transposed once before the loop."),
    Choice(value="combined_input", label="Combined inputs", help="And the input product of all steps made at once."),
    Choice(value="wavefront", label="Wavefront", help="And all layers at once, each one step behind the one below."),
)

_LSTM_DETAILS = (
    Parameter(
        name="dropout",
        kind="number",
        label="Dropout",
        help="Share of each layer's inputs left out in training, the same at all steps of a sequence.",
        default=0.0,
        minimum=0.0,
        maximum=0.9,
    ),
    Parameter(
        name="recurrent_dropout",
        kind="number",
        label="Recurrent dropout",
        help="Share of each layer's own last outputs left out in training, the same at all steps of a sequence.",
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
        name="activation",
        kind="choice",
        label="Activation",
        help="The function of the cell's input and output; the fused kernels know tanh alone.",
        default="tanh",
        choices=(
            Choice(value="tanh", label="tanh", help="The LSTM's own."),
            Choice(value="relu", label="ReLU", help="Only in Keras's loop."),
        ),
        advanced=True,
    ),
    _integer(
        "unroll",
        "Steps a turn",
        "Time steps in one turn of the loop, for the implementations that loop in this program: fewer turns, a longer "
        "program to compile.",
        1,
        1,
        10_000,
        advanced=True,
    ),
    Parameter(
        name="save_weights",
        kind="switch",
        label="Save weights",
        help="Keep the weights at the run's end beside the database, to export the model.",
        default=False,
        advanced=True,
    ),
)

LSTM = Workload(
    name="lstm",
    title="LSTM · adding problem",
    help="A stack of LSTM layers learns to add two marked numbers of a noisy sequence (Hochreiter, Schmidhuber 1997).",
    example="sequence",
    parameters=(
        Parameter(
            name="implementation",
            kind="choice",
            label="Implementation",
            help="How the LSTM layers are computed.",
            default="cudnn",
            cpu_default="standard",
            choices=_IMPLEMENTATIONS,
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
        *_LSTM_DETAILS,
        *_common(64, 32, "sequence"),
    ),
)

CNN10 = Workload(
    name="cnn10",
    title="CNN · 10 layers, 32 x 32 images",
    help="Three blocks of three 3x3 convolutions with batch norm and ReLU, pooling between, on CIFAR-10-sized images.",
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
