"""Exports the queue to a database on which it can go on elsewhere."""

from pathlib import Path

from PySide6.QtCore import QObject

from app.errors import UserError
from app.gui.experiment.queue import QueueView
from app.gui.experiment.queue_database import export_queue
from app.gui.threads import CancellableJob, JobControl
from app.gui.widgets.dialogs import ask_for_new_file
from app.paths import RUNS_SUFFIX
from app.storage.transfer.progress import StoppedError, TransferProgress
from app.viewmodels.experiment.queue_banner import (
    BannerAction,
    export_ended_banner,
    export_failed_banner,
    export_progress_banner,
)


class QueueExport(QObject):
    """Asks for a file when the view wants an export, writes it, and shows its progress in the view's banner.

    Thread: GUI only; the file is written on a job's thread.
    """

    def __init__(self, view: QueueView, database: Path) -> None:
        super().__init__(view)
        self._view = view
        self._banner = view.export_banner
        self._database = database
        self._folder = Path.home()
        self._job = CancellableJob(self)
        view.export_requested.connect(self._ask)
        view.export_answered.connect(self._answer)

    def _ask(self) -> None:
        path = self._folder / f"queue{RUNS_SUFFIX}"
        ask_for_new_file(
            self._view,
            "Export the queue to a database, with paths, variables and log lines",
            path,
            f"Runs (*{RUNS_SUFFIX})",
            self._export,
        )

    def _export(self, name: str) -> None:
        target = Path(name)
        self._folder = target.parent

        def work(control: JobControl[float]) -> str:
            return export_queue(self._database, target, TransferProgress(control.report, control.stop.is_set))

        self._show_progress(0.0)
        self._job.run(work, self._show_end, self._fail, on_progress=self._show_progress)

    def _show_progress(self, share: float) -> None:
        self._banner.show_banner(export_progress_banner(share))

    def _show_end(self, text: str) -> None:
        self._banner.show_banner(export_ended_banner(text))

    def _fail(self, error: UserError) -> None:
        self._banner.show_banner(None if isinstance(error, StoppedError) else export_failed_banner(error))

    def _answer(self, action: BannerAction) -> None:
        if action == "stop":
            self._job.stop()
        else:
            self._banner.show_banner(None)
