"""Every setting that a database keeps: the name it is kept under, and what it is. Nothing is imported for it.

A name never changes, or what users chose would be lost.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

Value = TypeVar("Value")


@dataclass(frozen=True)
class Setting(Generic[Value]):
    """A setting's name, and how its value is read out of text and written as it."""

    name: str
    read: Callable[[str], Value]
    write: Callable[[Value], str]


def _parse_list(text: str) -> list[str]:
    return [str(word) for word in json.loads(text)]


def _parse_names(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _join_sorted(names: Iterable[str]) -> str:
    return " ".join(sorted(names))


NOTICE: Final = Setting[str]("notice", str, str)
"""What happens when a long run ends while another window is in front: `off`, `message` or `sound`."""

STANDBY: Final = Setting[str]("standby", str, str)
"""Whether a worker stands by for the window's next run: `on`, `off`, or never set, where the machine decides."""

KEEP_SAMPLES_DAYS: Final = Setting[int]("keep_samples_days", int, str)
"""How many days samples and log lines are kept; never set, for ever."""

SHOWN_COLUMNS: Final = Setting[Sequence[str]]("shown_columns", str.split, " ".join)
"""The columns of the list of runs that are shown."""

HIDDEN_FIGURES: Final = Setting[frozenset[str]]("hidden_figures", _parse_names, _join_sorted)
"""The columns that are left out of comparisons."""

PRESET_FILES: Final = Setting[Sequence[str]]("preset_files", _parse_list, json.dumps)
"""Paths of the presets that the user added."""

CUSTOM_WORKLOADS: Final = Setting[Sequence[str]]("own workloads", _parse_list, json.dumps)
"""Paths of the files of the user's own workloads that were chosen in the window."""


def custom_source(sha256: str) -> Setting[str]:
    """A user's file as it was read, found by its text's SHA-256."""
    return Setting(f"own source {sha256}", str, str)
