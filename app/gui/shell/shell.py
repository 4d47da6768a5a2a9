"""The frame around all screens: the window's keys, their list, and the command palette."""

import html
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from PySide6.QtCore import QCoreApplication, QEvent, QObject, Qt, QTimer, Signal
from PySide6.QtGui import QAction, QKeyEvent, QKeySequence, QShortcut
from PySide6.QtWidgets import QApplication, QLabel, QMenu, QPushButton, QWidget

from app.errors import UserError
from app.gui.actions import Actions, Services
from app.gui.shell.action_table import ELSEWHERE, GROUPS, Action, Group, all_actions
from app.gui.shell.palette import Palette
from app.gui.theme import GRID, Theme
from app.gui.threads import Background
from app.gui.widgets.basic import button, plain_tooltip, text_label
from app.gui.window import MainWindow
from app.gui.window_state import WindowState
from app.queries import RunQuery
from app.values import units
from app.viewmodels.experiment.queue import QueueState
from app.viewmodels.run.live import Status
from app.viewmodels.shell.palette import Entry, run_entries

if TYPE_CHECKING:
    from app.runs.undo import Reversal
    from app.storage.store import Store

    _Step = tuple[str, Reversal]

PROGRAM_TITLE = "VariantScope"

_MAX_STEPS = 100
_NAME_WIDTH = 26 * GRID
_NARROW = 110 * GRID
"""In a narrower window the button does not name what it undoes, so that all tabs stay visible."""
_TOAST_MS = 8_000


class UndoStack(QObject):
    """The changes that can be undone or redone, with their names.

    Thread: GUI only; reversals are called on `background`, in the order of requests.
    """

    changed = Signal()
    """Something else can be undone or redone."""
    undone = Signal()
    """The database has changed."""
    message = Signal(str)
    """What was undone, or why it was not."""

    def __init__(self, background: Background, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._background = background
        self._done: list[_Step] = []
        self._undone: list[_Step] = []

    @property
    def undo_name(self) -> str:
        """Return what Ctrl+Z undoes, such as `Undo: delete run 3`; "" for nothing."""
        return f"Undo: {self._done[-1][0]}" if self._done else ""

    @property
    def redo_name(self) -> str:
        """Return what Ctrl+Shift+Z redoes; "" for nothing."""
        return f"Redo: {self._undone[-1][0]}" if self._undone else ""

    def push(self, name: str, reversal: "Reversal | None") -> None:
        """Add the reversal of a change just made; None if it changed nothing.

        Args:
            name: The change, in the imperative: `delete run 3`.
            reversal: Undoes it.
        """
        if reversal is not None:
            self._done.append((name, reversal))
            del self._done[:-_MAX_STEPS]
            self._undone.clear()
            self.changed.emit()

    def drop_stale(self) -> None:
        """Drop last changes that can no longer be undone, such as a resumed queue that has since ended."""
        steps = list(self._done)

        def count() -> int:
            from app.runs.undo import drop_stale

            return drop_stale([reversal for _, reversal in steps])

        def keep(left: int) -> None:
            if left < len(steps) and self._done == steps:
                del self._done[left:]
                self.changed.emit()

        if steps:
            self._background.run(count, keep, lambda _: None)  # an unreadable database is reported elsewhere

    def undo(self) -> None:
        self._turn(self._done, self._undone, "Undone: {}. Ctrl+Shift+Z redoes it.", "Nothing to undo.")

    def redo(self) -> None:
        """Repeat the change undone last."""
        self._turn(self._undone, self._done, "Redone: {}. Ctrl+Z undoes it.", "Nothing to redo.")

    def _turn(self, source: "list[_Step]", target: "list[_Step]", sentence: str, nothing: str) -> None:
        def turn(_: None) -> None:
            if not source:
                self.message.emit(nothing)
                return
            name, reversal = source.pop()
            self.changed.emit()
            self._background.run(reversal, partial(show, name), partial(self._fail, name))

        def show(name: str, again: "Reversal") -> None:
            target.append((name, again))
            self.changed.emit()
            self.undone.emit()
            self.message.emit(sentence.format(name))

        # Pending writes come first: the user means the last of them.
        self._background.run(lambda: None, turn, partial(self._fail, ""))

    def _fail(self, name: str, error: UserError) -> None:
        self.message.emit(" ".join(filter(None, (units.sentence(name), str(error)))))


class UndoView(QObject):
    """The button in the window's head that names what Ctrl+Z undoes, and the line at the bottom that reports it.

    Thread: GUI only.
    """

    def __init__(self, window: QWidget, theme: Theme, stack: UndoStack) -> None:
        super().__init__(window)
        self._window = window
        self._theme = theme
        self._stack = stack
        self.button: QPushButton = button("", flat=True)
        self.button.hide()
        self.button.clicked.connect(stack.undo)
        self._toast: QLabel | None = None
        self._timer = QTimer(self, interval=_TOAST_MS, singleShot=True)
        stack.changed.connect(self._show_name)
        window.installEventFilter(self)
        stack.message.connect(self.say)

    def say(self, text: str) -> None:
        """Show a sentence over the bottom of the window for a while."""
        if self._toast is None:
            self._toast = text_label("", "toast", wrap=True)
            self._toast.setParent(self._window)
            self._toast.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
            self._timer.timeout.connect(self._toast.hide)
        self._theme.apply_style_sheet(self._toast)
        self._toast.setText(text)
        room = self._window.size()
        width = min(self._toast.fontMetrics().horizontalAdvance(text) + 5 * GRID, room.width() - 4 * GRID)
        self._toast.setFixedSize(width, self._toast.heightForWidth(width))
        self._toast.move((room.width() - width) // 2, room.height() - self._toast.height() - 3 * GRID)
        self._toast.show()
        self._toast.raise_()
        self._timer.start()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Resize:
            self._show_name()
        return super().eventFilter(watched, event)

    def _show_name(self) -> None:
        name = self._stack.undo_name
        is_narrow = self._window.width() < _NARROW
        text = (
            name.partition(":")[0]
            if is_narrow
            else self.button.fontMetrics().elidedText(name, Qt.TextElideMode.ElideRight, _NAME_WIDTH)
        )
        self.button.setText(text.replace("&", "&&"))
        self.button.setToolTip(plain_tooltip(f"{name} (Ctrl+Z)"))
        self.button.setAccessibleName(name)
        self.button.setVisible(bool(name))


def queue_title(queue: QueueState) -> str:
    """Return the window's title while the queue runs: completed share, time left, name."""
    name = next((row.name for row in queue.rows if row.is_running_here), "")
    return _title(queue.fraction, "", queue.time_left, name)


def run_title(status: Status) -> str:
    """Return the window's title during a run: phase, its progress, time left, name."""
    left = status.left if status.left.endswith(" left") else ""
    return _title(status.fraction, status.title, left, status.name)


def _title(fraction: float | None, phase: str, left: str, name: str) -> str:
    """Return a title with the figures first, because desktops show only the beginning of a long one."""
    share = "" if fraction is None else units.percent(int(100 * fraction))
    parts = [" ".join(filter(None, (phase, share))), left, name]
    return f"{' · '.join(filter(None, parts))} – {PROGRAM_TITLE}"


_CONTEXT = Qt.ShortcutContext


class WindowKeys:
    """Binds the window's keys, and performs any action of the table. Thread: GUI only."""

    def __init__(self, window: MainWindow, functions: Mapping[str, Callable[[], object]]) -> None:
        self._window = window
        self._functions = functions
        for _, action in all_actions():
            if action.name and action.keys:
                shortcut = QShortcut(window)
                shortcut.setKeys([QKeySequence(keys) for keys in action.keys])
                shortcut.activated.connect(functions[action.name])

    def perform(self, group: Group, action: Action) -> None:
        if action.name:
            self._functions[action.name]()
            return
        if group.page is not None:
            self._window.show_page(group.page)
        if group.target and not self._focus(group.target) and group.enter:
            self._press(group.enter)
            self._focus(group.target)
        self._press(action.keys[0])

    def _focus(self, name: str) -> bool:
        """Focus the visible widget with an accessible name; return whether there is one."""
        named = (widget for widget in self._window.findChildren(QWidget) if widget.accessibleName() == name)
        target = next((widget for widget in named if widget.isVisible()), None)
        if target is not None:
            target.setFocus()
        return target is not None

    def _press(self, keys: str) -> None:
        """Do what pressing keys in the focused widget does: its shortcut, else its key event."""
        sequence = QKeySequence(keys)
        focused = QApplication.focusWidget() or self._window
        for shortcut in self._window.findChildren(QShortcut):
            if _is_in_reach(shortcut, sequence, focused):
                shortcut.activated.emit()
                return
        for entry in self._window.findChildren(QAction):
            if sequence in entry.shortcuts() and any(
                _reaches(entry.shortcutContext(), owner, focused)
                for owner in entry.associatedObjects()
                if isinstance(owner, QWidget)
            ):
                entry.trigger()
                return
        combined = sequence[0]  # type: ignore[index]  # the stub lacks it
        for kind in (QEvent.Type.KeyPress, QEvent.Type.KeyRelease):
            QCoreApplication.sendEvent(focused, QKeyEvent(kind, combined.key(), combined.keyboardModifiers()))


def _is_in_reach(shortcut: QShortcut, sequence: QKeySequence, focused: QWidget) -> bool:
    owner, sequences = shortcut.parent(), shortcut.keys()
    acts = shortcut.isEnabled() and sequence in sequences
    return acts and isinstance(owner, QWidget) and _reaches(shortcut.context(), owner, focused)


def _reaches(context: Qt.ShortcutContext, owner: QWidget, focused: QWidget) -> bool:
    if not (owner.isVisible() and owner.isEnabled()):
        return False
    if context == _CONTEXT.WidgetShortcut:
        return owner is focused
    return context != _CONTEXT.WidgetWithChildrenShortcut or owner is focused or owner.isAncestorOf(focused)


_MAX_RUNS = 5_000
"""The most runs that the palette lists; History searches all."""
_MAX_RECENT = 12
_SYNONYMS = "set preferences options configure colour color mode appearance"
_TAG = re.compile("<[^>]+>")
_PALETTE_HINT = "↑ ↓  choose    Enter  run or open    Esc  close"
_KEYS_HINT = "↑ ↓  choose    Enter  run    Esc  close"


class Shell(QObject):
    """Opens the command palette and the list of keys, and performs what is chosen there.

    Thread: GUI only; runs are read on `reads`.
    """

    def __init__(
        self,
        services: Services,
        actions: Actions,
        undo: UndoStack,
        run: Callable[[], object],
        stop: Callable[[], object],
        setting_values: Callable[[], Iterable[tuple[str, Callable[[], object]]]],
    ) -> None:
        """Create the frame around a window's screens.

        `setting_values` yields names, values and functions that set them.
        """
        window, theme = services.window, services.theme
        super().__init__(window)
        self._window = window
        self._services = services
        self._actions = actions
        self._undo = undo
        self._setting_values = setting_values
        self.undo_view = UndoView(window, theme, undo)
        window.add_to_head(self.undo_view.button)
        self._runs: tuple[Entry, ...] = ()
        self._state = WindowState("palette", window, services.database)
        self._recent: tuple[str, ...] = self._state.read("recent", (), tuple[str, ...])
        self._buttons: dict[Entry, Callable[[], object]] = {}
        self._targets: dict[str, Callable[[], object]] = {}
        self.palette = Palette(window, theme)
        self.palette.chosen.connect(self._do)
        self._keys = WindowKeys(window, {**self._functions(), "run": run, "stop": stop})
        window.keys_requested.connect(self.show_keys)

    def _functions(self) -> dict[str, Callable[[], object]]:
        window, actions = self._window, self._actions
        pages = ("run page", "monitor page", "history page", "compare page")
        return {
            **{name: partial(window.show_page, page) for page, name in enumerate(pages)},
            "save": window.save_picture,
            "copy": partial(window.save_picture, to_clipboard=True),
            "questions": actions.open_questions,
            "reference": actions.show_reference,
            "hosts": actions.manage_hosts,
            "settings": window.settings_requested.emit,
            "log": window.show_log_requested.emit,
            "quit": window.close,
            "undo": self._undo.undo,
            "redo": self._undo.redo,
            "palette": self.open_palette,
            "keys": self.show_keys,
        }

    def open_palette(self) -> None:
        """Show all actions, what is on the screen, and all runs; close it if open."""
        if self.palette.isVisible():
            self.palette.close_palette()
            return
        self._collect()
        # Not the palette itself, and undo only if there is something to undo.
        useful = {"palette": "", "undo": self._undo.undo_name, "redo": self._undo.redo_name}
        useless = {_action_key(group, action) for group, action in all_actions() if not useful.get(action.name, "yes")}
        listed = [entry for entry in self._listed() if entry.key not in useless]
        self.palette.open("Action or run", _PALETTE_HINT, (*listed, *self._runs), self._recent)

        def read(store: "Store") -> list[Entry]:
            return run_entries(store.library.run_rows(store.library.find(RunQuery())[:_MAX_RUNS]))

        def show(runs: list[Entry]) -> None:
            self._runs = tuple(runs)
            if self.palette.isVisible():
                self.palette.show_entries((*listed, *self._runs))

        # Even if runs cannot be read, actions are listed, and History reports the database's problem.
        self._services.reads.ask(self._services.database, read, show, lambda _: None)

    def show_keys(self) -> None:
        """Show all actions of the table under their headings with their keys, the screen's first."""
        self._collect()
        here = {group.title for group in GROUPS if group.page == self._window.page}
        entries = [entry for entry in self._listed() if entry.key.startswith("action")]
        entries.sort(key=lambda entry: entry.group not in here)
        self.palette.open("Search actions and keys", _KEYS_HINT, entries)

    def _collect(self) -> None:
        """Collect what can be done now: the table's actions, and the screen's buttons."""
        self._targets = {
            _action_key(group, action): partial(self._keys.perform, group, action) for group, action in all_actions()
        }
        self._buttons = dict(self._visible_buttons())
        for title, choose in self._setting_values():
            self._buttons[Entry(key=f"setting {title}", title=title, group="Settings", words=_SYNONYMS)] = choose
        for link in ELSEWHERE:
            entry = Entry(
                key=f"place {link.title}", title=link.title, group="Elsewhere", detail=link.where, words=link.words
            )
            self._buttons[entry] = partial(self._window.show_page, link.page)
        self._targets |= {entry.key: do for entry, do in self._buttons.items()}

    def _listed(self) -> list[Entry]:
        named = {"undo": self._undo.undo_name, "redo": self._undo.redo_name}
        listed = [
            Entry(
                key=_action_key(group, action),
                title=named.get(action.name) or action.title,
                group=group.title,
                keys=action.keys_text,
                words=action.words,
            )
            for group, action in all_actions()
        ]
        titles = {entry.title for entry in listed}
        return [*listed, *(entry for entry in self._buttons if entry.title not in titles)]

    def _visible_buttons(self) -> Iterator[tuple[Entry, Callable[[], object]]]:
        for push_button in self._window.findChildren(QPushButton):
            if not (push_button.isVisible() and push_button.isEnabled() and push_button.text()):
                continue
            if push_button.accessibleName() == self._undo.undo_name != "":  # it is in the table, with its full name
                continue
            name = _plain(push_button.text())
            menu: QMenu | None = push_button.menu()
            if menu is None:
                detail = html.unescape(_TAG.sub("", push_button.toolTip()))
                yield Entry(key=f"button {name}", title=name, group="On this screen", detail=detail), push_button.click
            else:
                for action in menu.actions():
                    if action.isEnabled() and action.menu() is None and not action.isSeparator():
                        yield _menu_entry(name, action), action.trigger

    def _do(self, key: str) -> None:
        self._recent = (key, *(recent_key for recent_key in self._recent if recent_key != key))[:_MAX_RECENT]
        self._state.keep("recent", self._recent)
        kind, _, number = key.partition(" ")
        if kind == "run":
            self._actions.open_run(int(number))
        elif key in self._targets:
            self._targets[key]()


def _action_key(group: Group, action: Action) -> str:
    return f"action {group.title}: {action.title}"


def _menu_entry(button: str, action: QAction) -> Entry:
    name = _plain(action.text())
    state = " (on)" if action.isCheckable() and action.isChecked() else ""
    title = f"{button}: {name}{state}" if button != "?" else name
    return Entry(key=f"menu {button} {name}", title=title, group="On this screen", keys=action.shortcut().toString())


def _plain(label: str) -> str:
    return label.partition("\t")[0].replace("&", "").strip(" ▾▸…")
