"""What is around all screens: the keys of the window, the list of them, and the command palette."""

import html
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path

from PySide6.QtCore import QCoreApplication, QEvent, QObject, Qt
from PySide6.QtGui import QAction, QKeyEvent, QKeySequence, QShortcut
from PySide6.QtWidgets import QApplication, QMenu, QPushButton, QWidget

from app.errors import UserError
from app.gui.actions import Actions
from app.gui.shell.action_table import ELSEWHERE, Action, Group, all_actions
from app.gui.shell.palette import Palette
from app.gui.shell.undo import UndoStack, UndoView
from app.gui.theme import Theme
from app.gui.threads import Background
from app.gui.window import MainWindow
from app.gui.window_state import WindowState
from app.queries import RunQuery
from app.viewmodels.shell.palette import Entry, run_entries

_CONTEXT = Qt.ShortcutContext


class WindowKeys:
    """Binds the keys of the whole window, and does any action by its entry in the table.

    Thread: GUI only.
    """

    def __init__(self, window: MainWindow, functions: Mapping[str, Callable[[], object]]) -> None:
        self._window = window
        self._functions = functions
        for _, action in all_actions():
            if action.name and action.keys:
                shortcut = QShortcut(window)
                shortcut.setKeys([QKeySequence(keys) for keys in action.keys])
                shortcut.activated.connect(functions[action.name])

    def perform(self, group: Group, action: Action) -> None:
        """Do an action, on its screen."""
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
        found = (each for each in self._window.findChildren(QWidget) if each.accessibleName() == name)
        target = next((each for each in found if each.isVisible()), None)
        if target is not None:
            target.setFocus()
        return target is not None

    def _press(self, keys: str) -> None:
        """Do what pressing keys in the focused widget does: its shortcut, or else its key event."""
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
    """Return whether a shortcut of a widget acts while another widget has the focus."""
    if not (owner.isVisible() and owner.isEnabled()):
        return False
    if context == _CONTEXT.WidgetShortcut:
        return owner is focused
    return context != _CONTEXT.WidgetWithChildrenShortcut or owner is focused or owner.isAncestorOf(focused)


_MAX_RUNS = 5_000
"""Runs that the palette lists; History searches through all."""
_MAX_RECENT = 12
_SYNONYMS = "set preferences options configure colour color mode appearance"
_TAG = re.compile("<[^>]+>")
_PALETTE_HINT = "↑ ↓  choose    Enter  run or open    Ctrl+Enter  replay the run    Esc  close"
_KEYS_HINT = "↑ ↓  choose    Enter  run    Esc  close"


class Shell(QObject):
    """Opens the command palette and the list of keys, and does what is chosen there.

    Thread: GUI only; runs are read on `reads`.
    """

    def __init__(
        self,
        window: MainWindow,
        theme: Theme,
        database: Path,
        reads: Background,
        actions: Actions,
        undo: UndoStack,
        run: Callable[[], object],
        stop: Callable[[], object],
        setting_values: Callable[[], Iterable[tuple[str, Callable[[], object]]]],
    ) -> None:
        """Make what is around the screens of a window.

        `setting_values` returns what can be set, each with its name and value, and what sets it.
        """
        super().__init__(window)
        self._window = window
        self._database = database
        self._reads = reads
        self._actions = actions
        self._undo = undo
        self._setting_values = setting_values
        self.undo_view = UndoView(window, theme, undo)
        window.add_to_head(self.undo_view.button)
        self._runs: tuple[Entry, ...] = ()
        self._census: tuple[int, ...] = ()
        undo.changed.connect(self._forget_runs)
        self._state = WindowState("palette", window, database)
        self._recent: tuple[str, ...] = self._state.read("recent", (), tuple[str, ...])
        self._buttons: dict[Entry, Callable[[], object]] = {}
        self._targets: dict[str, Callable[[], object]] = {}
        self.palette = Palette(window, theme)
        self.palette.chosen.connect(self._do)
        self._keys = WindowKeys(window, {**self._functions(), "run": run, "stop": stop})
        window.keys_requested.connect(self.show_keys)

    def _functions(self) -> dict[str, Callable[[], object]]:
        """Return what the named actions of the table do, but for those of the form."""
        window, actions = self._window, self._actions
        pages = ("run page", "monitor page", "history page", "compare page")
        return {
            **{name: partial(window.show_page, page) for page, name in enumerate(pages)},
            "open trace": actions.open_trace,
            "save": window.save_shown,
            "copy": window.copy_shown,
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
        """Show all actions, what is on the screen, and all runs; the second time, close it."""
        if self.palette.isVisible():
            self.palette.close_palette()
            return
        self._collect()
        listed = [entry for entry in self._listed() if entry.key not in self._useless()]
        self.palette.open("Action or run", _PALETTE_HINT, (*listed, *self._runs), self._recent)

        known = self._census

        def show(found: tuple[tuple[int, ...], list[Entry]] | None) -> None:
            if found is not None:
                self._census, self._runs = found[0], tuple(found[1])
            if found is not None and self.palette.isVisible():
                self.palette.show_entries((*listed, *self._runs))

        self._reads.run(lambda: _read_runs(self._database, known), show, self._ignore)

    def _forget_runs(self) -> None:
        """Read the runs again next time: the user has changed their tags, or others of their texts."""
        self._census = ()

    def show_keys(self) -> None:
        """Show all actions of the table under their headings, with their keys."""
        self._collect()
        shown = [entry for entry in self._listed() if entry.key.startswith("action")]
        self.palette.open("Search actions and keys", _KEYS_HINT, shown)

    def _collect(self) -> None:
        """Note what can be done now: the actions of the table, and what the screen has buttons for."""
        self._targets = {
            _action_key(group, action): partial(self._keys.perform, group, action) for group, action in all_actions()
        }
        self._buttons = dict(self._visible_buttons())
        for title, choose in self._setting_values():
            self._buttons[Entry(key=f"setting {title}", title=title, group="Settings", words=_SYNONYMS)] = choose
        for each in ELSEWHERE:
            entry = Entry(
                key=f"place {each.title}", title=each.title, group="Elsewhere", detail=each.where, words=each.words
            )
            self._buttons[entry] = partial(self._window.show_page, each.page)
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

    def _useless(self) -> set[str]:
        """Return the keys of what does nothing now: the palette itself, and undo where there is nothing to undo."""
        idle = {"palette": "", "undo": self._undo.undo_name, "redo": self._undo.redo_name}
        return {_action_key(group, action) for group, action in all_actions() if not idle.get(action.name, "useful")}

    def _visible_buttons(self) -> Iterator[tuple[Entry, Callable[[], object]]]:
        """Return what the buttons in sight do, and the entries of their menus."""
        for found in self._window.findChildren(QPushButton):
            if not (found.isVisible() and found.isEnabled() and found.text()):
                continue
            if found.accessibleName() == self._undo.undo_name != "":  # it is in the table, with its whole name
                continue
            name = _plain(found.text())
            menu: QMenu | None = found.menu()
            if menu is None:
                yield _button_entry(name, found.toolTip()), found.click
            else:
                for each in menu.actions():
                    if each.isEnabled() and each.menu() is None and not each.isSeparator():
                        yield _menu_entry(name, each), each.trigger

    def _do(self, key: str, control: bool) -> None:
        self._recent = (key, *(each for each in self._recent if each != key))[:_MAX_RECENT]
        self._state.keep("recent", self._recent)
        kind, _, number = key.partition(" ")
        if kind == "run":
            (self._actions.replay if control else self._actions.open_run)(int(number))
        elif key in self._targets:
            self._targets[key]()

    def _ignore(self, _: UserError) -> None:
        """Ignore it: what can be done is listed all the same, and History says what is wrong with the database."""


def _action_key(group: Group, action: Action) -> str:
    return f"action {group.title}: {action.title}"


def _button_entry(name: str, tooltip: str) -> Entry:
    detail = html.unescape(_TAG.sub("", tooltip))
    return Entry(key=f"button {name}", title=name, group="On this screen", detail=detail)


def _menu_entry(button: str, action: QAction) -> Entry:
    name = _plain(action.text())
    state = " (on)" if action.isCheckable() and action.isChecked() else ""
    title = f"{button}: {name}{state}" if button != "?" else name
    return Entry(key=f"menu {button} {name}", title=title, group="On this screen", keys=action.shortcut().toString())


def _plain(label: str) -> str:
    return label.partition("\t")[0].replace("&", "").strip(" ▾▸…")


def _read_runs(database: Path, known: tuple[int, ...]) -> tuple[tuple[int, ...], list[Entry]] | None:
    """Return the census of the runs and an entry per run, newest first; None where the census is the known one."""
    from app.storage.store import Store

    with Store.open(database) as store:
        census = store.library.census()
        if census == known:
            return None
        return census, run_entries(store.library.run_rows(store.library.find(RunQuery())[:_MAX_RUNS]))
