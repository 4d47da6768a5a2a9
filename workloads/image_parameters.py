"""The parameters of the image workloads: where images come from, how they are changed, and how a training proceeds."""

from workloads.parameters import SYNTHETIC
from workloads.schema import Choice, Parameter

IMAGE_DATA: tuple[Parameter, ...] = (
    Parameter(
        "data",
        "Data",
        "Where the images come from.",
        "synthetic",
        choices=(
            SYNTHETIC,
            Choice("cifar10", "CIFAR-10", "From a copy on this machine."),
            Choice(
                "stand_in",
                "Stand-in",
                "Generated, as many and as large as CIFAR-10's, for machines without a copy; they can be learnt.",
            ),
        ),
    ),
    Parameter(
        "data_folder",
        "Data folder",
        "The folder of CIFAR-10; empty uses the one in VARIANTSCOPE_DATA, else the user's cache folder.",
        "",
        unset="usual place",
        frameworks=("tensorflow", "pytorch"),
        affects_step=False,
    ),
    Parameter(
        "images",
        "Training images",
        "Train on this many images of CIFAR-10 or the stand-in, and test on a fifth as many; 0 uses all.",
        0,
        limits=(0, 50_000),
        unset="all",
        frameworks=("tensorflow", "pytorch"),
        silent=True,
    ),
    Parameter(
        "augmentation",
        "Augmentation",
        "How training images of CIFAR-10 or the stand-in are changed, differently in every pass.",
        "crop_mirror",
        choices=(
            Choice("crop_mirror", "Crop and mirror", "Shifted by up to 4 pixels, and mirrored by chance."),
            Choice("none", "None", "Every pass has the same images."),
        ),
        frameworks=("tensorflow", "pytorch"),
        silent=True,
    ),
    Parameter(
        "scaling",
        "Scaling",
        "How the bytes of CIFAR-10 or the stand-in become numbers.",
        "standard",
        choices=(
            Choice("standard", "Standard", "Each channel less its mean, by its deviation."),
            Choice("unit", "/255", "Divided by 255, from 0 to 1."),
        ),
        frameworks=("tensorflow", "pytorch"),
        silent=True,
    ),
    Parameter(
        "epochs",
        "Epochs",
        "Train this many times over all training images, and measure the accuracy after each; seconds, steps and "
        "warm-up steps are then ignored. 0 measures for a time or a number of steps.",
        0,
        limits=(0, 10_000),
        frameworks=("tensorflow", "pytorch"),
        unset="off",
    ),
)
"""Data parameters that come first, among those of every workload."""

IMAGE_TRAINING: tuple[Parameter, ...] = (
    Parameter(
        "learning_rate",
        "Learning rate",
        "The learning rate of gradient descent with momentum 0.9; with a schedule, its maximum.",
        0.05,
        limits=(1e-6, 10.0),
        silent=True,
    ),
    Parameter(
        "schedule",
        "Schedule",
        "How the learning rate changes from the first step to the last of a run with epochs or steps.",
        "constant",
        choices=(
            Choice("constant", "Constant", "It stays."),
            Choice("cosine", "Cosine", "Half a cosine down to 0 (Loshchilov, Hutter 2017)."),
            Choice(
                "one_cycle",
                "One cycle",
                "In 30 % of the steps straight up from 0, in the others straight down to 0 (Smith, Topin 2018).",
            ),
        ),
        silent=True,
    ),
    Parameter(
        "weight_decay",
        "Weight decay",
        "The multiple of each kernel that is added to its gradient; biases and batch norm are excluded.",
        0.0,
        limits=(0.0, 1.0),
        silent=True,
    ),
)
