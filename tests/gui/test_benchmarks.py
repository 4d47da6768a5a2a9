"""The benchmarks of the window, small."""

import shutil
from pathlib import Path

from PySide6.QtCore import QEvent, QObject
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.gui.theme import Theme
from app.queries import RUN_ORDERS, RunQuery
from app.report.charts.svg import text_width
from app.storage.reference import reference_runs
from app.storage.store import Store
from app.values.fields import FAST_FIELDS
from benchmarks.database import DRAWN, TYPED, measure, typed_prefixes
from benchmarks.frames import PlainPlots, ProgramPanels, frame_times, noise, recorded
from benchmarks.many_runs import Size, fill
from benchmarks.tour import StackWatch, Tour

SMALL = Size(runs=400, samples=20_000, long_runs=2, long_samples=1_000)


def test_the_made_database_is_of_its_size_and_worth_searching(database_path: Path) -> None:
    fill(database_path, SMALL)
    with Store.open(database_path) as store:
        rows = store.list_runs()
        (samples,) = store._db.execute("SELECT count(*) FROM samples").fetchone()
        found = {text: len(store.library.find(RunQuery(text=text))) for text in TYPED}
        orders = {tuple(store.library.find(RunQuery(order=order))) for order in RUN_ORDERS}
        drawn, short = store.load(SMALL.compared[0], DRAWN), store.load(1)
        facets, experiments = store.library.totals(), store.library.experiments()
    assert len(rows) == 400
    assert samples == 2 * (2 * 1_000 + 398 * SMALL.short_samples)
    assert all(0 < found[text] < 400 for text in TYPED[:4]), found
    assert len(orders) > 8, "every order is another one"
    assert [columns.t_ns.size for columns in drawn.samples] == [1_000, 1_000], "the host for its load"
    assert [columns.t_ns.size for columns in short.samples] == [SMALL.short_samples] * 2
    assert set(drawn.samples[0].fields) == set(DRAWN) < set(FAST_FIELDS)
    assert (facets.total, set(facets.tags)) == (400, {"baseline", "paper", "suspicious", "night"})
    assert {len(experiment.runs) for experiment in experiments} == {12}


def test_the_benchmark_gives_each_figure_with_its_baseline() -> None:
    size = Size(runs=60, samples=3_000, long_runs=2, long_samples=1_000)
    results = {result.name: result for result in measure(size, windows=1)}
    assert all(result.value > 0 for result in results.values())
    assert results["making 60 runs"].unit == "s"
    assert {
        "History first painted": 1_000.0,
        "2 runs of 1,000 samples on the Compare screen": 300.0,
        "2 runs of 1,000 samples read to be drawn, against whole": 0.9,
    }.items() <= {name: result.limit for name, result in results.items()}.items()
    assert sum("slowest search" in name for name in results) == 2
    assert sum(result.ratio is not None for result in results.values()) == 3
    assert typed_prefixes()[:4] == ["n", "nc", "nch", "nchw"]


def test_the_recorded_trace_has_two_curves_a_panel_of_any_length() -> None:
    pairs = recorded(9000)
    assert len(pairs) == 6
    assert all(len(curve) == 9000 for pair in pairs for curve in pair)
    power, _ = pairs[0]
    assert 70 < power.min() < 100
    assert 600 < power.max() < 800


def test_frames_of_both_windows_are_painted_and_timed(qtbot: QtBot, theme: Theme) -> None:
    curves = noise(200)
    ours, plain = ProgramPanels(curves, theme), PlainPlots(curves, theme)
    qtbot.addWidget(ours)
    qtbot.addWidget(plain)
    times = frame_times({"ours": ours, "plain": plain}, frames=2, rounds=1)
    assert {name: len(found) for name, found in times.items()} == {"ours": 2, "plain": 2}
    assert all(milliseconds > 0 for found in times.values() for milliseconds in found)
    for panel in ours.panels:
        assert panel.columns_drawn("0") > 900


class _Paints(QObject):
    """Counts what is painted of the widgets that it watches."""

    count = 0

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        self.count += event.type() == QEvent.Type.Paint
        return super().eventFilter(watched, event)


def test_a_frame_paints_each_plot_once_and_no_titles(qtbot: QtBot, theme: Theme) -> None:
    ours = ProgramPanels(noise(200), theme)
    qtbot.addWidget(ours)
    ours.resize(1400, 900)
    ours.show()
    QApplication.processEvents()
    titles, painted = _Paints(), list[int]()
    for number, panel in enumerate(ours.panels):
        panel.plot.painting.connect(lambda number=number: painted.append(number))
        panel.head.title.installEventFilter(titles)
    frame_times({"ours": ours}, frames=1, rounds=1)
    assert sorted(painted[-6:]) == list(range(6))
    assert titles.count == 0


def test_a_tour_uses_every_screen_and_times_each_step(
    qtbot: QtBot, theme: Theme, reference_database: Path, database_path: Path
) -> None:
    shutil.copyfile(reference_database, database_path)
    with Store.open(database_path) as store:
        runs = reference_runs(store)
    tour = Tour(database_path, runs[:9], theme, pause_s=0.0)
    qtbot.addWidget(tour.window)
    try:
        tour.start()
        tour.go()
        steps = [name for name, _ in tour.steps()]
    finally:
        tour.close()
    assert set(tour.longest) == {"start", *steps}
    assert {"open Monitor", "evidence", "compare 8", "tab Charts of 9", "dark Compare"} <= set(steps)
    assert all(turn.ms > 0 for turn in tour.longest.values())
    assert {"open Monitor", "evidence", "group by experiment", "dark Compare"} <= set(tour.feedback_ms) <= set(steps)
    assert all(tour.feedback_ms[name] > 0 for name in tour.feedback_ms)
    assert tour.clock_ms >= max(turn.ms for turn in tour.longest.values()) - 1


def test_the_watch_says_what_is_under_way_in_a_long_turn() -> None:
    watch = StackWatch()
    watch.start()
    try:
        watch.begin()
        while not watch.seen:
            text_width("m" * 10_000)
        assert watch.end().endswith("text_width")
        watch.begin()
        assert watch.end() == ""
    finally:
        watch.close()
