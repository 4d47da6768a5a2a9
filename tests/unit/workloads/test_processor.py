"""What an environment computes on a processor: tried once, stored, and what the rules make of it."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from msgspec import structs

from workloads import libraries
from workloads.catalog import Machine, check, complete, default_interpreter, installed_framework
from workloads.libraries import ProcessorSupport, read_support, store_support
from workloads.machine import CACHE_VARIABLE, cache_folder

CPU = Machine(cpu_count=2)
WITH_ONEDNN = ProcessorSupport(
    framework=installed_framework(default_interpreter()) or "",
    onednn=True,
    image_layouts={"float32": ("NHWC", "NCHW"), "bfloat16": ("NHWC", "NCHW"), "float16": ("NHWC",)},
)
WITHOUT = structs.replace(
    WITH_ONEDNN, onednn=False, image_layouts=dict.fromkeys(("float32", "bfloat16", "float16"), ("NHWC",))
)
MASKED = structs.replace(WITH_ONEDNN, image_layouts={"float32": ("NHWC", "NCHW"), "bfloat16": (), "float16": ()})
"""As `ONEDNN_MAX_CPU_ISA=AVX2` leaves it on a processor with AMX: TensorFlow gives oneDNN what that may not compute."""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


def reasons(given: Mapping[str, str | bool], machine: Machine = CPU) -> list[str]:
    return [refusal.reason for refusal in check(complete("cnn10", {"gpus": 0, **given}, machine), machine)]


@pytest.mark.parametrize(
    ("support", "given", "words"),
    [
        (WITH_ONEDNN, {"layout": "NCHW"}, ""),
        (WITH_ONEDNN, {"layout": "NCHW", "precision": "bfloat16"}, ""),
        (WITH_ONEDNN, {"layout": "NCHW", "precision": "float16"}, "no kernels for float16 images in NCHW"),
        (WITH_ONEDNN, {"layout": "NHWC", "precision": "float16"}, ""),
        (WITH_ONEDNN, {"layout": "NCHW", "precision": "float16", "xla": True}, ""),
        (MASKED, {"precision": "bfloat16"}, "no kernels for bfloat16 images in NHWC"),
        (MASKED, {}, ""),
        (WITHOUT, {"layout": "NCHW"}, "oneDNN is off here"),
        (WITHOUT, {"layout": "NCHW", "xla": True}, ""),
        (WITHOUT, {}, ""),
        (None, {"layout": "NCHW", "precision": "float16"}, ""),
    ],
)
def test_a_layout_without_kernels_is_refused_before_the_run(
    support: ProcessorSupport | None, given: Mapping[str, str | bool], words: str
) -> None:
    if support:
        store_support(support)
    reasons_found = reasons(given)
    assert [words in reason for reason in reasons_found] == [True] * bool(words), reasons_found


def test_a_host_answers_for_its_own_processor() -> None:
    store_support(WITHOUT)
    assert reasons({"layout": "NCHW"}, Machine(cpu_count=2, local=False)) == []


@pytest.mark.parametrize(
    ("name", "value", "same"),
    [
        ("TF_ENABLE_ONEDNN_OPTS", "0", False),
        ("TF_ENABLE_ONEDNN_OPTS", "1", True),
        ("ONEDNN_MAX_CPU_ISA", "SSE41", False),
        ("CUDA_VISIBLE_DEVICES", "-1", True),
        ("TF_CPP_MIN_LOG_LEVEL", "0", True),
    ],
)
def test_an_answer_holds_for_the_variables_it_was_given_under(
    name: str, value: str, same: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TF_ENABLE_ONEDNN_OPTS", raising=False)
    store_support(WITH_ONEDNN)
    monkeypatch.setenv(name, value)
    assert (read_support() == WITH_ONEDNN) is same


def test_an_answer_holds_for_its_processor_environment_and_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert read_support() is None
    store_support(WITH_ONEDNN)
    assert read_support() == read_support(sys.prefix) == WITH_ONEDNN
    (tmp_path / "other" / "bin").mkdir(parents=True)
    (tmp_path / "other" / "bin" / "python").symlink_to(sys.executable)
    assert read_support(str(tmp_path / "other")) is None
    assert read_support("/no/such/place") is None
    with monkeypatch.context() as patch:
        patch.setattr(libraries, "processor_identity", lambda: "another")
        assert read_support() is None
    store_support(structs.replace(WITH_ONEDNN, framework="2.0"))
    assert read_support() is None, "the framework was updated since"


def test_a_broken_or_unwritable_store_is_no_answer(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store_support(WITH_ONEDNN)
    (path,) = (cache / "processor").iterdir()
    path.write_text("{")
    assert read_support() is None
    path.unlink()
    path.parent.rmdir()
    path.parent.write_text("a file in place of the folder")
    store_support(WITH_ONEDNN)
    assert read_support() is None
    assert "could not be written" in capsys.readouterr().err


def test_the_cache_is_the_users_unless_a_variable_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache_folder() == Path(os.environ[CACHE_VARIABLE])
    monkeypatch.delenv(CACHE_VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "variantscope"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_folder() == Path.home() / ".cache" / "variantscope"


def test_the_processor_is_named_by_what_it_can_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    block = "processor\t: 0\nmodel name\t: EPYC\ncpu MHz\t\t: {}\nflags\t\t: {}\n\nprocessor\t: 1\n"
    identities = []
    for mhz, flags in (("2400.1", "avx avx2"), ("3100.7", "avx avx2"), ("2400.1", "avx avx2 avx512f")):
        (tmp_path / "cpuinfo").write_text(block.format(mhz, flags))
        monkeypatch.setattr(libraries, "_CPUINFO", tmp_path / "cpuinfo")
        identities.append(libraries.processor_identity.__wrapped__())
    assert identities[0] == identities[1] != identities[2]
    monkeypatch.setattr(libraries, "_CPUINFO", tmp_path / "none")
    assert libraries.processor_identity.__wrapped__().strip()
