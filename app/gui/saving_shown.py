"""Which picture is meant when one is to be saved: that under the pointer, that with the keyboard, or all plots."""

from PySide6.QtGui import QCursor
from PySide6.QtWidgets import QApplication, QToolTip, QWidget

from app.gui.plot_picture import PlotsPicture
from app.gui.plots import TimePanel
from app.gui.saving import Drawable, save_picture
from app.gui.theme import Theme
from app.gui.views.pictures import PictureWidget
from app.gui.views.scaling import ScalingPicture

_NOTHING = "There is no plot here to save."


def save_shown(page: QWidget, theme: Theme) -> None:
    """Save one picture of a page, or say that there is none."""
    shown = picture_meant(page, QApplication.widgetAt(QCursor.pos()), theme)
    if shown is None:
        QToolTip.showText(QCursor.pos(), _NOTHING, page)
    else:
        save_picture(page, shown)


def picture_meant(page: QWidget, pointed_at: QWidget | None, theme: Theme) -> Drawable | None:
    """The plot or picture pointed at, the picture with the keyboard, or else every plot or a picture in sight."""
    for candidate in (pointed_at, QApplication.focusWidget()):
        found = _around(candidate, page)
        if isinstance(found, TimePanel):
            return PlotsPicture((found.contents(),), theme, found.width())
        if found is not None:
            return found
    plots = [panel for panel in page.findChildren(TimePanel) if not panel.visibleRegion().isEmpty()]
    if not plots:
        pictures = (picture for picture in page.findChildren(PictureWidget) if not picture.visibleRegion().isEmpty())
        return next(pictures, None)
    return PlotsPicture(tuple(panel.contents() for panel in plots), theme, max(panel.width() for panel in plots))


def _around(widget: QWidget | None, page: QWidget) -> PictureWidget | ScalingPicture | TimePanel | None:
    """The plot or picture that a widget of the page is part of."""
    while widget is not None and widget is not page:
        if isinstance(widget, (PictureWidget, ScalingPicture, TimePanel)):
            return widget
        widget = widget.parentWidget()
    return None
