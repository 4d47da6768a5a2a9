"""The parameters of the image workloads: where images come from, what is made of them, and how a training goes."""

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
                help="Made, as many and as large as CIFAR-10's, for machines without a copy; they can be learnt.",
            ),
        ),
    ),
    Parameter(
        name="data_folder",
        kind="text",
        label="Data folder",
        help="Where CIFAR-10 lies; empty looks where VARIANTSCOPE_DATA says, else in the user's cache folder.",
        default="",
        unset="usual place",
        frameworks=("tensorflow", "pytorch"),
        affects_step=False,
    ),
    integer_parameter(
        "images",
        "Training images",
        "Train on the first so many images of CIFAR-10 or the stand-in, and test on a fifth as many; 0 takes all.",
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
        help="What is done to the training images of CIFAR-10 or the stand-in, another way in every pass.",
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
        "Train this often over all training images, with the accuracy after each; seconds, steps and warm-up steps are "
        "ignored then. 0 measures for a time or a number of steps.",
        0,
        0,
        10_000,
        frameworks=("tensorflow", "pytorch"),
        unset="off",
    ),
)
"""Those that have a place among the parameters of every workload."""

IMAGE_TRAINING: tuple[Parameter, ...] = (
    Parameter(
        name="learning_rate",
        kind="number",
        label="Learning rate",
        help="The learning rate of gradient descent with momentum 0.9; with a schedule its highest.",
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
        help="This times each kernel is added to its gradient; not to those of biases and batch norm.",
        default=0.0,
        minimum=0.0,
        maximum=1.0,
        silent=True,
    ),
)
