"""The metrics of a run, one row each, over which every table, document, order and report of runs loops.

To add a metric, add a row to `METRICS`. A metric by which History sorts also needs a column or an SQL expression;
everything else reads the row.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter as field
from typing import Any, Literal

import numpy as np

from app.analysis.comparability import THROTTLE_FIELDS, throttled_shares
from app.analysis.energy import DRAM, peak_power_mw, peak_temperature_c, traffic_bytes_per_step
from app.analysis.summary import energy_mj_per_step, epoch_totals, flops_per_s, mfu, seconds_to_accuracy
from app.analysis.training import ACCURACY_GOALS_PCT
from app.values import units
from app.values.events import Summary
from app.values.records import RunRow, StoredRun

Fold = Literal["median", "highest"]
"""How a metric combines the runs of one variant."""

Better = Literal["higher", "lower", ""]
"""Which values are better; "" if neither is."""

Section = Literal["Summary", "Energy", "Memory, highest", "Telemetry", "Run"]
"""The group of a run's page that contains the metric."""

_FOLDS: Mapping[Fold, Callable[[Sequence[float]], float]] = {
    "median": lambda values: float(np.median(values)),
    "highest": max,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ListColumn:
    """A metric as a column of History.

    `order` is its name for `--sort`, `sql` the expression over `runs` to sort by, `widest` the longest expected text,
    `is_default` whether the column is visible by default, `in_terminal` whether `list` also prints it.
    """

    order: str
    sql: str
    widest: str
    is_default: bool = True
    in_terminal: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric of a run.

    A value comes from the run's summary (`of_summary`), from its row (`of_row`) or, if it needs samples or epochs, from
    the whole run (`of_run`), whose telemetry fields it `reads`; None means "not measured". `unit` may contain
    `{example}` or `{examples}`; `format` takes the value divided by `unit_size`, and the unit; `alone` takes the value
    and chooses the unit, for figures outside columns. `label` names the metric, `title` heads its columns. `better`
    says which values are, `fold` how runs are combined. `detail` explains one run's value. `json` is its path in
    documents of runs and comparisons, with dots between keys. `headline` metrics are large on a run's page, `brief`
    ones in the line below a finished run, `compared` ones in Compare, its documents and reports, `in_terminal` ones in
    the terminal's comparison table.
    """

    key: str
    label: str
    help: str
    unit: str
    json: str
    of_summary: Callable[[Summary], float | None] | None = None
    of_row: Callable[[RunRow], float | None] | None = None
    of_run: Callable[[StoredRun], float | None] | None = None
    reads: tuple[str, ...] = ()
    format: Callable[[float | None, str], str] = units.amount
    unit_size: float = 1
    alone: Callable[[float | None], str] | None = None
    title: str = ""
    detail: Callable[[RunRow], str] | None = None
    fold: Fold = "median"
    better: Better = ""
    list_column: ListColumn | None = None
    section: Section = "Summary"
    headline: bool = False
    brief: bool = False
    compared: bool = False
    in_terminal: bool = False

    @property
    def column_title(self) -> str:
        return self.title or self.label

    @property
    def name(self) -> str:
        """Return the label within a sentence; a name such as Keras keeps its capital."""
        is_word = self.label.split()[0][1:].islower()
        return self.label[0].lower() + self.label[1:] if is_word else self.label

    def row_value(self, row: RunRow) -> float | None:
        if self.of_summary:
            return self.of_summary(row.summary)
        return self.of_row(row) if self.of_row else None

    def value(self, run: StoredRun) -> float | None:
        """Return the value for a stored run; slow if it needs samples."""
        return self.of_run(run) if self.of_run else self.row_value(run.row)

    def text(self, value: float | None, example: str) -> str:
        """Return a value in the unit of its columns; `example` is the word for one item of the workload's data."""
        unit = self.unit.format(example=example, examples=units.plural(example))
        return self.format(None if value is None else value / self.unit_size, unit)

    def figure(self, value: float | None, example: str) -> str:
        """Return a value outside columns, in the best unit; `example` is as for `text`."""
        return self.alone(value) if self.alone else self.text(value, example)

    def figures(self, values: Sequence[float | None], examples: Sequence[str]) -> list[str]:
        """Return neighbouring values in their common best unit, or else as in columns."""
        pairs = list(zip(values, examples, strict=True))
        texts = [self.figure(*pair) for pair in pairs]
        chosen = {text.partition("\N{NO-BREAK SPACE}")[2] for text in texts if text != units.ABSENT}
        return texts if len(chosen) == 1 else [self.text(*pair) for pair in pairs]

    def aggregate(self, values: Sequence[float | None]) -> float | None:
        """Return the combined value of several runs; None if no run has one."""
        numbers = [value for value in values if value is not None]
        return _FOLDS[self.fold](numbers) if numbers else None


RunMetrics = Mapping[str, float | None]
"""The metrics of one run, by key."""


def run_metrics(run: StoredRun) -> RunMetrics:
    """Return all metrics of a run; reads its samples, so it belongs off the GUI thread."""
    return {metric.key: metric.value(run) for metric in METRICS}


def aggregate_metrics(runs: Sequence[RunMetrics]) -> RunMetrics:
    return {metric.key: metric.aggregate([run[metric.key] for run in runs]) for metric in METRICS}


def put_json(document: dict[str, Any], metric: Metric, value: float | Sequence[float | None] | None) -> None:
    """Write a metric into a document at its path.

    Missing dictionaries are added. The value may be a list for several runs; None becomes null.
    """
    *parents, last = metric.json.split(".")
    for parent in parents:
        document = document.setdefault(parent, {})
    document[last] = value


def describe_blocks(summary: Summary) -> str:
    """Return how many measured blocks count, and how many earlier ones were cut as a warm-up."""
    counted = f"{summary.blocks:,} measured {units.plural('block', summary.blocks)}"
    return f"{counted}, {summary.blocks_cut} before them cut as warm-up" if summary.blocks_cut else counted


def _fixed(decimals: int) -> Callable[[float | None, str], str]:
    return lambda value, unit: units.with_unit(value, unit, decimals)


def _without_unit(text: Callable[[float | None], str]) -> Callable[[float | None, str], str]:
    return lambda value, _unit: text(value)


_byte_size, _number, _duration = map(_without_unit, (units.byte_size, units.number, units.duration))


def _count(value: float | None, _unit: str) -> str:
    return f"{value:,.0f}" if value else units.ABSENT


def _error(value: float | None, _unit: str) -> str:
    bound = "" if value is None else units.plus_minus(units.percent(value, 1))
    return f"{bound} (sampling-window edges)" if bound else units.ABSENT


def _duration_s(row: RunRow) -> float | None:
    return None if row.ended_utc_ns is None else (row.ended_utc_ns - row.started_utc_ns) / 1e9


def _throttled_s(run: StoredRun) -> float | None:
    """Return the longest throttled time by one cause on the run's worst GPU."""
    shares, measured_s = throttled_shares(run), run.row.summary.measured_s
    return None if measured_s is None or not shares else max(shares.values()) * measured_s


def _training_s(run: StoredRun) -> float | None:
    trained = epoch_totals(run.epochs)
    return trained.seconds if trained else None


def _accuracy_pct(run: StoredRun) -> float | None:
    trained = epoch_totals(run.epochs)
    return 100 * trained.accuracy if trained else None


def _seconds_to(accuracy_pct: int) -> Callable[[StoredRun], float | None]:
    return lambda run: seconds_to_accuracy(run.epochs, accuracy_pct / 100)


def _utilisation_pct(summary: Summary) -> float | None:
    share = mfu(summary)
    return None if share is None else 100 * share


def _operations_detail(row: RunRow) -> str:
    per_step = row.summary.flops_per_step
    return "" if per_step is None else f"{units.number(per_step / 1e9)} billion operations per step, by formula"


def _utilisation_detail(row: RunRow) -> str:
    """Return the reference of the share; a share above one means that the peak was measured on a busy machine."""
    peak = units.flops(row.summary.peak_flops_per_s or 0)
    basis = f"Of {peak}, measured with a large matrix product"
    if (mfu(row.summary) or 0) <= 1:
        return basis
    return f"{basis}; the peak was measured too low: measure it again on a quiet machine"


def _energy_detail(row: RunRow) -> str:
    source = row.summary.energy_source
    return f"Source: {source}" if source else ""


# One row per line: broken argument by argument, the table would be unreadable.
# fmt: off
METRICS: tuple[Metric, ...] = (
    Metric(key="throughput", label="Throughput", unit="{examples}/s", of_summary=field("throughput"), better="higher",
           help="Examples per second over the measured blocks", json="throughput.value",
           detail=lambda row: f"Over {describe_blocks(row.summary)}", headline=True,
           list_column=ListColumn(order="throughput", sql="throughput", widest="100,000", in_terminal=True)),
    Metric(key="step_p50", label="Step p50", unit="ms", of_summary=field("step_ms_p50"), better="lower",
           help="Median time of one step", json="step_ms.p50",
           headline=True, brief=True, compared=True, in_terminal=True,
           list_column=ListColumn(order="step_ms_p50", sql="step_ms_p50", widest="1,000", is_default=False)),
    Metric(key="step_p95", label="Step p95", title="p95", unit="ms", of_summary=field("step_ms_p95"), better="lower",
           help="19 of 20 steps were faster, by the mean step of their block", json="step_ms.p95", compared=True),
    Metric(key="step_p99", label="Step p99", title="p99", unit="ms", of_summary=field("step_ms_p99"), better="lower",
           help="99 of 100 steps were faster, by the mean step of their block", json="step_ms.p99", compared=True),
    Metric(key="gpu_step", label="GPU time per step", title="GPU time", unit="ms", better="lower",
           of_summary=field("gpu_step_ms"), help="How long kernels run on a GPU in a step, from the trace",
           json="step_ms.gpu", compared=True, in_terminal=True),
    Metric(key="occupancy", label="Occupancy", unit="%", of_summary=field("occupancy_pct"), format=_fixed(1),
           help="How much of a GPU's warp slots its kernels can fill, by their time in the trace",
           json="occupancy_pct", compared=True),
    Metric(key="traffic", label="Memory traffic per step", title="Traffic", unit="bytes", of_run=traffic_bytes_per_step,
           reads=(DRAM,), format=_byte_size, json="memory.traffic_bytes_per_step", better="lower", compared=True,
           help="Bytes of GPU memory read and written in a step, by the load of the memory"),
    Metric(key="measured_s", label="Measured for", unit="s", of_summary=field("measured_s"), format=_fixed(1),
           help="Time that the measured blocks took", json="measured.seconds"),
    Metric(key="measured_steps", label="Measured steps", unit="", of_summary=field("measured_steps"), format=_count,
           help="Steps in the measured blocks", json="measured.steps"),
    Metric(key="measured_examples", label="Measured examples", unit="", of_summary=field("measured_examples"),
           format=_count, help="Examples in the measured blocks", json="measured.examples"),
    Metric(key="blocks", label="Measured blocks", unit="", of_summary=field("blocks"), format=_count,
           help="Measured blocks that count", json="measured.blocks"),
    Metric(key="blocks_cut", label="Blocks cut as warm-up", unit="", of_summary=field("blocks_cut"), format=_count,
           help="Blocks before them that were still a warm-up", json="throughput.blocks_cut"),
    Metric(key="waiting", label="Waiting for data", unit="%", of_summary=field("waiting_pct"), format=_fixed(1),
           help="Extra time of steps that waited for data", json="data.waiting_pct",
           better="lower", brief=True),
    Metric(key="ready_step", label="Step, data ready", unit="ms", of_summary=field("ready_step_ms"), better="lower",
           help="Time of one step whose data were already on the devices", json="data.ready_step_ms"),
    Metric(key="mean_power", label="Mean power", unit="W", of_summary=field("mean_power_mw"), better="lower",
           format=units.with_unit, unit_size=1000, json="power.mean_mw", section="Energy",
           help="Mean power of the run's GPUs together while measuring", headline=True, brief=True, compared=True,
           list_column=ListColumn(order="mean_power", sql="mean_power_mw", widest="1,000", is_default=False)),
    Metric(key="peak_power", label="Peak power", unit="W", of_run=peak_power_mw, reads=("power_mw",), fold="highest",
           better="lower", format=units.with_unit, unit_size=1000, json="power.peak_mw", section="Energy",
           help="Highest power of the run's GPUs together while measuring", compared=True),
    Metric(key="energy", label="Energy", unit="mJ/{example}", of_summary=field("energy_mj_per_example"),
           help="Energy for one example", json="energy.mj_per_example", section="Energy", detail=_energy_detail,
           better="lower", headline=True, brief=True,
           list_column=ListColumn(order="energy", sql="energy_mj_per_example", widest="1,000")),
    Metric(key="energy_per_step", label="Energy per step", unit="mJ", better="lower", section="Energy",
           of_summary=energy_mj_per_step, help="Energy for one step", json="energy.mj_per_step"),
    Metric(key="energy_error", label="Energy error", unit="%", of_summary=field("energy_error_pct"), better="lower",
           help="Bound of the energy's error", json="energy.error_pct", section="Energy", format=_error),
    Metric(key="device_memory", label="Peak memory", unit="bytes", of_summary=field("device_peak_bytes"),
           help="Highest memory use seen on one device of the run", json="memory.device_peak_bytes", format=_byte_size,
           fold="highest", better="lower", section="Memory, highest", brief=True, compared=True),
    Metric(key="allocator_memory", label="Framework's allocator", title="Allocated", unit="bytes",
           of_summary=field("allocator_peak_bytes"), json="memory.allocator_peak_bytes", format=_byte_size,
           help="Highest memory that the framework's allocator handed out on one device",
           fold="highest", better="lower", section="Memory, highest", compared=True),
    Metric(key="operations", label="Operations per step", unit="billion", of_summary=field("flops_per_step"),
           unit_size=1e9, help="Floating-point operations of one step, by formula", json="flops.per_step"),
    Metric(key="utilisation", label="MFU", unit="%", of_summary=_utilisation_pct, format=_fixed(1),
           help="Model FLOP utilization: operations by formula, as a share of the measured peak",
           json="utilisation_pct", detail=_utilisation_detail, better="higher", brief=True, compared=True),
    Metric(key="gflops", label="Computed", title="GFLOPS", unit="GFLOPS", of_summary=flops_per_s,
           help="Billion floating-point operations per second, those of a step by formula", json="flops.per_s",
           unit_size=1e9, alone=units.flops, detail=_operations_detail, better="higher", headline=True, brief=True,
           compared=True),
    Metric(key="peak_gflops", label="Measured peak", unit="GFLOPS", of_summary=field("peak_flops_per_s"),
           unit_size=1e9, alone=units.flops, help="Rate of a large matrix product on the run's devices together",
           json="flops.peak_per_s"),
    Metric(key="compile", label="Compile", unit="s", of_summary=field("compile_s"), json="compile_s", better="lower",
           alone=units.seconds, help="Time of the compile phase, never part of the throughput", brief=True,
           compared=True),
    Metric(key="temperature", label="Hottest", unit="°C", of_run=peak_temperature_c, reads=("temperature_c",),
           format=units.with_unit, help="Highest temperature of a GPU of the run while measuring", json="temperature_c",
           fold="highest", better="lower", compared=True),
    Metric(key="throttled", label="Throttled", unit="s", of_run=_throttled_s, reads=THROTTLE_FIELDS,
           json="throttled_s", fold="highest",
           help="Time of the measured part in which a GPU was throttled", better="lower", compared=True),
    Metric(key="training", label="Training", unit="s", of_run=_training_s, json="training_s", better="lower",
           help="Time of all epochs, without testing", compared=True),
    Metric(key="accuracy", label="Accuracy", unit="%", of_run=_accuracy_pct, format=_fixed(2), json="accuracy_pct",
           help="Accuracy after the last epoch", better="higher", headline=True, compared=True),
    *(Metric(key=f"to_{goal}", label=f"Training to {units.percent(goal)}", title=f"To {units.percent(goal)}", unit="s",
             of_run=_seconds_to(goal), help=f"Time of all epochs to the first with {units.percent(goal)} accuracy",
             json=f"training_to_{goal}_s", better="lower", compared=True) for goal in ACCURACY_GOALS_PCT),
    Metric(key="loss_first", label="First loss", unit="", of_summary=field("loss_first"), format=_number,
           help="Loss of the first block", json="loss.first", brief=True),
    Metric(key="loss_last", label="Last loss", unit="", of_summary=field("loss_last"), format=_number,
           help="Loss of the last block", json="loss.last", better="lower", brief=True),
    Metric(key="duration", label="Duration", unit="", of_row=_duration_s, format=_duration, json="duration_s",
           help="From the start of the run to its end", section="Run",
           detail=lambda row: units.with_unit(_duration_s(row) or 0, "s", 1),
           list_column=ListColumn(order="duration", sql="ended_utc_ns - started_utc_ns", widest="10:00:00",
                                  is_default=False)),
    Metric(key="sample_rate", label="Readings", unit="per second", of_summary=field("sample_hz"), format=_fixed(1),
           help="Readings of telemetry per second", json="telemetry.sample_hz", section="Telemetry"),
    Metric(key="jitter_p50", label="Jitter p50", unit="ms", of_summary=field("sample_jitter_ms_p50"),
           help="Half of the readings were this near to their time", json="telemetry.jitter_ms.p50",
           section="Telemetry"),
    Metric(key="jitter_p99", label="Jitter p99", unit="ms", of_summary=field("sample_jitter_ms_p99"),
           help="99 of 100 readings were this near to their time", json="telemetry.jitter_ms.p99",
           section="Telemetry"),
    Metric(key="missed", label="Readings missed", unit="", of_summary=field("samples_missed"),
           format=lambda value, _unit: units.ABSENT if value is None else f"{value:,.0f}",
           help="Readings that were due but missing or empty", json="telemetry.missed", section="Telemetry"),
    Metric(key="implausible", label="Implausible values", unit="", format=_count,
           of_run=lambda run: sum(sum(columns.device.implausible.values()) for columns in run.samples),
           help="Implausible values, which were left out", json="telemetry.implausible", section="Telemetry"),
    Metric(key="sampler_cpu", label="Sampler's CPU", unit="%", of_summary=field("sampler_cpu_pct"), format=_fixed(2),
           help="Processor time of the sampler, of one processor", json="telemetry.sampler_cpu_pct",
           section="Telemetry"),
)
# fmt: on

METRIC_BY_KEY: Mapping[str, Metric] = {metric.key: metric for metric in METRICS}
