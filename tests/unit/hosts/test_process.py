"""The program on a host, played: what it may say, how much, how late, and what becomes of it when it lies."""

import threading
import time

import psutil
import pytest

from app.errors import UserError
from app.hosts import process as process_module
from app.hosts.book import Address
from app.hosts.messages import MOST_LINE_BYTES, RunAnyway
from app.hosts.process import HostProcess, LinkLostError
from app.hosts.wheel import MARK
from app.values.fields import Sample
from app.values.samples import LogLine
from tests.fakes.hosts import NAME, PlayedStart, played

LIMIT_S = 60.0
WARN_S, LOST_S = 2.0, 4.0
"""A busy machine may stand still for seconds."""


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_module, "_WARN_S", WARN_S)
    monkeypatch.setattr(process_module, "LOST_S", LOST_S)


def lost(process: HostProcess) -> str:
    """Wait until it is lost, and return why."""
    end_s, reason = time.monotonic() + LIMIT_S, ""
    while not reason and time.monotonic() < end_s:
        try:
            process.next(1.0)
        except LinkLostError as error:
            reason = str(error)
    process.cut()
    assert (
        not psutil.pid_exists(process.process.pid)
        or psutil.Process(process.process.pid).status() == psutil.STATUS_ZOMBIE
    )
    return reason


def test_it_says_hello_answers_beats_and_takes_orders() -> None:
    process = played("listen(lambda order: say(LogLine(1, type(order).__name__)))")
    hello = process.wait_hello()
    assert hello.frameworks
    assert 0 <= time.monotonic_ns() - process.now_ns() < LIMIT_S * 1e9, "it is one clock"
    process.send(RunAnyway())
    assert process.next(LIMIT_S) == LogLine(1, "RunAnyway")
    assert process.next(0.01) is None
    process.close()
    with pytest.raises(LinkLostError, match=f"The link to {NAME} was closed"):
        process.next(1.0)


@pytest.mark.parametrize(
    ("lie", "reason"),
    [
        ("say(b'no message\\n')", f"What {NAME} says is "),
        ("say(Beat(), b'[' * 10_000_000); listen()", "a line without an end"),
        ("say(EnvironmentInfo(environment={'cpu_count': 'many'}))", "cpu_count of its environment is not a number"),
        ("while True: say(encode(Sample(t_ns=1, device='GPU-0')) * 1000)", "more than 5,000 readings a second"),
        ("print('The program on gpu1 ends: its disk is full.', file=sys.stderr)", "ends: its disk is full."),
        ("os.kill(os.getpid(), 9)", "was ended here, by signal 9."),
        ("print('No space left on device', file=sys.stderr); sys.exit(3)", "The disk of sh: is full"),
    ],
)
def test_a_lie_a_flood_and_an_end_are_one_sentence(lie: str, reason: str) -> None:
    sentence = lost(played(lie))
    assert reason in sentence
    assert "\n" not in sentence
    assert len(sentence) < 500


def test_a_program_that_is_none_is_said() -> None:
    def start(text: str) -> HostProcess:
        return HostProcess(PlayedStart(address=Address(kind="sh"), text=text), NAME)

    process = start("say(b'Welcome\\n' * 10_000); listen()")
    with pytest.raises(UserError, match=f"{NAME} prints so much before a command runs"):
        process.wait_hello()
    process.cut()
    process = start('say(b\'{"type":"host","version":2}\\n\'); listen()')
    with pytest.raises(UserError, match="not a report of this program"):
        process.wait_hello()
    process.cut()
    process = start("say(b'Welcome\\n'); time.sleep(600)")
    with pytest.raises(UserError, match=r"Connecting was cancelled\."):
        process.wait_hello(lambda: True)
    process.cut()


def test_each_file_is_sent_once() -> None:
    asked: list[str] = []
    text = f"for _ in range(3): say(b'{MARK} send orders\\n{MARK} send x\\n')\nsay(host_hello()); listen()"
    process = HostProcess(PlayedStart(address=Address(kind="sh"), text=text), NAME, asked.append)
    process.wait_hello()
    process.cut()
    assert asked == [f"Sending the run to {NAME} (0\xa0B) …"]


@pytest.mark.usefixtures("quick")
def test_what_nobody_reads_waits_on_the_host_in_bounded_memory() -> None:
    """It is not taken for silent, though nothing more is read; once it is read, all comes in order."""
    process = played(
        "threading.Thread(target=listen, daemon=True).start()\n"
        "for number in range(60): say(LogLine(number, 'x' * 1_000_000))\n"
        "time.sleep(600)"
    )
    process.wait_hello()
    threading.Event().wait(2 * LOST_S)
    assert len(process._unread) < MOST_LINE_BYTES
    assert process.lost is None
    numbers = [report.t_ns for _ in range(60) if isinstance(report := process.next(LIMIT_S), LogLine)]
    assert numbers == list(range(60))
    process.cut()


@pytest.mark.usefixtures("quick")
def test_a_silent_host_is_told_then_given_up() -> None:
    process = played("threading.Thread(target=listen, daemon=True).start(); time.sleep(600)")
    process.wait_hello()
    assert process.next(2 * LOST_S) is None, "its answers to beats are heard"
    assert process.silent_warning() == ""
    psutil.Process(process.process.pid).suspend()
    while not (warning := process.silent_warning()):
        process.next(0.01)
    assert warning.startswith(f"Nothing has come from {NAME} for ")
    assert warning.endswith("; after 4\xa0s the run is given up.")
    assert lost(process).startswith(f"The link to {NAME} was lost: nothing has come from it for ")


def test_readings_of_many_gpus_are_no_flood() -> None:
    process = played(
        "def flood():\n"
        "    for _ in range(50): say(encode(Sample(t_ns=1, device='GPU-0')) * 80); time.sleep(0.02)\n"
        "threading.Thread(target=listen, daemon=True).start()\nflood(); say(LogLine(9, 'over')); time.sleep(600)"
    )
    process.wait_hello()
    readings = 0
    while isinstance(report := process.next(LIMIT_S), Sample):
        readings += 1
    assert (readings, report) == (4_000, LogLine(9, "over"))
    process.cut()
