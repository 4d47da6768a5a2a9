"""The keeper of a detached run: gives the run's agent its orders in the program's place, and keeps the agent's lines.

    python -m app.agent.keeper FOLDER

runs in a session of its own, until the run is over. What the program does otherwise while a run goes on, the keeper
does here: it leases the devices, has the energy counters read where a phase begins, ends a worker that says nothing,
and starts a sampler again that ended. The lines are stored as they are: `app.hosts.attach` plays them to the program.
"""

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from app import units
from app.agent.spool import LINES, ORDERS, lock_spool, read_spooled
from app.agent_protocol import (
    CUT,
    HEARTBEAT_S,
    AgentHello,
    DescribeHost,
    EndWorker,
    FilePart,
    HostDescribed,
    LaunchWorker,
    Leased,
    Order,
    OrderSampler,
    Ping,
    Pong,
    ReadFile,
    Refused,
    Report,
    SamplerEnded,
    StartSampler,
    StopSampler,
    TakeLease,
    Took,
    WorkerExited,
    WorkerLaunched,
    WorkerLogged,
    WorkerSaid,
)
from app.fields import SlowSample
from app.runs.leases import CPU
from app.samples import FieldsUpdated, Inventory, TelemetryGap
from app.spool_protocol import BEGUN, EXITED, MOST_SPOOL_BYTES, WORKER, DetachRun, SpoolNote
from app.telemetry.messages import Follow, ReadEnergy, SamplerCommand, SamplerMessage
from workloads.protocol import TAG

_READ_BYTES = 1 << 16
_LEASE_RETRY_S = 0.5
_FINAL_S = 2.0
"""How long the last readings of the energy counters are waited for."""
_TERMINATED_S = 3.0
_SAMPLER_PAUSE_S = 0.5
_MOST_SAMPLERS = 5
_SAMPLES = (b'{"type":"sample"', b'{"type":"processes"')
_SLOW = b'{"type":"slow_sample"'

_STOPPED = "Stopped by the user while it waited for a free device."
_TELEMETRY_FULL = "The spool of this run is full, {size:.0f} GB: from here on telemetry is not kept."
_NO_SAMPLER = (
    "The telemetry process ended by itself (exit code {code}) and is started again; readings are missing meanwhile."
)
_DISK = "The disk of the host had no room for the lines of this run, or failed ({reason}), so it was ended there."
_SILENT = "The worker sent nothing for {time} and was ended; see its log."
_KILLED = "The run's agent was killed there, and so the run ended."
_TERMINATED = "The run's agent was asked to end there (SIGTERM), as it is when a host is shut down."


class _Said(msgspec.Struct, frozen=True):
    """What counts here of a worker's message."""

    kind: str = msgspec.field(name=TAG)
    outcome: str = ""


class Keeper:
    """Decides on the orders of one detached run, by what its agent says.

    Attributes:
        is_over: Whether the agent has nothing more to do.

    Thread: one.
    """

    def __init__(self, run: DetachRun, send: Callable[[Order], None], write: Callable[[bytes], None]) -> None:
        """Take a run whose agent has just been started.

        Args:
            run: What was ordered.
            send: Gives the agent an order.
            write: Adds lines to the spool.
        """
        self.is_over = False
        self._run = run
        self._send = send
        self._write = write
        self._reports: msgspec.json.Decoder[Report | SamplerMessage] = msgspec.json.Decoder(Report | SamplerMessage)
        self._said = msgspec.json.Decoder(_Said)
        self._next_number = WORKER + 1
        self._is_described = self._is_listed = self._is_launched = self._is_exited = False
        self._leased: frozenset[str] = frozenset()
        self._with_energy: set[str] = set()
        self._awaited: set[str] = set()
        self._exited_ns = 0
        self._file_size: int | None = None
        self._pid: int | None = None
        self._samplers = 0
        self._bytes = 0
        # Of this process's clock; each is met once.
        self._due: dict[str, tuple[float, Callable[[], None]]] = {}

    def take(self, line: bytes) -> None:
        """Take a line of the agent or its sampler, and write it down."""
        self._bytes += len(line)
        if line.startswith(_SAMPLES) or line.endswith(CUT) or (line.startswith(_SLOW) and not self._is_exited):
            self._write(line)
            return
        said = self._reports.decode(line)
        if not (isinstance(said, Pong) and said.number == 0) and not (isinstance(said, Leased) and not said.devices):
            self._write(line)
        self._follow(said)

    def end(self, reason: str) -> None:
        """End the run on the host, and write down why."""
        self._note(reason)
        self.is_over = True

    def end_worker(self, order: EndWorker) -> None:
        """Pass on what the program asks of the worker; a run that waits still is over."""
        if self._is_launched:
            self._send(msgspec.structs.replace(order, worker=WORKER))
        else:
            self.end(_STOPPED)

    def wait_s(self) -> float:
        """Return how many seconds there are until something is due."""
        now_s = time.monotonic()
        return max(0.0, min((due_s for due_s, _ in self._due.values()), default=now_s + HEARTBEAT_S) - now_s)

    def meet_due(self) -> None:
        """Do what is due now."""
        now_s = time.monotonic()
        for name, (due_s, work) in list(self._due.items()):
            if due_s <= now_s:
                del self._due[name]
                work()

    def _after(self, name: str, seconds: float, work: Callable[[], None]) -> None:
        self._due[name] = (time.monotonic() + seconds, work)

    def _follow(self, said: Report | SamplerMessage) -> None:
        match said:
            case AgentHello():
                self._ping()
                self._send(StartSampler(self._run.hz))
                self._send(DescribeHost(self._number()))
            case HostDescribed():
                self._is_described = True
                self._lease()
            case Inventory():
                self._with_energy |= {device.device for device in said.devices if "energy_mj" in device.fields}
                self._is_listed = not said.pending
                self._lease()
            case FieldsUpdated() if "energy_mj" in said.fields:
                self._with_energy.add(said.device)
            case Leased(devices=None):
                self._after("lease", _LEASE_RETRY_S, self._lease)
            case Leased(devices=devices) if devices is not None:
                self._launch(devices)
            case Refused(number=number):
                if number == WORKER or not self._is_launched:
                    self.is_over = True
                else:
                    self._finish_file()
            case SamplerEnded(exit_code=code) if not self.is_over:
                self._replace_sampler(code)
            case Pong(number=number, t_ns=t_ns) if number == EXITED:
                self._exited_ns = t_ns
            case SlowSample() if self._exited_ns and said.t_ns > self._exited_ns:
                self._awaited.discard(said.device)
                self._end_if_whole()
            case FilePart():
                self._fetch(said)
            case _:
                self._follow_worker(said)

    def _follow_worker(self, said: Report | SamplerMessage) -> None:
        match said:
            case WorkerLaunched(pid=pid):
                self._pid = pid
                self._order_sampler(Follow(pid))
                self._expect(self._run.hello_s)
            case WorkerSaid(message=message):
                self._send(Took(worker=WORKER, events=1))
                self._expect(self._run.message_gap_s)
                self._heed(self._said.decode(message))
            case WorkerLogged():
                self._send(Took(worker=WORKER, events=1))
                if "silent" in self._due and self._pid is not None:
                    self._expect(self._run.message_gap_s)
            case WorkerExited():
                self._conclude()

    def _heed(self, said: _Said) -> None:
        if said.kind == "phase":
            self._order_sampler(ReadEnergy())
        elif said.kind == "finished" and said.outcome == "completed" and self._run.start.weights_path is not None:
            self._file_size = 1
            self._read_file(0)

    def _lease(self) -> None:
        if self._is_described and self._is_listed and not self._is_launched:
            self._send(TakeLease(number=self._number(), devices=self._run.devices, count=self._run.count))

    def _launch(self, devices: tuple[str, ...]) -> None:
        self._is_launched = True
        self._leased = frozenset(devices)
        gpus = tuple(device for device in devices if device != CPU)
        self._send(Ping(BEGUN))
        self._order_sampler(ReadEnergy())
        self._send(LaunchWorker(number=WORKER, start=msgspec.structs.replace(self._run.start, gpu_uuids=gpus)))

    def _conclude(self) -> None:
        """Have the energy counters read once more, as after the last phase, and then end."""
        self._due.pop("silent", None)
        self._is_exited = True
        self._awaited = self._with_energy & self._leased
        self._send(Ping(EXITED))
        self._order_sampler(ReadEnergy())
        self._after("final", _FINAL_S, self._finish)
        self._end_if_whole()

    def _end_if_whole(self) -> None:
        if self._is_exited and not self._awaited and self._file_size is None:
            # The pong is under way still.
            self._after("final", 0.0 if self._exited_ns else _FINAL_S, self._finish)

    def _finish(self) -> None:
        self.is_over = True

    def _expect(self, seconds: float) -> None:
        self._after("silent", seconds, lambda: self._end_silent(seconds))

    def _end_silent(self, seconds: float) -> None:
        self._note(_SILENT.format(time=units.with_unit(seconds, "s")))
        self._send(EndWorker(worker=WORKER, method="terminate"))
        self._after("kill", _TERMINATED_S, lambda: self._send(EndWorker(worker=WORKER, method="kill")))

    def _replace_sampler(self, code: int) -> None:
        """Start a sampler in place of one that ended by itself, a few times."""
        if self._samplers >= _MOST_SAMPLERS or self._bytes > MOST_SPOOL_BYTES:
            return
        self._samplers += 1
        self._write_gap(_NO_SAMPLER.format(code=code))

        def start() -> None:
            self._send(StartSampler(self._run.hz))
            self._order_sampler(Follow(self._pid))

        self._after("sampler", _SAMPLER_PAUSE_S, start)

    def _ping(self) -> None:
        """Let the agent hear that somebody is there; and look after the size of the spool."""
        self._send(Ping(0))
        self._after("ping", HEARTBEAT_S, self._ping)
        if self._bytes > MOST_SPOOL_BYTES and self._samplers <= _MOST_SAMPLERS:
            self._samplers = _MOST_SAMPLERS + 1
            self._write_gap(_TELEMETRY_FULL.format(size=MOST_SPOOL_BYTES / 1e9))
            self._send(StopSampler())

    def _read_file(self, offset: int) -> None:
        name = self._run.start.weights_path
        assert name is not None, "only a file that is there is read"
        self._send(ReadFile(number=self._number(), name=name, offset=offset))

    def _fetch(self, part: FilePart) -> None:
        """Go on with the weights, whose pieces become lines of the spool."""
        self._file_size = (self._file_size or 1) + len(part.data)
        if part.data and self._file_size - 1 < part.size:
            self._read_file(self._file_size - 1)
        else:
            self._finish_file()

    def _finish_file(self) -> None:
        self._file_size = None
        self._end_if_whole()

    def _number(self) -> int:
        self._next_number += 1
        return self._next_number

    def _order_sampler(self, command: SamplerCommand) -> None:
        self._send(OrderSampler(msgspec.Raw(msgspec.json.encode(command))))

    def _write_gap(self, reason: str) -> None:
        self._write(msgspec.json.encode(TelemetryGap(t_ns=time.monotonic_ns(), reason=reason)) + b"\n")

    def _note(self, reason: str) -> None:
        self._write(msgspec.json.encode(SpoolNote(reason)) + b"\n")


class _Lines:
    """A run's file of lines, to which the keeper alone adds."""

    def __init__(self, folder: Path) -> None:
        self._file = os.open(folder / LINES, os.O_WRONLY | os.O_APPEND)

    def write(self, lines: bytes) -> None:
        """Add them whole; raises `OSError`."""
        view = memoryview(lines)
        while view:
            view = view[os.write(self._file, view) :]

    def cut(self) -> None:
        """End a line that was written in part, as `CUT` does; on a full disk in the place of its end."""
        with contextlib.suppress(OSError):
            os.ftruncate(self._file, max(0, os.fstat(self._file).st_size - _RESERVED_BYTES))
            self.write(CUT)


_RESERVED_BYTES = 8_192
"""Given up of the last lines where the disk is full, so that the reason can be written down."""


def main() -> int:
    """Keep the run of a folder until it is over."""
    folder = Path(sys.argv[1])
    lock = lock_spool(folder)
    if lock is None:
        return 1
    signals: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: signals.append(number))
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    agent = subprocess.Popen([sys.executable, "-m", "app.agent"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    _serve(folder, agent, lambda: bool(signals))
    with contextlib.suppress(OSError):
        (folder / ORDERS).unlink()
    agent.wait()
    return 0


def _serve(folder: Path, agent: "subprocess.Popen[bytes]", is_terminated: Callable[[], bool]) -> None:
    """Pass lines and orders until the run is over, and then what the agent says until it has ended everything."""
    assert agent.stdin is not None, "started with pipes"
    assert agent.stdout is not None, "started with pipes"
    stdin, lines = agent.stdin, _Lines(folder)

    def send(order: Order) -> None:
        with contextlib.suppress(BrokenPipeError, ValueError):
            stdin.write(msgspec.json.encode(order) + b"\n")
            stdin.flush()

    keeper = Keeper(read_spooled(folder).run, send, lines.write)
    orders = os.open(folder / ORDERS, os.O_RDWR | os.O_NONBLOCK)
    rest, order_rest = b"", b""
    with selectors.DefaultSelector() as selector:
        selector.register(agent.stdout, selectors.EVENT_READ)
        selector.register(orders, selectors.EVENT_READ)
        try:
            while True:
                keeper.meet_due()
                if is_terminated() and not keeper.is_over:
                    keeper.end(_TERMINATED)
                if keeper.is_over and not stdin.closed:
                    stdin.close()
                for key, _ in selector.select(keeper.wait_s()):
                    data = os.read(key.fd, _READ_BYTES)
                    if key.fd == orders:
                        *whole, order_rest = (order_rest + data).split(b"\n")
                        for line in whole:
                            keeper.end_worker(msgspec.json.decode(line, type=EndWorker))
                        continue
                    if not data:
                        if not keeper.is_over:
                            keeper.end(_KILLED)
                        return
                    *whole, rest = (rest + data).split(b"\n")
                    for line in whole:
                        keeper.take(line + b"\n")
        except OSError as error:
            lines.cut()
            with contextlib.suppress(OSError):
                keeper.end(_DISK.format(reason=error.strerror))
            stdin.close()


if __name__ == "__main__":
    os._exit(main())
