"""Runs as jobs of Slurm, by a stand-in for its commands: the wait for a node, the job's GPUs, its end, `sbatch`."""

import contextlib
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from app.errors import UserError
from app.hosts.book import HostEntry
from app.hosts.fetch import Fetch, detach_run, list_detached
from app.hosts.remote import connect
from app.runs.leases import FOLDER_VARIABLE
from app.runs.session import RunServices
from app.values.environment_keys import CARRIER_KEY, HOST_KEY, SLURM_JOB_KEY, SLURM_NODE_KEY
from app.values.samples import Waiting
from tests.fakes.nvml import TWO_H200, Driver, environment
from tests.fakes.sessions import LIMIT_S, dummy, going, run_through
from tests.fakes.slurm import FIRST_JOB, Cluster, install
from workloads.protocol import Block

ENTRY = HostEntry(name="lab", address=f"slurm:?gres=gpu:1&python={sys.executable}")


@pytest.fixture
def cluster(tmp_path: Path, host_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """A cluster whose node has two GPUs."""
    made = install(tmp_path / "slurm")
    folders = {"XDG_CACHE_HOME": str(host_cache), **dict.fromkeys(("XDG_STATE_HOME", FOLDER_VARIABLE), str(tmp_path))}
    for name, value in {**environment(Driver(cards=TWO_H200)), **made.environment, **folders}.items():
        monkeypatch.setenv(name, value)
    yield made
    for job in made.jobs:
        with contextlib.suppress(psutil.NoSuchProcess):
            psutil.Process(int(job) - FIRST_JOB).wait(LIMIT_S)


def test_each_run_is_a_job_that_waits_uses_its_gpus_and_ends_with_its_time(
    cluster: Cluster, database_path: Path
) -> None:
    with contextlib.closing(connect(ENTRY)) as connection:
        inventory = connection.host.inventory()
        assert [gpu.uuid for gpu in inventory.machine.gpus] == [TWO_H200[0].uuid]
        assert connection.lost is None, "its job of the look is over, and the cluster is not lost"
        services = RunServices(database=database_path, host=connection.host)
        outcome, _, stored = run_through(dummy(inventory, gpus=1), services)
        assert outcome.name == "completed"
        of_job = {HOST_KEY: "lab", CARRIER_KEY: "slurm", SLURM_NODE_KEY: "node1"}
        assert stored.environment.items() >= of_job.items()
        cluster.hold_queue(41, 42)
        with going(dummy(inventory, gpus=1, steps=0, seconds=600.0), services) as run:
            run.recorder.wait(Waiting, lambda waiting: "it waits for a node" in waiting.reason)
            cluster.release_queue()
            run.recorder.wait(Block)
            (job,) = cluster.jobs
            cluster.end_job("time limit")
            outcome = run.result()
        assert outcome.name == "crashed"
        assert f"Job {job} on node1 reached its time limit" in (outcome.reason or "")
        assert run.session.stored is not None
        assert run.session.stored.environment[SLURM_JOB_KEY] == job != stored.environment[SLURM_JOB_KEY]


def test_a_run_that_gives_up_waiting_leaves_the_queue(cluster: Cluster) -> None:
    cluster.hold_queue(41)
    waits = threading.Event()
    with pytest.raises(UserError, match="Connecting was cancelled"):
        connect(ENTRY, notify=lambda _: waits.set(), is_cancelled=waits.is_set)
    for job in cluster.jobs:
        with contextlib.suppress(psutil.NoSuchProcess):
            psutil.Process(int(job) - FIRST_JOB).wait(LIMIT_S)
    assert cluster.jobs == []


def test_a_detached_run_is_a_batch_job(cluster: Cluster, database_path: Path) -> None:
    with contextlib.closing(connect(ENTRY)) as connection:
        spec = dummy(connection.host.inventory(), gpus=1)
        services = RunServices(database=database_path, host=connection.host)
        uid = detach_run(spec, services, ENTRY, 10.0, lambda _: None)
    (run,) = list_detached(ENTRY, lambda _: None)
    while not run.size_bytes:  # it is queued
        threading.Event().wait(0.05)
        (run,) = list_detached(ENTRY, lambda _: None)
    stored = Fetch(ENTRY, run, database_path, lambda _: None).run(())
    assert stored is not None
    assert (stored.row.uid, stored.row.completed) == (uid, True)
    assert stored.environment[SLURM_JOB_KEY] == "77"
