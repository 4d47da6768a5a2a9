"""`experiment`: several variants in turn, repeated and interleaved, and the verdict."""

import sys
import tomllib
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from app.cli.compare import show_comparison
from app.cli.run import run_once
from app.cli.services import run_services
from app.cli.settings import one_variant, several_variants
from app.runs.schedule import interleaved
from app.runs.session import RunServices
from app.storage.store import Store
from workloads import catalog
from workloads.catalog import Machine, UsageError
from workloads.protocol import RunSpec

_PRESETS = Path(__file__).resolve().parents[2] / "resources" / "presets"
_REPEATS = 3


@dataclass(frozen=True, slots=True)
class Plan:
    """The variants of an experiment, the baseline first, and how often each runs."""

    variants: tuple[RunSpec, ...]
    repeats: int


def experiment(chosen: Namespace) -> int:
    """Runs the experiment and prints its verdict; 0 when every run ended as a result (also refused, out of memory)."""
    with run_services(chosen.db, chosen.sample_ms) as services:
        machine = services.feed.wait_inventory().machine
        plan = _preset(chosen, machine) if chosen.preset else _matrix(chosen, machine)
        numbers = _run_all(plan, services, machine)
        with Store.open(services.database) as store:
            runs = [store.load(number) for number in numbers]
    show_comparison(runs, numbers[0], as_json=chosen.json)
    results = ("completed", "refused", "out_of_memory")
    return 0 if all(run.row.outcome and run.row.outcome.name in results for run in runs) else 1


def _run_all(plan: Plan, services: RunServices, machine: Machine) -> list[int]:
    """Runs the plan in its order and ends early only when the user stops a run."""
    order = _order(plan, machine)
    numbers: list[int] = []
    for position, index in enumerate(order, 1):
        row = run_once(plan.variants[index], services, prefix=f"[{position}/{len(order)}] ").row
        numbers.append(row.run)
        if row.outcome is not None and row.outcome.name == "stopped":
            print("Stopped: the verdict is of the runs made so far.", file=sys.stderr)
            break
    return numbers


def _order(plan: Plan, machine: Machine) -> list[int]:
    """Interleaved; a variant that cannot run here is refused once, not at every repeat."""
    refused = {index for index, spec in enumerate(plan.variants) if catalog.check(spec, machine)}
    order = interleaved(len(plan.variants), plan.repeats)
    return [index for turn, index in enumerate(order) if index not in refused or index not in order[:turn]]


def _matrix(chosen: Namespace, machine: Machine) -> Plan:
    if chosen.workload is None:
        raise UsageError("experiment needs a workload with some -s name=a,b, or --preset quick.")
    variants = several_variants(chosen.workload, chosen.settings, machine)
    if len(variants) < 2:
        raise UsageError(
            "An experiment needs two variants or more: give a parameter several values, as -s layout=NCHW,NHWC."
        )
    return Plan(tuple(_baseline_first(variants, chosen.baseline)), chosen.repeats or _REPEATS)


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


def _preset(chosen: Namespace, machine: Machine) -> Plan:
    """A prepared experiment, in the form for machines with a GPU or without."""
    known = sorted(path.stem for path in _PRESETS.glob("*.toml"))
    if chosen.preset not in known:
        raise UsageError(f"There is no preset called {chosen.preset!r}. There are: {', '.join(known)}.")
    with (_PRESETS / f"{chosen.preset}.toml").open("rb") as file:
        preset = tomllib.load(file)["gpu" if machine.gpus else "cpu"]
    print(preset["question"], file=sys.stderr)
    variants = [one_variant(preset["workload"], settings, machine) for settings in preset["variants"]]
    return Plan(tuple(variants), chosen.repeats or preset["repeats"])
