"""The Compare screen before anything is compared, with its offers."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot

from app.gui.app import Workbench
from app.gui.compare.screen import CompareView
from app.gui.threads import Background
from app.gui.widgets.panes import PageScroller
from app.gui.window import COMPARE, HISTORY
from app.gui.window_state import write_states
from app.runs.experiment.presets import load_preset
from app.storage.store import Store
from app.viewmodels.compare.offers import Offer
from tests.fakes.runs import begin
from tests.fakes.saved_experiments import save_experiment
from tests.gui.compare.test_compare import ComparePage
from tests.gui.screens import locked
from tests.gui.texts import displayed_text
from tests.unit.viewmodels.stored import keep, keep_all, run_row, stored_run


class EmptyPage(ComparePage):
    """The Compare screen with nothing compared."""

    def __init__(self, qtbot: QtBot, database: Path, background: Background) -> None:
        super().__init__(qtbot, database, background)
        self.controller.refresh()
        self.background = background

    def wait_read(self) -> None:
        """Wait until all is read that was asked for."""
        ended: list[None] = []
        self.background.run(lambda: None, ended.append, lambda _: None)
        self.qtbot.waitUntil(lambda: bool(ended))


def wait_offer(qtbot: QtBot, view: CompareView, title: str) -> Offer:
    qtbot.waitUntil(lambda: any(offer.title == title for offer in view.offers.offers))
    return next(offer for offer in view.offers.offers if offer.title == title)


def take(view: CompareView, offer: Offer) -> None:
    QTest.mouseClick(view.offers.offers[offer], Qt.MouseButton.LeftButton)


def compared(view: CompareView) -> set[int]:
    return {run for row in view.table.rows() for run in row.runs}


def baseline(view: CompareView) -> list[tuple[int, ...]]:
    return [tuple(row.runs) for row in view.table.rows() if row.is_baseline]


def shows_baseline(view: CompareView, run: int) -> bool:
    return baseline(view) == [(run,)]


@pytest.fixture
def page(qtbot: QtBot, database_path: Path, background: Background) -> Iterator[EmptyPage]:
    page = EmptyPage(qtbot, database_path, background)
    yield page
    page.destroy()


def test_the_last_variants_and_the_last_experiment_open_by_one_click(page: EmptyPage, database_path: Path) -> None:
    wait_offer(page.qtbot, page.view, "Your own experiment")
    with Store.open(database_path) as store:
        for number, units in ((1, 32), (2, 64), (3, 128)):
            keep(store, stored_run(run_row(number, units=units)))
        save_experiment(store.library, [1, 2], name="units=32,64", preset=None, plan='{"variants": []}')
    page.controller.refresh()
    variants, experiment = (
        wait_offer(page.qtbot, page.view, "The last two variants"),
        wait_offer(page.qtbot, page.view, "The last experiment"),
    )
    assert page.view.offers.experiments_button.isVisible()
    for offer, runs in ((variants, {2, 3}), (experiment, {1, 2})):
        with page.qtbot.waitSignal(page.view.painted):
            take(page.view, offer)
        assert compared(page.view) == runs


def test_what_was_compared_is_compared_again_in_the_next_window(
    window_state: Path, qtbot: QtBot, background: Background, database_path: Path
) -> None:
    keep_all(database_path, (stored_run(run_row(number, units=16 * 2**number)) for number in (1, 2, 3)))
    first = EmptyPage(qtbot, database_path, background)
    first.controller.show_runs([3, 1])
    qtbot.waitUntil(lambda: baseline(first.view) == [(3,)])
    first.controller.make_baseline(1)
    qtbot.waitUntil(lambda: baseline(first.view) == [(1,)])
    write_states(first.view)
    again, other = (EmptyPage(qtbot, database_path, background) for _ in range(2))
    other.controller.show_runs([2, 3])
    qtbot.waitUntil(lambda: compared(other.view) == {2, 3})
    qtbot.waitUntil(lambda: baseline(again.view) == [(1,)])
    assert compared(again.view) == {1, 3}
    assert compared(other.view) == {2, 3}, "not over what the user chose"
    for page in (first, again, other):
        page.destroy()


def test_the_reference_is_added_by_one_click_and_its_questions_are_compared_by_another(
    qtbot: QtBot, workbench: Workbench
) -> None:
    workbench.window.show_page(COMPARE)
    (view,) = workbench.window.findChildren(CompareView)
    add = wait_offer(qtbot, view, "Runs measured on real GPUs")
    take(view, add)
    assert not view.offers.offers[add].isEnabled()
    article = wait_offer(qtbot, view, load_preset("article-a").title)
    assert add not in view.offers.offers
    assert view.isVisible(), "another page does not come to the front"
    with qtbot.waitSignal(view.painted):
        take(view, article)
    assert compared(view) == set(article.runs)
    (asked,) = (action.text() for action in view.questions.actions() if action.isChecked())
    assert asked == "Implementation", "what the preset asks, not what most of its pairs show"


def test_the_keyboard_goes_to_the_first_offer_and_never_frames_the_page(qtbot: QtBot, workbench: Workbench) -> None:
    workbench.window.show_page(HISTORY)
    qtbot.waitUntil(lambda: workbench.window.focusWidget() is not None)
    workbench.window.show_page(COMPARE)
    (view,) = workbench.window.findChildren(CompareView)
    (page,) = (each for each in workbench.window.findChildren(PageScroller) if each.isAncestorOf(view))
    assert workbench.window.focusWidget() is page, "nothing in it can take it before the offers are read"
    surface = page.grab().toImage().pixelColor(0, 0)
    assert surface == view.grab().toImage().pixelColor(0, 0)
    build = wait_offer(qtbot, view, "Your own experiment")
    assert workbench.window.focusWidget() is next(iter(view.offers.offers.values()))
    take(view, build)
    qtbot.waitUntil(workbench.run_view.gallery.isVisible)


def test_a_reference_that_cannot_be_added_is_said_here(qtbot: QtBot, workbench: Workbench) -> None:
    with Store.open(workbench.database) as store:
        begin(store, uid="going-on")
    workbench.window.show_page(COMPARE)
    (view,) = workbench.window.findChildren(CompareView)
    add = wait_offer(qtbot, view, "Runs measured on real GPUs")
    take(view, add)
    qtbot.waitUntil(lambda: "A run is active" in displayed_text(view))
    qtbot.waitUntil(lambda: add in view.offers.offers and view.offers.offers[add].isEnabled())


def test_what_a_lock_kept_from_being_read_is_read_at_a_click(
    page: EmptyPage, database_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait_offer(page.qtbot, page.view, "Your own experiment")
    keep_all(database_path, (stored_run(run_row(number, units=units)) for number, units in ((1, 32), (2, 64))))
    retry = page.button("Try again")

    def ask_all() -> None:
        page.controller.refresh()
        page.controller.show_runs([1, 2])

    for ask, shown in ((ask_all, 1), (lambda: page.controller.make_baseline(2), 2)):
        with monkeypatch.context() as patched:
            patched.setattr(Store, "open", locked)
            ask()
            page.wait_read()
        assert "is locked" in displayed_text(page.view)
        assert retry.isEnabled()
        retry.click()
        page.qtbot.waitUntil(partial(shows_baseline, page.view, shown))
        assert "is locked" not in displayed_text(page.view)
    assert next(offer.title for offer in page.view.offers.offers) == "The last two variants", "both reads were repeated"
    page.controller.show_experiment(7)
    page.qtbot.waitUntil(lambda: "no runs left" in displayed_text(page.view))
    assert not retry.isVisible(), "to read once more does not help"
