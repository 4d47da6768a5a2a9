"""`compare`: stored runs side by side, with a verdict."""

from argparse import Namespace
from collections.abc import Sequence
from typing import Any

from app.analysis.scaling import differ_in_gpus
from app.cli.services import opened_store
from app.cli.terminal import print_json, print_table
from app.records import StoredRun
from app.report.comparison import MISLABELLED, compare_document
from app.viewmodels import units
from workloads.catalog import UsageError


def compare(chosen: Namespace) -> int:
    """Prints the comparison."""
    numbers = list(dict.fromkeys(chosen.runs))
    if len(numbers) < 2:
        raise UsageError("compare takes two runs or more; `python -m app list` shows their numbers.")
    baseline = numbers[0] if chosen.baseline is None else chosen.baseline
    if baseline not in numbers:
        raise UsageError(f"The baseline, run {baseline}, is not among the runs compared.")
    with opened_store(chosen.db) as store:
        runs = [store.load(number) for number in numbers]
    document = compare_document(runs, baseline)
    if chosen.json:
        print_json(document)
    else:
        print_comparison(document, runs)
    return 0


def print_comparison(document: dict[str, Any], runs: Sequence[StoredRun]) -> None:
    """Prints a `compare` document of these runs as a table and sentences."""
    header = ("variant", "runs", "throughput", "95 % interval", "ratio", "95 % interval", "outcome", "as asked")
    print_table(header, [_row(row) for row in document["rows"]], right=frozenset({1, 2, 3, 4, 5}))
    print()
    print(document["verdict"]["text"])
    for warning in document["warnings"]:
        if warning["key"] == MISLABELLED:
            continue
        values = ", ".join(f"run {run}: {value or 'unknown'}" for run, value in warning["values"].items())
        print(f"Environment differs in {warning['key']}: {values}")
    if differ_in_gpus(runs):
        numbers = " ".join(str(run.row.run) for run in runs)
        print(f"How well these scale to more GPUs, and why not better: `python -m app scaling {numbers}`")


def _row(row: dict[str, Any]) -> tuple[str, ...]:
    throughput, speedup = row["throughput"], row["speedup"]
    outcomes = ", ".join(dict.fromkeys(row["outcomes"]))
    value = (
        units.ABSENT if throughput["value"] is None else f"{units.number(throughput['value'], 4)} {throughput['unit']}"
    )
    return (
        row["name"],
        str(len(row["runs"])),
        value,
        _interval(throughput["interval"], 4),
        units.ratio(speedup["ratio"]),
        _interval(speedup["interval"], 3),
        outcomes,
        {True: "✔", False: "✘", None: ""}[row["match"]],
    )


def _interval(interval: Sequence[float] | None, digits: int) -> str:
    return units.ABSENT if interval is None else " to ".join(units.number(value, digits) for value in interval)
