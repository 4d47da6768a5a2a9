"""Which runs may go on at once, and how long they take together."""

from dataclasses import replace

import pytest

from app.runs.room import Room
from workloads.catalog import Machine, complete
from workloads.protocol import RunSpec

CPU = Machine(cpu_count=4)
TWO = Room(parallel=2, gpus=2)


def on(gpus: int) -> RunSpec:
    return complete("dummy", {"gpus": gpus}, CPU)


@pytest.mark.parametrize(
    ("count", "going", "may"),
    [
        (1, (), True),
        (1, (1,), True),
        (1, (1, 1), False),
        (2, (), True),
        (2, (1,), False),
        (1, (2,), False),
        (0, (1,), False),
        (1, (0,), False),
        (0, (), True),
    ],
)
def test_each_run_has_its_own_gpus_and_one_on_the_cpu_is_alone(count: int, going: tuple[int, ...], may: bool) -> None:
    spec, *others = map(on, (count, *going))
    assert TWO.takes(spec, others) is may


def test_no_variant_is_beside_itself_where_an_experiment_may_end_early() -> None:
    one, other = (complete("dummy", {"gpus": 1, "step_ms": ms}, CPU) for ms in (1.0, 2.0))
    early = replace(TWO, may_end_early=True)
    assert TWO.takes(one, [one])
    assert not early.takes(one, [one])
    assert early.takes(one, [other])


def test_no_more_go_on_than_were_asked_for() -> None:
    assert not Room(parallel=2, gpus=8).takes(on(1), [on(1), on(1)])
    assert not Room().takes(on(1), [on(1)])


@pytest.mark.parametrize(
    ("room", "gpus", "lasting_s", "together_s"),
    [
        (Room(), (1, 1, 1), (4.0, 3.0, 2.0), 9.0),
        (TWO, (), (), 0.0),
        (TWO, (1, 1, 1), (4.0, 3.0, 2.0), 5.0),
        (TWO, (1, 2, 1), (4.0, 3.0, 2.0), 9.0),
        (TWO, (1, 0, 1, 1), (4.0, 3.0, 2.0, 2.0), 9.0),
    ],
)
def test_runs_beside_each_other_take_less_time_together(
    room: Room, gpus: tuple[int, ...], lasting_s: tuple[float, ...], together_s: float
) -> None:
    assert room.together_s([on(count) for count in gpus], lasting_s) == together_s
