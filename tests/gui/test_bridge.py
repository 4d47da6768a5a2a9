import threading

from pytestqt.qtbot import QtBot

from app.gui.bridge import Bridge, BridgeSink
from app.records import LogLine, Waiting
from tests.unit.viewmodels.events import GPU_INVENTORY, ns, samples, started


def test_events_of_other_threads_arrive_in_order_on_the_gui_thread(qtbot: QtBot) -> None:
    bridge = Bridge()
    seen: list[tuple[object, bool]] = []
    bridge.arrived.connect(
        lambda event, _run: seen.append((event, threading.current_thread() is threading.main_thread()))
    )
    lines = [LogLine(n, str(n)) for n in range(5000)]

    def send() -> None:
        for line in lines:
            bridge.post(line)

    sender = threading.Thread(target=send)
    sender.start()
    qtbot.waitUntil(lambda: len(seen) == len(lines))
    sender.join()
    assert [event for event, _ in seen] == lines
    assert all(on_gui_thread for _, on_gui_thread in seen)
    bridge.close()


def test_the_timer_rests_when_nothing_arrives_and_wakes_again(qtbot: QtBot) -> None:
    bridge = Bridge()
    for round_ in range(3):
        with qtbot.waitSignal(bridge.drained):
            bridge.post(LogLine(round_, "line"))
        qtbot.waitUntil(lambda: not bridge._timer.isActive())


def test_a_run_sends_its_events_with_its_number_and_no_samples_twice(qtbot: QtBot) -> None:
    bridge = Bridge()
    seen: list[tuple[str, int | None]] = []
    bridge.arrived.connect(lambda event, run: seen.append((type(event).__name__, run)))
    sink = BridgeSink(bridge)
    sink.handle(Waiting(ns(0), "Another run uses this device."))
    sink.handle(started(GPU_INVENTORY))
    for sample in samples(0, 1):
        sink.handle(sample)
        bridge.post(sample)
    sink.handle(LogLine(ns(1), "end"))
    bridge.flush()
    assert [each for each in seen if each[0] != "Sample"] == [("Waiting", None), ("RunStarted", 7), ("LogLine", 7)]
    assert [run for name, run in seen if name == "Sample"] == [None] * 30
    bridge.close()
