"""Where a worker stands by unless the user says otherwise."""

from types import SimpleNamespace

import pytest

from app.records import HOST, Device, Inventory
from app.runs.standby_setting import VARIABLE, wanted_here
from workloads.kinds import Gpu, Machine

GIB = 2**30
CARD = Gpu(index=0, uuid="GPU-a", name="NVIDIA H200")


def inventory(gpus: tuple[Gpu, ...], processors: int) -> Inventory:
    host = Device(device=HOST, kind="host", index=-1, name="host")
    return Inventory(machine=Machine(gpus=gpus, cpu_count=processors), devices=(host,))


@pytest.mark.parametrize(
    ("chosen", "gpus", "processors", "free_gib", "wanted"),
    [
        ("", (CARD,), 8, 4, True),
        ("", (CARD,), 7, 64, False),
        ("", (CARD,), 32, 3, False),
        ("", (), 32, 64, False),
        ("maybe", (CARD,), 8, 4, True),
        ("off", (CARD,), 32, 64, False),
        ("ON", (), 2, 1, True),
    ],
)
def test_it_is_wanted_where_nobody_misses_what_it_takes(
    monkeypatch: pytest.MonkeyPatch, chosen: str, gpus: tuple[Gpu, ...], processors: int, free_gib: int, wanted: bool
) -> None:
    monkeypatch.setenv(VARIABLE, chosen)
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=free_gib * GIB))
    assert wanted_here(inventory(gpus, processors)) is wanted
