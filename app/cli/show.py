"""`show`: one stored run with its metrics, evidence, phases and environment."""

import sys
from pathlib import Path

import click

from app.cli.options import command, run_argument
from app.cli.services import open_store
from app.cli.terminal import elide_name, print_json, print_table, unfiltered
from app.errors import UserError
from app.metrics import METRICS
from app.report.documents import run_document
from app.storage import retention
from app.values import units
from app.values.environment_keys import CUSTOM_SOURCE_KEY, CUSTOM_TEXT_KEYS
from app.values.records import StoredRun
from app.viewmodels.compare.warnings import machine_warnings
from app.viewmodels.format import cells, derived
from app.viewmodels.format.naming import parameter_label, short_name, value_text
from app.viewmodels.history.evidence import Badge, EvidenceView, stored_evidence_view
from app.viewmodels.history.kernel_time import DEVICE_COLUMNS, KernelRow
from workloads.catalog import own_variant

_BAR = 20


def badge_line(badge: Badge) -> str:
    """Return the badge in one line: `✔ Verified: cuDNN · XLA off · 1 GPU`."""
    return f"{badge.symbol} {badge.title}: {badge.detail}".strip()


def print_evidence(view: EvidenceView) -> None:
    """Print all evidence; if there is only the badge, the badge."""
    if not view.aspects:
        print(f"  {badge_line(view.badge)}")
    else:
        aspects = [(f"  {aspect.name}", aspect.requested, aspect.actual, aspect.symbol) for aspect in view.aspects]
        print_table(("  evidence", "requested", "actual", ""), aspects)
    if view.warning:
        print(f"  ▲ {view.warning}")
    for line in (view.sources, *view.notes, *view.equality):
        if line:
            print(f"  {line}")
    if view.kernels:
        print()
        _print_kernels(view)
    if view.devices:
        print()
        header = ("  device, a step", *(word.lower() for word in DEVICE_COLUMNS[1:]))
        device_rows = [(f"  {device}", *figures) for device, *figures in view.devices]
        print_table(header, device_rows, right=frozenset(range(1, len(DEVICE_COLUMNS))))
        print(f"  {view.imbalance}")
    if view.portability:
        print()
        rows = [(f"  {where}", *figures) for where, *figures in view.portability]
        print_table(("  the weights elsewhere", "largest difference", ""), rows)


def _print_kernels(view: EvidenceView) -> None:
    idle = f"In {view.idle_share} of the measured step no kernel runs." if view.idle_share else ""
    print(f"  {view.traced} {idle}".rstrip())
    shares = ", ".join(f"{kind.name} {units.percent(100 * kind.share, 1)}" for kind in view.classes)
    print(f"  Of {view.noun} time: {shares}")
    print()
    rows = [_kernel_row(kernel, view.kernels[0].share) for kernel in view.kernels]
    header: tuple[str, ...] = ("   share", "", "count", "class", view.noun)
    if any(kernel.occupancy for kernel in view.kernels):
        header = (*header[:3], "occupancy", *header[3:])
        rows = [(*row[:3], kernel.occupancy, *row[3:]) for row, kernel in zip(rows, view.kernels, strict=True)]
    print_table(header, rows, right=frozenset(range(2, len(header) - 2)))
    if view.other_kernels:
        print(f"  {view.other_kernels}")
    if view.has_step:
        print("  `export --format trace` writes when each kernel of a step ran, on which stream.")


def _kernel_row(kernel: KernelRow, largest: float) -> tuple[str, ...]:
    bar = "█" * round(_BAR * kernel.share / largest) if largest else ""
    return (
        f"  {units.percent(100 * kernel.share, 1):>7}",
        bar,
        f"{kernel.count:,}",
        kernel.kind,
        elide_name(kernel.name),
    )


_NUMBERS = frozenset(range(1, len(derived.EPOCH_COLUMNS)))


@command("show", "show 12", "show 12 --json")
@run_argument
@click.option("--log", is_flag=True, help="Print its log too.")
@click.option("--source", is_flag=True, help="Print the file of a custom workload, and your modules that it imported.")
def show(database: Path | None, as_json: bool, run: int, log: bool, source: bool) -> int:
    """Print one run."""
    with open_store(database) as store:
        stored = store.load(run)
        pruned_utc_ns, rates = retention.pruned_utc_ns(store.path, run), derived.load_energy_rates(store.path)
    if source:
        return _print_source(stored, as_json=as_json)
    if as_json:
        print_json(run_document(stored, pruned_utc_ns=pruned_utc_ns))
        return 0
    print_run(stored)
    for name, text in derived.energy_costs(stored.row, rates):
        print(f"{name}: {text}")
    if note := derived.pruned_note(pruned_utc_ns):
        print(note)
    print()
    print_evidence(stored_evidence_view(stored))
    print()
    _print_details(stored)
    if log:
        print()
        print("\n".join(line.text for line in stored.log))
    return 0


def _print_source(stored: StoredRun, *, as_json: bool) -> int:
    if CUSTOM_SOURCE_KEY not in stored.environment:
        raise UserError(f"Run {stored.row.run} is of {stored.row.spec.workload}, which is not a file of yours.")
    texts = {key: stored.environment[key] for key in CUSTOM_TEXT_KEYS if key in stored.environment}
    if as_json:
        print_json({"run": stored.row.run, **texts})
    else:
        # A file gets the text literally; on a terminal it must not control it.
        print(*texts.values(), sep="", end="", file=sys.stdout if sys.stdout.isatty() else unfiltered(sys.stdout))
    return 0


def print_run(stored: StoredRun) -> None:
    _print_head(stored)
    losses = derived.describe_losses(derived.device_losses(stored))
    machine_notes = (warning.sentence for warning in machine_warnings(stored))
    for note in filter(None, (losses, derived.implausible_note(stored), *machine_notes)):
        print(note)
    summary = stored.row.summary
    if summary.throughput is None:
        return
    rate = units.rate(summary.throughput, cells.example_word(stored.row.spec, stored.row.summary))
    print(f"{rate}, {summary.measured_steps:,} steps in {units.with_unit(summary.measured_s, 's', 1)}")
    total = units.byte_size(derived.memory_total_bytes(stored))
    print_table(
        ("", "", ""), [*_metric_lines(stored), *([("  memory of the GPU", total, "")] if total != units.ABSENT else [])]
    )
    saved = f"Weights: {words[0].lower()}{words[1:]}" if (words := derived.describe_weights(stored)) else ""
    for words in filter(None, (derived.describe_epochs(stored), saved, derived.memory_note(stored))):
        print(words)


def _print_head(stored: StoredRun) -> None:
    row = stored.row
    outcome = cells.OUTCOMES[row.outcome.name if row.outcome else "running"].word
    print(f"run {row.run}  {short_name(row.spec)}{f' · on {row.host}' if row.host else ''}")
    if row.purpose:
        print(units.sentence(row.purpose))
    if row.tags:
        print(f"tags: {', '.join(row.tags)}")
    if row.note:
        print(f"note: {row.note}")
    if row.deleted_utc_ns is not None:
        print(f"in the trash since {units.local_time(row.deleted_utc_ns)}")
    print(f"{outcome}{'. ' + row.outcome.reason if row.outcome and row.outcome.reason else ''}")
    if stored.evidence is not None:
        print(badge_line(stored_evidence_view(stored).badge))


def _metric_lines(stored: StoredRun, *, of_telemetry: bool = False) -> list[tuple[str, str, str]]:
    """Return the run's metrics, each with its explanation, or only those of its telemetry."""
    example = cells.example_word(stored.row.spec, stored.row.summary)
    texts = [
        (metric, metric.figure(metric.value(stored), example))
        for metric in METRICS
        if (metric.section == "Telemetry") == of_telemetry
    ]
    return [
        (f"  {metric.name}", text, metric.detail(stored.row) if metric.detail else "")
        for metric, text in texts
        if text != units.ABSENT
    ]


def _print_details(stored: StoredRun) -> None:
    (_, *titles), phases = derived.phase_table(stored)
    print_table(("  phase", *titles), [(f"  {name}", *cells) for name, *cells in phases], right=frozenset({1, 2, 3}))
    print()
    if passes := derived.epoch_rows(stored):
        print_table(("  epoch", *derived.EPOCH_COLUMNS[1:]), [(f"  {n}", *rest) for n, *rest in passes], right=_NUMBERS)
        print()
    if audit := _metric_lines(stored, of_telemetry=True):
        print_table(("", "", ""), audit)
        print()
    spec = stored.row.spec
    print_table(
        ("", ""), [(f"  {parameter_label(spec, name)}", value_text(value)) for name, value in own_variant(spec).items()]
    )
    print_table(
        ("", ""),
        [(f"  {key}", value) for key, value in sorted(stored.environment.items()) if key not in CUSTOM_TEXT_KEYS],
    )
    if stored.row.outcome and stored.row.outcome.detail:
        print(f"\n{stored.row.outcome.detail}")
