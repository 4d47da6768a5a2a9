"""Runs in an allocation of Slurm, by a stand-in for its commands: the wait for a node, the job's GPUs, its end."""

import contextlib
import sys
import threading
from pathlib import Path

import psutil
import pytest

from app.environment_keys import CARRIER_KEY, SLURM_JOB_KEY, SLURM_NODE_KEY
from app.errors import UserError
from app.hosts.book import HostEntry
from app.hosts.open import open_entry
from app.runs.leases import FOLDER_VARIABLE
from app.runs.session import RunServices
from tests.fakes.nvml import TWO_H200, Driver, environment
from tests.fakes.sessions import LIMIT_S, dummy, going
from tests.fakes.slurm import FIRST_JOB, install
from workloads.protocol import Block


def test_a_run_waits_for_its_node_uses_the_gpus_of_its_job_and_ends_with_its_time(
    tmp_path: Path, database_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = install(tmp_path / "slurm")
    known = {**environment(Driver(cards=TWO_H200)), **cluster.environment, FOLDER_VARIABLE: str(tmp_path)}
    for name, value in known.items():
        monkeypatch.setenv(name, value)
    cluster.hold_queue(41, 42)
    waits: list[str] = []

    def notify(sentence: str) -> None:
        waits.append(sentence)
        if "place 3 of 3" in sentence:
            cluster.release_queue()

    entry = HostEntry(name="lab", address="slurm:?gres=gpu:1", python=sys.executable)
    with contextlib.closing(open_entry(entry, notify=notify)) as connection:
        assert any("place 3 of 3" in sentence for sentence in waits)
        (job,) = cluster.jobs
        inventory = connection.host.inventory()
        assert [gpu.uuid for gpu in inventory.machine.gpus] == [TWO_H200[0].uuid]
        spec = dummy(inventory, gpus=1, steps=0, seconds=600.0)
        with going(spec, RunServices(database=database_path, host=connection.host)) as run:
            run.recorder.wait(Block)
            cluster.end_job("time limit")
            outcome = run.result()
        assert outcome.name == "crashed"
        assert f"Job {job} on node1 reached its time limit" in (outcome.reason or "")
        stored = run.session.stored
        assert stored is not None
        of_job = {CARRIER_KEY: "slurm", SLURM_JOB_KEY: job, SLURM_NODE_KEY: "node1"}
        assert stored.environment.items() >= of_job.items()
    assert cluster.jobs == []


def test_a_program_that_gives_up_waiting_takes_the_job_out_of_the_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = install(tmp_path / "slurm")
    for name, value in cluster.environment.items():
        monkeypatch.setenv(name, value)
    cluster.hold_queue(41)
    entry = HostEntry(name="lab", address="slurm:?gres=gpu:1", python=sys.executable)
    waits = threading.Event()
    with pytest.raises(UserError, match="Connecting was cancelled"):
        open_entry(entry, notify=lambda _: waits.set(), is_cancelled=waits.is_set)
    for job in cluster.jobs:
        with contextlib.suppress(psutil.NoSuchProcess):
            psutil.Process(int(job) - FIRST_JOB).wait(LIMIT_S)
    assert cluster.jobs == []
