"""`run` and `portability`: one variant run once, its largest batch, and its weights loaded elsewhere."""

import sys
from argparse import Namespace
from collections.abc import Sequence
from typing import Any

from app import units
from app.analysis.largest_batch import search_bounds
from app.cli.services import chosen_workload, one_variant, run_services, stop_on_interrupt
from app.cli.show import print_run
from app.cli.terminal import ProgressSink, print_json, print_table, say
from app.records import RunRow, StoredRun
from app.report.documents import largest_batch_document, portability_document, run_document
from app.runs.concurrent_runs import ConcurrentRuns
from app.runs.jobs import JobError
from app.runs.probes import LargestBatchSession
from app.runs.session import RunServices
from app.runs.sinks import Sink
from app.runs.weight_transfer import TransferTargets, TrialResult, transfer_targets, try_weights, weights_file
from app.storage.store import Store
from app.viewmodels.format.naming import choice_label, value_text
from app.viewmodels.run.largest_batch import describe_largest_batch
from workloads import catalog
from workloads.catalog import Machine, UsageError
from workloads.protocol import RunSpec


def find_largest_batch(spec: RunSpec, services: RunServices, chosen: Namespace) -> int:
    """Searches, with each try's progress on stderr, and prints the answer; 0 when there is one."""
    bounds = search_bounds(spec, chosen.batch_limit, chosen.batch_step)
    session = LargestBatchSession(spec, bounds, services, _progress_sinks)
    with stop_on_interrupt(session.stop):
        found = session.run()
    if chosen.json:
        print_json(largest_batch_document(spec, found))
    else:
        print(describe_largest_batch(found))
    return 0 if found.ending in ("found", "limit") else 1


def _progress_sinks(number: int, batch_size: int) -> tuple[Sink, ...]:
    return (ProgressSink(f"[try {number}, batch {batch_size:,}] "),)


_EXACT = 1e-5
"""A difference near 1 that float32 itself explains: sums are added up in another order."""


def portability(chosen: Namespace) -> int:
    """Tries the weights, stores and prints what came of it; 0 when every trial answers as rounding allows."""
    into = [word for word in chosen.into.split(",") if word]
    with run_services(chosen.db) as services, Store.open(services.database) as store:
        run = store.load(chosen.run).row
        weights = weights_file(run, services.database, chosen.weights)
        machine = services.feed.wait_inventory().machine
        wanted = transfer_targets(run.spec, into, _gpus(chosen.gpus, run, machine), machine)
        trials, failed = [], {}
        for spec in wanted.possible:
            name = str(spec.variant["implementation"])
            say(f"{choice_label(spec, 'implementation', name)} …")
            try:
                trials.append(try_weights(run, weights, spec, services, say))
            except JobError as error:
                failed[name] = str(error)
            else:
                store.add_portability(run.run, [trials[-1].result])
    if chosen.json:
        print_json(_trials_document(run, trials, wanted, failed))
    else:
        _print_trials(run, trials, wanted, failed)
    return int(bool(failed) or not all(map(_is_explained, trials)))


def _gpus(requested: int | None, run: RunRow, machine: Machine) -> int:
    """The other side: the CPU for what trained on a GPU, a GPU for what trained on the CPU, where there is one."""
    if requested is not None:
        return requested
    return 0 if run.spec.variant["gpus"] else min(1, len(machine.gpus))


def _is_explained(trial: TrialResult) -> bool:
    return trial.result.max_difference <= trial.tolerance


def _trials_document(
    run: RunRow, trials: Sequence[TrialResult], wanted: TransferTargets, failed: dict[str, str]
) -> dict[str, Any]:
    found = portability_document([trial.result for trial in trials])
    more = [{"tolerance": trial.tolerance, "same": _is_explained(trial)} for trial in trials]
    return {
        "run": run.run,
        "trials": [{**entry, **extra} for entry, extra in zip(found, more, strict=True)],
        "left_out": wanted.excluded,
        "failed": failed,
    }


def _print_trials(run: RunRow, trials: Sequence[TrialResult], wanted: TransferTargets, failed: dict[str, str]) -> None:
    header = (f"weights of run {run.run} in", "on", "largest difference", "largest output")
    print_table(header, [_trial_row(run, trial) for trial in trials], right=frozenset({2, 3}))
    if trials:
        print(f"\n{_verdict(run, trials)}")
    for name, reason in wanted.excluded.items():
        print(f"{choice_label(run.spec, 'implementation', name)} was left out: {reason}")
    for name, reason in failed.items():
        print(f"{choice_label(run.spec, 'implementation', name)} failed: {reason}", file=sys.stderr)


def _trial_row(run: RunRow, trial: TrialResult) -> tuple[str, ...]:
    found = trial.result
    name = choice_label(run.spec, "implementation", found.implementation)
    difference = f"{found.max_difference:.1e}" if found.max_difference else "0"
    return name, found.device_name, difference, units.number(found.max_output)


def _verdict(run: RunRow, trials: Sequence[TrialResult]) -> str:
    """Whether the answers are the same, and if not, why that may be."""
    worst = max(trials, key=lambda trial: trial.result.max_difference)
    largest, explained = f"{worst.result.max_difference:.1e}", f"{worst.tolerance:.0e}"
    if worst.result.max_difference <= _EXACT * max(1.0, worst.result.max_output):
        return f"The same answers: they differ by {largest} at most."
    precision = choice_label(run.spec, "precision", run.spec.variant["precision"])
    if _is_explained(worst):
        return (
            f"The answers differ by up to {largest}: the run computed in {precision}, whose rounding explains up to "
            f"{explained}, and the weights were tried in float32."
        )
    name = choice_label(run.spec, "implementation", worst.result.implementation)
    return (
        f"The answers differ by up to {largest} ({name}), and the rounding of {precision} explains {explained}: "
        "what was trained is not what runs there. Check that the weights file is this run's and unchanged."
    )


def run(chosen: Namespace) -> int:
    """Runs and prints the result; 0 when it completed."""
    if chosen.workload is None:
        raise UsageError(f"run needs a workload: {_known_workloads()}, or a file of yours as path/to/file.py:name.")
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
    going = ConcurrentRuns(services)
    with stop_on_interrupt(going.stop):
        run = going.run(spec, [ProgressSink()]).row.run
    with Store.open(services.database) as store:
        return store.load(run)


def _known_workloads() -> str:
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
