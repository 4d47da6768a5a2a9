"""`gpus calibrate`: a real measurement beside what was stored before."""

from pathlib import Path

from app.storage.store import Store
from tests.fakes.command_line import CommandLine
from workloads.protocol import Calibration


def test_a_rate_that_is_lower_than_before_is_said_and_kept(tmp_path: Path) -> None:
    line = CommandLine(tmp_path)
    with Store.open(line.database) as store:
        store.save_calibration(Calibration(device="cpu", precision="float32", size=8192, flops_per_s=1e18), 1)
    done = line("gpus", "calibrate", "--precision", "float32")
    assert done.returncode == 0, done.stderr
    assert "1,000,000,000 GFLOPS" in done.stdout, "what was stored before"
    assert "cpu in float32 is slower than before." in done.stderr
    with Store.open(line.database) as store:
        stored = store.calibration("cpu", "float32")
    assert stored is not None
    assert stored.flops_per_s < 1e18
