"""What a custom workload's file imports of the user's: part of the variant, however it is imported."""

import json
import os
import shutil
import sys
import zipfile
from pathlib import Path

import msgspec
import pytest

from app.errors import UserError
from app.grants import refuse, typed
from app.runs.custom import ReadOptions, UnreadFileError, load_custom_workloads, read_source, stored_source
from app.runs.experiment.queue import enqueue, queue_progress
from app.runs.leases import Leases
from app.runs.session import RunSession
from app.storage.database import save_setting
from app.storage.known_settings import custom_source
from app.storage.store import Store
from app.telemetry.feed import TelemetryFeed
from app.values.plan import Plan
from tests.fakes.sessions import services
from tests.present import present
from tests.unit.viewmodels.events import CPU_INVENTORY
from workloads.catalog import Machine, UsageError, fill_defaults
from workloads.custom.source import _is_user_file
from workloads.protocol import RunSpec, Source, UserModule, Value

HAS_COMPILER = shutil.which("g++") is not None
FUNCTION = "\n\ndef small(batch_size: int = 4): ...\n"
BY_PATH = """
import importlib.util
spec = importlib.util.spec_from_file_location("h", __file__.rpartition("/")[0] + "/helper.py")
spec.loader.exec_module(importlib.util.module_from_spec(spec))
"""
SIBLINGS = "import sys\nsys.path.insert(0, __file__.rpartition('/')[0])\n"


@pytest.fixture
def reading(tmp_path: Path) -> ReadOptions:
    return ReadOptions(consent=typed, leases=Leases(tmp_path))


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def spec_of(file: Path, database: Path, reading: ReadOptions | None) -> RunSpec:
    (small,) = load_custom_workloads(file, "small", database, reading)
    return fill_defaults(small, {"gpus": 0}, Machine())


def source_of(spec: RunSpec, database: Path) -> Source:
    return present(stored_source(spec, database))


@pytest.mark.parametrize(
    ("text", "name", "path"),
    [
        (f"{SIBLINGS}import helper", "helper", "helper.py"),
        (f"{SIBLINGS}import helper, sys\ndel sys.modules['helper']", "helper.py", "helper.py"),
        (f"{SIBLINGS}import pack.part", "pack.part", "pack/part.py"),
        (f"{SIBLINGS}from pack.under import part", "pack.under.part", "pack/under/part.py"),
        (BY_PATH, "helper.py", "helper.py"),
        ("exec(open(__file__.rpartition('/')[0] + '/configurator.py').read())", "configurator.py", "configurator.py"),
        ("import runpy\nrunpy.run_path(__file__.rpartition('/')[0] + '/helper.py')", "helper.py", "helper.py"),
        (
            "import site\nsite.addsitedir(__file__.rpartition('/')[0] + '/lib/site-packages')\nimport developed",
            "developed",
            "project/developed/__init__.py",
        ),
    ],
    ids=["beside", "forgotten", "namespace", "deep", "by path", "executed", "run", "editable"],
)
def test_a_module_of_the_user_s_is_part_of_the_variant(
    tmp_path: Path, database_path: Path, reading: ReadOptions, text: str, name: str, path: str
) -> None:
    write(tmp_path / "lib" / "site-packages" / "developed.pth", f"{tmp_path / 'project'}\n")
    write(tmp_path / "lib" / "site-packages" / "installed.py", "")
    module = write(tmp_path / path, "DEPTH = 1\n")
    file = write(tmp_path / "mine.py", text + FUNCTION)
    spec = spec_of(file, database_path, reading)
    assert [(module.name, module.path) for module in source_of(spec, database_path).modules] == [(name, str(module))]


def test_a_changed_module_is_read_again_and_makes_another_variant(
    tmp_path: Path, database_path: Path, reading: ReadOptions
) -> None:
    module = write(tmp_path / "helper.py", "DEPTH = 1\n")
    file = write(tmp_path / "mine.py", f"{SIBLINGS}import helper{FUNCTION}")
    first = spec_of(file, database_path, reading)
    assert spec_of(file, database_path, None) == first, "it was read"
    module.write_text("DEPTH = 30\n")
    with pytest.raises(UnreadFileError):
        spec_of(file, database_path, None)
    with pytest.raises(UserError, match="nobody has allowed"):
        spec_of(file, database_path, ReadOptions(consent=refuse))
    second = spec_of(file, database_path, reading)
    assert second.variant["source"] != first.variant["source"]
    assert source_of(first, database_path).modules != source_of(second, database_path).modules
    module.write_text("DEPTH = 1\n")
    assert spec_of(file, database_path, reading) == first


def test_an_archive_and_an_extension_are_parts_by_their_bytes(
    tmp_path: Path, database_path: Path, reading: ReadOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tmp_path / "lib.zip"
    with zipfile.ZipFile(archive, "w") as pack:
        pack.writestr("packed.py", "")
    extension = tmp_path / "_core.so"
    shutil.copy(next(Path(msgspec.__file__).parent.glob("_core*.so")), extension)
    monkeypatch.chdir(tmp_path)
    load = "import importlib.util as u\nu.module_from_spec(u.spec_from_file_location('msgspec._core', '_core.so'))\n"
    file = write(tmp_path / "mine.py", f"import sys\nsys.path.insert(0, 'lib.zip')\nimport packed\n{load}{FUNCTION}")
    before = spec_of(file, database_path, reading)
    modules = source_of(before, database_path).modules
    assert [module.path for module in modules] == [str(extension), str(archive / "packed.py")]
    with extension.open("ab") as grown:
        grown.write(b"more")
    assert spec_of(file, database_path, reading) != before


def test_code_of_the_same_text_elsewhere_is_the_same_variant_and_another_helper_another(
    tmp_path: Path, database_path: Path, reading: ReadOptions
) -> None:
    checkouts = [tmp_path / "main", tmp_path / "change", tmp_path / "same"]
    for folder, depth in zip(checkouts, (1, 2, 1), strict=True):
        write(folder / "helper.py", f"DEPTH = {depth}\n")
        write(folder / "mine.py", f"{SIBLINGS}import helper{FUNCTION}")
    main, change, same = (spec_of(folder / "mine.py", database_path, reading) for folder in checkouts)
    assert main != change
    assert main == same
    assert [spec_of(folder / "mine.py", database_path, None) for folder in checkouts] == [main, change, same]


def test_a_file_that_an_older_version_has_read_is_read_again(
    tmp_path: Path, database_path: Path, reading: ReadOptions
) -> None:
    write(tmp_path / "helper.py", "")
    file = write(tmp_path / "mine.py", f"{SIBLINGS}import helper{FUNCTION}")
    old = read_source(file)
    stored = {"source": {"path": old.path, "text": old.text}, "workloads": [], "whole": True}
    save_setting(database_path, custom_source(old.sha256), json.dumps(stored))
    spec = spec_of(file, database_path, reading)
    assert spec.variant["source"] != old.sha256
    unchanged = RunSpec(workload=spec.workload, variant={**spec.variant, "source": old.sha256})
    assert source_of(unchanged, database_path) == old, "its stored runs can still be made again"


def test_an_entry_says_that_what_its_file_imports_has_changed(
    tmp_path: Path, database_path: Path, reading: ReadOptions
) -> None:
    helper = write(tmp_path / "helper.py", "")
    file = write(tmp_path / "mine.py", f"{SIBLINGS}import helper{FUNCTION}")
    spec = spec_of(file, database_path, reading)
    with Store.open(database_path) as store:
        enqueue(store, Plan(name="one", variants=(spec,), repeats=1))
        assert queue_progress(store, CPU_INVENTORY)[0].message == ""
        helper.write_text("DEPTH = 2\n")
        (entry,) = queue_progress(store, CPU_INVENTORY)
    assert entry.message.startswith(f"Entry 1 cannot run, because {helper} has changed since: put it back")


NET = """
import sys
sys.path.insert(0, __file__.rpartition("/")[0])
import numpy as np
import torch
import top


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def forward(self, x):
        # forward
        return self.layer(x)


def small(batch_size: int = 4):
    # function
    def batch(step):
        return np.ones((batch_size, 2), "float32"), np.ones((batch_size, 1), "float32")
    return Net(), torch.nn.functional.mse_loss, batch
"""
SHORT: dict[str, Value] = {"gpus": 0, "steps": 2, "warmup_steps": 1, "evidence": "off"}


@pytest.mark.parametrize("late", ["", "function", "forward"])
def test_no_run_is_labelled_with_modules_that_it_did_not_run(tmp_path: Path, feed: TelemetryFeed, late: str) -> None:
    ends = services(tmp_path, feed)
    top, inner = write(tmp_path / "top.py", "DEPTH = 1\n"), write(tmp_path / "inner.py", "")
    file = write(tmp_path / "mine.py", NET.replace(f"# {late}\n", "import inner\n"))
    reading = ReadOptions(consent=typed, leases=ends.host.leases)
    (small,) = load_custom_workloads(file, "", ends.database, reading)
    # What Inductor generates, by a C++ compiler, is no module of the user's.
    spec = fill_defaults(small, {**SHORT, "compile": not late and HAS_COMPILER}, Machine(cpu_count=2))

    def reason() -> str:
        outcome = RunSession(spec, ends).run()
        assert outcome.name == ("failed" if outcome.reason else "completed")
        return outcome.reason or ""

    if late:
        assert reason().startswith(f"mine.py: {inner} was not imported when the file was read, so no variant names it")
        return
    assert not reason()
    with Store.open(ends.database) as store:
        run = store.load(1)
    assert run.evidence is None, "it is off"
    assert (
        run.environment["own_modules"]
        == f"\n# top is {top}, SHA-256 {UserModule.read('top', str(top)).sha256}\nDEPTH = 1\n"
    )
    top.write_text("DEPTH = 2\n")
    assert reason().startswith(f"mine.py: {top} is not what it was when the file was read, so this is another variant")


def test_what_is_no_file_of_text_is_refused_unread(tmp_path: Path, database_path: Path, reading: ReadOptions) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "zero.py").symlink_to("/dev/zero")
    (tmp_path / "folder.py").mkdir()
    for name, reason in (
        ("pipe", "it is not a regular file"),
        ("zero", "it is not a regular file"),
        ("folder", "directory"),
    ):
        with pytest.raises(UsageError, match=rf"{name}\.py cannot be read \(.*{reason}"):
            load_custom_workloads(tmp_path / f"{name}.py", "", database_path, reading)
    function = "def small(batch_size: int = 4): ...\n"
    for size, is_read in ((500_000, True), (500_001, False)):
        file = write(tmp_path / "long.py", function.ljust(size, "#"))
        if is_read:
            assert read_source(file).text == file.read_text()
        else:
            with pytest.raises(UsageError, match="has more than 500,000 bytes"):
                read_source(file)


@pytest.mark.parametrize(
    ("path", "variable", "is_user_s"),
    [
        ("home/.triton/cache/XU5D/cuda_utils.so", "", False),
        ("home/.cache/kernels/generated.py", "", False),
        ("home/triton/cache/mine.py", "", True),
        ("elsewhere/XU5D/cuda_utils.so", "TRITON_CACHE_DIR", False),
        ("elsewhere/ab/cab.py", "TORCHINDUCTOR_CACHE_DIR", False),
        ("elsewhere/ab/cab.py", "", True),
        ("tmp/torchinductor_me/ab/cab.py", "", False),
        ("home/work/model.py", "", True),
        ("installed/jinja2/__init__.py", "", False),
        ("plain/jinja2/__init__.py", "", True),
    ],
)
def test_what_compilers_and_package_managers_keep_is_no_module_of_the_user_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, variable: str, is_user_s: bool
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    if variable:
        monkeypatch.setenv(variable, str(tmp_path / "elsewhere"))
    (tmp_path / "installed" / "jinja2-3.1.dist-info").mkdir(parents=True)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "installed"), str(tmp_path / "plain")])
    assert _is_user_file(str(tmp_path / path)) is is_user_s


def test_what_a_library_imports_late_is_nobody_s_variant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, feed: TelemetryFeed
) -> None:
    """Of a folder that was on Python's path before, and has nothing that the file imported."""
    ends = services(tmp_path, feed)
    (tmp_path / "mine").mkdir()
    (tmp_path / "theirs").mkdir()
    write(tmp_path / "theirs" / "inner.py", "")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "theirs"))
    text = NET.replace("import top\n", "").replace("# forward\n", "import inner\n")
    file = write(tmp_path / "mine" / "mine.py", text)
    (small,) = load_custom_workloads(file, "", ends.database, ReadOptions(consent=typed, leases=ends.host.leases))
    outcome = RunSession(fill_defaults(small, SHORT, Machine(cpu_count=2)), ends).run()
    assert (outcome.name, outcome.reason) == ("completed", None)
