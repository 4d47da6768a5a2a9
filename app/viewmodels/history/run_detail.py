"""The page of one stored run: outcome, key figures, details, curves and log."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import NamedTuple

from app.metrics import METRICS, RunMetrics, Section, run_metrics
from app.values import units
from app.values.records import StoredRun
from app.values.samples import HOST
from app.viewmodels.compare.warnings import machine_warnings
from app.viewmodels.format import cells, derived, naming
from app.viewmodels.format.cells import Cell
from app.viewmodels.format.environment import environment_label, format_environment_value
from app.viewmodels.format.naming import run_command
from app.viewmodels.format.sentences import without_advice
from app.viewmodels.history.evidence import EvidenceView, stored_evidence_view
from app.viewmodels.plot.model import Band, Plots, Span
from app.viewmodels.plot.panels import run_panels
from workloads.catalog import own_variant

LOG_TAIL = 2000
"""More lines than this stay in the database: the end says why a run ended."""

_MEASURED = "measure"
_MARGIN = 0.1
"""The margin in view on each side of the measured part, as a share of its length."""


class DetailItem(NamedTuple):
    """One line of the facts: a name and a value in words."""

    name: str
    value: str


class DetailGroup(NamedTuple):
    """Facts of one kind under a heading, or as a table: its rows begin with words, the rest are numbers."""

    title: str
    items: tuple[DetailItem, ...] = ()
    header: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDetail:
    """The page's content; `reason` and `traceback` may be ""; `log` is the log's last `LOG_TAIL` lines.

    `fault_line` is the traceback's line, counted from 0, with the innermost frame in the file that the reason names.
    `notes` are caveats about numbers and missing plots.
    """

    run: int
    title: str
    subtitle: str
    outcome: Cell
    reason: str
    traceback: str
    fault_line: int
    figures: tuple[tuple[str, Cell], ...]
    notes: tuple[str, ...]
    evidence: EvidenceView
    groups: tuple[DetailGroup, ...]
    plots: Plots
    log: str
    log_title: str
    command: str
    tags: tuple[str, ...] = ()
    note: str = ""


def run_detail(
    run: StoredRun,
    zone: tzinfo | None,
    *,
    pruned_utc_ns: int | None = None,
    rates: derived.EnergyRates = derived.EnergyRates(),  # noqa: B008 - immutable
) -> RunDetail:
    """Return the content of one run's page; slow enough to belong off the GUI thread.

    `zone` is the reader's time zone, None the system's.
    """
    row = run.row
    reason, traceback = ("", "") if row.outcome is None else (row.outcome.reason or "", row.outcome.detail or "")
    panels = run_panels(run, cells.example_word(row.spec, row.summary))
    ends = [float(curve.x[-1]) for panel in panels for curve in panel.curves]
    ends += [(phase.end_ns - run.anchor_t_ns) / 1e9 for phase in run.phases if phase.end_ns is not None]
    end_s = max(ends, default=1.0)
    bands = tuple(
        Band(
            phase.name,
            (phase.start_ns - run.anchor_t_ns) / 1e9,
            end_s if phase.end_ns is None else (phase.end_ns - run.anchor_t_ns) / 1e9,
            phase.name == _MEASURED,
        )
        for phase in run.phases
    )
    measured = _measured(bands, end_s)
    trash_note = ""
    if row.deleted_utc_ns is not None:
        since = units.local_time(row.deleted_utc_ns)
        trash_note = f"This run has been in the trash since {since}; it can be restored from the deleted runs."
    count = len(run.log)
    counted = f"last {LOG_TAIL:,} of {count:,}" if count > LOG_TAIL else f"{count:,}"
    begun = cells.started(row, zone)
    values = run_metrics(run)
    return RunDetail(
        run=row.run,
        title=f"Run {row.run} · {naming.short_name(row.spec)}",
        subtitle=f"{begun.text} · {cells.devices(row).text}{f' · on {row.host}' if row.host else ''}",
        outcome=cells.outcome(row.outcome),
        reason=without_advice(reason),
        traceback=traceback,
        fault_line=_fault_line(reason, traceback),
        figures=_figures(run, values),
        notes=tuple(
            filter(
                None,
                (
                    derived.describe_losses(derived.device_losses(run)),
                    derived.implausible_note(run),
                    *(warning.sentence for warning in machine_warnings(run)),
                    trash_note,
                    derived.pruned_note(pruned_utc_ns),
                    derived.memory_note(run),
                ),
            )
        ),
        evidence=stored_evidence_view(run),
        groups=tuple(group for group in _groups(run, values, rates) if group.items or group.rows),
        plots=Plots(
            panels=panels,
            window=measured,
            bands=bands,
            measured=measured,
            extent=(0.0, end_s),
        ),
        log="\n".join(
            f"{units.with_minus(f'{(line.t_ns - run.anchor_t_ns) / 1e9:9.3f}')}  {line.text}"
            for line in run.log[-LOG_TAIL:]
        ),
        log_title=f"Log, {counted} {units.plural('line', count)}",
        command=run_command(run),
        tags=row.tags,
        note=row.note,
    )


def _fault_line(reason: str, traceback: str) -> int:
    """Return the line of the innermost frame at the reason's `file:line`, else of any frame."""
    frames = [(n, line) for n, line in enumerate(traceback.splitlines()) if line.lstrip().startswith('File "')]
    location = re.match(r"([^:/]+):(\d+): ", reason)
    own_frames = [n for n, line in frames if location and f'{location[1]}", line {location[2]}' in line]
    return max(own_frames or [n for n, _ in frames], default=0)


def _figures(run: StoredRun, values: RunMetrics) -> tuple[tuple[str, Cell], ...]:
    example = cells.example_word(run.row.spec, run.row.summary)
    headlines = (metric for metric in METRICS if metric.headline)
    figures = ((m.label, cells.figure_cell(m, values[m.key], example, run.row)) for m in headlines)
    return tuple((label, cell) for label, cell in figures if cell.key is not None)


def _groups(run: StoredRun, values: RunMetrics, rates: derived.EnergyRates) -> Sequence[DetailGroup]:
    spec, summary = run.row.spec, run.row.summary
    parameters = tuple(
        DetailItem(naming.parameter_label(spec, name), naming.setting_text(spec, name) or units.ABSENT)
        for name in own_variant(spec)
    )

    def section(name: Section, *others: tuple[str, str]) -> DetailGroup:
        metrics = (metric for metric in METRICS if metric.section == name)
        figures = ((m.label, m.figure(values[m.key], cells.example_word(spec, summary))) for m in metrics)
        items = (DetailItem(label, text) for label, text in (*figures, *others) if text and text != units.ABSENT)
        return DetailGroup(name, tuple(items))

    phase_header, phase_rows = derived.phase_table(run)
    return (
        section("Summary", ("Epochs", derived.describe_epochs(run)), ("Weights", derived.describe_weights(run))),
        DetailGroup("Epochs", header=derived.EPOCH_COLUMNS, rows=derived.epoch_rows(run)),
        section("Energy", *derived.energy_costs(run.row, rates), ("Taken from", summary.energy_source or "")),
        DetailGroup("Phases", header=phase_header, rows=phase_rows),
        section("Memory, highest", ("Memory of the GPU", units.byte_size(derived.memory_total_bytes(run)))),
        DetailGroup("Parameters", (DetailItem("Workload", spec.workload), *parameters)),
        DetailGroup("Devices", tuple(_device(c.device.index, c.device.name, c.device.device) for c in run.samples)),
        section("Telemetry"),
        *_field_costs(run),
        DetailGroup(
            "Environment",
            tuple(
                DetailItem(environment_label(key), format_environment_value(key, value))
                for key, value in run.environment.items()
                if value
            ),
        ),
        section("Run", *_identity(run)),
    )


def _field_costs(run: StoredRun) -> list[DetailGroup]:
    devices = {columns.device.name: columns.device for columns in reversed(run.samples)}
    header = ("", "renewed", "a read")
    return [
        DetailGroup(f"Fields of {name}", header=header, rows=derived.field_costs(device))
        for name, device in reversed(devices.items())
    ]


def _identity(run: StoredRun) -> tuple[tuple[str, str], ...]:
    row = run.row
    ended = row.outcome
    return (
        ("Number", str(row.run)),
        ("Identity", row.uid),
        ("Started", units.utc_time(row.started_utc_ns)),
        ("Ended", units.utc_time(row.ended_utc_ns)),
        ("Exit code", "" if ended is None or ended.exit_code is None else str(ended.exit_code)),
        ("Process ended by", (ended.ended_by if ended else None) or ""),
    )


def _device(index: int, name: str, device: str) -> DetailItem:
    return DetailItem("Host", name) if device == HOST else DetailItem(f"GPU {index}", f"{name}\n{device}")


def _measured(bands: Sequence[Band], end_s: float) -> Span:
    phase_band = next((band for band in bands if band.name == _MEASURED), None)
    if phase_band is None:
        return (0.0, end_s)
    around = _MARGIN * (phase_band.end - phase_band.start)
    return (max(phase_band.start - around, 0.0), min(phase_band.end + around, end_s))
