"""`run`: one variant once, stored."""

from argparse import Namespace

from app.cli.largest_batch import find_largest_batch
from app.cli.services import interrupts, run_services
from app.cli.settings import chosen_workload, one_variant
from app.cli.stored import print_run
from app.cli.terminal import ProgressSink, print_json, print_table
from app.records import StoredRun
from app.report.documents import run_document
from app.runs.going import RunsGoing
from app.runs.session import RunServices
from app.viewmodels.naming import value_text
from workloads import catalog
from workloads.catalog import UsageError
from workloads.protocol import RunSpec


def run(chosen: Namespace) -> int:
    """Runs and prints the result; 0 when it completed."""
    if chosen.workload is None:
        raise UsageError(f"run needs a workload: {_known()}, or a file of yours as path/to/file.py:name.")
    if chosen.parameters:
        return _print_parameters(chosen_workload(chosen))
    if not chosen.largest_batch and (chosen.batch_limit or chosen.batch_step):
        raise UsageError("--batch-limit and --batch-step go with --largest-batch.")
    workload = chosen_workload(chosen)
    with run_services(chosen.db, chosen.sample_ms, standby=chosen.largest_batch) as services:
        spec = one_variant(workload, chosen.settings, services.feed.wait_inventory().machine)
        if chosen.largest_batch:
            return find_largest_batch(spec, services, chosen)
        stored = run_once(spec, services)
    if chosen.json:
        print_json(run_document(stored))
    else:
        print_run(stored)
    return 0 if stored.row.completed else 1


def run_once(spec: RunSpec, services: RunServices) -> StoredRun:
    """One run with its progress on stderr, as it is stored; Ctrl-C stops it. Raises `UserError` where it is not."""
    going = RunsGoing(services)
    with interrupts(going.stop):
        return going.make(spec, [ProgressSink()])


def _known() -> str:
    return ", ".join(workload.name for workload in catalog.WORKLOADS if not workload.hidden)


def _print_parameters(workload: catalog.Workload) -> int:
    rows = [(p.name, value_text(p.default), _cpu_default(p), _limits(p), p.help) for p in workload.parameters]
    print_table(("parameter", "default", "on CPU", "values", ""), rows)
    return 0


def _cpu_default(parameter: catalog.Parameter) -> str:
    return "" if parameter.cpu_default is None else value_text(parameter.cpu_default)


def _limits(parameter: catalog.Parameter) -> str:
    if parameter.choices:
        return " | ".join(choice.value for choice in parameter.choices)
    if parameter.kind == "switch":
        return "true | false"
    if parameter.minimum is None or parameter.maximum is None:
        return ""
    return f"{parameter.minimum:,.10g} … {parameter.maximum:,.10g} {parameter.unit}".rstrip()
