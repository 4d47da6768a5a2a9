"""`-s name=value` words turned into variants."""

from argparse import Namespace
from collections.abc import Callable, Sequence

from app.cli.terminal import say
from app.runs.own import Reading, workload_called
from app.storage.location import default_database
from app.viewmodels.matrix_values import parse_values
from workloads import catalog
from workloads.catalog import Machine, Parameter, UsageError, Workload
from workloads.protocol import RunSpec, Value


def chosen_workload(chosen: Namespace) -> Workload:
    """The workload that the command names, of the program or in the user's own file; raises `UsageError`."""
    return workload_finder(chosen)(chosen.workload)


def workload_finder(chosen: Namespace) -> Callable[[str], Workload]:
    """Finds the program's workload of a name, or the user's in a file; a file is read where it was not before."""
    database = chosen.db or default_database()
    return lambda word: workload_called(word, database, Reading(told=say))


def one_variant(workload: Workload, settings: Sequence[str], machine: Machine) -> RunSpec:
    """The variant that the words describe; raises `UsageError`."""
    given = {name: catalog.parse(workload.parameter(name), text) for name, text in _pairs(settings).items()}
    return catalog.complete_of(workload, given, machine)


def several_variants(workload: Workload, settings: Sequence[str], machine: Machine) -> list[RunSpec]:
    """Every combination of the values given, as the matrix takes them, each once; raises `UsageError`."""
    lists = {name: _values(workload.parameter(name), text) for name, text in _pairs(settings).items()}
    return catalog.combinations(workload, lists, machine)


def _values(parameter: Parameter, text: str) -> tuple[Value, ...]:
    # No value at all is no list but a wrong value.
    return parse_values(parameter, text) or (catalog.parse(parameter, text),)


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
