"""What happens at the next start to runs that nobody finished."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from app.runs.sinks import mark_crashed_runs
from app.storage.owner import this_process
from app.storage.store import Store
from app.values.fields import Sample
from tests.fakes.runs import BLOCKS, PHASES, SAMPLES, UTC_NS, S, begin, keep
from tests.present import present
from workloads.protocol import PhaseStarted

ROOT = Path(__file__).parents[3]


def test_finished_runs_and_those_of_the_living_are_left_alone(database_path: Path) -> None:
    with Store.open(database_path) as store:
        keep(store)
        begin(store, uid="uid-2")
        before = store.list_runs()
        assert mark_crashed_runs(store) == []
        assert store.list_runs() == before


@pytest.mark.parametrize("measured", [True, False])
def test_a_run_of_a_process_that_is_gone_is_crashed_with_what_it_measured(database_path: Path, measured: bool) -> None:
    gone = replace(this_process(), boot_id="an earlier boot")
    with Store.open(database_path) as store:
        run = begin(store, owner=gone)
        if measured:
            power = [Sample(t_ns=n * S // 20, device="GPU-aaaa", power_mw=600_000) for n in range(81, 121)]
            store.write(run, (*PHASES, *BLOCKS, *SAMPLES, *power))
        assert mark_crashed_runs(store) == [run]
        stored = store.load(run)
    row, summary = stored.row, stored.row.summary
    assert row.outcome is not None
    assert (row.outcome.name, row.outcome.exit_code) == ("crashed", None)
    if measured:
        assert (summary.throughput, summary.blocks, summary.measured_steps) == (64 / 3, 2, 8)
        assert stored.phases[-1].end_ns == 6 * S, "its last block"
        assert present(stored.phases[-1].energy_mj) > 3 * 600_000, "the first sample has more power"
        assert row.ended_utc_ns == UTC_NS + 6 * S - S // 2
    else:
        assert (summary.throughput, row.ended_utc_ns) == (None, UTC_NS)


def test_a_phase_that_began_after_the_last_sample_does_not_end_before_it_began(database_path: Path) -> None:
    with Store.open(database_path) as store:
        run = begin(store, owner=replace(this_process(), boot_id="an earlier boot"))
        store.write(run, (*PHASES, *SAMPLES, PhaseStarted(phase="finish", t_ns=5 * S)))
        mark_crashed_runs(store)
        stored = store.load(run)
    assert (stored.phases[-1].start_ns, stored.phases[-1].end_ns) == (5 * S, 5 * S)
    assert stored.row.ended_utc_ns == UTC_NS + 5 * S - S // 2


def test_a_child_s_run_is_its_own_until_it_is_killed(database_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from app.storage.store import Store; from tests.fakes.runs import begin\n"
        "store = Store.open(Path(sys.argv[1])); print(begin(store), flush=True); input()"
    )
    command = [sys.executable, "-c", code, str(database_path)]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, text=True)
    run = int(present(child.stdout).readline())
    with Store.open(database_path) as store:
        assert mark_crashed_runs(store) == []
        child.kill()
        child.communicate()
        assert mark_crashed_runs(store) == [run]
        assert mark_crashed_runs(store) == []
