"""The reference runs that come with the program, with the real files."""

import hashlib
import re
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from msgspec import structs

from app.queries import RunQuery
from app.runs.experiment.presets import load_preset
from app.runs.experiment.reuse import reusable_as_newest, reusable_runs, run_fingerprint
from app.storage.reference import FOLDER, add_reference, reference_files, reference_runs, remove_reference
from app.storage.store import Store
from app.values.records import REFERENCE_TAG
from app.viewmodels.compare.warnings import comparison_warnings
from app.viewmodels.history.evidence import stored_evidence_view
from tests.fakes.experiments import result
from tests.fakes.runs import keep
from tests.present import present
from tests.unit.viewmodels.stored import keep as keep_row
from workloads.catalog import Gpu, Machine, is_script

MACHINE = Machine(gpus=(Gpu(index=0, uuid="GPU-0", name="NVIDIA H200", compute_capability=(9, 0)),))


@dataclass(frozen=True)
class Reference:
    """A database with the reference, and its runs there."""

    path: Path
    added: Sequence[int]


@pytest.fixture(scope="module")
def reference(reference_database: Path) -> Reference:
    """One for all tests that only read it."""
    with Store.open(reference_database) as store:
        return Reference(reference_database, reference_runs(store))


@pytest.fixture
def own_copy(reference: Reference, database_path: Path) -> Reference:
    """One for a test that writes into it."""
    shutil.copyfile(reference.path, database_path)
    return Reference(database_path, reference.added)


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def test_the_files_are_small_and_say_what_they_are_of() -> None:
    files = reference_files()
    assert {file.name for file in files} == {
        "lstm",
        "cnn",
        "scaling",
        "three_frameworks",
        "three_frameworks_later",
        "three_frameworks_two_gpus",
        "xla",
        "your_script",
        "your_workloads",
    }
    assert sum(file.path.stat().st_size for file in files) < 6_900_000
    own = {"your_script": {"pytorch"}, "your_workloads": {"pytorch", "tensorflow"}}
    for file in files:
        assert len(file.uids) == len(set(file.uids)) > 5
        assert file.gpu_names == ("NVIDIA H200",)
        frameworks = file.versions.keys() - {"driver", "keras", "cudnn_loaded"}
        assert "driver" in file.versions
        of_articles = {"tensorflow", "pytorch", "jax"} if file.name.startswith("three") else {"tensorflow"}
        assert frameworks == own.get(file.name, of_articles)
        assert file.first_utc_ns < file.last_utc_ns


def test_the_files_stay_as_they_are_where_nothing_may_be_written_beside_them(
    database_path: Path, tmp_path: Path
) -> None:
    """As in an install for all users."""
    folder = tmp_path / "reference"
    folder.mkdir()
    shutil.copy(FOLDER / "xla.db.gz", folder)
    for path in (*folder.iterdir(), folder):
        path.chmod(path.stat().st_mode & ~0o222)
    before = digests(folder)
    added = add_reference(database_path, folder=folder)
    folder.chmod(0o755)
    assert digests(folder) == before
    with Store.open(database_path) as store:
        assert reference_runs(store) == added


def test_runs_come_marked(reference: Reference) -> None:
    with Store.open(reference.path) as store:
        rows = store.library.run_rows(reference.added)
        experiments = store.library.experiments()
        query = RunQuery(tag=REFERENCE_TAG, text="h200 note:nvidia 2026-11")
        assert set(store.library.find(query)) == set(reference.added)
    assert len(rows) == sum(len(file.uids) for file in reference_files())
    for row in rows:
        assert row.tags == (REFERENCE_TAG,)
        is_pytorch = is_script(row.spec.workload) or "_torch.py:" in row.spec.workload
        framework = row.spec.variant.get("framework", "pytorch" if is_pytorch else "tensorflow")
        versions = {"tensorflow": "TensorFlow 2.21.0", "pytorch": "PyTorch 2.11.0", "jax": "JAX 0.11.2"}
        assert row.note.startswith(f"{len(row.gpu_names)}x NVIDIA H200, {versions[str(framework)]}, ")
    assert {found.name for found in experiments} == {
        "Reference: LSTM on NVIDIA H200",
        "Reference: frameworks on NVIDIA H200",
        "Reference: frameworks in TF32 on one NVIDIA H200",
        "Reference: the quick comparison on one NVIDIA H200",
        "Reference: cnn10 in JAX on one and two NVIDIA H200",
        "Reference: wrn28-10 in TF32 on one and two NVIDIA H200",
        "Reference: a GPT script by torchrun on one and two NVIDIA H200",
        "Reference: a transformer of your own in PyTorch, torch.compile off and on, on NVIDIA H200",
        "Reference: a ResNet-50 of your own in Keras, XLA off and on, on NVIDIA H200",
        "Reference: cnn10 in PyTorch by Inductor and DataParallel on NVIDIA H200",
        "Reference: image networks on NVIDIA H200",
        "Reference: image networks on one to four GPUs on NVIDIA H200",
        "Reference: image networks with XLA on NVIDIA H200",
    }


def test_every_run_has_its_samples_and_evidence(reference: Reference) -> None:
    with Store.open(reference.path) as store:
        for run in reference.added[::13]:
            stored = store.load(run)
            assert present(stored.evidence).kernels
            assert all(samples.t_ns.size > 20 for samples in stored.samples if samples.device.kind == "gpu")
            assert all(samples.t_ns.size > 5 for samples in stored.samples)


def test_runs_in_memory_share_what_is_the_same(reference: Reference) -> None:
    with Store.open(reference.path) as store:
        runs = [store.load(run, ()) for run in reference.added[::13]]
    names = [kernel.name for run in runs if run.evidence for kernel in run.evidence.kernels]
    absent = [samples.device.absent for run in runs for samples in run.samples]
    known = [samples.device.fields for run in runs for samples in run.samples]
    assert len(set(map(id, names))) == len(set(names)) < len(names) / 2
    assert len(set(map(id, absent))) == len({str(each) for each in absent}) < len(absent) / 2
    assert len(set(map(id, known))) == len({str(each) for each in known}) < len(known)


def test_the_badge_of_a_stored_run_says_no_more_than_was_seen(reference: Reference) -> None:
    """28 runs whose loop XLA compiled, and 68 whose graph another implementation leaves too."""
    with Store.open(reference.path) as store:
        rows = store.library.run_rows(reference.added)
        states = Counter((row.spec.workload in ("lstm", "gru"), row.evidence_state) for row in rows)
        unseen = [row for row in rows if row.evidence_state == "verified in part"]
        compiled = [row for row in unseen if "XLA compiled the loop" in (row.evidence_reason or "")]
        alike = [row for row in unseen if "looks the same for" in (row.evidence_reason or "")]
        evidence = [store.load(row.run).evidence for row in rows]
        mismatches = {row.run for row in rows if row.evidence_state == "mismatch"}
        reasons = {row.evidence_reason or "" for row in rows if row.run in mismatches}
        assert all(reason.endswith(": XLA chooses the layout itself.") for reason in reasons)
        assert set(store.library.find(RunQuery(text="mismatch"))) == mismatches
    assert states == {
        (True, "verified"): 126,
        (True, "verified in part"): 96,
        (False, "verified"): 269,
        (False, "verified in part"): 6,
        (False, "mismatch"): 21,
    }
    assert (len(compiled), len(alike)) == (28, 68)
    assert all(row.spec.variant["xla"] for row in compiled)
    (auto,) = [row for row in rows if row.spec.variant.get("implementation") == "auto"]
    assert auto.evidence_state == "verified", "Keras has one way to use cuDNN"
    for row, found in zip(rows, evidence, strict=True):
        assert found is not None
        assert (found.state, found.reason) == (row.evidence_state, row.evidence_reason)
        assert found.requested.keys() == found.actual.keys() | found.unverified.keys()


def test_the_layout_inside_libraries_is_told_with_its_time(reference: Reference) -> None:
    found = {}
    with Store.open(reference.path) as store:
        text = "batch_size=1024 gpus=1 precision=tf32 xla=false"
        for run in store.library.find(RunQuery(workload="cnn10", text=text)):
            stored = store.load(run)
            found[stored.row.spec.variant["layout"]] = (
                stored_evidence_view(stored).notes[-1].replace("\N{NO-BREAK SPACE}", " ")
            )
    own = "Libraries compute in layouts of their own: of a step, by kernel names,"
    assert re.fullmatch(rf"{own} 2\.4\d ms of batch norm in NCHW and 4\.1\d ms of transposes\.", found["NHWC"])
    assert re.fullmatch(rf"{own} 7\.1\d ms of convolution in NHWC and 3\.7\d ms of transposes\.", found["NCHW"])


def test_adding_twice_adds_once_and_brings_back_what_was_deleted(own_copy: Reference) -> None:
    database, added = own_copy.path, own_copy.added
    with Store.open(database) as store:
        store.library.delete(added[:3])
        assert reference_runs(store) == added[3:]
    assert add_reference(database) == added


def test_removing_leaves_the_users_own_runs(own_copy: Reference) -> None:
    database, added = own_copy.path, own_copy.added
    with Store.open(database) as store:
        mine = keep(store, uid="mine")
        store.library.add_tag([mine], REFERENCE_TAG)
        store.library.delete(added[:1])
    assert set(remove_reference(database)) == set(added[1:])
    with Store.open(database) as store:
        assert [row.uid for row in store.list_runs()] == ["mine"]
        assert store.library.totals(deleted=True).total == 0
        assert store.library.experiments() == []
    assert remove_reference(database) == []


def test_removing_leaves_runs_that_were_measured_here_and_later_went_into_the_box(own_copy: Reference) -> None:
    database = own_copy.path
    first, second, *rest = (uid for file in reference_files() for uid in file.uids)
    with Store.open(database) as store:
        copies = store.library.runs_with_uids([first, second], deleted=False)
        store.library.delete(copies)
        store.library.purge(copies)
        mine, in_trash = keep(store, uid=first), keep(store, uid=second)
        store.library.delete([in_trash])
    added = add_reference(database)
    assert len(added) == len(rest)
    assert not {mine, in_trash} & set(added)
    with Store.open(database) as store:
        store.library.remove_tag(added[:1], REFERENCE_TAG)
        store.library.delete(added[1:3])
    assert set(remove_reference(database)) == set(added[3:])
    with Store.open(database) as store:
        assert {row.run for row in store.list_runs()} == {mine, added[0]}
        assert store.library.totals(deleted=True).total == 1, "what was in the trash is there still"


def test_a_comparison_with_an_own_run_says_that_cards_and_versions_differ(own_copy: Reference) -> None:
    added = own_copy.added
    with Store.open(own_copy.path) as store:
        mine = keep(store)
        store.add_environment(mine, {"driver": "575.1", "tensorflow": "2.20.0", "gpus_used": "NVIDIA A100 (GPU-1)"})
        warnings = comparison_warnings([store.load(mine), store.load(added[0])])
    found = {warning.facts.get("name", warning.key): warning for warning in warnings}
    assert found["tensorflow"].runs == {mine: "2.20.0", added[0]: "2.21.0"}
    assert found["driver"].severity == "warning"
    assert found["gpus_used"].runs[mine] == "GPU-aaaa"
    assert added[0] in found["gpus_used"].runs


def test_an_article_is_shown_by_the_reference_but_never_counted_as_done_here(own_copy: Reference) -> None:
    plan = structs.replace(load_preset("article-b").all_plans()[0], reuse=True)
    with Store.open(own_copy.path) as store:
        shown = reusable_as_newest(store, plan)
        assert len(shown.runs) >= 8
        here = replace(run_fingerprint(shown.runs[0]), variables={})
        assert reusable_runs(store, plan, here, MACHINE).runs == ()
        own = {key: value for key, value in shown.runs[0].environment.items() if not key.startswith("env ")}
        keep_row(store, result(100, plan.specs[0], environment=own))
        assert [run.row.uid for run in reusable_as_newest(store, plan).runs] == ["uid-100"]
        assert [run.row.uid for run in reusable_runs(store, plan, here, MACHINE).runs] == ["uid-100"]
