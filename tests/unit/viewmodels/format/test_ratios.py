"""The one form of a ratio, and verbs of sentences on variants, whose names may be plurals."""

import math

import pytest

from app.analysis.intervals import Estimate
from app.viewmodels.charts.model import ratio_axis
from app.viewmodels.format.ratios import agree, describe_ratio, describe_speed, format_ratio


@pytest.mark.parametrize(
    ("estimate", "text"),
    [
        (None, "–"),
        (Estimate(math.exp(1e-15), None, None, 3), "1×"),
        (Estimate(1.000999, None, None, 3), "+0.1 %"),
        (Estimate(0.99963, None, None, 3), "−0.04 %"),
        (Estimate(1.0643, None, None, 3), "+6.4 %"),
        (Estimate(0.501, None, None, 3), "−49.9 %"),
        (Estimate(0.5006, None, None, 3), "−49.9 %"),
        (Estimate(0.5004, None, None, 3), "0.500×"),
        (Estimate(0.5, None, None, 3), "0.500×"),
        (Estimate(1.9994, None, None, 3), "+99.9 %"),
        (Estimate(1.9996, None, None, 3), "2.00×"),
        (Estimate(1.9999999999999996, None, None, 3), "2.00×"),
        (Estimate(2.0, None, None, 3), "2.00×"),
        (Estimate(1.965, 1.9, 2.031, 3), "+96.5 % (+90.0 to +103 %)"),
        (Estimate(2.1, 1.2901, 3.41, 3), "2.10× (1.29–3.41×)"),
        (Estimate(1.001, 0.989, 1.012, 3), "+0.1 % (−1.1 to +1.2 %)"),
        (Estimate(1.0, 1.0, 1.0, 3), "1× (0–0 %)"),
        (Estimate(1.612, 0.00021, 6826.6, 3), "+61.2 % (−100.0 to +682,560 %)"),
        (Estimate(2.1, 9.8e-305, 1.01e304, 3), "2.10× (9.80e−305–1.01e304×)"),
    ],
)
def test_a_ratio_is_per_cent_up_to_twofold_and_its_interval_has_its_form(estimate: Estimate | None, text: str) -> None:
    assert describe_ratio(estimate).replace("\xa0", " ") == text


@pytest.mark.parametrize(
    ("ratio", "words"),
    [(1.064, "6.4 % faster"), (0.9, "10.0 % slower"), (2.5, "2.50× as fast"), (0.4, "0.400× as fast")],
)
def test_a_sentence_says_the_figure_of_the_table(ratio: float, words: str) -> None:
    assert describe_speed(ratio).replace("\xa0", " ") == words
    assert format_ratio(ratio).lstrip("+−") in describe_speed(ratio)


@pytest.mark.parametrize(
    ("ratio", "interval", "labels"),
    [
        (1.05, (1.0, 1.06), ["0 %", "+2 %", "+4 %", "+6 %", "+8 %"]),
        (1.999, (1.5, 2.6), ["0 %", "+20 %", "+50 %", "+100 %", "+150 %"]),
        (2.0, (1.5, 2.6), ["1×", "1.2×", "1.5×", "2×", "2.5×"]),
    ],
)
def test_an_axis_is_in_per_cent_where_all_its_ratios_are(
    ratio: float, interval: tuple[float, float], labels: list[str]
) -> None:
    axis = ratio_axis([Estimate(1.0, None, None, 3), Estimate(ratio, *interval, 3)])
    assert [label.replace("\xa0", " ") for _, label in axis.ticks] == labels


def test_an_axis_ends_before_ratios_that_nothing_has() -> None:
    axis = ratio_axis([Estimate(ratio, None, None, 3) for ratio in (1e-304, 1.0, 1e304)])
    assert [axis.low, axis.high] == pytest.approx([1e-12, 1e12])
    assert axis.share(1e-304) < 0 < axis.share(1.0) < 1 < axis.share(1e304)


@pytest.mark.parametrize(
    ("name", "verb", "words"),
    [
        ("NCHW", "takes", "NCHW takes"),
        ("1 GPU", "does", "1 GPU does"),
        ("2 GPUs", "takes", "2 GPUs take"),
        ("2 GPUs", "does", "2 GPUs do"),
        ("2 GEMMs", "leads", "2 GEMMs lead"),
    ],
)
def test_a_verb_agrees_with_the_name_of_a_variant(name: str, verb: str, words: str) -> None:
    assert agree(name, verb) == words
