"""`-s name=value` words turned into variants."""

import itertools
from argparse import Namespace
from collections.abc import Sequence

from app.cli.terminal import say
from app.runs.own import workload_called
from app.storage.location import default_database
from workloads import catalog
from workloads.catalog import Machine, UsageError, Workload
from workloads.protocol import RunSpec


def chosen_workload(chosen: Namespace) -> Workload:
    """The workload that the command names, of the program or in the user's own file; raises `UsageError`."""
    return workload_called(chosen.workload, chosen.db or default_database(), say)


def one_variant(workload: Workload, settings: Sequence[str], machine: Machine) -> RunSpec:
    """The variant that the words describe; raises `UsageError`."""
    given = {name: catalog.parse(workload.parameter(name), text) for name, text in _pairs(settings).items()}
    return catalog.complete_of(workload, given, machine)


def several_variants(workload: Workload, settings: Sequence[str], machine: Machine) -> list[RunSpec]:
    """Every combination of the values given, separated by commas, the last parameter varying fastest."""
    pairs = _pairs(settings)
    choices = [[(name, value) for value in _values(name, text)] for name, text in pairs.items()]
    combinations = itertools.product(*choices)
    return [one_variant(workload, [f"{name}={value}" for name, value in combo], machine) for combo in combinations]


def _values(name: str, text: str) -> list[str]:
    """The values of one setting; `devices` is itself a list with commas, and no `interpreter` is the program's own."""
    if name == "devices":
        return text.split(";")
    return [value for value in text.split(",") if value or name == "interpreter"] or [""]


def _pairs(settings: Sequence[str]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals or not name:
            raise UsageError(f"-s takes name=value, not {setting!r}.")
        if name in pairs:
            raise UsageError(f"{name} is given twice.")
        pairs[name] = text
    return pairs
