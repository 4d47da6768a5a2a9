"""Runs on a real Ray cluster of three nodes with pretended GPUs: Ray places each as an actor; kills of each part."""

import contextlib
import shutil
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
import pytest

from app.hosts.book import add_host
from app.hosts.remote import Connection, connect
from app.runs.experiment.queue import add_plan
from app.runs.experiment.session import ExperimentSession, PlannedRun, QueueListener
from app.runs.session import RunServices
from app.runs.sinks import Sink
from app.storage.store import Store
from app.values.environment_keys import CARRIER_KEY, HOST_KEY
from app.values.plan import Plan
from app.values.samples import Waiting
from tests.fakes.command_line import CommandLine
from tests.fakes.ray_cluster import RunningCluster, running_cluster, uuids
from tests.fakes.sessions import LIMIT_S, Going, dummy, going, is_measured, run_through
from tests.integration.test_scripts import SCRIPTS, SHORT_ON_GPU, script_command
from workloads.catalog import cache_folder
from workloads.protocol import Block, RunSpec

pytest.importorskip("ray", reason="Ray has no wheel for this Python")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with running_cluster(tmp_path_factory.mktemp("cache")) as running, pytest.MonkeyPatch.context() as patch:
        for name, value in running.environment.items():
            patch.setenv(name, value)
        yield running


@pytest.fixture(scope="module")
def lab(cluster: RunningCluster) -> Iterator[Connection]:
    opened = connect(cluster.entry())
    opened.host.inventory()
    yield opened
    opened.close()


def services_on(lab: Connection, folder: Path) -> RunServices:
    return RunServices(database=folder / "profiles.db", host=lab.host)


def long_run(lab: Connection, gpus: int) -> RunSpec:
    return dummy(lab.host.inventory(), gpus=gpus, steps=0, seconds=600.0)


def workers_of(runs: Sequence[Going], cluster: RunningCluster) -> list[psutil.Process]:
    """Wait until these runs measure, and return the workers of the cluster."""
    for run in runs:
        run.recorder.wait(Block, is_measured)
    found = []
    for process in psutil.Process(cluster.process.pid).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if "workloads.worker" in process.cmdline():
                found.append(process)
    return found


def ancestor(process: psutil.Process, text: str) -> psutil.Process:
    """Return the nearest parent process whose command has this text."""
    return next(parent for parent in process.parents() if text in " ".join(parent.cmdline()))


def test_ray_places_the_runs_of_an_experiment_on_all_nodes(tmp_path: Path, lab: Connection) -> None:
    inventory = lab.host.inventory()
    assert sorted(gpu.uuid for gpu in inventory.machine.gpus) in (uuids("a"), uuids("b")), "of one node, as a run has"
    services = services_on(lab, tmp_path)
    variants = tuple(dummy(inventory, gpus=1, step_ms=ms) for ms in (1.0, 2.0))
    plan = Plan(name="some", variants=variants, repeats=2, parallel=4, max_idle_wait_s=0.0)
    all_begin = threading.Barrier(4, timeout=LIMIT_S)

    class AtOnce(QueueListener):
        def sinks(self, _planned_run: PlannedRun) -> Sequence[Sink]:
            all_begin.wait()
            return ()

    with Store.open(services.database) as store:
        entry = store.queue.entry(add_plan(store, plan))
    experiment = ExperimentSession(entry, services, AtOnce(), lambda: True).run()
    assert (experiment.state, experiment.done) == ("complete", 4)
    used = {gpu for run in experiment.runs for gpu in run.gpu_uuids}
    assert used <= {*uuids("a"), *uuids("b")}
    for run in experiment.runs:
        assert (run.environment[HOST_KEY], run.environment[CARRIER_KEY]) == ("lab", "ray")


def test_a_command_s_tree_travels_to_a_node(
    tmp_path: Path, cluster: RunningCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VARIANTSCOPE_HOSTS", str(tmp_path / "hosts.json"))
    (tmp_path / "trees").mkdir()
    monkeypatch.setattr("app.runs.script._trees", lambda: tmp_path / "trees")  # the nodes have theirs
    add_host(cluster.entry())
    folder = tmp_path / "work"
    shutil.copytree(SCRIPTS, folder)
    (folder / "new.py").write_text(f"# {tmp_path}\n")  # no other test has sent this tree
    words = ("--on", "lab", *SHORT_ON_GPU, "-s", "ms=2,8", *script_command(folder, "steps.py", "--ms", "{ms}"))
    document = CommandLine(tmp_path).read("experiment", "--no-gate", "--repeats", "1", *words)
    assert [row["outcomes"] for row in document["rows"]] == [["completed"], ["completed"]]
    with Store.open(tmp_path / "profiles.db") as store:
        runs = [store.load(number) for number in (1, 2)]
    first_ms, second_ms = (run.row.summary.step_ms_p50 or 0.0 for run in runs)
    assert 0.0 < first_ms < 0.5 * second_ms
    assert {run.environment[CARRIER_KEY] for run in runs} == {"ray"}
    (tree,) = (path for path in (tmp_path / "trees").iterdir() if path.is_dir())
    assert (cache_folder() / "scripts" / tree.name / "new.py").read_text() == f"# {tmp_path}\n"


def test_a_run_waits_for_gpus_and_one_that_no_node_can_have_is_refused(tmp_path: Path, lab: Connection) -> None:
    services = services_on(lab, tmp_path)
    with contextlib.ExitStack() as stack:
        first = [stack.enter_context(going(long_run(lab, 2), services)) for _ in "ab"]
        for run in first:
            run.recorder.wait(Block, is_measured)
        third = stack.enter_context(going(dummy(lab.host.inventory(), gpus=1), services))
        third.recorder.wait(Waiting, lambda waiting: "waits for 1 free GPU" in waiting.reason)
        first[0].session.stop()
        assert first[0].result().name == "stopped"
        assert third.result().name == "completed"
    outcome, _, _ = run_through(dummy(lab.host.inventory(), gpus=4), services)
    assert outcome.name == "refused"
    assert "4" in str(outcome.reason)


def test_what_dies_on_a_node_ends_its_run_alone_and_leaves_nothing(
    tmp_path: Path, lab: Connection, cluster: RunningCluster
) -> None:
    services = services_on(lab, tmp_path)
    with contextlib.ExitStack() as stack:
        runs = [stack.enter_context(going(long_run(lab, 1), services)) for _ in range(3)]
        workers = workers_of(runs, cluster)
        programs = [ancestor(worker, "run --events") for worker in workers]
        actors = [ancestor(program, "ProgramActor") for program in programs]
        below = [child for actor in actors for child in actor.children(recursive=True)]
        workers[0].kill()
        programs[1].kill()
        actors[2].kill()
        outcomes = [run.result() for run in runs]
    assert {outcome.name for outcome in outcomes} == {"crashed"}
    reasons = sorted(str(outcome.reason)[:20] for outcome in outcomes)
    assert reasons == ["Ray lost the run: Th", "The program on the n", "The worker was kille"]
    assert psutil.wait_procs(below, LIMIT_S)[1] == []


def test_a_node_that_dies_ends_its_run_and_the_next_goes_elsewhere(
    tmp_path: Path, lab: Connection, cluster: RunningCluster
) -> None:
    services = services_on(lab, tmp_path)
    with going(long_run(lab, 2), services) as run:
        (worker,) = workers_of([run], cluster)
        below = [worker, *worker.parents()[:2]]
        devices = {gpu for node in "ab" for gpu in uuids(node) if gpu in str(run.recorder.events)}
        cluster.kill("a" if devices == set(uuids("a")) else "b")
        outcome = run.result()
    assert outcome.name == "crashed"
    assert "Ray lost the run" in str(outcome.reason)
    assert psutil.wait_procs(below, LIMIT_S)[1] == []
    outcome, _, _ = run_through(dummy(lab.host.inventory(), gpus=2), services)
    assert outcome.name == "completed"


def test_a_head_that_dies_is_said_and_ends_everything(tmp_path: Path, lab: Connection, cluster: RunningCluster) -> None:
    services = services_on(lab, tmp_path)
    with going(long_run(lab, 1), services) as run:
        (worker,) = workers_of([run], cluster)
        cluster.kill("head")
        outcome = run.result()
    assert outcome.name == "crashed"
    assert psutil.wait_procs([worker], LIMIT_S)[1] == []
    for node in ("a", "b"):
        cluster.kill(node)  # by themselves they would end half a minute later
