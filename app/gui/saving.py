"""Saving what is shown as a picture: SVG as vectors, PNG with two pixels to each of the screen's."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from PySide6.QtCore import QBuffer, QByteArray, QPoint, Qt
from PySide6.QtGui import QAction, QImage, QPainter
from PySide6.QtSvg import QSvgRenderer
from PySide6.QtWidgets import QMenu, QMessageBox, QWidget

from app.errors import UserError, unwritable
from app.gui.questions import ask_where_to_save
from app.report.pictures.drawing import Drawing

_PIXELS = 2
_KINDS = {"PNG (*.png)": ".png", "SVG (*.svg)": ".svg"}


class Drawable(Protocol):
    """A widget whose contents are a picture."""

    def drawing(self) -> Drawing:
        """What it shows, in the colours in force."""

    def paper(self) -> str:
        """The colour behind it."""


def save_picture(parent: QWidget, shown: Drawable) -> None:
    """Ask where to, and write the picture there; what goes wrong is said in one sentence."""
    drawn = shown.drawing()
    path = ask_where_to_save(parent, "Save picture", Path.cwd() / f"{file_name(drawn.name)}.png", _KINDS)
    if path is None:
        return
    try:
        write_picture(path, drawn.svg(shown.paper()))
    except UserError as error:
        QMessageBox.warning(parent, "Save picture", str(error))


def write_picture(path: Path, svg: str) -> None:
    """Write SVG as it is, or painted where the name ends in .png; raises `UserError` where that cannot be."""
    try:
        path.write_bytes(_png(svg) if path.suffix.lower() == ".png" else svg.encode())
    except OSError as error:
        raise unwritable(path, error) from error


def file_name(title: str) -> str:
    """A title as the name of a file anywhere: letters, figures and hyphens."""
    return re.sub(r"[^0-9a-z]+", "-", title.lower()).strip("-")[:60] or "picture"


def offer_to_save(parent: QWidget, shown: Callable[[], Drawable], where: QPoint) -> None:
    """A menu at a place of the screen whose one entry saves a picture."""
    menu = QMenu(parent)
    menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    save_action(menu, lambda: save_picture(parent, shown()))
    menu.popup(where)


def save_action(menu: QMenu, save: Callable[[], None]) -> QAction:
    """The entry of a menu that saves a picture."""
    action = menu.addAction("&Save picture …")
    action.triggered.connect(save)
    return action


def _png(svg: str) -> bytes:
    renderer = QSvgRenderer(QByteArray(svg.encode()))
    image = QImage(renderer.defaultSize() * _PIXELS, QImage.Format.Format_ARGB32_Premultiplied)
    image.fill(0)
    painter = QPainter(image)
    renderer.render(painter)
    painter.end()
    buffer = QBuffer()
    buffer.open(QBuffer.OpenModeFlag.WriteOnly)
    image.save(buffer, "PNG")  # type: ignore[call-overload]  # the stub wants bytes for the format, Qt takes both
    return bytes(buffer.data().data())
