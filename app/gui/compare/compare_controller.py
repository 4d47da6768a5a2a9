"""The Compare screen's controller: reads, compares and arranges runs off the GUI thread; suggests comparisons."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, TypeVar

from msgspec import structs
from PySide6.QtCore import QObject, Signal

from app.analysis.intervals import DEFAULT_REPEATS
from app.analysis.verdict import default_baseline, group_by_variant, throughputs
from app.errors import UserError
from app.gui.actions import Actions
from app.gui.compare.screen import CompareView
from app.gui.threads import Background
from app.gui.window_state import WindowState
from app.queries import Question, RunQuery
from app.storage.database import load_setting, save_setting
from app.storage.known_settings import HIDDEN_FIGURES
from app.storage.store import Store
from app.values.records import StoredRun
from app.viewmodels.charts.palette import MAX_COMPARED
from app.viewmodels.compare.comparison import (
    COMPARED_FIELDS,
    ComparedRuns,
    Comparison,
    compare,
    comparison_curves,
    prepare_comparison,
)
from app.viewmodels.compare.curves import ALIGNMENTS, Alignment, CompareCurves
from app.viewmodels.compare.pivot import Pivot, make_pivot, make_pivots
from app.viewmodels.compare.verdict import compute_verdict
from app.viewmodels.compare.warnings import EARLIER_RUNS
from workloads.protocol import RunSpec

if TYPE_CHECKING:
    from app.values.plan import Publication
    from app.viewmodels.compare.offers import Offer


_MAX_CANDIDATES = 40
"""How many of the user's latest runs are searched for two comparable variants."""


def _read_offers(store: Store) -> "tuple[tuple[Offer, ...], bool]":
    from app.gui.experiment.stored import reference_questions
    from app.storage.reference import reference_runs
    from app.viewmodels.compare.offers import compare_offers

    library = store.library
    reference = frozenset(reference_runs(store))
    user_runs = [run for run in library.find(RunQuery(outcome="completed")) if run not in reference][:_MAX_CANDIDATES]
    experiments = library.experiments()
    questions = reference_questions(library.run_rows(sorted(reference)))
    return compare_offers(library.run_rows(user_runs), experiments, reference, questions), bool(experiments)


Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class _Compared:
    """The last comparison, in this window or an earlier one."""

    runs: tuple[int, ...] = ()
    baseline: int = 0
    asked: str = ""


class CompareController(QObject):
    """Shows chosen runs side by side; only the last choice is shown.

    Thread: GUI only; it reads and computes on `background`.
    """

    _progressed = Signal(int, int, int, str)

    def __init__(self, view: CompareView, database: Path, background: Background, actions: Actions) -> None:
        super().__init__(view)
        self._view = view
        self._database = database
        self._background = background
        self._request_number = 0
        self._stop = Event()
        self._state = WindowState("compare", view, database)
        self._former = self._state.read("compared", _Compared())
        self._comparison = Comparison()
        self._baseline = 0
        self._margin_pct = self._state.read("margin", 0.0) or None
        self._align = next((name for name in ALIGNMENTS if name == self._state.read("align", "")), ALIGNMENTS[0])
        self._actions = actions
        self._failed: list[Callable[[], None]] = []
        view.offers.offer_accepted.connect(self._accept_offer)
        view.table.baseline_requested.connect(self.make_baseline)
        view.margin_chosen.connect(self.set_margin)
        view.question_chosen.connect(self.ask)
        view.tabs.curves.alignment_requested.connect(self.align)
        view.tabs.pivot_requested.connect(self.show_pivot)
        view.report_requested.connect(self.save_report)
        view.experiments_requested.connect(self._offer_experiments)
        view.experiment_requested.connect(self.show_experiment)
        view.table.columns_changed.connect(self._save_columns)
        view.header.interleave_requested.connect(self._measure_interleaved)
        view.header.here_requested.connect(self._run_more)
        view.header.baseline_requested.connect(self.make_baseline)
        view.header.result.more_requested.connect(self._run_more)
        view.header.result.quiet_requested.connect(self._run_when_quiet)
        view.reading.cancelled.connect(self._cancel)
        view.tabs.curves_requested.connect(lambda: self.align(self._align))
        self._progressed.connect(self._show_progress)
        view.remember(database)

    def show_runs(self, runs: Sequence[int], question: Question | None = None) -> None:
        """Compare these runs, in this order; without a question the baseline stays if it is among them."""
        chosen = tuple(dict.fromkeys(runs))
        former = self._baseline if self._baseline in chosen else 0
        self._cancel_reading()
        stop, margin_pct = self._stop, self._margin_pct
        if set(chosen) != {row.run for row in self._comparison.rows}:
            self._view.show_reading(0, min(len(chosen), MAX_COMPARED))
        report = partial(self._progressed.emit, self._request_number)
        self._run_for_current(
            lambda store: _read_runs(store, chosen, former, question, margin_pct, stop, report), self._show_runs
        )

    def _show_progress(self, request_number: int, done: int, runs: int, answer: str) -> None:
        if request_number == self._request_number and self._view.reading.isVisible():
            self._view.show_reading(done, runs, answer)

    def _cancel_reading(self) -> None:
        self._stop.set()
        self._stop = Event()
        self._request_number += 1

    def _cancel(self) -> None:
        self._cancel_reading()
        self._view.leave_reading()

    def refresh(self) -> None:
        """Read the runs again if one of them was active; without runs, show the last window's comparison, or offers."""
        if not self._comparison.variants:
            self._read_offers()
            self._show_former()
        elif any(row.outcome is None for row in self._comparison.rows):
            question = Question(self._comparison.compared_runs.asked, self._baseline)
            self.show_runs([row.run for row in self._comparison.rows], question)

    def _show_former(self) -> None:
        """Show the last window's comparison, once, unless another is requested."""
        former, self._former = self._former, _Compared()

        def show(runs: Sequence[int]) -> None:
            if len(runs) > 1 and not self._request_number:
                self.show_runs(runs, Question(former.asked, former.baseline if former.baseline in runs else 0))

        if former.runs:
            self._read(lambda store: [row.run for row in store.library.run_rows(former.runs)], show)

    def show_experiment(self, experiment: int) -> None:
        self._read(lambda store: _experiment_runs(store, experiment), lambda answer: self.show_runs(*answer))

    def _read_offers(self) -> None:
        self._read(_read_offers, self._show_offers)

    def _show_offers(self, answer: "tuple[tuple[Offer, ...], bool]") -> None:
        offers, experiments = answer
        self._view.offers.show_offers(offers, experiments=experiments)

    def _accept_offer(self, offer: "Offer") -> None:
        if offer.action == "add":
            self._view.offers.show_adding()
            self._actions.add_reference(self._fail_to_add)
        elif offer.action == "build":
            self._actions.open_questions()
        else:
            self.show_runs(offer.runs, offer.question)

    def _fail_to_add(self, error: UserError) -> None:
        self._read_offers()
        self._fail(error)

    def _offer_experiments(self) -> None:
        from app.viewmodels.compare.offers import experiment_choices

        self._read(lambda store: experiment_choices(store.library.experiments()), self._view.offer_experiments)

    def make_baseline(self, run: int) -> None:
        self._baseline = run
        self._compare_again(f"Comparing with run {run} …")

    def set_margin(self, margin_pct: float | None) -> None:
        """Set the margin in percent within which variants are equal; None for no margin."""
        self._margin_pct = margin_pct
        self._state.keep("margin", margin_pct or 0.0)
        self._compare_again("Comparing again …")

    def ask(self, setting: str) -> None:
        """Change the setting that the answer is about, as `compare --asked` does."""
        runs = replace(self._comparison.compared_runs, asked=setting)
        self._comparison = replace(self._comparison, compared_runs=runs)
        self._compare_again("Comparing again …")

    def _compare_again(self, why: str) -> None:
        self._view.show_waiting(why)
        runs, run, margin_pct = self._comparison.compared_runs, self._baseline, self._margin_pct
        self._run_for_current(
            lambda store: _compare_with_earlier(store, runs, run, margin_pct),
            partial(self._show_comparison, new_runs=False),
        )

    def _measure_interleaved(self, runs: Sequence[int]) -> None:
        from app.viewmodels.experiment.preview import interleaved_plan

        groups = group_by_variant([row for row in self._comparison.rows if throughputs([row])])
        chosen = [next(group for group in groups if any(row.run == run for row in group)) for run in runs]
        repeats = max(DEFAULT_REPEATS, *map(len, chosen))
        self._actions.run_plan(interleaved_plan([group[0].spec for group in chosen], repeats))

    def _run_more(self, repeats: int, variants: Sequence[RunSpec] = (), max_idle_wait_s: float | None = None) -> None:
        from app.viewmodels.experiment.preview import interleaved_plan

        repeated = variants or [group[0].spec for group in group_by_variant(self._comparison.rows)]
        plan = interleaved_plan(repeated, repeats)
        self._actions.run_plan(structs.replace(plan, max_idle_wait_s=max_idle_wait_s))

    def _run_when_quiet(self) -> None:
        """Repeat the runs, each once the machine is quiet."""
        from app.viewmodels.experiment.preview import QUIET_WAIT_S

        repeats = max(len(throughputs(group)) for group in group_by_variant(self._comparison.rows))
        self._run_more(repeats, max_idle_wait_s=QUIET_WAIT_S)

    def _show_comparison(self, comparison: Comparison, *, new_runs: bool) -> None:
        self._comparison, self._failed = comparison, []
        runs, asked = tuple(row.run for row in comparison.rows), comparison.compared_runs.asked
        self._state.keep("compared", _Compared(runs, comparison.baseline, asked))
        self._view.show_model(comparison, new_runs=new_runs)
        draw = self._view.tabs.charts.draw_ahead(comparison.charts)
        self._background.run(draw, lambda _: None, self._fail)

    def align(self, align: Alignment) -> None:
        runs, self._align = self._comparison.compared_runs, align
        self._state.keep("align", align)

        def show(curves: CompareCurves) -> None:
            if runs.runs is self._comparison.compared_runs.runs and align == self._align:
                self._view.show_curves(curves)

        self._run_for_current(lambda _: comparison_curves(runs, align), show)

    def save_report(self, path: Path) -> None:
        """Write the current comparison to a file, `.html` or `.md`."""
        comparison = self._comparison
        self._run_for_current(lambda _: _write_report(self._database, comparison, path), self._view.show_report_path)

    def show_pivot(self, rows: str, columns: str) -> None:
        """Show the effect of the setting asked about by two others; "" leaves either to the pivot."""
        comparison = self._comparison

        def show(pivot: Pivot | None) -> None:
            if comparison is self._comparison:
                self._view.tabs.pivot.show_pivot(pivot)

        self._run_for_current(
            lambda _: make_pivot(comparison, "", rows, columns, _publications(self._database, comparison)), show
        )

    def _run_for_current(self, work: Callable[[Store], Result], show: Callable[[Result], None]) -> None:
        """Show the result of the work, unless other runs were chosen meanwhile."""
        request_number = self._request_number

        def done(result: Result) -> None:
            if request_number == self._request_number:
                show(result)

        self._read(work, done, is_wanted=lambda: request_number == self._request_number)

    def _read(
        self,
        work: Callable[[Store], Result],
        done: Callable[[Result], None],
        *,
        is_wanted: Callable[[], bool] = lambda: True,
        again: bool = False,
    ) -> None:
        """Read off the GUI thread; a failed read that is still wanted can be repeated."""

        def show(result: Result) -> None:
            if again:
                self._view.problem.show_sentence("")
            done(result)

        def fail(error: UserError) -> None:
            if not is_wanted():
                return
            self._view.leave_reading()
            self._failed.append(lambda: self._read(work, done, is_wanted=is_wanted, again=True))
            self._view.problem.show_failed_read(error, self._read_failed)

        self._background.ask(self._database, work, show, fail)

    def _read_failed(self) -> None:
        """Repeat everything that a lock or a full disk prevented from being read."""
        failed, self._failed = self._failed, []
        for read in failed:
            read()

    def _show_runs(self, read: tuple[Comparison, frozenset[str]]) -> None:
        """Show verdict, charts and table; curves are read when opened."""
        comparison, hidden_columns = read
        self._baseline = comparison.baseline
        self._view.table.hide_columns(hidden_columns)
        self._show_comparison(comparison, new_runs=True)
        self._view.tabs.setFocus()
        if not self._view.tabs.shows_curves:
            self._view.painted.emit()

    def _save_columns(self, names: frozenset[str]) -> None:
        self._background.run(lambda: save_setting(self._database, HIDDEN_FIGURES, names), lambda _: None, self._fail)

    def _fail(self, error: UserError) -> None:
        self._view.leave_reading()
        self._view.problem.show_sentence(str(error))


def _read_runs(
    store: Store,
    runs: Sequence[int],
    former: int,
    question: Question | None,
    margin_pct: float | None,
    stop: Event,
    report: Callable[[int, int, str], object],
) -> tuple[Comparison, frozenset[str]]:
    """Read and compare runs, and read which columns are hidden; a stopped read ends early, and its result is dropped.

    Without a question, the runs' own and any former baseline are used. `report` gets the answer before the samples are
    read, which takes longest.

    Thread: not the GUI's.
    """
    stored: list[StoredRun] = []
    chosen = runs[:MAX_COMPARED]
    rows = store.library.run_rows(chosen)
    asked, baseline = question or store.library.question_of(rows)
    baseline = baseline if question else former or baseline
    answer = compute_verdict(rows, baseline, margin_pct, asked).answer if rows else ""
    for run in chosen:
        if stop.is_set():
            raise UserError("The comparison was cancelled.")
        report(len(stored), len(chosen), answer)
        stored.append(store.load(run, COMPARED_FIELDS))
    report(len(stored), len(chosen), answer)
    compared_runs = prepare_comparison(stored, max(0, len(runs) - MAX_COMPARED), asked)
    baseline = baseline or default_baseline([run.row for run in compared_runs.runs])
    comparison = _compare_with_earlier(store, compared_runs, baseline, margin_pct)
    return comparison, load_setting(store.path, HIDDEN_FIGURES) or frozenset()


def _compare_with_earlier(store: Store, runs: ComparedRuns, baseline: int, margin_pct: float | None) -> Comparison:
    earlier = store.library.earlier_runs(baseline, [run.row.run for run in runs.runs], EARLIER_RUNS)
    return compare(runs, baseline, [store.load(number, ()) for number in earlier], margin_pct)


def _write_report(database: Path, comparison: Comparison, path: Path) -> Path:
    from app.report.render import write_report

    write_report(path, comparison, time.time_ns(), make_pivots(comparison, _publications(database, comparison)))
    return path


def _publications(database: Path, comparison: Comparison) -> "tuple[Publication, ...]":
    from app.gui.experiment.stored import known_workloads
    from app.runs.experiment.presets import preset_names, publications, user_preset_files

    names = (*preset_names(), *user_preset_files(database))
    return publications([row.spec for row in comparison.rows], names, known_workloads(database))


def _experiment_runs(store: Store, experiment: int) -> tuple[tuple[int, ...], Question]:
    compared = store.library.compared_by(experiment)
    if not compared[0]:
        raise UserError("This experiment has no runs left; they may be in the trash in History.")
    return compared
