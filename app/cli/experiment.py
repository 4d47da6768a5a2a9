"""`experiment`: argument checks, presets, the plan, and the queue entry that is run."""

from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from msgspec import structs

from app import units
from app.analysis.intervals import DEFAULT_REPEATS, MIN_REPEATS
from app.cli.arguments import SAMPLE_MS
from app.cli.experiment_progress import (
    describe_elsewhere,
    describe_ending,
    describe_reference,
    describe_refusals,
    exit_status,
    load_compared,
    print_experiment,
    run_entries,
    write_experiment_report,
)
from app.cli.progress import run_with_notification
from app.cli.services import chosen_workload, open_store, run_services, several_variants, workload_finder
from app.cli.terminal import print_json, print_table, say
from app.errors import UserError
from app.paths import default_database
from app.plan import Plan
from app.queries import QueueEntry
from app.report.comparison import experiment_document
from app.report.render import check_writable
from app.runs.experiment.article import Article
from app.runs.experiment.entry_session import runs_of_entry
from app.runs.experiment.presets import NamedPreset, load_preset, preset_names, user_preset_files
from app.runs.experiment.progress import estimate_remaining
from app.runs.experiment.queue import enqueue, entry_plan
from app.runs.experiment.reuse import reusable_as_newest
from app.runs.experiment.session import Experiment
from app.runs.experiment.stopping import MAX_REPEATS
from app.samples import Inventory
from app.storage.store import Store
from app.viewmodels.experiment.preview import describe_estimate, describe_uncounted, format_estimate, sequential_reason
from workloads import catalog
from workloads.catalog import Machine, UsageError, Workload
from workloads.protocol import RunSpec

_MATRIX_OPTIONS = ("workload", "settings", "baseline")
_RUN_OPTIONS = ("repeats", "until", "budget", "again", "parallel")
_CONFLICTS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "presets": (
        "--presets lists them and makes nothing",
        (*_MATRIX_OPTIONS, "preset", *_RUN_OPTIONS, "queue", "report", "notify"),
    ),
    "preset": ("--preset has a workload, settings and a baseline of its own", _MATRIX_OPTIONS),
    "show": ("--show makes nothing", ("budget", "again", "parallel", "queue")),
    "queue": (
        "--queue makes nothing yet, but `queue go-on` takes these words",
        ("report", "notify", "no_standby", "sample_ms"),
    ),
}
"""Words that would change nothing beside another one, and why."""
_OPTION_NAMES = {"workload": "WORKLOAD", "settings": "-s", "no_standby": "--no-standby", "sample_ms": "--sample-ms"}
_DEFAULTS: Mapping[str, float] = {"sample_ms": SAMPLE_MS}
"""What words stand at that were not given, where that is something."""


def check_arguments(chosen: Namespace) -> None:
    """Raises `UsageError` for wrong use."""
    if chosen.show and chosen.preset is None:
        raise UsageError("--show goes with --preset; `python -m app compare` shows any stored runs.")
    for word, (why, others) in _CONFLICTS.items():
        conflicting = [_OPTION_NAMES.get(other, f"--{other}") for other in others if _is_set(chosen, other)]
        if _is_set(chosen, word) and conflicting:
            raise UsageError(f"{why}: leave out {', '.join(conflicting)}.")
    if chosen.budget == 0:
        raise UsageError("No run fits into a budget of no time: give --budget more, such as 8m or 90s.")
    if chosen.report is not None:
        check_writable(chosen.report)
    if chosen.until is not None and chosen.repeats is not None and chosen.repeats <= MIN_REPEATS:
        raise UsageError(
            f"--until looks twice, first after {MIN_REPEATS} repeats: give --repeats {MIN_REPEATS + 1} or more."
        )
    if not (chosen.presets or chosen.preset or chosen.workload):
        raise UsageError("experiment needs a workload with some -s name=a,b, or --preset quick; --presets lists them.")


def _is_set(chosen: Namespace, name: str) -> bool:
    value = getattr(chosen, name)
    # A number that is 0 is given, too.
    return value is not None and value is not False and value != [] and value != _DEFAULTS.get(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class _PresetRow:
    """A preset on this machine: runs planned and done, seconds for those left, and the same in words.

    `preset` is what `--preset` takes for it.
    """

    preset: str
    question: str
    notes: tuple[str, ...]
    runs: int
    done: int
    left_s: float
    takes: str


def list_presets(chosen: Namespace) -> int:
    """Prints the presets in the box, and those that the window was given, as this machine would make them."""
    with run_services(chosen.db) as services, Store.open(services.database) as store:
        inventory = services.feed.wait_inventory()
        keys = [*preset_names(), *user_preset_files(services.database)]
        listed = [found for key in keys if (found := _preset_row(key, chosen, store, inventory))]
    if chosen.json:
        print_json({"presets": [_preset_document(each) for each in listed]})
    else:
        rows = [(each.preset, str(each.runs), str(each.done), each.takes, each.question) for each in listed]
        print_table(("preset", "runs", "done", "the rest takes", "question"), rows, right=frozenset({1, 2}))
    return 0


def _preset_row(key: str, chosen: Namespace, store: Store, inventory: Inventory) -> _PresetRow | None:
    """What is listed of a preset; None, and said why, for a file that cannot be used."""
    machine = inventory.machine
    try:
        named = load_preset(key, workload_finder(chosen))
        plan = named.plan(machine)
    except (UserError, UsageError) as error:
        say(str(error))
        return None
    ahead = estimate_remaining(store, plan, inventory)
    return _PresetRow(
        preset=named.key,
        question=named.experiment_for(machine).question,
        notes=plan.notes,
        runs=ahead.planned,
        done=ahead.done,
        left_s=ahead.left_s,
        takes=format_estimate(ahead.left_s, ahead.timing_runs) if ahead.done < ahead.planned else "nothing",
    )


def _preset_document(listed: _PresetRow) -> dict[str, object]:
    return {
        "preset": listed.preset,
        "question": listed.question,
        "notes": list(listed.notes),
        "runs": listed.runs,
        "done": listed.done,
        "left_s": listed.left_s,
    }


def experiment(chosen: Namespace) -> int:
    """Makes what is left of the experiment and prints its verdict; 0 when every planned run has a result.

    Running out of memory and being refused are results too.
    """
    check_arguments(chosen)
    if chosen.presets:
        return list_presets(chosen)
    if chosen.notify:
        return run_with_notification(f"Experiment {chosen.preset or chosen.workload} has ended", lambda: _run(chosen))
    return _run(chosen)


def _run(chosen: Namespace) -> int:
    named = load_preset(chosen.preset, workload_finder(chosen)) if chosen.preset else None
    article = named.preset.article if named else None
    if named and chosen.show:
        _print_result(_stored_experiment(named, chosen), article, chosen)
        return 0
    with run_services(chosen.db, chosen.sample_ms, standby=not (chosen.no_standby or chosen.queue)) as services:
        inventory = services.feed.wait_inventory()
        machine = inventory.machine
        plan = _preset_plan(named, machine, chosen) if named else _matrix_plan(chosen, machine)
        with Store.open(services.database) as store:
            entry = _enqueue(_with_limits(plan, machine, chosen), store)
            if chosen.queue and not entry.owned:
                _print_estimate(store, entry, inventory)
        if chosen.queue:
            return _print_added(entry, as_json=chosen.json)
        all_ended = run_entries(services, [entry.entry])
    if not all_ended or all_ended[-1].is_elsewhere:
        raise UserError(_describe_elsewhere(entry))
    _print_result(all_ended[-1].found, article, chosen, all_ended[-1].queue_number)
    return exit_status(all_ended)


def _print_estimate(store: Store, entry: QueueEntry, inventory: Inventory) -> None:
    """Says of an entry that is only added what of it cannot run, how many runs it has, and how long they take."""
    plan = entry_plan(entry)
    ahead = estimate_remaining(store, plan, inventory, runs_of_entry(store, entry))
    planned = f"{ahead.planned:,} {units.plural('run', ahead.planned)} planned."
    takes = describe_estimate(ahead, at_most=plan.until_pct is not None, budget_s=plan.budget_s)
    for sentence in (*describe_refusals(plan, inventory.machine), planned, *takes):
        say(sentence)


def _print_added(entry: QueueEntry, *, as_json: bool) -> int:
    if as_json:
        print_json({"entry": entry.entry})
    elif entry.owned:
        print(_describe_elsewhere(entry))
    else:
        print(f"Entry {entry.entry} of the queue: `python -m app queue go-on {entry.entry}` makes it.")
    return 0


def _preset_plan(named: NamedPreset, machine: Machine, chosen: Namespace) -> Plan:
    """The preset's plan for this machine, once it is said what it asks and how it was fitted."""
    plan = named.plan(machine, chosen.repeats, chosen.until)
    for sentence in (named.experiment_for(machine).question, *plan.notes):
        say(sentence)
    return plan


def _with_limits(plan: Plan, machine: Machine, chosen: Namespace) -> Plan:
    """Return the plan with the limits that the command names."""
    if chosen.parallel is not None and (words := sequential_reason(plan.specs, machine)):
        say(words)
    return structs.replace(
        plan,
        budget_s=chosen.budget,
        # Without a number: as many as there are GPUs.
        parallel=chosen.parallel or (1 if chosen.parallel is None else max(1, len(machine.gpus))),
        again=chosen.again,
        max_idle_wait_s=chosen.gate_limit,
        max_throttled_pct=chosen.max_throttled,
    )


def _enqueue(plan: Plan, store: Store) -> QueueEntry:
    """The entry of this experiment: the unfinished one where there is one, as it is asked for now."""
    entry, is_new = enqueue(store, plan)
    if not is_new and not entry.owned:
        say(f"This experiment is in the queue already, unfinished, as entry {entry.entry}.")
    return entry


def _describe_elsewhere(entry: QueueEntry) -> str:
    """That there is nothing to be made here, and how many repeats are made there; what was asked for here counts."""
    plan = entry_plan(entry)
    most = "" if plan.until_pct is None else "at most "
    repeats = f"{most}{plan.repeats} {units.plural('repeat', plan.repeats)}"
    return describe_elsewhere(
        f"this very experiment at this moment, as entry {entry.entry} of the queue, with {repeats}"
    )


def _stored_experiment(named: NamedPreset, chosen: Namespace) -> Experiment:
    """The experiment as it is stored, on whatever machine its newest runs were made."""
    plans = [
        structs.replace(plan, max_throttled_pct=chosen.max_throttled)
        for plan in named.all_plans(chosen.repeats, chosen.until)
    ]
    with open_store(chosen.db) as store:
        found = [(plan, reusable_as_newest(store, plan)) for plan in plans]
    plan, newest = max(found, key=lambda pair: max((run.row.started_utc_ns for run in pair[1].runs), default=0))
    if not newest.runs:
        raise UserError(f"No run of {named.name} is stored; without --show it makes them.")
    for sentence in [*describe_reference(newest.runs), *describe_uncounted(newest.excluded, newest.excluded_due_to)]:
        say(sentence)
    return Experiment.from_runs(plan, "stopped", newest.runs)


def _print_result(found: Experiment, article: Article | None, chosen: Namespace, entry: int | None = None) -> None:
    runs = load_compared(found, chosen.db or default_database())
    document = experiment_document(found, runs, article)
    if chosen.json:
        print_json(document)
    else:
        print_experiment(runs, document)
    say(describe_ending(found, shown=chosen.show, entry=entry))
    if chosen.report is not None:
        write_experiment_report(runs, document["article"], chosen.report)


def _matrix_plan(chosen: Namespace, machine: Machine) -> Plan:
    workload = chosen_workload(chosen)
    variants = several_variants(workload, chosen.settings, machine)
    if len(variants) < 2:
        raise UsageError(
            "An experiment needs two variants or more: give a parameter several values, as -s layout=NCHW,NHWC."
        )
    name = " ".join([chosen.workload, *chosen.settings])
    ordered = tuple(_baseline_first(variants, chosen.baseline, workload))
    repeats = chosen.repeats or (DEFAULT_REPEATS if chosen.until is None else MAX_REPEATS)
    return Plan(name=name, variants=ordered, repeats=repeats, until_pct=chosen.until)


def _baseline_first(variants: Sequence[RunSpec], baseline: str | None, workload: Workload) -> list[RunSpec]:
    if baseline is None:
        return list(variants)
    name, _, text = baseline.partition("=")
    value = catalog.parse(workload.parameter(name), text)
    first = [spec for spec in variants if spec.variant[name] == value]
    if not first:
        raise UsageError(f"No variant of this experiment has {baseline}.")
    return [*first, *(spec for spec in variants if spec not in first)]
