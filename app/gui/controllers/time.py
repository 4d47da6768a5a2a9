"""The stretch of time a live view shows, as its bar and its plots ask for it."""

from collections.abc import Callable

from app.gui.views.live import LiveView
from app.viewmodels.live import LiveModel


def connect_time(view: LiveView, model: LiveModel, refresh: Callable[[], None]) -> None:
    """Let a view's bar and plots change which stretch the model shows, and show that at once."""

    def show(change: Callable[[], None]) -> None:
        change()
        refresh()

    bar, plots = view.time_bar, view.stack
    bar.window_asked.connect(lambda name: show(lambda: model.follow(name)))
    bar.hold_asked.connect(lambda: show(model.hold_or_follow))
    bar.follow_asked.connect(lambda: show(model.follow))
    bar.apart_asked.connect(lambda apart: show(lambda: model.show_apart(apart)))
    plots.zoomed.connect(lambda factor, at: show(lambda: model.zoom(factor, at)))
    plots.panned.connect(lambda by: show(lambda: model.pan(by)))
