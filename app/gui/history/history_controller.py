"""The History screen's controller: reads runs off the GUI thread, and shows the database's size."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from PySide6.QtCore import QObject, QTimer

from app.errors import UserError
from app.gui.actions import Actions
from app.gui.history.edits_controller import HistoryEdits
from app.gui.history.run_menu_controller import RunMenuController
from app.gui.history.screen import HistoryView
from app.gui.history.transfer_controller import TransferController
from app.gui.settings.controller import read_storage
from app.gui.threads import Background
from app.gui.window_state import WindowState
from app.queries import FacetCounts, RunQuery
from app.storage import retention
from app.storage.reference import reference_runs
from app.storage.store import Store
from app.viewmodels.history.facets import facet_groups
from app.viewmodels.history.run_detail import RunDetail, run_detail
from app.viewmodels.history.table import (
    DEFAULT_COLUMNS,
    HistoryOptions,
    HistoryRow,
    Listing,
    RowView,
    group_by_experiment,
    history_rows,
    visible_page,
)

_POLL_MS = 2_000
_FACETS_DELAY_MS = 150
"""After the last letter of a search: counting takes longer than finding, and the next letter would wait for it."""


class HistoryController(QObject):
    """Finds runs, reads the rows that come into view, and opens one.

    Thread: GUI only; it reads on `background`.
    """

    def __init__(self, view: HistoryView, database: Path, background: Background, actions: Actions) -> None:
        super().__init__(view)
        self._view = view
        self._database = database
        self._background = background
        self._state = WindowState("history", view, database)
        self._query = self._state.read("query", RunQuery())
        self._reading = False
        self._read_pending = False
        self._outdated = True
        self._reading_rows = False
        self._requested_run: int | None = None
        self._edits = HistoryEdits(view, database, background, actions, self)
        self._menu = RunMenuController(view, database, background, actions, self)
        self.transfer = TransferController(view, database, actions)
        self.show_undone = self._edits.show_undone
        self._facets_delay = QTimer(self, interval=_FACETS_DELAY_MS, singleShot=True)
        self._connect()

    def refresh(self) -> None:
        """Read the runs again; selection, order and position stay."""
        self._outdated = True
        self._read()
        self._background.run(lambda: read_storage(self._database), self._view.show_storage, self._show_error)

    def open_run(self, run: int, *, at_log: bool = False) -> None:
        """Read one run and turn to its page, into its log where `at_log`."""
        self._requested_run = run

        def show(detail: RunDetail) -> None:
            if detail.run == self._requested_run:
                self._view.problem.show_sentence("")
                self._view.show_run(detail)
                if at_log:
                    self._view.detail.focus_search()

        def fail(error: UserError) -> None:
            if run == self._requested_run:
                self._show_error(error, partial(self.open_run, run, at_log=at_log))

        self._background.run(lambda: _read_run(self._database, run), show, fail)

    def _read(self) -> None:
        """Read the runs of the query; a change while reading is read once afterwards."""
        if self._reading:
            self._read_pending = True
            return
        self._reading = True
        overview, query = self._view.overview, self._query
        before, in_groups = overview.listing.query, overview.grouped
        near = overview.table.runs_near() if query == before else ()
        # The filters' choices take half the time, and do not change with a new query of the same runs.
        offered = None if self._outdated or query.deleted != before.deleted else overview.listing.options
        self._background.run(
            lambda: _read_listing(self._database, query, near, offered, in_groups=in_groups),
            self._show_listing,
            self._fail_read,
        )

    def _poll(self) -> None:
        """Look for runs that another program started or ended."""
        if self._view.isVisible() and not self._reading:
            self._background.run(lambda: _read_census(self._database), self._compare_census, self._show_error)

    def _compare_census(self, found: tuple[int, ...]) -> None:
        if found != self._view.overview.listing.options.census:
            self.refresh()

    def _set_query(self, query: RunQuery) -> None:
        self._view.problem.show_sentence("")
        self._query = query
        self._state.keep("query", replace(query, deleted=False))
        self._read()

    def _read_facets(self) -> None:
        """Count the facets where they show; the list does not wait for them."""
        query, overview = self._query, self._view.overview
        if not overview.wants_facets:
            return
        found_none = query == overview.listing.query and not overview.listing.runs

        def show(counts: FacetCounts) -> None:
            if query == self._query:
                overview.show_facets(facet_groups(counts, query, overview.listing.options.experiments))

        self._background.run(
            lambda: _count_facets(self._database, query, found_none=found_none), show, self._show_error
        )

    def _show_listing(self, found: Listing) -> None:
        if found.query == self._query:
            self._view.problem.end_failed_read()
            self._view.show_model(found)
            self._outdated = self._read_pending
            self._facets_delay.start()
        self._finish_read()

    def _fail_read(self, error: UserError) -> None:
        self._show_error(error)
        self._finish_read()

    def _finish_read(self) -> None:
        self._reading = False
        if self._read_pending:
            self._read_pending = False
            self._read()

    def _read_rows(self, runs: tuple[int, ...]) -> None:
        """Read rows, one request at a time: the table repeats a request that came meanwhile."""
        if self._reading_rows:
            return
        self._reading_rows = True

        def show(rows: dict[int, HistoryRow]) -> None:
            self._reading_rows = False
            self._view.table.add_rows(runs, rows)

        view = self._view.overview.listing.row_view
        self._background.run(lambda: _read_rows(self._database, runs, view), show, self._fail_rows)

    def _fail_rows(self, error: UserError) -> None:
        self._reading_rows = False
        self._show_error(error)

    def _show_error(self, error: UserError, retry: Callable[[], None] | None = None) -> None:
        self._view.problem.show_failed_read(error, retry or self.refresh)

    def _connect(self) -> None:
        self._view.overview.bar.query_changed.connect(self._set_query)
        self._view.overview.facets_requested.connect(self._read_facets)
        self._facets_delay.timeout.connect(self._read_facets)
        self._view.table.rows_requested.connect(self._read_rows)
        self._view.table.opened.connect(self.open_run)
        self._view.overview.run_menu.log_requested.connect(lambda runs: self.open_run(runs[0], at_log=True))
        self._edits.changed.connect(self.refresh)
        timer = QTimer(self._view, interval=_POLL_MS)
        timer.timeout.connect(self._poll)
        timer.start()


def _read_listing(
    database: Path, query: RunQuery, near: tuple[int, ...], offered: HistoryOptions | None, *, in_groups: bool
) -> Listing:
    """Return the runs of a query, with the rows around those of `near`.

    Args:
        database: The database.
        query: Which runs, in which order.
        near: Runs in view.
        offered: Choices of the filters; None reads them too.
        in_groups: The runs are shown in groups by experiment.
    """
    with Store.open(database) as store:
        library = store.library
        offered = offered or _read_offered(store, deleted=query.deleted)
        found = library.search(query)
        groups = group_by_experiment(found.runs, offered.experiments, None)
        ordered = [run for group in groups for run in group.runs] if in_groups else found.runs
        listing = Listing(query=query, options=offered, found=found, groups=groups)
        rows = history_rows(library.run_rows(visible_page(ordered, near)), listing.row_view)
        return replace(listing, rows=rows)


def _read_offered(store: Store, *, deleted: bool) -> HistoryOptions:
    library = store.library
    return HistoryOptions(
        totals=library.totals(deleted=deleted),
        experiments=library.experiments(),
        filters=library.filters(),
        shown=library.shown_columns() or DEFAULT_COLUMNS,
        census=library.census(),
        reference=len(reference_runs(store)),
    )


def _count_facets(database: Path, query: RunQuery, *, found_none: bool) -> FacetCounts:
    """Count the facets; where nothing is found, those without a count have the values of all runs, with 0 each."""
    with Store.open(database) as store:
        counts = store.library.count_facets(query)
        if not found_none:
            return counts
        every = store.library.count_facets(RunQuery(deleted=query.deleted))
        return {name: counts[name] or dict.fromkeys(values, 0) for name, values in every.items()}


def _read_census(database: Path) -> tuple[int, ...]:
    with Store.open(database) as store:
        return store.library.census()


def _read_rows(database: Path, runs: tuple[int, ...], view: RowView) -> dict[int, HistoryRow]:
    with Store.open(database) as store:
        return history_rows(store.library.run_rows(runs), view)


def _read_run(database: Path, run: int) -> RunDetail:
    with Store.open(database) as store:
        return run_detail(store.load(run), None, pruned_utc_ns=retention.pruned_utc_ns(database, run))
