"""What really ran, in words: the badge, asked beside ran, where the traced time went, weights tried elsewhere."""

from dataclasses import replace

import msgspec
import pytest

from app.analysis.summary import flops_per_s, mfu
from app.metrics import METRIC_BY_KEY
from app.values.events import Summary
from app.values.records import RunRow
from app.viewmodels.format import cells
from app.viewmodels.format.cells import Cell
from app.viewmodels.history.evidence import (
    EvidenceView,
    describe_mismatches,
    evidence_view,
    mismatches,
    stored_evidence_view,
    unchecked_parameters,
)
from app.viewmodels.history.kernel_time import MAX_KERNELS
from tests.fakes.evidence import AS_REQUESTED, IN_PART, MISLABELLED, ON_CPU, PORTABLE, UNKNOWN
from tests.fakes.scaling import LIMPING, ONE
from tests.fakes.traces import CONV, SLOW_GEMM, traced_run
from tests.unit.viewmodels.stored import run_row, stored_run
from workloads.kernels import classify, image_layout
from workloads.protocol import Evidence, Kernel, OutcomeName, RunSpec, Value

NBSP = "\N{NO-BREAK SPACE}"


def view(found: Evidence | None, outcome: OutcomeName | None = "completed", **variant: Value) -> EvidenceView:
    row = run_row(1, outcome=outcome, found=found)
    spec = RunSpec(workload="lstm", variant={**row.spec.variant, "gpus": 1, **variant})
    return stored_evidence_view(stored_run(replace(row, spec=spec), evidence=found))


def test_a_mislabelled_run_says_why_and_where() -> None:
    shown = view(MISLABELLED)
    assert (shown.badge.symbol, shown.badge.title, shown.badge.tone) == ("✘", "Mismatch", "warning")
    assert shown.badge.detail == MISLABELLED.reason
    assert [(aspect.name, aspect.differs) for aspect in shown.aspects] == [
        ("Implementation", True),
        ("Precision", False),
        ("XLA", False),
        ("Device", False),
        ("Replicas", False),
    ]
    assert shown.aspects[0].actual == "Standard"


def test_what_is_not_known_says_why_not() -> None:
    shown = view(UNKNOWN)
    assert (shown.badge.symbol, shown.badge.tone) == ("?", "quiet")
    assert shown.badge.detail == UNKNOWN.reason
    assert (shown.aspects[0].requested != "–", shown.aspects[0].actual, shown.aspects[0].differs) == (True, "–", False)
    assert [aspect.symbol for aspect in shown.aspects] == ["?", "?", "?"]
    assert (shown.kernels, shown.classes, shown.idle_share, shown.traced) == ((), (), "", "")
    assert shown.notes == UNKNOWN.notes


def test_what_is_verified_in_part_says_which_part_and_why_not_the_rest() -> None:
    shown = view(IN_PART, implementation="gemm2")
    assert (shown.badge.symbol, shown.badge.title, shown.badge.tone) == ("◐", "Verified in part", "busy")
    same_graph = "The executed graph looks the same for Standard and 2 GEMMs."
    assert shown.badge.detail == f"TF32 products · XLA off · 1 GPU. Not verifiable: implementation. {same_graph}"
    assert [aspect.symbol for aspect in shown.aspects] == ["?", "✔", "✔", "✔", "✔"]
    assert not any(aspect.differs for aspect in shown.aspects)


def test_a_mismatch_says_among_the_notes_what_else_could_not_be_seen() -> None:
    half = msgspec.structs.replace(MISLABELLED, unverified={"precision": "No kernel was traced."})
    shown = view(half)
    assert shown.badge.detail == MISLABELLED.reason
    assert shown.notes == ("Not verifiable: precision. No kernel was traced.",)


def test_what_keras_was_left_to_choose_is_as_requested() -> None:
    auto = msgspec.structs.replace(
        AS_REQUESTED,
        requested={**AS_REQUESTED.requested, "implementation": "auto", "precision": "float32"},
        match=False,
        reason="No.",
    )
    assert [aspect.name for aspect in view(auto).aspects if aspect.differs] == ["Precision"]
    actual = {**AS_REQUESTED.actual, "implementation": "standard", "precision": "float32"}
    fell_back = msgspec.structs.replace(auto, actual=actual, match=True, reason="Keras did not use cuDNN.")
    shown = view(fell_back, implementation="auto")
    assert not any(aspect.differs for aspect in shown.aspects)
    assert shown.badge.detail == (
        "Auto: Standard · float32 products on tensor cores · XLA off · 1 GPU. Keras did not use cuDNN."
    )


def test_the_parameters_of_a_custom_workload_are_not_checked_but_for_its_layout() -> None:
    custom: dict[str, Value] = {"source": "0" * 64, "units": 512, "on": True, "layout": "NCHW", "data_format": "NHWC"}
    row = run_row(1, outcome="completed", found=ON_CPU)
    spec = RunSpec(workload="own.py:net", variant={"seed": 1, "gpus": 0, "xla": False, **custom})
    for requested, names, text in (
        ({}, ["units", "on", "layout", "data_format"], "units, on, layout and data_format"),
        ({"layout": "NCHW"}, ["units", "on", "data_format"], "units, on and data_format"),
    ):
        found = msgspec.structs.replace(ON_CPU, requested={**ON_CPU.requested, **requested})
        shown = stored_evidence_view(stored_run(replace(row, spec=spec), evidence=found))
        assert unchecked_parameters(spec, found) == names
        assert shown.badge.title == "Verified"
        assert shown.badge.detail.endswith(f" · CPU. Not checked: what the code makes of {text}.")
        unchecked = [(aspect.name, aspect.requested) for aspect in shown.aspects if aspect.actual == "not checked"]
        assert unchecked[:2] == [("Units", "512"), ("On", "True")]
        assert len(unchecked) == len(names)
    assert unchecked_parameters(row.spec, AS_REQUESTED) == []


def products(tensor_pct: int, other_pct: int = 0) -> Evidence:
    """Evidence of products, so much of their time on tensor cores, and of a point-wise kernel next to them."""
    rows = (
        ("gemm_tensorop", tensor_pct, True),
        ("sgemm", 100 - tensor_pct, False),
        ("EigenMetaKernel", other_pct, None),
    )
    kernels = tuple(
        Kernel(name=name, kind=classify(name), count=1, time_ns=time_ns, tensor_cores=cores)
        for name, time_ns, cores in rows
    )
    return msgspec.structs.replace(AS_REQUESTED, kernels=kernels)


@pytest.mark.parametrize(
    ("tensor_pct", "other_pct", "text"),
    [
        (50, 0, "TF32 products"),
        (51, 0, "TF32 products on tensor cores"),
        (0, 900, "TF32 products"),
        (0, 901, f"TF32 products (10.0{NBSP}% of the traced time)"),
        (100, 99_900, f"TF32 products on tensor cores (0.1{NBSP}% of the traced time)"),
    ],
)
def test_a_precision_is_that_of_the_products_and_how_small_they_are_is_told(
    tensor_pct: int, other_pct: int, text: str
) -> None:
    assert view(products(tensor_pct, other_pct)).badge.detail == f"cuDNN · {text} · XLA off · 1 GPU"


@pytest.mark.parametrize(
    ("outcome", "variant", "words"),
    [
        ("completed", {}, "The run is from a version that did not collect evidence yet."),
        ("completed", {"evidence": "off"}, "It was not requested."),
        ("failed", {"evidence": "trace"}, "The run ended before it could be collected."),
        ("refused", {}, "The run never began."),
        (None, {"evidence": "trace"}, "It is collected after the measured part of a run."),
    ],
)
def test_where_there_is_none_it_says_why(outcome: OutcomeName | None, variant: dict[str, Value], words: str) -> None:
    shown = view(None, outcome, **variant)
    assert shown.badge.title == ("No evidence was stored" if outcome else "No evidence yet")
    assert (shown.badge.symbol, shown.badge.detail, shown.aspects) == ("", words, ())


def test_kernels_of_no_time_at_all_are_in_no_layout() -> None:
    name = "sm80_xmma_fprop_implicit_gemm_f32_nchwkcrs_nchw"
    kernel = Kernel(name=name, count=1, time_ns=0, kind="convolution", tensor_cores=False)
    evidence = msgspec.structs.replace(AS_REQUESTED, requested={"layout": "NHWC"}, kernels=(kernel,), steps=1)
    assert image_layout(name) == "NCHW"
    assert not any("layouts of their own" in note for note in view(evidence).notes)


def test_kernels_are_ranked_with_their_share_and_the_rest_together() -> None:
    shown = view(AS_REQUESTED)
    total_ns = sum(kernel.time_ns for kernel in AS_REQUESTED.kernels)
    assert len(shown.kernels) == MAX_KERNELS
    first = shown.kernels[0]
    assert (first.kind, first.count, first.tensor_cores) == ("GEMM", 1000, "yes")
    assert first.share == pytest.approx(9_410_000 / total_ns)
    assert first.help == f"{AS_REQUESTED.kernels[0].name}\n1,000 times, 9.41{NBSP}µs each on average"
    left = sum(kernel.time_ns for kernel in AS_REQUESTED.kernels[MAX_KERNELS:])
    assert shown.other_kernels == f"13 more kernels, {100 * left / total_ns:.1f}{NBSP}% together"
    backwards = msgspec.structs.replace(AS_REQUESTED, kernels=AS_REQUESTED.kernels[::-1])
    assert view(backwards).kernels == shown.kernels, "without its waits an exchange is no longer the longest"


def test_time_is_told_by_class_and_between_kernels() -> None:
    shown = view(AS_REQUESTED)
    assert [share.name for share in shown.classes][:3] == ["GEMM", "RNN", "point-wise"]
    assert sum(share.share for share in shown.classes) == pytest.approx(1.0)
    assert len({share.colour for share in shown.classes}) == len(shown.classes)
    assert shown.idle_share == f"87.7{NBSP}%", "3.94 ms of the measured step's 32"
    assert shown.traced == f"5 steps traced after the measured part, 4.96{NBSP}ms each on average with the profiler."
    assert shown.sources == "Seen in the executed graph and the profiler's trace."


def test_a_step_on_two_gpus_lasts_half_of_what_both_took() -> None:
    assert f"2.48{NBSP}ms each on average with the profiler." in view(AS_REQUESTED, gpus=2).traced


def test_several_devices_have_a_row_each_and_one_has_none() -> None:
    shown = stored_evidence_view(LIMPING[0])
    assert [row[0] for row in shown.devices] == ["GPU:0", "GPU:1"]
    first, slow = ([text.replace(NBSP, " ") for text in row[1:]] for row in shown.devices)
    assert first == ["27.5 ms", "20.0 ms", "6.50 ms", "0.973 ms", "100"], "of the measured step, 27.47 ms"
    assert slow[1:3] == ["26.0 ms", "0.500 ms"]
    assert shown.imbalance == f"The slowest, GPU:1, computes 30.0{NBSP}% longer than the fastest."
    assert (view(ONE[0].evidence).devices, view(ONE[0].evidence).imbalance) == ((), "")


def test_a_trace_that_does_not_fit_the_step_says_so_and_has_no_idle_share() -> None:
    shown = view(AS_REQUESTED, batch_size=3)
    assert (shown.idle_share, shown.traced.endswith("the trace does not fit it.")) == ("", True)
    assert f"Their kernels run for 3.94{NBSP}ms, longer than the measured step of 3.00{NBSP}ms" in shown.traced


def test_on_the_cpu_there_are_ops() -> None:
    on_cpu, on_gpu = view(ON_CPU, gpus=0), view(AS_REQUESTED)
    assert (on_cpu.noun, on_cpu.idle_share) == ("op", ""), "operations overlap: there is no idle time to tell"
    assert (on_gpu.noun, on_gpu.idle_share) == ("kernel", f"87.7{NBSP}%")


def test_products_without_tensor_cores_are_a_warning_and_not_a_note() -> None:
    found = stored_evidence_view(traced_run(1, 20.0, {CONV: 9.0, SLOW_GEMM: 1.6}))
    assert found.warning.replace("\N{NO-BREAK SPACE}", " ") == (
        "Products without tensor cores take 1.60 ms of a step (8.0 %) although TF32 was requested; "
        "the longest is sm80_xmma_gemm_f32f32_f32f32_f32_nt_n_tilesize64x64x8_ffma: 1.60 ms."
    )
    assert stored_evidence_view(traced_run(1, 20.0, {CONV: 9.0, SLOW_GEMM: 0.9})).warning == ""


def test_three_sources_are_a_sentence_too() -> None:
    all_three = msgspec.structs.replace(AS_REQUESTED, sources=("graph", "trace", "hlo"))
    assert view(all_three).sources == ("Seen in the executed graph, the profiler's trace and XLA's optimised program.")


def test_weights_tried_elsewhere_say_how_far_off_they_were() -> None:
    spec = run_row(1).spec
    (trial,) = evidence_view(spec, None, None, Summary(), PORTABLE).portability
    assert trial == ("Standard on Intel Xeon Platinum 8481C, float32", "2.4e-04", "of outputs up to 1.31")
    (same,) = evidence_view(spec, None, None, Summary(), (replace(PORTABLE[0], max_difference=0.0),)).portability
    assert same[1] == "0"


def test_runs_with_the_same_wrong_label_are_told_together() -> None:
    wrong, other = MISLABELLED, msgspec.structs.replace(MISLABELLED, reason="the mask is not right-padded")
    rows = [run_row(1, found=AS_REQUESTED), run_row(2, found=wrong), run_row(3, found=wrong), run_row(4)]
    assert describe_mismatches(mismatches(rows)) == (
        f"Runs 2 and 3 did not run what was requested. {MISLABELLED.reason}"
    )
    assert describe_mismatches(mismatches([*rows, run_row(5, found=other)])).endswith(
        "Run 5 did not run what was requested. The mask is not right-padded."
    )
    assert (
        describe_mismatches(mismatches([run_row(1, found=AS_REQUESTED), run_row(2, found=UNKNOWN), run_row(3)])) == ""
    )


def test_wrong_labels_that_differ_in_counts_and_names_alone_are_told_together() -> None:
    reasons = [
        f"{n} of {n} operations on images ran in NHWC (block{n}/conv1 …): XLA chooses the layout." for n in (9, 18)
    ]
    rows = [
        run_row(n, found=msgspec.structs.replace(MISLABELLED, reason=reason)) for n, reason in enumerate(reasons, 1)
    ]
    assert describe_mismatches(mismatches(rows)) == (
        "No run ran what was requested. Operations on images ran in NHWC: XLA chooses the layout."
    )
    assert describe_mismatches(mismatches(rows[:1])).endswith(reasons[0]), "one alone keeps its counts"


def test_a_badge_in_a_table_is_a_symbol_a_word_and_a_reason() -> None:
    shown = [cells.verified(run_row(1, found=found)) for found in (AS_REQUESTED, IN_PART, MISLABELLED, UNKNOWN, None)]
    assert [(cell.symbol, cell.text, cell.tone) for cell in shown] == [
        ("✔", "verified", "good"),
        ("◐", "verified in part", "busy"),
        ("✘", "mismatch", "warning"),
        ("?", "not verifiable", "quiet"),
        ("", "", None),
    ]
    assert [cell.tooltip for cell in shown[1:3]] == [IN_PART.reason, MISLABELLED.reason]
    assert shown[-1].key is None, "what has no evidence comes last"


def cell(metric: str, row: RunRow) -> Cell:
    return cells.row_metric_cell(METRIC_BY_KEY[metric], row)


def test_gflops_and_utilisation_follow_from_formula_time_and_calibration() -> None:
    summary = Summary(flops_per_step=2_000_000_000, measured_steps=500, measured_s=4.0, peak_flops_per_s=1e12)
    assert flops_per_s(summary) == pytest.approx(250e9)
    assert mfu(summary) == pytest.approx(0.25)
    assert mfu(replace(summary, peak_flops_per_s=None)) is None
    assert flops_per_s(replace(summary, flops_per_step=None)) is None
    assert flops_per_s(replace(summary, measured_steps=0, measured_s=None)) is None
    row = run_row(1, gflops=13_375.0)
    gflops, utilisation = cell("gflops", row), cell("utilisation", row)
    assert (gflops.text, gflops.unit) == ("13,375", "GFLOPS")
    assert (utilisation.text, utilisation.unit) == ("3.3", "%")
    assert utilisation.tooltip == f"Of 400{NBSP}TFLOPS, measured with a large matrix product"
    low = replace(row, summary=replace(row.summary, peak_flops_per_s=1e9))
    assert cell("utilisation", low).tooltip.endswith(
        "; the peak was measured too low: measure it again on a quiet machine"
    )
    assert cell("gflops", run_row(2)).text == "–"
