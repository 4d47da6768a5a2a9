"""Runs on a real Ray cluster of three nodes with pretended GPUs: real actors, agents and workers, and kills of each."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil
import pytest

from app.environment_keys import CARRIER_KEY, GPUS_USED_KEY, HOST_KEY, RAY_KEY
from app.errors import UserError
from app.hosts.ray import ClusterConnection, RayPool, connect_cluster
from app.plan import Plan
from app.runs.experiment.queue import add_plan
from app.runs.experiment.session import ExperimentSession, PlannedRun, QueueListener
from app.runs.session import RunServices
from app.runs.sinks import Sink
from app.storage.store import Store
from tests.fakes.ray_cluster import RunningCluster, running_cluster, uuids
from tests.fakes.sessions import LIMIT_S, Going, dummy, going, is_measured, run_through
from workloads.protocol import Block, RunSpec

pytest.importorskip("ray", reason="Ray has no wheel for this Python")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with running_cluster(tmp_path_factory.mktemp("cache")) as running:
        yield running


@pytest.fixture(scope="module")
def connection(cluster: RunningCluster) -> Iterator[ClusterConnection]:
    opened = connect_cluster(cluster.carrier(), name="lab", head_silent_s=8.0)
    yield opened
    opened.close()


@pytest.fixture
def pool(connection: ClusterConnection) -> RayPool:
    return connection.host


def long_run(pool: RayPool, gpus: int) -> RunSpec:
    return dummy(pool.inventory(), gpus=gpus, steps=0, seconds=600.0)


def workers_of(runs: Sequence[Going], cluster: RunningCluster) -> list[psutil.Process]:
    """Wait until these runs measure, and return the workers of the cluster."""
    for run in runs:
        run.recorder.wait(Block, is_measured)
    found = []
    for process in psutil.Process(cluster.process.pid).children(recursive=True):
        with suppress(psutil.Error):
            if "workloads.worker" in process.cmdline():
                found.append(process)
    return found


def ancestor(process: psutil.Process, text: str) -> psutil.Process:
    """Return the nearest parent process whose command has this text."""
    return next(parent for parent in process.parents() if text in " ".join(parent.cmdline()))


def test_the_runs_of_an_experiment_spread_over_the_nodes(tmp_path: Path, pool: RayPool) -> None:
    services = RunServices(database=tmp_path / "profiles.db", host=pool)
    variants = tuple(dummy(pool.inventory(), gpus=1, step_ms=ms) for ms in (1.0, 2.0))
    plan = Plan(name="some", variants=variants, repeats=2, parallel=4, max_idle_wait_s=0.0)
    all_have_gpus = threading.Barrier(4, timeout=LIMIT_S)

    class AtOnce(QueueListener):
        def sinks(self, _planned_run: PlannedRun) -> Sequence[Sink]:
            all_have_gpus.wait()  # Ray places as it likes as long as one node has room: four at once need both
            return ()

    with Store.open(services.database) as store:
        entry = store.queue.entry(add_plan(store, plan))
    found = ExperimentSession(entry, services, AtOnce(), lambda: True).run()
    assert (found.state, found.done) == ("complete", 4)
    node_of = {gpu: node.name for node in pool.cluster.nodes for gpu in uuids("a") + uuids("b") if gpu in str(node)}
    used = []
    for run in found.runs:
        (gpu,) = run.gpu_uuids
        assert gpu in run.environment[GPUS_USED_KEY]
        assert run.environment[HOST_KEY] == f"lab/{node_of[gpu]}"
        assert (run.environment[CARRIER_KEY], run.environment[RAY_KEY]) == ("ray", pool.cluster.version)
        used.append((run.row.spec.variant["step_ms"], node_of[gpu]))
    assert [ms for ms, _ in sorted(used)] == [1.0, 1.0, 2.0, 2.0]
    assert sorted(name for _, name in used) == sorted([*set(node_of.values())] * 2)


def test_a_run_waits_for_gpus_and_says_which_are_missing(tmp_path: Path, pool: RayPool) -> None:
    services = RunServices(database=tmp_path / "profiles.db", host=pool)
    notes: list[str] = []
    with ExitStack() as held:
        leases = [
            pool.lease_for_run(long_run(pool, 2), notify=lambda _: None, wait_for_stop=lambda _: False) for _ in "ab"
        ]
        for lease in leases:
            assert lease is not None
            held.callback(lease.release)
        assert sorted(gpu for lease in leases if lease for gpu in lease.devices) == uuids("a") + uuids("b")
        lease = pool.lease_for_run(
            dummy(pool.inventory(), gpus=1), notify=notes.append, wait_for_stop=lambda _: bool(notes)
        )
        assert lease is None
    (note,) = notes
    assert note.startswith("The run waits for 1 GPU of one node of the Ray cluster; free now: ")
    assert note.count(" 0 of 2") == 2
    outcome, _, _ = run_through(dummy(pool.inventory(), gpus=3), services)
    assert (outcome.name, outcome.reason) == (
        "refused",
        "No node of the Ray cluster lab has 3 GPUs: the most are 2.",
    )


def test_what_dies_on_a_node_ends_its_run_alone_and_leaves_nothing(
    tmp_path: Path, pool: RayPool, cluster: RunningCluster
) -> None:
    services = RunServices(database=tmp_path / "profiles.db", host=pool)
    with ExitStack() as stack:
        runs = [stack.enter_context(going(long_run(pool, 1), services)) for _ in range(3)]
        workers = workers_of(runs, cluster)
        agents = [ancestor(worker, "app.agent") for worker in workers]
        actors = [ancestor(agent, "AgentActor") for agent in agents]
        below = [child for actor in actors for child in actor.children(recursive=True)]
        workers[0].kill()
        agents[1].kill()
        actors[2].kill()
        outcomes = [run.result() for run in runs]
    assert {outcome.name for outcome in outcomes} == {"crashed"}
    reasons = sorted(str(outcome.reason).split(" vm")[0].split(" (")[0] for outcome in outcomes)
    assert reasons == ["The Ray actor of the run on", "The agent on", "The worker was killed"]
    assert psutil.wait_procs(below, LIMIT_S)[1] == []


def test_a_node_that_dies_ends_its_run_and_the_next_goes_elsewhere(
    tmp_path: Path, pool: RayPool, cluster: RunningCluster
) -> None:
    services = RunServices(database=tmp_path / "profiles.db", host=pool)
    with going(long_run(pool, 2), services) as run:
        (worker,) = workers_of([run], cluster)
        below = [worker, *worker.parents()[:2]]
        devices = {gpu for node in "ab" for gpu in uuids(node) if gpu in str(run.recorder.events)}
        name = "a" if devices == set(uuids("a")) else "b"
        cluster.kill(name)
        outcome = run.result()
    assert outcome.name == "crashed"
    assert outcome.reason is not None
    assert outcome.reason.startswith("The Ray node vm")
    assert psutil.wait_procs(below, LIMIT_S)[1] == []
    outcome, _, _ = run_through(dummy(pool.inventory(), gpus=2), services)
    assert outcome.name == "completed"


def test_a_head_that_dies_is_said_and_ends_everything(tmp_path: Path, pool: RayPool, cluster: RunningCluster) -> None:
    services = RunServices(database=tmp_path / "profiles.db", host=pool)
    with going(long_run(pool, 1), services) as run:
        (worker,) = workers_of([run], cluster)
        cluster.kill("head")
        outcome = run.result()
    assert outcome.name == "crashed"
    assert "The head of the Ray cluster" in str(outcome.reason)
    assert psutil.wait_procs([worker], LIMIT_S)[1] == []
    with pytest.raises(UserError, match="The head of the Ray cluster"):
        pool.lease_for_run(dummy(pool.inventory()), notify=lambda _: None, wait_for_stop=lambda _: False)
    for node in ("a", "b"):
        cluster.kill(node)  # by themselves they would end half a minute later
