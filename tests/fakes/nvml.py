"""A fake of libnvidia-ml.so.1: the C functions that nvidia-ml-py calls, answered from a description of GPUs.

The real `pynvml` runs on top of it. `installed` puts it into this process; `environment` into every Python process
that is started with it (by `site/sitecustomize.py`). The GPUs are described in `nvml_cards.py`, whole machines with
what goes wrong with them in `tests/scenarios`.
"""

import base64
import ctypes
import math
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pynvml

from tests.fakes.nvml_cards import LAPTOP, NO_PERMISSION, NOT_SUPPORTED, RTX_2080_TI, TWO_H200, Card, Driver, error_code

__all__ = [
    "LAPTOP",
    "NOT_SUPPORTED",
    "NO_PERMISSION",
    "RTX_2080_TI",
    "TWO_H200",
    "Card",
    "Driver",
    "environment",
    "install",
    "install_from_environment",
    "installed",
]

VARIABLE = "FAKE_NVML"
_SITE = Path(__file__).parent / "site"
_ROOT = Path(__file__).parents[2]
_OK = int(pynvml.NVML_SUCCESS)
_GPM_LEAST_S = 0.1
_UNSIGNED_INT = {82, 185, 186, 197, 198}
"""Fields that a real driver returns as 32-bit numbers; the others are 64-bit."""


class FakeNvml:
    """Replaces the loaded library: its attributes are the C functions, by name.

    `calls` counts them, by GPU and function; `gpm_pairs` has the times of the two samples of every GPM result.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._began_s: float | None = None
        self._opened_in: int | None = None
        self._cards = [*driver.cards, *(instance for card in driver.cards for instance in card.mig)]
        self._samples: dict[int, tuple[float, Card]] = {}
        self._lock = threading.Condition()
        self._released = threading.Event()
        self.calls: Counter[tuple[str, str]] = Counter()
        self._driver_calls: Counter[tuple[str, str]] = Counter()
        self.gpm_pairs: list[tuple[float, float]] = []

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvml") or any(fnmatchcase(name, pattern) for pattern in self._driver.missing):
            raise AttributeError(name)
        if hasattr(type(self), f"_card_{name}"):
            return partial(self._ask, name)
        if not hasattr(type(self), f"_{name}"):
            raise AttributeError(name)
        return partial(self._ask_driver, name)

    def replace(self, uuid: str, **changes: Any) -> None:
        """Change what a GPU answers from now on."""
        self._cards = [msgspec.structs.replace(c, **changes) if c.uuid == uuid else c for c in self._cards]

    def unload(self) -> None:
        """Take the driver away from now on; all that was opened is void."""
        self._driver = msgspec.structs.replace(self._driver, away=((0.0, math.inf),))

    def load(self) -> None:
        self._driver = msgspec.structs.replace(self._driver, away=((0.0, 0.0),))

    def release(self) -> None:
        """End every delay without an end."""
        self._released.set()

    def wait_calls(self, uuid: str, name: str, count: int, limit_s: float) -> None:
        """Wait until a function of a GPU has been called so many times more."""
        with self._lock:
            last = self.calls[uuid, name] + count
            assert self._lock.wait_for(lambda: self.calls[uuid, name] >= last, limit_s), f"too few calls of {name}"

    def _ask(self, name: str, handle: Any, *rest: Any) -> int:
        number = ctypes.cast(handle, ctypes.c_void_p).value
        assert number is not None, "a handle of this library"
        card = self._cards[number - 1]
        return self._failure(name, card) or int(getattr(self, f"_card_{name}")(card.at(self._seconds), *rest))

    def _ask_driver(self, name: str, *rest: Any) -> Any:
        """Call a function of the driver; one that gives a GPU's handle fails where that GPU does."""
        failure = 0 if name.startswith("nvmlDeviceGetHandle") else self._failure(name)
        return failure or getattr(self, f"_{name}")(*rest)

    def _failure(self, name: str, card: Card | None = None) -> int:
        """Take the time of a call and return the error with which it fails: that of a flaw, driver or lost GPU."""
        uuid, calls = (card.uuid, self.calls) if card else ("", self._driver_calls)
        with self._lock:
            calls[uuid, name] += 1
            count = calls[uuid, name]
            total = sum(number for (called, _), number in calls.items() if called == uuid)
            self._lock.notify_all()
        seconds, flaws = self._seconds, (*self._driver.flaws, *(card.flaws if card else ()))
        met = [flaw for flaw in flaws if flaw.applies(name, count, seconds)]
        delay_ms = sum(flaw.delay_ms for flaw in met) + (card.costs_ms.get(name, 0.0) if card else 0.0)
        if delay_ms == math.inf:
            self._released.wait()
        elif delay_ms:
            time.sleep(delay_ms / 1e3 / self._driver.speed)
        error = next((code for flaw in met if (code := error_code(flaw.error))), 0) or self._closed(name)
        return error or (int(pynvml.NVML_ERROR_GPU_IS_LOST) if card is not None and card.is_lost(total) else 0)

    def _closed(self, name: str) -> int:
        """Return the error of a library that is not open, because the driver is away, was meanwhile, or never was."""
        if name == "nvmlErrorString":
            return 0
        if self._is_away:
            return int(pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
        is_open = self._opened_in == self._reloads or name == "nvmlInitWithFlags"
        return 0 if is_open else int(pynvml.NVML_ERROR_UNINITIALIZED)

    @property
    def _seconds(self) -> float:
        """The time since the first call, or since the file that it begins with: a busy machine takes long to either."""
        begins_when = self._driver.begins_when
        if self._began_s is None:
            if begins_when is not None and not Path(begins_when).exists():
                return 0.0
            self._began_s = time.monotonic()
        return (time.monotonic() - self._began_s) * self._driver.speed

    @property
    def _is_away(self) -> bool:
        return any(from_s <= self._seconds < to_s for from_s, to_s in self._driver.away)

    @property
    def _reloads(self) -> int:
        return sum(self._seconds >= from_s for from_s, _ in self._driver.away)

    def _nvmlErrorString(self, code: int) -> bytes:
        return f"Error {code}".encode()

    def _nvmlInitWithFlags(self, _flags: int) -> int:
        error = error_code(self._driver.init_error)
        if not error and self._opened_in != self._reloads:
            self._opened_in = self._reloads
            self._samples.clear()
        return error

    def _nvmlShutdown(self) -> int:
        self._opened_in = None
        assert not self._samples, "GPM samples were not given back"
        return _OK

    def _nvmlSystemGetDriverVersion(self, text: Any, _size: Any) -> int:
        return _say(text, self._driver.version)

    def _nvmlSystemGetCudaDriverVersion_v2(self, out: Any) -> int:
        return _give(out, self._driver.cuda)

    def _nvmlDeviceGetCount_v2(self, out: Any) -> int:
        return _give(out, len(self._driver.cards))

    def _nvmlDeviceGetHandleByIndex_v2(self, index: Any, out: Any) -> int:
        return self._give_handle("nvmlDeviceGetHandleByIndex_v2", index.value, len(self._driver.cards), out)

    def _give_handle(self, name: str, place: int, count: int, out: Any) -> int:
        if place >= count:
            return self._failure(name) or int(pynvml.NVML_ERROR_NOT_FOUND)
        ctypes.c_void_p.from_buffer(out._obj).value = place + 1
        return self._failure(name, self._cards[place])

    def _nvmlGpmSampleAlloc(self, out: Any) -> int:
        with self._lock:
            address = 1 + max(self._samples, default=0)
            self._samples[address] = (math.nan, self._cards[0])
        ctypes.c_void_p.from_buffer(out._obj).value = address
        return _OK

    def _nvmlGpmSampleFree(self, sample: Any) -> int:
        del self._samples[_address(sample)]
        return _OK

    def _nvmlGpmMetricsGet(self, out: Any) -> int:
        """Answer like an H200: 0 or NaN where the samples are less than 100 ms apart."""
        request = out._obj
        before, card = self._samples[_address(request.sample1)]
        after, _ = self._samples[_address(request.sample2)]
        assert before < after, "the first sample is the older one"
        self.gpm_pairs.append((before, after))
        for metric in request.metrics[: request.numMetrics]:
            known = metric.metricId in card.gpm
            metric.nvmlReturn = _OK if known else int(pynvml.NVML_ERROR_NOT_SUPPORTED)
            too_early = math.nan if metric.metricId == pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL else 0.0
            metric.value = card.gpm.get(metric.metricId, 0.0) if after - before >= _GPM_LEAST_S else too_early
        return _OK

    def _card_nvmlGpmQueryDeviceSupport(self, card: Card, out: Any) -> int:
        out._obj.isSupportedDevice = int(bool(card.gpm))
        return _OK

    def _card_nvmlGpmSampleGet(self, card: Card, sample: Any) -> int:
        self._samples[_address(sample)] = (time.monotonic(), card)
        return _OK

    def _card_nvmlDeviceGetUUID(self, card: Card, text: Any, _size: Any) -> int:
        return _say(text, card.uuid, card.encoding)

    def _card_nvmlDeviceGetName(self, card: Card, text: Any, _size: Any) -> int:
        return _say(text, card.name, card.encoding)

    def _card_nvmlDeviceGetCudaComputeCapability(self, card: Card, major: Any, minor: Any) -> int:
        major._obj.value, minor._obj.value = card.compute_capability
        return _OK

    def _card_nvmlDeviceGetMemoryInfo(self, card: Card, out: Any) -> int:
        """Answer like the first version: memory that the driver reserves counts as used."""
        out._obj.total = card.memory_total_bytes
        out._obj.used = max(card.memory_used_bytes, 0) + card.memory_reserved_bytes
        return max(-card.memory_used_bytes, 0)

    def _card_nvmlDeviceGetMemoryInfo_v2(self, card: Card, out: Any) -> int:
        out._obj.total, out._obj.used = card.memory_total_bytes, max(card.memory_used_bytes, 0)
        out._obj.reserved = card.memory_reserved_bytes
        return max(-card.memory_used_bytes, 0)

    def _card_nvmlDeviceGetUtilizationRates(self, card: Card, out: Any) -> int:
        out._obj.gpu, out._obj.memory = max(card.load_pct, 0), max(card.memory_load_pct, 0)
        return max(-card.load_pct, 0)

    def _card_nvmlDeviceGetFieldValues(self, card: Card, _count: Any, out: Any) -> int:
        for value in out._obj:
            answer = card.field(value.fieldId)
            value.nvmlReturn = max(-answer, 0)
            if value.fieldId in _UNSIGNED_INT:
                value.valueType, value.value.uiVal = pynvml.NVML_VALUE_TYPE_UNSIGNED_INT, max(answer, 0)
            else:
                value.valueType, value.value.ullVal = pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, max(answer, 0)
        return _OK

    def _card_nvmlDeviceGetPowerUsage(self, card: Card, out: Any) -> int:
        return _give(out, card.power_average_mw)

    def _card_nvmlDeviceGetTotalEnergyConsumption(self, card: Card, out: Any) -> int:
        return _give(out, card.energy_at(self._seconds, time.monotonic()))

    def _card_nvmlDeviceGetTemperature(self, card: Card, _sensor: Any, out: Any) -> int:
        return _give(out, card.temperature_c)

    def _card_nvmlDeviceGetClockInfo(self, card: Card, kind: Any, out: Any) -> int:
        number = getattr(kind, "value", kind)
        return _give(out, card.memory_clock_mhz if number == pynvml.NVML_CLOCK_MEM else card.sm_clock_mhz)

    def _card_nvmlDeviceGetCurrentClocksEventReasons(self, card: Card, out: Any) -> int:
        return _give(out, card.throttle_reasons)

    def _card_nvmlDeviceGetCurrentClocksThrottleReasons(self, card: Card, out: Any) -> int:
        return _give(out, card.throttle_reasons)

    def _card_nvmlDeviceGetEnforcedPowerLimit(self, card: Card, out: Any) -> int:
        return _give(out, card.power_limit_mw)

    def _card_nvmlDeviceGetFanSpeed(self, card: Card, out: Any) -> int:
        return _give(out, card.fan_pct)

    def _card_nvmlDeviceGetComputeRunningProcesses_v3(self, card: Card, count: Any, out: Any) -> int:
        """Return the number of processes where there is no array for them, like the real function."""
        count._obj.value = len(card.processes)
        if out is None:
            return int(pynvml.NVML_ERROR_INSUFFICIENT_SIZE) if card.processes else _OK
        for entry, (pid, memory_bytes) in zip(out, card.processes, strict=False):
            entry.pid = pid
            entry.usedGpuMemory = memory_bytes if memory_bytes >= 0 else pynvml.NVML_VALUE_NOT_AVAILABLE_ulonglong.value
        return _OK

    def _card_nvmlDeviceGetComputeRunningProcesses_v2(self, card: Card, count: Any, out: Any) -> int:
        return self._card_nvmlDeviceGetComputeRunningProcesses_v3(card, count, out)

    def _card_nvmlDeviceGetMigMode(self, card: Card, current: Any, pending: Any) -> int:
        if card.mig_mode is None:
            return int(pynvml.NVML_ERROR_NOT_SUPPORTED)
        current._obj.value = pending._obj.value = card.mig_mode
        return _OK

    def _card_nvmlDeviceGetMaxMigDeviceCount(self, card: Card, out: Any) -> int:
        return _give(out, 7 if card.mig_mode else 0)

    def _card_nvmlDeviceGetMigDeviceHandleByIndex(self, card: Card, index: Any, out: Any) -> int:
        if index.value >= len(card.mig):
            return int(pynvml.NVML_ERROR_NOT_FOUND)
        ctypes.c_void_p.from_buffer(out._obj).value = 1 + self._cards.index(card.mig[index.value])
        return _OK


def _address(sample: Any) -> int:
    number = ctypes.cast(sample, ctypes.c_void_p).value
    assert number is not None, "a sample of this library"
    return number


def _say(out: Any, text: str, encoding: str = "utf-8") -> int:
    out.value = text.encode(encoding)[: len(out) - 1]
    return _OK


def _give(out: Any, answer: int) -> int:
    out._obj.value = max(answer, 0)
    return max(-answer, 0)


def install(driver: Driver) -> FakeNvml:
    """Let `pynvml` use this as the library from now on."""
    fake = FakeNvml(driver)
    pynvml.nvmlLib = fake
    pynvml._nvmlGetFunctionPointer_cache.clear()
    return fake


@contextmanager
def installed(driver: Driver) -> Iterator[FakeNvml]:
    """Let `pynvml` use this driver during the body, and restore it afterwards."""
    before = pynvml.nvmlLib, dict(pynvml._nvmlGetFunctionPointer_cache), pynvml._nvmlLib_refcount
    fake = install(driver)
    try:
        yield fake
    finally:
        pynvml.nvmlLib, cache, pynvml._nvmlLib_refcount = before
        pynvml._nvmlGetFunctionPointer_cache.clear()
        pynvml._nvmlGetFunctionPointer_cache.update(cache)


def environment(driver: Driver) -> Mapping[str, str]:
    """Return the environment variables with which every Python process has this driver."""
    paths = [str(_SITE), str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {VARIABLE: base64.b64encode(msgspec.msgpack.encode(driver)).decode(), "PYTHONPATH": os.pathsep.join(paths)}


def install_from_environment() -> None:
    """Let `pynvml` use the driver that `environment` described."""
    install(msgspec.msgpack.decode(base64.b64decode(os.environ[VARIABLE]), type=Driver))
