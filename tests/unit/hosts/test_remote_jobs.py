"""What a host says is stored as that host's, where this machine has the same."""

from app.hosts.remote_jobs import with_host
from app.runs.host import calibrated_device
from workloads.protocol import Calibration, Flops


def test_the_processor_of_a_host_is_calibrated_for_itself() -> None:
    cpu = Calibration(device="cpu", precision="float32", size=1024, flops_per_s=1e11)
    assert with_host(cpu, "gpu1").device == calibrated_device("cpu", "gpu1") == "cpu of gpu1"
    assert calibrated_device("cpu", "") == "cpu"
    assert calibrated_device("GPU-1", "gpu1") == "GPU-1"
    assert with_host(Flops(per_step=3), "gpu1") == Flops(per_step=3)
