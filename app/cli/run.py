"""`run`, `portability` and `check-equal`: one variant run once, its weights loaded elsewhere, what variants compute."""

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import click

from app.analysis.equality import judge_check
from app.analysis.largest_batch import SearchBounds, search_bounds
from app.analysis.verdict import group_by_variant, without
from app.cli.options import (
    COUNT,
    FILE,
    KNOWN_WORKLOADS,
    command,
    on_option,
    run_argument,
    runs_argument,
    sampling_option,
    settings_option,
    workload_argument,
)
from app.cli.progress import ProgressSink
from app.cli.script import ScriptOptions, script_options
from app.cli.services import Hosts, open_store, stop_on_interrupt
from app.cli.show import print_run
from app.cli.terminal import ask_consent, print_json, print_table, say
from app.errors import UserError
from app.grants import Consent, typed
from app.hosts.book import find_host
from app.paths import PROGRAM, default_database
from app.report.documents import equality_document, largest_batch_document, portability_document, run_document
from app.runs.custom import ReadOptions, resolve_workload
from app.runs.experiment.equality import EqualityChecker, can_be_checked, describe_checks
from app.runs.jobs import JobError
from app.runs.probes import LargestBatchSession
from app.runs.session import RunServices, RunSession
from app.runs.weight_transfer import TransferTargets, TrialResult, transfer_targets, try_weights, weights_file
from app.storage.files import disk_space
from app.storage.store import Store
from app.values import units
from app.values.records import RunRow, StoredRun
from app.values.samples import SAMPLE_MS
from app.viewmodels.format.naming import choice_label, value_text
from app.viewmodels.format.sentences import join_with_and
from app.viewmodels.run.form import describe_largest_batch
from app.viewmodels.run.selection import parse_settings, parse_values
from workloads import catalog
from workloads.catalog import Machine, UsageError, Workload
from workloads.protocol import RunSpec


@contextlib.contextmanager
def run_services(
    database: Path | None, sample_ms: float = SAMPLE_MS, *, on: str = "", standby: bool = False
) -> Iterator[RunServices]:
    """Start what runs need, and close it at the end; warn on stderr if the disk is nearly full.

    `on` is the host for `--on`. `standby` announces several runs, for which a standby worker is useful.
    """
    with open_store(database, may_be_new=True) as store:
        path = store.path
    if warning := disk_space(path).warning:
        print(warning, file=sys.stderr)
    with contextlib.ExitStack() as stack:
        hosts = Hosts(stack, sample_ms, standby=standby)
        yield RunServices(database=path, host=hosts.open(on, typed), open_host=hosts.open, consent=ask_consent)


def workload_finder(database: Path | None, consent: Consent | None) -> Callable[[str], Workload]:
    """Return a function that finds a workload by name, or a custom one, reading its file if necessary.

    It raises `UsageError` and `UserError`.

    `consent` returns whether to read a file that was never allowed; without it none is read.
    """
    path = database or default_database()
    options = None if consent is None else ReadOptions(notify=say, consent=consent)
    return lambda word: resolve_workload(word, path, options)


def one_variant(workload: Workload, settings: Sequence[str], machine: Machine) -> RunSpec:
    """Return one variant.

    Raises:
        UsageError: A word is not a setting of the workload.
    """
    values = {}
    for name, text in parse_settings(settings).items():
        try:
            values[name] = catalog.parse(workload.parameter(name), text)
        except UsageError as error:
            several = f" `{PROGRAM} experiment` takes several values, and compares them." if "," in text else ""
            raise UsageError(f"{error}{several}") from error
    return catalog.fill_defaults(workload, values, machine)


def several_variants(workload: Workload, settings: Sequence[str], machine: Machine) -> list[RunSpec]:
    """Return every combination of values, each once: `layout=NHWC,NCHW` gives two. Otherwise like `one_variant`."""
    lists = {
        # An empty value is a wrong value, not an empty list.
        name: parse_values(parameter, text) or (catalog.parse(parameter, text),)
        for name, text in parse_settings(settings).items()
        for parameter in [workload.parameter(name)]
    }
    return catalog.combinations(workload, lists, machine)


def _find_largest_batch(spec: RunSpec, services: RunServices, bounds: SearchBounds, *, as_json: bool) -> int:
    """Search with each try's progress on stderr, and print the answer; return 0 if there is one."""
    session = LargestBatchSession(
        spec, bounds, services, lambda number, batch: (ProgressSink(f"[try {number}, batch {batch:,}] "),)
    )
    with stop_on_interrupt(session.stop):
        search = session.run()
    if as_json:
        print_json(largest_batch_document(spec, search))
    else:
        print(describe_largest_batch(search))
    return 0 if search.ending in ("found", "limit") else 1


_EXACT = 1e-5
"""The relative difference that float32 rounding explains, when sums are computed in another order."""


@command("portability", "portability 12", "portability 12 --into standard,cudnn --gpus 0")
@run_argument
@click.option("--into", default="", metavar="A,B", help="The implementations (default: all that can run there).")
@click.option(
    "--gpus",
    type=click.Choice(("0", "1")),
    metavar="N",
    help="On the CPU (0) or a GPU (1); default: the one on which it did not train.",
)
@click.option("--weights", "weights_path", type=FILE, metavar="PATH", help="Its weights file, if it was moved.")
@on_option
def portability(
    database: Path | None, as_json: bool, run: int, into: str, gpus: str | None, weights_path: Path | None, on: str
) -> int:
    """Try the weights, store and print the results; return 0 when every trial differs by rounding alone."""
    with run_services(database, on=on) as services, Store.open(services.database) as store:
        row = store.load(run).row
        weights = weights_file(row, services.database, weights_path)
        machine = services.host.machine
        names = [word for word in into.split(",") if word]
        targets = transfer_targets(row.spec, names, _gpus(gpus, row, machine), machine)
        trials, failed = [], {}
        for spec in targets.possible:
            name = str(spec.variant["implementation"])
            say(f"{choice_label(spec, 'implementation', name)} …")
            try:
                trials.append(try_weights(row, weights, spec, services.host, say))
            except JobError as error:
                failed[name] = str(error)
            else:
                store.add_checks(row.run, [trials[-1].result])
    if as_json:
        documents = portability_document([trial.result for trial in trials])
        more = [{"tolerance": trial.tolerance, "same": _is_explained(trial)} for trial in trials]
        print_json(
            {
                "run": row.run,
                "trials": [{**entry, **extra} for entry, extra in zip(documents, more, strict=True)],
                "left_out": targets.excluded,
                "failed": failed,
            }
        )
    else:
        _print_trials(row, trials, targets, failed)
    return int(bool(failed) or not all(map(_is_explained, trials)))


@command("check-equal", "check-equal 12 29", "check-equal 12 29 30 --json")
@runs_argument(required=True)
@on_option
def check_equal(database: Path | None, as_json: bool, runs: Sequence[int], on: str) -> int:
    """Check each run's variant against the first one's, now; store and print it; return 0 when all compute the same."""
    stop = threading.Event()
    with run_services(database, on=on) as services, Store.open(services.database) as store:
        rows = [store.load_header(number).row for number in dict.fromkeys(runs)]
        baseline, *compared = [group[0].spec for group in group_by_variant(rows)]
        if not compared:
            raise UsageError("check-equal takes runs of two variants or more; the first one is the reference.")
        if not can_be_checked(baseline):
            raise UserError(f"{baseline.workload} computes nothing that could be checked.")
        for reason in filter(None, map(services.host.refusal, [baseline, *compared])):
            raise UserError(reason)
        checker = EqualityChecker(baseline, services, say, lambda: not stop.is_set())
        with stop_on_interrupt(stop.set):
            equality_checks = list(checker.check(compared))
        for spec, check in equality_checks:
            for row in rows:
                if without(row.spec) == without(spec):
                    store.add_checks(row.run, [check])
    if as_json:
        checks = [
            {
                "runs": [row.run for row in rows if without(row.spec) == without(spec)],
                **equality_document(judge_check(check, spec)),
            }
            for spec, check in equality_checks
        ]
        print_json({"checks": checks})
    else:
        for sentence in describe_checks(baseline, equality_checks):
            print(sentence)
    same = [judge_check(check, spec).state == "same" for spec, check in equality_checks]
    return int(len(same) < len(compared) or not all(same))


def _gpus(requested: str | None, run: RunRow, machine: Machine) -> int:
    """Return the other kind of device: 0 GPUs for a run on a GPU, 1 for a run on the CPU if there is a GPU."""
    if requested is not None:
        return int(requested)
    return 0 if run.spec.variant["gpus"] else min(1, len(machine.gpus))


def _is_explained(trial: TrialResult) -> bool:
    return trial.result.max_difference <= trial.tolerance


def _print_trials(run: RunRow, trials: Sequence[TrialResult], targets: TransferTargets, failed: dict[str, str]) -> None:
    header = (f"weights of run {run.run} in", "on", "largest difference", "largest output")
    print_table(header, [_trial_row(run, trial) for trial in trials], right=frozenset({2, 3}))
    if trials:
        print(f"\n{_verdict(run, trials)}")
    for line in describe_excluded(run.spec, targets.excluded):
        print(line)
    for name, reason in failed.items():
        print(f"{choice_label(run.spec, 'implementation', name)} failed: {reason}", file=sys.stderr)


def describe_excluded(spec: RunSpec, excluded: Mapping[str, str]) -> list[str]:
    """Return which implementations were left out, one line per reason."""
    labels: dict[str, list[str]] = {}
    for name, reason in excluded.items():
        labels.setdefault(reason, []).append(choice_label(spec, "implementation", name))
    return [
        f"{join_with_and(group)} {'were' if len(group) > 1 else 'was'} left out: {reason}"
        for reason, group in labels.items()
    ]


def _trial_row(run: RunRow, trial: TrialResult) -> tuple[str, ...]:
    result = trial.result
    name = choice_label(run.spec, "implementation", result.implementation)
    difference = f"{result.max_difference:.1e}" if result.max_difference else "0"
    return name, result.device_name, difference, units.number(result.max_output)


def _verdict(run: RunRow, trials: Sequence[TrialResult]) -> str:
    """Return whether the outputs are equal, and if not, possible reasons."""
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
        "the weights that ran there are not the trained ones. Check that the weights file is this run's and unchanged."
    )


@command("run", "run lstm -s seconds=5", "run cnn10 -s layout=NHWC --on ssh://me@gpu1", "run -- python train.py")
@workload_argument
@script_options
@settings_option("NAME=VALUE", "A parameter of the workload; may be repeated.")
@click.option(
    "--largest-batch", is_flag=True, help="Find the largest batch that fits, in short runs from the batch given."
)
@click.option("--batch-limit", type=COUNT, metavar="N", help="Go no further than this batch (needed on the CPU).")
@click.option(
    "--batch-step", type=COUNT, metavar="N", help="Stop searching within N (default: an eighth of the first)."
)
@on_option
@click.option(
    "--detach", is_flag=True, help="Let the run continue there without this program; `hosts fetch` fetches it."
)
@click.option(
    "--events",
    is_flag=True,
    help="For a program elsewhere (docs/hosts.md): read orders from stdin, write events as lines.",
)
@sampling_option
def run(
    database: Path | None,
    as_json: bool,
    workload: str | None,
    script: ScriptOptions,
    settings: Sequence[str],
    largest_batch: bool,
    batch_limit: int | None,
    batch_step: int | None,
    on: str,
    detach: bool,
    events: bool,
    sample_ms: float,
) -> int:
    """Run and print the result; return 0 when it completed, or was detached."""
    if events:
        from app.hosts.serve import serve  # here, as below: few commands need it

        return serve(is_detached=detach)
    script.check(workload)
    if script.words:
        if largest_batch:
            raise UsageError("--largest-batch goes with a workload, not with your own command.")
    elif workload is None:
        raise UsageError(
            f"run needs a workload: {KNOWN_WORKLOADS}, your own file as path/to/file.py:name, or your own command as "
            f"-- python train.py."
        )
    definition = workload_finder(database, typed)(workload) if workload else None
    if not largest_batch and (batch_limit or batch_step):
        raise UsageError("--batch-limit and --batch-step go with --largest-batch.")
    if detach and (largest_batch or not on):
        raise UsageError("--detach is for one run on another host: it goes with --on, and not with --largest-batch.")
    with run_services(database, sample_ms, on=on, standby=largest_batch) as services:
        machine = services.host.machine
        if script.dry_run:
            return script.print_commands(script.variants(settings, machine, None), as_json=as_json)
        if definition:
            spec = one_variant(definition, settings, machine)
        else:
            spec, *others = script.variants(settings, machine, services.database)
            if others:
                raise UsageError(f"These are {len(others) + 1} variants: `{PROGRAM} experiment` runs several.")
        services.admit([spec], typed)
        if largest_batch:
            return _find_largest_batch(spec, services, search_bounds(spec, batch_limit, batch_step), as_json=as_json)
        if detach:
            return _detach(spec, services, on, sample_ms, as_json=as_json)
        stored = run_once(spec, services)
    if as_json:
        print_json(run_document(stored))
    else:
        print_run(stored)
    return 0 if stored.row.completed else 1


def _detach(spec: RunSpec, services: RunServices, on: str, sample_ms: float, *, as_json: bool) -> int:
    """Start a run that continues without this program, and print how to fetch it."""
    if (refusal := services.host.refusal(spec)) is not None:
        raise UserError(refusal)
    from app.hosts.fetch import detach_run

    uid = detach_run(spec, services, find_host(on, typed), 1000 / sample_ms, say)
    if as_json:
        print_json({"detached": {"uid": uid, "host": on}})
    else:
        print(f"The run continues on {on} without this program; `{PROGRAM} hosts fetch {on}` fetches it.")
    return 0


def run_once(spec: RunSpec, services: RunServices) -> StoredRun:
    """Run once with progress on stderr, and return the stored run; Ctrl-C stops it. Raises `UserError`."""
    session = RunSession(spec, services, [ProgressSink()])
    with stop_on_interrupt(session.stop):
        session.run()
    assert session.stored is not None, "a run that ends without an error is stored"
    return session.stored


def list_parameters(word: str, database: Path | None, *, as_json: bool) -> int:
    """Print the parameters of the workload that a user's word names."""
    workload = workload_finder(database, typed)(word)
    rows = [
        (p.name, value_text(p.default), "" if p.cpu_default is None else value_text(p.cpu_default), _limits(p), p.help)
        for p in workload.parameters
    ]
    head = ("parameter", "default", "on CPU", "values", "")
    if as_json:
        keys = ("parameter", "default", "cpu_default", "values", "help")
        print_json({"parameters": [dict(zip(keys, row, strict=True)) for row in rows]})
    else:
        print_table(head, rows)
    return 0


def _limits(parameter: catalog.Parameter) -> str:
    if parameter.choices:
        return " | ".join(choice.value for choice in parameter.choices)
    if parameter.kind == "switch":
        return "true | false"
    if parameter.limits is None:
        return ""
    low, high = parameter.limits
    return f"{low:,.10g} … {high:,.10g} {parameter.unit}".rstrip()
