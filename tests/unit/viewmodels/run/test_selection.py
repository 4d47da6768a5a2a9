"""Several values in the form: combinations, what cannot run of them, the same as a command, how far it goes."""

import shlex
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from app.cli.run import several_variants
from app.values.plan import MAX_REPEATS
from app.viewmodels.run.fields import BASELINE, EXPERIMENT
from app.viewmodels.run.form import VariantForm
from app.viewmodels.run.selection import OLDER, RECENT
from tests.fakes.command_line import parse_arguments
from tests.unit.viewmodels.events import GPU_INVENTORY
from tests.unit.viewmodels.run.test_form import field, form_on
from workloads import catalog
from workloads.catalog import MAX_VARIANTS, CustomFile, Machine, Parameter
from workloads.protocol import RunSpec

TWO_GPUS = GPU_INVENTORY.machine
ONE_GPU = Machine(gpus=TWO_GPUS.gpus[:1], cpu_count=16)
NO_GPU = Machine(cpu_count=2)


def names(form: VariantForm) -> list[str]:
    """Return the names of the variants, in the order of the list of baselines."""
    return [option.label for option in field(form, BASELINE).options]


def read(form: VariantForm) -> SimpleNamespace:
    """The command as the command line understands it."""
    words = shlex.split(form.selection.command())
    assert words[:3] == ["python", "-m", "app"]
    return parse_arguments(*words[3:])


def by_command(form: VariantForm, machine: Machine) -> list[RunSpec]:
    """The variants that the command makes, without those that cannot run."""
    chosen = read(form)
    made = several_variants(catalog.workload(chosen.workload), chosen.settings, machine)
    return [spec for spec in made if not catalog.check(spec, machine)]


def plan_values(form: VariantForm, name: str) -> list[object]:
    return [spec.variant[name] for spec in form.selection.plan().variants]


def test_one_value_each_is_a_run_and_a_second_value_makes_an_experiment() -> None:
    form = form_on(NO_GPU)
    state = form.state()
    assert (state.is_experiment, state.can_run, state.runs) == (False, True, 3)
    assert not any(each.name.startswith(EXPERIMENT) for each in state.fields)
    form.edit("xla", False, True)
    state = form.state()
    assert (state.is_experiment, state.variants, state.runs) == (True, 2, 6)
    assert [each.name.removeprefix(EXPERIMENT) for each in state.fields if each.name.startswith(EXPERIMENT)] == [
        "baseline",
        "repeats",
        "until_pct",
        "budget_min",
    ]
    form.edit("xla", True)
    assert (form.state().is_experiment, form.selection.spec.variant["xla"]) == (False, True)


def test_every_combination_is_a_variant_and_what_cannot_run_is_left_out_with_one_line_a_reason() -> None:
    form = form_on(TWO_GPUS)
    form.edit("implementation", "cudnn", "standard", "block_fused")
    form.edit("xla", False, True)
    form.type("batch_size", "64, 128 256")
    state = form.state()
    assert (state.combinations, state.variants, state.runs, state.problem) == (18, 12, 36, "")
    assert [(group.count, group.values) for group in state.refused] == [
        (3, "cuDNN with XLA on"),
        (3, "Block-fused with XLA on"),
    ]
    assert state.cures == (), "no value is at fault alone"
    plan = form.selection.plan()
    assert (len(plan.variants), plan.asked) == (12, "implementation"), "the first setting of several values asks"
    assert plan.notes == tuple(f"3 left out. {group.text}" for group in state.refused)
    assert all(not catalog.check(spec, TWO_GPUS) for spec in plan.variants)


def test_a_value_that_no_combination_can_have_is_struck_through_and_left_out_at_a_click() -> None:
    form = form_on(NO_GPU)
    form.edit("implementation", "standard", "cudnn", "block_fused")
    chosen = field(form, "implementation").chosen
    assert [option.label for option in chosen if option.reason] == ["cuDNN"]
    (cure,) = form.state().cures
    assert cure.label == "Leave out Implementation cuDNN"
    form.edit(cure.name, *cure.values)
    assert plan_values(form, "implementation") == ["standard", "block_fused"]
    assert form.state().refused == ()


def test_where_one_other_value_would_do_it_is_the_cure() -> None:
    form = form_on(TWO_GPUS)
    form.edit("xla", True)
    form.edit("batch_size", 64, 128)
    state = form.state()
    assert (state.variants, state.can_run) == (0, False)
    assert state.problem.startswith("None of these 2 combinations can run here")
    assert "Turn XLA off" in [cure.label for cure in state.cures]
    form.edit("xla", False)
    assert form.state().can_run


def test_one_that_can_run_has_nothing_to_be_compared_with() -> None:
    form = form_on(NO_GPU)
    form.edit("implementation", "standard", "cudnn")
    assert form.state().problem.startswith("Only one of these 2 combinations can run here")


def test_the_first_value_is_the_baseline_until_another_is_chosen() -> None:
    form = form_on(ONE_GPU, "cnn10")
    form.edit("layout", "NHWC", "NCHW")
    form.type("batch_size", "128, 256")
    before = names(form)
    assert field(form, BASELINE).chosen[0].label == before[0] == "NHWC · Batch size 128"
    assert not form.selection.plan().has_baseline
    form.edit(BASELINE, 3)
    assert form.selection.plan().has_baseline
    assert (names(form), field(form, BASELINE).value) == (before, 3)
    first = form.selection.plan().variants[0].variant
    assert (first["layout"], first["batch_size"]) == ("NCHW", 256)
    form.edit("layout", "NHWC", "NCHW")
    assert field(form, BASELINE).value == 3, "it stays while its values do"
    form.edit("layout", "NHWC")
    assert field(form, BASELINE).label == "Baseline"


@pytest.mark.parametrize("machine", [NO_GPU, ONE_GPU, TWO_GPUS])
def test_the_command_makes_the_same_variants_in_the_same_order(machine: Machine) -> None:
    form = form_on(machine)
    form.edit("layers", 2)
    form.edit("seconds", 2.5)
    form.edit("bidirectional", True)
    form.edit("implementation", "standard", "block_fused", "cudnn")
    form.edit("gpus", *([1, 0] if machine.gpus else [0]))
    form.type("batch_size", "16, 32")
    form.edit(BASELINE, 1)
    plan = form.selection.plan()
    assert by_command(form, machine) == list(plan.variants)
    assert all(spec.variant["bidirectional"] for spec in plan.variants)
    assert " · Batch size 32, 16 · " in plan.name
    assert plan.name.endswith("bidirectional")


def test_on_cpu_and_gpu_all_else_is_as_the_form_shows_it() -> None:
    form = form_on(ONE_GPU, "cnn10")
    form.edit("gpus", 1, 0)
    on_gpu, on_cpu = form.selection.plan().variants
    assert (on_gpu.variant["gpus"], on_cpu.variant["gpus"]) == (1, 0)
    assert {**on_cpu.variant, "gpus": 1} == on_gpu.variant == form.selection.spec.variant
    assert by_command(form, ONE_GPU) == [on_gpu, on_cpu]


def test_what_is_typed_stays_as_it_was_typed_and_an_empty_field_has_its_default() -> None:
    form = form_on(NO_GPU)
    form.type("batch_size", "8..64 x2")
    assert field(form, "batch_size").text == "8..64 x2"
    assert plan_values(form, "batch_size") == [8, 16, 32, 64]
    form.edit("batch_size", 8, 16)
    assert field(form, "batch_size").text == "8, 16", "one was left out by its chip"
    form.type("batch_size", " ")
    assert (field(form, "batch_size").text, field(form, "batch_size").default) == ("32", "")


def test_a_word_that_is_no_value_stays_with_what_is_wrong_and_nothing_can_run() -> None:
    form = form_on(NO_GPU)
    form.edit("batch_size", 8, 16)
    form.type("batch_size", "16, many, 0")
    wrong = field(form, "batch_size")
    assert (wrong.text, wrong.problem) == ("16, many, 0", True)
    assert wrong.note == ("Batch size takes a whole number, not 'many'. Batch size must be from 1 to 1,048,576, not 0.")
    state = form.state()
    assert (state.problem, state.can_run) == ("Correct Batch size above.", False)
    form.choose("cnn10")
    assert form.state().can_run, "what is wrong is in the other form"
    form.choose("lstm")
    form.type("batch_size", "16")
    assert form.state().can_run


def test_how_far_it_goes_is_in_the_plan_and_in_the_command() -> None:
    form = form_on(TWO_GPUS, "cnn10")
    form.edit("layout", "NCHW", "NHWC")
    assert (read(form).repeats, read(form).budget, read(form).parallel, read(form).again) == (None, None, None, True)
    for name, value in {"repeats": 5, "budget_min": 8, "side_by_side": True}.items():
        form.edit(EXPERIMENT + name, value)
    assert (read(form).repeats, read(form).budget, read(form).parallel) == (5, 480.0, 2)
    assert (form.selection.plan().parallel, form.selection.plan().budget_s) == (2, 480.0)
    form.edit(f"{EXPERIMENT}repeats")
    form.type(f"{EXPERIMENT}until_pct", "0.5")
    assert (form.selection.plan().repeats, form.selection.plan().until_pct) == (MAX_REPEATS, 0.5)
    assert (read(form).until, read(form).repeats) == (0.5, None)
    assert field(form, f"{EXPERIMENT}repeats").label == "Repeats at most"
    form.type(f"{EXPERIMENT}repeats", "1")
    assert field(form, f"{EXPERIMENT}repeats").problem, "an interval takes more"
    assert form.state().problem == "Correct Repeats at most above."


def test_stored_runs_count_only_where_the_user_wants_it() -> None:
    form = form_on(NO_GPU)
    form.edit("units", 32, 64)
    stored = f"{EXPERIMENT}stored"
    assert form.selection.plan().again
    assert stored not in [each.name for each in form.state().fields]
    assert stored in [each.name for each in form.state(has_stored=True).fields]
    for choice, options in ((RECENT, (None, None)), (OLDER, (None, True))):
        form.edit(stored, choice)
        assert (read(form).again or None, read(form).reuse or None) == options
        assert (form.selection.plan().again, form.selection.plan().reuse) == (False, choice == OLDER)
    assert "stored" not in form.choices.extent, "that is meant once"


def test_runs_go_on_side_by_side_only_where_there_are_two_gpus() -> None:
    form = form_on(ONE_GPU, "cnn10")
    form.edit("layout", "NCHW", "NHWC")
    form.edit(f"{EXPERIMENT}side_by_side", True)
    assert f"{EXPERIMENT}side_by_side" not in [each.name for each in form.state().fields]
    assert (form.selection.plan().parallel, read(form).parallel) == (1, None)


def test_too_many_combinations_are_not_even_made() -> None:
    form = form_on(NO_GPU)
    form.type("batch_size", f"1..{MAX_VARIANTS} +1")
    assert form.state().can_run
    form.type("batch_size", f"1..{MAX_VARIANTS + 1} +1")
    assert f"{MAX_VARIANTS + 1} combinations are too many" in form.state().problem


def test_what_is_essential_is_in_sight_and_the_rest_is_found() -> None:
    form = form_on(NO_GPU)
    essential = [each.name for each in form.state().fields if each.essential]
    assert essential == [
        "framework", "implementation", "layers", "units", "gpus", "batch_size", "precision", "xla", "seconds",
    ]  # fmt: skip
    found = {each.name for each in form.state().fields if each.matches("recurrent drop")}
    assert found == {"recurrent_dropout"}
    assert {each.name for each in form.state().fields if each.matches("padded start")} == {"sequence_lengths"}


@pytest.mark.parametrize(
    ("frameworks", "names"),
    [
        ((), {"xla"}),
        (("pytorch",), {"compile", "cuda_graph"}),
        (("jax",), set()),
        (("jax", "tensorflow", "pytorch"), {"xla", "compile", "cuda_graph"}),
    ],
)
def test_what_one_framework_has_is_in_sight_where_it_is_chosen(frameworks: tuple[str, ...], names: set[str]) -> None:
    form = form_on(ONE_GPU)
    form.edit("framework", *frameworks)
    in_sight = {field.name for field in form.state().fields if field.essential}
    assert in_sight & {"xla", "compile", "cuda_graph"} == names


def test_what_is_not_at_its_default_says_so() -> None:
    form = form_on(ONE_GPU)
    assert [each.name for each in form.state().fields if each.default] == []
    form.edit("seed", 2)
    form.edit("gpus", 0)
    form.edit("memory_limit", 1.5)
    assert {each.name: each.default for each in form.state().fields if each.default} == {
        "gpus": "1",
        "seed": "1",
        "memory_limit": "off",
    }
    form.edit("seed")
    assert field(form, "seed").default == ""


def test_reset_is_one_record_that_can_be_put_back() -> None:
    form = form_on(ONE_GPU)
    form.edit("units", 64, 128)
    form.edit(f"{EXPERIMENT}repeats", 5)
    form.edit(BASELINE, 1)
    before, plan = form.choices, form.selection.plan()
    form.reset()
    assert form.selection.plan() != plan
    assert not form.state().is_experiment
    form.restore(before)
    assert form.selection.plan() == plan


def test_another_window_takes_over_what_fits() -> None:
    form = form_on(ONE_GPU)
    form.type("units", "64, 128")
    form.edit(f"{EXPERIMENT}repeats", 5)
    later = form_on(ONE_GPU)
    unknown = {**form.choices.edited, "cnn10": {"batch_size": (8, 0)}, "gone": {"units": (1, 2)}}
    later.restore(replace(form.choices, edited=unknown))
    assert later.selection.command() == form.selection.command()
    later.choose("cnn10")
    assert not later.state().is_experiment


def file_workload(sha256: str, *names: str) -> catalog.Workload:
    """A workload of a user's file whose own parameters are whole numbers."""
    dummy = catalog.workload("dummy")
    all_have = {"compile", "cuda_graph", *(parameter.name for parameter in dummy.parameters)}
    shared = tuple(each for each in catalog.workload("lstm").parameters if each.name in all_have)
    own = tuple(Parameter(name, name, name, 8) for name in names)
    return replace(
        dummy,
        name="mine.py:mine",
        custom_file=CustomFile(path="/mine/mine.py", sha256=sha256),
        parameters=(*own, *shared),
    )


def test_parameters_of_a_users_own_workload_are_in_sight_and_keep_the_values_that_fit() -> None:
    form = form_on(NO_GPU)
    file = Path("/mine/mine.py")
    form.offer_custom_workloads(file, [file_workload("a" * 64, "width")])
    form.choose("mine.py:mine")
    assert field(form, "width").essential
    assert not field(form, "cuda_graph").essential, "which every workload has"
    form.type("width", "8, 16")
    assert plan_values(form, "width") == [8, 16]
    assert "experiment /mine/mine.py:mine -s width=8,16" in form.selection.command()
    form.offer_custom_workloads(file, [file_workload("c" * 64, "width", "depth")])
    assert plan_values(form, "source") == ["c" * 64] * 2
    form.offer_custom_workloads(file, [file_workload("b" * 64, "depth")])
    assert form.state().combinations == 1
    assert "width" not in form.selection.command()
