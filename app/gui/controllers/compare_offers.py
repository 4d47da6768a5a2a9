"""Finds what could be compared next where nothing is compared, and does what is taken of it."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal

from app.errors import UserError
from app.gui.background import Background
from app.gui.views.compare_empty import CompareEmpty
from app.queries import RunQuery
from app.storage.store import Store

if TYPE_CHECKING:
    from app.viewmodels.compare_offers import Offer

_LATEST = 40
"""So many of the user's runs are looked at for two variants to compare."""


class CompareOffers(QObject):
    """`compare_asked` has runs and whether the article that they repeat is looked at first.

    `build_asked` wants an experiment to be built, `runs_added` tells that there are more runs in the database.
    """

    compare_asked = Signal(object, bool)
    build_asked = Signal()
    runs_added = Signal()

    def __init__(
        self,
        view: CompareEmpty,
        database: Path,
        background: Background,
        failed: Callable[[UserError], None],
        parent: QObject,
    ) -> None:
        super().__init__(parent)
        self._view = view
        self._database = database
        self._background = background
        self._failed = failed
        view.taken.connect(self._take)

    def look(self) -> None:
        """Offer what can be done with the runs that are stored now."""
        self._background.run(lambda: _offers(self._database), self._show, self._failed)

    def _show(self, found: "tuple[tuple[Offer, ...], bool]") -> None:
        offers, experiments = found
        self._view.show_offers(offers, experiments=experiments)

    def _take(self, offer: "Offer") -> None:
        if offer.act == "add":
            self._view.show_adding()
            self._background.run(lambda: _add_reference(self._database), lambda _: self._added(), self._fail)
        elif offer.act == "build":
            self.build_asked.emit()
        else:
            self.compare_asked.emit(offer.runs, offer.act == "article")

    def _added(self) -> None:
        self.look()
        self.runs_added.emit()

    def _fail(self, error: UserError) -> None:
        self.look()
        self._failed(error)


def _offers(database: Path) -> "tuple[tuple[Offer, ...], bool]":
    """What can be offered, and whether experiments are stored."""
    from app.gui.controllers.presets import reference_articles
    from app.storage.reference import reference_runs
    from app.viewmodels.compare_offers import compare_offers

    with Store.open(database) as store:
        library = store.library
        reference = frozenset(reference_runs(store))
        own = [run for run in library.find(RunQuery(outcome="completed")) if run not in reference][:_LATEST]
        experiments = library.experiments()
        articles = reference_articles(library.run_rows(sorted(reference)))
        return compare_offers(library.run_rows(own), experiments, reference, articles), bool(experiments)


def _add_reference(database: Path) -> None:
    from app.storage.reference import add_reference

    add_reference(database)
