"""Hosts for tests: this machine through an agent of its own, as any host is reached."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from app.grants import typed
from app.hosts.address import parse_address
from app.hosts.carriers import Carrier, shell_carrier
from app.hosts.channel import ProcessChannel
from app.hosts.connection import Connection, connect
from app.hosts.link import LinkLimits
from app.runs.session import RunServices
from tests.fakes.sessions import PATIENT

NAME = "gpu1"


@contextmanager
def connected(
    folder: Path,
    *,
    environment: Mapping[str, str] | None = None,
    notify: Callable[[str], None] = lambda _: None,
    limits: LinkLimits | None = None,
    carrier: Carrier | None = None,
) -> Iterator[Connection]:
    """Connect to this machine.

    Args:
        folder: For what is sent there.
        environment: Variables of the agent and all that it starts.
        notify: Gets what a user is told.
        limits: How long the host may be silent.
        carrier: The way, if it is not a plain shell.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        for name, value in (environment or {}).items():
            patch.setenv(name, value)
        connection = connect(
            carrier or shell_carrier(parse_address("sh:")), name=NAME, hz=10.0, notify=notify, limits=limits
        )
    try:
        yield connection
    finally:
        connection.close()


def services_on(connection: Connection, folder: Path) -> RunServices:
    """Return services for runs there, with a database in a folder here."""
    return RunServices(database=folder / "profiles.db", host=connection.host, consent=typed, timeouts=PATIENT)


def processes_of(connection: Connection) -> list[psutil.Process]:
    """Return all processes on the host: the agent, its sampler and workers."""
    return psutil.Process(carrier_pid(connection)).children(recursive=True)


def carrier_pid(connection: Connection) -> int:
    """Return the process id of the carrier, which here has become the agent's guard."""
    channel = connection.link._channel
    assert isinstance(channel, ProcessChannel)
    return channel.pid


def shifted_clock(folder: Path, days: float) -> Mapping[str, str]:
    """Return the environment of Python processes whose monotonic clock is so many days ahead of this machine's."""
    return _site(
        folder,
        "import time\n"
        "def shift(clock, by):\n"
        "    return lambda: clock() + by\n"
        f"time.monotonic = shift(time.monotonic, {days * 86_400!r})\n"
        f"time.monotonic_ns = shift(time.monotonic_ns, {round(days * 86_400e9)})\n",
    )


def flooding_agent(folder: Path, signal: Path, times: int) -> Mapping[str, str]:
    """Return the environment of an agent that says every sample so often, once there is a file called `signal`."""
    return _site(
        folder,
        "import os, sys\n"
        "class Pipe:\n"
        "    def __init__(self, pipe):\n"
        "        self.flush, self.write_once = pipe.flush, pipe.write\n"
        "    def write(self, lines):\n"
        f'        floods = lines.startswith(b\'{{"type":"sample"\') and os.path.exists({str(signal)!r})\n'
        "        floods = floods and 'app.telemetry.sampler' not in sys.orig_argv\n"
        f"        self.write_once(lines * ({times} if floods else 1))\n"
        "open_file = os.fdopen\n"
        "os.fdopen = lambda file, *mode: Pipe(open_file(file, *mode)) if mode == ('wb',) else open_file(file, *mode)\n",
    )


def _site(folder: Path, text: str) -> Mapping[str, str]:
    """Return the environment of Python processes that begin with this text."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(text)
    return {"PYTHONPATH": os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))}
