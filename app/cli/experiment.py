"""`experiment`: argument checks, presets, the plan, and the queue entry that is run."""

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from msgspec import structs

from app.analysis.intervals import DEFAULT_REPEATS, MIN_REPEATS
from app.cli.commands import RareOption
from app.cli.compare import GateOptions, gate_options, report_gate
from app.cli.experiment_progress import (
    describe_elsewhere,
    describe_ending,
    describe_reference,
    describe_refusals,
    exit_status,
    load_result,
    print_experiment,
    run_entries,
    write_experiment_report,
)
from app.cli.options import (
    FILE,
    TIME,
    Count,
    Number,
    Parsed,
    again_option,
    command,
    complete_presets,
    complete_runs,
    given_parameters,
    no_gate_option,
    no_standby_option,
    notify_option,
    on_option,
    option_name,
    parallel_option,
    run_numbers,
    sampling_option,
    settings_option,
    workload_argument,
)
from app.cli.progress import run_with_notification
from app.cli.run import run_services, several_variants, workload_finder
from app.cli.script import ScriptOptions, has_setting, script_options
from app.cli.services import open_store
from app.cli.terminal import ask_consent, ask_yes, print_json, print_table, say
from app.errors import UserError
from app.grants import typed
from app.paths import PROGRAM, default_database
from app.queries import FINISHED_STATES, QueueEntry, TimeLeft
from app.report.comparison import experiment_document
from app.report.gate import judge_gate
from app.report.render import check_writable
from app.runs.experiment.estimates import Experiment
from app.runs.experiment.presets import NamedPreset, load_preset, preset_names, user_preset_files
from app.runs.experiment.queue import enqueue, entry_plan, estimate_remaining, read_experiment
from app.runs.experiment.reuse import reusable_as_newest
from app.runs.experiment.schedule import parse_precision_pct
from app.storage.store import Store
from app.values import units
from app.values.plan import MAX_REPEATS, MAX_THROTTLED_PCT, REPEATS_LIMIT, Plan
from app.values.samples import Inventory
from app.viewmodels.experiment.preview import (
    describe_estimate,
    describe_order,
    describe_resolution,
    describe_uncounted,
    interleaved_plan,
    refused_notes,
    sequential_reason,
)
from app.viewmodels.format.naming import experiment_name
from app.viewmodels.format.sentences import format_time_left
from workloads import catalog
from workloads.catalog import Machine, UsageError, Workload
from workloads.protocol import RunSpec


def list_presets(database: Path | None, *, as_json: bool) -> int:
    """Print the program's and the window's presets, adapted to this machine."""
    documents, rows = list[dict[str, object]](), list[tuple[str, ...]]()
    with run_services(database) as services, Store.open(services.database) as store:
        inventory = services.host.inventory()
        find, stored = workload_finder(database, None), store.list_runs()
        for key in (*preset_names(), *user_preset_files(services.database)):
            try:
                preset = load_preset(key, find)
                plan = preset.plan(inventory.machine)
                ahead = estimate_remaining(store, plan, inventory, stored)
            except (UserError, UsageError) as error:  # the others are listed nevertheless
                say(str(error))
                continue
            question = preset.experiment_for(inventory.machine).question
            can_start = bool(catalog.runnable(plan.variants, inventory.machine))
            needs = "cannot run here" if inventory.machine.gpus or preset.preset.cpu else "needs a GPU"
            takes = "nothing" if ahead.done == ahead.planned else format_time_left(ahead.left) if can_start else needs
            rows.append((preset.key, str(ahead.planned), str(ahead.done), takes, question))
            documents.append(
                {
                    "preset": preset.key,
                    "question": question,
                    "notes": [*plan.notes, *refused_notes(plan.variants, inventory.machine)],
                    "runs": ahead.planned,
                    "done": ahead.done,
                    "older": len(ahead.older_utc_ns),
                    "left_s": ahead.left.likely_s if can_start else None,
                    "left_range_s": [ahead.left.least_s, ahead.left.most_s] if can_start else None,
                }
            )
    if as_json:
        print_json({"presets": documents})
    else:
        print_table(("preset", "runs", "done", "the rest takes", "question"), rows, right=frozenset({1, 2}))
    return 0


CONFIRM_ABOVE_S = 3_600.0
"""A longer experiment does not start without confirmation."""
_MATRIX_OPTIONS = ("workload", "settings", "baseline")
_CONFLICTS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "preset": ("--preset has its own workload, settings and baseline", _MATRIX_OPTIONS),
    "variants_of": ("--variants-of takes the variants of stored runs", (*_MATRIX_OPTIONS, "preset", "again", "reuse")),
    "again": ("--again ignores stored runs", ("reuse",)),
    "show": ("--show runs nothing", ("budget", "again", "reuse", "parallel", "check_equal", "queue", "on")),
    "queue": (
        "--queue runs nothing yet, but `queue run` takes these options",
        ("report", "notify", "no_standby", "sample_ms", "margin", "fail_if_slower", "summary"),
    ),
}
"""Options that exclude others, with the reason and the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentOptions:
    """The parameters of the command; `typed_names` are those that the user gave."""

    typed_names: frozenset[str]
    database: Path | None
    as_json: bool
    workload: str | None
    script: ScriptOptions
    settings: Sequence[str]
    repeats: int | None
    until: float | None
    baseline: str | None
    preset: str | None
    variants_of: Sequence[int]
    budget: float | None
    again: bool
    reuse: bool
    queue: bool
    notify: bool
    no_standby: bool
    yes: bool
    parallel: int | None
    no_gate: bool
    gate_limit: float | None
    max_throttled: float
    check_equal: bool | None
    show: bool
    on: str
    report: Path | None
    sample_ms: float
    gate: GateOptions

    def check(self) -> None:
        """Raise `UsageError` for wrong use."""
        if self.show and self.preset is None:
            raise UsageError(f"--show goes with --preset; `{PROGRAM} compare` shows any stored runs.")
        for name, (reason, excluded) in _CONFLICTS.items():
            wrong = [option_name(option) for option in excluded if option in self.typed_names]
            if name in self.typed_names and wrong:
                raise UsageError(f"{reason}: leave out {', '.join(wrong)}.")
        if self.budget == 0:
            raise UsageError("A budget of zero leaves no time for a run: give --budget more, such as 8m or 90s.")
        if self.report is not None:
            check_writable(self.report)
        if self.until is not None and self.repeats is not None and self.repeats < MIN_REPEATS:
            raise UsageError(f"--until needs at least {MIN_REPEATS} repeats: give --repeats {MIN_REPEATS} or more.")
        self.script.check(self.workload)
        if self.script.words and (self.preset or self.variants_of):
            raise UsageError("A command after -- determines what runs: leave out --preset and --variants-of.")
        if not (self.preset or self.workload or self.variants_of or self.script.words):
            raise UsageError(
                "experiment needs a workload with some -s name=a,b, a command after --, or --preset quick; "
                "`list presets` shows them."
            )

    def find_in_preset(self, word: str) -> Workload:
        """Return the workload that a preset names; with `--show` no file is read. Raises `UsageError`."""
        return workload_finder(self.database, None if self.show else ask_consent)(word)


@command(
    "experiment",
    "experiment lstm -s xla=false,true -s seconds=2",
    "experiment --preset quick --budget 8m",
    "experiment -s amp=off,on -- python train.py {amp?--amp}",
)
@workload_argument
@script_options
@settings_option("NAME=A,B", "A parameter; several values vary; may be repeated.")
@click.option(
    "--repeats",
    type=Count(1, REPEATS_LIMIT),
    metavar="N",
    help="Runs of each variant (default 3; --until: at most, 20).",
)
@click.option(
    "--until",
    type=Parsed(parse_precision_pct),
    metavar="WIDTH",
    help="End once every speed-up is known to WIDTH: 0.5%.",
)
@click.option(
    "--baseline",
    metavar="NAME=VALUE",
    help="The variant that others are compared with (default: the first steady one).",
)
@click.option(
    "--preset",
    metavar="NAME",
    shell_complete=complete_presets,
    help="A preset of `list presets`, or a preset file.",
)
@click.option(
    "--variants-of",
    cls=RareOption,
    callback=run_numbers,
    multiple=True,
    metavar="RUN,RUN",
    shell_complete=complete_runs,
    help="Run the variants of these stored runs again, interleaved; the first is the baseline.",
)
@click.option(
    "--budget",
    type=TIME,
    metavar="TIME",
    help="Start no run that would end later (8m or 1h30m).",
)
@again_option
@click.option("--reuse", cls=RareOption, is_flag=True, help="Reuse stored runs of any age (default: the last hour).")
@click.option("--queue", is_flag=True, help="Only add it to the queue, for `queue run`.")
@notify_option
@no_standby_option
@parallel_option
@no_gate_option
@click.option(
    "--gate-limit",
    cls=RareOption,
    type=TIME,
    metavar="TIME",
    help="Longest wait before a run (default: 60s).",
)
@click.option(
    "--max-throttled",
    cls=RareOption,
    type=Number(0, 100, "%"),
    default=MAX_THROTTLED_PCT,
    metavar="SHARE",
    help="Repeat a run once if it was throttled for more than SHARE of its measured part (default 5%).",
)
@click.option("--yes", cls=RareOption, is_flag=True, help="Do not ask before an experiment of more than an hour.")
@click.option(
    "--check-equal/--no-check-equal",
    cls=RareOption,
    default=None,
    help="Check first that the variants compute the same loss and gradients, 7 s each (default: if that is cheap).",
)
@click.option("--show", cls=RareOption, is_flag=True, help="With --preset: show its stored runs and run nothing.")
@click.option("--report", type=FILE, metavar="FILE", help="Write a report with charts too, .html or .md.")
@on_option
@sampling_option
@gate_options
@click.pass_context
def experiment(context: click.Context, /, **values: Any) -> int:
    """Run the rest of the experiment and print its verdict; return 0 when every planned run has a result.

    Running out of memory and being refused are results too. With a gate: its status.
    """
    options = ExperimentOptions(typed_names=given_parameters(context), **values)
    options.check()
    if options.notify:
        name = load_preset(options.preset).title if options.preset else options.workload
        title = f"Experiment “{name}” has ended" if name else "The experiment has ended"
        return run_with_notification(title, lambda: _run(options))
    return _run(options)


def _run(options: ExperimentOptions) -> int:
    named = load_preset(options.preset, options.find_in_preset) if options.preset else None
    if named and options.show:
        return _print_result(_stored_experiment(named, options), options) or 0
    standby = not (options.no_standby or options.queue)
    with run_services(options.database, options.sample_ms, on=options.on, standby=standby) as services:
        inventory = services.host.inventory()
        machine = inventory.machine
        if options.script.dry_run:
            variants = options.script.variants(options.settings, machine, None)
            return options.script.print_commands(variants, as_json=options.as_json)
        plan = _preset_plan(named, machine, options) if named else _chosen_plan(options, machine, services.database)
        if options.workload is not None or options.script.words:
            services.admit(plan.specs, typed)
        plan = _with_limits(plan, machine, options)
        with Store.open(services.database) as store:
            if not (options.queue or options.yes):
                _confirm_hours(estimate_remaining(store, plan, inventory).left, plan.budget_s)
            entry, is_new = enqueue(store, plan)  # if possible the unfinished one, with the new limits
            if not is_new and not entry.owned:
                say(f"This experiment is already in the queue, as entry {entry.entry}.")
            if options.queue and not entry.owned:
                _print_estimate(store, entry, inventory)
        if options.queue:
            if options.as_json:
                print_json({"entry": entry.entry})
            elif entry.owned:
                print(_describe_elsewhere(entry))
            else:
                print(f"Entry {entry.entry} of the queue: `{PROGRAM} queue run {entry.entry}` runs it.")
            return 0
        all_ended = run_entries(services, [entry.entry])
    if not all_ended or all_ended[-1].state == "running":
        raise UserError(_describe_elsewhere(entry))
    gated = _print_result(all_ended[-1].experiment, options, all_ended[-1].queue_number)
    return exit_status(all_ended) if gated is None else gated


def _confirm_hours(left: TimeLeft, budget_s: float | None) -> None:
    """Ask before an experiment of more than an hour; raises `UserError` without a yes."""
    if min(left.likely_s, budget_s or math.inf) <= CONFIRM_ABOVE_S:
        return
    say(f"This takes {format_time_left(left)}.")
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UserError("There is no terminal to ask whether to start it: add --yes, or --budget 1h.")
    if not ask_yes("Start it?"):
        raise UserError("Nothing was started.")


def _print_estimate(store: Store, entry: QueueEntry, inventory: Inventory) -> None:
    """Print a queued entry's refused variants, its number of runs, and their time."""
    plan = entry_plan(entry)
    ahead = read_experiment(store, plan, inventory, entry).progress
    planned = f"{ahead.planned:,} {units.plural('run', ahead.planned)} planned."
    at_most = plan.until_pct is not None
    takes = describe_estimate(ahead, at_most=at_most, budget_s=plan.budget_s)
    shows = describe_resolution(ahead.resolution, at_most=at_most)
    for sentence in (*describe_refusals(plan, inventory.machine), planned, *takes, *describe_order(plan), *shows):
        say(sentence)


def _preset_plan(named: NamedPreset, machine: Machine, options: ExperimentOptions) -> Plan:
    """Print a preset's question and how it was adapted; return its plan for this machine."""
    plan = named.plan(machine, options.repeats, options.until)
    for sentence in (named.experiment_for(machine).question, *plan.notes):
        say(sentence)
    return plan


def _with_limits(plan: Plan, machine: Machine, options: ExperimentOptions) -> Plan:
    if options.parallel is not None and (words := sequential_reason(plan.specs, machine)):
        say(words)
    return structs.replace(
        plan,
        has_baseline=plan.has_baseline or bool(options.gate.fail_if_slower),
        budget_s=options.budget,
        # By default, as many as there are GPUs.
        parallel=options.parallel or (1 if options.parallel is None else max(1, len(machine.gpus))),
        again=options.again or plan.again,
        reuse=options.reuse,
        max_idle_wait_s=0.0 if options.no_gate else options.gate_limit,
        max_throttled_pct=options.max_throttled,
        check_equality=options.check_equal,
        host=options.on,
    )


def _describe_elsewhere(entry: QueueEntry) -> str:
    """Return that another program runs it, and the number of repeats last requested, here or there."""
    plan = entry_plan(entry)
    most = "" if plan.until_pct is None else "at most "
    repeats = f"{most}{plan.repeats} {units.plural('repeat', plan.repeats)}"
    return describe_elsewhere(
        f"this very experiment at this moment, as entry {entry.entry} of the queue, with {repeats}"
    )


def _stored_experiment(named: NamedPreset, options: ExperimentOptions) -> Experiment:
    """Return the stored experiment, whichever machine its newest runs used."""
    plans = [
        structs.replace(plan, max_throttled_pct=options.max_throttled, has_baseline=bool(options.gate.fail_if_slower))
        for plan in named.all_plans(options.repeats, options.until)
    ]
    with open_store(options.database) as store:
        pairs = [(plan, reusable_as_newest(store, plan)) for plan in plans]
    plan, newest = max(pairs, key=lambda pair: max((run.row.started_utc_ns for run in pair[1].runs), default=0))
    if not newest.runs:
        raise UserError(f"No run of “{named.title}” is stored; without --show it makes them.")
    for sentence in [*describe_reference(newest.runs), *describe_uncounted(newest.excluded, newest.excluded_due_to)]:
        say(sentence)
    return Experiment.from_runs(plan, "stopped", newest.runs)


def _print_result(experiment: Experiment, options: ExperimentOptions, entry: int | None = None) -> int | None:
    """Print the result, and return the gate's exit status, None without a gate."""
    result = load_result(experiment, options.database or default_database(), options.gate.margin_pct)
    ending = describe_ending(experiment, show=options.show, entry=entry)
    unfinished = "" if experiment.state in FINISHED_STATES else ending
    judged = judge_gate(result.comparison, limit, unfinished) if (limit := options.gate.fail_if_slower) else None
    if options.as_json:
        print_json({**experiment_document(result), **({"gate": judged.document()} if judged else {})})
    else:
        print_experiment(result, options.database)
    say(ending)
    if options.report is not None:
        write_experiment_report(result, options.report)
    return report_gate(judged, options.gate) if judged else None


def _chosen_plan(options: ExperimentOptions, machine: Machine, database: Path) -> Plan:
    repeats = options.repeats or (DEFAULT_REPEATS if options.until is None else MAX_REPEATS)
    if options.variants_of:
        with open_store(options.database) as store:
            stored = [store.load_header(run).row.spec for run in options.variants_of]
        plan = interleaved_plan(_at_least_two(catalog.distinct(stored)), repeats)
        return structs.replace(plan, until_pct=options.until, has_baseline=True)
    if options.script.words:
        workload = None
        variants = _at_least_two(options.script.variants(options.settings, machine, database))
    else:
        assert options.workload is not None
        workload = workload_finder(options.database, typed)(options.workload)
        variants = _at_least_two(several_variants(workload, options.settings, machine))
    ordered = tuple(_baseline_first(variants, options.baseline, workload))
    names = (setting.partition("=")[0] for setting in options.settings)
    asked = next((name for name in names if len({spec.variant.get(name) for spec in variants}) > 1), "")
    return Plan(
        name=experiment_name(ordered),
        asked=asked,
        has_baseline=bool(options.baseline or options.script.words),
        variants=ordered,
        repeats=repeats,
        until_pct=options.until,
    )


def _at_least_two(variants: list[RunSpec]) -> list[RunSpec]:
    if len(variants) < 2:
        raise UsageError(
            "An experiment needs two variants or more: several values of a parameter, as -s layout=NCHW,NHWC, or "
            "--variants-of runs that differ."
        )
    return variants


def _baseline_first(variants: Sequence[RunSpec], baseline: str | None, workload: Workload | None) -> list[RunSpec]:
    """Return the variants, those with the baseline's value first; without a workload they belong to a command."""
    if baseline is None:
        return list(variants)
    name, _, text = baseline.partition("=")
    if workload is None:
        first = [spec for spec in variants if has_setting(spec.variant, name, text)]
    else:
        value = catalog.parse(workload.parameter(name), text)
        first = [spec for spec in variants if spec.variant[name] == value]
    if not first:
        raise UsageError(f"No variant of this experiment has {baseline}.")
    return [*first, *(spec for spec in variants if spec not in first)]
