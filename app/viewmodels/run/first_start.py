"""The first start: where runs could be made, and what each place takes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from app.samples import Inventory
from workloads.catalog import FRAMEWORK

Target = Literal["gpu", "cpu", "host", "reference"]
Action = Literal["compare", "install", "host", "reference"]

TITLE = "Where do you want to run?"
LEAD = (
    "Each run is a separate process, on this machine or another; this window compares them. "
    "You can change this later in Settings."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstChoice:
    """A place for runs: its name, what it has or takes, and what can be done, each with its label."""

    target: Target
    title: str
    text: str
    actions: tuple[tuple[Action, str], ...] = ()


def first_choices(
    inventory: Inventory, framework: str | None, reference_runs: int, *, is_making: bool = False
) -> tuple[FirstChoice, ...]:
    """Return the places for runs, the GPUs of this machine first; without any, the reference runs.

    `framework` is its version in the environment that runs use here, None where there is none.
    """
    usable = {gpu.uuid for gpu in inventory.machine.gpus} if inventory.machine.hidden_by else None
    gpus = [device for device in inventory.devices if device.kind == "gpu" and device.lost is None]
    names = [device.name for device in gpus if usable is None or device.device in usable]
    local: list[tuple[Target, str, str]] = []
    if names:
        local.append(("gpu", _gpu_title(names), ""))
        local.append(("cpu", "This machine's CPU", f"{_cores(inventory)}."))
    else:
        reason = f" No GPU: {inventory.no_gpu_reason}." if inventory.no_gpu_reason else ""
        local.append(("cpu", "This machine's CPU", f"{_cores(inventory)}.{reason}"))
    choices = [_local_choice(*arguments, framework, is_making=is_making) for arguments in local]
    look = FirstChoice(
        target="reference",
        title="Just look",
        text=f"{reference_runs} runs measured on H200s come with the program, to look at and compare.",
        actions=(("reference", "Show the reference runs"),),
    )
    return (*choices, _HOST, look) if names else (look, *choices, _HOST)


_HOST = FirstChoice(
    target="host",
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


def _local_choice(target: Target, title: str, text: str, framework: str | None, *, is_making: bool) -> FirstChoice:
    """Return the choice of a place on this machine, where runs need the framework."""
    actions: tuple[tuple[Action, str], ...] = ()
    if framework:
        text = f"{text} {FRAMEWORK.name} {framework} is installed.".strip()
        actions = (("compare", "Start the &quick comparison"),)
    elif not is_making:
        text = f"{text} Runs need {FRAMEWORK.name}, a one-time download whose size you see first.".strip()
        actions = (("install", f"Get {FRAMEWORK.name} …"),)
    return FirstChoice(target=target, title=title, text=text, actions=actions)
