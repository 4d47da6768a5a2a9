"""A clock that a test moves, for the readers of NVML and the fake below them alike."""

import time

import pytest

_READERS = (
    "app.telemetry.nvml",
    "app.telemetry.nvml_gpu",
    "app.telemetry.nvml_calls",
    "app.telemetry.nvml",
    "app.telemetry.nvml_probe",
    "tests.fakes.nvml",
    "tests.unit.telemetry.sources",
)
_LOOK_S = 2**-20
"""A power of two: sums of these are exact."""


class Clock:
    """Stands in for the module `time`: what sleeps moves it on, and each look at it does by about a microsecond."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._base_s = int(time.monotonic())
        self.passed_s = 0.0
        for module in _READERS:
            monkeypatch.setattr(f"{module}.time", self)

    def monotonic(self) -> float:
        self.passed_s += _LOOK_S
        return self._base_s + self.passed_s

    def monotonic_ns(self) -> int:
        return int(self.monotonic() * 1e9)

    def perf_counter_ns(self) -> int:
        return self.monotonic_ns()

    def time(self) -> float:
        """Processes begin by the wall clock."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        self.passed_s += seconds
