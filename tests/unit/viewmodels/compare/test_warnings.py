"""Every reason to doubt a comparison, each from runs in a real database."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC
from typing import Any

import msgspec
import pytest

from app.storage.store import Store
from app.values.environment_keys import (
    CONCURRENT_GPUS_KEY,
    HOST_LOAD_KEY,
    IDLE_WAIT_BLOCKERS_KEY,
    IDLE_WAIT_KEY,
    IDLE_WAIT_S_KEY,
    OTHERS_ON_GPU_KEY,
    OTHERS_UNKNOWN_KEY,
    STOOD_STILL_KEY,
    THROTTLED_KEY,
)
from app.values.fields import Sample, SlowSample
from app.values.records import StoredRun
from app.values.samples import DeviceLost
from app.viewmodels.compare.statements import Statement
from app.viewmodels.compare.warnings import ALIKE_TIMES, comparison_warnings, machine_warnings
from app.viewmodels.format.environment import format_values_by_run
from app.viewmodels.format.sentences import NamedRuns, RunsWith, group_values
from app.viewmodels.history.run_detail import run_detail
from tests.fakes.evidence import AS_REQUESTED, IN_PART, MISLABELLED
from tests.fakes.traces import CONV, SLOW_GEMM, traced_run
from tests.unit.viewmodels.stored import GPUS, UTC_NS, S, keep, run_row, stored_run
from workloads.catalog import Machine, complete
from workloads.protocol import Evidence, Kernel, RunSpec, Value

ENVIRONMENT = {"driver": "580.1", "tensorflow": "2.21.0", "kernel": "6.8", "gpus_used": "NVIDIA H200 (GPU-0)"}
BEGIN_NS = 100 * S
MEASURED = range(BEGIN_NS + 4 * S, BEGIN_NS + 12 * S, S // 10)
"""Times of samples in the measured part."""


def stored(
    store: Store,
    number: int,
    *,
    environment: Mapping[str, str] = ENVIRONMENT,
    throughput: float = 1000.0,
    found: Evidence | None = AS_REQUESTED,
    **variant: Value,
) -> StoredRun:
    """A run of one GPU as the database has it; its number there is that of its turn."""
    row = run_row(number, workload="cnn10", throughput=throughput, found=found)
    row = replace(row, spec=RunSpec(workload="cnn10", variant={**row.spec.variant, **variant}))
    return store.load(keep(store, stored_run(row, environment=dict(environment), evidence=found)))


def sampled(store: Store, run: StoredRun, share: float = 1.0, **fields: int) -> StoredRun:
    """The same run with these fields of its GPU for so much of its measured part, and zeros after."""
    busy = int(share * len(MEASURED))
    readings = [fields if n < busy else dict.fromkeys(fields, 0) for n in range(len(MEASURED))]
    samples = [
        {"t_ns": t_ns + 1, "device": GPUS[0].device, **read} for t_ns, read in zip(MEASURED, readings, strict=True)
    ]
    store.write(run.row.run, msgspec.convert(samples, list[Sample]))
    return store.load(run.row.run)


def only(found: tuple[Statement, ...]) -> Statement:
    (warning,) = found
    return warning


def test_like_runs_give_no_doubt(store: Store) -> None:
    runs = [sampled(store, stored(store, n), throttle_reasons=1, power_limit_mw=700_000) for n in (1, 2)]
    assert comparison_warnings(runs) == ()
    assert comparison_warnings([stored(store, 3), runs[0]]) == (), "what nobody recorded is no difference"


def test_only_what_differs_of_the_environment_is_named_and_what_seldom_matters_is_a_note(store: Store) -> None:
    other = {**ENVIRONMENT, "driver": "575.2", "kernel": "6.9"}
    runs = [stored(store, 1), stored(store, 2, environment=other), stored(store, 3)]
    first, second = comparison_warnings(runs)
    assert first == Statement(
        "differs",
        {
            "name": "driver",
            "values": (RunsWith("580.1", NamedRuns((1, 3))), RunsWith("575.2", NamedRuns((2,)))),
            "where": NamedRuns((1, 2, 3), is_all=True),
        },
        {1: "580.1", 2: "575.2", 3: "580.1"},
        "warning",
    )
    assert first.sentence == (
        "NVIDIA driver differs: 575.2 (run 2), else 580.1. A difference in speed may come from that."
    )
    assert (second.facts["name"], second.severity) == ("kernel", "note")
    more = [stored(store, run, environment={"cpu_count": count}) for run, count in ((4, "8"), (5, "2"))]
    (processors,) = (warning for warning in comparison_warnings(more) if warning.facts.get("name") == "cpu_count")
    assert processors.facts["values"] == (RunsWith("8", NamedRuns((4,))), RunsWith("2", NamedRuns((5,))))
    assert processors.sentence.startswith("Number of processors differs: 8 (run 4), 2 (run 5). ")


def test_another_tensorflow_that_was_asked_for_is_a_note(store: Store) -> None:
    other = {**ENVIRONMENT, "tensorflow": "2.16.2"}
    runs = [stored(store, 1), stored(store, 2, environment=other, interpreter="/envs/tf216"), stored(store, 3)]
    found = only(comparison_warnings(runs))
    assert found.sentence.startswith(
        "TensorFlow differs: 2.16.2 (the run of Python …/tf216), else 2.21.0. No difference"
    )
    assert found.severity == "note"
    exchanged = stored(store, 4, interpreter="/envs/tf216")
    assert only(comparison_warnings([*runs, exchanged])).severity == "warning", "one environment had both"


def script_run(
    store: Store, number: int, *, amp: bool, counts: Mapping[str, int], gpus: int = 1, time_ns: int = 100
) -> StoredRun:
    """A run of a script that was traced for two steps, with so many of each kernel in a step."""
    kernels = tuple(Kernel(name=name, kind="gemm", count=2 * count, time_ns=time_ns) for name, count in counts.items())
    found = msgspec.structs.replace(IN_PART, steps=2 if counts else 0, kernels=kernels)
    row = run_row(number, workload="cnn10", throughput=1000.0, found=found)
    spec = RunSpec(workload="script:train.py", variant={"gpus": gpus, "{amp}": amp})
    return store.load(keep(store, stored_run(replace(row, spec=spec), environment=dict(ENVIRONMENT), evidence=found)))


def unchanged(runs: Sequence[StoredRun]) -> list[Statement]:
    return [warning for warning in comparison_warnings(runs) if warning.key == "unchanged"]


def test_a_flag_that_changed_nothing_that_ran_is_told(store: Store) -> None:
    off = [script_run(store, number, amp=False, counts={"a": 2, "b": 1}) for number in (1, 2)]
    same = script_run(store, 3, amp=True, counts={"b": 1, "a": 2})
    (warning,) = unchanged([*off, same])
    assert warning.facts == {"variants": (("amp off",), ("amp on",))}
    assert warning.runs == {1: "amp off", 2: "amp off", 3: "amp on"}
    assert unchanged(off) == [], "one variant"
    assert unchanged([*off, script_run(store, 4, amp=True, counts={"a": 2, "b": 2})]) == [], "one kernel more often"
    assert unchanged([*off, script_run(store, 5, amp=True, counts={"a": 2, "c": 1})]) == [], "another kernel"
    for number, longer, count in ((8, ALIKE_TIMES, 1), (9, 1.01 * ALIKE_TIMES, 0)):
        slower = script_run(store, number, amp=True, counts={"a": 2, "b": 1}, time_ns=round(100 * longer))
        assert len(unchanged([*off, slower])) == count, "longer kernels have more data"
    untraced = [script_run(store, 6, amp=True, counts={}), script_run(store, 7, amp=False, counts={})]
    assert unchanged(untraced) == [], "nothing is known"


@pytest.mark.parametrize(
    ("first", "second", "examples", "is_warned"),
    [
        ({"{batch}": 32}, {"{batch}": 64}, 10, True),
        ({"{batch}": 32}, {"{batch}": 64}, 320, False),
        ({"{batch}": 32}, {"{batch}": 32, "{amp}": True}, 10, False),
        ({"{model}": "a"}, {"{model}": "b"}, 10, False),
    ],
)
def test_steps_that_may_differ_in_size_are_told(
    store: Store, first: Mapping[str, Value], second: Mapping[str, Value], examples: int, is_warned: bool
) -> None:
    def run(number: int, variant: Mapping[str, Value]) -> StoredRun:
        loaded = stored(store, number)
        summary = replace(loaded.row.summary, measured_steps=10, measured_examples=examples)
        spec = RunSpec(workload="script:train.py", variant=dict(variant))
        return replace(loaded, row=replace(loaded.row, spec=spec, summary=summary))

    keys = [warning.key for warning in comparison_warnings([run(1, first), run(2, second)])]
    assert ("examples" in keys) == is_warned


def test_variants_that_nothing_tells_apart_are_told(store: Store) -> None:
    standard = msgspec.structs.replace(IN_PART, requested={**IN_PART.requested, "implementation": "standard"})
    runs = [
        stored(store, number, found=found, implementation=found.requested["implementation"])
        for number, found in enumerate((IN_PART, IN_PART, standard), 1)
    ]
    assert comparison_warnings(runs[:2]) == (), "one variant is not compared with itself"
    warning = only(comparison_warnings(runs))
    assert warning.sentence == (
        "The evidence does not show that gemm2 and standard ran different code. "
        f"A difference in speed proves nothing. {IN_PART.reason}"
    )
    assert warning.runs == {1: "gemm2", 2: "gemm2", 3: "standard"}
    seen = msgspec.structs.replace(standard, kernels=AS_REQUESTED.kernels)
    assert comparison_warnings([runs[0], stored(store, 4, found=seen, gpus=1)]) == (), "its kernels are others"


def test_dropout_of_cudnns_whole_stack_is_another_one(store: Store) -> None:
    def run(number: int, implementation: str, **given: Value) -> StoredRun:
        variant = complete("lstm", {"implementation": implementation, "layers": 2, **given}, Machine()).variant
        made = stored(store, number)
        return replace(made, row=replace(made.row, spec=RunSpec(workload="lstm", variant=variant)))

    stack, layer = run(1, "cudnn_stack", dropout=0.5), run(2, "cudnn", dropout=0.5)
    warning = only(comparison_warnings([stack, layer]))
    assert warning.sentence.startswith("Dropout is not the same: cuDNN's whole stack leaves out other values")
    assert warning.runs == {1: "between layers", 2: "before each layer"}
    assert comparison_warnings([run(3, "cudnn_stack"), run(4, "cudnn"), layer]) == ()


def test_a_run_that_is_not_what_it_is_called(store: Store) -> None:
    warning = only(comparison_warnings([stored(store, 1), stored(store, 2, found=MISLABELLED)]))
    assert warning.sentence == (
        f"Run 2 did not run what was requested. {MISLABELLED.reason} "
        "So the verdict is about what ran, not what was requested."
    )
    assert (warning.key, warning.runs) == ("evidence", {2: MISLABELLED.reason})


@pytest.mark.parametrize(
    ("reasons", "words", "severity"),
    [
        (0x20, "because of heat", "warning"),
        (0x41, "because of heat", "warning"),
        (0x4, "by the power limit", "note"),
        (0x80, "by a hardware slowdown", "warning"),
    ],
)
def test_one_run_held_back_and_another_not(store: Store, reasons: int, words: str, severity: str) -> None:
    hot = sampled(store, stored(store, 1), share=0.5, throttle_reasons=reasons)
    free = sampled(store, stored(store, 2), throttle_reasons=1)
    warning = only(comparison_warnings([hot, free]))
    assert (
        warning.sentence == f"GPUs were throttled {words} in run 1, for 50\xa0% of the measured part. That slows them."
    )
    assert warning.severity == severity
    assert comparison_warnings([sampled(store, stored(store, 3), share=0.03, throttle_reasons=reasons), free]) == (), (
        "a moment"
    )


@pytest.mark.parametrize("reasons", [0x20, 0x40, 0x80])
def test_all_runs_held_back_are_told_of_but_for_the_power_limit(store: Store, reasons: int) -> None:
    hot = [sampled(store, stored(store, n), throttle_reasons=reasons | 0x4) for n in (1, 2)]
    warning = only(comparison_warnings(hot))
    assert warning.facts == {"share_pct": (100.0, 100.0), "where": NamedRuns((1, 2), is_all=True)}
    assert (warning.severity, warning.runs) == ("warning", dict.fromkeys((1, 2), "100\N{NO-BREAK SPACE}%"))
    assert only(comparison_warnings([*hot, stored(store, 3)])).facts["where"].text == "runs 1 and 2"


def test_the_drivers_counter_sees_what_samples_miss(store: Store) -> None:
    runs = [stored(store, 1), stored(store, 2)]
    for run, held_ns in zip(runs, (0, 2 * S), strict=True):
        readings = ((BEGIN_NS + 2 * S, 7), (BEGIN_NS + 14 * S, 7 + held_ns * 12 // 8))
        store.write(
            run.row.run,
            [SlowSample(t_ns=t, device=GPUS[0].device, throttled_thermal_ns=value) for t, value in readings],
        )
    warning = only(comparison_warnings([store.load(run.row.run) for run in runs]))
    assert warning.key == "throttled heat"
    assert warning.facts == {"share_pct": pytest.approx((25.0,)), "where": NamedRuns((2,))}


def test_settings_of_the_card_differ(store: Store) -> None:
    low = sampled(store, stored(store, 1), power_limit_mw=400_000, throttle_reasons=0)
    full = sampled(store, stored(store, 2), power_limit_mw=700_000, throttle_reasons=0)
    assert only(comparison_warnings([low, full])).sentence == (
        "The GPUs' power limit differs: 400\N{NO-BREAK SPACE}W (run 1), 700\N{NO-BREAK SPACE}W (run 2). "
        "A difference in speed may come from that."
    )
    fixed = sampled(store, stored(store, 3), power_limit_mw=700_000, throttle_reasons=0x2)
    assert only(comparison_warnings([fixed, full])).sentence == (
        "How the GPUs' clocks are set differs: set by hand (run 3), automatic (run 2). "
        "A difference in speed may come from that."
    )


def test_another_kind_of_card_is_told_though_the_runs_asked_for_it(store: Store) -> None:
    runs = [stored(store, 1, devices="0"), stored(store, 2, devices="1")]
    assert comparison_warnings(runs) == ()
    other = replace(runs[1], row=replace(runs[1].row, gpu_names=("NVIDIA A100",)))
    assert only(comparison_warnings([runs[0], other])).sentence == (
        "The kind of GPU differs: NVIDIA H200 (the run on 0), NVIDIA A100 (the run on 1). "
        "A difference in speed may come from that."
    )


def test_somebody_else_on_the_gpu(store: Store) -> None:
    shared = stored(store, 1, environment={**ENVIRONMENT, OTHERS_ON_GPU_KEY: "python3 (4242)"})
    warning = only(comparison_warnings([shared, stored(store, 2)]))
    assert warning.sentence == (
        "Other processes used the GPU during a run, which makes it slower. Run 1: python3 (4242)."
    )
    assert (warning.key, warning.runs) == (OTHERS_ON_GPU_KEY, {1: "python3 (4242)"})


def test_a_run_that_was_suspended(store: Store) -> None:
    suspended = stored(store, 1, environment={**ENVIRONMENT, STOOD_STILL_KEY: "600"})
    assert only(comparison_warnings([suspended, stored(store, 2)])).sentence == (
        "Everything was suspended during a run, and its figures hold that time too. Run 1: 600\xa0s."
    )


def test_nobody_knows_who_else_is_on_the_gpu(store: Store) -> None:
    unknown = stored(store, 1, environment={**ENVIRONMENT, OTHERS_UNKNOWN_KEY: "no permission"})
    warning = only(comparison_warnings([unknown, stored(store, 2)]))
    assert warning.severity == "note"
    assert warning.sentence == (
        "Whether other processes used the GPU is unknown: nobody could list them. "
        "Any would have made the run slower. Run 1: no permission."
    )


def test_a_gpu_that_was_lost_and_answered_again(store: Store) -> None:
    whole, run = stored(store, 1), stored(store, 2)
    lost_ns = run.anchor_t_ns + 5 * S
    store.write(run.row.run, [DeviceLost(t_ns=lost_ns, device=GPUS[0].device, reason="It fell off the bus.")])
    store.write(run.row.run, [DeviceLost(t_ns=lost_ns + S, device=GPUS[0].device, reason="Again.")])
    warning = only(comparison_warnings([whole, store.load(run.row.run, ())]))
    lost = "GPU 0 was lost after 5.00\u00a0s: It fell off the bus."
    assert warning.sentence == f"A device stopped answering during a run, which may have slowed it. Run 2: {lost}"
    whole_run = store.load(run.row.run)
    assert run_detail(whole_run, UTC).notes == (f"{lost} It answered again after 5.10\u00a0s.",)


def test_a_run_that_began_on_a_gpu_that_was_not_at_rest(store: Store) -> None:
    def after(number: int, outcome: str, blockers: str = "", **variant: Any) -> StoredRun:
        wait = {IDLE_WAIT_KEY: outcome, IDLE_WAIT_S_KEY: f"{60 + number}", IDLE_WAIT_BLOCKERS_KEY: blockers}
        return stored(store, number, environment={**ENVIRONMENT, **wait}, **variant)

    timed_out = [after(n, "timed out", "init (1) on GPU 0") for n in (1, 2)]
    fair = [after(3, "idle"), after(4, "skipped", "GPU 0 at 70\xa0°C"), after(5, "off")]
    warning = only(comparison_warnings([*timed_out, *fair]))
    assert warning.sentence == (
        "The wait for idle GPUs timed out; runs may be slower. Runs 1 and 2: init (1) on GPU 0."
    )
    assert (warning.severity, warning.runs) == ("warning", dict.fromkeys((1, 2), "init (1) on GPU 0"))
    host = [after(n, "timed out", "the processors at 34\xa0%", gpus=0) for n in (6, 7)]
    assert IDLE_WAIT_KEY not in [warning.key for warning in comparison_warnings(host)], (
        "how busy it was while they measured is told"
    )


def earlier(store: Store, run: StoredRun, *shown: StoredRun) -> list[StoredRun]:
    return [
        store.load(number, ())
        for number in store.library.earlier_runs(run.row.run, [each.row.run for each in shown], 10)
    ]


def test_a_baseline_that_ran_otherwise_before_has_drifted(store: Store) -> None:
    for number, rate in enumerate((1000.0, 1003.0, 997.0), 1):
        stored(store, number, throughput=rate, layout="NHWC")
    elsewhere = stored(store, 4, throughput=500.0, layout="NHWC", environment={**ENVIRONMENT, "driver": "1"})
    newest = stored(store, 5, throughput=950.0, layout="NHWC")
    other = stored(store, 6, throughput=1064.0)
    older = earlier(store, newest, newest, other)
    assert elsewhere.row.run in [run.row.run for run in older], "found, but of another environment"
    warning = only(comparison_warnings([newest, other], older))
    assert warning.sentence == (
        "The baseline has drifted: its speed has changed by −5.0\xa0% from older runs "
        "of the same variant in the same environment. Do not compare with those."
    )
    assert warning.runs == {5: "950\N{NO-BREAK SPACE}images/s"}
    steady = stored(store, 7, throughput=1001.0, layout="NHWC")
    assert comparison_warnings([steady, other], earlier(store, steady, steady, other, newest)) == ()


def test_one_older_run_and_one_new_one_tell_nothing(store: Store) -> None:
    old, new = (stored(store, n, throughput=rate, layout="NHWC") for n, rate in ((1, 1000.0), (2, 900.0)))
    older = earlier(store, new, new)
    assert [run.row.run for run in older] == [old.row.run]
    assert comparison_warnings([new, stored(store, 3)], older) == ()


def test_a_newer_program_or_another_wait_is_no_other_environment_for_a_drift(store: Store) -> None:
    keys = IDLE_WAIT_S_KEY, HOST_LOAD_KEY, THROTTLED_KEY

    def facts(number: int) -> dict[str, str]:
        return {**ENVIRONMENT, **dict.fromkeys(keys, str(number)), "git_commit": "a" if number < 4 else "b"}

    for number, rate in enumerate((1000.0, 1003.0, 997.0), 1):
        stored(store, number, throughput=rate, layout="NHWC", environment=facts(number))
    newest, other = (
        stored(store, n, throughput=950.0, layout=x, environment=facts(n)) for n, x in ((4, "NHWC"), (5, "NCHW"))
    )
    assert [warning.key for warning in comparison_warnings([newest, other], earlier(store, newest, newest, other))] == [
        "drift"
    ]


def test_a_processor_that_others_used_is_told_with_how_much_of_it(store: Store) -> None:
    """The made-up host is at 90 %, with a worker that uses one and a half processors."""
    of_two, of_four = ({**ENVIRONMENT, "cpu_count": count} for count in ("2", "4"))
    quiet, busy = (stored(store, n, environment=of, gpus=0) for n, of in ((1, of_two), (2, of_four)))
    assert "others_on_host" not in {warning.key for warning in comparison_warnings([quiet])}
    warning = next(warning for warning in comparison_warnings([quiet, busy]) if warning.key == "others_on_host")
    assert warning.sentence == (
        "Other programs used the CPU while a run measured: 52\xa0% in run 2. That may change speed by up to 52.5\xa0%."
    )
    assert (warning.runs[1], warning.severity) == ("15\N{NO-BREAK SPACE}%", "warning")
    assert [[found.key for found in machine_warnings(run)] for run in (quiet, busy)] == [[], ["others_on_host"]]
    assert {found.sentence for found in machine_warnings(busy)} <= set(run_detail(busy, UTC).notes)


def test_a_host_that_others_used_matters_to_a_gpu_as_far_as_that_waits_for_it(store: Store) -> None:
    of_four = {**ENVIRONMENT, "cpu_count": "4"}
    busy_ms = {1: 16, 2: 31.9}
    runs = []
    for number, busy in busy_ms.items():
        found = msgspec.structs.replace(AS_REQUESTED, steps=2, busy_ns=int(2e6 * busy))
        runs.append(stored(store, number, environment=of_four, found=found))
    warning = next(warning for warning in comparison_warnings(runs) if warning.key == "others_on_host")
    assert warning.facts["where"].text == "run 1"
    assert warning.facts["possible_pct"] == pytest.approx(26.25), "half of 32\xa0ms"
    not_traced = msgspec.structs.replace(AS_REQUESTED, steps=0, busy_ns=0)
    untraced = comparison_warnings([stored(store, 3, environment=of_four, found=not_traced)])
    assert next(warning for warning in untraced if warning.key == "others_on_host").facts["possible_pct"] is None


def on_card(store: Store, number: int, card: int, started_s: int, **facts: str) -> StoredRun:
    started_ns = UTC_NS + started_s * S
    row = run_row(number, workload="cnn10", found=AS_REQUESTED)
    row = replace(row, started_utc_ns=started_ns, ended_utc_ns=started_ns + 12 * S)
    run = stored_run(row, environment={**ENVIRONMENT, **facts}, evidence=AS_REQUESTED)
    host, gpu = run.samples
    return store.load(keep(store, replace(run, samples=(host, replace(gpu, device=GPUS[card])))))


def test_runs_that_went_on_at_the_same_time_had_company_also_where_they_do_not_say_so(store: Store) -> None:
    old = [on_card(store, 1, 0, 0), on_card(store, 2, 1, 5)]
    new = on_card(store, 3, 0, 100, **{CONCURRENT_GPUS_KEY: "NVIDIA H200 (GPU-1)"})
    assert CONCURRENT_GPUS_KEY not in {warning.key for warning in comparison_warnings([*old, new])}
    alone = on_card(store, 4, 1, 200)
    warning = next(warning for warning in comparison_warnings([*old, new, alone]) if warning.key == CONCURRENT_GPUS_KEY)
    assert warning.facts == {"where": NamedRuns((1, 2, 3))}
    on_cpu = stored(store, 5, gpus=0)
    assert CONCURRENT_GPUS_KEY not in {warning.key for warning in comparison_warnings([new, on_cpu])}, (
        "it has no card to be alone on"
    )


def test_implausible_readings_are_named_with_their_number(store: Store) -> None:
    wrong, few = stored(store, 1), stored(store, 2)
    for run, fields, count in ((wrong, ("power_mw",), 80), (wrong, ("load_pct",), 8), (few, ("load_pct",), 8)):
        samples = [Sample(t_ns=t_ns, device=GPUS[0].device, implausible=fields) for t_ns in MEASURED[:count]]
        store.write(run.row.run, samples)
    wrong, few = (store.load(run.row.run) for run in (wrong, few))
    fine = stored(store, 3)
    warning = only(comparison_warnings([wrong, few, fine]))
    assert (warning.key, warning.severity) == ("implausible", "note")
    assert warning.sentence == (
        "Readings of telemetry that cannot be true were left out. No difference in speed is expected from that. "
        "Run 1: Power 80, Load 8 of GPU 0. Run 2: Load 8 of GPU 0."
    )
    assert set(warning.runs) == {1, 2}
    note = "Implausible readings were left out: Power 80, Load 8 of GPU 0. Too few are left to know its energy."
    assert run_detail(wrong, None).notes == (note,)
    assert run_detail(few, None).notes == ("Implausible readings were left out: Load 8 of GPU 0.",)


def test_runs_beside_others_are_told_only_where_some_were_alone(store: Store) -> None:
    concurrent = {**ENVIRONMENT, CONCURRENT_GPUS_KEY: "NVIDIA H200 (GPU-1)"}
    first, second, alone = (
        stored(store, 1, environment=concurrent),
        stored(store, 2, environment=concurrent),
        stored(store, 3),
    )
    assert comparison_warnings([first, second]) == (), "both alike"
    warning = only(comparison_warnings([first, second, alone]))
    assert warning.sentence == "Runs on other GPUs shared the machine with runs 1 and 2, which may be slower for it."
    assert (warning.severity, warning.runs[1], warning.runs[3]) == ("warning", "NVIDIA H200 (GPU-1)", "")


def test_many_runs_that_were_held_back_share_their_figures(store: Store) -> None:
    held = [sampled(store, stored(store, n), share=0.5 + n / 100, throttle_reasons=0x20) for n in range(10, 50, 10)]
    free = sampled(store, stored(store, 50), throttle_reasons=0)
    more = sampled(store, stored(store, 60), share=0.95, throttle_reasons=0x20)
    numbers = [run.row.run for run in (*held, more)]
    assert only(comparison_warnings([*held, more, free])).sentence == (
        f"GPUs were throttled because of heat in runs {numbers[0]}–{numbers[-2]} and {numbers[-1]}, "
        "for 60–95\xa0% of the measured part. That slows them."
    )


A, B = (f"GPU-{n}0f9e528-442d-8f26-7fb6-6a98c6af317d" for n in (1, 2))


def on_cards(store: Store, number: int, *cards: str, flops: int | None = None, **variant: Any) -> StoredRun:
    """A run that used these cards of one kind, chosen by the program."""
    row = run_row(number, workload="cnn10", gpu_names=("NVIDIA H200",) * len(cards), **variant)
    run = store.load(keep(store, stored_run(row)))
    gpu = next(each for each in run.samples if each.device.kind == "gpu")
    samples = tuple(replace(gpu, device=msgspec.structs.replace(gpu.device, device=card)) for card in cards)
    return replace(
        run, samples=samples, row=replace(row, gpus=cards, summary=replace(row.summary, flops_per_step=flops))
    )


def test_two_cards_that_every_variant_ran_on_are_a_remark(store: Store) -> None:
    turns = ((A, "NHWC"), (A, "NCHW"), (B, "NHWC"), (B, "NCHW"), (A, "NHWC"))
    runs = [on_cards(store, n, card, layout=layout) for n, (card, layout) in enumerate(turns, 1)]
    warning = only(comparison_warnings(runs))
    assert (warning.key, warning.severity, warning.runs[3]) == ("gpus_uneven", "note", B)
    assert warning.facts == {"gpus": 2, "kind": "NVIDIA H200", "uses": (3, 2), "possible_pct": 0.0}
    assert comparison_warnings([run for run, (card, _) in zip(runs, turns, strict=True) if card == A]) == (), "one card"


@pytest.mark.parametrize(
    ("cards", "severity", "key"),
    [((A, B, B), "note", "gpus_uneven"), ((A, A, A), "warning", "gpus_apart"), ((B, A, A), "note", "gpus_used")],
)
def test_cards_that_variants_are_spread_unevenly_over_are_said(
    store: Store, cards: Sequence[str], severity: str, key: str
) -> None:
    turns = [*((card, "NHWC") for card in (A, A, B)), *((card, "NCHW") for card in cards)]
    runs = [on_cards(store, n, card, layout=layout) for n, (card, layout) in enumerate(turns, 1)]
    warning = next(each for each in comparison_warnings(runs) if each.key.startswith("gpus_"))
    assert (warning.key, warning.severity) == (key, severity)


def test_that_variants_share_no_card_is_said(store: Store) -> None:
    turns = ((A, "NCHW", 64), (B, "NHWC", 64), (A, "NCHW", 64), (A, "NCHW", 128), (B, "NCHW", 128))
    runs = [on_cards(store, n, card, layout=layout, batch_size=b) for n, (card, layout, b) in enumerate(turns, 1)]
    warning = next(each for each in comparison_warnings(runs) if each.key == "gpus_apart")
    assert warning.sentence == (
        "Some variants ran on other GPUs than those they are compared with, of 2 NVIDIA H200. "
        "A difference in speed may come from that."
    )
    assert warning.severity == "warning"


def test_variants_that_do_other_work_need_no_card_in_common(store: Store) -> None:
    small = on_cards(store, 1, A, flops=1000, batch_size=64)
    large = on_cards(store, 2, B, flops=9000, batch_size=64, depth=4)
    assert only(comparison_warnings([small, large])).severity == "note"


def test_one_card_and_two_differ_as_asked(store: Store) -> None:
    runs = [on_cards(store, 1, A, gpus=1), on_cards(store, 2, A, B, gpus=2)]
    assert comparison_warnings(runs) == ()
    assert only(comparison_warnings([*runs, on_cards(store, 3, B, gpus=1, layout="NHWC")])).severity == "warning"


def test_of_many_cards_only_how_often_they_were_used(store: Store) -> None:
    cards = [A.replace("GPU-1", f"GPU-{n}") for n in range(1, 6)]
    runs = [on_cards(store, n, card) for n, card in enumerate([*cards, cards[0]], 1)]
    assert only(comparison_warnings(runs)).sentence == "5 NVIDIA H200 were used, each for 1–2 of the runs."
    assert only(comparison_warnings(runs[:2])).sentence == "2 NVIDIA H200 were used, each for 1 of the runs."


def test_who_shared_the_gpus_of_many_runs_is_said_once(store: Store) -> None:
    runs = [stored(store, n, environment={**ENVIRONMENT, OTHERS_ON_GPU_KEY: f"p{max(1, n - 4)}"}) for n in range(1, 11)]
    assert only(comparison_warnings(runs)).sentence.endswith(" Runs 1–5: p1. Run 6: p2. Run 7: p3. Run 8: p4. 2 more.")


def test_of_a_fact_with_many_values_a_few_are_told() -> None:
    assert (
        format_values_by_run(group_values((n, f"v{min(n, 7)}") for n in range(1, 12)))
        == "v1 (run 1), v2 (run 2), 4 other values, else v7"
    )
    cards = {1: f"NVIDIA H200 ({A})", 2: f"NVIDIA H200 ({B})", 3: f"NVIDIA H200 ({B})"}
    assert (
        format_values_by_run(group_values(cards.items()))
        == "NVIDIA H200 (GPU-10f9e528) (run 1), else NVIDIA H200 (GPU-20f9e528)"
    )


def test_products_without_tensor_cores_are_a_warning_where_they_take_much_of_a_step() -> None:
    good = traced_run(1, 20.0, {CONV: 10.0}, layout="NHWC")
    slow = [traced_run(n, 20.0, {CONV: 9.0, SLOW_GEMM: 1.0 + n / 10}, layout="NCHW") for n in (4, 6)]
    (warning,) = (each for each in comparison_warnings([good, *slow]) if each.key == "tensor_cores")
    assert warning.severity == "warning"
    assert warning.sentence == (
        "Products ran without tensor cores although the precision is meant for them. "
        "They take 7–8\xa0% of a step in both runs of NCHW, which would be faster with them."
    )
    assert warning.runs == {4: "1.40\xa0ms (7.0\xa0%)", 6: "1.60\xa0ms (8.0\xa0%)"}
    float32 = traced_run(7, 20.0, {SLOW_GEMM: 12.0}, precision="float32")
    assert "tensor_cores" not in {each.key for each in comparison_warnings([good, float32])}
