import shlex

import pytest

from app.viewmodels.form import Field, VariantForm
from workloads.catalog import Gpu, Machine, UsageError
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


def test_defaults_follow_the_machine() -> None:
    assert form_on(GPU_MACHINE).spec().variant["implementation"] == "cudnn"
    assert form_on(CPU_MACHINE).spec().variant["implementation"] == "standard"


def test_turning_to_the_cpu_turns_defaults_but_not_what_was_edited() -> None:
    form = form_on(GPU_MACHINE)
    form.edit("layers", 3)
    form.edit("units", 300)
    form.edit("gpus", 0)
    variant = form.spec().variant
    assert (variant["layers"], variant["units"]) == (3, 300)
    assert (variant["timesteps"], variant["implementation"]) == (50, "standard")
    assert form.state().refusals == ()


def test_what_cannot_run_here_is_named_with_its_reason() -> None:
    form = form_on(CPU_MACHINE)
    cudnn = next(option for option in field(form, "implementation").options if option.value == "cudnn")
    assert cudnn.reason is not None
    assert "NVIDIA GPU" in cudnn.reason
    assert field(form, "gpus").note == "No NVIDIA driver is installed."
    assert not field(form, "devices").enabled


def test_under_a_field_stands_only_what_its_own_value_has_against_it() -> None:
    form = form_on(CPU_MACHINE, "cnn10")
    precision = field(form, "precision")
    assert any(option.reason for option in precision.options)
    assert precision.note == ""
    form.edit("precision", "tf32")
    assert "TF32" in field(form, "precision").note
    gpus = tuple(Gpu(index=n, uuid=f"GPU-{n}", name="H200") for n in range(8))
    assert field(form_on(Machine(gpus=gpus, cpu_count=16), "cnn10"), "gpus").note == ""


def test_a_switch_that_cannot_be_turned_says_why() -> None:
    xla = field(form_on(GPU_MACHINE), "xla")
    assert not xla.enabled
    assert "cuDNN" in xla.note


def test_a_variant_that_cannot_run_is_refused_and_its_fields_are_marked() -> None:
    form = form_on(GPU_MACHINE)
    form.edit("gpus", 2)
    form.edit("batch_size", 33)
    assert form.state().refusals == ("A global batch of 33 does not divide evenly among 2 GPUs.",)
    assert field(form, "batch_size").problem
    assert not field(form, "layers").problem


def test_nothing_is_refused_before_the_machine_is_known() -> None:
    state = VariantForm("lstm").state()
    assert not state.known_machine
    assert state.refusals == ()


def test_the_command_names_only_what_is_not_default_and_is_quoted() -> None:
    form = form_on(GPU_MACHINE)
    assert form.command() == "python -m app run lstm"
    form.edit("gpus", 0)
    form.edit("layers", 2)
    form.edit("bidirectional", True)
    assert shlex.split(form.command())[4:] == ["lstm", "-s", "gpus=0", "-s", "layers=2", "-s", "bidirectional=true"]
    form.reset()
    form.edit("devices", "0, 1; rm")
    assert shlex.split(form.command())[-1] == "devices=0, 1; rm"


def test_edits_of_each_workload_are_kept_apart() -> None:
    form = form_on(GPU_MACHINE)
    form.edit("layers", 4)
    form.choose("cnn10")
    assert "layers" not in form.spec().variant
    form.choose("lstm")
    assert form.spec().variant["layers"] == 4
    form.reset()
    assert form.spec().variant["layers"] == 1


def test_a_wrong_edit_changes_nothing() -> None:
    form = form_on(GPU_MACHINE)
    with pytest.raises(UsageError):
        form.edit("layers", 17)
    with pytest.raises(UsageError):
        form.choose("nothing")
    assert form.spec().variant["layers"] == 1


def test_the_test_workload_is_not_offered() -> None:
    assert "dummy" not in dict(VariantForm().state().workloads)
    assert "dummy" in dict(VariantForm(hidden=True).state().workloads)


def test_a_variant_that_was_run_fills_the_form_as_it_was() -> None:
    form = form_on(GPU_MACHINE)
    spec = form_on(GPU_MACHINE, "lstm").spec()
    run = RunSpec(workload="lstm", variant={**spec.variant, "layers": 4, "gone_meanwhile": 1})
    form.choose("cnn10")
    form.fill(run)
    assert form.spec() == RunSpec(workload="lstm", variant={**spec.variant, "layers": 4})


def test_a_variant_that_is_not_known_here_changes_nothing() -> None:
    form = form_on(GPU_MACHINE)
    before = form.spec()
    wrong: dict[str, dict[str, Value]] = {"of another": {}, "cnn10": {"layout": "sideways"}}
    for workload, variant in wrong.items():
        with pytest.raises(UsageError):
            form.fill(RunSpec(workload=workload, variant=variant))
    assert form.spec() == before
