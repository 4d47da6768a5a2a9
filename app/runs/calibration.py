"""Measuring anew how fast a machine's devices multiply matrices; a run does it by itself where nobody has yet."""

import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from app.errors import UserError
from app.runs.errands import Told, ask, leased
from app.runs.leases import CPU
from app.runs.session import RunServices
from app.storage.store import Store
from workloads import catalog
from workloads.catalog import Machine
from workloads.protocol import Calibrate, Calibration, RunSpec


class Calibrated(NamedTuple):
    """A device's rate as it is now, and as it was stored before; None where it was not."""

    found: Calibration
    before: Calibration | None


def calibrate(services: RunServices, store: Store, precisions: Sequence[str], told: Told) -> Iterator[Calibrated]:
    """Every GPU, or the processor where there is none, in these precisions (none: all it has), each kept as it comes.

    Raises `UserError` for a precision that it does not have.
    """
    machine = services.feed.wait_inventory().machine
    for spec in _specs(machine, precisions):
        for device in [gpu.uuid for gpu in machine.gpus] or [CPU]:
            told(f"{device} in {spec.variant['precision']} …")
            with leased(services.leases, [device], told):
                found = ask(Calibrate(spec=spec, gpu_uuids=(device,) if machine.gpus else ()), Calibration)
            before = store.calibration(found.device, found.precision)
            store.keep_calibration(found, time.time_ns())
            yield Calibrated(found, before)


def _specs(machine: Machine, precisions: Sequence[str]) -> list[RunSpec]:
    """A variant of each precision that can run here."""
    known = catalog.workload("lstm").parameter("precision")
    names = [str(catalog.parse(known, word)) for word in precisions] or [choice.value for choice in known.choices]
    specs = [
        catalog.complete("lstm", {"precision": name, "gpus": min(1, len(machine.gpus))}, machine) for name in names
    ]
    reasons = [refusals[0].reason for spec in specs if (refusals := catalog.check(spec, machine))]
    if reasons and precisions:
        raise UserError(reasons[0])
    return [spec for spec in specs if not catalog.check(spec, machine)]
