"""How well steps scale, and why not better, on made-up runs whose truth is known."""

from dataclasses import replace

import pytest

from app.analysis.scaling import Cause, scalings
from app.values.records import StoredRun
from app.viewmodels.compare.scaling import describe_cause
from tests.fakes.scaling import EVENLY, IDEAL, LAUNCHING, LIMPING, ONE, STARVED, TALKING, run_of
from tests.present import present
from workloads.protocol import Evidence, RunSpec

Runs = tuple[StoredRun, ...]


@pytest.mark.parametrize(
    ("two", "kind", "efficiency", "cause"),
    [
        (IDEAL, "weak", 21 / 21.2, "few runs"),
        (TALKING, "weak", 21 / 26.5, "communication"),
        (LAUNCHING, "strong", 10.5 / 20, "launching"),
        (STARVED, "strong", 10.5 / 16, "computing"),
        (EVENLY, "weak", 21 / 25.5, "not known"),
    ],
)
def test_the_cause_is_the_part_that_takes_most_of_what_is_lost(
    two: Runs, kind: str, efficiency: float, cause: Cause
) -> None:
    (pair,) = scalings([*ONE, *two])
    assert (pair.kind, pair.cause) == (kind, cause)
    assert pair.efficiency.value == pytest.approx(efficiency, rel=1e-3)
    assert pair.speedup.value == pytest.approx(2 * efficiency, rel=1e-3)
    assert (pair.efficiency.interval, pair.comparisons) == (None, 0), "of two runs each"


def again(runs: Runs, by: int) -> Runs:
    return tuple(replace(run, row=replace(run.row, run=run.row.run + by)) for run in runs)


@pytest.mark.parametrize(
    ("examples", "kinds"), [((32, 64), ["weak"]), ((32, 32), ["strong"]), ((32, 48), []), ((1, 1), [])]
)
def test_a_script_scales_by_the_examples_that_were_counted(examples: tuple[int, int], kinds: list[str]) -> None:
    def of_script(run: StoredRun, per_step: int) -> StoredRun:
        variant = {"gpus": run.row.spec.variant["gpus"], "batch_size": 8, "command": "torchrun train.py"}
        summary = replace(run.row.summary, measured_steps=100, measured_examples=100 * per_step, throughput=1e3)
        return replace(
            run, row=replace(run.row, spec=RunSpec(workload="script:train.py", variant=variant), summary=summary)
        )

    runs = [of_script(run, count) for side, count in zip((ONE, IDEAL), examples, strict=True) for run in side]
    pairs = scalings(runs)
    assert [pair.kind for pair in pairs] == kinds, "of an accumulated batch, its own batch_size is a part"
    assert [(pair.few.batch_size, pair.many.batch_size) for pair in pairs] == [examples] * len(kinds)


def test_runs_of_a_script_whose_last_batches_were_smaller_are_of_one_variant() -> None:
    def of_script(run: StoredRun, gpus: int, examples: int) -> StoredRun:
        summary = replace(run.row.summary, measured_steps=100, measured_examples=examples, throughput=1e3)
        spec = RunSpec(workload="script:train.py", variant={"gpus": gpus, "command": "torchrun train.py"})
        return replace(run, row=replace(run.row, spec=spec, summary=summary))

    counts = ((1, 3200), (1, 3110), (1, 3200), (2, 6400), (2, 6400), (2, 6280))
    runs = [of_script(run, *count) for run, count in zip((*ONE, *IDEAL, *TALKING), counts, strict=True)]
    (pair,) = scalings(runs)
    assert (pair.kind, pair.few.batch_size, pair.many.batch_size) == ("weak", 32, 64)
    assert (len(pair.few.runs), len(pair.many.runs)) == (3, 3)


def test_all_numbers_of_gpus_over_the_same_few_are_one_family() -> None:
    one, two = (*ONE, *again(ONE, 100)), (*TALKING, *again(TALKING, 100))
    four = tuple(
        run_of(200 + n, gpus=4, batch=4096, compute_ms=(20.0,) * 4, communication_ms=9.0, luck=luck)
        for n, luck in enumerate((0.999, 1.0, 1.001))
    )
    (alone,) = scalings([*one, *two])
    first, second = scalings([*one, *two, *four])
    assert (alone.comparisons, first.comparisons, second.comparisons) == (1, 2, 2)
    (low, high), (wider_low, wider_high) = alone.efficiency.interval or (0, 0), first.efficiency.interval or (0, 0)
    assert wider_low < low < first.efficiency.value < high < wider_high


@pytest.mark.parametrize(
    ("steps_ms", "cause", "said"),
    [
        ((20.2, 22.0, 24.5), "loss not known", "Whether anything is lost is not known: the interval includes 100 %."),
        ((21.3, 21.4, 21.5), "small loss", "So little is lost that no cause is named."),
        ((19.0, 19.1, 19.2), "shorter step", "A step is shorter than an ideal one."),
        ((26.4, 26.5, 26.6), "communication", "Most likely communication"),
    ],
)
def test_that_nothing_is_lost_is_never_said(steps_ms: tuple[float, ...], cause: Cause, said: str) -> None:
    one = (*ONE, *again(ONE, 100))
    two = tuple(
        run_of(200 + n, gpus=2, batch=2048, compute_ms=(18.0, 18.0), communication_ms=step_ms - 18.5, idle_ms=0.5)
        for n, step_ms in enumerate(steps_ms)
    )
    (pair,) = scalings([*one, *two])
    assert (pair.cause, describe_cause(pair).replace("\xa0", " ").startswith(said)) == (cause, True)


def test_waiting_for_a_slow_gpu_is_not_taken_for_communication() -> None:
    (pair,) = scalings([*ONE, *LIMPING])
    assert pair.cause == "imbalance"
    assert pair.many.imbalance == pytest.approx(6 / 20)
    assert pair.many.straggler_ms == pytest.approx(6.0, rel=1e-2)
    assert present(pair.many.parts).communication_ms == pytest.approx(3.5, rel=1e-2), "it looks like communication"


def test_waiting_for_data_is_not_taken_for_launching() -> None:
    def waiting(run: StoredRun, pct: float) -> StoredRun:
        return replace(run, row=replace(run.row, summary=replace(run.row.summary, waiting_pct=pct)))

    (pair,) = scalings([*(waiting(run, 1.0) for run in ONE), *(waiting(run, 40.0) for run in LAUNCHING)])
    assert pair.cause == "data"
    assert pair.many.data_ms == pytest.approx(8.0, rel=1e-2)
    (pair,) = scalings([*(waiting(run, 1.0) for run in ONE), *(waiting(run, 2.0) for run in LAUNCHING)])
    assert pair.cause == "launching"
    assert "waiting for training data" not in describe_cause(pair)


@pytest.mark.parametrize(("setting", "said"), [("trace", "; the evidence"), ("graph", ". Runs with ")])
def test_without_a_trace_another_is_advised_where_none_was_set(setting: str, said: str) -> None:
    def of_setting(run: StoredRun) -> StoredRun:
        spec = RunSpec(workload="cnn10", variant={**run.row.spec.variant, "evidence": setting})
        return replace(run, row=replace(run.row, spec=spec), evidence=Evidence(requested={}, actual={}, match=None))

    (pair,) = scalings([of_setting(run) for run in (*ONE, *LAUNCHING)])
    assert describe_cause(pair).startswith(f"Why is not known: there is no trace of one side{said}")


def test_what_is_lost_adds_up_to_the_longer_step() -> None:
    (pair,) = scalings([*ONE, *LAUNCHING])
    assert pair.lost is not None
    assert pair.lost.step_ms == pytest.approx(pair.many.step_ms - pair.few.step_ms / 2)
    assert pair.lost.idle_ms == pytest.approx(8.5, rel=1e-2)
    assert present(pair.many.traced).kernels == 900
    assert pair.many.gap_us == pytest.approx(10.0, rel=1e-2)


def test_links_count_in_the_measured_part_alone_by_the_step() -> None:
    (pair,) = scalings([*ONE, *TALKING])
    assert pair.many.nvlink_bytes == pytest.approx(4.5e6, rel=1e-2)
    assert pair.many.communication_share == pytest.approx(5 / 25)
    assert pair.many.pcie_bytes is None


def test_one_run_each_has_no_interval_and_no_trace_no_cause() -> None:
    (pair,) = scalings([ONE[0], TALKING[0]])
    assert (pair.efficiency.interval, pair.cause) == (None, "communication")
    blind = run_of(9, gpus=2, batch=2048, compute_ms=(20.0, 20.0), communication_ms=9.0, traced=False)
    (pair,) = scalings([ONE[0], blind])
    assert (pair.lost, pair.cause) == (None, "not traced")


def test_only_runs_that_differ_in_gpus_alone_make_a_pair() -> None:
    assert [found.kind for found in scalings([*ONE, *TALKING, *LAUNCHING])] == ["weak", "strong"]
    assert scalings(ONE) == []
    other = run_of(9, gpus=2, batch=1536, compute_ms=(9.0, 9.0))
    assert scalings([*ONE, other]) == []
    card = replace(TALKING[0], row=replace(TALKING[0].row, gpu_names=("NVIDIA A100",) * 2))
    assert scalings([*ONE, card]) == []
    assert scalings([*ONE, *TALKING])


def test_one_gpu_is_the_base_of_every_all_reduce_and_four_of_two_of_the_same() -> None:
    two = run_of(20, gpus=2, batch=2048, compute_ms=(20.0, 20.0), all_reduce="one_device")
    four = run_of(21, gpus=4, batch=4096, compute_ms=(20.0,) * 4, all_reduce="hierarchical")
    assert [(pair.few.gpus, pair.many.gpus) for pair in scalings([*ONE, two, four])] == [(1, 2), (1, 4)]
    assert scalings([two, four]) == []
    alike = run_of(22, gpus=4, batch=4096, compute_ms=(20.0,) * 4, all_reduce="one_device")
    assert [(pair.few.gpus, pair.many.gpus) for pair in scalings([two, alike])] == [(2, 4)]
