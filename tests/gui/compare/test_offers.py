"""The Compare screen before anything is compared: every button that it offers does what it says."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot

from app.gui.app import COMPARE
from app.gui.compare.compare_controller import CompareController
from app.gui.compare.offers import OffersView
from app.gui.compare.screen import CompareView
from app.gui.theme import Theme
from app.gui.threads import Background
from app.storage.store import Store
from app.viewmodels.compare.offers import Offer
from tests.gui.screens import Screen
from tests.gui.windows import READ_LIMIT_MS, RUN_LIMIT_MS, window_on
from tests.unit.viewmodels.stored import keep, run_row, stored_run


class EmptyPage(Screen[CompareView]):
    """The Compare screen with nothing compared."""

    def __init__(self, qtbot: QtBot, database: Path, background: Background) -> None:
        super().__init__(qtbot, CompareView(Theme()), 1024, 700)
        self.controller = CompareController(self.view, database, background)
        self.controller.refresh()

    def wait_offer(self, title: str, limit_ms: int = READ_LIMIT_MS) -> Offer:
        self.qtbot.waitUntil(lambda: any(offer.title == title for offer in self.view.offers.offers), timeout=limit_ms)
        return next(offer for offer in self.view.offers.offers if offer.title == title)

    def take(self, offer: Offer) -> None:
        QTest.mouseClick(self.view.offers.offers[offer], Qt.MouseButton.LeftButton)

    def compared(self) -> set[int]:
        return {run for row in self.view.table.rows() for run in row.runs}


@pytest.fixture
def page(qtbot: QtBot, database_path: Path) -> Iterator[EmptyPage]:
    background = Background()
    made = EmptyPage(qtbot, database_path, background)
    yield made
    background.close()
    made.destroy()


def test_the_last_variants_and_the_last_experiment_open_by_one_click(page: EmptyPage, database_path: Path) -> None:
    page.wait_offer("An experiment of your own")
    with Store.open(database_path) as store:
        for number, units in ((1, 32), (2, 64), (3, 128)):
            keep(store, stored_run(run_row(number, units=units)))
        store.library.save_experiment([1, 2], name="units=32,64", preset=None, plan='{"variants": []}')
    page.controller.refresh()
    variants, experiment = page.wait_offer("The last two variants"), page.wait_offer("The last experiment")
    assert page.view.offers.experiments_button.isVisible()
    for offer, runs in ((variants, {2, 3}), (experiment, {1, 2})):
        with page.qtbot.waitSignal(page.view.painted, timeout=READ_LIMIT_MS):
            page.take(offer)
        assert page.compared() == runs


def test_the_reference_is_added_by_one_click_and_its_articles_open_by_another(page: EmptyPage) -> None:
    add = page.wait_offer("Runs measured on real GPUs")
    with page.qtbot.waitSignal(page.controller.offers.runs_added, timeout=RUN_LIMIT_MS):
        page.take(add)
        assert not page.view.offers.offers[add].isEnabled()
    article = page.wait_offer("channels_first makes GPU training a little faster (2019)", RUN_LIMIT_MS)
    assert add not in page.view.offers.offers
    with page.qtbot.waitSignal(page.view.tabs.article_requested, timeout=RUN_LIMIT_MS):
        page.take(article)
    assert page.compared() == set(article.runs)


def test_an_experiment_of_ones_own_begins_with_the_prepared_ones(
    qtbot: QtBot, database_path: Path, theme: Theme
) -> None:
    with window_on(qtbot, database_path, theme) as workbench:
        workbench.window.show_page(COMPARE)
        empty = workbench.window.findChild(OffersView)
        assert isinstance(empty, OffersView)
        qtbot.waitUntil(lambda: bool(empty.offers), timeout=READ_LIMIT_MS)
        build = next(made for offer, made in empty.offers.items() if offer.action == "build")
        QTest.mouseClick(build, Qt.MouseButton.LeftButton)
        matrix = workbench.run_view.matrix
        assert matrix is not None
        qtbot.waitUntil(matrix.presets.isVisible, timeout=READ_LIMIT_MS)
