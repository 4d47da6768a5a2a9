"""What the program says of a run's surroundings."""

import platform
import re
from pathlib import Path

from app.paths import program_version
from app.runs.host import environment_info
from app.samples import HOST, Device, Inventory
from workloads.catalog import Gpu, Machine

HOST_DEVICE = Device(device=HOST, kind="host", index=-1, name="A processor", memory_total_bytes=1024)


def test_known_things_are_named_and_unknown_ones_left_out() -> None:
    here = environment_info(Inventory(machine=Machine(cpu_count=2), devices=(HOST_DEVICE,)))
    assert here["cpu"] == "A processor"
    assert (here["cpu_count"], here["memory_total_bytes"], here["kernel"]) == ("2", "1024", platform.release())
    assert here["os"]
    assert not {"driver", "cuda_driver", "gpus_present"} & set(here)


def test_gpus_come_with_their_uuids() -> None:
    machine = Machine(gpus=(Gpu(index=0, uuid="GPU-a", name="H200"), Gpu(index=1, uuid="GPU-b", name="H200")))
    inventory = Inventory(machine=machine, devices=(HOST_DEVICE,), driver="580", cuda_driver="13.0")
    found = environment_info(inventory)
    assert found["gpus_present"] == "H200 (GPU-a), H200 (GPU-b)"
    assert (found["driver"], found["cuda_driver"]) == ("580", "13.0")


def test_the_version_is_the_project_s_own() -> None:
    text = (Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8")
    assert f'version = "{program_version()}"' in text
    assert re.fullmatch(r"\d+\.\d+\.\d+", program_version())
