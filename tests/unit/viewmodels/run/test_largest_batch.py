"""How far a search for the largest batch may go, as it is asked."""

from app.viewmodels.run.form import LimitQuestion, VariantForm, limit_question
from tests.unit.viewmodels.events import GPU_INVENTORY
from workloads.catalog import Machine

SWAPS = "makes the whole machine swap"


def question_on(machine: Machine, batch_size: int) -> LimitQuestion:
    form = VariantForm("cnn10")
    form.set_machine(machine)
    form.edit("batch_size", batch_size)
    return limit_question(form.state())


def test_on_a_gpu_memory_ends_the_search_so_all_is_offered() -> None:
    question = question_on(GPU_INVENTORY.machine, 2048)
    assert question.minimum == 2048
    assert question.default == question.maximum > 2048
    assert "double the batch from 2,048 until memory runs out" in question.text
    assert SWAPS not in question.text


def test_on_the_cpu_what_is_offered_is_near_what_is_chosen_and_never_past_the_most() -> None:
    question = question_on(Machine(cpu_count=2), 64)
    assert (question.minimum, question.default) == (64, 64 * 16)
    assert SWAPS in question.text
    near_the_most = question_on(Machine(cpu_count=2), question.maximum - 1)
    assert near_the_most.default == question.maximum
