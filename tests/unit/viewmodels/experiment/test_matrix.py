"""Experiments as they are built: combinations, what cannot run of them, the same as a command, what is said before."""

import shlex
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from app.cli.runs import several_variants
from app.queries import ExperimentProgress, TimeLeft
from app.viewmodels.experiment.matrix import MatrixForm
from app.viewmodels.experiment.matrix_state import MatrixRow
from app.viewmodels.experiment.preview import describe_dates, describe_estimate
from app.viewmodels.run.form import VariantForm
from tests.fakes.command_line import parse_arguments
from tests.unit.viewmodels.events import GPU_INVENTORY
from workloads import catalog
from workloads.catalog import MAX_VARIANTS, CustomFile, Machine, Parameter
from workloads.protocol import RunSpec

TWO_GPUS = GPU_INVENTORY.machine
ONE_GPU = Machine(gpus=TWO_GPUS.gpus[:1], cpu_count=16)
NO_GPU = Machine(cpu_count=2)
MOST = 20
S = 1_000_000_000


def matrix_on(machine: Machine, workload: str = "lstm") -> tuple[MatrixForm, VariantForm]:
    form = VariantForm(workload)
    form.set_machine(machine)
    return MatrixForm(form, MOST), form


def row(matrix: MatrixForm, name: str) -> MatrixRow:
    return next(row for row in matrix.state().rows if row.name == name)


def read(matrix: MatrixForm) -> SimpleNamespace:
    """The command as the command line understands it."""
    words = shlex.split(matrix.command())
    assert words[:3] == ["python", "-m", "app"]
    return parse_arguments(*words[3:])


def by_command(matrix: MatrixForm, machine: Machine) -> list[RunSpec]:
    """The variants that the command makes, without those that cannot run."""
    chosen = read(matrix)
    made = several_variants(catalog.workload(chosen.workload), chosen.settings, machine)
    return [spec for spec in made if not catalog.check(spec, machine)]


def test_one_variant_is_no_experiment_yet_and_says_what_to_do() -> None:
    matrix, _ = matrix_on(NO_GPU)
    state = matrix.state()
    assert "two or more values" in state.problem
    assert state.headline == ""
    assert row(matrix, "xla").chosen == (False,)
    assert row(matrix, "devices").placeholder == "first free ones; several as 0; 1"
    assert row(matrix, "interpreter").placeholder == "this program's own"


def test_every_combination_is_a_variant_and_what_cannot_run_is_left_out_with_one_line_a_reason() -> None:
    matrix, _ = matrix_on(TWO_GPUS)
    for value in ("standard", "block_fused"):
        matrix.tick("implementation", value, on=True)
    matrix.tick("xla", True, on=True)
    matrix.enter_list("batch_size", "64, 128 256")
    state = matrix.state()
    assert (state.combinations, len(state.variants), state.headline) == (18, 12, "36 runs")
    assert state.problem == ""
    assert [(group.count, group.values) for group in state.refused] == [
        (3, "cuDNN with XLA on"),
        (3, "Block-fused with XLA on"),
    ]
    assert "XLA cannot compile cuDNN's layers" in state.refused[0].reason
    plan = matrix.plan()
    assert len(plan.variants) == 12
    assert plan.notes == tuple(f"3 left out. {group.text}" for group in state.refused)
    assert all(not catalog.check(spec, TWO_GPUS) for spec in plan.variants)


def test_reasons_that_differ_in_numbers_alone_are_one_line() -> None:
    matrix, _ = matrix_on(TWO_GPUS, "cnn10")
    matrix.tick("gpus", 2, on=True)
    matrix.enter_list("batch_size", "64, 65, 67, 69, 128")
    (group,) = matrix.state().refused
    assert group.count == 3
    assert group.values == "2 GPUs with Batch size 65 / Batch size 67 / Batch size 69"


def test_the_form_is_the_baseline_and_what_is_not_chosen_follows_it() -> None:
    matrix, form = matrix_on(ONE_GPU, "cnn10")
    matrix.tick("layout", "NHWC", on=True)
    form.edit("batch_size", 256)
    form.edit("layout", "NHWC")
    first, second = matrix.plan().variants
    assert (first.variant["layout"], second.variant["layout"]) == ("NHWC", "NCHW")
    assert first.variant["batch_size"] == second.variant["batch_size"] == 256
    state = matrix.state()
    assert state.variants[state.baseline] == "NHWC"


def test_another_baseline_comes_first_and_the_list_stays_in_its_order() -> None:
    matrix, _ = matrix_on(ONE_GPU, "cnn10")
    matrix.tick("layout", "NHWC", on=True)
    matrix.enter_list("batch_size", "128, 256")
    before = matrix.state().variants
    matrix.choose_baseline(3)
    state = matrix.state()
    assert (state.variants, state.baseline) == (before, 3)
    assert matrix.plan().variants[0].variant["layout"] == "NHWC"
    assert matrix.plan().variants[0].variant["batch_size"] == 256


@pytest.mark.parametrize("machine", [NO_GPU, ONE_GPU, TWO_GPUS])
def test_the_command_makes_the_same_variants_in_the_same_order(machine: Machine) -> None:
    matrix, form = matrix_on(machine, "lstm")
    form.edit("layers", 2)
    form.edit("seconds", 2.5)
    matrix.tick("implementation", "standard", on=True)
    matrix.tick("implementation", "block_fused", on=True)
    matrix.tick("gpus", 0, on=True)
    matrix.tick("bidirectional", True, on=True)
    matrix.tick("bidirectional", False, on=False)
    matrix.enter_list("batch_size", "16, 32")
    matrix.choose_baseline(1)
    plan = matrix.plan()
    assert by_command(matrix, machine) == list(plan.variants)
    assert all(spec.variant["bidirectional"] for spec in plan.variants)
    assert plan.name.startswith("lstm: Implementation Standard, ")
    assert " · Batch size 32, 16 · " in plan.name
    assert plan.name.endswith("bidirectional")


def test_on_cpu_and_gpu_all_else_is_as_the_form_shows_it() -> None:
    matrix, form = matrix_on(ONE_GPU, "cnn10")
    matrix.tick("gpus", 0, on=True)
    on_gpu, on_cpu = matrix.plan().variants
    assert (on_gpu.variant["gpus"], on_cpu.variant["gpus"]) == (1, 0)
    assert {**on_cpu.variant, "gpus": 1} == on_gpu.variant == form.spec().variant
    assert by_command(matrix, ONE_GPU) == [on_gpu, on_cpu]


def test_cards_are_listed_with_semicolons_here_and_in_the_command() -> None:
    matrix, form = matrix_on(TWO_GPUS, "cnn10")
    matrix.enter_list("devices", "0; 1")
    assert [spec.variant["devices"] for spec in matrix.plan().variants] == ["0", "1"]
    assert "-s 'devices=0;1'" in matrix.command()
    assert by_command(matrix, TWO_GPUS) == list(matrix.plan().variants)
    form.edit("gpus", 2)
    matrix.enter_list("devices", "0,1; 1,0")
    assert [spec.variant["devices"] for spec in matrix.plan().variants] == ["0,1", "1,0"]


def test_a_comma_within_a_number_is_no_list_of_two() -> None:
    matrix, _ = matrix_on(TWO_GPUS, "cnn10")
    matrix.enter_list("seconds", "0,5; 1,5")
    assert "takes a number, not '0,5'" in row(matrix, "seconds").problem
    for text in ("2, 5", "2.0,5", "2;5"):
        matrix.enter_list("seconds", text)
        assert [spec.variant["seconds"] for spec in matrix.plan().variants] == [2.0, 5.0]


def test_how_far_it_goes_is_in_the_command() -> None:
    matrix, _ = matrix_on(TWO_GPUS, "cnn10")
    matrix.tick("layout", "NHWC", on=True)
    assert (read(matrix).repeats, read(matrix).budget, read(matrix).parallel) == (None, None, None)
    matrix.update_extent(repeats=5, budget_s=480.0, side_by_side=True)
    assert (read(matrix).repeats, read(matrix).budget, read(matrix).parallel) == (5, 480.0, 2)
    assert (matrix.plan().parallel, matrix.plan().budget_s) == (2, 480.0)
    matrix.update_extent(until_pct=0.5, repeats=None)
    state = matrix.state()
    assert (state.repeats, state.headline) == (MOST, f"{2 * MOST} runs")
    assert "at most" in state.detail
    matrix.update_extent(again=True)
    assert (read(matrix).until, read(matrix).repeats, read(matrix).again) == (0.5, None, True)
    matrix.update_extent(reuse=True)
    assert (read(matrix).again, read(matrix).reuse) == (True, False)
    matrix.update_extent(again=False)
    assert (read(matrix).again, read(matrix).reuse, matrix.plan().reuse) == (False, True, True)


def test_runs_go_on_side_by_side_only_where_there_are_two_gpus() -> None:
    matrix, _ = matrix_on(ONE_GPU, "cnn10")
    matrix.update_extent(side_by_side=True)
    assert matrix.state().side_by_side is None
    assert matrix.plan().parallel == 1
    assert read(matrix).parallel is None


def test_a_word_that_is_no_value_stays_with_what_is_wrong() -> None:
    matrix, _ = matrix_on(NO_GPU)
    matrix.enter_list("batch_size", "16, many, 0")
    found = row(matrix, "batch_size")
    assert found.text == "16, many, 0"
    assert found.problem == (
        "Batch size takes a whole number, not 'many'. Batch size must be from 1 to 1,048,576, not 0."
    )
    assert matrix.state().problem == "Correct the values of Batch size above."
    matrix.enter_list("batch_size", "")
    assert row(matrix, "batch_size").text == "32"


def test_while_a_list_is_typed_its_last_value_is_not_judged_yet() -> None:
    matrix, _ = matrix_on(NO_GPU)
    typed = {"x": False, "x,": True, "x, 3": True, "32, 0": False, "32, 0 ": True}
    assert {text: bool(matrix.problem_while_typing("batch_size", text)) for text in typed} == typed


def test_the_last_value_stays_ticked() -> None:
    matrix, _ = matrix_on(NO_GPU)
    matrix.tick("xla", False, on=False)
    assert row(matrix, "xla").chosen == (False,)


def test_too_many_combinations_are_not_even_made() -> None:
    matrix, _ = matrix_on(NO_GPU)
    matrix.enter_list("batch_size", " ".join(map(str, range(1, MAX_VARIANTS + 2))))
    assert f"{MAX_VARIANTS + 1} combinations are too many" in matrix.state().problem


def test_seldom_parameters_are_folded_until_they_are_compared() -> None:
    matrix, _ = matrix_on(NO_GPU)
    assert not row(matrix, "xla").folded
    assert row(matrix, "seed").folded
    matrix.enter_list("seed", "1, 2")
    assert not row(matrix, "seed").folded


def test_another_window_takes_over_what_fits_but_not_to_make_runs_again() -> None:
    matrix, _ = matrix_on(ONE_GPU)
    matrix.enter_list("units", "64, 128")
    matrix.update_extent(repeats=5, again=True)
    again, _ = matrix_on(ONE_GPU)
    of_today = matrix.choices
    unknown = {**of_today.lists, "cnn10": {"batch_size": (0,)}, "gone": {"units": (1, 2)}}
    again.restore(replace(of_today, lists=unknown))
    assert again.command() == matrix.command().removesuffix(" --again")
    matrix.update_extent(reuse=True)
    assert not matrix.choices.extent.reuse
    assert set(again.choices.lists) == {"lstm"}


def test_each_workload_keeps_its_own_values() -> None:
    matrix, form = matrix_on(ONE_GPU, "cnn10")
    matrix.tick("layout", "NHWC", on=True)
    form.choose("lstm")
    assert len(matrix.state().variants) == 1
    form.choose("cnn10")
    assert len(matrix.state().variants) == 2


@pytest.mark.parametrize(
    ("ahead", "says"),
    [
        (
            ExperimentProgress(planned=12, done=0, left=TimeLeft(72, 90, 108), timing_runs=0),
            "This takes 1 to 2 min (estimated from runs on other machines, as none is stored here).",
        ),
        (
            ExperimentProgress(planned=12, done=0, left=TimeLeft(72, 90, 108), timing_runs=7),
            "This takes 1 to 2 min (estimated from 7 stored runs).",
        ),
        (
            ExperimentProgress(planned=12, done=4, left=TimeLeft(48, 60, 72), timing_runs=1),
            "4 of 12 already stored; the other 8 will take 45 to 75 s (estimated from 1 stored run).",
        ),
        (
            ExperimentProgress(
                planned=12, done=0, left=TimeLeft(72, 90, 108), timing_runs=7, from_other_workloads=True
            ),
            "This takes 1 to 2 min (estimated from 7 stored runs of other workloads).",
        ),
        (
            ExperimentProgress(planned=12, done=12, left=TimeLeft(), timing_runs=9),
            "All 12 are already stored: nothing is left to run.",
        ),
    ],
)
def test_what_is_said_of_the_time_before_it_starts(ahead: ExperimentProgress, says: str) -> None:
    assert describe_estimate(ahead) == [says]


def test_the_times_of_stored_runs_are_told_of_those_that_count_and_of_those_too_old() -> None:
    days = [int(datetime.fromisoformat(f"2026-11-{day} 14:05").astimezone().timestamp()) * S for day in (20, 20, 21)]
    assert describe_dates((), ()) == []
    assert describe_dates(days[:1], days) == [
        "Counted: 1 stored run of 2026-11-20 14:05.",
        "Not counted, as made more than an hour before: 3 stored runs of 2026-11-20 14:05 to 2026-11-21 14:05.",
    ]
    assert describe_dates((days[0], days[0] + 60 * S), ()) == ["Counted: 2 stored runs of 2026-11-20 14:05 to 14:06."]


def test_an_early_end_makes_it_the_longest_time() -> None:
    ahead = ExperimentProgress(planned=40, done=0, left=TimeLeft(320, 400, 480), timing_runs=0)
    assert describe_estimate(ahead, at_most=True) == [
        "This takes at most 5 to 8 min (estimated from runs on other machines, as none is stored here)."
    ]


def test_an_early_end_and_a_limit_are_said_and_what_does_not_count() -> None:
    ahead = ExperimentProgress(
        planned=12, done=0, left=TimeLeft(72, 90, 108), timing_runs=7, excluded=3, excluded_due_to=("driver", "GPU")
    )
    assert describe_estimate(ahead, at_most=True, budget_s=60.0) == [
        "This takes at most 1 to 2 min (estimated from 7 stored runs).",
        "It stops within 1:00 and can be resumed.",
        "Not counted: 3 stored runs of these variants with another driver, another GPU.",
    ]


def file_workload(sha256: str, *names: str) -> catalog.Workload:
    """A workload of a user's file whose own parameters are whole numbers."""
    dummy = catalog.workload("dummy")
    lstm = {parameter.name for parameter in catalog.workload("lstm").parameters}
    shared = tuple(parameter for parameter in dummy.parameters if parameter.name in lstm)
    own = tuple(Parameter(name=name, kind="integer", label=name, help=name, default=8) for name in names)
    return replace(
        dummy,
        name="mine.py:mine",
        custom_file=CustomFile(path="/mine/mine.py", sha256=sha256),
        parameters=(*own, *shared),
    )


def test_parameters_of_a_users_own_workload_are_in_sight_and_forgotten_when_its_file_changes() -> None:
    matrix, form = matrix_on(NO_GPU)
    file = Path("/mine/mine.py")
    form.offer_custom_workloads(file, [file_workload("a" * 64, "width")])
    form.choose("mine.py:mine")
    assert not row(matrix, "width").folded
    matrix.enter_list("width", "8, 16")
    assert [spec.variant["width"] for spec in matrix.plan().variants] == [8, 16]
    assert "experiment /mine/mine.py:mine -s width=8,16" in matrix.command()
    form.offer_custom_workloads(file, [file_workload("b" * 64, "depth")])
    assert len(matrix.state().variants) == 1
    assert "width" not in matrix.command()


def test_a_file_that_is_read_or_no_good_keeps_only_its_own_workloads_from_starting() -> None:
    matrix, form = matrix_on(NO_GPU)
    file = Path("/mine/mine.py")
    form.offer_custom_workloads(file, [file_workload("a" * 64, "width")])
    form.choose("mine.py:mine")
    matrix.enter_list("width", "8, 16")
    form.mark_file_failed(Path("/mine/other.py"), "other.py:1: SyntaxError")
    assert matrix.state().problem == ""
    form.mark_file_loading(file, "Reading mine.py …")
    assert matrix.state().problem == "mine.py must be read first."
    form.mark_file_failed(file, "mine.py:3: NameError")
    assert matrix.state().problem == "Fix mine.py first."
