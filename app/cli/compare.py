"""`compare`: stored runs side by side, with a verdict."""

import time
from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from app.analysis.scaling import differ_in_gpus
from app.cli.listing import asked
from app.cli.services import opened_store
from app.cli.terminal import print_json, print_table, print_words, say
from app.records import StoredRun
from app.report.comparison import compare_document
from app.report.files import check_ending
from app.report.written import write_report
from app.storage.library import Library
from app.viewmodels import cells, units
from app.viewmodels.compare import compared, usual_baseline
from app.viewmodels.doubts import EARLIER, EVIDENCE
from app.viewmodels.looks import MOST_COMPARED
from app.viewmodels.usual import usual_columns, usual_words
from app.viewmodels.variants import shared_settings
from workloads.catalog import UsageError

_HEADER = ("95 % interval", "ratio", "95 % interval", "energy", "ratio", "step p50")
_LAST = {"outcome": "outcome", "as_asked": "as asked"}
"""Columns that are left out where they say the usual of all runs."""
_OF_RESULTS = ("completed", "stopped", "running")
"""Outcomes that need no reason."""
_MOST_LABELS = 6
"""So many variants are named for which one reason holds."""
_NAMED = 12
"""So many runs a command is shown with."""


def compare(chosen: Namespace) -> int:
    """Prints the comparison, and writes a report of it where that is asked for."""
    if chosen.report is not None:
        check_ending(chosen.report)
    given = list(dict.fromkeys(chosen.runs))
    if _searched(chosen):
        if given:
            raise UsageError("compare takes runs by number or by what finds them (--search, --tag …), not both.")
    else:
        _check(given, chosen.baseline)
    with opened_store(chosen.db) as store:
        numbers = given or _found(chosen, store.library)
        runs = [store.load(number) for number in numbers]
        baseline = usual_baseline([run.row for run in runs]) if chosen.baseline is None else chosen.baseline
        older = store.load_earlier(baseline, numbers, EARLIER)
    if chosen.report is not None:
        write_report(chosen.report, compared(runs), baseline, time.time_ns(), older)
        say(f"Written to {chosen.report}.")
    document = compare_document(runs, baseline, older)
    if chosen.json:
        print_json(document)
    else:
        print_comparison(document, runs)
    return 0


def _searched(chosen: Namespace) -> bool:
    return any((chosen.search, chosen.workload, chosen.outcome, chosen.tag, chosen.experiment))


def _found(chosen: Namespace, library: Library) -> list[int]:
    """The runs searched for, the oldest first."""
    numbers = library.find(asked(chosen, library))
    if len(numbers) < 2:
        found = "one run" if numbers else "no run"
        raise UsageError(f"compare takes two runs or more; the search found {found}.")
    _check(numbers, chosen.baseline)
    return numbers


def _check(numbers: Sequence[int], baseline: int | None) -> None:
    """Raises `UsageError` for runs that cannot be compared."""
    if len(numbers) < 2:
        raise UsageError("compare takes two runs or more; `python -m app list` shows their numbers.")
    if len(numbers) > MOST_COMPARED:
        raise UsageError(f"compare takes at most {MOST_COMPARED} runs at once; these are {len(numbers):,}.")
    if baseline is not None and baseline not in numbers:
        raise UsageError(f"The baseline, run {baseline}, is not among the runs compared.")


def print_comparison(document: dict[str, Any], runs: Sequence[StoredRun]) -> None:
    """Prints a `compare` document of these runs: the verdict, a table, why runs failed, and every doubt."""
    print_words(document["verdict"]["text"])
    print()
    rows = [run.row for run in runs]
    for words in filter(None, (shared_settings([row.spec for row in rows]), usual_words(rows))):
        print_words(words)
    found_units = {row["throughput"]["unit"] for row in document["rows"]}
    unit = found_units.pop() if len(found_units) == 1 else "examples/s"
    last = [column for column in _LAST if column not in usual_columns(rows)]
    header = ("variant", "runs", unit, *_HEADER, *(_LAST[column] for column in last))
    print_table(header, [_row(row, last) for row in document["rows"]], right=frozenset(range(1, 9)))
    # What runs that are not what they say they are mean for the verdict, the verdict itself has said.
    doubted = doubt_lines([warning for warning in document["warnings"] if warning["key"] != EVIDENCE])
    lines = [*reason_lines(document["rows"]), *doubted]
    if differ_in_gpus(runs):
        numbers = " ".join(str(run.row.run) for run in runs) if len(runs) <= _NAMED else "RUN RUN ..."
        lines.append(f"How well these scale to more GPUs, and why not better: `python -m app scaling {numbers}`")
    if lines:
        print()
    for line in lines:
        print_words(line)


def reason_lines(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Why runs of a `compare` document's rows have no result: a line a reason, with the variants it is about."""
    told: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        for outcome, reason in zip(row["outcomes"], row["reasons"], strict=True):
            if outcome not in _OF_RESULTS:
                told.setdefault((cells.OUTCOMES[outcome].word, reason or ""), []).append(row["label"])
    return [
        f"{outcome.capitalize()}: {_some(list(dict.fromkeys(labels)))}. {units.sentence(reason)}".rstrip()
        for (outcome, reason), labels in told.items()
    ]


def _some(labels: Sequence[str]) -> str:
    more = len(labels) - _MOST_LABELS
    return ", ".join(labels) if more < 2 else f"{', '.join(labels[:_MOST_LABELS])} and {more} more"


def doubt_lines(warnings: Iterable[Mapping[str, Any]]) -> list[str]:
    """The warnings of a `compare` document, a line each."""
    return [f"{'Note' if each['severity'] == 'note' else 'Warning'}: {each['text']}" for each in warnings]


def _row(row: dict[str, Any], last: Sequence[str]) -> tuple[str, ...]:
    throughput, speedup, energy_mj = row["throughput"], row["speedup"], row["energy_mj_per_example"]["value"]
    words = {
        "outcome": ", ".join(dict.fromkeys(cells.OUTCOMES[outcome].word for outcome in row["outcomes"])),
        "as_asked": {True: "✔", False: "✘", None: ""}[row["match"]],
    }
    return (
        row["label"],
        str(len(row["runs"])),
        units.number(throughput["value"], 4),
        _interval(throughput["interval"], 4),
        cells.ratio(speedup["ratio"]).text,
        _interval(speedup["interval"], 3),
        units.ABSENT if energy_mj is None else f"{units.number(energy_mj)} mJ",
        cells.ratio(row["energy_ratio"]).text,
        units.milliseconds(row["step_ms"]["p50"]),
        *(words[column] for column in last),
    )


def _interval(interval: Sequence[float] | None, digits: int) -> str:
    return units.ABSENT if interval is None else " to ".join(units.number(value, digits) for value in interval)
