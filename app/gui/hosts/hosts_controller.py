"""The hosts of the window: the one chosen for runs, the one whose telemetry is shown, and all connections."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Qt, QTimer, Signal

from app.grants import Consent, refuse
from app.gui.actions import Actions, Services
from app.gui.experiment.queue_controller import QueueController
from app.gui.run.form_controller import FormController
from app.gui.run.form_controls import HostChoice
from app.gui.run.run_controller import RunController
from app.gui.run.screen import RunView
from app.gui.threads import Bridge, HostMessage, WindowEvent
from app.gui.window import RUN
from app.hosts.connections import FULL_HZ, OVERVIEW_HZ, Connections, open_late
from app.telemetry.messages import SamplerMessage
from app.values.samples import Inventory, TelemetryGap
from app.viewmodels.hosts import MANAGE, HostState, describe_absence, host_field, host_machine
from app.viewmodels.monitor.model import MonitorModel
from app.viewmodels.plot.panels import machine_state

if TYPE_CHECKING:
    from app.gui.monitor.screen import MonitorView

_LOOK_MS = 1_000


class HostsController(QObject):
    """Chooses among the hosts, and passes on the telemetry of the one that is shown.

    `chosen_changed` is emitted with the host that runs are made on from now on and its devices, once with None and
    again when they are known; `shown_changed` with the host whose telemetry is shown. "" is this machine.

    Thread: GUI only, but for what the connections call.
    """

    chosen_changed = Signal(str, object)
    shown_changed = Signal(str, object)
    manage_requested = Signal()
    states_changed = Signal()
    _woken = Signal()

    def __init__(self, choice: HostChoice, bridge: Bridge, model: MonitorModel, consent: Consent = refuse) -> None:
        super().__init__(choice)
        self._choice = choice
        self._bridge = bridge
        self._here: Inventory | None = None
        self.chosen = ""
        """The host that the form's runs are made on; "" is this machine."""
        self.shown_host = ""
        """The host whose telemetry the Run screen shows: that of the active run, else the one chosen."""
        self._run_host: str | None = None
        self._inventory: Inventory | None = None
        self.model = model
        self.connections = Connections(self._take, self._woken.emit, partial(open_late, consent=consent))
        # Ages of links and of what was heard last change without an event.
        self._timer = QTimer(self)
        self._timer.setInterval(_LOOK_MS)

    def start(self) -> None:
        """Listen to the form, and read the user's hosts."""
        self._choice.chosen.connect(self._answer)
        self._choice.retry_requested.connect(lambda: self.connect_host(self.chosen))
        self._woken.connect(self.refresh, Qt.ConnectionType.QueuedConnection)
        self._timer.timeout.connect(self.refresh)
        self.connections.reload()

    def take_inventory(self, inventory: Inventory) -> None:
        self._here = inventory
        self.refresh()

    def close(self) -> None:
        self._timer.stop()
        self.connections.close()

    def choose(self, host: str) -> None:
        """Make runs on a host from now on, and connect to it; "" is this machine."""
        self.chosen, self._inventory = host, None
        if host:
            self.connections.connect(host, FULL_HZ)
        self.chosen_changed.emit(host, None)
        self._show_telemetry()
        self.refresh()

    def connect_host(self, host: str) -> None:
        if host:
            self.connections.connect(host, FULL_HZ if host == self.chosen else OVERVIEW_HZ)

    def remove(self, host: str) -> None:
        """End the connection to a host that the user removes; runs are made on this machine again."""
        if host == self.chosen:
            self.choose("")
        self.connections.disconnect(host)

    def follow_run(self, host: str | None) -> None:
        """Show the telemetry of the host where a run is active; None shows that of the chosen one."""
        self._run_host = host
        self._show_telemetry()

    def refresh(self) -> None:
        states = self.connections.states()
        self.model.update(states)
        inventory = self._chosen_inventory()
        if inventory is not self._inventory:
            self._inventory = inventory
            self.chosen_changed.emit(self.chosen, inventory)
        state = next((host for host in states if host.name == self.chosen), HostState(name=self.chosen))
        is_away = bool(self.chosen) and state.can_retry
        self._choice.show_field(host_field(self.chosen, states, inventory), can_retry=is_away)
        if all(host.stage == "off" for host in states):
            self._timer.stop()
        elif not self._timer.isActive():
            self._timer.start()
        self.states_changed.emit()

    def renew(self, host: str, inventory: Inventory) -> None:
        """Take what a connected host has by now: what its runs have may be more than when it was reached."""
        if self.connections.state(host).stage == "connected":
            self.model.handle(inventory, host)
            self.refresh()

    def state(self) -> HostState:
        return self.connections.state(self.shown_host)

    def inventory(self, host: str) -> Inventory | None:
        """Return the devices of a host, where they are known; "" is this machine."""
        return self.model.inventory(host) if host else self._here

    def wait_inventory(self, here: Callable[[], Inventory]) -> Inventory:
        """Return the devices of the chosen host, off the GUI thread; `here` waits for those of this machine."""
        chosen = self.chosen
        return self.connections.wait_host(chosen).inventory() if chosen else here()

    def _answer(self, host: str) -> None:
        if host == MANAGE:
            self.refresh()
            self.manage_requested.emit()
        elif host != self.chosen:
            self.choose(host)

    def _chosen_inventory(self) -> Inventory | None:
        if not self.chosen:
            return self._here
        is_connected = self.connections.state(self.chosen).stage == "connected"
        return self.model.inventory(self.chosen) if is_connected else None

    def _show_telemetry(self) -> None:
        host = self.chosen if self._run_host is None else self._run_host
        if host != self.shown_host:
            self.shown_host = host
            self.shown_changed.emit(host, self.inventory(host))

    def _take(self, host: str, message: SamplerMessage) -> None:
        """Take what a host's telemetry says. Thread: the host's."""
        self.model.handle(message, host)
        if host == self.shown_host:
            self._bridge.post(HostMessage(host, message))
        if isinstance(message, Inventory):
            self._woken.emit()


_TICK_MS = 1_000


class HostScreens(QObject):
    """Takes all events of the window, and shows those of the right machine on each screen.

    `runs_fetched` is emitted when runs of a host were fetched into the database.

    Thread: GUI only.
    """

    runs_fetched = Signal()

    def __init__(self, services: Services, run_view: RunView, form: FormController, run: RunController) -> None:
        """Prepare; nothing is connected yet."""
        super().__init__(run_view)
        self._window = services.window
        self._theme = services.theme
        self._database = services.database
        self._form = form
        self._run = run
        self._queue: QueueController | None = None
        self.hosts = HostsController(run_view.form.host, services.bridge, MonitorModel(run.recent), services.consent)
        self._monitor: MonitorView | None = None
        # Once a second even where nothing comes: Monitor has to say how old its numbers are.
        self._timer = QTimer(self, interval=_TICK_MS)
        self._timer.timeout.connect(self._tick)
        self._timer.start()

    def start(self, queue: QueueController) -> None:
        """Connect the parts, and read the user's hosts."""
        self._queue, hosts = queue, self.hosts
        hosts.chosen_changed.connect(self._form.set_machine)
        hosts.shown_changed.connect(self._run.show_host)
        hosts.states_changed.connect(self._show_states)
        hosts.manage_requested.connect(self.manage)
        self._form.updated.connect(lambda _: self._follow_run())
        queue.host_changed.connect(hosts.follow_run)
        queue.running_changed.connect(lambda _: self._follow_run())
        hosts.start()

    def make_monitor(self, actions: Actions) -> "MonitorView":
        """Make the Monitor screen, which the first paint does not wait for."""
        from app.gui.monitor.screen import MonitorView

        view = MonitorView(self.hosts.model, self._theme, actions)
        view.table.connect_requested.connect(self.hosts.connect_host)
        view.table.opened.connect(self._open)
        self._monitor = view
        return view

    def close(self) -> None:
        """End all connections, and refresh Monitor no more."""
        self._timer.stop()
        self.hosts.close()

    def manage(self) -> None:
        """Show the dialog in which hosts are added, checked and removed."""
        from app.gui.hosts.hosts_dialog import HostsDialog

        dialog = HostsDialog(self._window, self._theme, self.hosts, self._database)
        dialog.runs_fetched.connect(self.runs_fetched)
        dialog.open()

    def handle(self, event: WindowEvent | HostMessage, run: int | None) -> None:
        """Take one event: telemetry goes to the Run screen only from the host that is shown there."""
        if isinstance(event, HostMessage):
            if event.host == self.hosts.shown_host:
                self._run.handle(event.message)
            return
        is_telemetry = isinstance(event, SamplerMessage)
        if not (is_telemetry and self.hosts.shown_host):
            self._run.handle(event, run)
        if is_telemetry:
            self.hosts.model.handle(event)
        if isinstance(event, Inventory):
            self.hosts.take_inventory(event)
        elif isinstance(event, TelemetryGap) and not self.hosts.chosen:
            self._window.show_machine("Telemetry starts again …", "warning", event.reason)

    def refresh(self) -> None:
        """Show on Monitor what is known now, once it is made."""
        if self._monitor is not None:
            self._monitor.refresh()

    def _tick(self) -> None:
        self.hosts.model.tick()
        self.refresh()

    def show_failure(self, reason: str) -> None:
        """Show that this machine has no telemetry."""
        if not self.hosts.chosen:
            self._window.show_machine("No telemetry", "bad", reason)

    def _follow_run(self) -> None:
        """Show the telemetry of the host where the form's run is made, while it lasts."""
        if self._queue is not None and not self._queue.running:
            self.hosts.follow_run(self._run.host)

    def _open(self, host: str) -> None:
        self.hosts.choose(host)
        self._window.show_page(RUN)

    def _show_states(self) -> None:
        chosen = self.hosts.chosen
        inventory = self.hosts.inventory(chosen)
        if chosen:
            self._window.show_machine(*host_machine(self.hosts.connections.state(chosen), inventory))
        elif inventory is not None:
            text, *rest = machine_state(inventory)
            self._window.show_machine(f"This machine: {text}", *rest)
        self._run.show_link(*(describe_absence(self.hosts.state()) if self.hosts.shown_host else ("", "")))
        self.refresh()
