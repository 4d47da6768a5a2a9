"""What is in this machine: the sources that work here, and the inventory of their devices."""

import sys
from dataclasses import dataclass

import psutil

from app.errors import TelemetryError
from app.samples import Inventory
from app.telemetry.host import HostSource
from app.telemetry.nvml import NvmlSource
from workloads.catalog import Machine


@dataclass(frozen=True, slots=True)
class Sources:
    """The telemetry of this machine: the GPUs where there is a driver, and the host; and what they found."""

    nvml: NvmlSource | None
    host: HostSource
    inventory: Inventory

    def close(self) -> None:
        """Close all sources."""
        self.host.close()
        if self.nvml is not None:
            self.nvml.close()


def open_sources() -> Sources:
    """Open every source of this machine; without an NVIDIA driver the inventory says why there is no GPU."""
    host = HostSource()
    host.start()
    nvml, no_gpu_reason = _open_nvml()
    machine = Machine(
        gpus=nvml.gpus if nvml else (),
        cpu_count=psutil.cpu_count() or 1,
        platform=sys.platform,
    )
    inventory = Inventory(
        machine=machine,
        devices=(*(nvml.devices if nvml else ()), *host.devices),
        driver=nvml.driver if nvml else None,
        cuda_driver=nvml.cuda_driver if nvml else None,
        no_gpu_reason=no_gpu_reason,
    )
    return Sources(nvml, host, inventory)


def _open_nvml() -> tuple[NvmlSource | None, str | None]:
    """Return NVML, or why there is none; also why there is no GPU though NVML answers."""
    nvml = NvmlSource()
    try:
        nvml.start()
    except TelemetryError as error:
        return None, str(error)
    if nvml.gpus:
        return nvml, None
    return nvml, "every GPU is in MIG mode and has no instance" if nvml.devices else "the NVIDIA driver shows no GPU"


def take_inventory() -> Inventory:
    """Return the inventory of this machine, read once in this process."""
    sources = open_sources()
    sources.close()
    return sources.inventory
