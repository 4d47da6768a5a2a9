"""A busy window: `python -m app.bench.busy` repaints it without pause and loads eight stored runs again and again.

Prints a line once it works; runs until it is killed.
"""

import sys
import tempfile
import time
from pathlib import Path

from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QApplication

from app.fields import Sample
from app.gui.app import Workbench
from app.gui.theme import Theme
from app.gui.window import COMPARE
from app.records import Outcome, Summary
from app.samples import HOST, Device
from app.storage.owner import this_process
from app.storage.store import Store
from workloads import catalog
from workloads.protocol import Block, PhaseStarted

_RUNS = 8
_SAMPLES = 12_000
_PERIOD_NS = 50_000_000


def main() -> None:
    """Show the Compare screen and keep it busy."""
    application = QApplication(sys.argv[:1])
    theme = Theme(application)
    theme.start()
    database = Path(tempfile.mkdtemp()) / "busy.db"
    runs = _fill(database)
    workbench = Workbench(database, theme)
    workbench.start()
    workbench.window.show_page(COMPARE)
    repaint = QTimer()
    repaint.timeout.connect(workbench.window.repaint)
    repaint.start(0)
    load = QTimer()
    load.timeout.connect(lambda: workbench.stored.compare.show_runs(runs) if workbench.stored.compare else None)
    load.start(500)
    QTimer.singleShot(1000, lambda: print("busy", flush=True))
    application.exec()


def _fill(database: Path) -> list[int]:
    with Store.open(database) as store:
        return [_store_run(store, number) for number in range(_RUNS)]


def _store_run(store: Store, number: int) -> int:
    spec = catalog.complete("dummy", {"seed": number}, catalog.Machine())
    begin_ns = time.monotonic_ns()
    host = Device(device=HOST, kind="host", index=-1, name="host")
    run = store.begin(
        spec,
        uid=f"busy-{number}",
        owner=this_process(),
        t_ns=begin_ns,
        utc_ns=time.time_ns(),
        devices=[host],
        environment={},
    )
    store.write(run, [PhaseStarted(phase="measure", t_ns=begin_ns)])
    store.write(
        run,
        [
            Sample(t_ns=begin_ns + n * _PERIOD_NS, device=HOST, load_pct=n * 7 % 100, memory_bytes=n * 10**5)
            for n in range(_SAMPLES)
        ],
    )
    store.write(
        run,
        [
            Block(
                phase="measure",
                first_step=n,
                steps=1,
                examples=8,
                start_ns=begin_ns + n * 5 * _PERIOD_NS,
                end_ns=begin_ns + (n + 1) * 5 * _PERIOD_NS,
                loss=1 / (n + 1),
            )
            for n in range(_SAMPLES // 5)
        ],
    )
    end_ns = begin_ns + _SAMPLES * _PERIOD_NS
    store.finish(run, outcome=Outcome(name="completed"), summary=Summary(), t_ns=end_ns, utc_ns=time.time_ns())
    return run


if __name__ == "__main__":
    main()
