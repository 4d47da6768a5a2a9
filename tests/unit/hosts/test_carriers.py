"""Carriers: the commands they are, and what ssh's and docker's errors mean, as those programs word them."""

import shutil
import subprocess

import pytest

from app.hosts.address import parse_address
from app.hosts.carriers import docker_carrier, for_any_shell, shell_carrier, ssh_carrier

GPU1 = ssh_carrier(parse_address("ssh://me@gpu1:2222"))

_CHANGED = """\
@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @
@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
IT IS POSSIBLE THAT SOMEONE IS DOING SOMETHING NASTY!
Offending ED25519 key in /u/me/.ssh/known_hosts:3
"""
_REMOVE = '  remove with:\n  ssh-keygen -f "/u/me/.ssh/known_hosts" -R "[gpu1]:2222"\n'
_VERIFICATION = (
    "ED25519 host key for gpu1 has changed and you have requested strict checking.\r\nHost key verification failed.\r\n"
)


@pytest.mark.parametrize(
    ("said", "part"),
    [
        ("ssh: Could not resolve hostname gpu1: Name or service not known\r\n", "There is no host gpu1"),
        ("ssh: Could not resolve hostname gpu1: Temporary failure in name resolution\r\n", "this machine's network"),
        ("ssh: connect to host gpu1 port 2222: Connection refused\r\n", "no ssh server listens"),
        ("ssh: connect to host gpu1 port 2222: Connection timed out\r\n", "does not answer"),
        ("ssh: connect to host gpu1 port 2222: No route to host\r\n", "does not answer"),
        ("Connection timed out during banner exchange\r\n", "does not answer"),
        ("Host key verification failed.\r\n", "connect once by hand, `ssh -p 2222 me@gpu1`"),
        (_CHANGED + _REMOVE + _VERIFICATION, 'remove the old key: ssh-keygen -f "/u/me/.ssh/known_hosts" -R'),
        (_CHANGED + _VERIFICATION, "line /u/me/.ssh/known_hosts:3."),
        ("me@gpu1: Permission denied (publickey,password).\r\n", "ssh-copy-id"),
        (
            "no such identity: /u/me/.ssh/lab: No such file or directory\r\nme@gpu1: Permission denied (publickey).",
            "/u/me/.ssh/lab, is not there",
        ),
        ("Received disconnect from ::1 port 22:2: Too many authentication failures\r\n", "IdentitiesOnly"),
        (
            "@ WARNING: UNPROTECTED PRIVATE KEY FILE! @\nPermissions 0644 for '/u/me/k' are too open.\n",
            "the key /u/me/k, which others can read",
        ),
        ("stdio forwarding failed\r\nConnection closed by UNKNOWN port 65535\r\n", "The jump host"),
        ("/u/me/.ssh/config: line 1: Bad configuration option: hots\r\n", "your ssh config"),
        ('unix_listener: path "/very/long" too long for Unix domain socket\r\n', "your ssh config"),
        ("Unable to negotiate with 10.0.0.1 port 22: no matching cipher found.\r\n", "no method in common"),
        ("This service allows sftp connections only.\n", "restricted shell"),
        ("rbash: line 1: exec: restricted\n", "restricted shell"),
        ("Access is restricted to staff.\nclient_loop: send disconnect: Broken pipe\r\n", "closed by the other side"),
        ("This account is currently not available.\n", "restricted shell"),
        ("cat: write error: No space left on device\n", "disk of ssh://me@gpu1:2222 is full"),
        ("Timeout, server gpu1 not responding.\r\n", "has not answered for 15 s"),
        ("client_loop: send disconnect: Broken pipe\r\n", "closed by the other side"),
        ("Connection to gpu1 closed by remote host.\r\n", "closed by the other side"),
        ("Welcome\nsomething {new} happened.\n", "exit status 255: something {new} happened."),
        ("\r\n", "ended without a reason"),
    ],
)
def test_what_ssh_says_becomes_one_sentence(said: str, part: str) -> None:
    sentence = GPU1.explain(255, said)
    assert part in sentence
    assert not {"\n", "\r"} & set(sentence)
    assert sentence.endswith((".", '"'))


def test_a_status_without_words_is_said() -> None:
    assert GPU1.explain(3, "") == "The connection to ssh://me@gpu1:2222 ended with exit status 3: it printed nothing."


def test_a_signal_and_a_missing_program_are_said() -> None:
    assert "signal 9" in GPU1.explain(-9, "")
    assert "install the package openssh-client" in GPU1.explain_start(FileNotFoundError())
    assert "(Permission denied)" in GPU1.explain_start(PermissionError(13, "Permission denied"))


def test_docker_errors_say_what_to_do() -> None:
    box = docker_carrier(parse_address("docker://box"))
    assert "`docker ps`" in box.explain(1, "Error response from daemon: No such container: box\n")
    assert "`docker start box`" in box.explain(1, "Error response from daemon: container 1f is not running\n")
    assert box.command("x") == ["docker", "exec", "-i", "box", "sh", "-c", "x"]


def test_ssh_asks_nothing_forwards_nothing_and_ends_its_options_before_the_host() -> None:
    words = GPU1.command("true")
    assert words[0] == "ssh"
    assert words[-3:-1] == ["--", "me@gpu1"]
    assert {"BatchMode=yes", "ClearAllForwardings=yes", "RemoteCommand=none", "-T", "-a", "-x"} <= set(words)
    assert not any("StrictHostKeyChecking" in word or "UserKnownHostsFile" in word for word in words)


SCRIPT = "cat <<'E'\n\"$HOME\" `x` \\n \\\\ 'a' !b ü\tE\nE\nprintf '%s' \"$0$#\""


@pytest.mark.parametrize("shell", ["sh", "bash", "dash", "zsh", "fish", "csh", "tcsh"])
def test_a_script_is_the_same_under_any_login_shell(shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} on this machine")
    words = [shell, "-c", for_any_shell(SCRIPT.replace('"$0$#"', "x"))]
    found = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert found == "\"$HOME\" `x` \\n \\\\ 'a' !b ü\tE\nx"


def test_a_shell_of_this_machine_takes_the_script_as_it_is() -> None:
    command = shell_carrier(parse_address("sh:")).command("cat; echo \"$HOME\" 'x'")
    found = subprocess.run(command, input="in\n", capture_output=True, text=True, check=True, env={"HOME": "/h"}).stdout
    assert found == "in\n/h x\n"
