"""What is read of pipes that say too much: in-process, with a pipe whose other end a thread of the test fills."""

import os
import threading
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import BinaryIO

import pytest

from app.runs import launcher
from app.runs.launcher import log_lines, message_lines
from workloads.protocol import MOST_MESSAGE_BYTES, ProtocolError, decode_message

MIB = 2**20
TIME_S = 1_000.0


class Clock:
    """The clock of a log's reader: it stands still until a test, or the reader's own waiting, lets it go on."""

    def __init__(self) -> None:
        self.now_s = TIME_S

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(launcher, "time", clock)
    return clock


@contextmanager
def pipe_with(chunks: Iterable[bytes]) -> Iterator[BinaryIO]:
    """A pipe into which a thread writes these chunks, and then closes it."""
    read, write = os.pipe()

    def fill() -> None:
        with os.fdopen(write, "wb", buffering=0) as end:
            for chunk in chunks:
                view = memoryview(chunk)
                while view:
                    view = view[end.write(view) :]

    writer = threading.Thread(target=fill, name="a test's worker")
    writer.start()
    try:
        with os.fdopen(read, "rb") as end:
            yield end
    finally:
        writer.join()


def logged(*chunks: bytes) -> list[str]:
    with pipe_with(chunks) as pipe:
        return list(log_lines(pipe))


def peak_bytes(read: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        read()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("said", "lines"),
    [
        (b"", []),
        (b"a\nb\n", ["a", "b"]),
        (b"a\n\nb", ["a", "", "b"]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b" 1/3\r 2/3\r 3/3\n", [" 3/3"]),
        (b"\r 1/3\r 2/3\r 3/3\ndone\n", [" 3/3", "done"]),
        (b" 1/3\r 2/3\r", [" 2/3"]),
        (b"half\rError\n", ["Error"]),
        ("µ · 模型\n".encode(), ["µ · 模型"]),
        (b"\xff\xfe\n", ["\ufffd\ufffd"]),
        (b"a\x00b\n", ["a\ufffdb"]),
        (b"Epoch 9%\b\b10%\b\b\b" + "11 ∞\b%\b\b\b\b\n".encode(), ["Epoch 11 %"]),
        (b"x" * 4_000 + b"\n", ["x" * 4_000]),
        (b"x" * 5_234 + b"\nnext\n", ["x" * 4_000 + " … (1,234 more bytes left out)", "next"]),
        (b"x" * 5_234, ["x" * 4_000 + " … (1,234 more bytes left out)"]),
    ],
)
@pytest.mark.parametrize("in_bytes", [False, True])
def test_lines_of_a_log(clock: Clock, said: bytes, lines: list[str], in_bytes: bool) -> None:
    chunks = [bytes([each]) for each in said] if in_bytes else [said]
    log = launcher.BoundedLog()
    found = [line for chunk in chunks for line in log.feed(chunk)] + list(log.end())
    assert found == lines


def test_a_progress_bar_is_shown_now_and_then(clock: Clock) -> None:
    log, shown = launcher.BoundedLog(), list[str]()
    for step in range(100):
        shown += [*log.feed(b"\r step %d" % step), *log.due_lines()]
        clock.now_s += 0.1
    assert 15 <= len(shown) <= 20, "two per second in ten seconds"
    assert shown == sorted(shown, key=lambda line: int(line.split()[1]))
    clock.now_s += 1.0
    assert [*log.feed(b"\n"), *log.end()] == [" step 99"], "its last state is its line"
    assert log.due_ms is None


def test_a_state_that_is_shown_is_not_shown_again(clock: Clock) -> None:
    log = launcher.BoundedLog()
    assert [*log.feed(b"waiting\r"), *log.due_lines()] == []
    assert log.due_ms == pytest.approx(500.0)
    clock.now_s += 0.5
    assert [*log.due_lines(), *log.due_lines()] == ["waiting"]
    assert [*log.feed(b"\n\nnext\n"), *log.end()] == ["", "next"]


def test_too_many_lines_are_counted_and_the_last_are_shown(clock: Clock) -> None:
    log = launcher.BoundedLog()
    found = list(log.feed(b"".join(b"%d\n" % n for n in range(20_000))))
    assert found == [str(n) for n in range(launcher._LINE_BURST)]
    assert log.due_ms == pytest.approx(1_000.0)
    found = [*log.feed(b"the end\nand half"), *log.due_lines()]
    assert found == []
    clock.now_s += 1.0
    note, *last = log.due_lines()
    assert note == "(… 14,901 lines left out: more than 200 per second for long)"
    assert last == [*map(str, range(19_901, 20_000)), "the end"]
    assert [*log.feed(b" a line\n"), *log.end()] == ["and half a line"]


def test_lines_that_are_long_are_too_many_sooner(clock: Clock) -> None:
    log = launcher.BoundedLog()
    found = list(log.feed((b"x" * 3_999 + b"\n") * 1_000))
    assert len(found) == launcher._LOG_BYTE_BURST // 3_999
    note, *last = log.end()
    assert note == "(… 496 lines left out: more than 200 per second for long)"
    assert last == ["x" * 3_999] * 4


def test_few_lines_that_are_too_many_are_all_shown_later(clock: Clock) -> None:
    log = launcher.BoundedLog()
    found = list(log.feed(b"line\n" * (launcher._LINE_BURST + 3)))
    assert found == ["line"] * launcher._LINE_BURST
    assert list(log.end()) == ["line"] * 3


def test_at_a_moderate_rate_nothing_is_left_out(clock: Clock) -> None:
    log, found = launcher.BoundedLog(), list[str]()
    for second in range(100):
        found += log.feed(b"".join(b"%d\n" % (200 * second + n) for n in range(200)))
        clock.now_s += 1.0
    assert [*found, *log.end()] == [str(n) for n in range(20_000)]


FLOODS = {
    "no newline": b"x" * MIB,
    "progress bar": b"\r 17/1000 [===>......] - loss: 0.5" * 20_000,
    "short lines": b"x\n" * (MIB // 2),
    "long lines": (b"x" * 100_000 + b"\n") * 10,
    "empty lines": b"\n" * MIB,
}


@pytest.mark.parametrize("flood", FLOODS.values(), ids=FLOODS)
def test_a_flood_of_a_log_takes_little_memory(flood: bytes) -> None:
    def read() -> None:
        with pipe_with(flood for _ in range(30)) as pipe:
            texts = 0
            for line in log_lines(pipe):
                texts += len(line)
            assert texts < 5 * MIB

    assert peak_bytes(read) < 4 * MIB


def test_a_line_without_end_is_no_message_before_it_is_held() -> None:
    def read() -> None:
        with pipe_with(b"x" * MIB for _ in range(30)) as pipe:
            lines = message_lines(pipe, lambda _: None)
            with pytest.raises(
                ProtocolError, match="not a message of this protocol, because it has more than 4 MiB: b'xxx"
            ):
                decode_message(next(lines))
            launcher.discard(pipe)

    assert peak_bytes(read) < 3 * MOST_MESSAGE_BYTES


def test_messages_wait_for_their_turn(clock: Clock) -> None:
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        clock.now_s += seconds

    count = launcher._MESSAGE_BURST + 100
    with pipe_with([b"{}\n" * count]) as pipe:
        assert len(list(message_lines(pipe, wait))) == count
    assert len(waits) == 100
    assert sum(waits) == pytest.approx(100 / launcher._MESSAGES_PER_S)
