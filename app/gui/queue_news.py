"""What the rest of the window hears of its queue."""

from PySide6.QtCore import QObject, Signal


class QueueNews(QObject):
    """`changed` tells that the queue's runs begin to be made here, or rest; `run_made` that another may be stored.

    `entry_ended` tells in a title and a sentence that an experiment has ended, `entry_left` that it was stopped or
    cancelled, `compare_asked` which runs' verdict is wanted, `open_asked` which run.
    """

    changed = Signal(bool)
    run_made = Signal()
    entry_ended = Signal(str, str)
    entry_left = Signal()
    compare_asked = Signal(list)
    open_asked = Signal(int)
