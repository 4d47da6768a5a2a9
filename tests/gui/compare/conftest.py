"""The Compare screen without a database, shown at the size of a large window."""

import pytest
from pytestqt.qtbot import QtBot

from app.gui.compare.screen import CompareView
from app.gui.theme import Theme
from tests.gui.actions import RecordedActions
from tests.gui.screens import expose


@pytest.fixture
def screen(qtbot: QtBot, theme: Theme, recorded: RecordedActions) -> CompareView:
    view = CompareView(theme, recorded.actions)
    expose(qtbot, view, 1300, 1000)
    return view
