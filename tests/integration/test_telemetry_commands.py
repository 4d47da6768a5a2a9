"""Telemetry on the command line, in processes of its own: a log in CSV, old samples deleted."""

import json
import os
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import psutil
import pytest

from app.storage.store import Store
from tests.fakes.command_line import LIMIT_S, CommandLine, dummy_arguments
from tests.fakes.nvml import TWO_H200, Card, Driver, environment
from tests.present import present
from tests.unit.viewmodels.stored import keep, run_row, stored_run


@pytest.fixture
def line(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path)


@pytest.fixture
def stored(line: CommandLine) -> CommandLine:
    """A database with one old run on two GPUs, 12 s long."""
    with Store.open(line.database) as store:
        keep(store, stored_run(run_row(1, workload="cnn10", gpus=2), environment={"driver": "580"}))
    return line


def test_watch_serves_prometheus_to_this_machine(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    driver = Driver(cards=(TWO_H200[0], Card(uuid="GPU-bbbb", lost_when=str(gone))))
    line = CommandLine(tmp_path, environment(driver))
    with line.start("watch", "--prometheus", "0", "--every", "0.1") as process:
        address = present(process.stderr).readline().split()[1]
        assert address.startswith("http://127.0.0.1:")
        card = 'variantscope_power_mw{device="1",name="NVIDIA H200",uuid="GPU-bbbb"}'
        wanted = (card, "variantscope_energy_mj_total{", 'variantscope_load_pct{device="host"')
        scraped_until(address, lambda text: all(part in text for part in wanted))
        gone.touch()
        text = scraped_until(address, lambda text: card not in text)
        assert 'uuid="GPU-aaaa"' in text
        port = address.split(":")[2].removesuffix("/metrics")
        refused = line("watch", "--prometheus", port, "--seconds", "1")
        assert (refused.returncode, "Traceback" in refused.stderr) == (2, False)
        process.terminate()
    assert process.returncode == 0


def scraped_until(address: str, condition: Callable[[str], bool]) -> str:
    end_s = time.monotonic() + LIMIT_S
    while time.monotonic() < end_s:
        with urllib.request.urlopen(address, timeout=LIMIT_S) as answer:
            text = str(answer.read(), "utf-8")
        if condition(text):
            return text
    raise AssertionError(text)


@pytest.mark.parametrize("words", [["--prometheus", "x"], ["--prometheus", "65536"], ["--prometheus", "0", "--json"]])
def test_watch_refuses_what_it_cannot_serve(line: CommandLine, words: list[str]) -> None:
    assert line.inside("watch", "--seconds", "1", *words).returncode == 2


def test_watch_says_that_a_gpu_is_lost_and_that_the_sampler_was_killed(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    driver = Driver(cards=(TWO_H200[0], Card(uuid="GPU-bbbb", lost_when=str(gone))))
    process = CommandLine(tmp_path, environment(driver)).start("watch", "--csv", "--every", "0.1")
    with process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert any(",GPU 1,NVIDIA H200,GPU-bbbb,688123," in row for row in process.stdout)
        gone.touch()
        assert process.stderr.readline() == "GPU 1 is lost: NVIDIA H200 stopped answering (GPU is lost).\n"
        (sampler,) = psutil.Process(process.pid).children()
        sampler.kill()
        assert process.stderr.readline().startswith("The telemetry process ended unexpectedly (signal 9)")
        process.terminate()
        rows = list(process.stdout)
    assert process.returncode == 0
    assert not any("GPU-bbbb" in row for row in rows[-2:])


def test_a_row_is_written_at_once(line: CommandLine) -> None:
    process = line.start("watch", "--csv", "--every", "0.2")
    assert process.stdout is not None
    assert process.stdout.readline().startswith("utc,device,name,uuid,power_mw")
    assert ",host," in process.stdout.readline()
    process.terminate()
    assert process.communicate(timeout=LIMIT_S)[1] == ""


def test_watch_shows_no_device_more_often_than_asked(tmp_path: Path) -> None:
    """Beside GPUs the host is read twice a second."""
    line = CommandLine(tmp_path, environment(Driver(cards=TWO_H200)))
    _, *rows = line("watch", "--csv", "--every", "60", "--seconds", "1.6").stdout.splitlines()
    assert sorted(row.split(",")[1] for row in rows) == ["GPU 0", "GPU 1", "host"]


def test_watch_names_who_computes_on_a_card(tmp_path: Path) -> None:
    first, second = TWO_H200
    busy = msgspec.structs.replace(first, processes=((os.getpid(), 3 * 2**30),))
    line = CommandLine(tmp_path, environment(Driver(cards=(busy, second))))
    watched = line("watch", "--json", "--every", "0.2", "--seconds", "2.5")
    lines = [json.loads(text) for text in watched.stdout.splitlines()]
    using = {line["device"]: line["processes"] for line in lines if line.get("kind") == "processes"}
    (known,) = using["GPU-aaaa"]
    assert (known["pid"], known["memory_bytes"], using["GPU-bbbb"]) == (os.getpid(), 3 * 2**30, [])
    process = psutil.Process()
    assert (known["name"], known["user"]) == (process.name(), process.username())
    assert 0 < known["running_s"] <= time.time() - process.create_time() + 1


def test_old_samples_are_deleted_and_figures_stay(stored: CommandLine) -> None:
    before = stored.read("show", "1")
    would = stored.read("delete", "--samples-older-than", "30d", "--dry-run")
    assert (would["runs"], would["rows"], would["dry_run"]) == ([1], 362, True)
    assert stored.read("show", "1") == before, "a dry run deletes nothing"
    said = stored.inside("delete", "--samples-older-than", "30d")
    assert said.returncode == 0
    assert said.stdout.startswith("Deleted 362 samples and log lines of 1 run in")
    assert "about a second for each 100 MiB" in said.stderr
    after = stored.read("show", "1")
    assert after["throughput"] == before["throughput"]
    assert [device["samples"] for device in after["devices"]] == [0, 0, 0]
    assert after["telemetry"]["pruned_utc"] is not None
    assert "were deleted on" in stored.inside("show", "1").stdout
    assert stored.inside("delete", "--samples-older-than", "30d").stdout == "No run is old enough: nothing to delete.\n"


def test_list_says_how_large_the_database_is(stored: CommandLine) -> None:
    done = stored.inside("list")
    assert done.stderr.startswith("1 run, ")
    assert done.stderr.endswith(f"KiB in {stored.database}\n")


def test_a_run_is_sampled_as_often_as_asked(tmp_path: Path) -> None:
    line = CommandLine(tmp_path, environment(Driver(cards=TWO_H200)))
    document = line.read("run", *dummy_arguments(gpus=1, steps=0, seconds=1.0), "--sample-ms", "20")
    with Store.open(line.database) as store:
        gpu = store.load(1).samples[0]
    between_ms = np.diff(gpu.t_ns) / 1e6
    assert between_ms.min() < 25, "some of them a busy machine leaves on time"
    assert document["telemetry"]["sample_hz"] == pytest.approx(1e3 / between_ms.mean())
    measure = next(phase for phase in document["phases"] if phase["phase"] == "measure")
    assert measure["energy_mj"] > 0
    assert document["energy"]["source"] == "energy counter"
    assert document["energy"]["error_pct"] > 0
