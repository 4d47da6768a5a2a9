import shlex
from pathlib import Path

import pytest

from app.viewmodels.run.fields import Field
from app.viewmodels.run.form import FormChoices, VariantForm
from workloads.catalog import WORKLOADS, CustomFile, Gpu, Machine, UsageError, Workload, custom_workload
from workloads.job_protocol import CustomParameter, CustomWorkload
from workloads.protocol import RunSpec, Value

GPU_MACHINE = Machine(
    gpus=tuple(Gpu(index=n, uuid=f"GPU-{n}", name="H200", compute_capability=(9, 0)) for n in range(2)), cpu_count=16
)
CPU_MACHINE = Machine(cpu_count=2)


def form_on(machine: Machine, workload: str = "lstm") -> VariantForm:
    form = VariantForm(workload)
    form.set_machine(machine, None if machine.gpus else "no NVIDIA driver is installed")
    return form


def field(form: VariantForm, name: str) -> Field:
    return next(field for field in form.state().fields if field.name == name)


def test_the_form_as_it_opens_can_run_on_a_machine_without_a_gpu() -> None:
    for workload in WORKLOADS:
        form = VariantForm(workload.name, hidden=True)
        form.set_machine(CPU_MACHINE)
        assert form.state().can_run, workload.name


def test_turning_to_the_cpu_turns_defaults_but_not_what_was_edited() -> None:
    form = form_on(GPU_MACHINE)
    form.edit("layers", 3)
    form.edit("units", 300)
    form.edit("gpus", 0)
    variant = form.selection.spec.variant
    assert (variant["layers"], variant["units"]) == (3, 300)
    assert (variant["timesteps"], variant["implementation"]) == (50, "standard")
    assert form.state().problem == ""


def test_what_cannot_run_here_is_named_with_its_reason() -> None:
    form = form_on(CPU_MACHINE)
    cudnn = next(option for option in field(form, "implementation").options if option.value == "cudnn")
    assert cudnn.reason is not None
    assert "NVIDIA GPU" in cudnn.reason
    assert form.state().machine_text == "Runs use the CPU: no NVIDIA driver is installed."
    assert not field(form, "devices").enabled


def test_a_lost_gpu_beside_others_does_not_send_runs_to_the_cpu() -> None:
    form = VariantForm("cnn10")
    form.set_machine(GPU_MACHINE, "GPU 1 is lost: it fell off the bus.")
    assert form.state().machine_text == "GPU 1 is lost: it fell off the bus."


def refused(form: VariantForm) -> list[str]:
    """Return the fields of which every chosen value is struck through."""
    return [field.name for field in form.state().fields if all(each.reason for each in field.chosen)]


def test_a_switch_that_cannot_be_turned_says_why() -> None:
    off, on = field(form_on(GPU_MACHINE), "xla").options
    assert off.reason is None
    assert "cuDNN" in (on.reason or "")


def test_a_variant_that_cannot_run_is_refused_with_its_cures() -> None:
    form = form_on(GPU_MACHINE)
    form.edit("gpus", 2)
    form.edit("batch_size", 33)
    state = form.state()
    assert (state.problem, state.can_run) == ("A global batch of 33 does not divide evenly among 2 GPUs.", False)
    assert refused(form) == ["gpus", "batch_size"]
    assert [cure.label for cure in state.cures] == ["Use the CPU"]
    form.edit(state.cures[0].name, *state.cures[0].values)
    assert form.state().can_run


def test_a_reason_names_no_words_of_a_command() -> None:
    form = form_on(CPU_MACHINE, "cnn10")
    form.edit("gpus", 1)
    assert form.state().problem == "This machine shows no NVIDIA GPU."


def test_nothing_is_refused_before_the_machine_is_known() -> None:
    state = VariantForm("lstm").state()
    assert not state.is_machine_known
    assert (state.problem, state.cures, state.can_run) == ("", (), False)


def test_the_command_names_only_what_is_not_default_and_is_quoted() -> None:
    form = form_on(GPU_MACHINE)
    assert form.selection.command() == "python -m app run lstm"
    form.edit("gpus", 0)
    form.edit("layers", 2)
    form.edit("bidirectional", True)
    assert shlex.split(form.selection.command())[4:] == [
        "lstm",
        "-s",
        "layers=2",
        "-s",
        "bidirectional=true",
        "-s",
        "gpus=0",
    ]
    form.reset()
    form.edit("devices", "0, 1; rm")
    assert shlex.split(form.selection.command())[-1] == "devices=0, 1; rm"


def test_edits_of_each_workload_are_kept_apart() -> None:
    form = form_on(GPU_MACHINE)
    form.edit("layers", 4)
    form.choose("cnn10")
    assert "layers" not in form.selection.spec.variant
    form.choose("lstm")
    assert form.selection.spec.variant["layers"] == 4
    form.reset()
    assert form.selection.spec.variant["layers"] == 1


def test_a_wrong_edit_changes_nothing() -> None:
    form = form_on(GPU_MACHINE)
    with pytest.raises(UsageError):
        form.edit("layers", 17)
    with pytest.raises(UsageError):
        form.choose("nothing")
    assert form.selection.spec.variant["layers"] == 1


def test_the_test_workload_is_not_offered() -> None:
    assert "dummy" not in dict(VariantForm().state().workloads)
    assert "dummy" in dict(VariantForm(hidden=True).state().workloads)


def test_a_variant_that_was_run_fills_the_form_as_it_was() -> None:
    form = form_on(GPU_MACHINE)
    spec = form_on(GPU_MACHINE, "lstm").selection.spec
    run = RunSpec(workload="lstm", variant={**spec.variant, "layers": 4, "gone_meanwhile": 1})
    form.choose("cnn10")
    form.fill(run)
    assert form.selection.spec == RunSpec(workload="lstm", variant={**spec.variant, "layers": 4})


def test_a_variant_that_is_not_known_here_changes_nothing() -> None:
    form = form_on(GPU_MACHINE)
    before = form.selection.spec
    wrong: dict[str, dict[str, Value]] = {"of another": {}, "cnn10": {"layout": "sideways"}}
    for workload, variant in wrong.items():
        with pytest.raises(UsageError):
            form.fill(RunSpec(workload=workload, variant=variant))
    assert form.selection.spec == before


def file_workload(path: str = "/mine/mlp.py", name: str = "mlp", *parameters: CustomParameter) -> Workload:
    described = CustomWorkload(name=name, help="Mine.", batch_size=16, parameters=parameters)
    return custom_workload(described, CustomFile(path=path, sha256="ab" * 32))


UNITS = CustomParameter(name="units", kind="integer", default=8, help="Units.")
RATE = CustomParameter(name="rate", kind="number", default=0.001)
FILE = Path("/mine/mlp.py")


def test_workloads_of_the_user_s_file_are_offered_with_their_parameters_and_limits_wide_enough() -> None:
    form = form_on(CPU_MACHINE)
    form.offer_custom_workloads(FILE, [file_workload(str(FILE), "mlp", UNITS, RATE), file_workload(str(FILE), "other")])
    assert form.state().workloads[-2:] == (("mlp.py:mlp", "mlp · mlp.py"), ("mlp.py:other", "other · mlp.py"))
    form.choose("mlp.py:mlp")
    form.edit("units", -3)
    form.edit("rate", 0.0005)
    spec = form.selection.spec
    assert (spec.variant["units"], spec.variant["batch_size"], spec.variant["source"]) == (-3, 16, "ab" * 32)
    rate = field(form, "rate")
    assert rate.text == "0.0005"
    assert shlex.split(form.selection.command())[4:] == ["/mine/mlp.py:mlp", "-s", "units=-3", "-s", "rate=0.0005"]
    assert form.custom_files == (FILE,)


def test_what_was_chosen_in_an_earlier_window_is_chosen_again_as_far_as_it_is_known() -> None:
    mine = [file_workload(str(FILE), "mlp", UNITS)]
    before = form_on(CPU_MACHINE)
    before.choose("gru")
    before.edit("layers", 4)
    before.offer_custom_workloads(FILE, mine)
    before.choose("mlp.py:mlp")
    before.edit("units", 3)
    form = form_on(GPU_MACHINE)
    form.restore(before.choices)
    assert form.state().workload == "lstm", "the file is not read yet"
    form.offer_custom_workloads(FILE, mine)
    assert (form.state().workload, form.selection.spec.variant["units"]) == ("mlp.py:mlp", 3)
    form.choose("gru")
    assert form.selection.spec.variant["layers"] == 4
    form = form_on(GPU_MACHINE)
    form.restore(before.choices)
    form.choose("gru")
    form.offer_custom_workloads(FILE, mine)
    assert form.state().workload == "gru", "what the user chose meanwhile stays"
    form.restore(FormChoices("lstm", {"lstm": {"layers": 1_000}, "gone": {"a": 1}, "gru": {"layers": "two"}}))
    assert form.choices == FormChoices("lstm", {"gone": {"a": 1}})


def test_a_file_that_changed_keeps_the_edits_that_still_fit() -> None:
    form = form_on(CPU_MACHINE)
    form.offer_custom_workloads(FILE, [file_workload(str(FILE), "mlp", UNITS), file_workload(str(FILE), "other")])
    form.choose("mlp.py:mlp")
    form.edit("units", 3)
    form.offer_custom_workloads(FILE, [file_workload(str(FILE), "mlp", RATE, UNITS)])
    assert form.selection.spec.variant["units"] == 3
    form.offer_custom_workloads(FILE, [file_workload(str(FILE), "mlp", RATE)])
    assert "units" not in form.selection.spec.variant
    form.offer_custom_workloads(FILE, [file_workload(str(FILE), "renamed", RATE)])
    assert form.state().workload == "mlp.py:renamed"
    assert ("mlp.py:mlp", "mlp · mlp.py") not in form.state().workloads


def test_what_is_wrong_with_a_file_stands_below_the_workload_and_its_runs_wait() -> None:
    form = form_on(CPU_MACHINE)
    form.offer_custom_workloads(FILE, [file_workload()])
    form.choose("mlp.py:mlp")
    form.files.set_message(FILE, "Reading mlp.py …", invalid=False)
    state = form.state()
    assert (state.custom_file_text, state.custom_file_invalid) == ("Reading mlp.py …", False)
    assert state.problem == "mlp.py must be read first."
    form.files.set_message(FILE, "mlp.py:3: NameError: name 'x' is not defined", invalid=True)
    state = form.state()
    assert (state.custom_file_text, state.custom_file_invalid) == ("mlp.py:3: NameError: name 'x' is not defined", True)
    assert state.problem == "Fix mlp.py first."
    form.choose("cnn10")
    assert (form.state().custom_file_text, form.state().problem) == ("", "")
    form.files.set_message(Path("/mine/new.py"), "new.py:1: SyntaxError", invalid=True)
    assert (form.state().custom_file_text, form.state().problem) == ("new.py:1: SyntaxError", "")
    form.offer_custom_workloads(FILE, [file_workload()])
    form.choose("mlp.py:mlp")
    assert (form.state().custom_file_text, form.state().problem) == ("", "")


def test_that_a_file_is_read_is_said_until_it_is_whatever_workload_is_chosen_meanwhile() -> None:
    form = VariantForm()
    form.files.set_message(FILE, "Reading mlp.py …", invalid=False)
    form.choose("cnn10")
    assert form.state().custom_file_text == "Reading mlp.py …"
    form.files.set_message(FILE, "mlp.py:1: SyntaxError", invalid=True)
    assert form.state().custom_file_invalid
    form.choose("lstm")
    assert form.state().custom_file_text == "", "it is not about this one"


def test_a_variant_of_a_file_that_is_not_open_says_how_to_open_it() -> None:
    form = form_on(CPU_MACHINE)
    with pytest.raises(UsageError, match=r"mlp.py:mlp is in one of your files that is not open here"):
        form.fill(RunSpec(workload="mlp.py:mlp", variant={"units": 3}))
    form.offer_custom_workloads(FILE, [file_workload(str(FILE), "mlp", UNITS)])
    form.fill(RunSpec(workload="mlp.py:mlp", variant={"units": 3, "source": "another"}))
    assert form.selection.spec.variant["units"] == 3
    assert form.selection.spec.variant["source"] == "ab" * 32
