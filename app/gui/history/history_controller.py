"""The History screen's controller: reads runs off the GUI thread, and shows the database's size."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QObject, QTimer, Signal
from PySide6.QtGui import QGuiApplication

from app.errors import UserError
from app.gui.actions import Actions
from app.gui.history.annotations import NoteDialog, TagDialog
from app.gui.history.screen import HistoryView
from app.gui.history.transfer_controller import TransferController
from app.gui.settings.dialog import read_storage
from app.gui.threads import Background, Result
from app.gui.widgets.dialogs import ask_for_new_file, open_on_desktop
from app.gui.window_state import WindowState
from app.paths import weights_path
from app.queries import RUN_ORDERS, FacetCounts, RunQuery
from app.runs.undo import Edit
from app.storage import retention
from app.storage.database import load_setting, save_setting
from app.storage.known_settings import SHOWN_COLUMNS
from app.storage.library import Library
from app.storage.reference import reference_runs
from app.storage.store import Store
from app.values.records import RunRow
from app.values.units import plural
from app.viewmodels.format.derived import load_energy_rates
from app.viewmodels.format.naming import run_command
from app.viewmodels.format.sentences import format_run_numbers
from app.viewmodels.history.labels import (
    Annotations,
    TagChange,
    can_compare,
    collect_annotations,
    deleted_label,
    facet_groups,
    runs_label,
)
from app.viewmodels.history.run_detail import RunDetail, run_detail
from app.viewmodels.history.run_diff import RunDiff, run_diff
from app.viewmodels.history.table import DEFAULT_COLUMNS, HistoryOptions, Listing, group_by_experiment
from app.viewmodels.plot.panels import NO_SPARKS, SPARK_FIELDS, Sparks, run_sparks

if TYPE_CHECKING:
    from app.viewmodels.compare.verdict import Verdict


class ChosenRuns(QObject):
    """Acts on chosen runs: shows, copies and annotates them, and writes changes that can be undone.

    `changed` is emitted when a change is in the database.

    Thread: GUI only; it reads and writes on `background`.
    """

    changed = Signal()

    def __init__(
        self, view: HistoryView, database: Path, background: Background, actions: Actions, parent: QObject
    ) -> None:
        super().__init__(parent)
        self._view = view
        self._database = database
        self._background = background
        self._actions = actions
        menu = view.overview.run_menu
        menu.diff_requested.connect(self.show_diff)
        menu.baseline_requested.connect(
            lambda runs: self._read(lambda store: with_baselines(store.library, runs), actions.compare)
        )
        menu.copy_requested.connect(self._copy_commands)
        menu.reveal_requested.connect(
            lambda runs: self._read(lambda store: folder_of(store.library, runs[0]), open_on_desktop)
        )
        for source in (menu, view.detail.annotations):
            source.tags_requested.connect(partial(self._annotate, TagDialog, self._change_tags))
            source.note_requested.connect(partial(self._annotate, NoteDialog, self._change_note))
        menu.delete_requested.connect(self._delete)
        menu.restore_requested.connect(self._restore)
        menu.purge_requested.connect(lambda runs: view.ask_to_purge(runs, lambda: self._purge(runs)))
        view.overview.footer.undo.clicked.connect(actions.undo)
        view.overview.columns_chosen.connect(
            lambda columns: self._read(
                lambda store: save_setting(store.path, SHOWN_COLUMNS, columns), lambda _: self.changed.emit()
            )
        )
        view.diff.swap_requested.connect(self.show_diff)
        view.diff.save_requested.connect(self._ask_to_save)
        view.diff.compare_requested.connect(actions.compare)

    def show_diff(self, runs: Sequence[int]) -> None:
        """Read two runs and turn to the page of their diff, with changes counted from the first."""
        first, second = runs
        self._read(lambda store: run_diff(store.load(first), store.load(second), None), self._view.show_diff)

    def show_undone(self) -> None:
        self._view.overview.footer.show_message("")
        self._show_annotations()

    def _ask_to_save(self, diff: RunDiff) -> None:
        def save(file: str) -> None:
            self._background.run(
                lambda: _write(diff, Path(file)), lambda _: self._view.problem.show_sentence(""), self._show_error
            )

        path = Path.home() / "diff-{}-{}.html".format(*diff.runs)
        ask_for_new_file(self._view, "Save the diff", path, "Pages (*.html *.md)", save)

    def _copy_commands(self, runs: Sequence[int]) -> None:
        def copy(commands: list[str]) -> None:
            QGuiApplication.clipboard().setText("\n".join(commands))
            self._view.overview.footer.show_message(f"{len(commands)} {plural('command', len(commands))} copied")

        self._read(lambda store: [run_command(store.load(run, ())) for run in runs], copy)

    def _annotate(self, editor: type[TagDialog | NoteDialog], change: Callable[..., None], runs: Sequence[int]) -> None:
        def read(store: Store) -> Annotations:
            return collect_annotations(store.library.run_rows(runs), store.library.totals().tags)

        def edit(annotations: Annotations) -> None:
            dialog = editor(annotations, self._view)
            dialog.changed.connect(change)
            dialog.open()

        self._read(read, edit)

    def _change_tags(self, change: TagChange) -> None:
        def write(library: Library) -> None:
            for tag in change.added:
                library.add_tag(change.runs, tag)
            for tag in change.removed:
                library.remove_tag(change.runs, tag)

        if change.added or change.removed:
            self._edit(f"change tags of {runs_label(change.runs)}", write, lambda _: self._show_annotations())

    def _change_note(self, runs: Sequence[int], note: str) -> None:
        def write(library: Library) -> None:
            for run in runs:
                library.set_note(run, note)

        self._edit(f"change the note on {runs_label(runs)}", write, lambda _: self._show_annotations())

    def _show_annotations(self) -> None:
        words = self._view.detail.annotations

        def show(rows: Sequence[RunRow]) -> None:
            for row in rows:
                words.show_annotations(row.run, row.tags, row.note)

        if self._view.shows_run:
            self._read(lambda store: store.library.run_rows([words.run]), show)

    def _delete(self, runs: Sequence[int]) -> None:
        self._edit(f"delete {runs_label(runs)}", lambda library: library.delete(runs), self._show_deleted)

    def _show_deleted(self, runs: Sequence[int]) -> None:
        self._view.overview.footer.show_message(deleted_label(runs) if runs else "", can_undo=bool(runs))

    def _restore(self, runs: Sequence[int]) -> None:
        restored = f"restore {runs_label(runs)}"
        self._edit(restored, lambda library: library.restore(runs), lambda _: self._show_deleted([]))

    def _purge(self, runs: Sequence[int]) -> None:
        def purged(_: None) -> None:
            self._show_deleted([])
            self.changed.emit()

        self._read(lambda store: store.library.purge(runs), purged)

    def _edit(self, name: str, change: Callable[[Library], Result], done: Callable[[Result], None]) -> None:
        """Write one undoable change, then show its result; `name` is the change, in the imperative."""

        def ended(answer: tuple[Result, Edit | None]) -> None:
            result, reversal = answer
            self._view.problem.show_sentence("")
            self._actions.record_change(name, reversal)
            done(result)
            self.changed.emit()

        work = partial(Edit.make, self._database, lambda store: change(store.library))
        self._background.run(work, ended, self._show_error)

    def _read(self, work: Callable[[Store], Result], done: Callable[[Result], object]) -> None:
        """Call `work` with the database, then `done` with its result; a failed read can be repeated."""

        def show(answer: Result) -> None:
            self._view.problem.show_sentence("")
            done(answer)

        def fail(error: UserError) -> None:
            self._view.problem.show_failed_read(error, partial(self._read, work, done))

        self._background.ask(self._database, work, show, fail)

    def _show_error(self, error: UserError) -> None:
        self._view.problem.show_sentence(str(error))


def _write(diff: RunDiff, path: Path) -> None:
    from app.report.render import check_suffix, render_diff, write_page  # here: importing the template engine is slow

    check_suffix(path)
    if path.exists():
        raise UserError(f"{path} already exists; choose another name.")
    write_page(path, render_diff(diff, path))


def with_baselines(library: Library, runs: Sequence[int]) -> list[int]:
    """Return the repeats of some runs' variants and of the baseline, each from the newest experiment of a run.

    The baseline is the first variant of the experiment, oldest first.

    Raises:
        UserError: No experiment defines a baseline, or all runs belong to it.
    """
    repeats: dict[int, None] = {}
    for row in library.run_rows(runs):
        if not row.experiments:
            raise UserError(f"Run {row.run} belongs to no experiment; select a second run and press Ctrl+Shift+C.")
        members = library.run_rows(library.runs_of_experiment(max(row.experiments)))
        specs = (members[0].spec, row.spec)
        repeats.update(dict.fromkeys(member.run for member in members if member.spec in specs))
        if members[0].spec == row.spec and len(runs) == 1:
            raise UserError(f"{format_run_numbers([row.run]).capitalize()} is of the baseline itself.")
    return list(repeats)


def folder_of(library: Library, run: int) -> Path:
    """Return the folder of a run's saved weights, else the database's."""
    (row,) = library.run_rows([run])
    weights = weights_path(library.path, row.uid)
    return weights.parent if weights.exists() else library.path.parent


_POLL_MS = 2_000
_ANSWER_DELAY_MS = 40
"""The delay after the last check: dragging over runs checks many."""
_FACETS_DELAY_MS = 150
"""The delay after the last letter of a search: counting is slower than finding, and would delay the next letter."""


class HistoryController(QObject):
    """Reads and searches runs, and opens one. Thread: GUI only; it reads on `background`."""

    def __init__(self, view: HistoryView, database: Path, background: Background, actions: Actions) -> None:
        super().__init__(view)
        self._view = view
        self._database = database
        self._background = background
        self._state = WindowState("history", view, database)
        self._query = self._state.read("query", RunQuery())
        self._waiting_reads = 0
        self._outdated = True
        self._reading_sparks = False
        self._compare_state = WindowState("compare", view, database)
        self._requested_run: int | None = None
        self._chosen = ChosenRuns(view, database, background, actions, self)
        self.transfer = TransferController(view, database, actions)
        self.show_undone = self._chosen.show_undone
        self._answer_delay = QTimer(self, interval=_ANSWER_DELAY_MS, singleShot=True)
        self._facets_delay = QTimer(self, interval=_FACETS_DELAY_MS, singleShot=True)
        self._connect()

    def refresh(self) -> None:
        """Read the runs again; selection, order and position stay."""
        self._outdated = True
        self._read()
        self._background.run(
            lambda: read_storage(self._database), self._view.overview.footer.show_storage, self._show_error
        )

    def open_run(self, run: int, *, at_log: bool = False) -> None:
        """Read one run and show its page, scrolled to its log if `at_log`."""
        self._requested_run = run

        def show(detail: RunDetail) -> None:
            if detail.run == self._requested_run:
                self._view.problem.show_sentence("")
                self._view.show_run(detail)
                if at_log:
                    self._view.detail.log.search.begin()

        def fail(error: UserError) -> None:
            if run == self._requested_run:
                self._show_error(error, partial(self.open_run, run, at_log=at_log))

        def read(store: Store) -> RunDetail:
            pruned_utc_ns, rates = retention.pruned_utc_ns(self._database, run), load_energy_rates(self._database)
            return run_detail(store.load(run), None, pruned_utc_ns=pruned_utc_ns, rates=rates)

        self._background.ask(self._database, read, show, fail)

    def _read(self) -> None:
        """Read the runs of the query; changes while reading cause one more read."""
        self._waiting_reads += 1
        if self._waiting_reads > 1:
            return
        query, listing = self._query, self._view.overview.listing
        # Rows and the filters' choices take longest, and do not change with a new query of the same runs.
        source = None if self._outdated or query.deleted != listing.query.deleted else listing
        read = partial(_read_listing, query=query, source=source)
        self._background.ask(self._database, read, self._show_listing, self._fail_read)

    def _poll(self) -> None:
        def compare(census: tuple[int, ...]) -> None:
            if census != self._view.overview.listing.options.census:
                self.refresh()

        if self._view.isVisible() and not self._waiting_reads:
            self._background.ask(self._database, lambda store: store.library.census(), compare, self._show_error)

    def _set_query(self, query: RunQuery) -> None:
        self._view.problem.show_sentence("")
        self._query = query
        self._state.keep("query", replace(query, deleted=False))
        self._read()

    def _read_facets(self) -> None:
        """Count the facets if they are visible; the list does not wait for them."""
        query, overview = self._query, self._view.overview
        if not overview.wants_facets:
            return
        found_none = query == overview.listing.query and not overview.listing.runs

        def show(counts: FacetCounts) -> None:
            if query == self._query:
                overview.show_facets(facet_groups(counts, query, overview.listing.options.experiments))

        count = partial(_count_facets, query=query, found_none=found_none)
        self._background.ask(self._database, count, show, self._show_error)

    def _show_listing(self, listing: Listing) -> None:
        if listing.query == self._query:
            self._view.problem.end_failed_read()
            self._view.overview.show_listing(listing)
            self._outdated = self._waiting_reads > 1
            self._facets_delay.start()
        self._finish_read()

    def _fail_read(self, error: UserError) -> None:
        self._show_error(error)
        self._finish_read()

    def _finish_read(self) -> None:
        waiting, self._waiting_reads = self._waiting_reads - 1, 0
        if waiting:
            self._read()

    def _read_sparks(self, runs: tuple[int, ...]) -> None:
        """Read the curves that the table requests, once at a time: it requests what it still lacks afterwards."""
        if self._reading_sparks:
            return
        self._reading_sparks = True

        def done(sparks: dict[int, Sparks]) -> None:
            self._reading_sparks = False
            self._view.table.add_sparks(sparks)

        def fail(error: UserError) -> None:
            self._reading_sparks = False
            self._show_error(error)

        self._background.ask(self._database, lambda store: _read_sparks(store, runs), done, fail)

    def _read_answer(self) -> None:
        """Compute the answer of the checked runs, unless others are checked meanwhile."""
        overview = self._view.overview
        runs = overview.table.chosen()
        if not can_compare(len(runs)) or overview.listing.query.deleted:
            return
        baseline = self._compare_state.read("compared", {}, dict[str, Any]).get("baseline", 0)
        margin_pct = self._compare_state.read("margin", 0.0) or None

        def show(verdict: "Verdict | None") -> None:
            if runs == overview.table.chosen() and verdict is not None:
                overview.header.show_answer(verdict.answer, verdict.next_step)

        read = partial(_read_answer, runs=runs, baseline=baseline, margin_pct=margin_pct)
        self._background.ask(self._database, read, show, self._show_error)

    def _show_error(self, error: UserError, retry: Callable[[], None] | None = None) -> None:
        self._view.problem.show_failed_read(error, retry or self.refresh)

    def _connect(self) -> None:
        self._view.overview.bar.query_changed.connect(self._set_query)
        self._view.overview.facets_requested.connect(self._read_facets)
        self._facets_delay.timeout.connect(self._read_facets)
        self._view.table.sparks_requested.connect(self._read_sparks)
        self._view.table.chosen_changed.connect(self._answer_delay.start)
        self._answer_delay.timeout.connect(self._read_answer)
        self._view.table.opened.connect(self.open_run)
        self._view.overview.run_menu.log_requested.connect(lambda runs: self.open_run(runs[0], at_log=True))
        self._chosen.changed.connect(self.refresh)
        timer = QTimer(self._view, interval=_POLL_MS)
        timer.timeout.connect(self._poll)
        timer.start()


def _read_listing(store: Store, query: RunQuery, source: Listing | None) -> Listing:
    library = store.library
    if source is None:
        everything = library.run_rows(library.find(RunQuery(deleted=query.deleted)))
        options = _read_offered(store, deleted=query.deleted)
        source = Listing(options=options, rows={row.run: row for row in everything})
    matches = library.search(query)
    return Listing(
        query=query,
        options=source.options,
        rows=source.rows,
        matches=matches,
        common=library.common_values(query, matches),
        groups=group_by_experiment(matches.runs, source.options.experiments, None),
    )


def _read_offered(store: Store, *, deleted: bool) -> HistoryOptions:
    library, columns = store.library, load_setting(store.path, SHOWN_COLUMNS) or ()
    return HistoryOptions(
        totals=library.totals(deleted=deleted),
        experiments=library.experiments(),
        columns=tuple(name for name in RUN_ORDERS if name in columns) or DEFAULT_COLUMNS,
        census=library.census(),
        reference=len(reference_runs(store)),
    )


def _count_facets(store: Store, query: RunQuery, *, found_none: bool) -> FacetCounts:
    """Count the facets; if nothing is found, those without a count show the values of all runs with 0 each."""
    counts = store.library.count_facets(query)
    if not found_none:
        return counts
    every = store.library.count_facets(RunQuery(deleted=query.deleted))
    return {name: counts[name] or dict.fromkeys(values, 0) for name, values in every.items()}


def _read_sparks(store: Store, runs: Sequence[int]) -> dict[int, Sparks]:
    curves = {row.run: run_sparks(store.load(row.run, SPARK_FIELDS)) for row in store.library.run_rows(runs)}
    return {run: curves.get(run, NO_SPARKS) for run in runs}


def _read_answer(store: Store, runs: Sequence[int], baseline: int, margin_pct: float | None) -> "Verdict | None":
    from app.viewmodels.compare.verdict import compute_verdict  # here: the first paint does not need its statistics

    rows = store.library.run_rows(runs)
    question = store.library.question_of(rows)
    baseline = baseline if baseline in runs else question.baseline
    return compute_verdict(rows, baseline, margin_pct, question.asked) if len(rows) == len(runs) else None
