"""The choice of a place for runs: what each place says and offers."""

from app.gui.run.first_start import first_choices
from app.values.samples import HOST, Device, Inventory
from workloads.catalog import Machine

CPU = Device(device=HOST, kind="host", index=-1, name="here")
WITHOUT_GPU = Inventory(machine=Machine(cpu_count=2), devices=(CPU,), no_gpu_reason="no NVIDIA driver is installed")


def with_gpus(*names: str, lost: str | None = None) -> Inventory:
    gpus = (Device(device=name, kind="gpu", index=i, name=name, lost=lost) for i, name in enumerate(names))
    return Inventory(machine=Machine(cpu_count=1), devices=(CPU, *gpus))


def test_without_a_gpu_there_is_one_to_watch_and_the_cpu_says_why() -> None:
    look, cpu, host = first_choices(WITHOUT_GPU, "2.21.0", 178)
    assert cpu.text == "2 cores. No GPU: no NVIDIA driver is installed. TensorFlow 2.21.0 is installed."
    assert cpu.action == "compare"
    assert (host.action, host.label) == ("host", "Add a host …")
    assert (look.text, look.action) == (
        "178 runs measured on H200s come with the program, to look at and compare.",
        "reference",
    )


def test_gpus_come_first_and_one_that_is_lost_does_not_count() -> None:
    assert [choice.target for choice in first_choices(with_gpus("H200", lost="gone"), None, 1)] == [
        "reference",
        "cpu",
        "host",
    ]
    gpu, cpu, *_ = first_choices(with_gpus("NVIDIA H200"), "2.21.0", 178)
    assert (gpu.title, gpu.text) == ("This machine's GPU: NVIDIA H200", "TensorFlow 2.21.0 is installed.")
    assert cpu.text == "1 core. TensorFlow 2.21.0 is installed."
    several = with_gpus("NVIDIA A", "NVIDIA B")
    assert first_choices(several, None, 1)[0].title == "This machine's 2 GPUs: NVIDIA A, NVIDIA B"


def test_without_tensorflow_it_is_offered_and_nothing_can_be_compared() -> None:
    for choice in first_choices(with_gpus("H200"), None, 1)[:2]:
        assert "Runs need TensorFlow, a one-time download whose size you see first." in choice.text
        assert choice.action == "install"
