"""The window's log and crash reports: started after its first paint, shown by Help, offered at the next start."""

import logging
from collections.abc import Sequence
from pathlib import Path

from PySide6.QtCore import QObject, QUrl
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import QMessageBox

from app import crash, log
from app.gui.theme import Theme
from app.gui.widgets.dialogs import message_box
from app.gui.window import MainWindow

_log = logging.getLogger("variantscope.gui")


class Diagnostics(QObject):
    """Log and crash reports of all windows that this process opens, one after another.

    Thread: GUI only.
    """

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self._started = False

    def attach(self, window: MainWindow) -> None:
        """Start with the first paint of a window, and show the log from its Help menu."""
        window.painted.connect(lambda: self._start(window))
        window.show_log_requested.connect(show_log)

    def _start(self, window: MainWindow) -> None:
        log.configure()
        _log.info("window opened")
        if self._started:
            return
        self._started = True
        crash.watch_faults()
        if reports := crash.new_reports():
            self._offer(window, reports)

    def _offer(self, window: MainWindow, reports: Sequence[Path]) -> None:
        """Say that there are reports, with a button that opens their folder."""
        text = "VariantScope or a run crashed since you last looked here."
        box = message_box(window, self._theme, QMessageBox.Icon.Information, "Crash report", text)
        box.setInformativeText(f"A report is in {reports[-1].parent}. Nothing was sent anywhere.")
        open_folder = box.addButton("&Open folder", QMessageBox.ButtonRole.AcceptRole)
        box.setDefaultButton(box.addButton("&Dismiss", QMessageBox.ButtonRole.RejectRole))

        def close() -> None:
            if box.clickedButton() is open_folder:
                QDesktopServices.openUrl(QUrl.fromLocalFile(str(reports[-1].parent)))
            crash.dismiss_reports(reports)

        box.finished.connect(close)
        box.open()


def show_log() -> None:
    """Open this process's log in the desktop's viewer of text files."""
    if (path := log.log_file()) is not None:
        QDesktopServices.openUrl(QUrl.fromLocalFile(str(path)))
