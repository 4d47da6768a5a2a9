"""`compare`: stored runs compared, their scaling, and the differences of two runs."""

import os
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click

from app.analysis.verdict import default_baseline, throughputs
from app.cli.commands import RareOption
from app.cli.library import run_query
from app.cli.options import (
    FILE,
    RUN_NUMBER,
    Number,
    RunFilter,
    command,
    complete_runs,
    filter_options,
    given_parameters,
    option_group,
    option_name,
    report_option,
    runs_argument,
)
from app.cli.services import open_store
from app.cli.terminal import elide_name, print_json, print_table, print_text, say
from app.errors import UserError, write_error
from app.paths import PROGRAM
from app.report.comparison import compare_document
from app.report.documents import combined_state, diff_document, diff_table
from app.report.gate import Gate, judge_gate
from app.report.render import (
    MARKUPS,
    Markup,
    check_file,
    check_suffix,
    gate_markdown,
    render_diff,
    render_scaling,
    render_table,
    write_page,
    write_report,
)
from app.report.scaling import efficiency_headline, scaling_document
from app.runs.experiment.presets import preset_names, publications
from app.storage.library import Library
from app.values import units
from app.values.records import RunRow, StoredRun
from app.viewmodels.charts.palette import MAX_COMPARED
from app.viewmodels.compare.arrangement import text_table
from app.viewmodels.compare.comparison import Comparison, prepare_comparison
from app.viewmodels.compare.comparison import compare as compare_runs
from app.viewmodels.compare.pivot import Pivot, make_pivot, make_pivots, pivot_table
from app.viewmodels.compare.scaling import NO_SCALING_PAIRS, scaling_mismatches, scaling_views
from app.viewmodels.compare.statements import EVIDENCE, Statement
from app.viewmodels.compare.table import COMPARED, VARIANT
from app.viewmodels.compare.verdict import effects_table
from app.viewmodels.compare.warnings import EARLIER_RUNS
from app.viewmodels.compare.why import CAVEAT, WhyView
from app.viewmodels.format import cells
from app.viewmodels.format.cells import VERIFICATIONS, TextTable
from app.viewmodels.format.ratios import CI
from app.viewmodels.history.run_diff import RunDiff, run_diff, text_line
from workloads.catalog import UsageError

STEP_SUMMARY = "GITHUB_STEP_SUMMARY"
"""The variable in which GitHub Actions provides the file for a step's summary."""

_MARGIN = Number(0, 100, "%", is_open=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class GateOptions:
    """The margin of equivalence in percent, and what a gate writes."""

    margin: float | None = None
    fail_if_slower: float | None = None
    summary: Path | None = None

    @property
    def margin_pct(self) -> float | None:
        return self.fail_if_slower or self.margin

    def __post_init__(self) -> None:
        """Raise `UsageError` for wrong use."""
        if self.margin is not None and self.fail_if_slower is not None:
            raise UsageError("--fail-if-slower already sets a margin: leave out --margin.")
        if self.summary is not None:
            if self.fail_if_slower is None:
                raise UsageError("--summary goes with --fail-if-slower.")
            check_file(self.summary, "--summary")


gate_options = option_group(
    "gate",
    GateOptions,
    click.option(
        "--margin",
        cls=RareOption,
        type=_MARGIN,
        metavar="SHARE",
        help="Report whether variants are equal within SHARE, such as 2%.",
    ),
    click.option(
        "--fail-if-slower",
        type=_MARGIN,
        metavar="SHARE",
        help="Exit 3 if a variant is slower than the baseline by more than SHARE, 4 if that is undecided.",
    ),
    click.option(
        "--summary",
        cls=RareOption,
        type=FILE,
        metavar="FILE",
        help="With --fail-if-slower: write the outcome as Markdown.",
    ),
)


def report_gate(gate: Gate, options: GateOptions) -> int:
    """Print the outcome, write the summaries, and return the exit status.

    Raises:
        UserError: A summary cannot be written.
    """
    say(gate.sentence)
    text = gate_markdown(gate)
    if options.summary is not None:
        _write(options.summary, text, "w")
    if step := os.environ.get(STEP_SUMMARY):
        _write(Path(step), text, "a")
    return gate.exit_status


def _write(path: Path, text: str, mode: str) -> None:
    try:
        with path.open(mode, encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise write_error(path, error) from error


_OF_VERDICTS = frozenset(
    ("baseline", "asked", "why", "pivot", "rows", "columns", "markup", "margin", "fail_if_slower", "summary")
)
"""Options that neither --diff nor --scaling takes."""
_NAMED = 12
"""The most runs that a suggested command lists."""


@command(
    "compare",
    "compare 1 2 --why",
    "compare --tag paper --report paper.html",
    "compare --diff 12 14",
)
@runs_argument(required=False)
@filter_options
@click.option(
    "--baseline",
    type=RUN_NUMBER,
    metavar="RUN",
    shell_complete=complete_runs,
    help="The run others are compared with (default: one of the first variant with several steady runs).",
)
@click.option(
    "--asked", metavar="SETTING", default="", help="The setting that the answer is about (default: the experiment's)."
)
@click.option(
    "--why", is_flag=True, help="Show which part of a step causes the difference: idle time, kernels by class."
)
@click.option("--diff", is_flag=True, help="Show what differs between two runs: figures, settings, kernels, log.")
@click.option("--all", "everything", is_flag=True, help="With --diff: show equal values as well.")
@click.option("--scaling", is_flag=True, help="Show how well the runs scale to more GPUs, and what limits them.")
@click.option(
    "--pivot",
    metavar="SETTING",
    default="",
    help="Ask about a setting, such as layout, and show its effect at each value of two others.",
)
@click.option(
    "--rows", metavar="NAME", default="", help="With --pivot: the setting of its rows (default: that with most values)."
)
@click.option("--columns", metavar="NAME", default="", help="With --pivot: the setting of its columns.")
@click.option(
    "--format",
    "markup",
    type=click.Choice(MARKUPS),
    help="Print only the tables, for a paper or a page (LaTeX: \\usepackage{booktabs}).",
)
@report_option
@gate_options
def compare(
    database: Path | None,
    as_json: bool,
    markup: Markup | None,
    runs: Sequence[int],
    baseline: int | None,
    asked: str,
    why: bool,
    diff: bool,
    everything: bool,
    scaling: bool,
    pivot: str,
    rows: str,
    columns: str,
    report: Path | None,
    run_filter: RunFilter,
    gate: GateOptions,
) -> int:
    """Print the comparison, and write a report of it where one is requested; return 0, or the status of a gate."""
    if report is not None:
        check_suffix(report)
    if not pivot and (rows or columns):
        raise UsageError("--rows and --columns go with --pivot.")
    if pivot and asked:
        raise UsageError("--pivot names the setting asked about: leave out --asked.")
    if everything and not diff:
        raise UsageError("--all goes with --diff.")
    if diff and scaling:
        raise UsageError("compare takes one of --diff and --scaling.")
    if (diff or scaling) and (extra := given_parameters(click.get_current_context()) & _OF_VERDICTS):
        named = ", ".join(sorted(map(option_name, extra)))
        raise UsageError(f"{'--diff' if diff else '--scaling'} answers another question: leave out {named}.")
    if markup and as_json:
        raise UsageError("compare takes one of --json and --format.")
    requested = list(dict.fromkeys(runs))
    if not run_filter.is_search:
        _check_runs(requested, baseline)
    elif requested:
        raise UsageError("compare takes runs by number or by what finds them (--search, --tag …), not both.")
    with open_store(database) as store:
        numbers = requested or _search_runs(run_filter, baseline, store.library)
        stored = [store.load(number) for number in numbers]
        if diff:
            return _print_diff(stored, report, as_json=as_json, everything=everything)
        if scaling:
            return _print_scaling(stored, report, as_json=as_json)
        stored_rows = [run.row for run in stored]
        question = store.library.question_of(stored_rows)
        baseline = baseline or question.baseline or default_baseline(stored_rows)
        older = [store.load(number, ()) for number in store.library.earlier_runs(baseline, numbers, EARLIER_RUNS)]
    compared_runs = prepare_comparison(stored, asked=asked or pivot or question.asked)
    comparison = compare_runs(compared_runs, baseline, older, gate.margin_pct)
    if asked not in ("", comparison.verdict.asked):
        settings = [effect.parameter for effect in comparison.verdict.effects] or [comparison.verdict.asked]
        others = f" Ask about {', '.join(dict.fromkeys(settings))}." if any(settings) else ""
        raise UsageError(f"No two of these variants differ in {asked} alone.{others}")
    published = publications([row.spec for row in comparison.rows], preset_names())
    chosen = [make_pivot(comparison, pivot, rows, columns, published)] if pivot else make_pivots(comparison, published)
    pivots = [one for one in chosen if one]
    if report is not None:
        write_report(report, comparison, time.time_ns(), pivots)
        say(f"Written to {report}.")
    judged = judge_gate(comparison, gate.fail_if_slower) if gate.fail_if_slower else None
    if as_json:
        print_json({**compare_document(comparison, pivots), **({"gate": judged.document()} if judged else {})})
    elif markup:
        tables = [variants_table(comparison), *map(pivot_table, pivots if pivot else ())]
        print("\n".join(render_table(table, markup) for table in tables), end="")
    else:
        print_comparison(comparison, database)
        if pivot:
            print_pivots(pivots)
        if why:
            print_why(comparison.why)
    return report_gate(judged, gate) if judged else 0


def _search_runs(run_filter: RunFilter, baseline: int | None, library: Library) -> list[int]:
    """Return the matching runs, oldest first; raises `UsageError` if they cannot be compared."""
    numbers = library.find(run_query(replace(run_filter, sort="run", reverse=True), library))
    if len(numbers) < 2:
        count_text = "one run" if numbers else "no run"
        raise UsageError(f"compare takes two runs or more; the search found {count_text}.")
    _check_runs(numbers, baseline)
    return numbers


def _check_runs(numbers: Sequence[int], baseline: int | None) -> None:
    """Raise `UsageError` for runs that cannot be compared."""
    if len(numbers) < 2:
        raise UsageError(f"compare takes two runs or more; `{PROGRAM} list` shows their numbers.")
    if len(numbers) > MAX_COMPARED:
        raise UsageError(f"compare takes at most {MAX_COMPARED} runs; these are {len(numbers):,}.")
    if baseline is not None and baseline not in numbers:
        raise UsageError(f"The baseline, run {baseline}, is not among the runs compared.")


def print_comparison(comparison: Comparison, database: Path | None = None) -> None:
    """Print a comparison: the verdict, a table, why runs failed, and every warning.

    `database` is the user's path, for suggested commands.
    """
    print_text(comparison.verdict.text)
    print()
    if comparison.alike:
        print_text(comparison.alike)
    table = variants_table(comparison)
    print_table(table.head, table.rows, right=table.numeric)
    if effects := comparison.verdict.effects:
        print()
        table = effects_table(effects)
        print_text(table.caption)
        print_table(table.head, table.rows, right=table.numeric)
    # The verdict already covers runs that did not run as requested.
    warnings = [warning for warning in comparison.warnings if warning.key != EVIDENCE]
    lines = [
        *(note.sentence for note in comparison.notes if note.key in ("baseline", "accuracy")),
        *[
            f"{'Note' if warning.severity == 'note' else 'Warning'}: {warning.sentence}{_remedy(warning, database)}"
            for warning in warnings
        ],
    ]
    if comparison.scaling:
        numbers = [str(row.run) for row in comparison.rows]
        named = " ".join(numbers) if len(numbers) <= _NAMED else "RUN RUN ..."
        lines.append(f"Scaling to more GPUs, and what limits it: `{PROGRAM} compare --scaling {named}`")
    if lines:
        print()
    for line in lines:
        print_text(line)


def print_pivots(pivots: Sequence[Pivot]) -> None:
    """Print the effects of settings by two others, with published figures."""
    for pivot in pivots:
        table = pivot_table(pivot)
        print()
        print_text(table.caption)
        print_table(table.head, table.rows, right=table.numeric)
    for source in dict.fromkeys(source for pivot in pivots for source in pivot.sources):
        print_text(source)


def print_why(views: Sequence[WhyView]) -> None:
    """Print why each variant differs from the baseline: a sentence, a table of a step's parts, and what-ifs."""
    for view in views:
        print()
        if len(views) > 1:
            print_text(f"{view.name} against {view.baseline}")
        print_text(view.sentence)
        for note in view.notes:
            print_text(f"Note: {note.sentence}")
        if view.rows:
            print()
            rows = [(f"  {elide_name(row.label)}" if row.is_detail else row.label, *row.cells) for row in view.rows]
            print_table(("", *view.head), rows, right=frozenset(range(1, len(view.head) + 1)))
        if view.gains:
            print()
            print("What if:")
            for gain in view.gains:
                print_text(f"  {gain.sentence}")
            print_text(CAVEAT)
    if not views:
        print()
        print_text("Why takes two variants; these runs are of one.")


def variants_table(comparison: Comparison) -> TextTable:
    """Return the table of the variants, without columns in which all runs agree."""
    table = comparison.table
    column_of = {key: number for number, key in enumerate(table.keys)}
    example = table.columns[column_of["energy"]].title.removeprefix("mJ/")
    figures = (units.rate_unit(example), CI, "speed-up", CI, f"mJ/{example}", "energy ratio")
    metrics = [metric for metric in COMPARED if metric.in_terminal and metric.key not in table.folded]
    last = [column for column in ("host", "outcome", "evidence") if column not in table.folded]
    summaries = [variant.summary for variant in table.variants]
    text_rows = text_table(table, summaries, [column_of[key] for key in (VARIANT, "throughput", "speedup")]).rows
    rows = tuple(
        (
            name,
            str(len(throughputs(variant.result.runs))),
            *texts,
            *(row.cells[column_of[key]].text for key in ("energy", "energy_ratio")),
            *(cells.plain_text(row.cells[column_of[metric.key]]) for metric in metrics),
            *(_words(column, variant.result.runs) for column in last),
        )
        for variant, row, (name, *texts) in zip(comparison.variants, summaries, text_rows, strict=True)
    )
    head = ("variant", "runs", *figures, *(metric.name for metric in metrics), *last)
    return TextTable(head=head, rows=rows, numeric=frozenset(range(1, 2 + len(figures) + len(metrics))))


def _words(column: str, runs: Sequence[RunRow]) -> str:
    if column == "evidence":
        return VERIFICATIONS[state].symbol if (state := combined_state(runs)) else ""
    words = (row.host or cells.THIS_MACHINE if column == "host" else cells.outcome(row.outcome).text for row in runs)
    return ", ".join(dict.fromkeys(words))


def _remedy(warning: Statement, database: Path | None) -> str:
    """Return the command that measures the variants interleaved; "" if that is no remedy."""
    if not (interleave := warning.facts.get("interleave")):
        return ""
    words = [*PROGRAM.split(), "experiment", "--variants-of", ",".join(map(str, interleave))]
    words += ["--db", str(database)] if database is not None else []
    return f" Measure them interleaved: `{shlex.join(words)}`"


def _print_scaling(runs: Sequence[StoredRun], report: Path | None, *, as_json: bool) -> int:
    """Print every pair of runs that differ in GPUs, and write a report if requested."""
    views = scaling_views(runs)
    if not views:
        raise UserError(NO_SCALING_PAIRS)
    if report is not None:
        write_page(report, render_scaling(views, report))
        say(f"Written to {report}.")
    if as_json:
        print_json(scaling_document(views))
    else:
        if wrong := scaling_mismatches(views):
            print_text(f"{wrong}\n")
        for view in views:
            print(view.title, efficiency_headline(view), view.cause, "", sep="\n")
            rows = [(f"  {label}", *figures) for label, *figures in view.rows]
            print_table(("", *view.sides), rows, right=frozenset({1, 2}))
            print()
    return 0


def _print_diff(runs: Sequence[StoredRun], report: Path | None, *, as_json: bool, everything: bool) -> int:
    """Print the differences of two runs, with changes counted from the first, and write a report if requested."""
    if len(runs) != 2:
        raise UsageError(f"--diff takes two runs; these are {len(runs)}.")
    differences = run_diff(runs[0], runs[1], None)
    if report is not None:
        write_page(report, render_diff(differences, report))
        say(f"Written to {report}.")
    if as_json:
        print_json(diff_document(runs[0], runs[1]))
    else:
        print_diff(differences, everything=everything)
    return 0


def print_diff(differences: RunDiff, *, everything: bool) -> None:
    """Print the sections of a diff; `everything` includes what is equal."""
    for label, name in zip(differences.labels, differences.names, strict=True):
        print(f"{label.lower()}  {name}")
    for section in differences.sections:
        print()
        print(": ".join(filter(None, (section.title, section.counts))))
        if section.note:
            print_text(section.note)
        rows = [*section.rows, *(section.alike if everything else ())]
        table = diff_table(rows, differences.labels, "  ")
        header = [text.lower() for text in table.head] if rows else ()
        print_table(header, [(f"  {name}", *values) for name, *values in table.rows], right=table.numeric)
    for text in differences.texts:
        print()
        print(f"{text.title}: {text.counts}")
        for change in text.changes:
            print(f"  {text_line(change)}")
