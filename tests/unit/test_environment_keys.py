"""Numbers in a run's environment: what is none is refused where it comes in, and absent where it was stored."""

from typing import Any

import pytest

from app.analysis.comparability import throttled_pct
from app.hosts.messages import decode_report
from app.values.environment_keys import CPU_COUNT_KEY, THROTTLED_KEY, environment_number, wrong_numbers
from tests.unit.runs.test_lost_database import STARTED
from workloads.protocol import EnvironmentInfo, ProtocolError, encode


@pytest.mark.parametrize(
    ("key", "text", "number"),
    [
        (CPU_COUNT_KEY, "64", 64),
        (CPU_COUNT_KEY, "1000000", 1e6),
        (CPU_COUNT_KEY, "1000001", None),
        (CPU_COUNT_KEY, "-1", None),
        (THROTTLED_KEY, "0.0", 0),
        (THROTTLED_KEY, "100.0", 100),
        (THROTTLED_KEY, "100.1", None),
        *(
            (CPU_COUNT_KEY, text, None)
            for text in ("many", "", "nan", "inf", "1e3", "0x10", "1_0", " 8", "٨", "9" * 21)
        ),
    ],
)
def test_a_number_is_what_this_program_writes(key: str, text: str, number: float | None) -> None:
    assert environment_number({key: text}, key) == number
    assert wrong_numbers({key: text, "cpu": "any word"}) == ([key] if number is None else [])


def test_an_absent_number_is_not_wrong() -> None:
    assert environment_number({}, CPU_COUNT_KEY) is None
    assert wrong_numbers({}) == []
    assert throttled_pct({}) == throttled_pct({THROTTLED_KEY: "a lot"}) == 0.0


@pytest.mark.parametrize("event", [STARTED, EnvironmentInfo(environment={})])
def test_an_event_with_a_word_for_a_number_is_none(event: Any) -> None:
    for word, is_event in (("8", True), ("eight", False)):
        line = encode(type(event)(**{**fields(event), "environment": {CPU_COUNT_KEY: word}}))
        if is_event:
            assert decode_report(line).environment == {CPU_COUNT_KEY: "8"}  # type: ignore[union-attr]
        else:
            with pytest.raises(ProtocolError, match="because cpu_count of its environment is not a number"):
                decode_report(line)


def fields(event: Any) -> dict[str, Any]:
    return {name: getattr(event, name) for name in event.__struct_fields__}
