"""`show`: one stored run."""

from argparse import Namespace

from app.cli.evidence import badge_line, print_evidence
from app.cli.services import opened_store
from app.cli.terminal import print_json, print_table
from app.errors import UserError
from app.facts import OWN_SOURCE
from app.records import StoredRun, Summary
from app.report.documents import run_document
from app.storage import retention
from app.viewmodels import cells, epochs, flops, run_facts, units
from app.viewmodels.evidence import of_stored
from app.viewmodels.naming import parameter_label, short_name, value_text

_NUMBERS = frozenset(range(1, len(epochs.HEADER)))


def show(chosen: Namespace) -> int:
    """Prints one run."""
    with opened_store(chosen.db) as store:
        stored = store.load(chosen.run)
        pruned_utc_ns = retention.pruned_utc_ns(store.path, chosen.run)
    if chosen.source:
        return _print_source(stored, as_json=chosen.json)
    if chosen.json:
        print_json(run_document(stored, pruned_utc_ns=pruned_utc_ns))
        return 0
    print_run(stored)
    if note := run_facts.pruned_note(pruned_utc_ns):
        print(note)
    print()
    print_evidence(of_stored(stored))
    print()
    _print_facts(stored)
    if chosen.log:
        print()
        print("\n".join(line.text for line in stored.log))
    return 0


def _print_source(stored: StoredRun, *, as_json: bool) -> int:
    if OWN_SOURCE not in stored.environment:
        raise UserError(f"Run {stored.row.run} is of {stored.row.spec.workload}, and no file of yours.")
    text = stored.environment[OWN_SOURCE]
    if as_json:
        print_json({"run": stored.row.run, OWN_SOURCE: text})
    else:
        print(text, end="")
    return 0


def print_run(stored: StoredRun) -> None:
    """Prints a run's result in a few lines."""
    _print_head(stored)
    summary = stored.row.summary
    if summary.throughput is None:
        return
    example = cells.example_word(stored.row.spec)
    measured = f"{summary.measured_steps:,} steps in {units.with_unit(summary.measured_s, 's', 1)}"
    print(f"{units.rate(summary.throughput, example)}, {measured} ({cells.blocks_words(summary)})")
    figures = [(f"  {name}", text) for name, text in _figures(stored, example) if not text.startswith(units.ABSENT)]
    print_table(("", ""), figures)
    for words in filter(None, (epochs.total_words(stored), run_facts.memory_note(stored))):
        print(words)


def _print_head(stored: StoredRun) -> None:
    """What the run is, what its user says of it, how it ended and what really ran."""
    row = stored.row
    outcome = cells.OUTCOMES[row.outcome.name if row.outcome else "running"].word
    print(f"run {row.run}  {short_name(row.spec)}")
    if row.purpose:
        print(units.sentence(row.purpose))
    if row.tags:
        print(f"tags: {', '.join(row.tags)}")
    if row.note:
        print(f"note: {row.note}")
    if row.deleted_utc_ns is not None:
        print(f"in the trash since {units.utc_time(row.deleted_utc_ns)}")
    print(f"{outcome}{'. ' + row.outcome.reason if row.outcome and row.outcome.reason else ''}")
    if stored.evidence is not None:
        print(badge_line(of_stored(stored).badge))


def _figures(stored: StoredRun, example: str) -> tuple[tuple[str, str], ...]:
    """The figures of a measured run by name, each with its unit, absent ones too; `example` is what a batch holds."""
    summary = stored.row.summary
    return (
        ("step", f"{units.milliseconds(summary.step_ms_p50)} p50, {units.milliseconds(summary.step_ms_p99)} p99"),
        ("compile", units.with_unit(summary.compile_s, "s", 1)),
        ("loss", f"{units.number(summary.loss_first)} to {units.number(summary.loss_last)}"),
        ("waiting for data", units.percent(summary.waiting_pct, 1)),
        ("computed", _computed(summary)),
        ("mean power", units.watts(summary.mean_power_mw)),
        ("energy", _energy(summary, example)),
        ("peak memory", units.bytes_of(summary.device_peak_bytes, run_facts.memory_total_bytes(stored))),
        ("TensorFlow's peak", units.byte_size(summary.allocator_peak_bytes)),
    )


def _computed(summary: Summary) -> str:
    """Operations a second by formula, and what share of the measured peak that is."""
    share = flops.utilisation_pct(summary)
    known = (units.gflops(flops.flops_per_s(summary)), f"{units.percent(share, 1)} of the measured peak")
    doubt = flops.peak_doubt(summary)
    return ", ".join(known if share is not None else known[:1]) + (f" ({doubt})" if doubt else "")


def _energy(summary: Summary, example: str) -> str:
    """Energy an example and a step, its source, and the bound of its error."""
    if summary.energy_mj_per_example is None:
        return units.ABSENT
    words = [f"{units.number(summary.energy_mj_per_example)} mJ/{example}"]
    if per_step := run_facts.energy_mj_per_step(summary):
        words.append(f"{units.number(per_step)} mJ/step")
    known = (*words, summary.energy_source or "", run_facts.energy_error_words(summary))
    return ", ".join(word for word in known if word)


def _print_facts(stored: StoredRun) -> None:
    header = ("  phase", "s", "W", "J", "")
    rows = [(f"  {name}", *cells) for name, *cells in map(run_facts.phase_cells, run_facts.phase_energies(stored))]
    print_table(header, rows, right=frozenset({1, 2, 3}))
    print()
    if passes := epochs.cells(stored):
        print_table(("  epoch", *epochs.HEADER[1:]), [(f"  {n}", *rest) for n, *rest in passes], right=_NUMBERS)
        print()
    audit = run_facts.audit_rows(stored.row.summary)
    if audit:
        print_table(("", ""), [(f"  {name}", text) for name, text in audit])
        print()
    spec = stored.row.spec
    print_table(
        ("", ""), [(f"  {parameter_label(spec, name)}", value_text(value)) for name, value in spec.variant.items()]
    )
    print_table(
        ("", ""), [(f"  {key}", value) for key, value in sorted(stored.environment.items()) if key != OWN_SOURCE]
    )
    if stored.row.outcome and stored.row.outcome.detail:
        print(f"\n{stored.row.outcome.detail}")
