"""The sentences of the window outside of Compare can be read aloud: refusals, questions and what adapts them."""

from collections.abc import Callable, Iterator

import pytest

from app.gui.run.first_start import LEAD
from app.runs.experiment.presets import load_preset, preset_names
from app.values.samples import HOST
from app.viewmodels.experiment.preview import PresetLine, preset_line
from app.viewmodels.format.naming import SEPARATOR
from app.viewmodels.format.sentences import name_few, without_advice
from app.viewmodels.history.evidence import stored_evidence_view
from app.viewmodels.history.run_detail import run_detail
from tests.fakes.sentences import sentence_faults
from tests.unit.viewmodels.events import CPU_INVENTORY
from tests.unit.viewmodels.monitor.test_readings import details as monitor_details
from tests.unit.viewmodels.monitor.test_readings import model_of
from tests.unit.viewmodels.stored import run_row, stored_run
from workloads.catalog import Gpu, Machine
from workloads.validity import RULES

OLD = Gpu(index=0, uuid="GPU-0", name="Tesla P4", compute_capability=(6, 1))
NEW = Gpu(index=0, uuid="GPU-0", name="NVIDIA H200", compute_capability=(9, 0))
MACHINES = (Machine(cpu_count=2), Machine(gpus=(OLD,), cpu_count=2), Machine(gpus=(NEW,), cpu_count=2))


class AnyValue(dict[str, int]):
    """A value of each parameter that a reason names."""

    def __missing__(self, name: str) -> int:
        return 7


def refusals() -> Iterator[str]:
    for rule in RULES:
        yield without_advice(rule.reason.format_map(AnyValue()))


def questions() -> Iterator[str]:
    for name in preset_names():
        named = load_preset(name)
        for machine in MACHINES:
            line = preset_line(PresetLine(key=name, name=name, title=named.preset.title), named.plan(machine), machine)
            yield from (line.title, line.question, line.adapted, *line.notes)


def details() -> Iterator[str]:
    yield from (LEAD, *monitor_details(model_of(CPU_INVENTORY)[0], HOST).no_gpu)
    for rule in RULES:
        row = run_row(1, outcome="refused", reason=rule.reason.format_map(AnyValue()), throughput=None)
        detail = run_detail(stored_run(row, measured=False), None)
        yield from (detail.reason, *detail.notes, stored_evidence_view(stored_run(row, measured=False)).badge.detail)


@pytest.mark.parametrize("texts", [refusals, questions, details])
def test_a_sentence_takes_one_breath_and_no_command(texts: Callable[[], Iterator[str]]) -> None:
    sentences = list(texts())
    assert len(sentences) > 5
    assert [fault for text in sentences for fault in sentence_faults(text)] == []


def test_up_to_three_variants_are_named_in_full_and_more_are_counted() -> None:
    names = [("PyTorch", f"cuDNN stack and a long value {number}", "batch 64") for number in range(4)]
    parts = [SEPARATOR.join(name) for name in names]
    assert [name_few(names[:1]), name_few(names[:3])] == [parts[0], f"{parts[0]}, {parts[1]} and {parts[2]}"]
    assert name_few(names) == "4 variants"
