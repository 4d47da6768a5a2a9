"""A worker that stands by, on real GPUs: it uses the one its order names, though it imported with none to see."""

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from app.runs.host import Host
from app.runs.leases import Leases
from app.runs.session import RunServices, RunSession
from app.runs.standby import StandbyLauncher
from app.storage.store import Store
from app.telemetry.feed import TelemetryFeed
from app.values.records import StoredRun
from workloads import catalog
from workloads.protocol import Value

pytestmark = pytest.mark.gpu


def _run(services: RunServices, framework: str, gpu: int) -> StoredRun:
    settings: dict[str, Value] = {"framework": framework, "layout": "NHWC", "seconds": 3.0, "gpus": 1}
    spec = catalog.complete("cnn10", {**settings, "devices": str(gpu)}, services.host.machine)
    session = RunSession(spec, services)
    assert session.run().name == "completed"
    assert session.number is not None
    with Store.open(services.database) as store:
        return store.load(session.number)


@pytest.mark.parametrize(("framework", "module"), [("tensorflow", "tensorflow"), ("pytorch", "torch"), ("jax", "jax")])
def test_it_uses_the_gpu_that_its_order_names(feed: TelemetryFeed, tmp_path: Path, framework: str, module: str) -> None:
    pytest.importorskip(module)
    first, *_, last = [gpu.index for gpu in feed.wait_inventory().machine.gpus * 2]
    leases = Leases(tmp_path)
    with closing(StandbyLauncher(leases, lambda: True)) as launcher:
        services = RunServices(
            database=tmp_path / "gpu.db", host=Host(telemetry=feed, launcher=launcher, leases=leases)
        )
        cold = _run(services, framework, first)
        assert launcher.wait_ready()
        warm = _run(services, framework, last)
    assert (cold.environment.get("standby"), warm.environment.get("standby")) == (None, "yes")
    (gpu,) = [columns for columns in warm.samples if columns.device.kind == "gpu"]
    assert gpu.device.index == last
    assert np.nanmax(gpu.fields["load_pct"]) > 50
    framework_facts = catalog.FRAMEWORKS[framework]
    facts = (framework_facts.devices_key, *framework_facts.library_keys)
    assert [warm.environment.get(fact) for fact in facts] == [cold.environment.get(fact) for fact in facts]
