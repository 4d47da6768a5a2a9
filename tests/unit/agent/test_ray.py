"""The driver of a Ray cluster without one: what it needs of Ray, and the environment of the agents that it starts."""

import os
import sys
from pathlib import Path
from types import ModuleType
from typing import NoReturn

import pytest

from app.agent.ray import DriverError, connect
from app.agent.ray_actor import agent_environment

MISMATCH = """Version mismatch: The cluster was started with:
    Ray: 2.41.0
    Python: 3.12.1
This process on 10.0.0.1 was started with:
    Ray: 2.60.0
    Python: 3.11.7
"""


def fake_ray(version: str, error: Exception | None = None) -> ModuleType:
    """A module `ray` of this version whose `init` fails so."""
    module = ModuleType("ray")

    def init(**_given: object) -> NoReturn:
        raise error or AssertionError("it is not called")

    module.__dict__.update(__version__=version, init=init)
    return module


@pytest.mark.parametrize(
    ("module", "sentence"),
    [
        (None, r"has no Ray: install VariantScope's extra `ray` there, or name the cluster's Python with \?python="),
        (fake_ray("2.9.3"), r"This cluster's Python has Ray 2\.9\.3; VariantScope needs 2\.50 or later, below 3\."),
        (fake_ray("3.0.0"), r"has Ray 3\.0\.0"),
        (fake_ray("2.60.0", ConnectionError("Could not find any running Ray instance.")), "No Ray cluster runs on"),
        (fake_ray("2.60.0", ConnectionError("Found multiple active Ray instances")), "Several Ray clusters run on"),
        (
            fake_ray("2.60.0", RuntimeError(MISMATCH)),
            r"The cluster runs Ray 2\.41\.0 with Python 3\.12\.1, and .* 2\.60",
        ),
        (fake_ray("2.60.0", RuntimeError("Out of luck.\nmore")), r"Ray cannot be used: Out of luck\."),
    ],
)
def test_a_cluster_that_cannot_be_used_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType | None, sentence: str
) -> None:
    monkeypatch.setitem(sys.modules, "ray", module)
    with pytest.raises(DriverError, match=sentence):
        connect()


def test_an_agent_gets_the_environment_of_its_node_and_not_that_of_rays_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_JOB_ID", "01000000")
    monkeypatch.setenv("RAY_RAYLET_PID", str(os.getpid()))  # a process that was started without OMP_NUM_THREADS=1
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    with_gpus = agent_environment(2)
    started_with = dict(
        line.split("=", 1) for line in Path("/proc/self/environ").read_text().split("\0") if "=" in line
    )
    assert with_gpus.get("OMP_NUM_THREADS") == started_with.get("OMP_NUM_THREADS")
    assert "RAY_JOB_ID" not in with_gpus
    assert (with_gpus["CUDA_VISIBLE_DEVICES"], with_gpus["CUDA_DEVICE_ORDER"]) == ("2,3", "PCI_BUS_ID")
    assert agent_environment(0)["CUDA_VISIBLE_DEVICES"] == "-1"
