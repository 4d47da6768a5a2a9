"""The gate where processes are started: no way to one leaves it out, whoever forgot to ask."""

import ast
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from app.errors import UserError
from app.grants import Grant, read_grants, require, typed
from app.runs.experiment.equality import EqualityChecker
from app.runs.host import Host
from app.runs.jobs import run_job
from app.runs.launcher import Launcher, LocalWorker, ProcessSpec, Python, granted_python
from app.runs.leases import Leases
from app.runs.session import RunServices
from app.runs.standby import StandbyLauncher
from app.telemetry.feed import TelemetryFeed
from tests.present import present
from workloads.catalog import Machine, complete
from workloads.job_protocol import (
    Calibrate,
    ComputedGradients,
    ComputeGradients,
    DescribeFile,
    ExportModel,
    FileDescription,
    JobRequest,
    TryWeights,
    decode_job_result,
)
from workloads.protocol import PROTOCOL_VERSION, RunSpec, Source, Start

ROOT = Path(__file__).parents[3]
PROCESS_CALLS = {"Popen", "run", "call", "check_call", "check_output", "getoutput", "getstatusoutput"}
STARTS_PROCESSES = {
    "app/cli/progress.py": "stty",
    "app/environments/steps.py": "uv, pip, apt-get and the Python that they have just installed",
    "app/hosts/serve.py": "itself, on a host",
    "app/hosts/process.py": "the launcher of a host whose address was granted",
    "app/hosts/ray_driver.py": "itself, by Ray's own Python",
    "app/runs/environment.py": "git",
    "app/runs/launcher.py": "workers and jobs: the gate",
    "app/telemetry/sampler_process.py": "this program's own Python",
}
"""Every module of the program that starts a process, and which."""


@pytest.fixture(autouse=True)
def _nothing_granted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VARIANTSCOPE_GRANTS", str(tmp_path / "grants.json"))


def _discard(_event: object) -> None:
    return None


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    return tmp_path / "marker"


@pytest.fixture
def python(tmp_path: Path, marker: Path) -> Path:
    """A stranger's Python."""
    path = tmp_path / "env" / "bin" / "python"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\ntouch {marker}\n")
    path.chmod(0o755)
    return path


def test_only_known_modules_start_processes() -> None:
    def starts(node: ast.AST) -> bool:
        if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name):
            return False
        of_os = node.attr.startswith(("exec", "spawn", "posix_spawn", "fork", "popen", "system"))
        return (node.value.id == "subprocess" and node.attr in PROCESS_CALLS) or (node.value.id == "os" and of_os)

    found = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "app").rglob("*.py")
        if any(map(starts, ast.walk(ast.parse(path.read_text(encoding="utf-8")))))
    }
    assert found == set(STARTS_PROCESSES)


def start_of(python: Path, source: Source | None = None) -> Start:
    spec = complete("dummy", {"gpus": 0, "interpreter": str(python) if source is None else ""}, Machine())
    return Start(protocol=PROTOCOL_VERSION, spec=spec, source=source)


def by_a_launcher(python: Path) -> None:
    Launcher().launch(start_of(python), _discard)


def by_a_launcher_with_standbys(python: Path) -> None:
    launcher = StandbyLauncher(Leases(), lambda: True)
    try:
        launcher.launch(start_of(python), _discard)
    finally:
        launcher.close()


def by_a_job(python: Path) -> None:
    spec = start_of(python).spec
    run_job(ComputeGradients(spec=spec, path=str(python.with_name("out.npz"))), ComputedGradients)


def by_a_process(python: Path) -> None:
    ProcessSpec.current((sys.executable, "-m", "workloads.worker"), Python(str(python))).start()


WAYS = [by_a_launcher, by_a_launcher_with_standbys, by_a_job, by_a_process]


@pytest.mark.parametrize("way", WAYS)
def test_no_way_leads_to_a_python_that_is_not_granted(way: Callable[[Path], None], python: Path, marker: Path) -> None:
    with pytest.raises(UserError, match=f"nobody has allowed VariantScope to run {python} as Python"):
        way(python)
    assert not marker.exists()
    assert read_grants() == ()


def test_packages_that_are_not_granted_are_neither_installed_nor_run() -> None:
    spec = complete("dummy", {"gpus": 0, "packages": "tiny"}, Machine())
    start = Start(protocol=PROTOCOL_VERSION, spec=spec)
    ways: list[Callable[[], object]] = [
        lambda: Launcher().launch(start, _discard),
        lambda: run_job(ComputeGradients(spec=spec, path="/x"), ComputedGradients),
        lambda: ProcessSpec.current((sys.executable, "-m", "workloads.worker"), Python("", "tiny")).start(),
    ]
    for way in ways:
        with pytest.raises(UserError, match="nobody has allowed VariantScope to install and run the packages tiny"):
            way()


def test_no_way_leads_to_a_text_that_is_not_granted(tmp_path: Path, marker: Path) -> None:
    text = f"open({str(marker)!r}, 'w')\ndef net(batch_size: int = 4): ...\n"
    source = Source(path=str(tmp_path / "evil.py"), text=text)
    start = start_of(tmp_path, source)
    orders: list[Callable[[], object]] = [
        lambda: run_job(DescribeFile(source=source), FileDescription),
        lambda: Launcher().launch(start, _discard),
        lambda: run_job(ComputeGradients(spec=start.spec, path="/x", source=source), ComputedGradients),
    ]
    for order in orders:
        with pytest.raises(UserError, match=f"nobody has allowed VariantScope to run the code of {source.path}"):
            order()
    assert not marker.exists()


def test_a_worker_that_waits_gets_no_text_that_is_not_granted(tmp_path: Path) -> None:
    source = Source(path=str(tmp_path / "evil.py"), text="x = 1\n")
    process = ProcessSpec.current((sys.executable, "-m", "workloads.jobs")).start()
    worker = LocalWorker(process, _discard, decode_job_result)
    worker.listen()
    with pytest.raises(UserError, match="nobody has allowed"):
        worker.send(DescribeFile(source=source))
    worker.kill()


def test_a_baseline_that_cannot_run_here_is_not_computed_either(
    python: Path, marker: Path, tmp_path: Path, feed: TelemetryFeed
) -> None:
    """Nobody is asked for its Python, since it is refused."""
    here = complete("lstm", {"gpus": 0}, Machine())
    refused = RunSpec(workload="lstm", variant={**here.variant, "cpu_threads": 1_000, "interpreter": str(python)})
    services = RunServices(database=tmp_path / "profiles.db", host=Host(telemetry=feed))
    checker = EqualityChecker(refused, services, _discard, lambda: True)
    ((_, check),) = checker.check([here])
    assert check.reason == f"of the baseline: {present(services.host.refusal(refused)).rstrip('.')}"
    assert not marker.exists()


def test_what_is_granted_passes(python: Path) -> None:
    require([Grant(kind="interpreter", value=str(python))], typed)
    assert granted_python(start_of(python)) == Python(str(python))


def test_jobs_that_name_no_program_need_no_grant(python: Path) -> None:
    """They run in an environment of this machine that has the framework, whatever the variant's Python is."""
    spec = start_of(python).spec
    requests: list[JobRequest] = [
        TryWeights(weights_path="/x", trained=spec, spec=spec),
        ExportModel(weights_path="/x", trained=spec, model_paths=()),
        Calibrate(precision="float32"),
    ]
    for request in requests:
        assert granted_python(request) == Python()
