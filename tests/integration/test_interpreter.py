"""Runs by the Python of another virtual environment: real environments, made here, with what each is to have."""

import ast
import site
from pathlib import Path

import pytest

from app.runs.supervisor import BROKEN_PYTHON
from app.telemetry.feed import TelemetryFeed
from app.values.events import Outcome
from app.values.records import StoredRun
from tests.fakes.environments import VirtualEnvironment
from tests.fakes.sessions import dummy, run_through, services
from workloads.catalog import DEFAULT_VARIABLE, Machine, check, complete, default_interpreter
from workloads.protocol import Value

ROOT = Path(__file__).parents[2]


@pytest.fixture
def elsewhere(tmp_path: Path) -> VirtualEnvironment:
    return VirtualEnvironment(tmp_path / "elsewhere")


def run_by(place: Path, tmp_path: Path, feed: TelemetryFeed) -> tuple[Outcome, StoredRun]:
    spec = dummy(feed.wait_inventory(), interpreter=str(place))
    outcome, _, run = run_through(spec, services(tmp_path, feed))
    return outcome, run


def test_an_empty_environment_says_what_it_lacks_though_ours_has_it(
    tmp_path: Path, feed: TelemetryFeed, elsewhere: VirtualEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", site.getsitepackages()[0])
    outcome, _ = run_by(elsewhere.folder, tmp_path, feed)
    python = elsewhere.python
    assert outcome.name == "refused"
    assert outcome.reason == (
        f"{python} cannot run workloads: msgspec is missing, numpy is missing, tensorflow is missing; install with "
        f"`{python} -m pip install 'msgspec>=0.18' 'numpy>=1.26' 'tensorflow>=2.16'`."
    )


def test_a_run_without_its_framework_is_told_what_installs_it(
    tmp_path: Path, feed: TelemetryFeed, elsewhere: VirtualEnvironment
) -> None:
    machine, place = feed.wait_inventory().machine, str(elsewhere.folder)
    for settings, ending in (
        ({}, "use packages=torch, or the interpreter of an environment that has it."),
        ({"precision": "tf32"}, "use precision=float32."),
    ):
        spec = complete("lstm", {"framework": "pytorch", "gpus": 0, "interpreter": place, **settings}, machine)
        outcome, _, _ = run_through(spec, services(tmp_path, feed))
        assert outcome.name == "refused"
        assert (outcome.reason or "").endswith(ending)


def test_libraries_that_are_too_old_are_named_with_their_versions(
    tmp_path: Path, feed: TelemetryFeed, elsewhere: VirtualEnvironment
) -> None:
    elsewhere.see_ours()
    elsewhere.add("msgspec", "0.9.1")
    elsewhere.add("numpy", "1.20.3")
    outcome, _ = run_by(elsewhere.python, tmp_path, feed)
    assert outcome.name == "refused"
    reason = "cannot run workloads: msgspec 0.9.1 is older than 0.18, numpy 1.20.3 is older than 1.26; install"
    assert (outcome.reason or "").startswith(f"{elsewhere.python} {reason}")


def test_a_python_that_is_too_old_says_so(tmp_path: Path, feed: TelemetryFeed, elsewhere: VirtualEnvironment) -> None:
    elsewhere.at_start("sys.version_info = (3, 8, 18, 'final', 0)")
    outcome, _ = run_by(elsewhere.folder, tmp_path, feed)
    advice = "make the virtual environment with a newer Python."
    assert outcome.name == "refused"
    assert outcome.reason == f"{elsewhere.python} is Python 3.8, and workloads need 3.11 or newer; {advice}"
    ast.parse((ROOT / "workloads" / "entry.py").read_bytes(), feature_version=(3, 4))


@pytest.mark.parametrize(
    ("tensorflow", "keras", "words"),
    [
        ("2.13.0", "2.13.1", "tensorflow 2.13.0 is older than 2.16"),
        ("2.16.1", "3.0.5", "keras 3.0.5 is older than 3.2"),
    ],
)
def test_a_tensorflow_or_keras_that_is_too_old_says_so(
    tmp_path: Path, feed: TelemetryFeed, elsewhere: VirtualEnvironment, tensorflow: str, keras: str, words: str
) -> None:
    elsewhere.see_ours()
    elsewhere.add("keras", keras, f"__version__ = {keras!r}")
    elsewhere.add("tensorflow", tensorflow, f"__version__ = {tensorflow!r}")
    spec = complete("lstm", {"gpus": 0, "interpreter": str(elsewhere.folder)}, Machine())
    outcome, _, _ = run_through(spec, services(tmp_path, feed))
    assert outcome.name == "refused"
    assert (outcome.reason or "").startswith(f"{words}; install with `{elsewhere.python} -m pip install ")


def test_a_path_without_a_python_is_refused_before_the_run(tmp_path: Path) -> None:
    (tmp_path / "python").write_text("not to be executed")
    for place in (tmp_path, tmp_path / "nowhere", tmp_path / "python", Path("/bin/sh")):
        (refusal,) = check(complete("dummy", {"interpreter": str(place)}, Machine()), Machine())
        assert refusal.parameters == ("interpreter",)
        assert refusal.reason.startswith(f"{place} is neither")


@pytest.mark.parametrize(
    ("script", "name", "words"),
    [
        (
            "#!/bin/sh\necho hello, world",
            "failed",
            f"{BROKEN_PYTHON} instead of starting the run it printed “hello, world”.",
        ),
        ("#!/bin/sh", "crashed", f"{BROKEN_PYTHON} it ended with exit status 0 before the run began;"),
        ("#!/nowhere/python", "failed", "No worker could be started: {python} cannot be run (the program that its "),
    ],
)
def test_what_is_no_python_is_said_to_be_none(
    tmp_path: Path, feed: TelemetryFeed, script: str, name: str, words: str
) -> None:
    python = tmp_path / "python"
    python.write_text(script + "\n")
    python.chmod(0o755)
    outcome, _ = run_by(python, tmp_path, feed)
    assert outcome.name == name
    assert (outcome.reason or "").startswith(words.format(python=python))


@pytest.mark.tensorflow
def test_another_environment_with_tensorflow_trains_and_tells_its_own_versions(
    tmp_path: Path, feed: TelemetryFeed, elsewhere: VirtualEnvironment
) -> None:
    elsewhere.see_ours()
    elsewhere.at_start("import platform; platform.python_version = lambda: '3.11 elsewhere'")
    small: dict[str, Value] = {"units": 4, "timesteps": 4, "features": 2, "batch_size": 4, "steps": 3}
    spec = complete("lstm", {"gpus": 0, **small, "interpreter": str(elsewhere.folder)}, Machine())
    outcome, _, run = run_through(spec, services(tmp_path, feed))
    assert outcome.name == "completed", outcome
    assert run.environment["python"] == "3.11 elsewhere"
    assert run.environment["tensorflow"]


def test_a_run_that_names_no_python_gets_that_of_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    assert default_interpreter() == ""
    monkeypatch.setenv(DEFAULT_VARIABLE, "/opt/tf")
    assert default_interpreter() == "/opt/tf"
