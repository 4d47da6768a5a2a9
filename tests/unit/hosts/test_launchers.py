"""Launchers: the commands they are, and what errors of ssh, docker and Slurm mean, as those programs word them."""

import shutil
import subprocess

import pytest

from app.hosts.book import parse_address
from app.hosts.launchers import LAUNCHERS, describe_wait, explain_end, explain_start, for_any_shell

GPU1 = parse_address("ssh://me@gpu1:2222")
LOGIN = parse_address("slurm+ssh://login?gres=gpu:2&time=30")

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
        ("ssh: Could not resolve hostname gpu1: Name or service not known\r\n", "The name gpu1 cannot be resolved"),
        ("ssh: Could not resolve hostname gpu1: Temporary failure in name resolution\r\n", "this machine's network"),
        ("ssh: connect to host gpu1 port 2222: Connection refused\r\n", "no ssh server listens"),
        ("ssh: connect to host gpu1 port 2222: Connection timed out\r\n", "does not answer"),
        ("ssh: connect to host gpu1 port 2222: No route to host\r\n", "does not answer"),
        ("Connection timed out during banner exchange\r\n", "does not answer"),
        ("Host key verification failed.\r\n", "connect once by hand, `ssh -p 2222 me@gpu1`"),
        (_CHANGED + _REMOVE + _VERIFICATION, "line /u/me/.ssh/known_hosts:3."),
        (_CHANGED + _VERIFICATION, "line /u/me/.ssh/known_hosts:3."),
        ("me@gpu1: Permission denied (publickey,password).\r\n", "ssh-copy-id"),
        (
            "no such identity: /u/me/.ssh/lab: No such file or directory\r\nme@gpu1: Permission denied (publickey).",
            "(no such identity: /u/me/.ssh/lab: No such file or directory)",
        ),
        (
            "Received disconnect from ::1 port 22:2: Too many authentication failures\r\n",
            "ended with exit status 255: Received disconnect",
        ),
        (
            "@ WARNING: UNPROTECTED PRIVATE KEY FILE! @\nPermissions 0644 for '/u/me/k' are too open.\n",
            "(Permissions 0644 for '/u/me/k' are too open)",
        ),
        ("stdio forwarding failed\r\nConnection closed by UNKNOWN port 65535\r\n", "The jump host"),
        ("/u/me/.ssh/config: line 1: Bad configuration option: hots\r\n", "your ssh config"),
        ('unix_listener: path "/very/long" too long for Unix domain socket\r\n', "your ssh config"),
        ("Unable to negotiate with 10.0.0.1 port 22: no matching cipher found.\r\n", "255: Unable to negotiate with"),
        ("This service allows sftp connections only.\n", "restricted shell"),
        ("rbash: line 1: exec: restricted\n", "restricted shell"),
        (
            "Access is restricted to staff.\nclient_loop: send disconnect: Broken pipe\r\n",
            "255: client_loop: send disconnect: Broken pipe.",
        ),
        ("This account is currently not available.\n", "restricted shell"),
        ("cat: write error: No space left on device\n", "disk of ssh://me@gpu1:2222 is full"),
        ("Connection to gpu1 closed by remote host.\r\n", "255: Connection to gpu1 closed by remote host."),
        ("Welcome\nsomething {new} happened.\n", "exit status 255: something {new} happened."),
        ("\r\n", "ended with exit status 255: it printed nothing."),
    ],
)
def test_what_ssh_says_becomes_one_sentence(said: str, part: str) -> None:
    sentence = explain_end(GPU1, 255, said)
    assert part in sentence
    assert not {"\n", "\r"} & set(sentence)
    assert sentence.endswith((".", '"'))


def test_a_status_without_words_is_said() -> None:
    assert (
        explain_end(GPU1, 3, "") == "The connection to ssh://me@gpu1:2222 ended with exit status 3: it printed nothing."
    )


def test_a_signal_and_a_missing_program_are_said() -> None:
    assert "signal 9" in explain_end(GPU1, -9, "")
    assert "install the package openssh-client" in explain_start(GPU1, "ssh", FileNotFoundError())
    assert "(Permission denied)" in explain_start(GPU1, "ssh", PermissionError(13, "Permission denied"))


def command(address: str, script: str) -> list[str]:
    parsed = parse_address(address)
    return LAUNCHERS[parsed.kind].command(parsed, script)


def test_docker_s_errors_are_its_own() -> None:
    box = parse_address("docker://box")
    reason = "Error response from daemon: No such container: box"
    assert explain_end(box, 1, f"{reason}\n") == f"The connection to docker://box ended with exit status 1: {reason}."
    assert command("docker://box", "x") == ["docker", "exec", "-i", "box", "sh", "-c", "x"]


@pytest.mark.parametrize(
    ("said", "part"),
    [
        (
            "slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-11-22T23:05:00 DUE TO TIME LIMIT ***\n",
            "Job 7 on n1 reached its time limit",
        ),
        (
            "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-11-22T23:05:00 DUE TO PREEMPTION ***\n",
            "Slurm ended job 7 on n1: CANCELLED AT 2026-11-22T23:05:00 DUE TO PREEMPTION.",
        ),
        (
            "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-11-22T23:05:00 ***\n",
            "Slurm ended job 7 on n1: CANCELLED AT 2026-11-22T23:05:00.",
        ),
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=7.0.\n", "had no memory left"),
        ("srun: Force Terminated job 7\n", "was cancelled by scancel or an administrator before it ran"),
        ("srun: error: Unable to allocate resources: Invalid partition name specified\n", "Invalid partition name"),
        ("srun: unrecognized option '--gress=gpu'\n", "an option in the address: unrecognized option"),
        ("variantscope: no srun\n", "slurm+ssh://login has no srun"),
        ("ssh: connect to host login port 22: Connection refused\r\n", "no ssh server listens"),
    ],
)
def test_what_slurm_says_becomes_one_sentence(said: str, part: str) -> None:
    assert part in explain_end(LOGIN, 1, said)


def test_a_wait_in_a_queue_is_told() -> None:
    assert describe_wait("srun: job 12 queued and waiting for resources") is not None
    assert "to job 12" in str(describe_wait("srun: job 12 has been allocated resources"))
    assert describe_wait("srun: something else") is None


def test_slurm_is_asked_with_the_address_s_options_on_the_login_node() -> None:
    local = command("slurm:?gres=gpu:2&time=30", "true")
    assert local[:2] == ["sh", "-c"]
    assert " --gres=gpu:2 --time=30 sh -c true " in local[2]
    assert command("slurm+ssh://login", "true")[:1] == ["ssh"]


def test_what_uv_and_python_lack_there_is_said() -> None:
    assert "UV_DEFAULT_INDEX" in explain_end(GPU1, 2, "error: Failed to fetch: `https://index.example/click/`\n")
    assert "uv brings them" in explain_end(GPU1, 1, "ModuleNotFoundError: No module named 'msgspec'\n")


def test_ssh_asks_nothing_forwards_nothing_and_ends_its_options_before_the_host() -> None:
    words = command("ssh://me@gpu1:2222", "true")
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
    words = command("sh:", "cat; echo \"$HOME\" 'x'")
    found = subprocess.run(words, input="in\n", capture_output=True, text=True, check=True, env={"HOME": "/h"}).stdout
    assert found == "in\n/h x\n"
