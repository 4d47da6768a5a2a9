"""What controllers work with, and what screens ask of the window around them, each as one object."""

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
    """What all controllers of one window work with; `Workbench` makes it before them.

    Thread: GUI only.
    """

    window: "MainWindow"

    theme: Theme

    database: KnownDatabase

    reads: Background
    """Reads and writes the database, one thing after another."""

    sessions: Background
    """Makes runs."""

    bridge: Bridge
    """Brings events of runs and telemetry to the GUI thread."""

    feed: TelemetryFeed
    """Telemetry of this machine."""

    inventory: Callable[[], Inventory]
    """Wait for the devices of the host that runs take place on. Thread: any but the GUI's."""

    consent: Consent
    """Ask whether to allow what was not typed here. Thread: any but the GUI's."""

    is_busy: Callable[[], bool]
    """Whether a run or the queue is active."""

    record_change: Callable[[str, "Reversal | None"], None]
    """Take the name of a change of stored things that was just made, and what undoes it; None if nothing changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Actions:
    """One call for each request that leads to another screen, or that several screens have.

    `Workbench` makes it and hands it down; no signal is passed on from widget to widget for these.

    Thread: GUI only.
    """

    open_run: Callable[[int], None]
    """Show the page of a stored run in History."""

    compare: Callable[..., None]
    """Show these runs in Compare, with the `Question` of whoever names one, else that of their newest experiment."""

    run_again: Callable[[int], None]
    """Put the variant of a stored run into the form on the Run screen."""

    run_plan: Callable[["Plan"], None]
    """Show the Run screen and start an experiment there, or add it to the queue while something runs."""

    cannot_run: Callable[[Sequence["RunSpec"]], bool]
    """Whether the machine that runs take place on is not known yet, or cannot run one of these."""

    open_questions: Callable[[], None]
    """Show the prepared questions on the Run screen."""

    show_reference: Callable[[], None]
    """Show History and add the reference runs there."""

    add_reference: Callable[[Callable[[UserError], None]], None]
    """Add the reference runs while this screen stays; the argument gets the error, if any."""

    manage_hosts: Callable[[], None]
    """Show the dialog in which hosts are added, checked and removed."""

    record_change: Callable[[str, "Reversal | None"], None]
    """Take the name of a change of stored things that was just made, and what undoes it; None if nothing changed."""

    undo: Callable[[], None]
    """Undo the last such change."""

    runs_imported: Callable[[], None]
    """Show runs, and unfinished experiments, that came from another database."""
