"""The first start: where runs could be made, what each place takes, and how far the making of an environment is."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from app.samples import Inventory
from workloads.catalog import FRAMEWORK

if TYPE_CHECKING:  # its imports would delay the window's first paint
    from app.environments.records import EnvironmentOffer

Place = Literal["gpu", "cpu", "host", "reference"]
Action = Literal["compare", "install", "download", "cancel", "host", "reference"]

TITLE = "Where do you want to run?"
LEAD = (
    "Each run is a separate process, on this machine or another; this window compares them. "
    "You can change this later in Settings."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstChoice:
    """A place for runs: its name, what it has or takes, and what can be done, each with its label.

    With `is_busy` its environment is being made; a `problem` replaces the text.
    """

    place: Place
    title: str
    text: str
    actions: tuple[tuple[Action, str], ...] = ()
    is_busy: bool = False
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """The making of an environment for the place that the user chose: an offer, a line of progress, or a failure."""

    place: Place
    step: "EnvironmentOffer | str" = f"Looking for {FRAMEWORK.name} …"
    problem: str = ""


def first_choices(
    inventory: Inventory,
    framework: str | None,
    reference_runs: int,
    installation: Installation | None = None,
) -> tuple[FirstChoice, ...]:
    """Return the places for runs, the GPUs of this machine first.

    Args:
        inventory: The devices of this machine.
        framework: The framework's version in the environment that runs use here; None where there is none.
        reference_runs: How many runs come with the program.
        installation: The making of an environment, if it has begun.
    """
    usable = {gpu.uuid for gpu in inventory.machine.gpus} if inventory.machine.hidden_by else None
    gpus = [device for device in inventory.devices if device.kind == "gpu" and device.lost is None]
    names = [device.name for device in gpus if usable is None or device.device in usable]
    local: list[tuple[Place, str, str]] = []
    if names:
        local.append(("gpu", _gpu_title(names), ""))
        local.append(("cpu", "This machine's CPU", f"{_cores(inventory)}."))
    else:
        reason = f" No GPU: {inventory.no_gpu_reason}." if inventory.no_gpu_reason else ""
        local.append(("cpu", "This machine's CPU", f"{_cores(inventory)}.{reason}"))
    found = [_local_choice(*place, framework, installation) for place in local]
    text = f"{reference_runs} runs measured on H200s come with the program, to compare and replay."
    actions: tuple[tuple[Action, str], ...] = (("reference", "Show the reference runs"),)
    return (*found, _HOST, FirstChoice(place="reference", title="Just look", text=text, actions=actions))


_HOST = FirstChoice(
    place="host",
    title="Another machine, over SSH",
    text="Runs and telemetry there, window and results here, over your own SSH. Nothing to install there.",
    actions=(("host", "Add a host …"),),
)


def _gpu_title(names: Sequence[str]) -> str:
    """Return the title for these GPUs: `This machine's GPU: NVIDIA H200`, `This machine's 2 GPUs: NVIDIA H200`."""
    kinds = ", ".join(dict.fromkeys(names))
    return f"This machine's {f'{len(names)} GPUs' if len(names) > 1 else 'GPU'}: {kinds}"


def _cores(inventory: Inventory) -> str:
    count = inventory.machine.cpu_count
    return f"{count} {'core' if count == 1 else 'cores'}"


def _local_choice(
    place: Place, title: str, text: str, framework: str | None, installation: Installation | None
) -> FirstChoice:
    """Return the choice of a place on this machine, where runs need the framework."""
    if framework:
        ready = f"{text} {FRAMEWORK.name} {framework} is installed.".strip()
        return FirstChoice(place=place, title=title, text=ready, actions=(("compare", "Start the &quick comparison"),))
    if installation is None or installation.place != place:
        needed = f"{text} Runs need {FRAMEWORK.name}, a one-time download whose size you see first.".strip()
        # One at a time.
        actions: tuple[tuple[Action, str], ...] = () if installation and not installation.problem else _GET
        return FirstChoice(place=place, title=title, text=needed, actions=actions)
    if installation.problem:
        return FirstChoice(place=place, title=title, text=text, actions=_AGAIN, problem=installation.problem)
    if isinstance(installation.step, str):
        text, actions = installation.step, (("cancel", "Cancel"),)
        return FirstChoice(place=place, title=title, text=text, actions=actions, is_busy=True)
    offered: tuple[tuple[Action, str], ...] = (("download", "&Download"), ("cancel", "Cancel"))
    return FirstChoice(place=place, title=title, text=installation.step.sentence, actions=offered)


_GET: tuple[tuple[Action, str], ...] = (("install", f"Get {FRAMEWORK.name} …"),)
_AGAIN: tuple[tuple[Action, str], ...] = (("install", "&Try again"),)
