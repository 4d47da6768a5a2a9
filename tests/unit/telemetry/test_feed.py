"""The sampler's process and the feed that reads it, for real."""

import gc
import itertools
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from app.errors import TelemetryError
from app.telemetry.feed import TelemetryFeed
from app.telemetry.messages import SamplerMessage
from app.telemetry.sampler_process import SamplerProcess
from app.values.fields import Sample
from app.values.samples import HOST, DeviceLost, Inventory, TelemetryGap
from tests.fakes.nvml import TWO_H200
from tests.fakes.sessions import feed_of, kill_sampler
from tests.present import present

LIMIT_S = 120.0
ROOT = Path(__file__).parents[3]
Messages = queue.SimpleQueue[SamplerMessage]


def samples(messages: Messages, device: str = HOST) -> Iterator[Sample]:
    while True:
        message = messages.get(timeout=LIMIT_S)
        if isinstance(message, Sample) and message.device == device:
            yield message


def first(messages: Messages, that: Callable[[Sample], bool]) -> Sample:
    """The first of the host's next 500 samples for which it holds."""
    found = next(filter(that, itertools.islice(samples(messages), 500)), None)
    assert found is not None, "no such sample came"
    return found


def child(code: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT)


def end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.communicate()


def test_the_inventory_comes_first_and_samples_follow_in_order(feed: TelemetryFeed, messages: Messages) -> None:
    assert isinstance(messages.get(timeout=LIMIT_S), Inventory)
    some = list(itertools.islice(samples(messages), 20))
    gaps_ns = [later.t_ns - earlier.t_ns for earlier, later in itertools.pairwise(some)]
    assert min(gaps_ns) > 0
    assert all(sample.memory_bytes and sample.load_pct is not None for sample in some)
    assert all((sample.power_mw, sample.worker_load_pct, sample.worker_memory_bytes) == (None,) * 3 for sample in some)


def test_a_followed_process_has_its_own_load_and_memory_until_there_are_two(
    feed: TelemetryFeed, messages: Messages
) -> None:
    busy = child("while True: pass")
    try:
        feed.follow(busy.pid)
        loaded = first(messages, lambda sample: (sample.worker_load_pct or 0) > 5)
        assert present(loaded.worker_memory_bytes) > 1_000_000
        feed.follow(os.getpid())
        first(messages, lambda sample: sample.worker_memory_bytes is None)
        feed.unfollow(os.getpid())
        first(messages, lambda sample: (sample.worker_load_pct or 0) > 5)
        feed.unfollow(busy.pid)
        first(messages, lambda sample: sample.worker_memory_bytes is None)
    finally:
        end(busy)


def test_a_followed_process_that_ends_is_absent_again(feed: TelemetryFeed, messages: Messages) -> None:
    waiting = child("input()")
    feed.follow(waiting.pid)
    first(messages, lambda sample: sample.worker_memory_bytes is not None)
    end(waiting)
    first(messages, lambda sample: sample.worker_memory_bytes is None)


def test_following_a_process_that_is_gone_changes_nothing(feed: TelemetryFeed, messages: Messages) -> None:
    gone = child("")
    gone.communicate()
    feed.follow(gone.pid)
    began_ns = time.monotonic_ns()
    since = (sample.worker_memory_bytes for sample in samples(messages) if sample.t_ns > began_ns)
    assert list(itertools.islice(since, 5)) == [None] * 5


def test_a_late_listener_gets_the_inventory_first(feed: TelemetryFeed, messages: Messages) -> None:
    inventory = feed.wait_inventory()
    late: Messages = queue.SimpleQueue()
    unsubscribe = feed.subscribe(late.put)
    heard = [late.get(timeout=LIMIT_S) for _ in range(3)]
    unsubscribe()
    assert inventory in heard
    assert heard[0] is inventory or isinstance(heard[0], Sample)


def test_who_unsubscribed_hears_no_more_and_the_others_do(feed: TelemetryFeed, messages: Messages) -> None:
    left: list[SamplerMessage] = []
    came = threading.Event()

    def listen(message: SamplerMessage) -> None:
        left.append(message)
        came.set()

    unsubscribe = feed.subscribe(listen)
    assert came.wait(LIMIT_S)
    unsubscribe()
    # The reader may be inside its present round of listeners; the next sample ends it.
    list(itertools.islice(samples(messages), 2))
    heard = len(left)
    list(itertools.islice(samples(messages), 10))
    assert len(left) <= heard + 1


def test_who_unsubscribed_is_freed_without_a_garbage_collection() -> None:
    """A full collection comes only when there is a quarter more than before: until then each run would add to it."""

    class Hearer:
        def __init__(self, feed: TelemetryFeed) -> None:
            self.unsubscribe = feed.subscribe(self.hear)

        def hear(self, _: SamplerMessage) -> None:
            """Hear nothing: the feed was never started."""

    hearer = Hearer(TelemetryFeed())
    freed = weakref.ref(hearer)
    gc.disable()
    try:
        hearer.unsubscribe()
        del hearer
        assert freed() is None
    finally:
        gc.enable()


def test_a_sampler_that_dies_is_an_error_in_words() -> None:
    feed = TelemetryFeed(0.0)
    with pytest.raises(TelemetryError, match="telemetry process does not answer"):
        _start_and_wait(feed)


def test_a_killed_sampler_is_replaced_and_follows_the_same_process(feed: TelemetryFeed, messages: Messages) -> None:
    feed.follow(os.getpid())
    first(messages, lambda sample: sample.worker_memory_bytes is not None)
    inventory = feed.wait_inventory()
    kill_sampler(feed)
    assert feed.wait_inventory() == inventory, "runs go on"
    while not isinstance(gap := messages.get(timeout=LIMIT_S), TelemetryGap):
        pass
    assert gap.reason.startswith("The telemetry process ended unexpectedly (signal 9) and is being restarted")
    while not isinstance(messages.get(timeout=LIMIT_S), Inventory):
        pass
    again = first(messages, lambda sample: sample.worker_memory_bytes is not None)
    assert again.t_ns > gap.t_ns


@pytest.mark.parametrize("writable", [True, False])
def test_a_crashed_sampler_leaves_its_stacks_in_the_log(
    writable: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "program.log"
    if not writable:
        log.mkdir()
    monkeypatch.setattr("app.telemetry.sampler_process.log_file", lambda: log)
    sampler = SamplerProcess(20.0)
    messages = sampler.messages()
    assert isinstance(next(messages), Inventory)
    sampler.process.send_signal(signal.SIGSEGV)
    list(messages)
    assert sampler.exit_code() == -signal.SIGSEGV
    sampler.end()
    assert not writable or "Fatal Python error: Segmentation fault" in log.read_text(encoding="utf-8")


def test_a_sampler_that_ends_again_and_again_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.telemetry.feed._RESTART_PAUSES_S", (0.0,))
    with feed_of(*TWO_H200) as feed:
        messages: Messages = queue.SimpleQueue()
        feed.subscribe(messages.put)
        devices = [device.device for device in feed.wait_inventory().devices]
        kill_sampler(feed)
        while not isinstance(messages.get(timeout=LIMIT_S), TelemetryGap):
            pass
        while not isinstance(messages.get(timeout=LIMIT_S), Inventory):
            pass
        kill_sampler(feed)
        losses = (
            message for message in iter(lambda: messages.get(timeout=LIMIT_S), None) if isinstance(message, DeviceLost)
        )
        assert [loss.device for loss in itertools.islice(losses, len(devices))] == devices
        with pytest.raises(TelemetryError, match="telemetry process does not answer"):
            feed.wait_inventory()


def _start_and_wait(feed: TelemetryFeed) -> None:
    feed.start()
    try:
        feed.wait_inventory(LIMIT_S)
    finally:
        feed.close()


def test_following_without_a_sampler_is_quiet(feed: TelemetryFeed) -> None:
    feed.wait_inventory()
    feed.close()
    feed.follow(os.getpid())
    TelemetryFeed().follow(1)


def test_the_sampler_ends_with_a_parent_that_is_killed() -> None:
    """The parent prints the sampler's process id once it samples, and is killed before it can close anything."""
    parent = child(
        "import psutil, threading\n"
        "from app.telemetry.feed import TelemetryFeed\n"
        "feed = TelemetryFeed(); feed.start(); feed.wait_inventory()\n"
        "print(psutil.Process().children()[0].pid, flush=True)\n"
        "threading.Event().wait()\n"
    )
    sampler = psutil.Process(int(present(parent.stdout).readline()))
    parent.send_signal(signal.SIGKILL)
    parent.communicate()
    gone, _ = psutil.wait_procs([sampler], timeout=LIMIT_S)
    assert gone == [sampler]
