"""Hosts as the window shows them: the state of their connections, and the form's choice of a host."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from app.values import units
from app.values.samples import Inventory
from app.viewmodels.format.cells import Tone
from app.viewmodels.format.naming import format_gpu_counts
from app.viewmodels.plot.panels import MachineState, machine_state
from app.viewmodels.run.fields import Field, Option

Stage = Literal["off", "connecting", "connected", "lost", "failed"]
"""The state of a connection: `lost` was connected and is retried, `failed` never connected."""

MANAGE = "\0manage"
"""The choice that opens the hosts dialog; no host has this name."""
SILENT_S = 3.0
"""After this time without a message a host is reported as silent."""
_WORDS: dict[Stage, tuple[str, Tone]] = {
    "off": ("not connected", "quiet"),
    "connecting": ("connecting …", "busy"),
    "connected": ("connected", "good"),
    "lost": ("lost", "bad"),
    "failed": ("not reached", "bad"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HostState:
    """The state of the connection to a host.

    Its text says what it waits for, or why there is no connection; `silent_s` counts from its last message.
    """

    name: str
    stage: Stage = "off"
    text: str = ""
    silent_s: float = 0.0

    @property
    def can_retry(self) -> bool:
        """Return whether connecting or reconnecting makes sense."""
        return self.stage in ("off", "lost", "failed")


def connect_label(state: HostState) -> str:
    """Return the label of the button that connects or reconnects a host; "" if neither makes sense."""
    if not state.can_retry:
        return ""
    return "Try again" if state.stage != "off" else "Connect"


def describe_stage(state: HostState) -> tuple[str, Tone]:
    if state.stage == "connected" and state.silent_s >= SILENT_S:
        return f"silent for {units.age(state.silent_s)}", "warning"
    return _WORDS[state.stage]


def host_field(chosen: str, states: Sequence[HostState], inventory: Inventory | None) -> Field:
    """Return the choice of a run's host. The inventory is the chosen host's, once known."""
    states_by_name = {state.name: state for state in states}
    state = states_by_name.get(chosen, HostState(name=chosen))
    note = "" if not chosen else _note(state, inventory)
    options = (
        Option(value="", label="This machine"),
        *(Option(value=name, label=name, help=describe_stage(states_by_name[name])[0]) for name in states_by_name),
        *([Option(value=chosen, label=chosen)] if chosen and chosen not in states_by_name else []),
        Option(value=MANAGE, label="Hosts …" if states_by_name else "Add host …"),
    )
    return Field(
        name="host",
        label="Host",
        help="Where runs take place: on this machine, or on one reached over SSH, Slurm, Ray or Docker",
        chosen=tuple(option for option in options if option.value == chosen),
        options=options,
        takes_several=False,
        note=note,
        problem=state.stage in ("lost", "failed"),
    )


def _note(state: HostState, inventory: Inventory | None) -> str:
    word, _ = describe_stage(state)
    if state.stage != "connected":
        return state.text or units.sentence(f"{state.name} is {word}")
    machine = f"{machine_state(inventory).text} · " if inventory is not None else ""
    return f"{state.text} {machine}{word}".strip()


def host_machine(state: HostState, inventory: Inventory | None) -> MachineState:
    word, tone = describe_stage(state)
    if state.stage != "connected" or inventory is None:
        return MachineState(f"{state.name} · {word}", "muted" if tone in ("quiet", "busy") else "bad", state.text)
    machine = machine_state(inventory)
    if tone != "good":
        return MachineState(f"{state.name} · {word}", "warning", state.text)
    return machine._replace(text=f"{state.name} · {machine.text}")


def describe_absence(state: HostState) -> tuple[str, str]:
    """Return why the plots of a host stand still, as a title and a sentence; both "" if they do not."""
    name = state.name
    if state.stage == "connecting":
        return f"Connecting to {name}", state.text
    if state.stage in ("lost", "failed"):
        title = f"The link to {name} is lost" if state.stage == "lost" else f"{name} cannot be reached"
        return title, f"{state.text} The plots end with its last reading." if state.stage == "lost" else state.text
    if state.stage == "connected" and state.silent_s >= SILENT_S:
        return f"{name} is silent", f"Its last reading came {units.age(state.silent_s)} ago; the plots end there."
    return "", ""


def describe_no_readings(state: HostState, age: str, heard: str) -> tuple[str, str]:
    """Return why a host has nothing to draw, as a title and what to do.

    `heard` is the time since its last message, "" for never.
    """
    last = f" Its last reading came {heard} ago." if heard else ""
    descriptions: dict[Stage, tuple[str, str]] = {
        "off": (
            f"{state.name} is not connected",
            "Connect to it to see the load, power, memory and temperature of its GPUs, and who uses them.",
        ),
        "connecting": (
            f"Connecting to {state.name}",
            f"{state.text} Begun {age} ago; its readings appear here.",
        ),
        "connected": (f"Waiting for {state.name}", f"Connected {age} ago; its readings appear here."),
        "lost": (f"No data from {state.name}", f"{state.text}{last} VariantScope keeps trying."),
        "failed": (
            f"{state.name} cannot be reached",
            f"{state.text} Last tried {age} ago.{last} Hosts, above, checks its address.",
        ),
    }
    title, text = descriptions[state.stage]
    return title, text.strip()


def host_line(name: str, address: str, state: HostState, inventory: Inventory | None) -> str:
    gpus = format_gpu_counts(gpu.name for gpu in inventory.machine.gpus) if inventory is not None else ""
    return f"{name}   {address}\n{' · '.join(filter(None, (describe_stage(state)[0], gpus)))}"
