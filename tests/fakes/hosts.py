"""Hosts for tests: this machine through a shell, as any host is reached, and hosts that are played."""

import os
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from app.grants import typed
from app.hosts.book import Address, HostEntry
from app.hosts.process import HostProcess
from app.hosts.remote import Connection, connect
from app.hosts.wheel import Start
from app.runs.session import RunServices
from tests.fakes.sessions import PATIENT

NAME = "gpu1"
HERE = f"sh:?python={sys.executable}"
"""The address of this machine as a host."""


@contextmanager
def connected(
    folder: Path,
    *,
    environment: Mapping[str, str] | None = None,
    notify: Callable[[str], None] = lambda _: None,
    address: str = HERE,
) -> Iterator[Connection]:
    """Connect to this machine.

    Args:
        folder: For what is sent there.
        environment: Variables of the program there and all that it starts.
        notify: Gets what a user is told.
        address: The way, if it is not a plain shell.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        for name, value in (environment or {}).items():
            patch.setenv(name, value)
        connection = connect(HostEntry(name=NAME, address=address), hz=10.0, notify=notify)
        try:
            yield connection
        finally:
            connection.close()


def services_on(connection: Connection, folder: Path) -> RunServices:
    """Return services for runs there, with a database in a folder here."""
    return RunServices(database=folder / "profiles.db", host=connection.host, consent=typed, timeouts=PATIENT)


def runner_of(connection: Connection) -> HostProcess:
    (process,) = (process for process in connection._runners if process.lost is None)
    return process


def processes_of(connection: Connection) -> list[psutil.Process]:
    """Return all processes on the host: the programs, their guards, samplers and workers."""
    started = [connection.process, *connection._runners]
    tops = [psutil.Process(process.process.pid) for process in started if process.lost is None]
    return [process for top in tops for process in (top, *top.children(recursive=True))]


def shifted_clock(folder: Path, days: float) -> Mapping[str, str]:
    """Return the environment of Python processes whose monotonic clock is so many days ahead of this machine's."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(
        "import time\n"
        "def shift(clock, by):\n"
        "    return lambda: clock() + by\n"
        f"time.monotonic = shift(time.monotonic, {days * 86_400!r})\n"
        f"time.monotonic_ns = shift(time.monotonic_ns, {round(days * 86_400e9)})\n"
    )
    return {"PYTHONPATH": os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))}


PLAYED = """\
import os, sys, threading, time
from app.values.events import *
from app.values.fields import Sample
from app.hosts.messages import *
from app.hosts.serve import host_hello
from app.values.samples import *
from workloads.protocol import *
import msgspec
orders = msgspec.json.Decoder(Order)
saying = threading.Lock()
def say(*messages):
    for message in messages:
        line = message if isinstance(message, bytes) else encode(message)
        with saying:
            while line:
                line = line[os.write(1, line):]
def listen(on_order=lambda order: None, answers=True):
    for line in sys.stdin.buffer:
        order = orders.decode(line)
        if isinstance(order, Beat):
            if answers:
                say(Beat(t_ns=time.monotonic_ns()))
        else:
            on_order(order)
"""


@dataclass(frozen=True, kw_only=True)
class PlayedStart(Start):
    """Starts a program that a test plays: `text` is its source, in Python, after `PLAYED`."""

    text: str = ""

    def script(self) -> str:
        program = shlex.quote(PLAYED + self.text)
        return f"PYTHONPATH={shlex.quote(str(Path(__file__).parents[2]))} exec {sys.executable} -c {program}"


def played(text: str) -> HostProcess:
    """Start a program that begins as one on a host, then does what `text` says."""
    return HostProcess(PlayedStart(address=Address(kind="sh"), text=f"say(host_hello())\n{text}"), NAME)
