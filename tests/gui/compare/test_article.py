"""The tab of the article that the compared runs repeat; its tables are made when it is first opened."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication, QKeySequence
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot

from app.gui.app import Workbench
from app.gui.compare.compare_controller import CompareController
from app.gui.compare.screen import CompareView
from app.gui.compare.tabs import ArticleView
from app.gui.theme import DARK, LIGHT, Theme
from app.gui.threads import Background
from app.runs.experiment.presets import load_preset
from app.storage.store import Store
from tests.fakes.experiments import result
from tests.gui.actions import RecordedActions
from tests.gui.screens import Screen
from tests.unit.viewmodels.stored import keep, run_row, stored_run

LIMIT_MS = 120_000
TITLE = "channels_first makes GPU training a little faster"


class ArticlePage(Screen[CompareView]):
    """The Compare screen on a database with some runs of an article's experiment."""

    def __init__(self, qtbot: QtBot, theme: Theme, database: Path, background: Background) -> None:
        actions = RecordedActions().actions
        view = CompareView(theme, actions)
        theme.apply_style_sheet(view)
        super().__init__(qtbot, view, 1300, 800)
        self.controller = CompareController(view, database, background, actions)

    def compare(self, *runs: int, article: bool = False) -> None:
        with self.qtbot.waitSignal(self.view.painted, timeout=LIMIT_MS):
            self.controller.show_runs(list(runs), article=article)

    def wait_article(self, words: str) -> ArticleView:
        self.qtbot.waitUntil(lambda: words in self.article_text(), timeout=LIMIT_MS)
        assert self.view.tabs.article is not None
        return self.view.tabs.article

    def article_text(self) -> str:
        shown = self.view.tabs.article
        return "" if shown is None or not shown.isVisible() else shown.toPlainText()


@pytest.fixture
def database(database_path: Path) -> Path:
    """Runs 1 to 4 are of article C at batch 128 on one GPU, NHWC and NCHW twice; 5 and 6 are of nothing known."""
    nhwc, nchw, *_ = load_preset("article-c").all_plans()[0].variants
    with Store.open(database_path) as store:
        for number, (spec, throughput) in enumerate(
            ((nhwc, 1000.0), (nchw, 1100.0), (nchw, 1102.0), (nhwc, 1002.0)), 1
        ):
            keep(store, result(number, spec, throughput))
        for number, units in ((5, 64), (6, 128)):
            keep(store, stored_run(run_row(number, units=units)))
    return database_path


@pytest.fixture
def screen(qtbot: QtBot, theme: Theme, database: Path) -> Iterator[ArticlePage]:
    background = Background()
    made = ArticlePage(qtbot, theme, database, background)
    yield made
    background.close()
    made.destroy()


def test_the_tab_is_there_for_runs_of_an_article_only(screen: ArticlePage) -> None:
    screen.compare(1, 2, 5)
    assert "Article" not in screen.view.tabs.titles, "most of its cells would be empty"
    screen.compare(1, 2, article=True)
    assert "Article" in screen.view.tabs.titles, "who asks for it gets it"
    screen.compare(5, 6)
    assert "Article" not in screen.view.tabs.titles


def test_its_tables_are_made_when_it_is_opened_and_can_be_copied(screen: ArticlePage) -> None:
    assert screen.view.tabs.article is None
    screen.compare(1, 2, 3, 4, article=True)
    article = screen.wait_article(TITLE)
    words = screen.article_text()
    assert "Measured on NVIDIA H200 · NVIDIA driver 580.1 · TensorFlow 2.21.0" in words
    assert "+10.0 %" in words, "the gain of NCHW"
    assert "just under 10 % faster, on one GPU and on two" in words, "what the article says"
    assert words.count("The article measured on 2x RTX 2080 Ti.") == 1
    assert words.count(TITLE) == 1, "told once, not below each table"
    article.setFocus()
    QTest.keySequence(article, QKeySequence(QKeySequence.StandardKey.SelectAll))
    QTest.keySequence(article, QKeySequence(QKeySequence.StandardKey.Copy))
    rows = [[cell.strip() for cell in line.split("|")] for line in QGuiApplication.clipboard().text().splitlines()]
    figures = next(row for row in rows if row[2:3] == ["128"])
    assert figures[3:5] == ["1,001", "1,101"], "plain text has a row a line"
    assert "`" not in QGuiApplication.clipboard().text()
    copied = QGuiApplication.clipboard().mimeData()
    assert "<table" in copied.html(), "a spreadsheet gets cells"
    assert not {"\N{WORD JOINER}"} & {*copied.html(), *copied.text()}
    article.setTextCursor(article.document().find("NCHW gain"))
    QTest.keySequence(article, QKeySequence(QKeySequence.StandardKey.Copy))
    assert QGuiApplication.clipboard().text() == "NCHW gain"


def test_heads_of_narrow_columns_break_between_words_only(theme: Theme, qtbot: QtBot) -> None:
    view = ArticleView(theme)
    qtbot.addWidget(view)
    view.resize(300, 400)
    view.show_article(
        "<table><thead><tr><th>Article: speed-up by images/s, %</th></tr></thead>"
        "<tbody><tr><td>1</td></tr></tbody></table><p>well-known images/s</p>"
    )
    view.show()
    qtbot.waitUntil(lambda: "speed" in view.toPlainText(), timeout=LIMIT_MS)
    head = view.document().begin()
    while "speed" not in head.text():
        head = head.next()
    for width in range(60, 400, 10):
        view.document().setTextWidth(width)
        lines = [head.layout().lineAt(n) for n in range(head.layout().lineCount())]
        broken = [head.text()[line.textStart() :][: line.textLength()].strip() for line in lines]
        words = {word for line in broken for word in line.replace("\N{WORD JOINER}", "").split(" ")}
        assert words <= {"Article:", "speed-up", "by", "images/s,\N{NO-BREAK SPACE}%"}, f"at {width} pixels"


def test_there_is_no_bar_to_move_a_page_by_two_pixels(theme: Theme, qtbot: QtBot) -> None:
    view = ArticleView(theme)
    qtbot.addWidget(view)
    for most, policy in ((2, Qt.ScrollBarPolicy.ScrollBarAlwaysOff), (50, Qt.ScrollBarPolicy.ScrollBarAsNeeded)):
        view.horizontalScrollBar().setRange(0, most)
        assert view.horizontalScrollBarPolicy() == policy


def test_other_runs_have_other_tables_and_the_tab_stays_open(screen: ArticlePage, database: Path) -> None:
    screen.compare(1, 2, article=True)
    screen.wait_article("2 runs")
    screen.compare(1, 2, 3, article=True)
    screen.wait_article("3 runs")
    screen.compare(5, 6)
    assert screen.article_text() == ""


def test_while_tables_are_made_those_of_other_runs_are_not_shown(screen: ArticlePage) -> None:
    screen.compare(1, 2, article=True)
    screen.wait_article("2 runs")
    screen.compare(5, 6)
    article = screen.view.tabs.article
    assert article is not None
    assert article.toPlainText() == ""
    screen.compare(1, 2, 3, article=True)
    screen.wait_article("3 runs")


def test_who_asks_for_the_article_gets_the_table_where_there_is_none(screen: ArticlePage) -> None:
    screen.compare(5, 6, article=True)
    assert screen.view.table.isVisible()


def test_it_takes_the_colours_of_the_scheme(screen: ArticlePage, theme: Theme) -> None:
    screen.compare(1, 2, article=True)
    article = screen.wait_article(TITLE)
    assert LIGHT.muted in article.toHtml()
    theme.apply(Qt.ColorScheme.Dark)
    screen.qtbot.waitUntil(lambda: DARK.muted in article.toHtml())
    assert TITLE in article.toPlainText()


def test_no_word_of_a_narrow_head_is_broken(qtbot: QtBot, theme: Theme) -> None:
    view = ArticleView(theme)
    qtbot.addWidget(view)
    view.resize(500, 300)
    heads = "".join(f"<th>Measured, XLA: {what}</th>" for what in ("GFLOPS", "speed-up", "ms a step") * 2)
    view.show_article(f"<table><tr>{heads}</tr></table>")
    view.show()
    qtbot.waitUntil(lambda: "XLA" in view.toPlainText(), timeout=LIMIT_MS)
    block, ends = view.document().begin(), set()
    while block.isValid():
        lines = [block.layout().lineAt(n) for n in range(block.layout().lineCount())]
        ends |= {block.text()[line.textStart() + line.textLength() - 1] for line in lines[:-1]}
        block = block.next()
    assert ends
    assert ends <= {" ", "-"}


def test_a_report_of_such_runs_has_the_tables_too(screen: ArticlePage, tmp_path: Path) -> None:
    screen.compare(1, 2, 3, 4)
    file = tmp_path / "report.html"
    screen.controller.save_report(file)
    screen.wait_for_text(str(file))
    words = file.read_text(encoding="utf-8")
    assert "just under 10 % faster" in words
    assert "It measured on 2x RTX 2080 Ti. Measured on NVIDIA H200 · NVIDIA driver 580.1" in words


def test_reference_runs_are_told_from_the_users(screen: ArticlePage, database: Path) -> None:
    nhwc, nchw, *_ = load_preset("article-c").all_plans()[0].variants
    with Store.open(database) as store:
        for number, (spec, throughput) in enumerate(((nhwc, 2000.0), (nchw, 3000.0)), 7):
            store.library.add_tag([keep(store, result(number, spec, throughput))], "reference")
    screen.compare(1, 2, 7, 8, article=True)
    screen.wait_article("Reference, measured on NVIDIA H200")
    own, reference = screen.article_text().split("Reference, ")
    assert ("+10.0 %" in own, "+50.0 %" in own) == (True, False)
    assert ("+10.0 %" in reference, "+50.0 %" in reference) == (False, True)


@pytest.mark.usefixtures("database")
def test_an_experiment_of_an_article_opens_on_it(qtbot: QtBot, workbench: Workbench) -> None:
    workbench.actions.compare_experiment([1, 2])
    page = workbench.window.findChild(CompareView)
    assert isinstance(page, CompareView)
    parts = page.tabs
    qtbot.waitUntil(lambda: parts.article is not None and TITLE in parts.article.toPlainText(), timeout=LIMIT_MS)
    assert parts.article is not None
    assert parts.article.isVisible()
