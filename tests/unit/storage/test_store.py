"""Runs are loaded as they were stored; absent stays absent."""

import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from app.errors import DatabaseError, UserError
from app.queries import RunQuery
from app.storage.database import translate_sqlite_errors
from app.storage.files import DiskSpace
from app.storage.owner import this_process
from app.storage.store import Store, _read_fields
from app.values.environment_keys import PLANNED_KEY
from app.values.events import Outcome, Summary
from app.values.fields import Sample, SlowSample
from app.values.records import Phase
from app.values.samples import DeviceLost, FieldInfo, FieldsUpdated, LogLine
from tests.fakes.evidence import AS_REQUESTED, IN_PART, MISLABELLED, UNKNOWN
from tests.fakes.runs import (
    BLOCKS,
    ENVIRONMENT,
    EPOCHS,
    EQUALITY,
    EVIDENCE,
    GPU,
    HOST_DEVICE,
    LOG,
    OUTCOME,
    PHASES,
    PORTABILITY,
    SAMPLES,
    SPEC,
    SUMMARY,
    UTC_NS,
    S,
    begin,
    keep,
)
from tests.present import present
from workloads.protocol import Calibration, Evidence, RunSpec


def test_a_run_says_what_its_experiment_planned_wherever_it_is_listed(store: Store) -> None:
    planned, by_hand = (begin(store, uid=uid) for uid in ("uid-1", "uid-2"))
    store.add_environment(planned, {PLANNED_KEY: "until ± 0.5 %"})
    assert [row.planned for row in store.library.run_rows([planned, by_hand])] == ["until ± 0.5 %", None]


def test_implausible_readings_are_counted_over_all_batches(store: Store) -> None:
    run = begin(store)
    for n in (1, 2):
        sample = Sample(t_ns=n * S, device=GPU.device, implausible=("power_mw", "load_pct"))
        store.write(run, [sample, SlowSample(t_ns=n * S, device=GPU.device, implausible=("energy_mj",))])
    gpu, host = store.load(run).samples
    assert gpu.device.implausible == {"power_mw": 2, "load_pct": 2, "energy_mj": 2}
    assert host.device.implausible == {}


def test_a_run_comes_back_whole(store: Store) -> None:
    run = keep(store)
    stored = store.load(run)
    row = stored.row
    assert (row.run, row.uid, row.started_utc_ns, row.ended_utc_ns) == (run, "uid-1", UTC_NS, UTC_NS + 6 * S)
    assert row.spec == SPEC
    assert type(row.spec.variant["xla"]) is bool, "a switch stays a switch"
    assert (row.outcome, row.summary, row.gpu_names) == (OUTCOME, SUMMARY, ("NVIDIA H200",))
    assert row.gpus == (GPU.device,)
    assert (stored.anchor_t_ns, stored.anchor_utc_ns) == (S // 2, UTC_NS)
    assert stored.phases == (Phase("compile", 1 * S, 3 * S), Phase("measure", 3 * S, 6 * S))
    assert stored.measure_start_ns == 3 * S
    assert stored.environment == {**ENVIRONMENT, "keras": "3.15.1"}
    assert stored.log == LOG
    assert (stored.evidence, stored.portability, stored.epochs) == (EVIDENCE, (PORTABILITY,), EPOCHS)
    assert stored.equality == store.load_header(run).equality == (EQUALITY,)


@pytest.mark.parametrize(
    "found", [AS_REQUESTED, IN_PART, UNKNOWN, MISLABELLED], ids=lambda found: found.state.replace(" ", "_")
)
def test_a_row_says_what_was_verified_and_why_not_all(store: Store, found: Evidence) -> None:
    run = begin(store)
    store.write(run, (found,))
    row = store.load(run).row
    assert (row.evidence_state, row.evidence_reason) == (found.state, found.reason)
    assert store.list_runs() == [row]
    assert store.load(run).evidence == found
    assert store.library.find(RunQuery(text=found.state)) == [run], "the state is a word to search for"


def test_kernels_keep_their_order_and_what_is_not_known_of_them(store: Store) -> None:
    run = begin(store)
    same_time = tuple(msgspec.structs.replace(EVIDENCE.kernels[1], name=name) for name in "cab")
    store.write(run, (msgspec.structs.replace(EVIDENCE, kernels=(EVIDENCE.kernels[0], *same_time)),))
    found = present(store.load(run).evidence)
    assert [(kernel.name, kernel.tensor_cores) for kernel in found.kernels] == [
        ("sm90_xmma_fprop_tf32f32", True),
        ("c", None),
        ("a", None),
        ("b", None),
    ]


def test_weights_can_be_tried_several_times(store: Store) -> None:
    run = keep(store)
    later = replace(PORTABILITY, utc_ns=PORTABILITY.utc_ns + 1, implementation="block_fused", max_difference=0.0)
    store.add_checks(run, (later,))
    assert store.load(run).portability == (PORTABILITY, later)


def test_the_newest_calibration_of_a_card_and_precision_counts(store: Store) -> None:
    old = Calibration(device=GPU.device, precision="tf32", size=8192, flops_per_s=3.9e14)
    new = msgspec.structs.replace(old, flops_per_s=4.1e14)
    assert store.calibration(GPU.device, "tf32") is None
    store.save_calibration(old, 1)
    store.save_calibration(new, 2)
    store.save_calibration(msgspec.structs.replace(old, precision="bfloat16", flops_per_s=7.9e14), 3)
    assert store.calibration(GPU.device, "tf32") == new
    assert store.calibration("cpu", "tf32") is None


def test_blocks_come_back_as_columns(store: Store) -> None:
    blocks = store.load(keep(store)).blocks
    assert blocks.first_step.tolist() == [0, 1, 5]
    assert blocks.steps.tolist() == [1, 4, 4]
    assert blocks.examples.tolist() == [8, 32, 32]
    assert blocks.start_ns.tolist() == [block.start_ns for block in BLOCKS]
    assert blocks.measured.tolist() == [False, True, True]
    np.testing.assert_array_equal(blocks.loss, [2.5, np.nan, np.nan])
    np.testing.assert_array_equal(blocks.throughput, [4.0, 32.0, 16.0])


def test_samples_come_back_by_device_with_nan_for_absent(store: Store) -> None:
    gpu, host = store.load(keep(store)).samples
    lost = msgspec.structs.replace(GPU, lost="NVIDIA H200 stopped answering (GPU is lost).")
    assert (gpu.device, host.device) == (lost, HOST_DEVICE)
    assert gpu.t_ns.tolist() == [3 * S, 4 * S]
    np.testing.assert_array_equal(gpu.fields["power_mw"], [688_123, np.nan])
    np.testing.assert_array_equal(gpu.fields["load_pct"], [99.0, 0.0])
    np.testing.assert_array_equal(gpu.fields["temperature_c"], [np.nan, np.nan])
    np.testing.assert_array_equal(host.fields["worker_memory_bytes"], [1_000])
    arrays = [array for columns in (gpu, host) for array in (columns.t_ns, *columns.fields.values())]
    of_values = [array for array in arrays if array.strides != (0,)]
    assert all(array.base is None for array in of_values), "none keeps the rows that it was read from"
    assert gpu.fields["temperature_c"].strides == (0,), "absent values take no memory"


def test_a_run_without_anything_loads(store: Store) -> None:
    run = begin(store)
    stored = store.load(run)
    assert (stored.row.outcome, stored.row.ended_utc_ns, stored.row.summary) == (None, None, Summary())
    assert (stored.phases, stored.log, stored.measure_start_ns) == ((), (), None)
    assert (stored.evidence, stored.portability, stored.row.evidence_state) == (None, (), None)
    assert stored.blocks.steps.size == 0
    assert [columns.t_ns.size for columns in stored.samples] == [0, 0]


def test_a_phase_lasts_until_the_next_begins(store: Store) -> None:
    run = begin(store)
    store.write(run, PHASES[:1])
    assert store.load(run).phases == (Phase("compile", 1 * S, None),)
    store.write(run, PHASES[1:])
    assert store.load(run).phases == (Phase("compile", 1 * S, 3 * S), Phase("measure", 3 * S, None))


def test_two_readings_within_one_tick_are_one(store: Store) -> None:
    run = begin(store)
    store.write(run, (SAMPLES[0], SAMPLES[0]))
    store.write(run, (Sample(t_ns=3 * S, device=GPU.device, power_mw=1),))
    assert store.load(run).samples[0].fields["power_mw"].tolist() == [688_123]


def test_two_runs_do_not_mix(store: Store) -> None:
    first, second = begin(store), begin(store, uid="uid-2")
    store.write(first, (*PHASES, *BLOCKS, *SAMPLES, *LOG))
    store.write(second, (BLOCKS[0], LOG[0]))
    assert store.load(second).blocks.steps.tolist() == [1]
    assert store.load(second).samples[0].t_ns.size == 0
    assert store.load(second).log == LOG[:1]
    assert store.load(first).blocks.steps.tolist() == [1, 4, 4]


def test_an_unknown_run_is_said_with_what_to_do(store: Store, database_path: Path) -> None:
    with pytest.raises(UserError, match=r"There is no run 7 in .*`python -m app list` lists all"):
        store.load(7)


def test_unfinished_names_runs_and_their_owners(store: Store) -> None:
    keep(store)
    open_run = begin(store, uid="uid-2")
    assert store.unfinished_runs() == [(open_run, this_process())]


def test_a_batch_with_a_fault_in_it_leaves_nothing(store: Store) -> None:
    run = begin(store)
    store.write(run, BLOCKS[:1])
    with pytest.raises(Exception, match="UNIQUE constraint failed"):
        store.write(run, (*PHASES, *BLOCKS))
    assert store.load(run).phases == ()
    assert store.load(run).blocks.steps.tolist() == [1]
    store.write(run, BLOCKS[1:])
    assert store.load(run).blocks.steps.tolist() == [1, 4, 4]


def test_a_second_program_reads_what_the_first_has_written(store: Store, database_path: Path) -> None:
    run = begin(store)
    with Store.open(database_path) as other:
        store.write(run, BLOCKS[:2])
        assert other.load(run).blocks.steps.tolist() == [1, 4]
        store.add_environment(run, {"keras": "3"})
        assert other.load(run).environment["keras"] == "3"


def test_a_full_disk_is_told_where_sqlite_speaks_of_an_error_of_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.storage.database.disk_space", lambda path: DiskSpace(path, 0))
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorname = "SQLITE_IOERR_SHMSIZE"
    with (
        pytest.raises(DatabaseError, match=r"The disk that holds .* is full; free some space"),
        translate_sqlite_errors(tmp_path / "x.db"),
    ):
        raise error


def test_a_full_disk_is_told_and_keeps_what_is_stored(store: Store) -> None:
    run = begin(store)
    store.write(run, BLOCKS[:2])
    (pages,) = store._db.execute("PRAGMA page_count").fetchone()
    store._db.execute(f"PRAGMA max_page_count = {pages}").fetchall()
    with pytest.raises(DatabaseError, match=r"The disk that holds .* is full; free some space"):
        store.write(run, [LogLine(n, "x" * 1000) for n in range(500)])
    assert store.load(run).blocks.steps.tolist() == [1, 4]
    assert store.load(run).log == ()
    store._db.execute("PRAGMA max_page_count = 1000000").fetchall()
    store.write(run, LOG)
    assert store.load(run).log == LOG, "with space again it goes on"


def test_a_read_only_database_is_told(store: Store) -> None:
    run = begin(store)
    store._db.execute("PRAGMA query_only = ON")
    for write in (
        lambda: store.write(run, BLOCKS),
        lambda: store.add_environment(run, {"a": "b"}),
        lambda: begin(store, uid="uid-2"),
        lambda: store.finish(run, outcome=Outcome(name="completed"), summary=Summary(), t_ns=1, utc_ns=1),
    ):
        with pytest.raises(DatabaseError, match="is read-only; make it writable, or choose another file with --db"):
            write()
    assert store.load(run).row.outcome is None


def test_what_a_comparison_draws_is_read_of_the_devices_it_was_made_on(store: Store) -> None:
    run = keep(store)
    whole, drawn = store.load(run), store.load(run, ("power_mw", "load_pct", "sm_active_pct"))
    gpu, host = drawn.samples
    assert (set(gpu.fields), set(gpu.slow)) == ({"power_mw", "load_pct"}, {"sm_active_pct"})
    assert gpu.t_ns.tolist() == whole.samples[0].t_ns.tolist()
    np.testing.assert_array_equal(gpu.fields["power_mw"], whole.samples[0].fields["power_mw"])
    assert (host.device, host.fields["load_pct"].tolist()) == (HOST_DEVICE, [12.5]), "who else used the machine"
    assert np.isnan(host.fields["power_mw"]).all()
    assert (drawn.row, drawn.phases, drawn.log) == (whole.row, whole.phases, ())
    assert drawn.evidence == msgspec.structs.replace(EVIDENCE, timeline=None), "nobody draws it there"


def test_of_a_run_on_the_cpu_the_host_is_drawn(store: Store) -> None:
    run = begin(store, spec=RunSpec(workload="cnn10", variant={**SPEC.variant, "gpus": 0}))
    store.write(run, SAMPLES)
    gpu, host = store.load(run, ("load_pct",)).samples
    assert (gpu.t_ns.size, host.fields["load_pct"].tolist()) == (0, [12.5])


def test_what_a_device_does_not_give_is_absent_and_not_read(store: Store) -> None:
    reporting = msgspec.structs.replace(GPU, fields={"power_mw": FieldInfo(unit="mW")})
    run = store.begin(
        SPEC, uid="uid-1", owner=this_process(), t_ns=0, utc_ns=UTC_NS, devices=(reporting,), environment={}
    )
    store.write(run, SAMPLES[:2])
    (gpu,) = store.load(run, ("power_mw", "load_pct")).samples
    assert np.isnan(gpu.fields["load_pct"]).all()
    np.testing.assert_array_equal(gpu.fields["power_mw"], [688_123, np.nan])
    (whole,) = store.load(run).samples
    assert whole.fields["load_pct"].tolist() == [99.0, 0.0], "all that is stored comes back all the same"
    learnt = FieldsUpdated(
        device=GPU.device, fields={"load_pct": FieldInfo(unit="%")}, absent={"power_mw": "no sensor"}
    )
    store.write(run, [learnt])
    device = store.load(run).samples[0].device
    assert (device.fields, device.absent) == (learnt.fields, learnt.absent), "a card may be probed while a run goes on"


def test_the_last_phase_of_a_host_whose_clock_is_ahead_ends_no_earlier_than_it_begins(store: Store) -> None:
    run = begin(store)
    store.write(run, PHASES)
    store.finish(run, outcome=OUTCOME, summary=SUMMARY, t_ns=2 * S, utc_ns=UTC_NS, phases=[])
    assert store.load(run).phases[-1] == Phase("measure", 3 * S, 3 * S)


def test_a_run_is_stored_once(store: Store, database_path: Path) -> None:
    begin(store)
    with Store.open(database_path) as another, pytest.raises(UserError, match="already: another program stores it"):
        begin(another)
    assert len(store.list_runs()) == 1


def test_a_device_is_lost_since_the_first_time(store: Store) -> None:
    run = begin(store)
    for second, reason in ((3, "it fell off the bus"), (5, "it is lost still")):
        store.write(run, [DeviceLost(t_ns=second * S, device=GPU.device, reason=reason)])
    columns = store.load(run).samples[0]
    assert (columns.lost_t_ns, columns.device.lost) == (3 * S, "it fell off the bus")


@pytest.mark.parametrize("part_rows", [1, 2, 1 << 16])
def test_samples_are_the_same_however_many_are_read_at_a_time(
    store: Store, monkeypatch: pytest.MonkeyPatch, part_rows: int
) -> None:
    run = begin(store)
    powers_mw = [10_000, 20_000, 30_000, 40_000, 50_000]
    store.write(run, [Sample(t_ns=n, device=GPU.device, power_mw=power) for n, power in enumerate(powers_mw)])
    monkeypatch.setattr("app.storage.store._PART_ROWS", part_rows)
    columns = store.load(run).samples[0]
    assert columns.t_ns.tolist() == [0, 1, 2, 3, 4]
    assert columns.fields["power_mw"].tolist() == powers_mw


def test_samples_are_those_of_when_their_reading_began(
    store: Store, database_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Changed:
        """A database in which another program changes samples before they are counted."""

        def execute(self, sql: str, values: tuple[object, ...]) -> sqlite3.Cursor:
            if sql.startswith("SELECT count"):
                with Store.open(database_path) as another:
                    another._db.execute("DELETE FROM samples WHERE t_ns = 4")
                    another._db.conn.commit()
            return store._db.execute(sql, values)

    run = begin(store)
    store.write(run, [Sample(t_ns=n, device=GPU.device, power_mw=1_000 * n) for n in range(5)])
    (device_id,) = store._db.execute("SELECT device_id FROM devices WHERE run = ? AND kind = 'gpu'", (run,)).fetchone()
    monkeypatch.setattr("app.storage.store._PART_ROWS", 2)
    database: Any = Changed()
    t_ns, columns = _read_fields(database, "samples", ["power_mw"], device_id)
    assert (t_ns.tolist(), columns["power_mw"].tolist()) == ([0, 1, 2, 3, 4], [0.0, 1e3, 2e3, 3e3, 4e3])
    assert store.load(run).samples[0].t_ns.tolist() == [0, 1, 2, 3]
