"""The benchmark of explaining a difference, small."""

from benchmarks.why import explain, measure
from tests.fakes.traces import CONV, POOL, traced_run
from tests.present import present


def test_each_figure_has_a_limit_or_a_baseline_of_the_same_run() -> None:
    alone, against = measure(200)
    assert alone.name == "why two runs of 200 kernels differ"
    assert (alone.limit, alone.unit, alone.baseline) == (200.0, "ms", None)
    assert present(against.baseline) > 0
    assert against.value == alone.value > 0


def test_what_is_measured_is_the_explanation() -> None:
    sentence = explain([traced_run(1, 20.0, {POOL: 4.0}), traced_run(2, 18.0, {POOL: 2.0, CONV: 0.1}, layout="NHWC")])
    assert "in pooling" in sentence
