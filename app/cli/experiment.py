"""`experiment`: several variants in turn, repeated and interleaved, and the verdict; it can be cut off and go on."""

from argparse import Namespace
from collections.abc import Sequence

from app.analysis.repeats import REPEATS
from app.cli.entry_lines import exit_status, made_elsewhere_words, make_entries
from app.cli.experiment_check import check_words
from app.cli.experiment_presets import list_presets
from app.cli.experiment_words import (
    ending_words,
    print_experiment,
    reference_words,
    refused_words,
    write_found,
)
from app.cli.notify import with_notice
from app.cli.services import opened_store, run_services
from app.cli.settings import chosen_workload, several_variants, workload_finder
from app.cli.terminal import print_json, say
from app.errors import UserError
from app.queries import QueueEntry
from app.report.experiment import experiment_document
from app.runs.ahead import look_ahead
from app.runs.article import Article
from app.runs.counted import counted_as_newest
from app.runs.early import MOST_REPEATS
from app.runs.entry_session import own_runs
from app.runs.experiment import Experiment
from app.runs.presets import NamedPreset, preset
from app.runs.queued import Asked, asked_of, enter
from app.runs.repeated import Repeated
from app.runs.schedule import Plan
from app.samples import Inventory
from app.storage.store import Store
from app.viewmodels import units
from app.viewmodels.ahead import ahead_sentences, never_beside_words, uncounted_sentences
from workloads import catalog
from workloads.catalog import Machine, UsageError, Workload
from workloads.protocol import RunSpec


def experiment(chosen: Namespace) -> int:
    """Makes what is left of the experiment and prints its verdict; 0 when every planned run has a result.

    Running out of memory and being refused are results too.
    """
    check_words(chosen)
    if chosen.presets:
        return list_presets(chosen)
    if chosen.notify:
        return with_notice(f"Experiment {chosen.preset or chosen.workload} has ended", lambda: _make(chosen))
    return _make(chosen)


def _make(chosen: Namespace) -> int:
    named = preset(chosen.preset, workload_finder(chosen)) if chosen.preset else None
    article = named.preset.article if named else None
    if named and chosen.show:
        _tell(_stored(named, chosen), article, chosen)
        return 0
    with run_services(chosen.db, chosen.sample_ms, standby=not (chosen.no_standby or chosen.queue)) as services:
        inventory = services.feed.wait_inventory()
        machine = inventory.machine
        plan = _announced(named, machine, chosen) if named else _matrix(chosen, machine)
        with Store.open(services.database) as store:
            entry = _entered(_asked(plan, machine, chosen), store, named.key if named else None)
            if chosen.queue and not entry.owned:
                _say_ahead(store, entry, inventory)
        if chosen.queue:
            return _tell_added(entry, as_json=chosen.json)
        all_ended = make_entries(services, [entry.entry])
    if not all_ended or all_ended[-1].is_elsewhere:
        raise UserError(_made_elsewhere(entry))
    _tell(all_ended[-1].found, article, chosen, all_ended[-1].stays)
    return exit_status(all_ended)


def _say_ahead(store: Store, entry: QueueEntry, inventory: Inventory) -> None:
    """Says of an entry that is only added what of it cannot run, how many runs it has, and how long they take."""
    asked = asked_of(entry)
    repeated, own = Repeated(asked.max_throttled_pct), own_runs(store, entry, asked)
    ahead = look_ahead(store, asked.plan, inventory, own, repeated, asked.parallel)
    planned = f"{ahead.planned:,} {units.plural('run', ahead.planned)} planned."
    takes = ahead_sentences(ahead, at_most=asked.until_pct is not None, budget_s=asked.budget_s)
    for sentence in (*refused_words(asked.plan, inventory.machine), planned, *takes):
        say(sentence)


def _tell_added(entry: QueueEntry, *, as_json: bool) -> int:
    if as_json:
        print_json({"entry": entry.entry})
    elif entry.owned:
        print(_made_elsewhere(entry))
    else:
        print(f"Entry {entry.entry} of the queue: `python -m app queue go-on {entry.entry}` makes it.")
    return 0


def _announced(named: NamedPreset, machine: Machine, chosen: Namespace) -> Plan:
    """The preset's plan for this machine, once it is said what it asks and how it was fitted."""
    plan = named.plan(machine, chosen.repeats, chosen.until)
    for sentence in (named.form(machine).question, *plan.notes):
        say(sentence)
    return plan


def _asked(plan: Plan, machine: Machine, chosen: Namespace) -> Asked:
    if chosen.parallel is not None and (words := never_beside_words(plan.specs, machine)):
        say(words)
    return Asked.of(
        plan,
        budget_s=chosen.budget,
        # Without a number: as many as there are GPUs.
        parallel=chosen.parallel or (1 if chosen.parallel is None else max(1, len(machine.gpus))),
        again=chosen.again,
        gate_s=chosen.gate_limit,
        max_throttled_pct=chosen.max_throttled,
    )


def _entered(asked: Asked, store: Store, preset: str | None) -> QueueEntry:
    """The entry of this experiment: the unfinished one where there is one, as it is asked for now."""
    entry, is_new = enter(store, asked, preset)
    if not is_new and not entry.owned:
        say(f"This experiment is in the queue already, unfinished, as entry {entry.entry}.")
    return entry


def _made_elsewhere(entry: QueueEntry) -> str:
    """That there is nothing to be made here, and how many repeats are made there; what was asked for here counts."""
    asked = asked_of(entry)
    most = "" if asked.until_pct is None else "at most "
    repeats = f"{most}{asked.repeats} {units.plural('repeat', asked.repeats)}"
    return made_elsewhere_words(
        f"this very experiment at this moment, as entry {entry.entry} of the queue, with {repeats}"
    )


def _stored(named: NamedPreset, chosen: Namespace) -> Experiment:
    """The experiment as it is stored, on whatever machine its newest runs were made."""
    plans = named.every_plan(chosen.repeats, chosen.until)
    with opened_store(chosen.db) as store:
        found = [(plan, counted_as_newest(store, plan, Repeated(chosen.max_throttled))) for plan in plans]
    plan, newest = max(found, key=lambda pair: max((run.anchor_utc_ns for run in pair[1].runs), default=0))
    if not newest.runs:
        raise UserError(f"No run of {named.name} is stored; without --show it makes them.")
    for sentence in [*reference_words(newest.runs), *uncounted_sentences(newest.elsewhere, newest.because)]:
        say(sentence)
    return Experiment.of(plan, "stopped", newest.runs)


def _tell(found: Experiment, article: Article | None, chosen: Namespace, entry: int | None = None) -> None:
    document = experiment_document(found, article)
    if chosen.json:
        print_json(document)
    else:
        print_experiment(found, document)
    say(ending_words(found, shown=chosen.show, entry=entry))
    if chosen.report is not None:
        write_found(found, document["article"], chosen.report)


def _matrix(chosen: Namespace, machine: Machine) -> Plan:
    workload = chosen_workload(chosen)
    variants = several_variants(workload, chosen.settings, machine)
    if len(variants) < 2:
        raise UsageError(
            "An experiment needs two variants or more: give a parameter several values, as -s layout=NCHW,NHWC."
        )
    name = " ".join([chosen.workload, *chosen.settings])
    ordered = tuple(_baseline_first(variants, chosen.baseline, workload))
    repeats = chosen.repeats or (REPEATS if chosen.until is None else MOST_REPEATS)
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
