"""Several runs at once on different GPUs on the Run screen: real dummy workers, a fake driver below NVML."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot

from app.gui.app import Workbench
from app.gui.run.live import LiveView
from app.gui.theme import Theme
from app.values.plan import Plan
from tests.fakes.nvml import TWO_H200, Driver, environment
from tests.gui.texts import displayed_text
from tests.gui.windows import choose, window_on
from workloads.catalog import Gpu, Machine, complete

UUIDS = [card.uuid for card in TWO_H200]
TWO_GPUS = Machine(gpus=tuple(Gpu(index=n, uuid=card.uuid, name=card.name) for n, card in enumerate(TWO_H200)))


@pytest.fixture
def two_gpus(qtbot: QtBot, theme: Theme, database_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workbench]:
    for name, value in environment(Driver(cards=TWO_H200)).items():
        monkeypatch.setenv(name, value)
    with window_on(qtbot, database_path, theme) as made:
        yield made


def at_once(*lengths_s: float) -> Plan:
    """An experiment whose variants are measured so long each, two of them at once, without a wait before any."""
    variants = [
        complete("dummy", {"gpus": 1, "step_ms": 20.0, "seconds": seconds, "batch_size": 8 * (n + 1)}, TWO_GPUS)
        for n, seconds in enumerate(lengths_s)
    ]
    return Plan(name="at once", variants=tuple(variants), repeats=1, parallel=2, max_idle_wait_s=0.0)


def tabs_of(live: LiveView) -> list[str]:
    return [live.runs.tabText(n) for n in range(live.runs.count()) if live.runs.isVisible()]


def is_measured(live: LiveView, gpu: str, batch: int) -> bool:
    """Whether what is shown is a run of this batch size that measures on this GPU, and on it alone."""
    words = displayed_text(live)
    if f"batch {batch}" not in live.name_label.text() or "Measuring" not in words or "examples/s" not in words:
        return False
    return live.stack.panel("power_mw").shown_keys() == (gpu,) and losses(live) > 1


def losses(live: LiveView) -> int:
    return len(live.stack.panel("loss").curves["run"].source.points()[0])


def test_each_of_two_runs_at_once_has_a_tab_and_keeps_what_it_tells_while_hidden(
    qtbot: QtBot, two_gpus: Workbench
) -> None:
    live = two_gpus.run_view.live
    two_gpus.queue.add(at_once(600.0, 600.0))
    qtbot.waitUntil(lambda: len(tabs_of(live)) == 2)
    assert sorted(words.partition(" · run ")[0] for words in tabs_of(live)) == ["GPU 0", "GPU 1"]
    shown = live.runs.currentIndex()
    batches = [int(words.rpartition(" ")[2]) for words in tabs_of(live)]
    qtbot.waitUntil(lambda: is_measured(live, UUIDS[shown], batches[shown]))
    before = losses(live)
    QTest.mouseClick(live.runs, Qt.MouseButton.LeftButton, pos=live.runs.tabRect(1 - shown).center())
    qtbot.waitUntil(lambda: is_measured(live, UUIDS[1 - shown], batches[1 - shown]))
    others = losses(live)
    qtbot.waitUntil(lambda: losses(live) > others + 2)
    QTest.keyClick(live.runs, Qt.Key.Key_Left if shown == 0 else Qt.Key.Key_Right)
    assert is_measured(live, UUIDS[shown], batches[shown])
    assert losses(live) > before, "it went on out of sight"
    assert "2 runs at once: Batch size 8; Batch size 16" in displayed_text(two_gpus.run_view.queue_view())
    two_gpus.run.stop()
    qtbot.waitUntil(lambda: not two_gpus.queue.running)
    assert [words[0] for words in tabs_of(live)] == ["■", "■"], "both ends can be looked at"


def test_when_the_run_shown_ends_the_newest_that_goes_on_is_shown(qtbot: QtBot, two_gpus: Workbench) -> None:
    live = two_gpus.run_view.live
    two_gpus.queue.add(at_once(0.5, 600.0))
    qtbot.waitUntil(lambda: [words[0] for words in tabs_of(live)] == ["✔", "G"])
    assert live.runs.currentIndex() == 1
    qtbot.waitUntil(lambda: is_measured(live, UUIDS[1], 16))
    live.runs.setCurrentIndex(0)
    assert "Completed" in displayed_text(live)
    two_gpus.run.stop()
    qtbot.waitUntil(lambda: not two_gpus.queue.running)
    assert "Completed" in displayed_text(live), "what was turned to stays"
    choose(two_gpus, seconds=0.1)
    with qtbot.waitSignal(two_gpus.run.ended):
        two_gpus.run.run()
    assert tabs_of(live) == []
