"""Carriers: the local commands that run a script on a host with its stdin and stdout, and what their errors mean.

The user's own ssh does all of it: its config, agent, jump hosts and known hosts count. It never asks anything, and
nothing here makes a check of it weaker.
"""

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from app.hosts.address import Address
from app.plain import one_line

_SSH_OPTIONS = (
    # A question would be asked on a terminal that this program does not have, or not own.
    "BatchMode=yes",
    "ConnectTimeout=10",
    # A dead network is noticed after 15 s, whatever TCP says.
    "ServerAliveInterval=5",
    "ServerAliveCountMax=3",
    # What a user's config sets up for logging in by hand.
    "ClearAllForwardings=yes",
    "PermitLocalCommand=no",
    "RemoteCommand=none",
    # The reasons below are read from what it says.
    "LogLevel=INFO",
)
_FLAGS = ("-T", "-a", "-x")
"""No terminal, and neither the user's keys nor the screen are lent to the host."""

Waiting = Callable[[str], str | None]
"""Returns what a line of a carrier's stderr says that it waits for; None for any other line."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One way in which a carrier fails.

    Attributes:
        pattern: What its output has then, a regular expression over all lines; it may name groups.
        sentence: What is wrong and what to do. Besides the groups there are `host`, `target`, `label` and `by_hand`.
        status: Only with this exit status.
    """

    pattern: str
    sentence: str
    status: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Carrier:
    """A local command that runs a script of a POSIX shell on a host.

    Start it in a session of its own, or Ctrl-C reaches it before this program can end a run; with `environment`, so
    that nothing between asks for a password in a window.

    Attributes:
        address: Where the host is; its `python` and `interpreter` are for the agent.
        prefix: The words of the command before the script.
        failures: What its errors mean, the first that fits counts.
        wrap: Makes the script the command's last word.
        waiting: Reads what it waits for from its stderr.
    """

    address: Address
    prefix: tuple[str, ...]
    failures: tuple[Failure, ...] = ()
    wrap: Callable[[str], str] = str
    waiting: Waiting = lambda _line: None
    environment: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def kind(self) -> str:
        """Return how the host is reached: `ssh`, `slurm`, `ray`, `docker` or `sh`."""
        return self.address.kind

    @property
    def label(self) -> str:
        """Return the host's address for people."""
        return self.address.label

    def command(self, script: str) -> list[str]:
        """Return the command that runs a script on the host; nothing on this machine reads it as a shell would."""
        return [*self.prefix, self.wrap(script)]

    def on_stderr(self, line: str) -> str | None:
        """Return what the carrier says it waits for in a line of its stderr; None for any other line."""
        return self.waiting(line)

    def explain_start(self, error: OSError) -> str:
        """Return why its command could not be started, in one sentence with what to do."""
        program = self.prefix[0]
        if isinstance(error, FileNotFoundError):
            package = {"ssh": "the package openssh-client", "docker": "Docker"}.get(program, program)
            return f"This machine has no {program}, which leads to {self.label}; install {package}."
        return f"{program}, which leads to {self.label}, cannot be started ({error.strerror})."

    def explain(self, exit_status: int, output: str) -> str:
        """Return why the carrier ended, in one sentence with what to do.

        A negative exit status is the signal that ended it. `output` is what it wrote to its stderr, and to its stdout
        where that was no message.
        """
        address = self.address
        names = {
            "host": address.host,
            "target": address.target,
            "label": self.label,
            "by_hand": shlex.join(["ssh", *_port_option(address), address.target]),
        }
        for failure in self.failures:
            match = re.search(failure.pattern, output, re.MULTILINE)
            if match and failure.status in (None, exit_status):
                groups = {name: one_line(text or "") for name, text in match.groupdict().items()}
                return failure.sentence.format(**names, **groups)
        if exit_status < 0:
            return f"The connection to {self.label} was ended here, by signal {-exit_status}."
        lines = [line for line in output.splitlines() if line.strip()]
        last = one_line(lines[-1]) if lines else "it printed nothing"
        return f"The connection to {self.label} ended with exit status {exit_status}: {last.rstrip('.')}."


def ssh_carrier(address: Address, failures: Sequence[Failure] = (), waiting: Waiting | None = None) -> Carrier:
    """Return the carrier of a host that ssh reaches; those of Slurm and Ray are reached so, too.

    `failures` are more ways to fail, which are looked for first. `waiting` reads what is waited for from stderr.
    """
    options = [word for option in _SSH_OPTIONS for word in ("-o", option)]
    return Carrier(
        address=address,
        prefix=("ssh", *_FLAGS, *options, *_port_option(address), "--", address.target),
        failures=(*failures, *SSH_FAILURES),
        wrap=for_any_shell,
        waiting=waiting or (lambda _line: None),
        # A jump host's ssh does not inherit BatchMode: without a terminal it would open a window.
        environment={"SSH_ASKPASS_REQUIRE": "never"},
    )


def docker_carrier(address: Address) -> Carrier:
    """Return the carrier of a container."""
    prefix = ("docker", "exec", "-i", address.host, "sh", "-c")
    return Carrier(address=address, prefix=prefix, failures=DOCKER_FAILURES)


def shell_carrier(address: Address) -> Carrier:
    """Return the carrier that is only a shell of this machine."""
    return Carrier(address=address, prefix=("sh", "-c"))


def for_any_shell(script: str) -> str:
    """Return a command line that runs a script of sh under whatever login shell the user has there.

    sshd gives the line to the login shell, which may be fish or csh: those read quotes, backslashes and line feeds in
    their own ways. So all but plain characters go in octal, which sh's own printf decodes
    (https://pubs.opengroup.org/onlinepubs/9699919799/utilities/printf.html, conversion b).
    """
    encoded = "".join(
        char if char.isascii() and (char.isalnum() or char in " ./_=-") else _octal(char) for char in script
    )
    return f"""exec sh -c 'eval "$(printf %b "$0")"' '{encoded}'"""


def _octal(char: str) -> str:
    return "".join(f"\\0{byte:03o}" for byte in char.encode())


def _port_option(address: Address) -> list[str]:
    return ["-p", str(address.port)] if address.port is not None else []


SSH_FAILURES = (
    Failure(
        r"REMOTE HOST IDENTIFICATION HAS CHANGED(?:.|\n)*?^\s*(?P<remove>ssh-keygen -f .* -R .*)$",
        "{label} shows another host key than before: it was installed anew, or somebody is between you and it. Ask its"
        " administrator for the new key's fingerprint; only if it is right, remove the old key: {remove}",
    ),
    Failure(
        r"REMOTE HOST IDENTIFICATION HAS CHANGED(?:.|\n)*?^Offending .*key in (?P<line>.*?)\r?$",
        "{label} shows another host key than before: it was installed anew, or somebody is between you and it. Ask its"
        " administrator for the new key's fingerprint; only if it is right, remove the old key, line {line}.",
    ),
    Failure(
        r"\A(?P<line>.*?)\r?$(?:.|\n)*?(?:UNKNOWN port 65535|stdio forwarding failed)",
        "The jump host on the way to {label} does not lead there ({line}); `{by_hand}` must work without a question.",
    ),
    Failure(
        r"Host key verification failed|No .* host key is known for",
        "ssh does not know the host key of {label} yet: connect once by hand, `{by_hand}`, compare the key, and"
        " answer yes.",
    ),
    Failure(
        r"Could not resolve hostname (?P<name>[^:]*): .*(?:[Tt]emporary failure|try again)",
        "The name {name} cannot be looked up now: check this machine's network.",
    ),
    Failure(
        r"Could not resolve hostname (?P<name>[^:]*):",
        "There is no host {name}: neither your ssh config nor the name server knows it; check how it is written.",
    ),
    Failure(
        r"Connection refused",
        "{label} refuses the connection: no ssh server listens on that port; check host and port, or start sshd there.",
    ),
    Failure(
        r"connect to host .*(?:timed out|[Nn]o route to host|[Nn]etwork is unreachable|Host is down)|during banner"
        r" exchange",
        "{label} does not answer: check that it is switched on and can be reached from here (a VPN?).",
    ),
    Failure(
        r"Too many authentication failures",
        "{label} refused after too many keys: name the right one in your ssh config, by IdentityFile with"
        " IdentitiesOnly yes.",
    ),
    Failure(
        r"Permissions \d+ for '(?P<file>.*?)' are too open",
        "ssh does not use the key {file}, which others can read: `chmod 600` makes it private.",
    ),
    Failure(
        r"(?:no such identity: |Identity file )(?P<file>.*?)(?:: No such| not accessible)(?:.|\n)*?Permission denied",
        "{label} refused you, and the key that your ssh config names, {file}, is not there: make it, or name another.",
    ),
    Failure(
        r"Permission denied \((?P<methods>[^)]*)\)",
        "{label} accepts none of your keys (it takes {methods}), and passwords are never asked for: put your key there"
        " with ssh-copy-id, or give a key that has a passphrase to ssh-add; `{by_hand}` must work without a question.",
    ),
    Failure(
        r"Bad configuration option|Bad owner or permissions on|[Mm]issing argument|terminating, \d+ bad configuration|"
        r"ControlPath .*too long|too long for Unix domain socket",
        "ssh does not accept your ssh config; `{by_hand}` says which line.",
    ),
    Failure(
        r"(?P<line>Unable to negotiate with .*?)\r?$",
        "This machine's ssh and that of {label} have no method in common ({line}): update the older one.",
    ),
    Failure(
        r"No space left on device|[Dd]isk quota exceeded",
        "The disk of {label} is full: free some space in your home folder there, for the agent's files.",
    ),
    Failure(
        r"This account is (?:currently )?not available|nologin|allows sftp connections only|: restricted$|"
        r"command not allowed|exec: not found",
        "{label} lets this user run no commands (a restricted shell or a forced command): ask for an account with a"
        " shell.",
    ),
    Failure(
        r"Timeout, server .* not responding",
        "The connection to {label} was lost: it has not answered for 15 s.",
    ),
    Failure(
        r"\A\s*\Z",
        "The connection to {label} ended without a reason: ssh was killed, or a connection that your ssh config shares"
        " (ControlMaster) ended.",
        255,
    ),
    Failure(
        r"(?:closed by remote host|[Cc]onnection reset|[Bb]roken pipe|[Cc]onnection closed by)",
        "The connection to {label} was closed by the other side.",
        255,
    ),
)

DOCKER_FAILURES = (
    Failure(r"No such container", "There is no container {host}: `docker ps` shows those that run."),
    Failure(r"is not running", "The container {host} does not run: `docker start {host}` starts it."),
    Failure(r"is paused", "The container {host} is paused: `docker unpause {host}` lets it go on."),
    Failure(
        r"Cannot connect to the Docker daemon|permission denied while trying to connect",
        "Docker does not answer this user: start its service, or let your user use it; `docker ps` must work.",
    ),
    Failure(r"executable file not found", "The container {host} has no sh, which the agent's start needs."),
    Failure(r"No space left on device", "The container {host} has no space left for the agent's files."),
)
