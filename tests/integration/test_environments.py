"""Environments on a host: its agent makes, lists and removes them, and its runs name them."""

import sys
from pathlib import Path

import pytest

from app.environments.records import EnvironmentRequest
from app.errors import UserError
from app.hosts.address import parse_address
from app.hosts.carriers import shell_carrier
from app.hosts.environments import remote_environments
from tests.fakes.hosts import NAME, connected, services_on
from tests.fakes.sessions import dummy, run_through
from tests.fakes.wheels import FRAMEWORK_VERSION, use_wheels
from tests.unit.environments.test_managed import Following


def test_a_host_makes_lists_and_removes_environments_and_refuses_what_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_wheels(monkeypatch, tmp_path, uv=True)
    request = EnvironmentRequest(name="tf221", cuda=False)
    # The Python of the tests has the agent's libraries; those of another could not be fetched from the made-up index.
    carrier = shell_carrier(parse_address(f"sh:?python={sys.executable}"))
    with connected(tmp_path, carrier=carrier) as connection:
        assert connection.host.inventory().machine.environments == ()
        environments = remote_environments(connection.link)
        with pytest.raises(UserError, match=f"^{NAME}: tf221 was not made"):
            environments.make(request, Following(on_offer=lambda: False))
        following = Following()
        made = environments.make(request, following)
        assert (made.state, made.framework) == ("complete", FRAMEWORK_VERSION)
        assert [(offer.name, offer.packages) for offer in following.offers] == [("tf221", 5)]
        assert list(environments.list()) == [made]
        with connected(tmp_path, carrier=carrier) as another:
            assert another.host.inventory().machine.environments == ("tf221",)
        with pytest.raises(UserError, match=f"^{NAME}: '../x' cannot be the name of an environment"):
            environments.remove("../x")
        environments.remove("tf221")
        assert list(environments.list()) == []
        spec = dummy(connection.host.inventory(), interpreter="tf221")
        outcome, _, _ = run_through(spec, services_on(connection, tmp_path))
    assert outcome.name == "refused"
    assert (outcome.reason or "").startswith(f"There is no complete environment called tf221 on {NAME}; the command")
    assert f" env add tf221 --on {NAME}` makes it" in (outcome.reason or "")
