"""The objects that controllers work with, and the requests of screens to the window around them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from app.errors import UserError
from app.grants import Consent
from app.gui.theme import Theme
from app.gui.threads import Background, Bridge
from app.storage.files import KnownDatabase
from app.telemetry.feed import TelemetryFeed
from app.values.samples import Inventory

if TYPE_CHECKING:
    from app.gui.window import MainWindow
    from app.runs.undo import Reversal
    from app.values.plan import Plan
    from workloads.protocol import RunSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The services shared by all controllers of one window; `Workbench` creates it before them. Thread: GUI only."""

    window: "MainWindow"

    theme: Theme

    database: KnownDatabase

    reads: Background
    """The thread that reads and writes the database, one operation after another."""

    sessions: Background
    """The thread of runs."""

    bridge: Bridge
    """Brings events of runs and telemetry to the GUI thread."""

    feed: TelemetryFeed
    """Telemetry of this machine."""

    inventory: Callable[[], Inventory]
    """Waits for the devices of the host of runs. Thread: any but the GUI's."""

    consent: Consent
    """Asks whether to allow what was not typed here. Thread: any but the GUI's."""

    is_busy: Callable[[], bool]
    """Returns whether a run or the queue is active."""

    record_change: Callable[[str, "Reversal | None"], None]
    """Takes the name of a change just made to stored things, and its reversal; None if nothing changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Actions:
    """One call for each request that leads to another screen, or that several screens make. Thread: GUI only."""

    open_run: Callable[[int], None]
    """Show the page of a stored run in History."""

    compare: Callable[..., None]
    """Compare these runs, with the given `Question`, else that of their newest experiment."""

    run_again: Callable[[int], None]
    """Put a stored run's variant into the form on the Run screen."""

    run_plan: Callable[["Plan"], None]
    """Show the Run screen and start an experiment there, or queue it while something runs."""

    cannot_run: Callable[[Sequence["RunSpec"]], bool]
    """Return whether the machine of runs is still unknown, or cannot run one of these."""

    open_questions: Callable[[], None]
    """Show the prepared questions on the Run screen."""

    show_reference: Callable[[], None]
    """Show History and add the reference runs there."""

    add_reference: Callable[[Callable[[UserError], None]], None]
    """Add the reference runs without leaving this screen; the argument gets any error."""

    manage_hosts: Callable[[], None]
    """Show the dialog in which hosts are added, checked and removed."""

    record_change: Callable[[str, "Reversal | None"], None]
    """Take the name of a change just made to stored things, and its reversal; None if nothing changed."""

    undo: Callable[[], None]
    """Undo the last change."""

    runs_imported: Callable[[], None]
    """Show runs and unfinished experiments that were imported."""
