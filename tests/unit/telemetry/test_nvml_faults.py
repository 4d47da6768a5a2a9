"""One bad GPU harms only itself: what is refused, fails, falls silent, hangs, and what comes back."""

import itertools
import math
import queue
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec
import pynvml
import pytest

from app.telemetry import nvml
from app.telemetry.messages import SamplerMessage
from app.telemetry.nvml import NvmlSource
from app.telemetry.nvml_probe import LOST_ERRORS
from app.telemetry.sampler import take_inventory
from app.values.fields import Sample
from app.values.samples import DeviceLost, Inventory, Processes
from tests.fakes.nvml import FakeNvml, installed
from tests.fakes.nvml_cards import ENERGY, FOREVER_S, NOT_SUPPORTED, TWO_H200, Card, Driver, Flaw
from tests.fakes.scenarios import load
from tests.unit.telemetry.clock import Clock
from tests.unit.telemetry.sources import Readers, opened, read_sample, slow_values

LIMIT_S = 120.0
PROCESSES = "nvmlDeviceGetComputeRunningProcesses"
FUNCTIONS = ("*", "nvmlGpm*", "nvmlDeviceGetHandle*", "nvmlDeviceGet[A-M]*", "nvmlDeviceGet[P-Z]*")
ERRORS = ("UNKNOWN", "RESET_REQUIRED", "NOT_SUPPORTED", "NOT_FOUND", "INVALID_ARGUMENT", "TIMEOUT", 0)
M = TypeVar("M")


class Said:
    """What an `NvmlSource` writes, to wait for."""

    def __init__(self) -> None:
        self._messages: queue.SimpleQueue[SamplerMessage] = queue.SimpleQueue()

    def write(self, messages: Any) -> None:
        for message in messages:
            self._messages.put(message)

    def __iter__(self) -> Iterator[SamplerMessage | None]:
        """Every message, and None now and then where there is none."""
        while True:
            try:
                yield self._messages.get(timeout=0.05)
            except queue.Empty:
                yield None

    def wait(self, kind: type[M], that: Callable[[M], bool] = lambda _: True) -> M:
        end_s = time.monotonic() + LIMIT_S
        while True:
            message = self._messages.get(timeout=end_s - time.monotonic())
            if isinstance(message, kind) and that(message):
                return message


@contextmanager
def reading(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[NvmlSource, Said, FakeNvml]]:
    """All threads on this driver, which look again at once for what is not there."""
    monkeypatch.setattr(nvml, "_RETRY_S", 0.02)
    said = Said()
    with installed(driver) as fake:
        source = NvmlSource(said.write)
        source.start()
        source.wait(LIMIT_S, probed=True)
        source.begin(slow=True)
        yield source, said, fake
        assert source.close(LIMIT_S)
        assert fake._driver_calls["", "nvmlShutdown"], "whatever became of the driver"


def read_fast(source: NvmlSource, said: Said) -> threading.Thread:
    """A thread that reads the fast fields until the source is closed."""
    decoder: msgspec.json.Decoder[SamplerMessage] = msgspec.json.Decoder(SamplerMessage)

    def run() -> None:
        while not source.stopped.is_set() and (lines := source.read(thread)) is not None:
            said.write(map(decoder.decode, lines.splitlines()))
            source.stopped.wait(0.01)

    thread = threading.Thread(target=run)
    source.replace_fast_thread(thread)
    thread.start()
    return thread


def is_whole(inventory: Inventory) -> bool:
    return len(inventory.machine.gpus) == 2


@pytest.mark.parametrize(
    ("name", "gpus", "lost"),
    [
        ("handle_unknown", ["GPU-h200-0"], "The driver does not open this GPU (Unknown Error)."),
        ("handle_noperm", ["GPU-h200-0"], "The driver does not open this GPU (Insufficient Permissions)."),
        ("twins", ["GPU-h200-0"], "The driver does not open this GPU (another GPU has the same UUID)."),
        ("oddbytes", ["GPU-h200-0", "GPU-h200-1"], None),
        ("sysver_fails", ["GPU-h200-0", "GPU-h200-1"], None),
    ],
)
def test_a_gpu_that_is_refused_is_listed_and_the_other_is_there(name: str, gpus: list[str], lost: str | None) -> None:
    with installed(load(name)):
        inventory = take_inventory()
    assert [gpu.uuid for gpu in inventory.machine.gpus] == gpus
    first, second, host = inventory.devices
    assert (first.index, first.lost, host.lost) == (0, None, None)
    assert (second.index, second.lost) == (1, lost)
    assert set(first.fields) >= {"power_mw", "energy_mj"}
    assert (inventory.no_gpu_reason, inventory.pending) == (None, False)
    assert (inventory.driver is None) == (name == "sysver_fails")


def test_a_name_that_is_no_text_is_written_with_escapes() -> None:
    with installed(load("oddbytes")):
        assert take_inventory().machine.gpus[1].name == r"NVIDIA \xff\xfe H200"


def test_a_driver_that_does_not_count_its_gpus_leaves_the_host() -> None:
    with installed(load("count_fails")):
        inventory = take_inventory()
    assert inventory.no_gpu_reason == "the NVIDIA driver does not list its GPUs (Unknown Error)"
    assert [device.kind for device in inventory.devices] == ["host"]


@pytest.mark.parametrize("error", sorted(LOST_ERRORS))
def test_a_gpu_that_says_it_is_gone_is_lost_at_once(error: int) -> None:
    # Five reads were made while it was probed.
    flaw = Flaw("nvmlDeviceGetTemperature", error, first=6)
    with opened(Card(uuid="GPU-x", flaws=(flaw,))) as (source, _):
        assert [type(message) for message in source.read()] == [DeviceLost]
        assert source.gpus == ()


def test_two_seconds_of_nothing_but_errors_are_a_loss_and_less_is_none(clock: Clock) -> None:
    silent = Flaw("nvmlDevice*", "UNKNOWN", from_s=10.0, to_s=11.9), Flaw("nvmlDevice*", "UNKNOWN", from_s=20.0)
    kinds: dict[float, list[type]] = {}
    with opened(Card(uuid="GPU-x", flaws=silent)) as (source, _):
        for passed_s in (9.0, 10.5, 11.8, 12.0, 20.5, 21.5, 22.6, 23.0):
            clock.passed_s = passed_s
            kinds[passed_s] = [type(message) for message in source.read()]
        (lost,) = source.devices
    assert kinds == {at_s: [Sample] for at_s in (9.0, 10.5, 11.8, 12.0, 20.5, 21.5)} | {22.6: [DeviceLost], 23.0: []}
    assert lost.lost == "NVIDIA H200 stopped answering (Unknown Error)."


def test_a_gpu_that_answers_something_is_not_lost(clock: Clock) -> None:
    flaws = tuple(Flaw(name, "UNKNOWN", first=20) for name in ("nvmlDeviceGetField*", "nvmlDeviceGetClockInfo"))
    with opened(Card(uuid="GPU-x", flaws=flaws)) as (source, _):
        for _ in range(30):
            clock.passed_s += 1
            (sample,) = source.read()
    assert isinstance(sample, Sample)
    assert (sample.power_mw, sample.sm_clock_mhz, sample.load_pct) == (None, None, 99)


def test_a_slow_field_that_fails_alone_is_no_loss(clock: Clock) -> None:
    flaw = Flaw("nvmlDeviceGetFanSpeed", "UNKNOWN", first=6)
    card = Card(uuid="GPU-x", gpm={}, fields={}, energy_mj=NOT_SUPPORTED, fan_pct=30, flaws=(flaw,))
    with opened(card, missing=("nvmlDeviceGetMemoryInfo_v2",)) as (source, _):
        (reader,) = source.list.readers
        for clock.passed_s in range(1, 20):
            assert read_sample(reader)
            source.read_slow()
        assert source.gpus, "the fast fields are there"


def test_an_error_of_the_moment_while_probing_is_tried_again(clock: Clock) -> None:
    names = ("nvmlDeviceGetUtilizationRates", ENERGY, "nvmlGpmQueryDeviceSupport")
    with opened(Card(uuid="GPU-x", flaws=tuple(Flaw(name, "UNKNOWN", to_s=2.0) for name in names))) as (source, _):
        absent = source.devices[0].absent
        for _ in range(8):
            clock.passed_s += 1
            source.probe()
        slow = slow_values(source)
        (sample,) = source.read()
        known = source.devices[0]
    assert {absent[name] for name in ("load_pct", "memory_load_pct", "energy_mj", "sm_active_pct")} == {"Unknown Error"}
    assert known.absent == {"fan_pct": "not supported"}
    assert isinstance(sample, Sample)
    assert (sample.load_pct, sample.power_mw) == (99, 688_123)
    assert slow["energy_mj"] > 0
    assert slow["sm_active_pct"] == 96.0


def test_an_error_that_stays_leads_to_the_next_best_way(clock: Clock) -> None:
    card = Card(uuid="GPU-x", power_average_mw=-pynvml.NVML_ERROR_UNKNOWN)
    with opened(card) as (source, _):
        assert source.devices[0].absent["power_mw"] == "Unknown Error"
        for _ in range(8):
            clock.passed_s += 1
            source.probe()
            (sample,) = source.read()
        assert source.devices[0].absent == {"power_average_mw": "Unknown Error", "fan_pct": "not supported"}
    assert isinstance(sample, Sample)
    assert sample.power_mw == 688_123


def test_a_slow_driver_gives_what_was_found_so_far() -> None:
    with installed(Driver(cards=TWO_H200[:1])):
        source = Readers()
        source.start(probes=False)
        (reader,) = source.list.readers
        values = []
        for _ in range(3):
            reader.probe.step(time.monotonic())
            (sample,) = source.read()
            assert isinstance(sample, Sample)
            values.append((sample.power_mw, sample.load_pct, sample.memory_bytes))
        source.close()
    assert values == [(688_123, None, None), (688_123, 99, None), (688_123, 99, 4_000_000_000)]


def test_metrics_without_data_are_not_called_unsupported(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = pynvml.nvmlGpmMetricsGet, itertools.count()

    def get(request: Any) -> None:
        real(request)
        if next(calls) == 0:
            for metric in request.metrics:
                metric.nvmlReturn = pynvml.NVML_ERROR_NO_DATA

    monkeypatch.setattr(pynvml, "nvmlGpmMetricsGet", get)
    with opened(TWO_H200[0]) as (source, _):
        clock.passed_s += 1
        assert "sm_active_pct" not in slow_values(source)
        device = source.devices[0]
        assert "sm_active_pct" not in {*device.fields, *device.absent}, "nobody knows yet"
        clock.passed_s += 1
        assert slow_values(source)["sm_active_pct"] == 96.0
        device = source.devices[0]
    assert "sm_active_pct" in device.fields
    assert device.absent == {"fan_pct": "not supported"}


def processes_of(source: Readers) -> list[Processes]:
    return [message for message in source.read_slow() if isinstance(message, Processes)]


@pytest.mark.parametrize("missing", [(), (f"{PROCESSES}_v3",)])
def test_who_uses_a_gpu_is_asked_in_the_newest_way_there_is(missing: tuple[str, ...]) -> None:
    with opened(Card(uuid="GPU-x", processes=((7, 5_000),)), missing=missing) as (source, _):
        (listed,) = processes_of(source)
    assert ([(each.pid, each.memory_bytes) for each in listed.processes], listed.reason) == ([(7, 5_000)], None)


def test_why_nobody_knows_who_uses_a_gpu_is_said_once(clock: Clock) -> None:
    flaw = Flaw(f"{PROCESSES}_v3", "NO_PERMISSION", to_s=9.0)
    reasons = []
    with opened(Card(uuid="GPU-x", flaws=(flaw,))) as (source, _):
        for clock.passed_s in range(1, 14, 2):
            reasons += [(listed.reason, listed.processes) for listed in processes_of(source)]
    assert reasons == [("no permission", ()), *[(None, ())] * 3]


def test_a_driver_that_is_loaded_again_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    with reading(Driver(cards=TWO_H200), monkeypatch) as (source, said, fake):
        fast = read_fast(source, said)
        fake.unload()
        for _ in TWO_H200:
            lost = said.wait(DeviceLost)
            assert lost.reason.startswith("NVIDIA H200 stopped answering (")
        fake.load()
        back = said.wait(Inventory, is_whole)
        since_ns = time.monotonic_ns()
        said.wait(Sample, lambda sample: sample.t_ns > since_ns and sample.power_mw == 688_123)
        source.stopped.set()
        fast.join()
    assert [(device.device, device.lost) for device in back.devices] == [("GPU-aaaa", None), ("GPU-bbbb", None)]


def test_a_driver_that_appears_is_found_without_a_word_before(monkeypatch: pytest.MonkeyPatch) -> None:
    with reading(Driver(cards=TWO_H200, away=((0.0, FOREVER_S),)), monkeypatch) as (_, said, fake):
        first = said.wait(Inventory)
        assert (first.no_gpu_reason, first.devices) == ("the NVIDIA driver is not loaded", ())
        fake.load()
        second = said.wait(Inventory)
        assert second.machine.gpus, "however often it was looked for"
        if not is_whole(second):
            said.wait(Inventory, is_whole)


def test_a_gpu_comes_back_with_an_answer_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """It can be opened all the time, but answers nothing for a while."""
    names = (
        "nvmlDeviceGet[!HUNCM]*",
        "nvmlDeviceGetUtil*",
        "nvmlDeviceGetC[lo]*",
        "nvmlDeviceGetMemoryInfo_v2",
        "nvmlGpm*",
    )
    with reading(Driver(cards=TWO_H200), monkeypatch) as (source, said, fake):
        fast = read_fast(source, said)
        said.wait(Inventory)
        fake.replace("GPU-aaaa", flaws=tuple(Flaw(name, "RESET_REQUIRED") for name in names))
        lost = said.wait(Inventory)
        fake.wait_calls("GPU-aaaa", "nvmlDeviceGetHandleByIndex_v2", 3, LIMIT_S)
        fake.replace("GPU-aaaa", flaws=())
        back = said.wait(Inventory)
        source.stopped.set()
        fast.join()
    assert [gpu.uuid for gpu in lost.machine.gpus] == ["GPU-bbbb"]
    assert [device.lost for device in lost.devices] == ["NVIDIA H200 stopped answering (GPU requires restart).", None]
    assert is_whole(back)


def test_a_gpu_that_hangs_is_lost_and_the_other_is_read_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "_HANG_S", 0.2)
    hang = Flaw("nvmlDeviceGetTemperature", first=20, times=1, delay_ms=math.inf)
    cards = (Card(uuid="GPU-aaaa", flaws=(hang,)), TWO_H200[1])
    with reading(Driver(cards=cards), monkeypatch) as (source, said, fake):
        first = read_fast(source, said)
        said.wait(Inventory)
        while not source.leave_hanging():
            first.join(0.01)
        second = read_fast(source, said)
        lost = said.wait(DeviceLost)
        said.wait(Sample, lambda sample: sample.device == "GPU-bbbb" and sample.t_ns > lost.t_ns)
        assert first.is_alive(), "it hangs still"
        fake.release()
        said.wait(Inventory, is_whole)
        assert not first.is_alive(), "not before: it used what was opened"
        source.stopped.set()
        second.join()
    assert lost.reason.startswith("NVIDIA H200 stopped answering (no answer for ")


def test_closing_while_the_driver_is_away_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    with reading(Driver(cards=TWO_H200), monkeypatch) as (_, said, fake):
        said.wait(Inventory)
        fake.unload()
        assert fake._samples, "GPM holds some, which cannot be given back"


def any_flaw(random_of: random.Random) -> Flaw:
    return Flaw(
        random_of.choice(FUNCTIONS),
        random_of.choice(ERRORS),
        first=random_of.randrange(1, 12),
        times=random_of.choice((1, 3, 1_000_000)),
        from_s=random_of.choice((0.0, 0.2)),
        delay_ms=random_of.choice((0, 0, 20, 150)),
    )


@pytest.mark.parametrize("seed", range(4))
def test_whatever_one_gpu_does_the_other_is_read(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "_HANG_S", 0.1)
    random_of = random.Random(seed)
    bad = Card(uuid="GPU-bad", flaws=tuple(any_flaw(random_of) for _ in range(3)))
    with reading(Driver(cards=(bad, TWO_H200[1])), monkeypatch) as (source, said, _):
        threads, listed, read = [read_fast(source, said)], set[str](), 0
        for message in said:
            if source.leave_hanging():
                threads.append(read_fast(source, said))
            if isinstance(message, Inventory):
                listed = {device.device for device in message.devices}
            elif isinstance(message, Sample):
                assert message.device in listed, "no sample comes before its inventory"
                read += message.device == "GPU-bbbb"
            if read == 30:
                break
        source.stopped.set()
        for thread in threads:
            thread.join()
