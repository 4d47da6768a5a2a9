"""Connects the hosts with what shows them: the Run screen, Monitor, the window's head and the dialog of hosts."""

import time
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QTimer

from app.grants import Consent
from app.gui.actions import Actions
from app.gui.experiment.queue_controller import QueueController
from app.gui.hosts.hosts_controller import HostsController
from app.gui.run.form_controller import FormController
from app.gui.run.run_controller import RunController
from app.gui.run.screen import RunView
from app.gui.theme import Theme
from app.gui.threads import Bridge, HostMessage, WindowEvent
from app.gui.window import RUN, MainWindow
from app.samples import Inventory, TelemetryGap
from app.telemetry.messages import SamplerMessage
from app.viewmodels.hosts import describe_absence, host_machine
from app.viewmodels.monitor.model import MonitorModel
from app.viewmodels.plot.telemetry_buffer import machine_state

if TYPE_CHECKING:
    from app.gui.monitor.screen import MonitorView

_REFRESH_PLOTS_S, _REFRESH_WORDS_S = 0.15, 0.5
"""Numbers that change more often than this nobody can read."""
_TICK_MS = 1_000


class MonitorController(QObject):
    """Brings the monitor's model and view together: takes events, and shows what anyone can see.

    Once a second it does so even where nothing comes: the screen has to say how old its numbers are. Until the view is
    made, the model alone takes what comes.

    Thread: GUI only.
    """

    def __init__(self, model: MonitorModel, parent: QObject) -> None:
        super().__init__(parent)
        self._view: MonitorView | None = None
        self._model = model
        self._plots_s = self._words_s = 0.0
        self._timer = QTimer(self)
        self._timer.setInterval(_TICK_MS)
        self._timer.timeout.connect(self._tick)
        self._timer.start()

    def attach(self, view: "MonitorView") -> None:
        """Show what is known in this view from now on."""
        self._view = view

    def close(self) -> None:
        """Refresh the screen no more."""
        self._timer.stop()

    def handle(self, event: WindowEvent) -> None:
        """Take one event of this machine."""
        self._model.handle(event)

    def refresh(self) -> None:
        """Show what is known now, if anyone can see it and has had time to read the last."""
        if self._view is None:
            return
        now_s = time.monotonic()
        if self._view.isVisible() and now_s - self._words_s >= _REFRESH_WORDS_S:
            self._words_s = self._plots_s = now_s
            self._view.show_table()
        elif now_s - self._plots_s >= _REFRESH_PLOTS_S:
            self._plots_s = now_s
            self._view.show_chosen(words=False)

    def _tick(self) -> None:
        self._model.tick()
        self.refresh()


class HostScreens(QObject):
    """Takes all events of the window, and shows those of the right machine on each screen.

    Thread: GUI only.
    """

    def __init__(
        self,
        window: MainWindow,
        theme: Theme,
        run_view: RunView,
        form: FormController,
        run: RunController,
        bridge: Bridge,
        consent: Consent,
    ) -> None:
        """Prepare; nothing is connected yet.

        `consent` is asked for an address that was never allowed.
        """
        super().__init__(run_view)
        self._window = window
        self._theme = theme
        self._form = form
        self._run = run
        self._queue: QueueController | None = None
        self.hosts = HostsController(run_view.form.host, bridge, MonitorModel(run.recent), consent)
        self.monitor = MonitorController(self.hosts.model, self)

    def start(self, queue: QueueController) -> None:
        """Connect the parts, and read the user's hosts."""
        self._queue, hosts = queue, self.hosts
        hosts.chosen_changed.connect(self._form.set_machine)
        hosts.shown_changed.connect(self._run.show_host)
        hosts.states_changed.connect(self._show_states)
        hosts.manage_requested.connect(self.manage)
        self._form.shown.connect(lambda _: self._follow_run())
        queue.host_changed.connect(hosts.follow_run)
        queue.running_changed.connect(lambda _: self._follow_run())
        hosts.start()

    def make_monitor(self, actions: Actions) -> "MonitorView":
        """Make the Monitor screen, which the first paint does not wait for."""
        from app.gui.monitor.screen import MonitorView

        view = MonitorView(self.hosts.model, self._theme, actions)
        view.table.connect_requested.connect(self.hosts.connect_host)
        view.table.opened.connect(self._open)
        self.monitor.attach(view)
        return view

    def close(self) -> None:
        """End all connections, and refresh Monitor no more."""
        self.monitor.close()
        self.hosts.close()

    def manage(self) -> None:
        """Show the dialog in which hosts are added, checked and removed."""
        from app.gui.hosts.hosts_dialog import HostsDialog

        HostsDialog(self._window, self._theme, self.hosts).open()

    def handle(self, event: WindowEvent | HostMessage, run: int | None) -> None:
        """Take one event: telemetry goes to the Run screen only from the host that is shown there."""
        if isinstance(event, HostMessage):
            if event.host == self.hosts.shown:
                self._run.handle(event.message)
            return
        is_telemetry = isinstance(event, SamplerMessage)
        if not (is_telemetry and self.hosts.shown):
            self._run.handle(event, run)
        if is_telemetry:
            self.monitor.handle(event)
        if isinstance(event, Inventory):
            self.hosts.take_inventory(event)
        elif isinstance(event, TelemetryGap) and not self.hosts.chosen:
            self._window.show_machine("Telemetry starts again …", "warning", event.reason)

    def show_failure(self, reason: str) -> None:
        """Show that this machine has no telemetry."""
        if not self.hosts.chosen:
            self._window.show_machine("No telemetry", "bad", reason)

    def _follow_run(self) -> None:
        """Show the telemetry of the host where the form's run is made, while it lasts."""
        if self._queue is not None and not self._queue.running:
            self.hosts.follow_run(self._run.host)

    def _open(self, host: str) -> None:
        """Show the plots of a host on the Run screen."""
        self.hosts.choose(host)
        self._window.show_page(RUN)

    def _show_states(self) -> None:
        """Show the machine that runs are made on, and how the link to it is."""
        chosen = self.hosts.chosen
        inventory = self.hosts.inventory(chosen)
        if chosen:
            self._window.show_machine(*host_machine(self.hosts.connections.state(chosen), inventory))
        elif inventory is not None:
            self._window.show_machine(*machine_state(inventory))
        self._run.show_link(*(describe_absence(self.hosts.state()) if self.hosts.shown else ("", "")))
        self.monitor.refresh()
