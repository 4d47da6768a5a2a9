"""The window's queue as its other parts see it: imported and made when there is first something in it."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from app.gui.background import Background
from app.gui.controllers.run import RunController
from app.gui.queue_news import QueueNews
from app.gui.queue_watch import Places, QueueWatch
from app.gui.views.run import RunView
from app.samples import Inventory

if TYPE_CHECKING:
    from app.gui.controllers.queue import QueueController
    from app.gui.sessions import Sessions


class Queueing:
    """Makes the queue's controller, which tells by `news`; a single run of the form goes before the queue's."""

    def __init__(
        self,
        view: RunView,
        run: RunController,
        database: Path,
        inventory: Callable[[], Inventory],
        sessions_of: Callable[[], "Sessions"],
        reads: Background,
        background: Background,
    ) -> None:
        self.news = QueueNews(view)
        self._view = view
        self._run = run
        self._database = database
        self._inventory = inventory
        self._sessions_of = sessions_of
        self._reads = reads
        self._background = background
        self._made: QueueController | None = None
        self._watch: QueueWatch | None = None
        self._over = False

    def start(self) -> None:
        """Listen to the form."""
        self._run.queue_asked.connect(lambda spec: self.controller().add_run(spec))
        self._run.queue_stop_asked.connect(self.stop)
        self._run.ended.connect(self._begin)
        self.news.changed.connect(lambda goes_on: self._run.show_queue(goes_on=goes_on))

    @property
    def goes_on(self) -> bool:
        """Whether this window makes the queue's runs."""
        return self._made is not None and self._made.goes_on

    def controller(self) -> "QueueController":
        """What adds to the queue and has its runs made."""
        if self._made is None:
            from app.gui.controllers.queue import QueueController

            self._made = QueueController(
                self._view.queue_view(),
                self.news,
                self._database,
                self._inventory,
                lambda told: self._sessions_of().queue(told),
                lambda: not self._run.running and not self._over,
                self._reads,
                self._background,
                self._run.show_error,
            )
        return self._made

    def look(self) -> None:
        """Offer to go on with what is in the queue; if that is nothing, nothing is imported for it."""
        self._reads.run(lambda: _has_entries(self._database), self._offer, self._run.show_error)

    def refresh(self) -> None:
        """Let the time left pass, and at rest see now and then what other programs put into the queue."""
        if self._made is not None:
            self._made.refresh()
        if self._watch is not None and not (self._run.running or self.goes_on or self._over):
            self._watch.look()

    def stop(self) -> None:
        """End the run that goes on, and pause the queue; the news tell when it has ended."""
        if self._made is not None:
            self._made.stop()

    def end(self) -> None:
        """Stop, and begin no more."""
        self._over = True
        self.stop()

    def _offer(self, has_entries: bool) -> None:
        if has_entries:
            self.controller().offer()
        if self._watch is None:
            self._watch = QueueWatch(
                self._database, self._reads, self._places, lambda more: self.controller().show_changed(more=more)
            )

    def _places(self) -> Places:
        return () if self._made is None else self._made.places

    def _begin(self) -> None:
        if self._made is not None:
            self._made.begin()


def _has_entries(database: Path) -> bool:
    from app.storage.store import Store

    with Store.open(database) as store:
        return bool(store.queue.entries())
