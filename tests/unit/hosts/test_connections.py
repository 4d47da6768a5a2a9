"""Connections of the window: made, lost, made again and ended, with hosts that are played."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from app.errors import UserError
from app.hosts import connections
from app.hosts.book import FILE_VARIABLE, HostEntry, add_host
from app.hosts.connections import FULL_HZ, OVERVIEW_HZ, Connections
from app.hosts.remote import Connection
from app.telemetry.messages import SamplerMessage
from app.values.fields import Sample

LIMIT_S = 60.0
SAMPLE = Sample(t_ns=1, device="GPU-0")


@dataclass
class Played:
    """A host that answers as a test wants: `reasons` are why it cannot be reached, one after the other."""

    reasons: list[str] = field(default_factory=list)
    opened: list[tuple[str, float]] = field(default_factory=list)
    lost: str | None = None
    silent_s: float = 0.2
    closed: int = 0
    blocks: bool = False
    listeners: list[Callable[[SamplerMessage], None]] = field(default_factory=list)

    def open(
        self, word: str, *, hz: float, notify: Callable[[str], None], is_cancelled: Callable[[], bool]
    ) -> Connection:
        self.opened.append((word, hz))
        notify(f"Waiting for {word} to answer …")
        while self.blocks and not is_cancelled():
            threading.Event().wait(0.01)
        if self.blocks:
            raise UserError("Connecting was cancelled.")
        if self.reasons:
            raise UserError(self.reasons.pop(0))
        self.lost = None
        self.host = SimpleNamespace(telemetry=SimpleNamespace(subscribe=self._subscribe))
        return cast(Connection, self)

    def _subscribe(self, listener: Callable[[SamplerMessage], None]) -> Callable[[], None]:
        self.listeners.append(listener)
        return lambda: self.listeners.remove(listener)

    def close(self) -> None:
        """Count that it is over."""
        self.closed += 1


@dataclass
class Window:
    """Connections to one played host, with all that they say."""

    played: Played
    heard: list[tuple[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._changed = threading.Condition()
        self.hosts = Connections(lambda *said: self.heard.append(said), self._notify, self.played.open)

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def wait(self, stage: str) -> str:
        """Wait until the host is at a stage, and return what is said then."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.hosts.state("gpu1").stage == stage, LIMIT_S)
        return self.hosts.state("gpu1").text


@pytest.fixture
def window(monkeypatch: pytest.MonkeyPatch) -> Iterator[Window]:
    monkeypatch.setattr(connections, "_LOOK_S", 0.01)
    monkeypatch.setattr(connections, "_RETRY_S", (0.0,))
    made = Window(Played())
    yield made
    made.hosts.close()


def test_a_host_is_connected_and_heard_until_it_is_disconnected(window: Window) -> None:
    window.hosts.connect("gpu1")
    assert window.wait("connected") == ""
    state = window.hosts.state("gpu1")
    assert (state.silent_s, state.can_retry) == (0.2, False)
    window.played.listeners[0](SAMPLE)
    assert window.heard == [("gpu1", SAMPLE)]
    assert cast(object, window.hosts.connected("gpu1")) is window.played.host
    window.hosts.connect("gpu1")
    window.hosts.disconnect("gpu1")
    assert window.hosts.states() == ()
    assert window.played.opened == [("gpu1", OVERVIEW_HZ)], "it was connected already"


def test_a_host_that_cannot_be_reached_says_why_and_is_tried_again_when_asked(window: Window) -> None:
    window.played.reasons = ["gpu1 refuses the connection: start sshd there."]
    window.hosts.connect("gpu1")
    assert window.wait("failed") == "gpu1 refuses the connection: start sshd there."
    with pytest.raises(UserError, match="start sshd there"):
        window.hosts.connected("gpu1")
    assert cast(object, window.hosts.wait_host("gpu1")) is window.played.host, "the queue tries again by itself"


def test_a_lost_host_is_connected_again_though_that_fails_at_first(window: Window) -> None:
    window.hosts.connect("gpu1")
    window.wait("connected")
    window.played.reasons = ["No route to gpu1."]
    window.played.lost = "The link to gpu1 is lost: it was silent for 15 s."
    window.wait("lost")
    with window._changed:
        assert window._changed.wait_for(lambda: len(window.played.opened) == 3, LIMIT_S)
    assert window.wait("connected") == ""
    assert window.played.closed == 1


def test_one_of_many_is_read_at_the_full_rate_once_it_is_chosen(window: Window) -> None:
    window.hosts.connect("gpu1")
    window.wait("connected")
    window.hosts.connect("gpu1", FULL_HZ)
    with window._changed:
        assert window._changed.wait_for(lambda: len(window.played.opened) == 2, LIMIT_S)
    window.wait("connected")
    assert [hz for _, hz in window.played.opened] == [OVERVIEW_HZ, FULL_HZ]
    with window._changed:
        assert window._changed.wait_for(lambda: window.played.closed == 1, LIMIT_S), "the first has ended"


def test_a_wait_for_a_host_can_be_stopped(window: Window) -> None:
    window.played.blocks = True
    with pytest.raises(UserError, match=r"Waiting for gpu1 was stopped\."):
        window.hosts.wait_host("gpu1", lambda: True)


def test_closing_ends_what_is_connected_and_what_waits(window: Window) -> None:
    window.hosts.connect("gpu1")
    window.wait("connected")
    window.played.blocks = True
    window.hosts.connect("gpu2")
    failures: list[UserError] = []

    def wait() -> None:
        try:
            window.hosts.wait_host("gpu2")
        except UserError as error:
            failures.append(error)

    queue = threading.Thread(target=wait)
    queue.start()
    window.hosts.close()
    queue.join(LIMIT_S)
    assert [str(error) for error in failures] == ["gpu2 is not connected any more."]
    assert window.played.closed == 1
    window.hosts.connect("gpu1")
    assert window.hosts.states() == (), "nothing begins after the end"


def test_the_user_s_hosts_are_read_when_asked(window: Window, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FILE_VARIABLE, str(tmp_path / "hosts.json"))
    entry = HostEntry(name="gpu1", address="ssh://gpu1")
    add_host(entry)
    assert window.hosts.states() == ()
    window.hosts.reload()
    assert window.hosts.entries == (entry,)
    assert [state.name for state in window.hosts.states()] == ["gpu1"]
