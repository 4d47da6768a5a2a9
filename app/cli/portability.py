"""`portability`: a run's saved weights loaded into other implementations, and whether they answer the same there."""

import sys
from argparse import Namespace
from collections.abc import Sequence
from typing import Any

from app.cli.services import run_services
from app.cli.terminal import print_json, print_table, say
from app.records import RunRow
from app.report.evidence import portability_document
from app.runs.errands import ErrandError
from app.runs.portability import Targets, Trial, targets, try_weights, weights_of
from app.storage.store import Store
from app.viewmodels import units
from app.viewmodels.naming import choice_label
from workloads.catalog import Machine

_EXACT = 1e-5
"""A difference near 1 that float32 itself explains: sums are added up in another order."""


def portability(chosen: Namespace) -> int:
    """Tries the weights, stores and prints what came of it; 0 when every trial answers as rounding allows."""
    into = [word for word in chosen.into.split(",") if word]
    with run_services(chosen.db) as services, Store.open(services.database) as store:
        run = store.load(chosen.run).row
        weights = weights_of(run, services.database, chosen.weights)
        machine = services.feed.wait_inventory().machine
        wanted = targets(run.spec, into, _gpus(chosen.gpus, run, machine), machine)
        trials, failed = [], {}
        for spec in wanted.possible:
            name = str(spec.variant["implementation"])
            say(f"{choice_label(spec, 'implementation', name)} …")
            try:
                trials.append(try_weights(run, weights, spec, services, say))
            except ErrandError as error:
                failed[name] = str(error)
            else:
                store.add_portability(run.run, [trials[-1].found])
    if chosen.json:
        print_json(_document(run, trials, wanted, failed))
    else:
        _print(run, trials, wanted, failed)
    return int(bool(failed) or not all(map(_is_explained, trials)))


def _gpus(asked: int | None, run: RunRow, machine: Machine) -> int:
    """The other side: the CPU for what trained on a GPU, a GPU for what trained on the CPU, where there is one."""
    if asked is not None:
        return asked
    return 0 if run.spec.variant["gpus"] else min(1, len(machine.gpus))


def _is_explained(trial: Trial) -> bool:
    return trial.found.max_difference <= trial.tolerance


def _document(run: RunRow, trials: Sequence[Trial], wanted: Targets, failed: dict[str, str]) -> dict[str, Any]:
    found = portability_document([trial.found for trial in trials])
    more = [{"tolerance": trial.tolerance, "same": _is_explained(trial)} for trial in trials]
    return {
        "run": run.run,
        "trials": [{**entry, **told} for entry, told in zip(found, more, strict=True)],
        "left_out": wanted.left_out,
        "failed": failed,
    }


def _print(run: RunRow, trials: Sequence[Trial], wanted: Targets, failed: dict[str, str]) -> None:
    header = (f"weights of run {run.run} in", "on", "largest difference", "largest output")
    print_table(header, [_row(run, trial) for trial in trials], right=frozenset({2, 3}))
    if trials:
        print(f"\n{_verdict(run, trials)}")
    for name, reason in wanted.left_out.items():
        print(f"{choice_label(run.spec, 'implementation', name)} was left out: {reason}")
    for name, reason in failed.items():
        print(f"{choice_label(run.spec, 'implementation', name)} failed: {reason}", file=sys.stderr)


def _row(run: RunRow, trial: Trial) -> tuple[str, ...]:
    found = trial.found
    name = choice_label(run.spec, "implementation", found.implementation)
    difference = f"{found.max_difference:.1e}" if found.max_difference else "0"
    return name, found.device_name, difference, units.number(found.max_output)


def _verdict(run: RunRow, trials: Sequence[Trial]) -> str:
    """Whether the answers are the same, and if not, why that may be."""
    worst = max(trials, key=lambda trial: trial.found.max_difference)
    largest, explained = f"{worst.found.max_difference:.1e}", f"{worst.tolerance:.0e}"
    if worst.found.max_difference <= _EXACT * max(1.0, worst.found.max_output):
        return f"The same answers: they differ by {largest} at most."
    precision = choice_label(run.spec, "precision", run.spec.variant["precision"])
    if _is_explained(worst):
        return (
            f"The answers differ by up to {largest}: the run computed in {precision}, whose rounding explains up to "
            f"{explained}, and the weights were tried in float32."
        )
    name = choice_label(run.spec, "implementation", worst.found.implementation)
    return (
        f"The answers differ by up to {largest} ({name}), and the rounding of {precision} explains {explained}: "
        "what was trained is not what runs there. Check that the weights file is this run's and unchanged."
    )
