"""GPU performance monitoring (GPM) of Hopper and newer: shares of time between two samples of the card's own counters.

NVML API reference, "GPM functions": two samples at least 100 ms apart, then one call for all metrics.
"""

import ctypes
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import pynvml

_MIB = 1024 * 1024

_METRICS: Mapping[str, tuple[int, float]] = {
    "sm_active_pct": (pynvml.NVML_GPM_METRIC_SM_UTIL, 1),
    "sm_occupancy_pct": (pynvml.NVML_GPM_METRIC_SM_OCCUPANCY, 1),
    "tensor_active_pct": (pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL, 1),
    "dram_active_pct": (pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL, 1),
    "fp32_active_pct": (pynvml.NVML_GPM_METRIC_FP32_UTIL, 1),
    "fp16_active_pct": (pynvml.NVML_GPM_METRIC_FP16_UTIL, 1),
    "pcie_tx_bytes_per_s": (pynvml.NVML_GPM_METRIC_PCIE_TX_PER_SEC, _MIB),
    "pcie_rx_bytes_per_s": (pynvml.NVML_GPM_METRIC_PCIE_RX_PER_SEC, _MIB),
    "nvlink_tx_bytes_per_s": (pynvml.NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC, _MIB),
    "nvlink_rx_bytes_per_s": (pynvml.NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC, _MIB),
}
"""NVML's number of each metric, and what it is multiplied with to have our unit."""

FIELDS: tuple[str, ...] = tuple(_METRICS)
INTERVAL_S = 1.0
_MIN_INTERVAL_NS = 120_000_000
"""Samples less than 100 ms apart give zeros on an H200, which nothing marks as wrong."""


class Gpm:
    """The metrics of one card over the time since the reading before. `start` raises `pynvml.NVMLError` without GPM."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self._samples: list[Any] = []
        self._taken = 0
        self._taken_ns = 0

    def start(self) -> None:
        """Make room for two samples and take the first."""
        if not pynvml.nvmlGpmQueryDeviceSupport(self._handle).isSupportedDevice:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        self._samples = [pynvml.nvmlGpmSampleAlloc(), pynvml.nvmlGpmSampleAlloc()]
        self._take_sample()

    def read(self) -> dict[str, float]:
        """Return the metrics since the last reading; nothing where that was too short ago."""
        if time.monotonic_ns() - self._taken_ns < _MIN_INTERVAL_NS:
            return {}
        return {name: value for name, value in self.query().items() if not math.isnan(value)}

    def query(self) -> dict[str, float]:
        """Return the metrics this GPU has. Their values mean something only some time after the last reading."""
        self._take_sample()
        newest, previous = self._samples[(self._taken - 1) % 2], self._samples[self._taken % 2]
        request = pynvml.c_nvmlGpmMetricsGet_t()
        request.version = pynvml.NVML_GPM_METRICS_GET_VERSION
        request.numMetrics = len(_METRICS)
        request.sample1, request.sample2 = previous, newest
        for index, (number, _) in enumerate(_METRICS.values()):
            request.metrics[index].metricId = number
        pynvml.nvmlGpmMetricsGet(request)
        return dict(_metric_values(request.metrics[: len(_METRICS)]))

    def close(self) -> None:
        """Free the samples."""
        for sample in self._samples:
            pynvml.nvmlGpmSampleFree(sample)
        self._samples = []

    def _take_sample(self) -> None:
        pynvml.nvmlGpmSampleGet(self._handle, self._samples[self._taken % 2])
        self._taken += 1
        self._taken_ns = time.monotonic_ns()


def _metric_values(metrics: Sequence[ctypes.Structure]) -> list[tuple[str, float]]:
    pairs = zip(_METRICS.items(), metrics, strict=True)
    return [
        (name, float(metric.value) * factor)
        for (name, (_, factor)), metric in pairs
        if metric.nvmlReturn == pynvml.NVML_SUCCESS
    ]
