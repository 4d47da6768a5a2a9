"""The window's hosts: the one chosen for runs, the one whose telemetry is displayed, and all connections."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Qt, QTimer, Signal

from app.gui.actions import Actions, Services
from app.gui.experiment.queue_controller import QueueController
from app.gui.run.form_controller import FormController
from app.gui.run.run_controller import RunController
from app.gui.run.screen import RunView
from app.gui.threads import HostMessage, WindowEvent
from app.gui.window import RUN
from app.hosts.connections import FULL_HZ, OVERVIEW_HZ, Connections, open_late
from app.telemetry.messages import SamplerMessage
from app.values.samples import Inventory, TelemetryGap
from app.viewmodels.hosts import MANAGE, HostState, describe_absence, host_field, host_machine
from app.viewmodels.monitor.model import MonitorModel
from app.viewmodels.plot.panels import machine_state

if TYPE_CHECKING:
    from app.gui.monitor.screen import MonitorView

_TICK_MS = 1_000


class HostsController(QObject):
    """Manages the hosts, takes all events of the window, and shows the right machine's on each screen.

    `runs_fetched` is emitted when a host's runs were fetched into the database, `states_changed` when a connection's
    state or the age of its last message has changed. As a host's name, "" is this machine.

    Thread: GUI only, except for what the connections call.
    """

    runs_fetched = Signal()
    states_changed = Signal()
    _woken = Signal()

    def __init__(self, services: Services, run_view: RunView, form: FormController, run: RunController) -> None:
        """Create the controller without connections."""
        super().__init__(run_view)
        self._window = services.window
        self._theme = services.theme
        self._database = services.database
        self._bridge = services.bridge
        self._choice = run_view.form.host
        self._form = form
        self._run = run
        self._queue: QueueController | None = None
        self._monitor: MonitorView | None = None
        self._here: Inventory | None = None
        self.chosen = ""
        """The host of the form's runs."""
        self.shown_host = ""
        """The host whose telemetry the Run screen shows: the active run's, else the chosen one."""
        self._run_host: str | None = None
        self._inventory: Inventory | None = None
        self.model = MonitorModel(run.recent)
        open_host = partial(open_late, consent=services.consent)
        self.connections = Connections(self._take, self._woken.emit, open_host)
        # Ages of links and of last messages change without an event.
        self._timer = QTimer(self, interval=_TICK_MS)

    def start(self, queue: QueueController) -> None:
        """Connect the parts, and read the user's hosts."""
        self._queue = queue
        self._choice.chosen.connect(self._answer)
        self._choice.retry_button.clicked.connect(lambda: self.connect_host(self.chosen))
        self._woken.connect(self.refresh_hosts, Qt.ConnectionType.QueuedConnection)
        self._timer.timeout.connect(self._tick)
        self._timer.start()
        self._form.updated.connect(lambda _: self._follow_run())
        queue.host_changed.connect(self._show_telemetry)
        queue.running_changed.connect(lambda _: self._follow_run())
        self.connections.reload()

    def make_monitor(self, actions: Actions) -> "MonitorView":
        """Create the Monitor screen, for which the first paint does not wait."""
        from app.gui.monitor.screen import MonitorView

        self._monitor = view = MonitorView(self.model, self._theme, actions)
        view.table.connect_requested.connect(self.connect_host)
        view.table.opened.connect(self._open)
        return view

    def close(self) -> None:
        """End all connections, and stop refreshing Monitor."""
        self._timer.stop()
        self.connections.close()

    def manage(self) -> None:
        from app.gui.hosts.hosts_dialog import HostsDialog

        HostsDialog(self._window, self._theme, self, self._database).open()

    def handle(self, event: WindowEvent | HostMessage, run: int | None) -> None:
        """Take one event: telemetry reaches the Run screen only from the displayed host."""
        if isinstance(event, HostMessage):
            if event.host == self.shown_host:
                self._run.handle(event.message)
            return
        is_telemetry = isinstance(event, SamplerMessage)
        if not (is_telemetry and self.shown_host):
            self._run.handle(event, run)
        if is_telemetry:
            self.model.handle(event)
        if isinstance(event, Inventory):
            self._here = event
            self.refresh_hosts()
        elif isinstance(event, TelemetryGap) and not self.chosen:
            self._window.show_machine("Telemetry starts again …", "warning", event.reason)

    def show_failure(self, reason: str) -> None:
        if not self.chosen:
            self._window.show_machine("No telemetry", "bad", reason)

    def choose(self, host: str) -> None:
        self.chosen, self._inventory = host, None
        self.connect_host(host)
        self._form.set_machine(host, None)
        self._show_telemetry(self._run_host)
        self.refresh_hosts()

    def connect_host(self, host: str) -> None:
        if host:
            self.connections.connect(host, FULL_HZ if host == self.chosen else OVERVIEW_HZ)

    def remove(self, host: str) -> None:
        """End the connection to a host that the user removes; runs use this machine again."""
        if host == self.chosen:
            self.choose("")
        self.connections.disconnect(host)

    def renew(self, host: str, inventory: Inventory) -> None:
        """Update a connected host's inventory: its runs may have more devices now. Thread: any."""
        if self.connections.state(host).stage == "connected":
            self.model.handle(inventory, host)
            self._woken.emit()

    def inventory(self, host: str) -> Inventory | None:
        return self.model.inventory(host) if host else self._here

    def wait_inventory(self, here: Callable[[], Inventory]) -> Inventory:
        """Return the chosen host's devices, off the GUI thread; `here` waits for this machine's."""
        chosen = self.chosen
        return self.connections.wait_host(chosen).inventory() if chosen else here()

    def refresh(self) -> None:
        """Show the current state on Monitor, if it exists."""
        if self._monitor is not None:
            self._monitor.refresh()

    def refresh_hosts(self) -> None:
        """Show the connections' states: in the form, the window's head, above the plots and on Monitor."""
        states, chosen = self.connections.states(), self.chosen
        self.model.update(states)
        state = next((other for other in states if other.name == chosen), HostState(name=chosen))
        is_known = not chosen or state.stage == "connected"
        inventory = self.inventory(chosen) if is_known else None
        if inventory is not self._inventory:
            self._inventory = inventory
            self._form.set_machine(chosen, inventory)
        self._choice.show_field(host_field(chosen, states, inventory), can_retry=bool(chosen) and state.can_retry)
        if chosen:
            self._window.show_machine(*host_machine(state, self.inventory(chosen)))
        elif inventory is not None:
            text, *details = machine_state(inventory)
            self._window.show_machine(f"This machine: {text}", *details)
        host = self.shown_host
        self._run.show_link(*(describe_absence(self.connections.state(host)) if host else ("", "")))
        self.states_changed.emit()
        self.refresh()

    def _tick(self) -> None:
        self.model.tick()
        is_used = any(host.stage != "off" for host in self.connections.states())
        (self.refresh_hosts if is_used else self.refresh)()

    def _answer(self, host: str) -> None:
        if host == MANAGE:
            self.refresh_hosts()
            self.manage()
        elif host != self.chosen:
            self.choose(host)

    def _open(self, host: str) -> None:
        self.choose(host)
        self._window.show_page(RUN)

    def _follow_run(self) -> None:
        """Show the telemetry of the form's run's host while the run lasts."""
        if self._queue is not None and not self._queue.running:
            self._show_telemetry(self._run.host)

    def _show_telemetry(self, run_host: str | None) -> None:
        """Show the telemetry of the host with the active run; None shows the chosen one's."""
        self._run_host = run_host
        host = self.chosen if run_host is None else run_host
        if host != self.shown_host:
            self.shown_host = host
            self._run.show_host(host, self.inventory(host))

    def _take(self, host: str, message: SamplerMessage) -> None:
        """Handle a message of a host's telemetry. Thread: the host's."""
        self.model.handle(message, host)
        if host == self.shown_host:
            self._bridge.post(HostMessage(host, message))
        if isinstance(message, Inventory):
            self._woken.emit()
