"""Tab goes through a window as one reads it: by its layouts, in whatever order widgets were made."""

from collections.abc import Iterator

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication, QLayout, QScrollArea, QSplitter, QWidget


def focus_next(window: QWidget, *, forward: bool) -> bool:
    """Give the keyboard to the widget after the one that has it, or before, and show it; return whether there is one.

    Args:
        window: What Tab goes round in.
        forward: To the next one.
    """
    order = list(_in_order(window))
    stops = [widget for widget in order if _is_stop(widget)]
    if not stops:
        return False
    now = QApplication.focusWidget()
    while now is not None and now not in order:
        now = now.parentWidget()
    at = order.index(now) if now is not None else -1
    if forward:
        chosen = next((widget for widget in order[at + 1 :] if _is_stop(widget)), stops[0])
    else:
        chosen = next((widget for widget in reversed(order[: max(0, at)]) if _is_stop(widget)), stops[-1])
    chosen.setFocus(Qt.FocusReason.TabFocusReason if forward else Qt.FocusReason.BacktabFocusReason)
    around = chosen.parentWidget()
    while around is not None:
        if isinstance(around, QScrollArea):
            around.ensureWidgetVisible(chosen)
        around = around.parentWidget()
    return True


def _is_stop(widget: QWidget) -> bool:
    takes_tab = (widget.focusPolicy() & Qt.FocusPolicy.TabFocus) == Qt.FocusPolicy.TabFocus
    return takes_tab and widget.isEnabled() and widget.focusProxy() is None


def _in_order(widget: QWidget) -> Iterator[QWidget]:
    """Yield a visible widget, and those in it by its layout."""
    if not widget.isVisible():
        return
    yield widget
    if isinstance(widget, QSplitter):
        for number in range(widget.count()):
            yield from _in_order(widget.handle(number))
            if (part := widget.widget(number)) is not None:
                yield from _in_order(part)
    elif isinstance(widget, QScrollArea):
        if (content := widget.widget()) is not None:
            yield from _in_order(content)
    elif (layout := widget.layout()) is not None:
        yield from _in_layout(layout, widget)


def _in_layout(layout: QLayout, around: QWidget) -> Iterator[QWidget]:
    """Yield what is in a layout of a widget, in the layout's order.

    Never by `itemAt`: PySide6 does not notice when Qt deletes an item that Python has seen, and crashes later.
    """
    parts = [part for part in (*around.children(), *layout.children()) if isinstance(part, QWidget | QLayout)]
    for part in sorted((each for each in parts if layout.indexOf(each) >= 0), key=layout.indexOf):
        yield from _in_order(part) if isinstance(part, QWidget) else _in_layout(part, around)
