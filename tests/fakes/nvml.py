"""A stand-in for libnvidia-ml.so.1: the C functions that nvidia-ml-py asks for, filled from a description of cards.

The real `pynvml` runs on top of it. `installed` puts it into this process; `environment` into every Python process
that is started with it (by `site/sitecustomize.py`). A negative number in a card's answers is an NVML error code.
"""

import ctypes
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pynvml

VARIABLE = "FAKE_NVML"
_SITE = Path(__file__).parent / "site"
_ROOT = Path(__file__).parents[2]

NOT_SUPPORTED = -pynvml.NVML_ERROR_NOT_SUPPORTED
NO_PERMISSION = -pynvml.NVML_ERROR_NO_PERMISSION


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU and what it answers; it is lost as soon as there is a file `lost_when`."""

    uuid: str
    name: str = "NVIDIA H200"
    memory_total_bytes: int = 150_754_820_096
    memory_used_bytes: int = 4_000_000_000
    compute_capability: tuple[int, int] = (9, 0)
    power_instant_mw: int = 688_123
    power_average_mw: int = 600_000
    load_pct: int = 99
    temperature_c: int = 61
    sm_clock_mhz: int = 1_980
    power_limit_mw: int = 700_000
    lost_when: str | None = None

    def is_lost(self) -> bool:
        return self.lost_when is not None and Path(self.lost_when).exists()


class Driver(msgspec.Struct, frozen=True, kw_only=True):
    """A machine's NVIDIA driver: its cards, the functions it lacks, and the error it starts with (0 is none)."""

    cards: tuple[Card, ...] = ()
    missing: tuple[str, ...] = ()
    init_error: int = 0
    version: str = "580.65.06"
    cuda: int = 13_000


TWO_H200 = (Card(uuid="GPU-aaaa"), Card(uuid="GPU-bbbb", power_instant_mw=671_000, load_pct=98))
RTX_2080_TI = Card(
    uuid="GPU-2080",
    name="NVIDIA GeForce RTX 2080 Ti",
    memory_total_bytes=11_811_160_064,
    compute_capability=(7, 5),
    power_instant_mw=NOT_SUPPORTED,
    power_average_mw=253_000,
)
LAPTOP = Card(
    uuid="GPU-mobile",
    name="NVIDIA GeForce GTX 1650 Mobile",
    power_instant_mw=NOT_SUPPORTED,
    power_average_mw=NOT_SUPPORTED,
    power_limit_mw=NOT_SUPPORTED,
)


class FakeNvml:
    """Takes the place of the loaded library: its attributes are the C functions, by name."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._is_open = False

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvml") or name in self._driver.missing:
            raise AttributeError(name)
        return getattr(self, f"_{name}")

    def _nvmlInitWithFlags(self, _flags: int) -> int:
        self._is_open = self._driver.init_error == 0
        return self._driver.init_error

    def _nvmlShutdown(self) -> int:
        self._is_open = False
        return int(pynvml.NVML_SUCCESS)

    def _nvmlSystemGetDriverVersion(self, text: Any, _size: Any) -> int:
        text.value = self._driver.version.encode()
        return int(pynvml.NVML_SUCCESS)

    def _nvmlSystemGetCudaDriverVersion_v2(self, out: Any) -> int:
        return self._give(out, self._driver.cuda)

    def _nvmlDeviceGetCount_v2(self, out: Any) -> int:
        return self._give(out, len(self._driver.cards))

    def _nvmlDeviceGetHandleByIndex_v2(self, index: Any, out: Any) -> int:
        ctypes.c_void_p.from_buffer(out._obj).value = index.value + 1
        return int(pynvml.NVML_ERROR_GPU_IS_LOST if self._driver.cards[index.value].is_lost() else pynvml.NVML_SUCCESS)

    def _nvmlDeviceGetUUID(self, handle: Any, text: Any, _size: Any) -> int:
        text.value = self._card(handle).uuid.encode()
        return int(pynvml.NVML_SUCCESS)

    def _nvmlDeviceGetName(self, handle: Any, text: Any, _size: Any) -> int:
        text.value = self._card(handle).name.encode()
        return int(pynvml.NVML_SUCCESS)

    def _nvmlDeviceGetCudaComputeCapability(self, handle: Any, major: Any, minor: Any) -> int:
        major._obj.value, minor._obj.value = self._card(handle).compute_capability
        return int(pynvml.NVML_SUCCESS)

    def _nvmlDeviceGetMemoryInfo(self, handle: Any, out: Any) -> int:
        card = self._card(handle)
        out._obj.total, out._obj.used = card.memory_total_bytes, max(card.memory_used_bytes, 0)
        return self._state(handle, card.memory_used_bytes)

    def _nvmlDeviceGetUtilizationRates(self, handle: Any, out: Any) -> int:
        out._obj.gpu = max(self._card(handle).load_pct, 0)
        return self._state(handle, self._card(handle).load_pct)

    def _nvmlDeviceGetFieldValues(self, handle: Any, _count: Any, out: Any) -> int:
        known = {pynvml.NVML_FI_DEV_POWER_INSTANT: self._card(handle).power_instant_mw}
        for value in out._obj:
            answer = known.get(value.fieldId, NOT_SUPPORTED)
            value.valueType = pynvml.NVML_VALUE_TYPE_UNSIGNED_INT
            value.nvmlReturn, value.value.uiVal = max(-answer, 0), max(answer, 0)
        return self._state(handle, 0)

    def _nvmlDeviceGetPowerUsage(self, handle: Any, out: Any) -> int:
        return self._answer(handle, self._card(handle).power_average_mw, out)

    def _nvmlDeviceGetTemperature(self, handle: Any, _sensor: Any, out: Any) -> int:
        return self._answer(handle, self._card(handle).temperature_c, out)

    def _nvmlDeviceGetClockInfo(self, handle: Any, _kind: Any, out: Any) -> int:
        return self._answer(handle, self._card(handle).sm_clock_mhz, out)

    def _nvmlDeviceGetEnforcedPowerLimit(self, handle: Any, out: Any) -> int:
        return self._answer(handle, self._card(handle).power_limit_mw, out)

    def _card(self, handle: Any) -> Card:
        number = ctypes.cast(handle, ctypes.c_void_p).value
        assert number is not None, "a handle of this library"
        return self._driver.cards[number - 1]

    def _state(self, handle: Any, answer: int) -> int:
        """The return code of a call that would answer this."""
        if not self._is_open:
            return int(pynvml.NVML_ERROR_UNINITIALIZED)
        return int(pynvml.NVML_ERROR_GPU_IS_LOST) if self._card(handle).is_lost() else max(-answer, 0)

    def _answer(self, handle: Any, answer: int, out: Any) -> int:
        self._give(out, max(answer, 0))
        return self._state(handle, answer)

    def _give(self, out: Any, value: int) -> int:
        out._obj.value = value
        return int(pynvml.NVML_SUCCESS if self._is_open else pynvml.NVML_ERROR_UNINITIALIZED)


def install(driver: Driver) -> None:
    """Let `pynvml` take this for the library from now on."""
    pynvml.nvmlLib = FakeNvml(driver)
    pynvml._nvmlGetFunctionPointer_cache.clear()


@contextmanager
def installed(driver: Driver) -> Iterator[None]:
    """`pynvml` on this driver inside, as it was before afterwards."""
    before = pynvml.nvmlLib, dict(pynvml._nvmlGetFunctionPointer_cache), pynvml._nvmlLib_refcount
    install(driver)
    try:
        yield
    finally:
        pynvml.nvmlLib, cache, pynvml._nvmlLib_refcount = before
        pynvml._nvmlGetFunctionPointer_cache.clear()
        pynvml._nvmlGetFunctionPointer_cache.update(cache)


def environment(driver: Driver) -> Mapping[str, str]:
    """The variables with which every Python process has this driver."""
    paths = [str(_SITE), str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {VARIABLE: msgspec.json.encode(driver).decode(), "PYTHONPATH": os.pathsep.join(paths)}


def install_from_environment() -> None:
    """Let `pynvml` have the driver that `environment` named."""
    install(msgspec.json.decode(os.environ[VARIABLE], type=Driver))
