"""Progress on stderr: runs, idle waits and transfers, and the notification at the end."""

import contextlib
import html
import os
import select
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from app.cli.services import stop_on_interrupt
from app.cli.terminal import say, unfiltered
from app.runs.experiment.idle_wait import WaitStatus
from app.storage.transfer.progress import TransferProgress
from app.values import units
from app.values.events import RunEnded, RunEvent, RunStarted, Summary
from app.values.fields import Sample
from app.values.plain import plain_text
from app.values.samples import Device, DeviceLost, TelemetryGap, Waiting
from app.viewmodels.format.cells import OUTCOMES, example_word
from app.viewmodels.format.naming import short_name
from app.viewmodels.plot.panels import device_label
from workloads.protocol import Block, PhaseStarted, Progress, RunSpec

if TYPE_CHECKING:
    import rich.progress

_REPAINT_S = 0.1
_BAR = 20
"""Characters of a bar."""
_QUIET_S = 1.0
"""A shorter transfer needs no progress."""
_STEP = 0.1
"""If stderr is no terminal, a transfer prints a line per tenth."""
_SHORT_S = 1.0
"""A shorter wait is not worth a line."""
_SENDER = "notify-send"
_TIMEOUT_S = 10.0


class StatusLines:
    """The last lines of a terminal: one with a bar for each current activity, below all other messages.

    Without a terminal, or with one that can only append, nothing is painted.

    Thread: any.
    """

    def __init__(self) -> None:
        self.live = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self.keyboard = threading.Lock()
        """Held while typed keys are read: otherwise two readers that see one Enter would both wait for a line."""
        self._display: rich.progress.Progress | None = None
        self._tasks: dict[object, rich.progress.TaskID] = {}
        self._lock = threading.Lock()

    def paint(self, owner: object, text: str, fraction: float = 0.0, detail: str = "") -> None:
        """Replace an owner's line.

        The text precedes the bar, which is at `fraction` from 0 to 1; the detail follows it.
        """
        with self._lock:
            if not self.live:
                return
            if self._display is None:
                self._display = _new_display()
                self._display.start()
            text, detail = plain_text(text), plain_text(detail)
            if owner not in self._tasks:
                self._tasks[owner] = self._display.add_task(text, total=1.0, detail=detail)
            self._display.update(self._tasks[owner], description=text, completed=fraction, detail=detail, refresh=True)

    def clear(self, owner: object) -> None:
        with self._lock:
            task = self._tasks.pop(owner, None)
            if task is None or self._display is None:
                return
            self._display.remove_task(task)
            self._display.refresh()
            if not self._tasks:
                self._display.stop()
                self._display = None

    def say(self, sentence: str) -> None:
        with self._lock:
            if self._display is None:
                say(sentence)
            else:
                self._display.console.print(plain_text(sentence), soft_wrap=True)


def _new_display() -> "rich.progress.Progress":
    """Return a display that repaints on request: its own thread would outlive a failing run."""
    # Here: rich is slow to import, and only a terminal needs it.
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn
    from rich.table import Column

    class TerminalConsole(Console):
        def show_cursor(self, _show: bool = True) -> bool:
            """Leave the cursor visible: a killed program would not restore it."""
            return False

    return Progress(
        TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True)),
        BarColumn(_BAR),
        TextColumn("{task.fields[detail]}", markup=False, table_column=Column(no_wrap=True)),
        console=TerminalConsole(file=unfiltered(sys.stderr), markup=False, highlight=False, emoji=False),
        auto_refresh=False,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )


class ProgressSink:
    """Shows a run's progress on stderr: a line with a bar on a terminal, else a line per phase.

    With a `prefix` it is one of several runs: without a terminal only its measured phase and its outcome are printed.
    """

    def __init__(self, prefix: str = "", line: StatusLines | None = None) -> None:
        self._prefix = prefix
        self._line = line or StatusLines()
        self._phase = ""
        self._rate = ""
        self._example = ""
        self._spec: RunSpec | None = None
        self._devices: dict[str, Device] = {}
        self._lost: dict[str, bool] = {}
        self._painted_s = 0.0

    def handle(self, event: RunEvent) -> None:
        match event:
            case RunStarted():
                self._spec, self._example = event.spec, example_word(event.spec)
                self._devices = {device.device: device for device in event.devices}
                self._say(f"run {event.run}: {short_name(event.spec)}")
            case Waiting(reason=""):
                pass  # a host is heard again, which its connection reports
            case Waiting() | TelemetryGap():
                self._say(event.reason)
            case DeviceLost():
                self._lost[event.device] = True
                self._say(f"{device_label(self._devices[event.device])} is lost: {event.reason}")
            case Sample() if self._lost.get(event.device):
                self._lost[event.device] = False
                self._say(f"{device_label(self._devices[event.device])} answers again.")
            case PhaseStarted():
                self._phase, self._rate = event.phase, ""
                if self._line.live:
                    self._paint()
                elif not self._prefix or event.phase == "measure":
                    self._say(event.phase)
            case Block() if event.phase == "measure":
                seconds = (event.end_ns - event.start_ns) / 1e9
                assert self._spec is not None, "it has begun"
                counts = Summary(measured_steps=event.steps, measured_examples=event.examples)
                self._example = example_word(self._spec, counts)
                self._rate = units.rate(event.examples / seconds, self._example)
            case Progress() if self._line.live and time.monotonic() - self._painted_s > _REPAINT_S:
                self._paint(event.fraction)
            case RunEnded():
                self._line.clear(self)
                if self._prefix:
                    self._say(self._ended(event))

    def _ended(self, event: RunEnded) -> str:
        name = OUTCOMES[event.outcome.name].word
        throughput = event.summary.throughput
        text = name if throughput is None else f"{units.rate(throughput, self._example)}, {name}"
        text += "".join(f", {device_label(self._devices[device])} was lost" for device in self._lost)
        return f"{text}. {event.outcome.reason}" if event.outcome.reason else text

    def _say(self, text: str) -> None:
        self._line.say(f"{self._prefix}{text}")

    def _paint(self, fraction: float = 0.0) -> None:
        self._painted_s = time.monotonic()
        self._line.paint(self, f"{self._prefix}{self._phase}", fraction, f"{_percent(fraction)}  {self._rate}")


def _percent(fraction: float) -> str:
    return units.quantity(f"{100 * fraction:3.0f}", "%")


class PercentLine:
    """The completed share of a transfer: a line with a bar on a terminal, else a line per 10 %."""

    def __init__(self, what: str, line: StatusLines) -> None:
        self._what = what
        self._line = line
        self._next_s = time.monotonic() + _QUIET_S
        self._next_share = 0.0

    def show(self, share: float) -> None:
        if time.monotonic() < self._next_s or (not self._line.live and share < self._next_share):
            return
        if self._line.live:
            self._line.paint(self, f"{self._what} …", share, _percent(share))
        else:
            say(f"{self._what} … {_percent(share)}")
        self._next_s = time.monotonic() + _REPAINT_S
        self._next_share = share + _STEP

    def clear(self) -> None:
        self._line.clear(self)


@contextlib.contextmanager
def progress_watch(what: str) -> Iterator[TransferProgress]:
    """Yield a watch that shows progress on stderr and stops at Ctrl-C."""
    stop = threading.Event()
    line = PercentLine(what, StatusLines())
    try:
        with stop_on_interrupt(stop.set):
            yield TransferProgress(line.show, stop.is_set)
    finally:
        line.clear()


class WaitLine:
    """The idle wait of one run on stderr: a line on a terminal, where Enter ends the wait; else one message."""

    def __init__(self, line: StatusLines | None = None) -> None:
        self._line = line or StatusLines()
        self._live = self._line.live and sys.stdin.isatty()
        self._printed = False

    def __call__(self, status: WaitStatus) -> bool:
        """Show what the run waits for; return whether to continue waiting."""
        if status.waited_s >= _SHORT_S:
            if self._live:
                seconds = f"{status.waited_s:.0f} of {units.with_unit(status.limit_s, 's')}"
                text = f"Waiting: {status.reason} ({seconds}; Enter skips the wait)"
                self._line.paint(self, text, status.waited_s / status.limit_s)
            elif not self._printed:
                self._printed = True
                self._line.say(f"Waiting, {units.with_unit(status.limit_s, 's')} at most: {status.reason}.")
        return not (self._live and self._enter_pressed())

    def clear(self) -> None:
        self._line.clear(self)

    def _enter_pressed(self) -> bool:
        with self._line.keyboard:
            if not (_in_foreground() and select.select([sys.stdin], [], [], 0)[0]):
                return False
            sys.stdin.readline()
            return True


def _in_foreground() -> bool:
    """Return whether typed keys go to this program: reading them in the background would suspend it."""
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except OSError:
        return False


def run_with_notification(title: str, command: Callable[[], int]) -> int:
    """Run a command, notify of its end under this title however it ends, and return its exit status."""
    began_s, words = time.monotonic(), "It ended early"
    try:
        status = command()
        words = "Every planned run has a result" if status == 0 else "Not every planned run has a result"
        return status
    finally:
        say(notify(title, f"{words}, after {units.duration(time.monotonic() - began_s)}."))


def notify(title: str, words: str) -> str:
    """Notify the user; return a sentence on the means."""
    if _send_to_desktop(title, words):
        return f"Notified through {_SENDER}."
    why = f"{_SENDER} is not installed" if shutil.which(_SENDER) is None else f"{_SENDER} reached no desktop"
    if not sys.stderr.isatty():
        return f"Nobody was notified: {why}, and there is no terminal to ring."
    unfiltered(sys.stderr).write("\a")
    return f"Rang the terminal's bell: {why}."


def _send_to_desktop(title: str, words: str) -> bool:
    program = shutil.which(_SENDER)
    if program is None:
        return False
    try:
        completed = subprocess.run(
            [program, "--app-name=VariantScope", "--", plain_text(title), html.escape(plain_text(words), quote=False)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return completed.returncode == 0
