"""The parameters of the image workloads: where images come from, how they are changed, and how a training proceeds."""

from workloads.parameters import SYNTHETIC, integer_parameter
from workloads.schema import Choice, Parameter

IMAGE_DATA: tuple[Parameter, ...] = (
    Parameter(
        name="data",
        kind="choice",
        label="Data",
        help="Where the images come from.",
        default="synthetic",
        choices=(
            SYNTHETIC,
            Choice(value="cifar10", label="CIFAR-10", help="From a copy on this machine."),
            Choice(
                value="stand_in",
                label="Stand-in",
                help="Generated, as many and as large as CIFAR-10's, for machines without a copy; they can be learnt.",
            ),
        ),
    ),
    Parameter(
        name="data_folder",
        kind="text",
        label="Data folder",
        help="The folder of CIFAR-10; empty uses the one in VARIANTSCOPE_DATA, else the user's cache folder.",
        default="",
        unset="usual place",
        frameworks=("tensorflow", "pytorch"),
        affects_step=False,
    ),
    integer_parameter(
        "images",
        "Training images",
        "Train on this many images of CIFAR-10 or the stand-in, and test on a fifth as many; 0 uses all.",
        0,
        0,
        50_000,
        unset="all",
        frameworks=("tensorflow", "pytorch"),
        silent=True,
    ),
    Parameter(
        name="augmentation",
        kind="choice",
        label="Augmentation",
        help="How training images of CIFAR-10 or the stand-in are changed, differently in every pass.",
        default="crop_mirror",
        choices=(
            Choice(
                value="crop_mirror", label="Crop and mirror", help="Shifted by up to 4 pixels, and mirrored by chance."
            ),
            Choice(value="none", label="None", help="Every pass has the same images."),
        ),
        frameworks=("tensorflow", "pytorch"),
        silent=True,
    ),
    Parameter(
        name="scaling",
        kind="choice",
        label="Scaling",
        help="How the bytes of CIFAR-10 or the stand-in become numbers.",
        default="standard",
        choices=(
            Choice(value="standard", label="Standard", help="Each channel less its mean, by its deviation."),
            Choice(value="unit", label="/255", help="Divided by 255, from 0 to 1."),
        ),
        frameworks=("tensorflow", "pytorch"),
        silent=True,
    ),
    integer_parameter(
        "epochs",
        "Epochs",
        "Train this many times over all training images, and measure the accuracy after each; seconds, steps and "
        "warm-up steps are then ignored. 0 measures for a time or a number of steps.",
        0,
        0,
        10_000,
        frameworks=("tensorflow", "pytorch"),
        unset="off",
    ),
)
"""Data parameters that come first, among those of every workload."""

IMAGE_TRAINING: tuple[Parameter, ...] = (
    Parameter(
        name="learning_rate",
        kind="number",
        label="Learning rate",
        help="The learning rate of gradient descent with momentum 0.9; with a schedule, its maximum.",
        default=0.05,
        minimum=1e-6,
        maximum=10.0,
        silent=True,
    ),
    Parameter(
        name="schedule",
        kind="choice",
        label="Schedule",
        help="How the learning rate changes from the first step to the last of a run with epochs or steps.",
        default="constant",
        choices=(
            Choice(value="constant", label="Constant", help="It stays."),
            Choice(value="cosine", label="Cosine", help="Half a cosine down to 0 (Loshchilov, Hutter 2017)."),
            Choice(
                value="one_cycle",
                label="One cycle",
                help="In 30 % of the steps straight up from 0, in the others straight down to 0 (Smith, Topin 2018).",
            ),
        ),
        silent=True,
    ),
    Parameter(
        name="weight_decay",
        kind="number",
        label="Weight decay",
        help="The multiple of each kernel that is added to its gradient; biases and batch norm are excluded.",
        default=0.0,
        minimum=0.0,
        maximum=1.0,
        silent=True,
    ),
)
