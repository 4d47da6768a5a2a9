"""Numbers with their units, and ticks of axes."""

import math
from datetime import UTC

import pytest

from app.metrics import METRIC_BY_KEY
from app.values import units
from app.viewmodels.format.sentences import format_run_numbers


@pytest.mark.parametrize(
    ("runs", "words"),
    [
        ([4], "run 4"),
        ([5, 4], "runs 4 and 5"),
        ([6, 4, 5], "runs 4–6"),
        ([12, 1, 4, 5, 6, 7], "runs 1, 4–7 and 12"),
        (range(1, 12, 2), "runs 1, 3, 5, 7, 9 and 11"),
        ([*range(1, 12, 2), 20, 21, 22], "runs 1, 3, 5, 7, 9 and 4 more"),
        ([*range(10), *range(20, 3000, 2)], "runs 0–9, 20, 22, 24, 26 and 1,486 more"),
    ],
)
def test_runs_in_order_with_neighbours_as_one_and_the_rest_counted(runs: list[int], words: str) -> None:
    assert format_run_numbers(runs) == words


NBSP = "\N{NO-BREAK SPACE}"


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (units.number(68899.4), "68,899"),
        (units.number(12.345), "12.3"),
        (units.number(0.04213), "0.0421"),
        (units.number(0), "0"),
        (units.watts(688_400), f"688{NBSP}W"),
        (units.flops(349e9), f"349{NBSP}GFLOPS"),
        (units.flops(13.375e12), f"13.4{NBSP}TFLOPS"),
        (units.flops(None), "–"),
        (METRIC_BY_KEY["compile"].figures([0.0021, 0.00115], ["", ""])[1], f"1.15{NBSP}ms"),
        (METRIC_BY_KEY["compile"].figures([2.1, 0.00115], ["", ""])[1], f"0.00115{NBSP}s"),
        (units.percent(99.4), f"99{NBSP}%"),
        (units.byte_size(3.1 * 2**30), f"3.1{NBSP}GiB"),
        (units.byte_size(512), f"512{NBSP}B"),
        (units.bytes_of_total(4 * 2**30, 140.4 * 2**30), f"4.0 of 140{NBSP}GiB"),
        (units.rate(68899, "image"), f"68,899{NBSP}images/s"),
        (units.plus_minus("0.4"), f"±{NBSP}0.4"),
        (units.exactly(0.5, "%"), f"0.5{NBSP}%"),
        (units.exactly(2.0, "%"), f"2{NBSP}%"),
        (units.quantity("5.1–7.7", "%"), f"5.1–7.7{NBSP}%"),
        (units.range_of([3, 1, 2], str), "1–3"),
        (units.range_of([2.1, 2.2], "{:.0f}".format), "2"),
        (units.seconds(4.2101), f"4.21{NBSP}s"),
        (units.seconds(0.00518), f"5.18{NBSP}ms"),
        (units.ratio(1.5618), "1.56×"),
        (units.ratio(24.06), "24.1×"),
        (units.local_time(1_772_373_909_999_999_999, UTC), "2026-03-01 14:05"),
        (units.ratio_figures(0.99), "0.990"),
        (units.ratio_figures(10.526), "10.5"),
        (units.ratio_figures(0.0198), "0.0198"),
        (units.span("−0.2", "0.3"), "−0.2 to 0.3"),
        (units.interval((40320.4, 41575.0), 4), "40,320–41,575"),
        (units.interval((912.4, 1118.2), 4), "912–1,118"),
        (units.interval((0.0421, 1118.2), 4), "0.04210–1,118"),
        (units.duration(130), "2:10"),
        (units.duration(3730), "1:02:10"),
        (units.duration(0.2), "0:00"),
        (units.duration_range(36, 99.9), "35 to 100 s"),
        (units.duration_range(36, 100), "up to 2 min"),
        (units.duration_range(61, 100), "1 to 2 min"),
        (units.duration_range(2, 3), "up to 5 s"),
        (units.duration_range(10, 10), "about 10 s"),
        (units.duration_range(95 * 60, 99.9 * 60), "95 to 100 min"),
        (units.duration_range(95 * 60, 100 * 60), "1.5 to 2 h"),
        (units.duration_range(400 * 3600, 900 * 3600), "400 to 900 h"),
        (units.utc_time(1_772_373_909_999_999_999), "2026-03-01 14:05:09 UTC"),
        (units.sentence("no driver is installed"), "No driver is installed."),
        (units.sentence("cuDNN needs a GPU."), "cuDNN needs a GPU."),
        (units.sentence("mine.py:9: a name is missing"), "mine.py:9: a name is missing."),
        (units.sentence("a b.py:2: a name is missing"), "a b.py:2: a name is missing."),
        (units.sentence("stopped."), "Stopped."),
        (units.sentence(""), ""),
    ],
)
def test_numbers_read_as_a_person_writes_them(shown: str, expected: str) -> None:
    assert shown == expected


@pytest.mark.parametrize("value", [None, math.nan, math.inf])
def test_absent_is_a_dash_never_zero(value: float | None) -> None:
    assert units.number(value) == units.ABSENT
    assert units.watts(value) == units.ABSENT
    assert units.percent(value) == units.ABSENT
    assert units.byte_size(value) == units.ABSENT
    assert units.bytes_of_total(value, 2**30) == units.ABSENT
    assert units.rate(value, "image") == units.ABSENT
    assert units.duration(value) == units.ABSENT


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("Run 78 · lstm cuDNN · 2 GPUs", ["Run_78_·", "lstm_cuDNN_·", "2_GPUs"]),
        ("batch size 64 ran on GPU 1", ["batch", "size_64", "ran", "on", "GPU_1"]),
        ("Looking for GPUs …", ["Looking", "for", "GPUs", "…"]),
        (
            "a path longer than the shortest lines · b",
            ["a", "path", "longer", "than", "the", "shortest", "lines_·", "b"],
        ),
    ],
)
def test_a_text_breaks_neither_before_a_number_nor_within_a_short_part(text: str, lines: list[str]) -> None:
    assert units.bound(text).replace("\N{NO-BREAK SPACE}", "_").split(" ") == lines
