"""What a machine has, apart from its GPUs."""

import os
from pathlib import Path

import pytest

from workloads.machine import CACHE_VARIABLE, cache_folder


def test_the_cache_is_the_users_unless_a_variable_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache_folder() == Path(os.environ[CACHE_VARIABLE])
    monkeypatch.delenv(CACHE_VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "variantscope"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_folder() == Path.home() / ".cache" / "variantscope"
