"""Environments on a host: its agent makes, lists and removes them, and its runs name them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from app.environments.records import EnvironmentRequest, make
from app.errors import UserError
from app.hosts import link, remote_jobs
from app.hosts.address import parse_address
from app.hosts.carriers import Carrier, shell_carrier
from app.hosts.remote_jobs import RemoteEnvironments
from tests.fakes.environments import VirtualEnvironment
from tests.fakes.hosts import NAME, connected, services_on
from tests.fakes.sessions import dummy, run_through
from tests.fakes.wheels import FRAMEWORK_VERSION, use_wheels
from tests.unit.environments.test_managed import Following
from workloads.catalog import FRAMEWORKS, environments_folder

REQUEST = EnvironmentRequest(name="tf221", cuda=False)


@pytest.fixture
def carrier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Carrier:
    """The way to a host whose Python has the agent's libraries, and no uv; that of the tests has the libraries."""
    use_wheels(monkeypatch, tmp_path)
    host = VirtualEnvironment(tmp_path / "host")
    host.see_ours()
    host.at_start("sys.modules['uv'] = None")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr(link, "_LOOK_S", 0.001)  # no line of a short step is missed
    return shell_carrier(parse_address(f"sh:?python={host.python}"))


def test_a_host_makes_lists_and_removes_environments_and_refuses_what_it_lacks(
    tmp_path: Path, carrier: Carrier
) -> None:
    with connected(tmp_path, carrier=carrier) as connection:
        assert connection.host.inventory().machine.environments == ()
        environments, following = RemoteEnvironments(connection.link), Following()
        with pytest.raises(UserError, match=r"^tf221 was not made"):
            make(environments, REQUEST, lambda _: False, following.report)
        assert f"Sending uv to {NAME} …" in following.lines
        following = Following()
        made = make(environments, REQUEST, following.ask, following.report)
        assert (made.state, made.frameworks) == ("complete", {"tensorflow": FRAMEWORK_VERSION})
        assert [(offer.name, offer.packages) for offer in following.offers] == [("tf221", 5)]
        assert any(line.startswith("Installing the packages") for line in following.lines)
        assert f"Sending uv to {NAME} …" not in following.lines, "it is there already"
        assert environments("list", REQUEST, following.report).environments == (made,)
        with connected(tmp_path, carrier=carrier) as another:
            assert another.host.inventory().machine.environments == ("tf221",)
            assert another.host.inventory().machine.frameworks == tuple(FRAMEWORKS), "of its own Python, as here"
        with pytest.raises(UserError, match=f"^{NAME}: '../x' cannot be the name of an environment"):
            environments("remove", EnvironmentRequest(name="../x"), following.report)
        environments("remove", REQUEST, following.report)
        assert environments("list", REQUEST, following.report).environments == ()
        spec = dummy(connection.host.inventory(), interpreter="tf221")
        outcome, _, _ = run_through(spec, services_on(connection, tmp_path))
    assert outcome.name == "refused"
    assert (outcome.reason or "").startswith(f"There is no complete environment called tf221 on {NAME}; a path")
    assert f" env add tf221 --on {NAME}` makes it" in (outcome.reason or "")


def test_a_host_that_cannot_run_the_programs_uv_is_told_how_to_get_one(
    tmp_path: Path, carrier: Carrier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_jobs, "system_name", lambda: "another system")
    with connected(tmp_path, carrier=carrier) as connection, pytest.raises(UserError) as refused:
        make(RemoteEnvironments(connection.link), REQUEST, lambda _: True, Following().report)
    assert str(refused.value).startswith(f"{NAME}: uv, which makes environments, is not on ")


def stop_at(beginning: str) -> Callable[[str], bool]:
    return lambda line: not line.startswith(beginning)


@pytest.mark.parametrize("step", ["Sending uv", "Looking for", "Installing"])
def test_what_is_stopped_leaves_nothing_on_the_host(tmp_path: Path, carrier: Carrier, step: str) -> None:
    with connected(tmp_path, carrier=carrier) as connection:
        with pytest.raises(UserError, match="was stopped"):
            make(RemoteEnvironments(connection.link), REQUEST, lambda _: True, stop_at(step))
        assert list(environments_folder().glob("*/")) == []
