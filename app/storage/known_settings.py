"""Every setting that a database stores: its name, and how its value is read and written.

Names never change, or users would lose their choices.
"""

# Apart from database.py, because the window reads settings before its first paint: importing sqlite_utils would delay
# it.

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Generic, TypeVar

import msgspec

Value = TypeVar("Value")


@dataclass(frozen=True)
class Setting(Generic[Value]):
    """A setting: its name, and the functions that parse and format the text of its value."""

    name: str
    read: Callable[[str], Value]
    write: Callable[[Value], str]


_parse_list = partial(msgspec.json.decode, type=list[str])


NOTICE: Final = Setting[str]("notice", str, str)
"""The notice when a long run ends while another window is in front: `off`, `message` or `sound`."""

STANDBY: Final = Setting[str]("standby", str, str)
"""The standby worker for the window's next run: `on` or `off`; if never set, the machine decides."""

FIRST_START: Final = Setting[str]("first_start", str, str)
"""`ANSWERED` once a new user has said where to run."""

ANSWERED = "answered"

KEEP_SAMPLES_DAYS: Final = Setting[int]("keep_samples_days", int, str)
"""Days that samples and log lines are stored; never set means for ever."""

PRICE_PER_KWH: Final = Setting[float]("price_per_kwh", float, str)
"""The price of a kilowatt-hour, in a currency that the user knows; 0, or never set, states no cost."""

CARBON_G_PER_KWH: Final = Setting[float]("carbon_g_per_kwh", float, str)
"""The grams of CO₂ that a kilowatt-hour emits; 0, or never set, states none."""

SHOWN_COLUMNS: Final = Setting[Sequence[str]]("shown_columns", str.split, " ".join)
"""The columns that the list of runs shows."""

HIDDEN_FIGURES: Final = Setting[frozenset[str]](
    "hidden_figures", lambda text: frozenset(text.split()), lambda names: " ".join(sorted(names))
)
"""The columns that comparisons hide."""

PRESET_FILES: Final = Setting[Sequence[str]]("preset_files", _parse_list, json.dumps)
"""Paths of the presets that the user added."""

CUSTOM_WORKLOADS: Final = Setting[Sequence[str]]("own workloads", _parse_list, json.dumps)
"""Paths of the files of custom workloads that were chosen in the window."""


def custom_source(sha256: str) -> Setting[str]:
    """Return the setting for what was read from a custom workload's file, by its text's SHA-256."""
    return Setting(f"own source {sha256}", str, str)
