"""What the program says of a run's surroundings."""

import platform
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from app.paths import program_version
from app.runs.environment import environment_info, format_ranges, git_commit, processor_state, sources_hash
from app.runs.host import describe_wait
from app.values.samples import HOST, Device, Inventory
from tests.present import present
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
    environment = environment_info(inventory)
    assert environment["gpus_present"] == "H200 (GPU-a), H200 (GPU-b)"
    assert (environment["driver"], environment["cuda_driver"]) == ("580", "13.0")


def test_the_version_is_the_project_s_own() -> None:
    text = (Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8")
    assert f'version = "{program_version()}"' in text
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev\d+)?", program_version())


def test_the_changelog_and_the_version_speak_of_the_same_release() -> None:
    text = (Path(__file__).parents[3] / "CHANGELOG.md").read_text(encoding="utf-8")
    topmost = present(re.search(r"^## (\S+) (\(unreleased\)|- \d{4}-\d{2}-\d{2})$", text, re.MULTILINE))
    version, state = topmost.groups()
    assert program_version() == (f"{version}.dev0" if state == "(unreleased)" else version)


def git(folder: Path, *words: str) -> None:
    name = ("-c", "user.name=a", "-c", "user.email=a@b")
    subprocess.run(["git", "-C", str(folder), *name, *words], check=True, capture_output=True)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "workloads").mkdir()
    (tmp_path / "workloads" / "model.py").write_text("a = 1\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "one")
    return tmp_path


def test_two_changed_checkouts_of_one_commit_are_told_apart(checkout: Path) -> None:
    clean = present(git_commit(checkout))
    assert re.fullmatch(r"[0-9a-f]{12}", clean)
    found = []
    for text in ("a = 2\n", "a = 3\n", "a = 2\n"):
        (checkout / "workloads" / "model.py").write_text(text)
        found.append(git_commit(checkout))
    first, second, again = found
    assert first == again != second
    assert re.fullmatch(rf"{clean}\+changes\.[0-9a-f]{{12}}", str(first))


def test_sources_have_a_hash_also_without_git(checkout: Path) -> None:
    before = sources_hash(checkout)
    (checkout / "README").write_text("no code")
    shutil.rmtree(checkout / ".git")
    assert (git_commit(checkout), sources_hash(checkout)) == (None, before)
    (checkout / "workloads" / "new.py").touch()
    assert sources_hash(checkout) != before


def test_the_state_of_processors_is_read_as_far_as_there_is_one(tmp_path: Path) -> None:
    assert set(processor_state(tmp_path, tmp_path)) <= {"cpu_affinity"}
    for number, governor in enumerate(("powersave", "performance", "powersave")):
        folder = tmp_path / f"cpu{number}" / "cpufreq"
        folder.mkdir(parents=True)
        (folder / "scaling_governor").write_text(f"{governor}\n")
    (tmp_path / "intel_pstate").mkdir()
    (tmp_path / "intel_pstate" / "no_turbo").write_text("1\n")
    (tmp_path / "cpu.max").write_text("150000 100000\n")
    state = processor_state(tmp_path, tmp_path)
    state.pop("cpu_affinity", None)
    assert state == {"cpu_quota": "1.5", "cpu_governor": "performance, powersave", "cpu_turbo": "off"}
    assert format_ranges({0, 1, 2, 5, 8, 7}) == "0-2,5,7-8"


def test_a_wait_says_for_whom_where_that_is_known() -> None:
    assert describe_wait() == "Waiting for another run, or the import for one, to free this device."
    assert describe_wait("bob's process 9,") == "Waiting for bob's process 9, to free this device."
