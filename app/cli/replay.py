"""`replay` without a window: recorded telemetry again, printed as `watch` prints it."""

import threading
from argparse import Namespace
from pathlib import Path

from app.cli.services import interrupts, opened_store
from app.cli.watch import printer
from app.report.watch import Told
from app.telemetry.recording import Recording, RunRecording
from app.telemetry.replay import Replay
from app.telemetry.trace import read_trace


def replay(chosen: Namespace) -> int:
    """Prints the readings at their spacing, or faster, until the end or Ctrl-C."""
    recording = _recording(chosen)
    played = Replay(recording, speed=chosen.speed)
    start_ns, source = recording.start_ns, f"replay:{chosen.recording}"
    show = printer(chosen, recording.inventory, source, start_ns, recording.utc_ns - start_ns)
    stopped = threading.Event()
    with interrupts(stopped.set):
        while not played.ended and not stopped.is_set():
            for event in played.read():
                if isinstance(event, Told):
                    show(event)
            if (next_s := played.next_s) is not None:
                stopped.wait(next_s)
    return 0


def _recording(chosen: Namespace) -> Recording:
    if isinstance(chosen.recording, Path):
        return read_trace(chosen.recording)
    with opened_store(chosen.db) as store:
        return RunRecording(store.load(chosen.recording))
