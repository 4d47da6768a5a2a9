"""One table cell of a run as a value: its text, unit, sort key and tooltip."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from app.metrics import Metric
from app.values import units
from app.values.events import Outcome, Summary
from app.values.records import RunRow
from app.viewmodels.format import naming
from app.viewmodels.format.naming import format_gpu_counts
from app.viewmodels.format.ratios import Unit, format_ratio
from workloads import catalog
from workloads.protocol import EvidenceState, RunSpec

Tone = Literal["good", "warning", "bad", "quiet", "busy"]


class StatusLabel(NamedTuple):
    """How an outcome is displayed: never by colour alone."""

    symbol: str
    word: str
    tone: Tone


OUTCOMES: Mapping[str, StatusLabel] = {
    "running": StatusLabel("▶", "running", "busy"),
    "completed": StatusLabel("✔", "completed", "good"),
    "stopped": StatusLabel("■", "stopped", "quiet"),
    "refused": StatusLabel("⊘", "refused", "quiet"),
    "out_of_memory": StatusLabel("▲", "out of memory", "warning"),
    "failed": StatusLabel("✖", "failed", "bad"),
    "crashed": StatusLabel("✖", "crashed", "bad"),
}
"""Labels by outcome; `running` is a run without one."""

VERIFICATIONS: Mapping[EvidenceState, StatusLabel] = {
    "verified": StatusLabel("✔", "verified", "good"),
    "verified in part": StatusLabel("◐", "verified in part", "busy"),
    "not verifiable": StatusLabel("?", "not verifiable", "quiet"),
    "mismatch": StatusLabel("✘", "mismatch", "warning"),
}
"""Labels by what a run's evidence verified."""


THIS_MACHINE = "this machine"
"""The name of the program's own machine among hosts."""


class Bar(NamedTuple):
    """A value's share of the largest of its kind, from 0 to 1; `leads` colours it."""

    share: float
    leads: bool = False


class Cell(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A cell; `key` is the sort key (None means absent and comes last); `unit` follows `text`.

    `name` has the parts of a text that is a name; `chips` are single words before the text, each in its own frame. A
    `spark` line of values from 0 to 1 may follow the text, and a `bar` may be below it. The garbage collector skips
    cells, of which a comparison has ten thousand, because they cannot form cycles.
    """

    text: str
    name: naming.Name = ()
    unit: str = ""
    key: float | str | None = None
    tooltip: str = ""
    symbol: str = ""
    tone: Tone | None = None
    chips: tuple[str, ...] = ()
    spark: tuple[float, ...] = ()
    bar: Bar | None = None


Shrink = Literal["", "text", "name", "symbol", "plot"]
"""How a column shrinks if a table has little room.

A text is cut to its least width; a name in parts is set in two lines of small letters; of words and their title only
the symbol stays; plots after numbers are dropped. Texts and names share the remaining room.
"""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table of runs; `numeric` ones are right-aligned.

    `second` is the title of what follows the number, such as its interval; with `has_spark` a window shows a line there
    instead. A text has `least` pixels and gets up to `most` before other shrinking columns; 0 means as many as it
    needs.
    """

    title: str
    help: str
    numeric: bool = True
    second: str = ""
    has_spark: bool = False
    shrink: Shrink = ""
    least: int = 0
    most: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TextTable:
    """Cells of text under their heads; `numeric` columns are right-aligned, `colours` has one per row or none."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: frozenset[int] = frozenset()
    colours: tuple[int | None, ...] = ()
    caption: str = ""


def text_cell(text: str, tooltip: str = "") -> Cell:
    """Return a cell of text; it sorts without regard to case."""
    return Cell(text=text, key=text.lower() or None, tooltip=tooltip)


def name_cell(name: naming.Name, tooltip: str = "") -> Cell:
    return msgspec.structs.replace(text_cell(naming.SEPARATOR.join(name), tooltip), name=name)


def quantity(text: str, key: float | None, tooltip: str = "") -> Cell:
    """Return a formatted number as a cell, split into figures and unit so that the figures align."""
    figures, _, unit = text.partition("\N{NO-BREAK SPACE}")
    return Cell(text=figures, unit=unit, key=key if units.is_known(key) else None, tooltip=tooltip)


def run_number(row: RunRow) -> Cell:
    return Cell(text=str(row.run), key=float(row.run), tooltip=f"Run {row.run}, with the id {row.uid} on every machine")


def started(row: RunRow, zone: tzinfo | None) -> Cell:
    """Return when the run started, in `zone` (None is the system's); UTC to the second in the tooltip."""
    return Cell(
        text=units.local_time(row.started_utc_ns, zone),
        key=float(row.started_utc_ns),
        tooltip=units.utc_time(row.started_utc_ns),
    )


def annotations(row: RunRow) -> Cell:
    """Return the user's tags and the first line of the note; both complete in the tooltip."""
    first_line = row.note.partition("\n")[0]
    full_text = "\n\n".join(filter(None, (", ".join(row.tags), row.note)))
    key = ", ".join(row.tags).lower() or None
    return Cell(text=first_line, key=key, tooltip=full_text, tone="quiet", chips=row.tags)


def workload(row: RunRow) -> Cell:
    definition = catalog.find_workload(row.spec.workload)
    return text_cell(row.spec.workload, definition.title if definition else "")


def variant(spec: RunSpec, purpose: str | None = None) -> Cell:
    """Return, in short, the parameters without a column, and the purpose; all parameters in the tooltip."""
    full = "\n".join(f"{name} = {naming.value_text(value)}" for name, value in catalog.own_variant(spec).items())
    return name_cell(tuple(filter(None, (*naming.variant_parts(spec), purpose))), full)


def host(row: RunRow) -> Cell:
    """Return the host of the run; empty for this machine."""
    return text_cell(row.host or "", "" if row.host else "Run on this machine, or imported.")


def devices(row: RunRow) -> Cell:
    """Return what the run ran on: short GPU names with their count, or the CPU; full names in the tooltip."""
    if row.gpu_names:
        short = format_gpu_counts(sorted(row.gpu_names), separator=" + ", single_prefix="")
        return text_cell(short, "\n".join(row.gpu_names))
    gpus = int(row.spec.variant.get("gpus", 0))
    return text_cell(naming.gpus_label(gpus))


def outcome(ended: Outcome | None) -> Cell:
    """Return the outcome as symbol and word; the reason in the tooltip."""
    label = OUTCOMES[ended.name if ended else "running"]
    reason = (ended.reason if ended else "Running now, here or in another program.") or ""
    return Cell(text=label.word, key=label.word, tooltip=reason, symbol=label.symbol, tone=label.tone)


def verified(row: RunRow) -> Cell:
    """Return what the run's evidence verified; empty without evidence, the reason in the tooltip."""
    if row.evidence_state is None:
        return Cell(text="", tooltip="No evidence was stored.")
    label = VERIFICATIONS[row.evidence_state]
    tooltip = units.sentence(row.evidence_reason or "Every checked aspect was observed and is as requested")
    return Cell(text=label.word, key=label.word, tooltip=tooltip, symbol=label.symbol, tone=label.tone)


def metric_cell(metric: Metric, value: float | None, example: str, row: RunRow | None = None) -> Cell:
    """Return a metric's value as a cell. For one run, `row`, the tooltip explains the value."""
    detail = metric.detail(row) if row and metric.detail and value is not None else ""
    return quantity(metric.text(value, example), value, detail)


def figure_cell(metric: Metric, value: float | None, example: str, row: RunRow) -> Cell:
    """Return a metric's value outside a column, in the best unit."""
    figure = quantity(metric.figure(value, example), value)
    return replace(metric_cell(metric, value, example, row), text=figure.text, unit=figure.unit)


def row_metric_cell(metric: Metric, row: RunRow) -> Cell:
    """Return a metric of one run, from its row alone, explained in the tooltip."""
    return metric_cell(metric, metric.row_value(row), example_word(row.spec, row.summary), row)


def ratio(value: float | None, unit: Unit) -> Cell:
    return Cell(text=format_ratio(value, unit), key=value if units.is_known(value) else None)


_AGREED = {
    "host": "on {}",
    "devices": "on {}",
    "outcome": "all {}",
    "evidence": "all {}",
    "workload": "{}",
    "framework": "{}",
}


def agreed_text(key: str, column: Column, cell: Cell) -> str:
    """Return the text that replaces a column in which all runs agree; "" if it says nothing."""
    if not cell.text or cell.text == units.ABSENT:
        return ""
    return _AGREED.get(key, f"{column.title} {{}}").format(units.quantity(cell.text, cell.unit).strip())


def plain_text(cell: Cell) -> str:
    return " ".join(filter(None, (cell.symbol, units.quantity(cell.text, cell.unit) if cell.unit else cell.text)))


def widest(column: Sequence[Cell]) -> Cell:
    """Return a cell as wide as the widest of a column: its longest text, its longest unit, and a symbol if any."""
    return Cell(
        text=max((cell.text for cell in column), key=len, default=""),
        unit=max((cell.unit for cell in column), key=len, default=""),
        symbol=next((cell.symbol for cell in column if cell.symbol), ""),
    )


def group_example_word(runs: Sequence[RunRow]) -> str:
    """Return the common example word of the runs that measured; "example" for several."""
    measured = [row for row in runs if row.summary.measured_steps] or runs
    words = {example_word(row.spec, row.summary) for row in measured}
    return words.pop() if len(words) == 1 else "example"


def example_word(spec: RunSpec, summary: Summary | None = None) -> str:
    """Return the word for one item of a workload's data; "example" for an unknown workload.

    For a command it is "step" if nothing gave the examples, so that each step counts as one.
    """
    if summary and summary.measured_steps == summary.measured_examples > 0 and catalog.is_script(spec.workload):
        return "step"
    workload = catalog.find_workload(spec.workload)
    return workload.example if workload else "example"
