"""Work that waits: until a widget is seen, and between turns of the event loop."""

import time
from collections.abc import Iterator

import pytest
from PySide6.QtCore import QEventLoop, QObject, QTimer
from PySide6.QtGui import QPaintEvent
from PySide6.QtWidgets import QCheckBox, QStackedWidget, QStyle, QStyleOptionButton, QVBoxLayout, QWidget
from pytestqt.qtbot import QtBot
from shiboken6 import delete, isValid

from app.gui.compare.tabs import ArticleView
from app.gui.run.evidence import EvidencePanel
from app.gui.theme import DARK, DARK_ALWAYS, LIGHT, LIGHT_ALWAYS, Theme
from app.gui.widgets.basic import text_label
from app.gui.widgets.pacing import PaintTurns, Slices, WhenSeen
from app.viewmodels.history.evidence import stored_evidence_view
from tests.fakes.traces import CONV, traced_run


def busy(seconds: float) -> None:
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        pass


def shown_stack(qtbot: QtBot, *pages: QWidget) -> QStackedWidget:
    stack = QStackedWidget()
    qtbot.addWidget(stack)
    for page in pages:
        stack.addWidget(page)
    stack.show()
    qtbot.waitExposed(stack)
    return stack


def test_what_is_not_seen_is_done_once_when_it_is_shown(qtbot: QtBot) -> None:
    front, behind = QWidget(), QWidget()
    stack = shown_stack(qtbot, front, behind)
    done: list[str] = []
    at_once, later = WhenSeen(front, lambda: done.append("front")), WhenSeen(behind, lambda: done.append("behind"))
    for asked in (at_once, later, later):
        asked.ask()
    assert done == ["front"]
    stack.setCurrentWidget(behind)
    assert done == ["front", "behind"]
    stack.setCurrentWidget(front)
    stack.setCurrentWidget(behind)
    later.finish()
    assert done == ["front", "behind"]
    stack.setCurrentWidget(front)
    later.ask()
    later.cancel()
    stack.setCurrentWidget(behind)
    assert done == ["front", "behind"], "nobody needs it any more"


def test_a_hidden_widget_follows_the_theme_when_it_is_shown(qtbot: QtBot, theme: Theme) -> None:
    front, behind = QWidget(), QWidget()
    stack = shown_stack(qtbot, front, behind)
    seen: list[str] = []
    theme.choose(LIGHT_ALWAYS)
    theme.follow(behind, lambda: seen.append(theme.colours.scheme))
    theme.choose(DARK_ALWAYS)
    theme.choose(LIGHT_ALWAYS)
    theme.choose(DARK_ALWAYS)
    assert seen == []
    stack.setCurrentWidget(behind)
    assert seen == ["dark"]
    theme.choose(LIGHT_ALWAYS)
    assert seen == ["dark", "light"]


def test_what_is_hidden_takes_its_colours_when_it_is_shown_or_soon(qtbot: QtBot, theme: Theme) -> None:
    front, behind = text_label("front", "problem"), text_label("behind", "problem")
    stack = shown_stack(qtbot, front, behind)
    theme.choose(LIGHT_ALWAYS)
    theme.apply_style_sheet(stack)
    theme.choose(DARK_ALWAYS)
    assert [label.palette().windowText().color().name() for label in (front, behind)] == [DARK.bad, LIGHT.bad]
    stack.setCurrentWidget(behind)
    assert behind.palette().windowText().color().name() == DARK.bad
    theme.choose(LIGHT_ALWAYS)
    qtbot.waitUntil(lambda: front.palette().windowText().color().name() == LIGHT.bad)
    assert front.isHidden()


def test_the_mark_of_a_box_is_dark_in_the_dark_scheme_and_white_in_the_light_one(qtbot: QtBot, theme: Theme) -> None:
    around = QWidget()
    qtbot.addWidget(around)
    theme.apply_style_sheet(around)
    box = QCheckBox(around)
    box.setChecked(True)
    around.show()

    def extremes() -> tuple[int, int]:
        option = QStyleOptionButton()
        box.initStyleOption(option)
        area = box.style().subElementRect(QStyle.SubElement.SE_CheckBoxIndicator, option, box)
        picture = box.grab(area.adjusted(3, 3, -3, -3)).toImage()
        found = [picture.pixelColor(x, y).lightness() for x in range(picture.width()) for y in range(picture.height())]
        return min(found), max(found)

    theme.choose(DARK_ALWAYS)
    assert extremes()[0] < 80
    theme.choose(LIGHT_ALWAYS)
    assert extremes()[1] > 220


def test_an_article_is_laid_out_when_it_is_seen(qtbot: QtBot, theme: Theme) -> None:
    front, article = QWidget(), ArticleView(theme)
    stack = shown_stack(qtbot, front, article)
    article.show_article("<p>measured</p>")
    theme.choose(DARK_ALWAYS)
    assert article.toPlainText() == ""
    stack.setCurrentWidget(article)
    qtbot.waitUntil(lambda: article.toPlainText() == "measured")


class SlowPaint(QWidget):
    """Takes 8 ms to paint itself, when it may."""

    def __init__(self, turns: PaintTurns, said: list[str]) -> None:
        super().__init__()
        self._turns = turns
        self._said = said

    def paintEvent(self, _event: QPaintEvent) -> None:
        if not self._turns.take(self):
            self._said.append("waits")
            return
        busy(0.008)
        self._said.append("painted")


def test_what_takes_long_to_paint_is_painted_in_turns(qtbot: QtBot) -> None:
    window = QWidget()
    turns, said = PaintTurns(window), list[str]()
    column = QVBoxLayout(window)
    for _ in range(5):
        column.addWidget(SlowPaint(turns, said))
    qtbot.addWidget(window)
    window.resize(200, 200)
    window.show()
    qtbot.waitUntil(lambda: said.count("painted") >= 5)
    assert "waits" in said
    assert not turns.busy


def test_what_is_painted_first_counts_and_waits_for_none(qtbot: QtBot) -> None:
    window = QWidget()
    turns, said = PaintTurns(window), list[str]()

    class Leading(QWidget):
        def paintEvent(self, _event: QPaintEvent) -> None:
            busy(0.012)
            said.append("led")

    leading, other = Leading(), SlowPaint(turns, said)
    column = QVBoxLayout(window)
    column.addWidget(leading)
    column.addWidget(other)
    turns.lead(leading)
    qtbot.addWidget(window)
    window.resize(200, 200)
    window.show()
    qtbot.waitUntil(lambda: "painted" in said)
    assert said == ["led", "waits", "painted"]


def test_what_an_event_leaves_for_later_comes_after_all_is_painted_and_after_the_next_input(qtbot: QtBot) -> None:
    said: list[str] = []

    class Painted(QWidget):
        def paintEvent(self, _event: QPaintEvent) -> None:
            said.append("painted")

    shown = Painted()
    qtbot.addWidget(shown)
    shown.show()
    qtbot.waitUntil(lambda: bool(said))
    said.clear()
    now, later = Slices(shown), Slices(shown)

    def steps(name: str) -> Iterator[None]:
        for part in (1, 2):
            said.append(f"{name} {part}")
            busy(0.012)
            yield

    def act() -> None:
        later.start(steps("later"), later=True)
        now.start(steps("now"))
        shown.update()
        QTimer.singleShot(0, shown, lambda: said.append("end of the turn"))

    QTimer.singleShot(0, shown, act)
    qtbot.waitUntil(lambda: len(said) == 6)
    assert said[:3] == ["now 1", "painted", "end of the turn"] or said[:3] == ["now 1", "end of the turn", "painted"]
    assert sorted(said[3:]) == ["later 1", "later 2", "now 2"]


def test_slices_of_two_owners_do_not_share_a_turn(qtbot: QtBot) -> None:
    parent = QWidget()
    qtbot.addWidget(parent)
    turns: dict[str, int] = {}
    begun: list[None] = []

    def step(name: str) -> Iterator[None]:
        end_s = time.thread_time() + 0.012
        while time.thread_time() < end_s:
            pass
        turns[name] = len(begun)
        yield

    for name in ("one", "other"):
        Slices(parent).start(step(name), later=True)
    loop = QEventLoop()
    while len(turns) < 2 and len(begun) < 1000:
        begun.append(None)
        loop.processEvents()
    assert turns["one"] != turns["other"]


def test_what_is_left_can_be_made_at_once(qtbot: QtBot) -> None:
    parent = QWidget()
    qtbot.addWidget(parent)
    made: list[int] = []
    slices = Slices(parent)
    slices.start(map(made.append, [1, 2]), later=True)
    assert made == []
    slices.finish()
    assert made == [1, 2]
    assert not slices.busy
    slices.finish()
    assert made == [1, 2]


def test_slices_let_other_work_in_and_say_when_they_are_done(qtbot: QtBot) -> None:
    parent = QWidget()
    qtbot.addWidget(parent)
    made: list[int] = []
    seen_by_input: list[int] = []

    def steps() -> Iterator[None]:
        for number in range(40):
            busy(0.002)
            made.append(number)
            yield

    slices = Slices(parent)
    QTimer.singleShot(0, parent, lambda: seen_by_input.append(len(made)))
    with qtbot.waitSignal(slices.done):
        slices.start(steps())
        assert 0 < len(made) < 40
        assert slices.busy
    assert made == list(range(40))
    assert seen_by_input[0] < 40
    assert not slices.busy


def test_new_steps_replace_those_that_are_left(qtbot: QtBot) -> None:
    parent = QWidget()
    qtbot.addWidget(parent)
    made: list[str] = []
    slices = Slices(parent)
    ends: list[None] = []
    slices.done.connect(lambda: ends.append(None))

    def long() -> Iterator[None]:
        for _ in range(1000):
            busy(0.002)
            made.append("old")
            yield

    slices.start(long())
    before = len(made)
    slices.start(map(made.append, ["new"] * 3))
    qtbot.waitUntil(lambda: not slices.busy)
    assert made[before:] == ["new"] * 3
    assert ends == [None]


def test_evidence_is_laid_out_only_when_it_is_seen(qtbot: QtBot, theme: Theme) -> None:
    panel, front = EvidencePanel(theme), QWidget()
    stack = shown_stack(qtbot, front, panel)
    panel.show_view(stored_evidence_view(traced_run(1, 20.0, {CONV: 4.0})))
    assert panel.widget() is None
    stack.setCurrentWidget(panel)
    assert panel.widget() is not None


@pytest.mark.usefixtures("qapp")
def test_a_last_step_may_end_what_the_steps_are_of() -> None:
    owner = QObject()
    slices = Slices(owner)
    slices.start(map(delete, [owner]))
    assert not isValid(slices)
