"""Samples of old runs are deleted, and nothing else."""

import time
from pathlib import Path

import pytest

from app.errors import DatabaseError
from app.storage import retention
from app.storage.database import load_setting, save_setting
from app.storage.known_settings import KEEP_SAMPLES_DAYS
from app.storage.owner import Owner, boot_id
from app.storage.store import Store
from app.values.fields import Sample
from app.values.samples import LogLine
from tests.fakes.runs import GPU, UTC_NS, S, begin, keep
from tests.present import present

DAY_S = 86_400
LATER_NS = UTC_NS + 40 * DAY_S * S


def test_old_runs_lose_samples_and_log_and_nothing_else(database_path: Path) -> None:
    with Store.open(database_path) as store:
        run = keep(store)
        before = store.load(run)
    done = retention.prune(database_path, 30, now_utc_ns=LATER_NS)
    with Store.open(database_path) as store:
        after = store.load(run)
    assert (done.runs, done.rows, done.packed) == ((run,), 5, True), "three samples and two lines of log"
    assert (after.row, after.phases, after.environment) == (before.row, before.phases, before.environment)
    assert after.blocks.end_ns.tolist() == before.blocks.end_ns.tolist()
    assert [columns.t_ns.size for columns in after.samples] == [0, 0]
    assert after.log == ()
    assert retention.pruned_utc_ns(database_path, run) == LATER_NS
    assert retention.prune(database_path, 30, now_utc_ns=LATER_NS).runs == (), "once is enough"


def test_young_runs_keep_everything(database_path: Path) -> None:
    with Store.open(database_path) as store:
        run = keep(store)
    assert retention.prune(database_path, 41, now_utc_ns=LATER_NS).runs == ()
    assert retention.pruned_utc_ns(database_path, run) is None


def test_a_dry_run_only_counts(database_path: Path) -> None:
    with Store.open(database_path) as store:
        run = keep(store)
    would = retention.prune(database_path, 30, now_utc_ns=LATER_NS, dry_run=True)
    assert (would.runs, would.rows) == ((run,), 5)
    with Store.open(database_path) as store:
        assert len(store.load(run).log) == 2


@pytest.mark.parametrize("pack", [True, False])
def test_the_file_gives_its_space_back_when_it_is_packed(database_path: Path, pack: bool) -> None:
    with Store.open(database_path) as store:
        run = keep(store)
        store.write(run, [Sample(t_ns=10 * S + n, device=GPU.device, power_mw=n) for n in range(20_000)])
        store.write(run, [LogLine(n, "word " * 40) for n in range(2_000)], first_log_line=10)
    done = retention.prune(database_path, 30, now_utc_ns=LATER_NS, pack=pack)
    assert (done.after_bytes < done.before_bytes / 4) is pack
    assert done.packed is pack


def test_nothing_is_deleted_while_a_run_goes_on(database_path: Path) -> None:
    with Store.open(database_path) as store:
        old = keep(store)
        begin(store, uid="uid-2")
        with pytest.raises(DatabaseError, match="Run 2 is in progress"):
            retention.prune(database_path, 30, now_utc_ns=LATER_NS)
        save_setting(database_path, KEEP_SAMPLES_DAYS, 1)
        assert retention.prune_by_setting(database_path) is None
        assert len(store.load(old).log) == 2


def test_a_run_whose_owner_is_gone_holds_nothing_up(database_path: Path) -> None:
    with Store.open(database_path) as store:
        keep(store)
        begin(store, uid="uid-2", owner=Owner(1, -5.0, boot_id()))
    assert not retention.is_running(database_path)
    assert retention.prune(database_path, 30, now_utc_ns=LATER_NS).runs == (1,)


def test_the_setting_is_the_database_s_own_and_off_at_first(database_path: Path) -> None:
    with Store.open(database_path) as store:
        keep(store)
    assert load_setting(database_path, KEEP_SAMPLES_DAYS) is None
    assert retention.prune_by_setting(database_path) is None
    save_setting(database_path, KEEP_SAMPLES_DAYS, 90)
    save_setting(database_path, KEEP_SAMPLES_DAYS, 30)
    assert load_setting(database_path, KEEP_SAMPLES_DAYS) == 30
    age_days = (time.time_ns() - UTC_NS) / S / DAY_S
    done = present(retention.prune_by_setting(database_path))
    assert age_days > 30
    assert done.runs == (1,)
    save_setting(database_path, KEEP_SAMPLES_DAYS, None)
    assert load_setting(database_path, KEEP_SAMPLES_DAYS) is None


def test_without_room_for_a_copy_the_file_is_not_packed(database_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store.open(database_path) as store:
        keep(store)
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 1000}))
    done = retention.prune(database_path, 30, now_utc_ns=LATER_NS)
    assert (done.runs, done.packed) == ((1,), False)
