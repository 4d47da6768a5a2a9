"""Qt objects in reference cycles die on the GUI thread, whoever allocates meanwhile."""

import gc
import threading
from collections.abc import Iterator

import pytest
from PySide6.QtCore import QObject
from pytestqt.qtbot import QtBot

from app.gui.garbage import GuiCollector


class Cycle(QObject):
    def __init__(self, deaths: list[int]) -> None:
        super().__init__()
        self.me = self
        self.deaths = deaths

    def __del__(self) -> None:
        self.deaths.append(threading.get_ident())


@pytest.fixture
def collector(qtbot: QtBot) -> Iterator[GuiCollector]:
    made = GuiCollector()
    made.start()
    yield made
    made.stop()


def allocate_much() -> None:
    kept = [[number] for number in range(200_000)]
    assert len(kept) == 200_000


def test_another_threads_allocations_collect_nothing_and_the_timer_does(qtbot: QtBot, collector: GuiCollector) -> None:
    deaths: list[int] = []
    Cycle(deaths)
    other = threading.Thread(target=allocate_much)
    other.start()
    other.join()
    assert deaths == []
    qtbot.waitUntil(lambda: deaths == [threading.get_ident()])


def test_stopping_hands_collection_back(qtbot: QtBot) -> None:
    made = GuiCollector()
    made.start()
    assert not gc.isenabled()
    made.stop()
    assert gc.isenabled()
