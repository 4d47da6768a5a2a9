"""The one table of the window's actions: their names, their keys, and where these act.

Key bindings of the whole window, the list of keys (F1) and the command palette (Ctrl+K) are made from it. A test finds
each shortcut of a screen that is missing here.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from app.gui.window import COMPARE, HISTORY, MONITOR, RUN

_SYMBOLS = {
    "Up": "↑",
    "Down": "↓",
    "Left": "←",
    "Right": "→",
    "Del": "Delete",
    "Return": "Enter",
    "-": "−",
}


@dataclass(frozen=True, slots=True)
class Action:
    """An action of the user.

    Attributes:
        keys: Alternative key sequences in Qt's notation; a pair of directions is one action.
        name: The window's function that performs it; "" if its keys are pressed in its group's target.
        words: Synonyms by which the palette finds it.
    """

    title: str
    keys: tuple[str, ...] = ()
    name: str = ""
    words: str = ""

    @property
    def keys_text(self) -> str:
        """Return its keys as written on a keyboard: `Alt+↑, Alt+↓`."""
        return ", ".join("+".join(_SYMBOLS.get(part, part) for part in shortcut.split("+")) for shortcut in self.keys)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Actions under one heading.

    Attributes:
        page: Their screen; None means every screen.
        target: Accessible name of the widget that takes their keys.
        enter: The keys that lead to a hidden target.
    """

    title: str
    actions: tuple[Action, ...]
    page: int | None = None
    target: str = ""
    enter: str = ""


GROUPS = (
    Group(
        title="Everywhere",
        actions=(
            Action("Find an action or a run", ("Ctrl+K",), "palette"),
            Action("Show Run", ("Ctrl+1", "Alt+1"), "run page"),
            Action("Show Monitor", ("Ctrl+2", "Alt+2"), "monitor page"),
            Action("Show History", ("Ctrl+3", "Alt+3"), "history page"),
            Action("Show Compare", ("Ctrl+4", "Alt+4"), "compare page"),
            Action("Undo the last change to stored data", ("Ctrl+Z",), "undo"),
            Action("Redo the last undone change", ("Ctrl+Shift+Z",), "redo"),
            Action("Run the variant in the form", ("Ctrl+R",), "run"),
            Action("Stop the run", ("Ctrl+.",), "stop"),
            Action(
                "Compare several values, or start a prepared experiment",
                ("Ctrl+E",),
                "questions",
                "questions preset matrix grid sweep example quick",
            ),
            Action("Save the plot under the pointer, or all plots, as an image", ("Ctrl+S",), "save"),
            Action("Copy the plot under the pointer, or all plots, to the clipboard", ("Ctrl+Shift+S",), "copy"),
            Action("Show reference runs", (), "reference", "H200 example demo"),
            Action("Hosts: add, check and remove", (), "hosts", "ssh slurm ray docker remote machine server connect"),
            Action("Settings", ("Ctrl+,",), "settings", "preferences options configure"),
            Action("Show the program's log", (), "log", "debug error report"),
            Action("All actions with their keys", ("F1", "?"), "keys", "help shortcuts keyboard"),
            Action("Close the window", ("Ctrl+Q",), "quit", "exit quit"),
            Action("Next and previous control", ("Tab", "Shift+Tab")),
            Action("Move the focused splitter", ("Left", "Right", "Up", "Down")),
        ),
    ),
    Group(
        title="Run",
        page=RUN,
        actions=(
            Action("Go to the live plots", ("Ctrl+L",)),
            Action("Go to the queue", ("Ctrl+J",)),
        ),
    ),
    Group(
        title="Plots on Run",
        page=RUN,
        target="Plots",
        enter="Ctrl+L",
        actions=(
            Action("Show the last 30 s", ("1",)),
            Action("Show the last 5 min", ("2",)),
            Action("Show the measured part", ("3",)),
            Action("Show everything", ("4",)),
            Action("Pause or resume the plots", ("Space",)),
            Action("Follow new data", ("F", "End")),
            Action("One panel per GPU, or one for all", ("G",)),
            Action("Move the crosshair", ("Left", "Right")),
            Action("Move the view", ("Shift+Left", "Shift+Right")),
            Action("Zoom in", ("+",)),
            Action("Zoom out", ("-",)),
            Action("Raise the previous or next curve", ("Up", "Down")),
            Action("Choose the previous or next plot", ("PgUp", "PgDown")),
            Action("Show the chosen plot alone, maximised", ("Return",)),
            Action("Show the menu of the chosen plot: log axis, smoothing", ("Menu",)),
            Action("Remove the crosshair, then show all plots again", ("Escape",)),
        ),
    ),
    Group(
        title="Queue",
        page=RUN,
        target="Queue",
        enter="Ctrl+J",
        actions=(
            Action("Move the experiment up or down", ("Alt+Up", "Alt+Down")),
            Action("Pause or resume the experiment", ("Space",)),
            Action("Remove the experiment, or cancel it while it runs", ("Del",)),
            Action("Show the verdict of the experiment", ("Return",)),
        ),
    ),
    Group(
        title="Monitor",
        page=MONITOR,
        target="Devices",
        actions=(
            Action("Show the last minute", ("1",)),
            Action("Show the last 10 minutes", ("2",)),
            Action("Show the last hour", ("3",)),
            Action("Show the last 8 hours", ("4",)),
            Action("Search hosts, GPUs, states, processes and users", ("Ctrl+F",)),
            Action("Show all devices again, or one of several chosen", ("Escape",)),
            Action("Previous and next host or GPU", ("Up", "Down")),
            Action("Choose one more: the curves lie over each other", ("Shift+Up", "Shift+Down")),
            Action("Sort by a column", ("S",)),
            Action("Fold and unfold a host", ("Left", "Right")),
            Action("Show the plots of the host, or connect to it", ("Return",)),
        ),
    ),
    Group(
        title="Plots on Monitor",
        page=MONITOR,
        target="Plots",
        actions=(
            Action("Pause or resume Monitor's plots", ("Space",)),
            Action("Follow Monitor's new data", ("F", "End")),
            Action("Zoom into Monitor's plots", ("+",)),
            Action("Zoom out of Monitor's plots", ("-",)),
            Action("Move Monitor's view", ("Shift+Left", "Shift+Right")),
        ),
    ),
    Group(
        title="History",
        page=HISTORY,
        target="Stored runs",
        actions=(
            Action("Search the runs", ("Ctrl+F",)),
            Action("Show all runs again", ("Escape",)),
            Action("Open the run", ("Return",)),
            Action("Check or uncheck the run", ("Space",)),
            Action("Check the runs from here up or down", ("Shift+Up", "Shift+Down")),
            Action("Check all runs, or none", ("Ctrl+A", "Ctrl+Shift+A"), words="select tick untick clear"),
            Action("Compare the checked runs", ("Ctrl+Shift+C",)),
            Action("Show what differs between two checked runs", ("D",)),
            Action("Compare the checked runs with the baseline of their experiment", ("B",)),
            Action("Load the run's variant into the form", ("A",)),
            Action("Copy the commands of the checked runs", ("Ctrl+C",)),
            Action("Show the log of the run", ("L",)),
            Action("Show the run's files in the file manager", ("F",)),
            Action("Change the tags of the checked runs", ("T",)),
            Action("Write a note on the checked runs", ("N",)),
            Action("Delete the checked runs", ("Del",)),
            Action("Restore the checked runs", ("R",)),
            Action("Delete runs in the trash for good", ("Shift+Del",)),
            Action("Show or hide the filter panel", ("Ctrl+B",)),
            Action("Sort by a column", ("S",)),
            Action("Group the runs by experiment", ("Ctrl+G",)),
            Action("Fold and unfold a group", ("Left", "Right")),
        ),
    ),
    Group(
        title="Compare",
        page=COMPARE,
        target="Compared runs",
        actions=(
            Action("Make the row the baseline", ("B",)),
            Action("Show or hide the row in curves and charts", ("Space",)),
            Action("Sort by a column", ("S",)),
            Action("Fold and unfold a variant or a group", ("Left", "Right")),
            Action("Open the run", ("Return",)),
            Action("Copy the table", ("Ctrl+C",)),
        ),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Elsewhere:
    """An action that needs something to exist or to be chosen first; the palette says where, and leads there."""

    title: str
    page: int
    where: str
    words: str = ""


ELSEWHERE = (
    Elsewhere(
        title="Export runs",
        page=HISTORY,
        where="in History: right-click the checked runs",
        words="save csv json parquet trace database vscope share",
    ),
    Elsewhere(
        title="Import runs",
        page=HISTORY,
        where="in History: View, or drop a file on the window",
        words="open load database vscope merge add",
    ),
    Elsewhere(
        title="Get PyTorch or JAX",
        page=RUN,
        where="in Run: choose it as framework",
        words="install torch pytorch jax environment framework",
    ),
    Elsewhere(
        title="Save a report",
        page=COMPARE,
        where="in Compare: at the top right, once runs are compared",
        words="export html markdown print share pdf",
    ),
    Elsewhere(
        title="Find out why a variant is faster",
        page=COMPARE,
        where="in Compare: Why, once two variants are compared",
        words="explain kernels idle waterfall cause reason",
    ),
    Elsewhere(
        title="What ran: evidence of a run",
        page=HISTORY,
        where="in History: open the run",
        words="verified trace kernels precision layout badge",
    ),
)


def all_actions() -> Iterator[tuple[Group, Action]]:
    return ((group, action) for group in GROUPS for action in group.actions)
