"""Which stored runs count for an experiment, and what is left to run."""

import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from app.analysis.comparability import used_gpus
from app.runs.experiment.queue import enqueue, unfinished_entry
from app.runs.experiment.reuse import (
    RECENT_S,
    EnvironmentFingerprint,
    ReusableRuns,
    ThrottleFilter,
    current_fingerprint,
    largest_reference,
    reusable_as_newest,
    reusable_runs,
    run_fingerprint,
)
from app.storage.store import Store
from app.values.environment_keys import HOST_ID_KEY, HOST_KEY, SOURCES_KEY, STOOD_STILL_KEY, THROTTLED_KEY
from app.values.plan import Plan
from app.values.records import REFERENCE_TAG, StoredRun
from app.values.samples import HOST, Device, Inventory
from tests.fakes.experiments import ENVIRONMENT, aged, header_of, result
from tests.present import present
from tests.unit.viewmodels.stored import keep
from workloads.catalog import (
    ONEDNN_KEY,
    ONEDNN_VARIABLE,
    VARIABLES_RECORDED_KEY,
    Gpu,
    Machine,
    complete,
    recorded_variables,
)
from workloads.protocol import OutcomeName, RunSpec

ONE = Machine(gpus=(Gpu(index=0, uuid="GPU-0", name="NVIDIA H200", compute_capability=(9, 0)),))
HERE = EnvironmentFingerprint(
    driver="580.1",
    gpus=frozenset({"NVIDIA H200"}),
    cpu="Another processor",
    frameworks={"tensorflow": "2.21.0"},
    program_version="0.1.0",
    sources="0123456789ab",
    variables=recorded_variables({}),
)
SPECS = tuple(complete("cnn10", {"gpus": gpus, "layout": "NHWC"}, ONE) for gpus in (1, 2))
PLAN = Plan(name="two", variants=SPECS, repeats=3, reuse=True)


def counted(path: Path, *runs: StoredRun, machine: Machine = ONE) -> ReusableRuns:
    with Store.open(path) as store:
        for run in runs:
            keep(store, run)
        return reusable_runs(store, PLAN, HERE, machine)


def on_one_gpu(number: int, **changed: str) -> StoredRun:
    return result(number, SPECS[0], environment={**ENVIRONMENT, **changed})


def test_results_of_the_same_variants_count(database_path: Path) -> None:
    another = complete("cnn10", {"gpus": 1, "layout": "NCHW"}, ONE)
    shorter = RunSpec(workload="cnn10", variant={**SPECS[0].variant, "seconds": 3.0})
    runs = (
        result(1, SPECS[0]),
        result(2, another),
        result(3, SPECS[0], outcome="failed"),
        result(4, SPECS[0], outcome="out_of_memory"),
        result(5, shorter),
    )
    assert [run.row.run for run in counted(database_path, *runs).runs] == [1, 4]


@pytest.mark.parametrize(
    ("changed", "because"),
    [
        ({"driver": "570.2"}, ("driver",)),
        ({"tensorflow": "2.20.0"}, ("TensorFlow",)),
        ({"program_version": "0.2.0", "driver": "570.2"}, ("VariantScope", "driver")),
        ({"cpu": "Yet another processor"}, ()),
        ({"git_commit": "0123"}, ()),
        ({SOURCES_KEY: "0123"}, ("version of the code",)),
        ({"env OMP_NUM_THREADS": "1"}, ("OMP_NUM_THREADS",)),
        ({"env TF_ENABLE_ONEDNN_OPTS": "0", ONEDNN_KEY: "off"}, ()),
        ({HOST_KEY: "gpu1", HOST_ID_KEY: "one"}, ("host",)),
        ({"env CUDA_VISIBLE_DEVICES": "GPU-7", "env CUDA_HOME": "/usr/local/cuda"}, ()),
    ],
)
def test_other_surroundings_are_counted_anew(
    database_path: Path, changed: Mapping[str, str], because: tuple[str, ...]
) -> None:
    found = counted(database_path, on_one_gpu(1), on_one_gpu(2, **changed))
    assert (found.excluded_due_to, found.excluded) == (because, len(found.excluded_due_to) and 1)
    assert [run.row.run for run in found.runs] == ([1] if because else [1, 2])


def test_on_a_host_only_its_own_runs_count_under_any_of_its_names(database_path: Path) -> None:
    gpu1 = {HOST_KEY: "gpu1", HOST_ID_KEY: "one"}
    names: tuple[dict[str, str], ...] = ({}, gpu1, {**gpu1, HOST_KEY: "lab"}, {HOST_KEY: "gpu1"})
    devices = (Device(device=HOST, kind="host", index=-1, name="A processor"),)
    inventory = Inventory(machine=ONE, devices=devices, driver="580.1")
    there = current_fingerprint(inventory, {**ENVIRONMENT, HOST_KEY: "gpu1", HOST_ID_KEY: "one"})
    with Store.open(database_path) as store:
        for number, name in enumerate(names, 1):
            keep(store, on_one_gpu(number, **name))
        reusable = reusable_runs(store, PLAN, there, ONE)
        here = reusable_runs(store, PLAN, replace(HERE, host={HOST_ID_KEY: "one"}), ONE)
    assert ([run.row.run for run in reusable.runs], reusable.excluded_due_to) == ([2, 3, 4], ("host",))
    assert [run.row.run for run in here.runs] == [1, 2, 3], "this machine, reached as a host"


def test_runs_of_others_count_for_an_hour_unless_older_ones_are_asked_for(database_path: Path) -> None:
    runs = [aged(on_one_gpu(1), RECENT_S + 1), aged(on_one_gpu(2), RECENT_S - 60)]
    with Store.open(database_path) as store:
        for run in runs:
            keep(store, run)
        numbers, older = {}, {}
        for reuse in (False, True):
            for again in (False, True):
                reusable = reusable_runs(store, structs.replace(PLAN, reuse=reuse, again=again), HERE, ONE)
                numbers[reuse, again] = [run.row.run for run in reusable.runs]
                older[reuse, again] = reusable.older_utc_ns
    assert numbers == {(False, False): [2], (True, False): [1, 2], (False, True): [], (True, True): []}
    assert older == {**dict.fromkeys(older, ()), (False, False): (runs[0].row.started_utc_ns,)}


def test_an_unfinished_experiment_goes_on_with_its_own_runs_however_old_they_are(database_path: Path) -> None:
    plan = structs.replace(PLAN, reuse=False)
    with Store.open(database_path) as store:
        for number, age_s in enumerate((48 * RECENT_S, 48 * RECENT_S, RECENT_S - 60), 1):
            keep(store, aged(on_one_gpu(number), age_s))
        entry, _ = enqueue(store, plan)
        store.queue.add_runs(entry.entry, [1])
        same = present(unfinished_entry(store, structs.replace(plan, repeats=5)))
        reusable = reusable_runs(store, plan, HERE, ONE, same)
        assert [run.row.run for run in reusable.runs] == [1, 3]
        assert len(reusable.older_utc_ns) == 1


def test_another_card_does_not_count_and_an_unknown_fact_is_no_difference(database_path: Path) -> None:
    run = on_one_gpu(1)
    samples = tuple(replace(one, device=structs.replace(one.device, name="A100")) for one in run.samples)
    other = replace(run, row=replace(run.row, uid="other"), samples=samples)
    found = counted(database_path, other, result(2, SPECS[0], environment={}))
    assert (found.excluded_due_to, [run.row.run for run in found.runs]) == (("GPU",), [2])


def test_another_python_is_held_against_its_own_tensorflow(database_path: Path, tmp_path: Path) -> None:
    environment = tmp_path / "tf216"
    (environment / "bin").mkdir(parents=True)
    (environment / "pyvenv.cfg").touch()
    (environment / "bin" / "python").symlink_to(sys.executable)
    known = environment / "lib" / "python3.11" / "site-packages" / "tensorflow_cpu-2.16.2.dist-info"
    known.mkdir(parents=True)
    (known / "METADATA").write_text("Name: tensorflow-cpu\nVersion: 2.16.2\n")
    spec = complete("cnn10", {"gpus": 1, "interpreter": str(environment)}, ONE)
    plan = Plan(name="two", variants=(SPECS[0], spec), repeats=3, reuse=True)
    versions = ("2.16.2", "2.15.0", "2.16.2")
    with Store.open(database_path) as store:
        for number, version in enumerate(versions, 1):
            keep(store, result(number, spec, environment={**ENVIRONMENT, "tensorflow": version}))
        keep(store, result(4, SPECS[0]))
        for found in (reusable_runs(store, plan, HERE, ONE), reusable_as_newest(store, plan)):
            assert ([run.row.run for run in found.runs], found.excluded_due_to) == ([1, 3, 4], ("TensorFlow",))


def test_what_was_refused_elsewhere_is_tried_where_it_can_run(database_path: Path) -> None:
    refused = result(1, SPECS[1], outcome="refused")
    assert [run.row.run for run in counted(database_path, refused).runs] == [1], "one GPU here too"
    two = Machine(gpus=(*ONE.gpus, Gpu(index=1, uuid="GPU-1", name="NVIDIA H200", compute_capability=(9, 0))))
    assert counted(database_path, machine=two).runs == ()


def test_a_try_of_a_search_is_no_repeat(database_path: Path) -> None:
    with Store.open(database_path) as store:
        number = keep(store, result(1, SPECS[0]))
        store._db.execute("UPDATE runs SET purpose = 'a try' WHERE run = ?", (number,))
    assert counted(database_path).runs == ()


def test_what_is_stored_is_shown_from_the_newest_surroundings(database_path: Path) -> None:
    with Store.open(database_path) as store:
        for run in (on_one_gpu(1, driver="570.2"), on_one_gpu(2), on_one_gpu(3), result(4, SPECS[1])):
            keep(store, run)
        found = reusable_as_newest(store, PLAN)
    assert ([run.row.run for run in found.runs], found.excluded_due_to) == ([2, 3, 4], ("driver",))


def test_of_the_reference_the_file_that_has_most_is_shown() -> None:
    rows = [
        replace(result(number, SPECS[0]).row, tags=(REFERENCE_TAG,), experiments=(file,))
        for number, file in ((1, 7), (2, 8), (3, 8), (4, 7), (5, 8))
    ]
    own = replace(rows[0], tags=())
    assert [row.run for row in largest_reference([own, *rows])] == [2, 3, 5]
    assert largest_reference([own]) == []


def test_here_is_what_a_run_here_would_store() -> None:
    host = Device(device=HOST, kind="host", index=-1, name="A processor")
    here = current_fingerprint(Inventory(machine=ONE, devices=(host,), driver="580.1"))
    assert (here.driver, here.gpus, here.cpu) == ("580.1", frozenset({"NVIDIA H200"}), "A processor")
    assert all(version[0].isdigit() for version in here.frameworks.values())
    assert here.program_version
    assert re.fullmatch(r"[0-9a-f]{12}", str(here.sources))
    assert VARIABLES_RECORDED_KEY in here.variables


CPU_MACHINE = Machine(cpu_count=4)
SMALL, LARGE = (complete("cnn10", {"gpus": 0, "batch_size": size, "seconds": 10}, CPU_MACHINE) for size in (8, 16))


def test_a_run_on_the_cpu_counts_if_onednn_was_as_it_would_be_now(
    database_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(ONEDNN_VARIABLE, raising=False)
    devices = (Device(device=HOST, kind="host", index=-1, name="A processor"),)
    here = current_fingerprint(Inventory(machine=CPU_MACHINE, devices=devices))
    here = replace(run_fingerprint(header_of(result(1, SMALL))), variables=here.variables)
    plan = Plan(name="one", variants=(SMALL,), repeats=3, reuse=True)
    facts: tuple[dict[str, str], ...] = (
        {ONEDNN_KEY: "on"},
        {ONEDNN_KEY: "off"},
        {"env TF_ENABLE_ONEDNN_OPTS": "0"},
        {},
    )
    with Store.open(database_path) as store:
        for number, fact in enumerate(facts, 1):
            keep(store, result(number, SMALL, environment=fact))
        reusable = reusable_runs(store, plan, here, CPU_MACHINE)
    assert ([run.row.run for run in reusable.runs], reusable.excluded_due_to) == ([1, 4], ("oneDNN",))


def made(number: int, pct: float, *, large: bool = False, outcome: OutcomeName = "completed") -> StoredRun:
    environment = {**ENVIRONMENT, **({THROTTLED_KEY: f"{pct:.1f}"} if pct else {})}
    return result(number, LARGE if large else SMALL, environment=environment, outcome=outcome)


@pytest.mark.parametrize(
    ("throttled_pct", "counts"),
    [
        ([0, 0], [True, True]),
        ([5, 5.1], [True, False]),
        ([12, 0, 0], [False, True, True]),
        ([12, 12, 0], [False, True, True]),
        ([12, 12, 12, 12], [False, True, False, True]),
    ],
)
def test_a_throttled_run_counts_only_if_it_repeats_one(throttled_pct: list[float], counts: list[bool]) -> None:
    repeated = ThrottleFilter()
    assert [repeated.accepts(header_of(made(number, pct))) for number, pct in enumerate(throttled_pct)] == counts


def test_a_run_that_was_suspended_is_made_once_more() -> None:
    repeated = ThrottleFilter()
    environment = {**ENVIRONMENT, STOOD_STILL_KEY: "600"}
    suspended = [header_of(result(number, SMALL, environment=environment)) for number in (1, 2)]
    assert [repeated.accepts(run) for run in suspended] == [False, True]


def test_each_variant_is_repeated_for_itself() -> None:
    repeated = ThrottleFilter(20.0)
    runs = [made(1, 30), made(2, 30, large=True), made(3, 30), made(4, 19, large=True)]
    assert [repeated.accepts(header_of(run)) for run in runs] == [False, False, True, True]


def test_what_measured_nothing_is_not_judged() -> None:
    repeated = ThrottleFilter()
    runs = [made(1, 30), made(2, 30, outcome="failed"), made(3, 30, outcome="out_of_memory"), made(4, 30)]
    assert [repeated.accepts(header_of(run)) for run in runs] == [False, True, True, True]


def test_an_experiment_that_goes_on_knows_what_is_still_to_be_repeated(database_path: Path) -> None:
    plan = Plan(name="two", variants=(SMALL, LARGE), repeats=2, reuse=True)
    repeated = ThrottleFilter()
    with Store.open(database_path) as store:
        for run in (made(1, 0), made(2, 30, large=True)):
            keep(store, run)
        fingerprint = run_fingerprint(header_of(made(1, 0)))
        reusable = reusable_runs(store, plan, fingerprint, CPU_MACHINE, throttle_filter=repeated)
    assert [run.row.run for run in reusable.runs] == [1]
    assert reusable.excluded == 0
    assert repeated.accepts(header_of(made(3, 30, large=True)))


def test_what_is_only_shown_is_judged_alike(database_path: Path) -> None:
    plan = Plan(name="one", variants=(SMALL,), repeats=2)
    strict = structs.replace(plan, max_throttled_pct=2.0)
    with Store.open(database_path) as store:
        for run in (made(1, 3), made(2, 0)):
            keep(store, run)
        assert [run.row.run for run in reusable_as_newest(store, plan).runs] == [1, 2]
        assert [run.row.run for run in reusable_as_newest(store, strict).runs] == [2]


def test_a_run_without_its_measurements_is_the_same_run(database_path: Path) -> None:
    (found,) = counted(database_path, on_one_gpu(1)).runs
    with Store.open(database_path) as store:
        whole = store.load(found.row.run)
    assert found == header_of(whole)
    assert found.gpu_uuids == used_gpus(whole) != frozenset()
