"""Services, workload and variants for commands that make runs."""

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from app.cli.services import Hosts, open_store
from app.cli.terminal import ask_consent, say
from app.grants import Consent, typed
from app.paths import default_database
from app.runs.custom import ReadOptions, resolve_workload
from app.runs.session import RunServices
from app.samples import SAMPLE_MS
from app.storage.files import disk_space
from app.viewmodels.run.selection import parse_values
from workloads import catalog
from workloads.catalog import Machine, UsageError, Workload
from workloads.protocol import RunSpec


@contextlib.contextmanager
def run_services(
    database: Path | None, sample_ms: float = SAMPLE_MS, *, on: str = "", standby: bool = False
) -> Iterator[RunServices]:
    """Start what runs need, and close it at the end; warn on stderr where the disk is nearly full.

    `on` is the host as `--on` names it. With `standby` several runs will come, so that a standby worker is of use.
    """
    with open_store(database, may_be_new=True) as store:
        path = store.path
    if warning := disk_space(path).warning:
        print(warning, file=sys.stderr)
    with contextlib.ExitStack() as stack:
        hosts = Hosts(stack, sample_ms, standby=standby)
        yield RunServices(database=path, host=hosts.open(on, typed), open_host=hosts.open, consent=ask_consent)


def workload_finder(database: Path | None, consent: Consent | None) -> Callable[[str], Workload]:
    """Return a function that finds a workload of the program by name, or a custom one, whose file it reads if it must.

    It raises `UsageError` and `UserError`.

    `consent` returns whether to read a file that was never allowed; without it none is read.
    """
    path = database or default_database()
    options = None if consent is None else ReadOptions(notify=say, consent=consent)
    return lambda word: resolve_workload(word, path, options)


def one_variant(workload: Workload, settings: Sequence[str], machine: Machine) -> RunSpec:
    """Return one variant.

    Raises:
        UsageError: A word is no setting of the workload.
    """
    values = {name: catalog.parse(workload.parameter(name), text) for name, text in _parse_settings(settings).items()}
    return catalog.fill_defaults(workload, values, machine)


def several_variants(workload: Workload, settings: Sequence[str], machine: Machine) -> list[RunSpec]:
    """Return every combination of values, each once: `layout=NHWC,NCHW` gives two. Otherwise as `one_variant`."""
    lists = {
        # No value at all is no list but a wrong value.
        name: parse_values(parameter, text) or (catalog.parse(parameter, text),)
        for name, text in _parse_settings(settings).items()
        for parameter in [workload.parameter(name)]
    }
    return catalog.combinations(workload, lists, machine)


def _parse_settings(settings: Sequence[str]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals or not name:
            raise UsageError(f"-s takes name=value, not {setting!r}.")
        if name in pairs:
            raise UsageError(f"{name} is given twice.")
        pairs[name] = text
    return pairs
