"""`replay` without a window: a stored run's telemetry again, printed as `watch` prints it."""

import threading
from argparse import Namespace

from app.cli.services import interrupts, opened_store
from app.cli.watch import printer
from app.records import DeviceLost, Sample, SlowSample
from app.telemetry.replay import Replay


def replay(chosen: Namespace) -> int:
    """Prints the readings at their spacing, or faster, until the end or Ctrl-C."""
    with opened_store(chosen.db) as store:
        run = store.load(chosen.run)
    played = Replay(run, speed=chosen.speed)
    devices = {device.device: device for device in played.devices}
    show = printer(chosen, devices, f"replay:{run.row.run}", run.anchor_utc_ns - run.anchor_t_ns)
    stopped = threading.Event()
    with interrupts(stopped.set):
        while not played.ended and not stopped.is_set():
            for event in played.read():
                if isinstance(event, Sample | SlowSample | DeviceLost):
                    show(event)
            if (next_s := played.next_s) is not None:
                stopped.wait(next_s)
    return 0
