"""`experiment`: several variants in turn, repeated and interleaved, and the verdict; it can be cut off and go on."""

import contextlib
import functools
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import replace

from app.analysis.repeats import FIRST_LOOK
from app.cli.experiment_presets import list_presets
from app.cli.experiment_words import (
    ahead_words,
    counted_words,
    ending_words,
    print_experiment,
    refused_words,
    throttled_words,
    write_found,
)
from app.cli.gate import limits, wait_shown
from app.cli.services import interrupts, opened_store, run_services
from app.cli.settings import several_variants
from app.cli.terminal import ProgressSink, print_json, say
from app.errors import UserError
from app.records import StoredRun
from app.report.experiment import experiment_document
from app.report.files import check_ending
from app.runs.article import Article
from app.runs.carried import of_use, try_carried, untried
from app.runs.counted import Counted, counted_as_newest, counted_here, made_alike, surroundings_here
from app.runs.early import MOST_REPEATS
from app.runs.experiment import FINISHED, Experiment, ExperimentSession, Turn
from app.runs.gate import Gate
from app.runs.going import RunsGoing
from app.runs.kept import KeptExperiment
from app.runs.presets import NamedPreset, preset
from app.runs.repeated import Repeated
from app.runs.schedule import Plan
from app.runs.session import RunServices, lease_for
from app.storage.store import Store
from workloads import catalog
from workloads.catalog import Machine, UsageError
from workloads.protocol import RunSpec

_REPEATS = 3


def experiment(chosen: Namespace) -> int:
    """Makes what is left of the experiment and prints its verdict; 0 when every planned run has a result.

    Running out of memory and being refused are results too.
    """
    if chosen.presets:
        return list_presets(chosen)
    named = preset(chosen.preset) if chosen.preset else None
    article = named.preset.article if named else None
    _check_words(chosen, named)
    if named and chosen.show:
        _tell(_stored(named, chosen), article, chosen)
        return 0
    with run_services(chosen.db, chosen.sample_ms, standby=chosen.standby) as services:
        machine = services.feed.wait_inventory().machine
        plan = _announced(named, machine, chosen) if named else _matrix(chosen, machine)
        found = _made(plan, services, chosen)
    _tell(found, article, chosen)
    return 0 if found.state in FINISHED and not untried(found.plan, found.runs) else 1


def _check_words(chosen: Namespace, named: NamedPreset | None) -> None:
    if chosen.show and named is None:
        raise UsageError("--show goes with --preset; `python -m app compare` shows any stored runs.")
    if chosen.report is not None:
        check_ending(chosen.report)
    if chosen.until is not None and chosen.repeats is not None and chosen.repeats <= FIRST_LOOK:
        raise UsageError(
            f"--until looks twice, first after {FIRST_LOOK} repeats: give --repeats {FIRST_LOOK + 1} or more."
        )
    if named is None and chosen.workload is None:
        raise UsageError("experiment needs a workload with some -s name=a,b, or --preset quick; --presets lists them.")


def _announced(named: NamedPreset, machine: Machine, chosen: Namespace) -> Plan:
    """The preset's plan for this machine, once it is said what it asks and how it was fitted."""
    plan = named.plan(machine, chosen.repeats, chosen.until)
    for sentence in (named.form(machine).question, *plan.notes):
        say(sentence)
    return plan


def _made(plan: Plan, services: RunServices, chosen: Namespace) -> Experiment:
    """Makes the runs that are left, with their progress on stderr; Ctrl-C ends it with what was made so far."""
    inventory = services.feed.wait_inventory()
    machine = inventory.machine
    repeated = Repeated(chosen.max_throttled)
    with Store.open(services.database) as store:
        here = surroundings_here(inventory)
        counted = Counted(runs=()) if chosen.again else counted_here(store, plan, here, machine, repeated)
        alike = made_alike(store, machine)
    stored = of_use(plan, counted.runs, services.database)
    before = Experiment.of(plan, "stopped", stored, machine)
    ahead = ahead_words(before, alike, machine, chosen.budget)
    for sentence in (*counted_words(counted), *refused_words(plan, machine), *ahead):
        say(sentence)

    kept = KeptExperiment(services.database, plan, plan.name if chosen.preset else None)
    kept.add(run.row.run for run in stored)

    going = RunsGoing(services)

    def run_one(turn: Turn) -> StoredRun:
        shown = ProgressSink(f"[{turn.place}/{turn.planned}] ")
        return going.make(turn.spec, [shown], facts=turn.facts, lease=turn.lease)

    def counts(made: StoredRun) -> bool:
        does_count = repeated.counts(made)
        if does_count:
            kept.add([made.row.run])
        else:
            say(throttled_words(made))
        return does_count

    with contextlib.closing(Gate(services.feed, limits(chosen.gate_limit))) as gate:
        wait = functools.partial(wait_shown, gate)
        session = ExperimentSession(
            plan,
            stored,
            machine,
            run_one,
            chosen.budget,
            lend=lambda spec, stopped: lease_for(spec, services, told=say, stopped=stopped),
            wait=wait,
            counts=counts,
        )

        def stop() -> None:
            session.stop()
            going.stop()

        with interrupts(stop):
            found = session.run()
            return _with_trials(found, services, session.may_go_on) if found.state in FINISHED else found


def _with_trials(found: Experiment, services: RunServices, may_go_on: Callable[[], bool]) -> Experiment:
    """The experiment once the weights that it saved were tried; what is left of that is said."""
    try:
        runs = try_carried(found.plan, found.runs, services, say, may_go_on) if found.plan.carried else found.runs
    except UserError as error:
        say(str(error))
        return found
    if waiting := untried(found.plan, runs):
        say(f"Weights still to be tried in {', '.join(trial.implementation for trial in waiting)}.")
    return replace(found, runs=tuple(runs))


def _stored(named: NamedPreset, chosen: Namespace) -> Experiment:
    """The experiment as it is stored, on whatever machine its newest runs were made."""
    plans = named.every_plan(chosen.repeats, chosen.until)
    with opened_store(chosen.db) as store:
        found = [(plan, counted_as_newest(store, plan, Repeated(chosen.max_throttled))) for plan in plans]
    plan, newest = max(found, key=lambda pair: max((run.anchor_utc_ns for run in pair[1].runs), default=0))
    if not newest.runs:
        raise UserError(f"No run of {named.name} is stored; without --show it makes them.")
    for sentence in counted_words(newest):
        say(sentence)
    return Experiment.of(plan, "stopped", newest.runs)


def _tell(found: Experiment, article: Article | None, chosen: Namespace) -> None:
    document = experiment_document(found, article)
    if chosen.report is not None:
        write_found(found, document["article"], chosen.report)
    if chosen.json:
        print_json(document)
    else:
        print_experiment(found, document)
    say(ending_words(found, shown=chosen.show))


def _matrix(chosen: Namespace, machine: Machine) -> Plan:
    variants = several_variants(chosen.workload, chosen.settings, machine)
    if len(variants) < 2:
        raise UsageError(
            "An experiment needs two variants or more: give a parameter several values, as -s layout=NCHW,NHWC."
        )
    name = " ".join([chosen.workload, *chosen.settings])
    ordered = tuple(_baseline_first(variants, chosen.baseline))
    repeats = chosen.repeats or (_REPEATS if chosen.until is None else MOST_REPEATS)
    return Plan(name=name, variants=ordered, repeats=repeats, until_pct=chosen.until)


def _baseline_first(variants: Sequence[RunSpec], baseline: str | None) -> list[RunSpec]:
    if baseline is None:
        return list(variants)
    name, _, text = baseline.partition("=")
    parameter = catalog.workload(variants[0].workload).parameter(name)
    value = catalog.parse(parameter, text)
    first = [spec for spec in variants if spec.variant[name] == value]
    if not first:
        raise UsageError(f"No variant of this experiment has {baseline}.")
    return [*first, *(spec for spec in variants if spec not in first)]
