"""Runs as jobs of Slurm, by a stand-in for its commands: the wait for a node, the job's GPUs, its end, `sbatch`."""

import contextlib
import shutil
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from app.errors import UserError
from app.hosts.book import HostEntry, add_host
from app.hosts.fetch import detach_run, fetch_run, list_detached, stop_detached
from app.hosts.messages import DetachedRun
from app.hosts.remote import connect
from app.runs.leases import FOLDER_VARIABLE
from app.runs.session import RunServices
from app.storage.store import Store
from app.values.environment_keys import CARRIER_KEY, HOST_KEY, SLURM_JOB_KEY, SLURM_NODE_KEY
from app.values.samples import Waiting
from tests.fakes.command_line import CommandLine
from tests.fakes.nvml import TWO_H200, Driver, environment
from tests.fakes.sessions import LIMIT_S, dummy, going, run_through
from tests.fakes.slurm import FIRST_JOB, Cluster, install
from tests.integration.test_scripts import SCRIPTS, SHORT_ON_GPU, script_command
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


def detached_run(*, has_begun: bool = True) -> DetachedRun:
    """Return the detached run, which may be queued, or once it no longer is."""
    while not (run := list_detached(ENTRY, lambda _: None)[0]).size_bytes and has_begun:
        threading.Event().wait(0.05)
    return run


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


def test_a_detached_run_is_a_batch_job_that_is_listed_and_can_be_stopped_in_the_queue(
    cluster: Cluster, database_path: Path
) -> None:
    with contextlib.closing(connect(ENTRY)) as connection:
        spec = dummy(connection.host.inventory(), gpus=1, steps=0, seconds=600.0)
        services = RunServices(database=database_path, host=connection.host)
        cluster.hold_queue(41)
        uid = detach_run(spec, services, ENTRY, 10.0, lambda _: None)
    queued = detached_run(has_begun=False)
    assert (queued.uid, queued.goes_on, queued.problem) == (uid, False, "not begun")
    stop_detached(ENTRY, uid, lambda _: None)
    cluster.release_queue()
    stored = fetch_run(ENTRY, detached_run().uid, database_path)
    assert stored is not None
    assert stored.row.outcome is not None
    assert (stored.row.uid, stored.row.outcome.name) == (uid, "stopped")
    assert stored.environment[SLURM_JOB_KEY] == "77"


def test_a_command_s_tree_travels_with_a_job_and_with_a_batch_job(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VARIANTSCOPE_HOSTS", str(tmp_path / "hosts.json"))
    monkeypatch.setenv("VARIANTSCOPE_CACHE", str(tmp_path / "there"))
    (tmp_path / "trees").mkdir()
    monkeypatch.setattr("app.runs.script._trees", lambda: tmp_path / "trees")  # the job has the host's
    add_host(ENTRY)
    command, folder = CommandLine(tmp_path), tmp_path / "work"
    shutil.copytree(SCRIPTS, folder)
    words = ("--on", "lab", *SHORT_ON_GPU, *script_command(folder, "steps.py", "--ms", "{ms}"))
    command.read("experiment", "--no-gate", "--repeats", "1", "-s", "ms=2,40", *words)
    (folder / "helper.py").write_text("import time\n\n\ndef pause(ms):\n    time.sleep(ms / 500)\n")
    uid = command.read("run", "--detach", "-s", "ms=2", *words)["detached"]["uid"]
    assert detached_run().uid == uid
    command.read("hosts", "fetch", "lab", uid)
    with Store.open(command.database) as store:
        runs = [store.load(number) for number in (1, 2, 3)]
    first_ms, second_ms, batch_ms = (run.row.summary.step_ms_p50 or 0.0 for run in runs)
    assert [run.row.completed for run in runs] == [True] * 3
    # The frozen text is the run's: the pause of the batch job is twice as long.
    assert second_ms > batch_ms > 1.5 * first_ms > 0.0
    assert {run.environment[CARRIER_KEY] for run in runs} == {"slurm"}
    frozen = {path.parent.name.partition(".")[0] for path in tmp_path.glob("there/scripts/*/helper.py")}
    assert len(frozen) == 2
