"""A detached run as the parts of a `Host`: its lines are played, and a session stores it as one that goes on now."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import msgspec

from app.agent_protocol import (
    CUT,
    FilePart,
    HostDescribed,
    Leased,
    Pong,
    Refused,
    Report,
    WorkerBroke,
    WorkerExited,
    WorkerLaunched,
    WorkerLogged,
    WorkerSaid,
)
from app.environment_keys import BOOT_ID_KEY, CARRIER_KEY, HOST_ID_KEY, HOST_KEY
from app.hosts.channel import LineTooLongError
from app.hosts.remote import of_host, worker_event
from app.paths import open_private
from app.runs.environment import inventory_info
from app.runs.host import ClockAnchor, Host
from app.runs.launcher import Exited, Post, Worker, WorkerEvent
from app.runs.leases import Lease
from app.samples import Inventory, LogLine
from app.spool_protocol import BEGUN, EXITED, SpoolDrained, Spooled, SpoolNote
from app.telemetry.feed import TelemetryFeed
from app.telemetry.messages import SamplerMessage
from workloads.protocol import Start

Method = Literal["close stdin", "terminate", "kill"]
EndMethod = Callable[[Method], None]
"""Has a worker ended by one step."""
_WEIGHTS_BROKEN = "(the weights could not be stored in {path}: {reason})"


class _PlayedFeed(TelemetryFeed):
    """Telemetry that was recorded: there is no sampler to give orders to.

    Thread: `play` the player's; the others any.
    """

    def __init__(self, now_ns: Callable[[], int]) -> None:
        super().__init__(now_ns=now_ns)
        self.is_followed = threading.Event()

    def play(self, message: SamplerMessage) -> None:
        """Pass a message to the listeners."""
        self._dispatch(message)

    def _follow(self, pids: list[int]) -> None:
        """Note that the worker is known: what the driver lists of its GPUs counts from now on."""
        self._followed = pids
        self.is_followed.set()


class PlayedRun:
    """The lines of a detached run from its host's spool, played as fast as they are taken.

    The clock is that of the lines. Playing waits where live the program has to act: for a session, once the run has its
    devices, and for the recorder, once the worker's process is known.

    Attributes:
        host: What a session makes the run on.
        is_whole: Whether the lines were played to their end, after which there will be none.
        problem: Why the lines ended before the run did, or before it began; "" where they did not.

    Thread: one of its own plays; the methods any.
    """

    def __init__(
        self, spooled: Spooled, lines: Iterator[bytes], end_worker: EndMethod, *, name: str, kind: str
    ) -> None:
        """Play nothing yet.

        Args:
            spooled: What the lines begin with.
            lines: The others; they end with `SpoolDrained`, unless the link is lost.
            end_worker: Has its worker ended.
            name: The host as the user calls it.
            kind: The kind of its carrier.
        """
        self.is_whole = False
        self.problem = ""
        self._spooled = spooled
        self._lines = lines
        self._end_worker = end_worker
        self._of_host = {HOST_KEY: name, HOST_ID_KEY: spooled.host_id, BOOT_ID_KEY: spooled.boot_id, CARRIER_KEY: kind}
        self._feed = _PlayedFeed(lambda: self._now().t_ns)
        self.host = Host(
            telemetry=self._feed, launcher=self, now=self._now, describe=self._describe, name=name, is_played=True
        )
        # Each is one reference or flag, written by the player before it sets an event.
        self._t_ns = spooled.t_ns
        self._described: dict[str, str] = {}
        self._devices: tuple[str, ...] | None = None
        self._pid = 0
        self._refused: Refused | None = None
        self._exited: Exited | None = None
        self._note = ""
        self._post: Post = _drop
        self._weights: Path | None = None
        self._weights_bytes = 0
        self._is_over = False
        self._begun, self._wanted, self._launched = threading.Event(), threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._play, name=f"spool of {name}", daemon=True)

    def start(self) -> None:
        """Begin to play."""
        self._thread.start()

    def wait_begun(self, seconds: float) -> bool:
        """Wait so long for the run's begin; return whether it is known whether and on what it began."""
        return self._begun.wait(seconds)

    @property
    def lease(self) -> Lease | None:
        """What the run has leased; None for one that never began."""
        return None if self._devices is None else Lease(self._devices)

    def finish(self) -> None:
        """Play to the end what is left."""
        self._wanted.set()
        self._feed.is_followed.set()
        self._thread.join()

    def launch(self, start: Start, post: Post) -> Worker:
        """Play on, and return the worker that was launched; raises `OSError` where none could be."""
        self._weights = None if start.weights_path is None else Path(start.weights_path)
        self._post = post
        self._wanted.set()
        self._launched.wait()
        if self._refused is not None:
            raise OSError(self._refused.reason)
        return _PlayedWorker(self._pid, self._end_worker)

    def _now(self) -> ClockAnchor:
        spooled, t_ns = self._spooled, self._t_ns
        return ClockAnchor(t_ns, spooled.run.utc_ns + t_ns - spooled.t_ns)

    def _describe(self, inventory: Inventory) -> dict[str, str]:
        return inventory_info(inventory) | self._described | self._spooled.run.environment | self._of_host

    def _play(self) -> None:
        decoder: msgspec.json.Decoder[Report | SamplerMessage | SpoolNote | SpoolDrained] = msgspec.json.Decoder(
            Report | SamplerMessage | SpoolNote | SpoolDrained
        )
        try:
            for line in self._lines:
                if not line.endswith(CUT):
                    self._handle(decoder.decode(line))
                if self.is_whole:
                    break
        except (msgspec.DecodeError, LineTooLongError):
            version = self._spooled.run.version
            self.problem = (
                f"The run was detached by version {version}, whose lines this version cannot read: use that one."
            )
        self._end()

    def _handle(self, said: Report | SamplerMessage | SpoolNote | SpoolDrained) -> None:
        if not self._is_over:
            self._t_ns = max(self._t_ns, getattr(said, "t_ns", 0))
        match said:
            case HostDescribed(environment=environment):
                self._described = environment
            case Leased(devices=devices):
                self._devices = devices
            case Pong(number=number) if number == BEGUN:
                self._begun.set()
                self._wanted.wait()
            case Pong(number=number) if number == EXITED:
                self._post_exit()
            case WorkerLaunched(pid=pid):
                self._pid = pid
                self._launched.set()
                self._feed.is_followed.wait()
            case Refused():
                self._refused = said
                self._launched.set()
            case WorkerExited():
                reason = said.reason or self._note or None
                self._exited = Exited(said.exit_code if reason is None else None, reason)
            case WorkerSaid() | WorkerLogged() | WorkerBroke():
                self._pass_on(worker_event(said, self.host.name))
            case FilePart():
                self._store_piece(said)
            case SpoolNote(reason=reason):
                self._note = reason
            case SpoolDrained(boot_id=boot_id):
                self.is_whole = True
                self.problem = self._note or self._why_ended(boot_id)
            case Inventory():
                self._feed.play(of_host(said))
            case _ if isinstance(said, SamplerMessage):
                self._feed.play(said)

    def _why_ended(self, boot_id: str) -> str:
        name = self.host.name
        if boot_id != self._spooled.boot_id:
            return f"{name} was started again while the run went on there, which ended it."
        return f"The program that kept the run on {name} was killed there, and so the run ended."

    def _pass_on(self, event: WorkerEvent) -> None:
        self._t_ns = max(self._t_ns, getattr(event, "t_ns", 0))
        self._post(event)

    def _post_exit(self) -> None:
        """Say that the worker is gone; the clock stands still from now on, for what comes is read after the run."""
        if not self._is_over:
            self._is_over = True
            self._post(self._exited or Exited(None, self.problem))

    def _end(self) -> None:
        """Let go on who waits for what does not come any more."""
        if self._refused is not None:
            self.problem = self._refused.reason
        elif self._exited is not None and self.is_whole:
            self.problem = ""
        else:
            self.problem = self.problem or f"The link to {self.host.name} was lost."
        self._begun.set()
        if not self._launched.is_set():
            self._refused = self._refused or Refused(number=0, kind="os error", reason=self.problem)
            self._launched.set()
        self._post_exit()

    def _store_piece(self, part: FilePart) -> None:
        """Add a piece of the weights, which come in their order."""
        if self._weights is None:
            return
        path = self._weights.with_name(f"{self._weights.name}.part")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(path, "ab" if self._weights_bytes else "wb", opener=open_private) as file:
                file.write(part.data)
            self._weights_bytes += len(part.data)
            if self._weights_bytes == part.size:
                path.replace(self._weights)
        except OSError as error:
            self._post(LogLine(self._t_ns, _WEIGHTS_BROKEN.format(path=self._weights, reason=error.strerror)))
            self._weights = None


def _drop(_event: WorkerEvent) -> None:
    """Take an event of a run that nobody stores."""


class _PlayedWorker:
    """The worker of a detached run, which may still go on.

    Thread: any.
    """

    def __init__(self, pid: int, end: EndMethod) -> None:
        self._pid = pid
        self._end = end

    @property
    def pid(self) -> int:
        """Process id on its host."""
        return self._pid

    def ask_to_stop(self) -> None:
        """Have its stdin closed."""
        self._end("close stdin")

    def terminate(self) -> None:
        """Have it sent SIGTERM."""
        self._end("terminate")

    def kill(self) -> None:
        """Have its process group killed."""
        self._end("kill")
