"""ssh against a real sshd: what it carries, and its real errors."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from app.hosts.book import parse_address
from app.hosts.launchers import ENVIRONMENT, LAUNCHERS, explain_end, explain_start
from tests.fakes.sshd import SshServer


@dataclass(frozen=True)
class Ended:
    out: str
    why: str


def carry(host: str, script: str, stdin: str = "") -> Ended:
    address = parse_address(f"ssh://{host}")
    done = subprocess.run(
        LAUNCHERS["ssh"].command(address, script),
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        start_new_session=True,
        env={**os.environ, **ENVIRONMENT},
        timeout=120,
    )
    return Ended(done.stdout, explain_end(address, done.returncode, done.stderr))


def test_ssh_carries_a_script_and_both_streams(sshd: SshServer) -> None:
    (sshd.home / ".bashrc").write_text("echo Welcome\n")
    found = carry(f"127.0.0.1:{sshd.port}", "cat; printf '%s\\n' \"$HOME\" 'a \"b\"'; exit 3", "in ü\n").out
    assert found.removeprefix("Welcome\n") == f'in ü\n{sshd.home}\na "b"\n'
    assert carry("inner", "echo $((6 * 7))").out.splitlines()[-1] == "42"


def test_what_a_real_ssh_says_becomes_one_sentence(sshd: SshServer) -> None:
    parts = {
        "stranger": "put your key there with ssh-copy-id",
        "unknown": "connect once by hand, `ssh unknown`",
        "closed": "refuses the connection",
        "behind": "The jump host",
        "no-such-host.invalid": "The name no-such-host.invalid cannot be resolved",
    }
    config = sshd.folder / "ssh_config"
    config.write_text(f"Host no-such-host.invalid\n HostName %h\n{config.read_text()}")
    for host, part in parts.items():
        assert part in carry(host, "true").why
    changed = carry("changed", "true").why
    assert "another host key than before" in changed
    assert str(sshd.folder / "known_hosts") in changed


def test_a_key_that_is_not_there_and_a_wrong_config_are_named(sshd: SshServer) -> None:
    for name in ("stranger", "stranger.pub"):
        (sshd.folder / name).unlink()
    assert f"{sshd.folder}/stranger" in carry("stranger", "true").why
    config = sshd.folder / "ssh_config"
    config.write_text(f"Hots gpu1\n{config.read_text()}")
    assert "does not accept your ssh config" in carry("gpu1", "true").why


def test_without_ssh_the_package_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    address = parse_address("ssh://gpu1")
    with pytest.raises(FileNotFoundError) as error:
        subprocess.run(LAUNCHERS["ssh"].command(address, "true"), check=False)
    assert "openssh-client" in explain_start(address, "ssh", error.value)


def test_a_connection_that_the_user_shares_is_used(sshd: SshServer) -> None:
    config = sshd.folder / "ssh_config"
    shared = f"ControlMaster auto\nControlPath {sshd.folder}/m\nControlPersist 60\n"
    config.write_text(f"Host gpu1\n{shared}{config.read_text()}")
    assert [carry("gpu1", f"echo {number}").out for number in (1, 2)] == ["1\n", "2\n"]
    assert len(sshd.sessions()) == 1
    close = ["ssh", "-O", "exit", "gpu1"]
    subprocess.run(close, check=True, capture_output=True, timeout=120)
