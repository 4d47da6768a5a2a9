"""The results that `quick` computes from verdicts; the comparison itself is the command line's."""

import pytest

from benchmarks import quick


def document(decision: str, ratio: float | None) -> dict[str, object]:
    speedup = None if ratio is None else {"ratio": ratio, "interval": [ratio, ratio]}
    rows = [{"speedup": {"ratio": 1.0, "interval": None}}, {"speedup": speedup}]
    return {"verdict": {"decision": decision, "text": "Some words."}, "rows": rows}


def test_the_slowest_and_the_commonest_verdict_are_held_to_a_limit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = [(60.0, "faster", 1.5), (95.0, "no difference seen", 1.1), (70.0, "faster", 1.7)]
    made = iter([quick._read(document(decision, ratio), seconds) for seconds, decision, ratio in said])
    monkeypatch.setattr(quick, "_one", lambda: next(made))
    found = {result.name: result for result in quick.measure(3)}
    assert found["command to verdict, median"].value == 70.0
    assert found["command to verdict, slowest of 3"].passed is False
    assert [found[f"speed-up, {name}"].value for name in ("least", "median", "greatest")] == [1.1, 1.5, 1.7]
    share = found["share with the verdict 'faster'"]
    assert share.value == pytest.approx(2 / 3)
    assert share.passed is False
    assert capsys.readouterr().err.splitlines()[1] == "2: 95 s, no difference seen: Some words."


def test_one_without_a_ratio_is_a_verdict_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quick, "_one", lambda: quick._read(document("nothing to compare", None), 5.0))
    found = quick.measure(2)
    assert [result.passed for result in found if result.limit] == [True, True]
    assert not any("speed-up" in result.name for result in found)
