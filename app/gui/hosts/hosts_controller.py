"""The hosts of the window: the one chosen for runs, the one whose telemetry is shown, and all connections."""

from collections.abc import Callable
from functools import partial

from PySide6.QtCore import QObject, Qt, QTimer, Signal

from app.grants import Consent, refuse
from app.gui.run.form_controls import HostChoice
from app.gui.threads import Bridge, HostMessage
from app.hosts.connections import FULL_HZ, OVERVIEW_HZ, Connections, open_late
from app.samples import Inventory
from app.telemetry.messages import SamplerMessage
from app.viewmodels.hosts import MANAGE, HostState, host_field
from app.viewmodels.monitor.model import MonitorModel

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
        self._chosen = ""
        self._shown = ""
        self._run_host: str | None = None
        self._known: Inventory | None = None
        self.model = model
        self.connections = Connections(self._take, self._woken.emit, partial(open_late, consent=consent))
        # Ages of links and of what was heard last change without an event.
        self._timer = QTimer(self)
        self._timer.setInterval(_LOOK_MS)

    @property
    def chosen(self) -> str:
        """The host that the form's runs are made on; "" is this machine."""
        return self._chosen

    @property
    def shown(self) -> str:
        """The host whose telemetry the Run screen shows: that of the active run, else the one chosen."""
        return self._shown

    def start(self) -> None:
        """Listen to the form, and read the user's hosts."""
        self._choice.chosen.connect(self._answer)
        self._choice.retry_requested.connect(lambda: self.connect_host(self._chosen))
        self._woken.connect(self.refresh, Qt.ConnectionType.QueuedConnection)
        self._timer.timeout.connect(self.refresh)
        self.connections.reload()

    def take_inventory(self, inventory: Inventory) -> None:
        """Take the devices of this machine."""
        self._here = inventory
        self.refresh()

    def close(self) -> None:
        """End all connections."""
        self._timer.stop()
        self.connections.close()

    def choose(self, host: str) -> None:
        """Make runs on a host from now on, and connect to it; "" is this machine."""
        self._chosen, self._known = host, None
        if host:
            self.connections.connect(host, FULL_HZ)
        self.chosen_changed.emit(host, None)
        self._show_telemetry()
        self.refresh()

    def connect_host(self, host: str) -> None:
        """Connect to a host, or try again."""
        if host:
            self.connections.connect(host, FULL_HZ if host == self._chosen else OVERVIEW_HZ)

    def remove(self, host: str) -> None:
        """End the connection to a host that the user removes; runs are made on this machine again."""
        if host == self._chosen:
            self.choose("")
        self.connections.disconnect(host)

    def follow_run(self, host: str | None) -> None:
        """Show the telemetry of the host where a run is active; None shows that of the chosen one."""
        self._run_host = host
        self._show_telemetry()

    def refresh(self) -> None:
        """Show how the connections are now."""
        states = self.connections.states()
        self.model.update(states)
        inventory = self._chosen_inventory()
        if inventory is not self._known:
            self._known = inventory
            self.chosen_changed.emit(self._chosen, inventory)
        state = next((each for each in states if each.name == self._chosen), HostState(name=self._chosen))
        is_away = bool(self._chosen) and state.can_retry
        self._choice.show_field(host_field(self._chosen, states, inventory), can_retry=is_away)
        if all(each.stage == "off" for each in states):
            self._timer.stop()
        elif not self._timer.isActive():
            self._timer.start()
        self.states_changed.emit()

    def state(self) -> HostState:
        """Return how the connection to the host is whose telemetry is shown."""
        return self.connections.state(self._shown)

    def inventory(self, host: str) -> Inventory | None:
        """Return the devices of a host, where they are known; "" is this machine."""
        return self.model.inventory(host) if host else self._here

    def wait_inventory(self, here: Callable[[], Inventory]) -> Inventory:
        """Return the devices of the chosen host, off the GUI thread; `here` waits for those of this machine."""
        chosen = self._chosen
        return self.connections.wait_host(chosen).inventory() if chosen else here()

    def _answer(self, host: str) -> None:
        if host == MANAGE:
            self.refresh()
            self.manage_requested.emit()
        elif host != self._chosen:
            self.choose(host)

    def _chosen_inventory(self) -> Inventory | None:
        if not self._chosen:
            return self._here
        is_connected = self.connections.state(self._chosen).stage == "connected"
        return self.model.inventory(self._chosen) if is_connected else None

    def _show_telemetry(self) -> None:
        shown = self._chosen if self._run_host is None else self._run_host
        if shown != self._shown:
            self._shown = shown
            self.shown_changed.emit(shown, self.inventory(shown))

    def _take(self, host: str, message: SamplerMessage) -> None:
        """Take what a host's telemetry says. Thread: the host's."""
        self.model.handle(message, host)
        if host == self._shown:
            self._bridge.post(HostMessage(host, message))
        if isinstance(message, Inventory):
            self._woken.emit()
