"""Context managers for commands: the database, hosts, and the signals that stop a command."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from app.cli.terminal import ask_consent, say
from app.errors import UserError
from app.grants import Consent, typed
from app.paths import default_database
from app.runs.host import Host
from app.runs.leases import Leases
from app.runs.sinks import mark_crashed_runs
from app.runs.standby import StandbyLauncher
from app.runs.standby_setting import is_standby_wanted
from app.storage.store import Store
from app.telemetry.feed import TelemetryFeed

if TYPE_CHECKING:
    from app.hosts.remote import Connection

_QUIET_S = 1.0
"""A longer operation reports what it waits for."""


@contextlib.contextmanager
def open_store(database: Path | None, *, may_be_new: bool = False) -> Iterator[Store]:
    """Open the store after marking runs whose owner has ended as crashed.

    A given path becomes a new database only if it `may_be_new`, because it may be mistyped.

    Raises:
        UserError: The database does not exist.
    """
    if database is not None and not may_be_new and not database.exists():
        raise UserError(
            f"There is no database {database}: a run or an import creates one. Without --db it is {default_database()}."
        )
    with Store.open(database or default_database()) as store:
        if not store.is_read_only:
            mark_crashed_runs(store)
        yield store


class Hosts:
    """The hosts of a command, opened when first needed and closed with `stack`. Thread: one at a time."""

    def __init__(self, stack: contextlib.ExitStack, sample_ms: float, *, standby: bool = False) -> None:
        """`standby` announces several runs, for which a standby worker is useful."""
        self._stack = stack
        self._hz = 1000 / sample_ms
        self._standby = standby
        self._here: Host | None = None
        self._connections: dict[str, Connection] = {}

    def open(self, word: str, consent: Consent = ask_consent) -> Host:
        """Return the host that `--on` names, "" for this machine; a lost one is reconnected.

        Raises:
            UserError: It cannot be reached, or `consent` does not allow it.
        """
        if not word:
            self._here = self._here or self._open_this_machine()
            return self._here
        connection = self._connections.get(word)
        if connection is None or connection.lost is not None:
            connection = self._connections[word] = self._connect(word, consent)
        return connection.host

    def _open_this_machine(self) -> Host:
        feed = TelemetryFeed(self._hz)
        feed.start()
        self._stack.callback(feed.close)
        if not self._standby:
            return Host(telemetry=feed)
        leases = Leases()
        launcher = StandbyLauncher(leases, lambda: is_standby_wanted(feed))
        self._stack.callback(launcher.close)
        return Host(telemetry=feed, launcher=launcher, leases=leases)

    def _connect(self, word: str, consent: Consent) -> "Connection":
        from app.hosts.remote import open_host  # here: few commands need it

        progress = threading.Timer(_QUIET_S, say, (f"Connecting to {word} …",))
        progress.daemon = True
        progress.start()
        try:
            connection = open_host(word, consent=consent, hz=self._hz, notify=say)
        finally:
            progress.cancel()
        self._stack.callback(connection.close)
        if self._standby and is_standby_wanted(connection.host.telemetry):
            connection.standby.set()
        return connection


@contextlib.contextmanager
def opened_host(on: str, sample_ms: float) -> Iterator[Host]:
    """Open this machine, or the named host, with this sampling interval; close it at the end.

    Raises:
        UserError: It cannot be reached.
    """
    with contextlib.ExitStack() as stack:
        yield Hosts(stack, sample_ms).open(on, typed)


@contextlib.contextmanager
def stop_on_interrupt(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` on Ctrl-C, a hang-up or SIGTERM, instead of ending the program."""

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        stop()

    previous = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
