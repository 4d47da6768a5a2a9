"""Two runs side by side: what differs in figures, parameters, environment, evidence, kernels, samples and log."""

import difflib
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from itertools import zip_longest
from typing import Literal, NamedTuple

from app.analysis.comparability import known_value
from app.analysis.energy import field_in_window, measured_window
from app.metrics import METRICS
from app.values import units
from app.values.environment_keys import CUSTOM_TEXT_KEYS, PER_RUN_KEYS
from app.values.fields import FIELDS
from app.values.records import StoredRun
from app.values.samples import Device
from app.viewmodels.compare.why import Pair, WhyRow, WhyView, why_view
from app.viewmodels.format import cells, naming
from app.viewmodels.format.environment import environment_label, format_environment_value, shorten_uuids
from app.viewmodels.format.ratios import format_ratio
from app.viewmodels.format.telemetry_fields import format_field
from app.viewmodels.history.evidence import stored_evidence_view
from app.viewmodels.plot.panels import device_label
from workloads.catalog import has_parameter

_VARYING = re.compile(
    r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?"  # a time of day
    r"|(?<=^[IWEF])\d{4} [\d:.]+ +\d+(?= )"  # date, time and thread in absl's lines
    r"|0x[0-9a-f]+"
)
"""Insignificant differences between the lines of any two runs."""

Side = Literal["first", "second"]


class LineChange(NamedTuple):
    """A line of a text, and which of two runs have it."""

    side: Side
    text: str


def line_changes(first: Sequence[str], second: Sequence[str]) -> tuple[LineChange, ...]:
    """Return the lines that differ between two texts whose order matters, such as sources, in order."""
    differences = itertools.islice(difflib.unified_diff(first, second, n=0, lineterm=""), 2, None)  # after two heads
    sides: dict[str, Side] = {"-": "first", "+": "second"}
    return tuple(LineChange(sides[line[0]], line[1:]) for line in differences if line[0] in sides)


def log_changes(first: Sequence[str], second: Sequence[str]) -> tuple[LineChange, ...]:
    """Return the lines that one of two logs has more often than the other: those of the first, then of the second.

    Their order depends on the printing threads, so it is ignored, as are times of day, threads and addresses. Takes
    linear time.
    """
    changes: list[LineChange] = []
    sides: tuple[tuple[Side, Sequence[str], Sequence[str]], ...] = (("first", first, second), ("second", second, first))
    for side, lines, other_lines in sides:
        unmatched = Counter(_VARYING.sub("", line) for line in other_lines)
        for line in lines:
            plain = _VARYING.sub("", line)
            if unmatched[plain] == 0:
                changes.append(LineChange(side, line))
            else:
                unmatched[plain] -= 1
    return tuple(changes)


DeviceMeans = tuple[Device, Mapping[str, float]]
"""A device with the means of its samples while the run measured, by field; without counters and masks."""


def device_means(run: StoredRun, kind: str) -> list[DeviceMeans]:
    """Return the means of each device of a kind, by index; empty for a run without `measure`."""
    if (window := measured_window(run)) is None:
        return []
    devices = sorted((c for c in run.samples if c.device.kind == kind), key=lambda columns: columns.device.index)
    names = [name for name, field in FIELDS.items() if field.kind != "counter" and field.unit != "bits"]
    pairs: list[DeviceMeans] = []
    for columns in devices:
        readings = {name: field_in_window(columns, name, window) for name in names}
        pairs.append((columns.device, {name: float(x.mean()) for name, x in readings.items() if x.size}))
    return pairs


def paired_means(first: StoredRun, second: StoredRun) -> list[tuple[DeviceMeans | None, DeviceMeans | None]]:
    """Return the devices of two runs in pairs: the first GPU of one with the first GPU of the other."""
    pairs = (zip_longest(device_means(first, kind), device_means(second, kind)) for kind in ("gpu", "host"))
    return list(itertools.chain.from_iterable(pairs))


CAUTION = "Two single runs: they differ as repeats of one variant do, too. Compare repeats of both for an interval."
_TEMPERATURE = "°C"
"""A unit whose ratios are meaningless."""
MINUS = "\N{MINUS SIGN}"
MAX_LINES = 2000
"""The most lines of a log, from its end, to compare."""

SectionKey = Literal["run", "figures", "parameters", "environment", "conditions", "evidence", "kernels", "samples"]


class DiffRow(NamedTuple):
    """One value of both runs; `change` is for numbers. A `kernel` belongs to the class above it."""

    name: str
    first: str
    second: str
    change: str = ""
    kernel: bool = False
    help: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffSection:
    """Values of one kind, those that differ and those that are equal; `note` explains them or their absence."""

    key: SectionKey
    title: str
    rows: tuple[DiffRow, ...] = ()
    alike: tuple[DiffRow, ...] = ()
    note: str = ""

    @property
    def counts(self) -> str:
        """Return how many values differ and how many are equal: `2 differ, 24 alike`."""
        if self.key == "kernels":
            return ""
        differ = f"{len(self.rows)} {'differs' if len(self.rows) == 1 else 'differ'}" if self.rows else "none differs"
        return f"{differ}, {len(self.alike)} alike"


class TextDiff(NamedTuple):
    """The lines of a text that only one of the runs has."""

    key: Literal["source", "log"]
    title: str
    changes: tuple[LineChange, ...]

    @property
    def counts(self) -> str:
        """Return how many lines differ: `2 lines differ`."""
        count = len(self.changes)
        return f"{count:,} {'line differs' if count == 1 else 'lines differ'}" if count else "no line differs"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RunDiff:
    """Two runs in comparison; `names` are their short names, `why` is where their steps differ."""

    runs: tuple[int, int]
    names: tuple[str, str]
    sections: tuple[DiffSection, ...]
    texts: tuple[TextDiff, ...]
    why: WhyView

    @property
    def labels(self) -> tuple[str, str]:
        """Return each run's name in heads: `Run 4`."""
        return (f"Run {self.runs[0]}", f"Run {self.runs[1]}")

    @property
    def title(self) -> str:
        return f"Runs {self.runs[0]} and {self.runs[1]}"


def run_diff(first: StoredRun, second: StoredRun, zone: tzinfo | None) -> RunDiff:
    """Return what differs from one run to another; slow enough to belong off the GUI thread.

    Changes are counted from the first run; `zone` is the reader's time zone, None the system's.
    """
    runs = (first, second)
    numbers = (first.row.run, second.row.run)
    base, other = (f"Run {number}" for number in numbers)
    pair = Pair([second], [first], ((other,), (base,)), ((other.lower(),), (base.lower(),)))
    why = why_view(pair, other, base)
    sections = (
        _section("run", "Run", _run_rows(runs, zone)),
        _section("parameters", "Parameters", _parameter_rows(runs)),
        _section("environment", "Environment", _environment_rows(runs, per_run=False)),
        _section("conditions", "Conditions of the run", _environment_rows(runs, per_run=True)),
        _section("evidence", "What ran", _evidence_rows(runs)),
        _section("figures", "Figures", _figure_rows(runs), CAUTION),
        DiffSection(key="kernels", title="Kernels", rows=tuple(map(_kernel_row, why.rows)), note=why.sentence),
        _section("samples", "Samples, mean while measuring", _sample_rows(runs)),
    )
    return RunDiff(
        runs=numbers,
        names=(naming.short_name(first.row.spec), naming.short_name(second.row.spec)),
        sections=tuple(section for section in sections if section.rows or section.alike or section.note),
        texts=tuple(_text_diffs(runs)),
        why=why,
    )


Runs = tuple[StoredRun, StoredRun]


def _section(key: SectionKey, title: str, rows: Iterable[DiffRow], note: str = "") -> DiffSection:
    """Return the rows in which a run has a value, by whether both are equal."""
    filled_rows = [row for row in rows if {row.first, row.second} - {"", units.ABSENT}]
    return DiffSection(
        key=key,
        title=title,
        rows=tuple(row for row in filled_rows if row.first != row.second),
        alike=tuple(row for row in filled_rows if row.first == row.second),
        note=note,
    )


def _row(name: str, values: Sequence[str], change: str = "", help: str = "") -> DiffRow:
    first, second = values
    return DiffRow(name, first, second, change, help=help)


def _run_rows(runs: Runs, zone: tzinfo | None) -> Iterator[DiffRow]:
    rows = [run.row for run in runs]
    for name, values in (
        ("Started", [cells.started(row, zone).text for row in rows]),
        ("Host", [row.host or cells.THIS_MACHINE for row in rows]),
        ("Devices", [cells.devices(row).text for row in rows]),
        ("Outcome", [cells.outcome(row.outcome).text for row in rows]),
        ("Reason", [(row.outcome.reason if row.outcome else None) or "" for row in rows]),
        ("Evidence", [cells.verified(row).text for row in rows]),
        ("Purpose", [row.purpose or "" for row in rows]),
        ("Tags", [", ".join(row.tags) for row in rows]),
        ("Note", [row.note for row in rows]),
    ):
        yield _row(name, values)


def _figure_rows(runs: Runs) -> Iterator[DiffRow]:
    examples = [cells.example_word(run.row.spec, run.row.summary) for run in runs]
    for metric in METRICS:
        values = (metric.value(runs[0]), metric.value(runs[1]))
        texts = metric.figures(values, examples)
        change = "" if metric.unit == _TEMPERATURE else format_change(*values)
        yield _row(metric.label, texts, change, metric.help)


def _parameter_rows(runs: Runs) -> Iterator[DiffRow]:
    specs = [run.row.spec for run in runs]
    yield _row("Workload", [spec.workload for spec in specs])
    for name in dict.fromkeys(name for spec in specs for name in spec.variant):
        if not all(has_parameter(spec, name) for spec in specs):
            continue
        owner = next(spec for spec in specs if name in spec.variant)
        values = [naming.setting_text(spec, name) if name in spec.variant else units.ABSENT for spec in specs]
        yield _row(naming.parameter_label(owner, name), values, help=name)


def _environment_rows(runs: Runs, *, per_run: bool) -> Iterator[DiffRow]:
    keys = dict.fromkeys(key for run in runs for key in run.environment if key not in CUSTOM_TEXT_KEYS)
    for key in keys:
        if (key in PER_RUN_KEYS) == per_run:
            values = [known_value(run.environment, key) for run in runs]
            texts = [units.ABSENT if v is None else shorten_uuids(format_environment_value(key, v)) for v in values]
            yield _row(environment_label(key), texts, help=key)


def _evidence_rows(runs: Runs) -> Iterator[DiffRow]:
    actual = [{aspect.name: aspect.actual for aspect in stored_evidence_view(run).aspects} for run in runs]
    for name in dict.fromkeys(name for side in actual for name in side):
        yield _row(name, [side.get(name, units.ABSENT) for side in actual])


def _kernel_row(row: WhyRow) -> DiffRow:
    """Return a part of a step or a kernel, with its change as a share of the step."""
    first, second, change, *_, share = row.cells
    return DiffRow(row.label, first, second, f"{change} ({share})" if share else change, row.kind == "kernel", row.help)


def _sample_rows(runs: Runs) -> Iterator[DiffRow]:
    for pair in paired_means(*runs):
        devices = [side[0] for side in pair if side is not None]
        device = " / ".join(dict.fromkeys(map(device_label, devices)))
        for name, field in FIELDS.items():
            first, second = (None if side is None else side[1].get(name) for side in pair)
            change = "" if field.unit == _TEMPERATURE else format_change(first, second)
            texts = format_field(name, first), format_field(name, second)
            yield DiffRow(f"{device}: {field.label_on(devices[0].kind)}", *texts, change)


def _text_diffs(runs: Runs) -> Iterator[TextDiff]:
    sources = ["".join(run.environment.get(key, "") for key in CUSTOM_TEXT_KEYS).splitlines() for run in runs]
    if any(sources):
        yield TextDiff("source", "Source of the custom workload", line_changes(*sources))
    first, second = ([line.text for line in run.log[-MAX_LINES:]] for run in runs)
    yield TextDiff("log", "Log", log_changes(first, second))


def format_change(first: float | None, second: float | None) -> str:
    """Return how a number changed: `+6.4 %`, from twofold on `2.50×`; "" if meaningless."""
    if not units.is_known(first) or not units.is_known(second) or first <= 0 or second < 0 or first == second:
        return ""
    return format_ratio(second / first)


def text_line(change: LineChange) -> str:
    """Return a line with the sign of its run: − the first, + the second."""
    return f"{'+' if change.side == 'second' else MINUS} {change.text}"
