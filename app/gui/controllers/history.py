"""Connects the History screen with the database: every read happens off the GUI thread."""

from pathlib import Path

from PySide6.QtCore import QObject, QTimer, Signal

from app.errors import UserError
from app.gui.background import Background
from app.gui.controllers.history_edits import HistoryEdits
from app.gui.controllers.history_storage import HistoryStorage
from app.gui.views.history import HistoryView
from app.queries import RunQuery
from app.storage import retention
from app.storage.reference import reference_runs
from app.storage.store import Store
from app.viewmodels.history import SHOWN_AT_FIRST, HistoryRow, Listing, Offered, grouped, history_rows, page_of
from app.viewmodels.run_detail import RunDetail, run_detail

_LOOK_MS = 2_000


class HistoryController(QObject):
    """Finds runs, reads the rows that come into view, opens one, and tells which ones to compare or export."""

    compare_requested = Signal(list)
    export_requested = Signal(list, str)
    import_requested = Signal()
    reference_requested = Signal(bool)

    def __init__(
        self, view: HistoryView, database: Path, background: Background, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._view = view
        self._database = database
        self._background = background
        self._query = RunQuery()
        self._reading = False
        self._again = False
        self._outdated = True
        self._reading_rows = False
        self._wanted: int | None = None
        self._edits = HistoryEdits(view, database, background, self)
        self._storage = HistoryStorage(view, database, background, self)
        self._connect()

    def refresh(self) -> None:
        """Read the runs again; choice, order and place stay."""
        self._outdated = True
        self._read()
        self._storage.refresh()

    def open_run(self, run: int) -> None:
        """Read one run and turn to its page."""
        self._wanted = run
        self._background.run(lambda: _read_run(self._database, run), self._show_run, self._say)

    def _read(self) -> None:
        """Read what is asked for; what is asked for while reading, once afterwards."""
        if self._reading:
            self._again = True
            return
        self._reading = True
        overview, query = self._view.overview, self._query
        before, in_groups = overview.listing.query, overview.grouped
        near = overview.table.runs_near() if query == before else ()
        # What there is to choose from takes half the time, and stays as it was for a new question to the same runs.
        offered = None if self._outdated or query.deleted != before.deleted else overview.listing.offered
        self._background.run(
            lambda: _read_listing(self._database, query, near, offered, in_groups=in_groups),
            self._show_listing,
            self._fail,
        )

    def _look(self) -> None:
        """Another program may have begun or ended a run in this database."""
        if self._view.isVisible() and not self._reading:
            self._background.run(lambda: _read_census(self._database), self._compare_census, self._say)

    def _compare_census(self, found: tuple[int, ...]) -> None:
        if found != self._view.overview.listing.offered.census:
            self.refresh()

    def _ask(self, query: RunQuery) -> None:
        self._query = query
        self._read()

    def _show_listing(self, found: Listing) -> None:
        if found.query == self._query:
            self._view.show_problem("")
            self._view.show_model(found)
            self._outdated = self._again
        self._read_on()

    def _fail(self, error: UserError) -> None:
        self._say(error)
        self._read_on()

    def _read_on(self) -> None:
        self._reading = False
        if self._again:
            self._again = False
            self._read()

    def _read_rows(self, runs: tuple[int, ...]) -> None:
        """Read a page; those wanted meanwhile the table asks for once more when it has come."""
        if self._reading_rows:
            return
        self._reading_rows = True

        def show(rows: dict[int, HistoryRow]) -> None:
            self._reading_rows = False
            self._view.table.take_rows(runs, rows)

        self._background.run(lambda: _read_rows(self._database, runs), show, self._fail_rows)

    def _fail_rows(self, error: UserError) -> None:
        self._reading_rows = False
        self._say(error)

    def _show_run(self, detail: RunDetail) -> None:
        if detail.run == self._wanted:
            self._view.show_problem("")
            self._view.show_run(detail)

    def _say(self, error: UserError) -> None:
        self._view.show_problem(str(error))

    def _connect(self) -> None:
        actions = self._view.overview.actions_on_runs
        actions.compare_asked.connect(self.compare_requested)
        actions.export_asked.connect(self.export_requested)
        self._view.overview.import_asked.connect(self.import_requested)
        self._view.overview.reference_asked.connect(self.reference_requested)
        self._view.overview.bar.query_changed.connect(self._ask)
        self._view.table.rows_wanted.connect(self._read_rows)
        self._view.table.opened.connect(self.open_run)
        self._edits.changed.connect(self.refresh)
        look = QTimer(self._view, interval=_LOOK_MS)
        look.timeout.connect(self._look)
        look.start()


def _read_listing(
    database: Path, query: RunQuery, near: tuple[int, ...], offered: Offered | None, *, in_groups: bool
) -> Listing:
    """What a query finds, with the rows around those of `near`."""
    with Store.open(database) as store:
        library = store.library
        offered = offered or _read_offered(store, deleted=query.deleted)
        runs = library.find(query)
        groups = grouped(runs, offered.experiments, None)
        ordered = [run for group in groups for run in group.runs] if in_groups else runs
        rows = history_rows(library.run_rows(page_of(ordered, near)), None)
        return Listing(query=query, offered=offered, runs=runs, groups=groups, rows=rows)


def _read_offered(store: Store, *, deleted: bool) -> Offered:
    library = store.library
    return Offered(
        facets=library.facets(deleted=deleted),
        experiments=library.experiments(),
        filters=library.filters(),
        shown=library.shown_columns() or SHOWN_AT_FIRST,
        census=library.census(),
        reference=len(reference_runs(store)),
    )


def _read_census(database: Path) -> tuple[int, ...]:
    with Store.open(database) as store:
        return store.library.census()


def _read_rows(database: Path, runs: tuple[int, ...]) -> dict[int, HistoryRow]:
    with Store.open(database) as store:
        return history_rows(store.library.run_rows(runs), None)


def _read_run(database: Path, run: int) -> RunDetail:
    with Store.open(database) as store:
        return run_detail(store.load(run), None, pruned_utc_ns=retention.pruned_utc_ns(database, run))
