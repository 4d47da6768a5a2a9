"""Paint and time frames of Monitor's table with many hosts: `python -m benchmarks.hosts`, in a fresh process.

It prints JSON.

Every host is unfolded, and its telemetry comes at 20 Hz, ten times as often as the program asks of a host that is one
of many. A frame takes the samples of a thirtieth of a second, and makes and paints all that is in sight anew.
"""

import json
import sys
import time

from PySide6.QtCore import QEvent
from PySide6.QtWidgets import QApplication

from app.gui.monitor.screen import MonitorTable
from app.gui.theme import Theme
from app.values.fields import Sample
from app.values.samples import HOST, Device, Inventory
from app.viewmodels.hosts import HostState
from app.viewmodels.monitor.model import MonitorModel
from workloads.catalog import Gpu, Machine

HOSTS = 200
_HZ, _FRAMES_A_SECOND = 20, 30
_WARM_UP, _FRAMES, _ROUNDS = 10, 60, 3
_NAMES = ("NVIDIA H200", "NVIDIA A100-SXM4-80GB", "NVIDIA GeForce RTX 4090")


def inventory(host: int) -> Inventory:
    """Return the devices of a pretended host with four to eight GPUs."""
    count, name = 4 + host % 5, _NAMES[host % len(_NAMES)]
    gpus = tuple(Gpu(index=n, uuid=f"GPU-{host}-{n}", name=name, compute_capability=(9, 0)) for n in range(count))
    devices = [Device(device=HOST, kind="host", index=-1, name="A processor", memory_total_bytes=2**38)]
    devices += [
        Device(device=gpu.uuid, kind="gpu", index=gpu.index, name=name, memory_total_bytes=80 * 2**30) for gpu in gpus
    ]
    return Inventory(machine=Machine(gpus=gpus, cpu_count=64), devices=tuple(devices), driver="580.1")


def sample(device: str, number: int) -> Sample:
    """Return the reading of this number of a device, which differs from that before."""
    turn = (sum(map(ord, device)) + 7 * number) % 100
    return Sample(
        t_ns=number * 50_000_000,
        device=device,
        load_pct=float(turn),
        power_mw=100_000 + 5_000 * turn,
        memory_bytes=turn * 2**29,
        temperature_c=30 + turn // 3,
    )


class ManyHosts:
    """Monitor's table of so many hosts, fed and painted frame by frame: ten times as often as the program paints it."""

    def __init__(self, count: int, theme: Theme) -> None:
        self.model = MonitorModel()
        self.table = MonitorTable(self.model, theme)
        theme.apply_style_sheet(self.table)
        states = [HostState(name=f"gpu-{n:03d}", stage="connected") for n in range(count)]
        self._devices = []
        for number, state in enumerate(states):
            found = inventory(number)
            self.model.handle(found, state.name)
            self._devices += [(state.name, device.device) for device in found.devices]
        self.model.update(states)
        self.model.read()
        self.model.sort_by("load_pct")
        self.model.fold(None, False)
        self._due = 0.0
        self._next = 0

    def samples(self) -> list[tuple[str, Sample]]:
        """Return what comes until the next frame: making them is not what is measured."""
        self._due += len(self._devices) * _HZ / _FRAMES_A_SECOND
        count, self._due = int(self._due), self._due % 1
        found = [divmod(self._next + n, len(self._devices)) for n in range(count)]
        self._next += count
        return [(self._devices[index][0], sample(self._devices[index][1], turn)) for turn, index in found]

    def frame(self, number: int) -> float:
        """Return the milliseconds of a frame."""
        arrived = self.samples()
        started = time.perf_counter()
        for host, each in arrived:
            self.model.handle(each, host)
        if number % _FRAMES_A_SECOND == 0:
            self.model.tick()
        self.model.read()
        self.table.refresh()
        QApplication.sendPostedEvents(None, QEvent.Type.MetaCall)
        QApplication.processEvents()
        return (time.perf_counter() - started) * 1e3


def frame_times(theme: Theme, *, frames: int = _FRAMES, rounds: int = _ROUNDS) -> dict[str, list[float]]:
    """Return the milliseconds of every frame of many hosts and of one, in turn.

    Args:
        theme: Colours and fonts.
        frames: Timed frames per round.
        rounds: How often each has its turn.
    """
    shown = {"many": ManyHosts(HOSTS, theme), "one": ManyHosts(1, theme)}
    for each in shown.values():
        each.table.resize(1400, 900)
        each.table.show()
    times: dict[str, list[float]] = {name: [] for name in shown}
    for _ in range(rounds):
        for name, each in shown.items():
            times[name] += [each.frame(n) for n in range(_WARM_UP + frames)][_WARM_UP:]
    for each in shown.values():
        each.table.close()
    return times


def main() -> None:
    """Measure and print."""
    application = QApplication(sys.argv[:1])
    theme = Theme(application)
    theme.start()
    print(json.dumps(frame_times(theme)))


if __name__ == "__main__":
    main()
