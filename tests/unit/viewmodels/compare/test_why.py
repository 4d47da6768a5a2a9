"""Why variants differ, as a reader sees it: the sentence, the notes, the waterfall and the table."""

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations, pairwise

import pytest
from msgspec import structs

from app.analysis.verdict import work_ratio
from app.analysis.why import merging_compilers, step_difference
from app.report.charts.draw import draw_chart
from app.values.records import StoredRun
from app.viewmodels.charts.palette import LIGHT
from app.viewmodels.compare.statements import NOUNS
from app.viewmodels.compare.verdict import compute_verdict
from app.viewmodels.compare.why import Pair, WhyView, largest_differences, state_difference, why_views
from tests.fakes.reference import load_reference, runs_with
from tests.fakes.traces import CONV, INDUCTOR_KERNEL, POOL, SLOW_GEMM, TRANSPOSE, XLA_KERNEL, traced_run, with_clock
from tests.present import present
from workloads.protocol import Value


@pytest.fixture(scope="module")
def runs_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[StoredRun]]:
    """What returns the reference runs of a file, each read once."""
    return functools.cache(partial(load_reference, tmp_path_factory.mktemp("reference")))


@pytest.fixture(scope="module")
def reference(runs_of: Callable[[str], list[StoredRun]]) -> list[StoredRun]:
    return runs_of("cnn")


def views(*runs: StoredRun) -> tuple[WhyView, ...]:
    return why_views(runs, compute_verdict([run.row for run in runs], runs[0].row.run))


def view(baseline: Sequence[StoredRun], other: Sequence[StoredRun]) -> WhyView:
    (found,) = views(*baseline, *other)
    return found


def plain(text: str) -> str:
    return text.replace("\N{NO-BREAK SPACE}", " ")


def layouts(**kernels: tuple[float, float]) -> tuple[StoredRun, StoredRun]:
    """NHWC and NCHW in steps of 20 ms less what NCHW saves; `kernels` has both times of each class."""
    names = {"pool": POOL, "conv": CONV, "gemm": SLOW_GEMM, "transpose": TRANSPOSE}
    saved = sum(before - after for before, after in kernels.values())
    first, second = ({names[key]: times[side] for key, times in kernels.items()} for side in (0, 1))
    return traced_run(1, 20.0, first, layout="NHWC"), traced_run(2, 20.0 - saved, second, layout="NCHW")


def test_the_sentence_of_the_reference_runs_names_pooling_and_what_is_not_the_cause(reference: list[StoredRun]) -> None:
    nhwc, nchw = (runs_with(reference, "cnn10", batch_size=1024, layout=layout) for layout in ("NHWC", "NCHW"))
    page = view(nhwc, nchw)
    assert plain(page.sentence) == (
        "NCHW takes 1.70 ms less per step than NHWC (1.55–1.85 ms). "
        "Of that, 77 % is in pooling and 20 % in transposes. Hardly any of it is in batch norm."
    )
    assert plain(page.gains[0].sentence).startswith("NHWC with the pooling of NCHW: 5.4 % faster (+5.4 to +5.4 %)")


def test_of_equally_fast_variants_the_sentence_says_what_their_speed_hides(reference: list[StoredRun]) -> None:
    nhwc, nchw = (runs_with(reference, "wrn28-10", batch_size=128, layout=layout) for layout in ("NHWC", "NCHW"))
    page = view(nhwc, nchw)
    assert plain(page.sentence) == (
        "Steps of NCHW and NHWC do not differ significantly. The first saves 3.17 ms in convolutions. "
        "The first loses 2.55 ms in GEMM and 1.11 ms in transposes. "
        "Nearly all of that in GEMM is one kernel without tensor cores."
    )
    assert any("sm80_xmma_gemm" in row.label and row.label.endswith("no tensor cores") for row in page.rows)


def test_beside_a_large_change_of_the_step_small_parts_keep_their_figures() -> None:
    slow = traced_run(1, 300.0, {CONV: 0.3, POOL: 1.3}, layout="NHWC")
    fast = traced_run(2, 110.0, {CONV: 0.6, POOL: 2.4}, layout="NCHW")
    rows = {row.label: [plain(cell) for cell in row.cells] for row in view([slow], [fast]).rows}
    assert rows["pooling"] == ["1.3 ms", "2.4 ms", "+1.1 ms", "+0.4 %"], "not 1 ms, 2 ms and a share of nothing"
    assert rows["step"][:3] == ["300.0 ms", "110.0 ms", "−190.0 ms"]


def test_a_balance_names_both_sides() -> None:
    page = view(*([run] for run in layouts(conv=(18.0, 9.0), gemm=(0.0, 5.0))))
    assert plain(page.sentence) == (
        "NCHW takes 4.00 ms less per step than NHWC. The first saves 9.00 ms in convolutions. "
        "The first loses 5.00 ms in GEMM. Nearly all of that in GEMM is one kernel without tensor cores."
    )
    assert [note.sentence for note in page.notes] == [
        "No intervals: they take two traced runs or more of each variant."
    ]


@pytest.mark.parametrize(("host", "is_named"), [(0.8, True), (0.79, False)])
def test_idle_time_has_its_causes_and_the_sentence_the_one_of_nearly_all_of_it(host: float, is_named: bool) -> None:
    runs = [
        traced_run(n, step_ms, {CONV: 10.0}, waits=(host, 0.1), implementation=name)
        for n, step_ms, name in ((1, 20.0, "native"), (2, 40.0, "keras"))
    ]
    page = view(runs[:1], runs[1:])
    assert ("that in idle time is waiting for the host to launch." in plain(page.sentence)) is is_named
    assert [(row.label, row.kind) for row in page.rows][:2] == [
        ("idle", "part"),
        ("waiting for the host to launch", "cause"),
    ]
    assert "idle_by_cause" in {note.key for note in page.notes}
    assert page.chart is not None
    assert f"+{20 * host:.2f} ms  waiting for the host to launch" in plain(page.chart.bars[1].tooltip)
    older = view(runs[:1], [traced_run(2, 40.0, {CONV: 10.0}, implementation="keras")])
    assert not [row for row in older.rows if row.kind == "cause"], "older runs have no launches"
    assert "idle_by_cause" not in {note.key for note in older.notes}


def test_steps_that_are_alike_in_all_parts_are_said_to_be() -> None:
    runs = [
        traced_run(n, 20.0 + n / 10, {CONV: 9.0 + n / 100}, layout=layout)
        for n, layout in enumerate(("NHWC", "NHWC", "NCHW", "NCHW"))
    ]
    (found,) = views(runs[0], runs[3], runs[1], runs[2])
    surely = "No part of a step surely changes by more than 1 % of it. The largest change is "
    assert surely in plain(found.sentence)


def test_where_only_small_parts_surely_differ_the_sentence_names_the_largest_as_uncertain() -> None:
    def step(number: int, layout: str, step_ms: float, conv: float, pool: float) -> StoredRun:
        return traced_run(number, step_ms, {CONV: conv, POOL: pool}, layout=layout)

    runs = [step(1, "NHWC", 20.0, 9.0, 0.5), step(2, "NHWC", 20.1, 4.0, 0.5), step(3, "NHWC", 20.1, 6.5, 0.5)]
    page = view(
        runs, [step(4, "NCHW", 15.0, 3.0, 0.4), step(5, "NCHW", 15.1, 8.0, 0.4), step(6, "NCHW", 15.1, 5.5, 0.4)]
    )
    assert plain(page.sentence).endswith(" Of that, 78 % is in idle time (not certain).")


def test_runs_that_are_equal_in_everything_can_be_drawn() -> None:
    page = view([traced_run(1, 20.0, {CONV: 9.0}, layout="NHWC")], [traced_run(2, 20.0, {CONV: 9.0}, layout="NCHW")])
    assert page.chart is not None
    assert page.chart.bars[-1].end == 20.0
    assert draw_chart(page.chart, LIGHT).hit_areas
    assert page.gains == ()


@pytest.mark.parametrize(
    ("evidence", "sentence"),
    [
        ("graph", "Why is not known: there is no trace of NCHW. Runs with evidence “Graph and trace” would tell."),
        ("trace", "Why is not known: there is no trace of NCHW; the evidence of its runs says why."),
        ("", "No run of NCHW has a measured step."),
    ],
)
def test_without_a_trace_one_sentence_says_what_to_do(evidence: str, sentence: str) -> None:
    nhwc, nchw = (traced_run(n, 20.0, {CONV: 9.0}, layout=("NHWC", "NCHW")[n], evidence=evidence) for n in (0, 1))
    nchw = replace(nchw, evidence=structs.replace(present(nchw.evidence), kernels=()))
    if not evidence:
        nchw = replace(nchw, row=replace(nchw.row, summary=replace(nchw.row.summary, throughput=None)))
    page = view([nhwc], [nchw])
    assert (page.sentence, page.difference, page.chart, page.rows, page.gains) == (sentence, None, None, (), ())


def test_on_the_cpu_there_is_a_table_but_no_waterfall() -> None:
    runs = [
        traced_run(n, 9.0, {"MatMul": 5.0 + n}, gpus=0, implementation=name)
        for n, name in enumerate(("native", "keras"))
    ]
    page = view(runs[:1], runs[1:])
    assert "on the CPU several run at once" in page.sentence
    assert page.chart is None
    assert [row.label for row in page.rows if row.kind == "part"] == ["GEMM"]


def test_notes_say_what_the_figures_are_of() -> None:
    one, two = traced_run(1, 10.0, {CONV: 6.0}), traced_run(2, 30.0, {CONV: 3.0, XLA_KERNEL: 3.0}, gpus=2, batch=400)
    found = view([one], [two])
    work = "Each GPU has 200 in place of 100 images, so times are per 1,000 images of a GPU."
    assert found.sentence.startswith(work), "first of all"
    assert found.notes[0].key == "mean_of_gpus"
    assert found.notes[1].sentence.startswith("XLA merges operations into kernels of its own")
    blind = replace(traced_run(3, 10.0, {CONV: 6.0}), evidence=None)
    (found,) = views(one, blind, two)
    (untraced,) = (note for note in found.notes if note.key == "untraced")
    assert (untraced.runs, untraced.sentence) == ((3,), "Run 3 has no trace and is left out.")


@pytest.mark.parametrize(
    ("kernels", "compilers"),
    [
        (("", ""), ()),
        ((XLA_KERNEL, XLA_KERNEL), ("XLA",)),
        (("", XLA_KERNEL), ("XLA",)),
        ((INDUCTOR_KERNEL, ""), ("Inductor",)),
        ((INDUCTOR_KERNEL, XLA_KERNEL), ("XLA", "Inductor")),
    ],
)
def test_the_caveat_on_fusions_stands_wherever_a_compiler_merged_kernels(
    kernels: tuple[str, str], compilers: tuple[str, ...]
) -> None:
    for order in (1, -1):
        one, two = (
            traced_run(n, 10.0 * n, {CONV: 5.0, **({kernel: 1.0} if kernel else {})}, layout=layout)
            for n, kernel, layout in zip((1, 2), kernels[::order], ("NCHW", "NHWC"), strict=True)
        )
        fusions = [note.facts["compilers"] for note in view([one], [two]).notes if note.key == "merged_kernels"]
        assert fusions == ([compilers] if compilers else [])


def test_what_ran_decides_on_that_caveat_whoever_asked_for_the_compiler(
    runs_of: Callable[[str], list[StoredRun]],
) -> None:
    runs = runs_of("lstm")

    def merged(**variant: Value) -> set[frozenset[str]]:
        return {merging_compilers([run]) for run in runs_with(runs, "lstm", **variant)}

    assert merged(xla=True) == {frozenset({"XLA"})}
    assert merged(implementation="wavefront", xla=False) == {frozenset({"XLA"})}, "it compiles its cells by itself"
    assert merged(implementation="cudnn", xla=False) == {frozenset()}


def test_what_lies_behind_the_parts_comes_before_them() -> None:
    fast, slow = (traced_run(n, 20.0 * n, {CONV: 19.0 * n}, layout=layout) for n, layout in ((1, "NHWC"), (2, "NCHW")))
    clock = plain(view([with_clock(fast, 1980.0)], [with_clock(slow, 990.0)]).sentence)
    assert clock.endswith(
        " Up to 95 % of that comes from the clock of the GPU, 990 MHz in place of 1,980 MHz. "
        "The largest part is +19.00 ms in convolutions."
    )
    small = {f"Add_{n}": 0.01 for n in range(100)}
    many = plain(view([fast], [traced_run(3, 40.0, {CONV: 19.0, **small}, layout="NCHW")]).sentence)
    assert "The host launches 101 in place of 1 kernels per step. Of that, 95 % is in idle time" in many
    idle = traced_run(4, 40.0, {CONV: 19.0}, layout="NCHW")
    waits = replace(idle, row=replace(idle.row, summary=replace(idle.row.summary, waiting_pct=50.0)))
    ready = replace(fast, row=replace(fast.row, summary=replace(fast.row.summary, waiting_pct=0.0)))
    data = plain(view([ready], [waits]).sentence)
    assert "Waiting for training data takes 20.00 in place of 0.00 ms. Of that, 100 % is in idle time" in data


@pytest.mark.parametrize(("lost_ms", "is_named"), [(0.0, False), (0.004, False), (0.2, True)])
def test_a_part_that_is_next_to_nothing_is_not_named(lost_ms: float, is_named: bool) -> None:
    """Idle time of 1 to 3 ms hides what convolutions save; `lost_ms` is all that is lost."""
    idle_ms = (1.0, 2.0, 3.0)
    base = [traced_run(n, 19.0 + ms, {CONV: 15.0, POOL: 4.0}, layout="NHWC") for n, ms in enumerate(idle_ms, 1)]
    kernels = {CONV: 15.9, POOL: 4.0 - lost_ms}
    other = [traced_run(n, sum(kernels.values()) + ms, kernels, layout="NCHW") for n, ms in enumerate(idle_ms, 4)]
    text = plain(view(other, base).sentence)
    assert "The first saves 0.900 ms in convolutions." in text
    assert ("ms in pooling" in text) is is_named
    assert not re.search(r"\b0\.0+ ms in", text)


@pytest.mark.parametrize("file", ["cnn", "lstm", "scaling", "xla"])
def test_of_all_pairs_the_largest_part_is_named_and_shares_are_of_the_whole(
    runs_of: Callable[[str], list[StoredRun]], file: str
) -> None:
    """Of every two variants of one workload among the reference runs."""
    groups: dict[str, list[StoredRun]] = {}
    for run in runs_of(file):
        groups.setdefault(repr(run.row.spec), []).append(run)
    pairs = 0
    for base, other in combinations(groups.values(), 2):
        difference = step_difference(other, base)
        if isinstance(difference, str):
            continue
        pair, largest = Pair.of(other, base), difference.parts[0]
        statements = state_difference(difference, pair)
        text = plain(" ".join(statement.sentence for statement in statements))
        named = rf"in {NOUNS[largest.kind]}( \(not certain)?"
        matches = list(re.finditer(named, text))
        assert matches, text
        assert bool(matches[0][1]) is not largest.change.is_certain, text
        shares = [int(share) for share in re.findall(r"(\d+) % (?:is )?in", text)]
        assert sum(shares) <= 102 or "Some of it is " in text, text
        assert difference.step.is_certain or not shares, f"no cause: {text}"
        is_other_work = difference.examples is not None or work_ratio(
            *([run.row for run in side] for side in (other, base))
        )
        assert bool(is_other_work) is ("so times are per" in text.split(". ")[0] or "the operations per" in text), text
        pairs += 1
    assert pairs > 5


def test_the_waterfall_leads_from_one_step_to_the_other() -> None:
    page = view(*([run] for run in layouts(pool=(4.0, 1.0), conv=(8.0, 7.0), transpose=(1.0, 1.5), gemm=(0.5, 0.51))))
    assert page.chart is not None
    first, *changes, last = page.chart.bars
    assert (first.label, first.end, last.label) == ("NHWC", 20.0, "NCHW")
    assert last.end == pytest.approx(20.0 - 3.49)
    assert [bar.label for bar in changes] == ["pooling", "convolution", "transpose", "2 smaller parts"]
    assert [bar.role for bar in changes] == ["less", "less", "more", "more"]
    assert all(bar.start == pytest.approx(before.end) for before, bar in pairwise([first, *changes]))
    assert changes[-1].end == pytest.approx(last.end)
    assert plain(changes[0].share) == "−15.0 %"
    assert "pooling_bw_kernel_avg" in changes[0].tooltip


def test_small_changes_share_a_bar() -> None:
    pool, conv, transpose, gemm = (5.0, 1.0), (8.0, 7.99), (1.0, 1.02), (0.5, 0.51)
    page = view(*([run] for run in layouts(pool=pool, conv=conv, transpose=transpose, gemm=gemm)))
    assert page.chart is not None
    assert [bar.label for bar in page.chart.bars] == ["NHWC", "pooling", "4 smaller parts", "NCHW"]
    assert "convolution" in page.chart.bars[2].tooltip
    assert page.chart.bars[2].end == pytest.approx(page.chart.bars[3].end)


def test_the_table_ends_with_the_step_and_has_intervals_only_if_there_are_some() -> None:
    nhwc, nchw = layouts(pool=(4.0, 1.0))
    page = view([nhwc], [nchw])
    assert page.head == ("NHWC", "NCHW", "Change", "Of the step")
    assert [plain(cell) for cell in page.rows[-1].cells] == ["20.00 ms", "17.00 ms", "−3.00 ms", "−15.0 %"]
    assert {len(row.cells) for row in page.rows} == {4}
    again = [[replace(run, row=replace(run.row, run=run.row.run + 2 * n)) for n in range(3)] for run in (nhwc, nchw)]
    page = view(*again)
    assert plain(page.head[3]) == "95 % CI"
    assert {len(row.cells) for row in page.rows} == {5}


def test_a_report_has_the_largest_differences_in_the_order_of_the_verdict() -> None:
    runs = [traced_run(n, 20.0 - n, {CONV: 10.0 - n}, batch_norm_momentum=n) for n in range(7)]
    found = views(*runs)
    assert [view.runs for view in largest_differences(found)] == [(3,), (4,), (5,), (6,)]
    assert max(found, key=lambda view: view.changed_share).runs == (6,)
    blind = views(runs[0], *(replace(run, evidence=None) for run in runs[1:]))
    assert len(largest_differences(blind)) == 1
    assert blind[0].changed_share < found[0].changed_share
