"""The sampler's process on fake cards: its ticks, its slow thread, and how it ends."""

import collections
import io
import itertools
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TypeVar

import msgspec
import numpy as np
import psutil
import pytest

from app.telemetry.feed import TelemetryFeed
from app.telemetry.messages import SamplerMessage, SetRate
from app.telemetry.sampler import FastThread, Pace, _handle_commands
from app.telemetry.sampler_process import Output
from app.values.fields import SLOW_FIELDS, Sample, SlowSample
from app.values.samples import HOST, DeviceLost, Inventory
from tests.fakes.nvml import environment
from tests.fakes.nvml_cards import ENERGY, SLOW_ENERGY, TWO_H200, Card, Driver, Flaw
from tests.fakes.sessions import started_feed
from tests.present import present

LIMIT_S = 120.0
TRIES = 10
"""How often a busy machine may disturb what is looked at before it is the sampler that does."""
ROOT = Path(__file__).parents[3]
PERIOD_MS = 50.0
SLACK_MS = 15.0
Messages = queue.SimpleQueue[SamplerMessage]
M = TypeVar("M")


@contextmanager
def sampling(*cards: Card, hz: float = 20.0) -> Iterator[tuple[TelemetryFeed, Messages]]:
    """A feed on these cards and what it says."""
    said: Messages = queue.SimpleQueue()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment(Driver(cards=cards)).items():
            patch.setenv(name, value)
        with started_feed(hz) as feed:
            feed.wait_inventory(LIMIT_S)
            feed.subscribe(said.put)
            yield feed, said


class _Driver:
    """Stands in for NVML and its event: no GPU for some readings, then one; `waits_s` are the pauses asked for."""

    def __init__(self, *answers: bytes | None) -> None:
        self._answers = iter(answers)
        self.stopped = self
        self.has_gpus = False
        self.waits_s: list[float] = []

    def replace_fast_thread(self, _: threading.Thread) -> None:
        pass

    def read(self, _: threading.Thread) -> bytes | None:
        answer = next(self._answers)
        self.has_gpus = bool(answer)
        return answer

    def is_set(self) -> bool:
        return False

    def wait(self, timeout_s: float) -> None:
        self.waits_s.append(timeout_s)


def test_a_gpu_that_comes_back_is_read_at_its_rate_at_once() -> None:
    driver = _Driver(*[b""] * 20, b"1\n", b"2\n", None)
    FastThread(driver, Output(io.BytesIO()), Pace(1 / 60)).run()  # type: ignore[arg-type]
    assert driver.waits_s[:20] == [0.25] * 20
    assert all(59 < wait_s <= 120 for wait_s in driver.waits_s[20:])


def test_an_order_changes_the_rate_of_what_is_read_next() -> None:
    orders = io.BytesIO(b"".join(msgspec.json.encode(SetRate(hz)) + b"\n" for hz in (1, 100)))
    stopped, pace = threading.Event(), Pace(20.0)
    _handle_commands(orders, SimpleNamespace(stopped=stopped), None, Output(io.BytesIO()), pace)  # type: ignore[arg-type]
    assert pace.period_ns == 10_000_000
    assert stopped.is_set(), "and the end of orders ends it"


def until(said: Messages, kind: type[M], that: Callable[[M], bool] = lambda _: True) -> M:
    """The first message of that kind for which it holds."""
    end_s = time.monotonic() + LIMIT_S
    while (left_s := end_s - time.monotonic()) > 0:
        message = said.get(timeout=left_s)
        if isinstance(message, kind) and that(message):
            return message
    raise AssertionError(f"no such {kind.__name__} came")


def has_energy(sample: SlowSample) -> bool:
    return sample.energy_mj is not None


@contextmanager
def process(*words: str, cards: Sequence[Card] = TWO_H200) -> Iterator["subprocess.Popen[bytes]"]:
    """The sampler itself, ended at the end if it has not."""
    sampler = subprocess.Popen(
        [sys.executable, "-m", "app.telemetry.sampler", *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, **environment(Driver(cards=tuple(cards)))},
    )
    try:
        yield sampler
    finally:
        sampler.kill()
        sampler.communicate()


def test_ticks_keep_their_time_although_energy_takes_19_ms() -> None:
    """The main thread reads 20 times a second; beside it the energy of two cards is asked for all the time."""
    with sampling(*SLOW_ENERGY) as (feed, said):
        assert any(_keeps_time(*_times_with_energy(feed, said)) for _ in range(TRIES))


def _times_with_energy(feed: TelemetryFeed, said: Messages) -> tuple[list[int], list[int]]:
    """The times of some ticks, and of the readings of energy beside them."""
    times_ns: list[int] = []
    energy_ns: list[int] = []
    while len(times_ns) < 81:
        message = said.get(timeout=LIMIT_S)
        if isinstance(message, Sample) and message.device == "GPU-aaaa":
            times_ns.append(message.t_ns)
            feed.read_energy()
        elif isinstance(message, SlowSample) and has_energy(message):
            energy_ns.append(message.t_ns)
    return times_ns, energy_ns


def _keeps_time(times_ns: list[int], energy_ns: list[int]) -> bool:
    """Whether ticks kept their period though energy was read beside most of them.

    Two cards take 38 ms: were they in the way, most intervals would be longer than that allows.
    """
    between_ms = np.diff(times_ns) / 1e6
    energy = np.array(energy_ns)
    near = [bool(((energy > a) & (energy < b + 19_000_000)).any()) for a, b in itertools.pairwise(times_ns)]
    if np.count_nonzero(near) <= 40:
        return False
    usual_ms, late_ms = np.median(between_ms), np.percentile(between_ms[near], 75)
    return bool(abs(usual_ms - PERIOD_MS) < 2 and late_ms < PERIOD_MS + SLACK_MS)


def sampler_of_this_test() -> psutil.Process:
    (sampler,) = [child for child in psutil.Process().children() if "app.telemetry.sampler" in child.cmdline()]
    return sampler


def ticks(said: Messages, after_ns: int) -> list[int]:
    """The times of the next eleven samples of a GPU after that time."""
    later = (until(said, Sample, lambda sample: sample.device == "GPU-aaaa").t_ns for _ in itertools.count())
    return list(itertools.islice((t_ns for t_ns in later if t_ns > after_ns), 11))


def test_ticks_that_were_missed_are_left_out_and_the_others_keep_their_grid() -> None:
    """Three times the process stands still for a few ticks; what comes after lies where it would have lain anyway."""
    with sampling(*TWO_H200) as (_, said):
        period_ns = PERIOD_MS * 1e6
        first = ticks(said, 0)
        for _ in range(3):
            sampler_of_this_test().suspend()
            with pytest.raises(queue.Empty):
                collections.deque(iter(partial(said.get, timeout=0.23), None), maxlen=0)
            sampler_of_this_test().resume()
            assert any(_apart_ns(first, ticks(said, time.monotonic_ns())) < 0.2 * period_ns for _ in range(TRIES))


def _apart_ns(ticks_ns: list[int], later_ns: list[int]) -> float:
    """How far those later ticks lie from the grid of these, at most half a period."""
    period_ns = PERIOD_MS * 1e6
    steps = (np.median(np.array(later_ns)[:, None] - np.array(ticks_ns)[None, :]) / period_ns) % 1
    return float(min(steps, 1 - steps) * period_ns)


def test_energy_is_read_promptly_for_every_gpu() -> None:
    with sampling(*SLOW_ENERGY) as (feed, said):
        soon = any(_energy_wait_s(feed, said) < 0.3 for _ in range(TRIES))
    assert soon, "though the counters are being watched: two readings take 38 ms"


def _energy_wait_s(feed: TelemetryFeed, said: Messages) -> float:
    began_ns = time.monotonic_ns()
    feed.read_energy()
    read = [until(said, SlowSample, lambda sample: has_energy(sample) and sample.t_ns > began_ns) for _ in SLOW_ENERGY]
    assert {sample.device for sample in read} == {card.uuid for card in SLOW_ENERGY}
    return (max(sample.t_ns for sample in read) - began_ns) / 1e9


def test_slow_samples_hold_what_takes_long_and_the_sampler_s_own_cost() -> None:
    with sampling(*TWO_H200) as (_, said):
        values: dict[str, float] = {}
        while not {"energy_mj", "memory_reserved_bytes", "memory_temperature_c", "sm_active_pct"} <= values.keys():
            sample = until(said, SlowSample, lambda sample: sample.device == "GPU-aaaa")
            values.update({name: value for name in SLOW_FIELDS if (value := getattr(sample, name)) is not None})
        assert (values["memory_reserved_bytes"], values["memory_temperature_c"]) == (644_939_776, 37)
        assert (values["sm_active_pct"], values["dram_active_pct"]) == (96.0, 16.0)
        own = until(said, SlowSample, lambda sample: sample.sampler_cpu_s is not None)
    assert (own.device, present(own.sampler_cpu_s) > 0) == (HOST, True)


def test_with_the_word_cheap_nothing_dear_is_read() -> None:
    decoder = msgspec.json.Decoder(SamplerMessage)
    with process("50", "fast") as sampler:
        messages = [decoder.decode(present(sampler.stdout).readline()) for _ in range(150)]
    assert isinstance(messages[0], Inventory)
    assert all(isinstance(message, Sample) for message in messages[1:])
    assert {message.device for message in messages[1:] if isinstance(message, Sample)} == {"GPU-aaaa", "GPU-bbbb"}


def test_closing_stdin_ends_both_threads_also_while_energy_is_watched() -> None:
    with process("20", cards=(Card(uuid="GPU-still", power_instant_mw=0, costs_ms={ENERGY: 19.0}),)) as sampler:
        for line in present(sampler.stdout):
            if json.loads(line)["type"] == "slow_sample":
                break
        present(sampler.stdin).close()
        assert sampler.wait(LIMIT_S) == 0
        sampler.stdin = None


def test_closing_stdin_ends_it_although_the_driver_hangs() -> None:
    # Five reads while it is probed, then ticks; the first of them is written at once.
    hang = Flaw("nvmlDeviceGetTemperature", first=8, delay_ms=3_600_000)
    with process("20", cards=(Card(uuid="GPU-hangs", flaws=(hang,)),)) as sampler:
        messages = (json.loads(line) for line in present(sampler.stdout))
        samples = (each for each in messages if each["type"] == "sample" and each["device"] == "GPU-hangs")
        next(samples)
        present(sampler.stdin).close()
        assert sampler.wait(LIMIT_S) == 0
        sampler.stdin = None


def test_without_a_reader_the_process_ends() -> None:
    with process("50") as sampler:
        assert sampler.stdout is not None
        sampler.stdout.readline()
        sampler.stdout.close()
        assert sampler.wait(LIMIT_S) == 0


def test_orders_to_a_sampler_that_is_gone_and_closing_it_are_quiet() -> None:
    with sampling(*TWO_H200) as (feed, _):
        sampler = sampler_of_this_test()
        sampler.kill()
        psutil.wait_procs([sampler], LIMIT_S)
        feed.read_energy()
        feed.follow(1)


def test_a_gpu_lost_on_the_way_is_said_once_and_is_no_gpu_to_run_on(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    with sampling(Card(uuid="GPU-aaaa", lost_when=str(gone)), TWO_H200[1], hz=50) as (feed, said):
        until(said, SlowSample, lambda sample: sample.device == "GPU-aaaa")
        gone.touch()
        lost = until(said, DeviceLost)
        inventory = feed.wait_inventory()
        # What the other thread had read before the loss may come after the word of it, but not after this.
        feed.read_energy()
        until(said, SlowSample, lambda sample: has_energy(sample) and sample.t_ns > lost.t_ns)
        rest = [said.get(timeout=LIMIT_S) for _ in range(60)]
        while not any(isinstance(message, Sample) and message.device == HOST for message in rest):
            rest.append(said.get(timeout=LIMIT_S))
    assert lost.device == "GPU-aaaa"
    assert [gpu.uuid for gpu in inventory.machine.gpus] == ["GPU-bbbb"]
    assert [device.device for device in inventory.devices] == ["GPU-aaaa", "GPU-bbbb", HOST]
    late = [said for said in rest if isinstance(said, DeviceLost | Sample | SlowSample)]
    assert {message.device for message in late} == {"GPU-bbbb", HOST}
