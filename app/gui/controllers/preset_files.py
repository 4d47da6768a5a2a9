"""Presets with workloads of the user's own: their files are read on a thread that ends with the window."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from PySide6.QtCore import QObject, Signal

from app.errors import UserError
from app.gui.background import Background
from app.runs.own import Reading, workload_called
from app.runs.presets import Find

Result = TypeVar("Result")


class PresetFiles(QObject):
    """Does work that may need a file of the user's; `told` is what is waited for meanwhile, "" where it is over."""

    told = Signal(str)

    def __init__(self, database: Path, parent: QObject) -> None:
        super().__init__(parent)
        self._database = database
        self._closed = threading.Event()
        # Reading takes as long as TensorFlow's import, or as a run that goes on: nothing else waits for it.
        self._reads = Background(self)

    def run(
        self, work: Callable[[Find], Result], done: Callable[[Result], None], failed: Callable[[UserError], None]
    ) -> None:
        """As `Background.run`; `work` is given what finds workloads."""
        reading = Reading(told=self.told.emit, stopped=self._closed.wait)

        def found() -> Result:
            try:
                return work(lambda word: workload_called(word, self._database, reading))
            finally:
                self.told.emit("")

        self._reads.run(found, done, failed)

    def close(self) -> None:
        """Give up what is being read, and end the thread."""
        self._closed.set()
        self._reads.close()
