import numpy as np
from pytestqt.qtbot import QtBot

from app.bench.frames import Ours, Plain, frame_times, noise, recorded
from app.gui.theme import Theme


def test_the_recorded_trace_has_two_curves_a_panel_of_any_length() -> None:
    pairs = recorded(9000)
    assert len(pairs) == 6
    assert all(len(curve) == 9000 for pair in pairs for curve in pair)
    power, _ = pairs[0]
    assert 70 < power.min() < 100
    assert 600 < power.max() < 800


def test_frames_of_both_windows_are_painted_and_timed(qtbot: QtBot, theme: Theme) -> None:
    curves = noise(200)
    ours, plain = Ours(curves, theme), Plain(curves, theme)
    qtbot.addWidget(ours)
    qtbot.addWidget(plain)
    times = frame_times({"ours": ours, "plain": plain}, frames=2, rounds=1)
    assert {name: len(found) for name, found in times.items()} == {"ours": 2, "plain": 2}
    assert all(milliseconds > 0 for found in times.values() for milliseconds in found)
    for panel in ours.panels:
        assert panel.columns_drawn("0") > 900


def test_every_plot_is_painted_once_a_frame(qtbot: QtBot, theme: Theme) -> None:
    ours = Ours(noise(200), theme)
    qtbot.addWidget(ours)
    painted: list[int] = []
    for number, panel in enumerate(ours.panels):
        panel.plot.painting.connect(lambda number=number: painted.append(number))
    frame_times({"ours": ours}, frames=1, rounds=1)
    last = painted[-6:]
    assert np.unique(last).tolist() == list(range(6))
