"""`list` and `show`: what the database holds."""

from argparse import Namespace

from app.cli.services import opened_store
from app.cli.terminal import print_json, print_table
from app.records import RunRow, StoredRun
from app.report.comparison import example_of
from app.report.documents import list_document, run_document
from app.viewmodels import units
from app.viewmodels.naming import parameter_label, short_name, value_text


def list_runs(chosen: Namespace) -> int:
    """Prints all runs, newest first."""
    with opened_store(chosen.db) as store:
        rows = store.list_runs()
    if chosen.json:
        print_json(list_document(rows))
    elif not rows:
        print("No runs yet. `python -m app run lstm` makes the first one.")
    else:
        header = ("run", "started", "variant", "outcome", "throughput")
        print_table(header, [_list_row(row) for row in rows], right=frozenset({0, 4}))
    return 0


def _list_row(row: RunRow) -> tuple[str, ...]:
    outcome = row.outcome.name if row.outcome else "running"
    throughput = units.rate(row.summary.throughput, example_of(row))
    return (str(row.run), units.utc_time(row.started_utc_ns), short_name(row.spec), outcome, throughput)


def show(chosen: Namespace) -> int:
    """Prints one run."""
    with opened_store(chosen.db) as store:
        stored = store.load(chosen.run)
    if chosen.json:
        print_json(run_document(stored))
        return 0
    print_run(stored)
    print()
    _print_facts(stored)
    if chosen.log:
        print()
        print("\n".join(line.text for line in stored.log))
    return 0


def print_run(stored: StoredRun) -> None:
    """Prints a run's result in a few lines."""
    row, summary = stored.row, stored.row.summary
    example = example_of(row)
    outcome = row.outcome.name.replace("_", " ") if row.outcome else "running"
    print(f"run {row.run}  {short_name(row.spec)}")
    print(f"{outcome}{'. ' + row.outcome.reason if row.outcome and row.outcome.reason else ''}")
    if summary.throughput is None:
        return
    measured = f"{summary.measured_steps:,} steps in {units.with_unit(summary.measured_s, 's', 1)}"
    print(f"{units.rate(summary.throughput, example)}, {measured}")
    figures = [
        ("step", f"{units.milliseconds(summary.step_ms_p50)} p50, {units.milliseconds(summary.step_ms_p99)} p99"),
        ("compile", units.with_unit(summary.compile_s, "s", 1)),
        ("loss", f"{units.number(summary.loss_first)} to {units.number(summary.loss_last)}"),
        ("mean power", units.watts(summary.mean_power_mw)),
        ("energy", _energy(summary.energy_mj_per_example, example)),
        ("peak memory", units.byte_size(summary.device_peak_bytes)),
        ("TensorFlow's peak", units.byte_size(summary.allocator_peak_bytes)),
    ]
    print_table(("", ""), [(f"  {name}", text) for name, text in figures if not text.startswith(units.ABSENT)])


def _energy(mj_per_example: float | None, example: str) -> str:
    return units.ABSENT if mj_per_example is None else f"{units.number(mj_per_example)} mJ a {example}"


def _print_facts(stored: StoredRun) -> None:
    zero_ns = stored.anchor_t_ns
    for phase in stored.phases:
        seconds = units.ABSENT if phase.end_ns is None else f"{(phase.end_ns - phase.start_ns) / 1e9:.2f} s"
        print(f"  {phase.name:10s} at {(phase.start_ns - zero_ns) / 1e9:7.2f} s for {seconds}")
    print()
    spec = stored.row.spec
    print_table(
        ("", ""), [(f"  {parameter_label(spec, name)}", value_text(value)) for name, value in spec.variant.items()]
    )
    print_table(("", ""), [(f"  {key}", value) for key, value in sorted(stored.environment.items())])
    if stored.row.outcome and stored.row.outcome.detail:
        print(f"\n{stored.row.outcome.detail}")
