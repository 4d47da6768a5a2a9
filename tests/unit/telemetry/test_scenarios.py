"""The fake NVML below every scenario: values over time, and a driver that goes and comes."""

from collections.abc import Callable

import pynvml
import pytest

from tests.fakes.nvml import installed
from tests.fakes.nvml_cards import Card, Course, Driver
from tests.unit.telemetry.clock import Clock

DELAY_S = 0.001


def error_of(call: Callable[[], object]) -> int:
    """The number of the error with which a call fails; 0 where it succeeds."""
    try:
        call()
    except pynvml.NVMLError as error:
        return int(error.value)
    return 0


def power_mw() -> int:
    return int(pynvml.nvmlDeviceGetPowerUsage(pynvml.nvmlDeviceGetHandleByIndex(0)))


@pytest.mark.parametrize(
    ("course", "values"),
    [
        (Course(((0, 1), (2, 5))), [1, 1, 5, 5, 5]),
        (Course(((0, 1), (2, 5)), every_s=3), [1, 1, 5, 1, 1]),
        (Course(((0, 1), (2, 5)), linear=True), [1, 3, 5, 5, 5]),
        (Course(((0, 0), (2, 8), (2, 1), (4, 3)), linear=True), [0, 4, 1, 2, 3]),
    ],
)
def test_a_course_has_steps_or_lines_and_begins_again(course: Course, values: list[float]) -> None:
    assert [course.at(seconds) for seconds in range(5)] == values


def test_values_follow_their_course_and_the_energy_their_power(clock: Clock) -> None:
    power = Course(((0, 100_000), (1, 300_000)))
    courses = {"power_average_mw": Course(((0, 7), (1, -3))), "power_instant_mw": power}
    with installed(Driver(cards=(Card(uuid="GPU-x", energy_mj=5, courses=courses),), speed=2.0)):
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        assert power_mw() == 7
        clock.sleep(1.0 + DELAY_S)
        assert error_of(power_mw) == pynvml.NVML_ERROR_NOT_SUPPORTED
        assert pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) == 5 + 100_000 + 300_000, "2 s of the scenario"
        pynvml.nvmlShutdown()


def test_after_a_reload_the_driver_has_to_be_opened_again(clock: Clock) -> None:
    with installed(Driver(cards=(Card(uuid="GPU-x"),), away=((1, 2),))):
        pynvml.nvmlInit()
        sample = pynvml.nvmlGpmSampleAlloc()
        clock.sleep(1)
        assert error_of(power_mw) == error_of(pynvml.nvmlInit) == pynvml.NVML_ERROR_DRIVER_NOT_LOADED
        clock.sleep(1)
        assert error_of(power_mw) == error_of(lambda: pynvml.nvmlGpmSampleFree(sample))
        assert error_of(power_mw) == pynvml.NVML_ERROR_UNINITIALIZED
        pynvml.nvmlInit()
        assert power_mw() == 600_000
        pynvml.nvmlShutdown()
