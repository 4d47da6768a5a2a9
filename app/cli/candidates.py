"""Candidates for completion by the shell: workloads, settings, runs, presets and hosts."""

from collections.abc import Iterable

import click
from click.shell_completion import CompletionItem

from app.errors import UserError
from app.paths import default_database
from workloads import catalog

_MAX_RUNS = 50
"""So many runs, the newest, are offered."""


def complete_workloads(_context: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer the program's workloads, and files where a path is begun."""
    named = _matching(((workload.name, "") for workload in catalog.WORKLOADS if not workload.hidden), incomplete)
    return named or [CompletionItem(incomplete, type="file")]


def complete_settings(context: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer `name=` of the workload's parameters, then the values; several of them behind commas."""
    typed = context.params.get("workload")
    workload = next((workload for workload in catalog.WORKLOADS if workload.name == typed), None)
    if workload is None:
        return []
    name, equals, typed = incomplete.partition("=")
    if not equals:
        return _matching(((f"{parameter.name}=", parameter.label) for parameter in workload.parameters), incomplete)
    begun, comma, _ = typed.rpartition(",")
    values = [value for parameter in workload.parameters if parameter.name == name for value in _values(parameter)]
    unused = (value for value in values if value not in begun.split(","))
    return _matching(((f"{name}={begun}{comma}{value}", "") for value in unused), incomplete)


def _values(parameter: catalog.Parameter) -> list[str]:
    if parameter.kind == "switch":
        return ["false", "true"]
    return [choice.value for choice in parameter.choices] or [f"{parameter.default}"]


def complete_runs(context: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer the newest runs of the database; none where there is no database."""
    database = context.params.get("database") or default_database()
    if not database.exists():
        return []
    # Here, so that no other completion waits for the database's modules.
    from app.queries import RunQuery
    from app.storage.store import Store
    from app.viewmodels.format.naming import short_name

    try:
        with Store.open(database) as store:
            rows = store.library.run_rows(store.library.find(RunQuery())[:_MAX_RUNS])
    except UserError:
        return []
    return _matching(((str(row.run), short_name(row.spec)) for row in rows), incomplete)


def complete_presets(_context: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer the program's presets, and files where a path is begun."""
    from app.runs.experiment.presets import preset_names  # here, as above

    return _matching(((name, "") for name in preset_names()), incomplete) or [CompletionItem(incomplete, type="file")]


def complete_hosts(_context: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer the user's hosts."""
    from app.hosts.book import read_hosts  # here, as above

    try:
        return _matching(((entry.name, entry.address) for entry in read_hosts()), incomplete)
    except UserError:
        return []


def _matching(offers: Iterable[tuple[str, str]], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(value, help=text) for value, text in offers if value.startswith(incomplete)]
