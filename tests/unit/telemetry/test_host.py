"""Package power from made-up RAPL folders, and a worker that another thread follows no longer."""

import os
from pathlib import Path

import psutil
import pytest

from app.telemetry.sampler import HostSource, RaplPower


def zone(folder: Path, name: str, energy_uj: int) -> Path:
    (folder / name).mkdir(parents=True)
    counter = folder / name / "energy_uj"
    counter.write_text(f"{energy_uj}\n")
    return counter


def counts_up(counter: Path, by_uj: int) -> None:
    counter.write_text(str(int(counter.read_text()) + by_uj))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What time it is, in nanoseconds; the test moves it."""
    now_ns = [10**15]
    monkeypatch.setattr("app.telemetry.sampler.time.monotonic_ns", lambda: now_ns[0])
    return now_ns


def test_both_packages_count_and_their_parts_do_not(tmp_path: Path, clock: list[int]) -> None:
    first, second = zone(tmp_path, "intel-rapl:0", 5_000_000), zone(tmp_path, "intel-rapl:1", 9_000_000)
    core = zone(tmp_path, "intel-rapl:0:0", 1_000_000)
    zone(tmp_path, "intel-rapl-mmio:0", 1)
    rapl = RaplPower(tmp_path)
    assert rapl.absence_reason() is None
    assert rapl.power_mw() is None, "nothing before it to compare with"
    clock[0] += 500_000_000
    counts_up(first, 40_000_000)
    counts_up(second, 25_000_000)
    counts_up(core, 30_000_000)
    assert rapl.power_mw() == 130_000, "65 J in half a second"


def test_a_counter_that_wrapped_gives_no_power_this_time(tmp_path: Path, clock: list[int]) -> None:
    counter = zone(tmp_path, "intel-rapl:0", 262_143_000_000)
    rapl = RaplPower(tmp_path)
    rapl.power_mw()
    clock[0] += 1_000_000_000
    counter.write_text("7000000")
    assert rapl.power_mw() is None
    clock[0] += 1_000_000_000
    counts_up(counter, 10_000_000)
    assert rapl.power_mw() == 10_000


def test_two_readings_at_one_moment_are_no_division_by_zero(tmp_path: Path, clock: list[int]) -> None:
    zone(tmp_path, "intel-rapl:0", 1)
    rapl = RaplPower(tmp_path)
    assert [rapl.power_mw(), rapl.power_mw()] == [None, None]


def test_a_machine_without_rapl_says_so(tmp_path: Path) -> None:
    rapl = RaplPower(tmp_path / "nothing")
    assert (rapl.absence_reason(), rapl.power_mw()) == ("not supported", None)


def test_a_refusal_of_the_kernel_is_no_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root is refused by no mode of a file."""
    zone(tmp_path, "intel-rapl:0", 1)

    def refuse(path: Path) -> str:
        raise PermissionError(13, "Permission denied", str(path))

    rapl = RaplPower(tmp_path)
    monkeypatch.setattr(Path, "read_text", refuse)
    assert (rapl.absence_reason(), rapl.power_mw()) == ("no permission", None)


def test_a_zone_that_vanishes_gives_nothing_and_harms_nothing(tmp_path: Path) -> None:
    counter = zone(tmp_path, "intel-rapl:0", 1)
    rapl = RaplPower(tmp_path)
    counter.unlink()
    assert rapl.power_mw() is None
    assert rapl.absence_reason() == "No such file or directory"


def test_a_worker_that_is_followed_no_longer_while_it_is_read_harms_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    source = HostSource()
    source.start()
    source.follow(os.getpid())
    cpu_percent = psutil.Process.cpu_percent

    def unfollowed(process: psutil.Process) -> float:
        source.follow(None)
        return cpu_percent(process)

    monkeypatch.setattr(psutil.Process, "cpu_percent", unfollowed)
    (sample,) = source.read()
    assert sample.worker_memory_bytes
    (after,) = source.read()
    assert after.worker_memory_bytes is None
