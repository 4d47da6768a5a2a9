"""Hosts that a real ssh reaches: runs, telemetry and checks with `--on`, and what is said where one cannot be used."""

import contextlib
import json
import os
import re
import sys
from pathlib import Path

import psutil
import pytest

from app.cli.main import main
from app.hosts.book import HostEntry, add_host
from app.hosts.remote import open_host
from app.runs.session import RunServices, RunSession
from tests.fakes.command_line import dummy_arguments
from tests.fakes.nvml import Card, Driver, environment
from tests.fakes.sessions import LIMIT_S, PATIENT, Going, Recorder, dummy
from tests.fakes.sshd import SshServer
from workloads.protocol import Block


@pytest.fixture(autouse=True)
def hosts(sshd: SshServer) -> None:
    """Name some: the Python of the tests has the framework, and all that the program needs."""
    for name in ("gpu1", "talkative", "stranger"):
        add_host(HostEntry(name=name, address=f"ssh://{name}?python={sys.executable}"))


def test_a_run_on_a_host_is_stored_here(database_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*dummy_arguments(), "--db", str(database_path), "--json"]
    assert main(["run", *words, "--on", "talkative"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["outcome"] == "completed"
    assert (document["environment"]["host"], document["environment"]["carrier"]) == ("talkative", "ssh")
    assert main(["list", "--db", str(database_path)]) == 0
    assert "talkative" in capsys.readouterr().out


def test_a_killed_connection_ends_the_run_and_all_of_it_on_the_host(database_path: Path, sshd: SshServer) -> None:
    with contextlib.closing(open_host("gpu1")) as connection:
        services = RunServices(database=database_path, host=connection.host, timeouts=PATIENT)
        spec = dummy(connection.host.inventory(), steps=0, seconds=600.0)
        going = Going(RunSession(spec, services, [recorder := Recorder()]), recorder)
        recorder.wait(Block)
        there = [
            process
            for top in (psutil.Process(connection.hello.pid), *_programs_below(sshd.process.pid))
            for process in (top, *top.children(recursive=True))
        ]
        sshd.kill_sessions()
        outcome = going.result()
    assert outcome.name == "crashed"
    assert "The connection to ssh://gpu1 ended with exit status 255: " in (outcome.reason or "")
    assert len(there) > 2, "a sampler and a worker were there"
    _, alive = psutil.wait_procs(there, timeout=LIMIT_S)
    assert alive == []


def _programs_below(pid: int) -> list[psutil.Process]:
    return [process for process in psutil.Process(pid).children(recursive=True) if "--events" in process.cmdline()]


def test_telemetry_of_a_container_is_shown(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    docker = tmp_path / "docker"
    docker.write_text('#!/bin/sh\n[ "$1 $2 $3" = "exec -i box" ] && shift 3 && exec "$@"\n')
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    on = ["--on", f"docker://box?python={sys.executable}"]
    assert main(["watch", "--every", "0.05", "--seconds", "0.3", "--csv", *on]) == 0
    header, *rows = capsys.readouterr().out.splitlines()
    assert header.startswith("utc,device")
    assert rows
    assert all(",host," in row for row in rows)


def test_hosts_are_checked_at_once_and_each_problem_is_said(
    capsys: pytest.CaptureFixture[str], host_cache: Path, sshd: SshServer
) -> None:
    assert main(["hosts", "check", "gpu1", "stranger", "--json"]) == 1
    gpu1, refused = json.loads(capsys.readouterr().out)["hosts"]
    assert gpu1["can_run"]
    assert any(framework["version"] for framework in gpu1["hello"]["frameworks"])
    assert gpu1["hello"]["python"][1] == sys.executable
    assert gpu1["hello"]["home"] == str(sshd.home)
    assert gpu1["inventory"]["devices"]
    assert len(list((host_cache / "variantscope").glob("*/*.whl"))) == 1
    assert abs(gpu1["clock_offset_s"]) < 60.0
    assert not refused["can_run"]
    assert refused["problem"].startswith("ssh://stranger accepts none of your keys")


def test_a_host_that_cannot_be_used_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gpus", "--on", "ssh://restricted"]) == 1
    (err,) = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("Connecting")]
    assert err.startswith("ssh://restricted lets this user run no commands")


def test_a_check_names_the_gpus(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    cards = (Card(uuid="GPU-a"), Card(uuid="GPU-b"))
    for name, value in environment(Driver(cards=cards)).items():
        monkeypatch.setenv(name, value)
    assert main(["hosts", "check", f"sh:?python={sys.executable}"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"clock +.*this machine's\n", out)
    assert len(re.findall(r"GPU [01] +\S.*GiB\n", out)) == 2
