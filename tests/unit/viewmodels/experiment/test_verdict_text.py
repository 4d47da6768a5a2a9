"""The verdict of an experiment that has just ended, in a few words and as the notice has it."""

from collections.abc import Sequence

import pytest

from app.records import RunRow
from app.viewmodels.compare.verdict import compute_verdict
from app.viewmodels.experiment.verdict_text import verdict_text
from tests.unit.viewmodels.stored import run_row


def runs(*throughputs: Sequence[float]) -> list[RunRow]:
    """Runs of variants with batch size 32, 64 …, the first of which is the baseline."""
    measured = [(32 * 2**n, value) for n, values in enumerate(throughputs) for value in values]
    return [
        run_row(number, batch_size=batch, throughput=value) for number, (batch, value) in enumerate(measured, start=1)
    ]


@pytest.mark.parametrize(
    ("throughputs", "title"),
    [
        (((1000, 1001, 999), (2000, 2001, 1999)), "Batch size 64 is 2.00× as fast as batch size 32"),
        (((1000, 1100, 900), (1000, 1090, 920)), "No significant difference: batch size 64 and batch size 32"),
        (((1000, 1600, 3000), (1100, 1900, 3400)), "Not known yet which is faster: batch size 64 and batch size 32"),
        (((1000, 1001), (500, 501), (250, 251)), "Fastest of 3: batch size 32, the baseline"),
        (((1000, 1001), (2000, 2001), (4000, 4001)), "Fastest of 3: batch size 128, 4.00× as fast as batch size 32"),
        (((1000,), (1500,)), "Batch size 64 is 50.0\xa0% faster than batch size 32"),
    ],
)
def test_the_title_is_the_verdict_in_one_line(throughputs: Sequence[Sequence[float]], title: str) -> None:
    assert verdict_text(compute_verdict(runs(*throughputs), 1)).title == title


def test_the_first_sentence_is_whole_and_the_others_come_after_it() -> None:
    found = compute_verdict(runs((1000, 1001), (2000, 2001), (4000, 4001)), 1)
    text = verdict_text(found)
    assert (text.sentence, text.rest) == (found.sentences[0], " ".join(found.sentences[1:]))


def test_where_nothing_was_measured_the_experiment_keeps_its_name() -> None:
    rows = [run_row(number, batch_size=32 * number, throughput=None, outcome="failed") for number in (1, 2)]
    assert verdict_text(compute_verdict(rows, 1)).title == ""
