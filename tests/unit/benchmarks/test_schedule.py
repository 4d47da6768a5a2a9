"""The benchmark of scheduling: every run is made once, on hosts without processes."""

from benchmarks.schedule import measure


def test_it_schedules_an_experiment_over_simulated_hosts() -> None:
    limited, relative = measure(runs=80, run_s=(0.0, 0.01))
    assert limited.value > 0
    assert limited.limit == 50.0
    assert relative.baseline is not None
    assert relative.baseline > 0
