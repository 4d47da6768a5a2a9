"""Launchers: the local command that runs a script of sh on a host with its stdin and stdout, and what its errors mean.

One row of `LAUNCHERS` for each way to a host. The user's own ssh does what it does by hand: its config, agent, jump
hosts and known hosts count. It never asks anything, and nothing here makes a check of it weaker. The texts of srun and
slurmstepd are those of Slurm's sources (github.com/SchedMD/slurm: src/api/allocate.c, src/slurmd/slurmstepd/req.c).
"""

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from app.hosts.book import Address, Kind
from app.values.plain import one_line

_SSH = ("ssh", "-T", "-a", "-x")
"""No terminal, and no access for the host to the user's keys or screen."""
_SSH_OPTIONS = (
    # A question would appear on a terminal that this program may not have, or not own.
    "BatchMode=yes",
    "ConnectTimeout=10",
    # This detects a dead network after 15 s, whatever TCP does.
    "ServerAliveInterval=5",
    "ServerAliveCountMax=3",
    # The user's config may set these up for logins by hand.
    "ClearAllForwardings=yes",
    "PermitLocalCommand=no",
    "RemoteCommand=none",
    # The reasons below are parsed from its output.
    "LogLevel=INFO",
)
ENVIRONMENT = {"SSH_ASKPASS_REQUIRE": "never"}
"""A jump host's ssh does not inherit BatchMode: without a terminal it would open a window."""

_SRUN = ("srun", "--ntasks=1", "--nodes=1", "--export=ALL", "--mpi=none", "--job-name=variantscope")
"""Not `--unbuffered`, which gives the task a terminal."""
_ON_LOGIN_NODE = """\
command -v srun >/dev/null 2>&1 || . /etc/profile >/dev/null 2>&1
command -v srun >/dev/null 2>&1 || {{ echo 'variantscope: no srun' >&2; exit 127; }}
folder=$(mktemp -d) && mkfifo "$folder/in" || exit 1
exec 3<&0
{srun} sh -c {script} <"$folder/in" 3<&- &
srun=$!
{{ cat <&3 >"$folder/in"; sleep 15; kill $srun; }} >/dev/null 2>&1 &
watcher=$!
trap 'kill $srun 2>/dev/null' HUP INT TERM
exec 3<&-
wait $srun
status=$?
wait $srun
kill $watcher
rm -r "$folder"
exit $status
"""
"""A job waiting in the queue does not read stdin: its end removes the job from the queue, 15 s later."""


def for_any_shell(script: str) -> str:
    """Return a command line that runs an sh script under any login shell.

    sshd gives the line to the login shell, which may be fish or csh: these treat quotes, backslashes and line feeds
    differently. So all but plain characters are octal, which sh's printf decodes
    (https://pubs.opengroup.org/onlinepubs/9699919799/utilities/printf.html, conversion b).
    """
    encoded = "".join(
        char
        if char.isascii() and (char.isalnum() or char in " ./_=-")
        else "".join(f"\\0{byte:03o}" for byte in char.encode())
        for char in script
    )
    return f"""exec sh -c 'eval "$(printf %b "$0")"' '{encoded}'"""


def _port_option(address: Address) -> list[str]:
    return ["-p", str(address.port)] if address.port is not None else []


def by_ssh(address: Address, script: str) -> list[str]:
    """Return the command that runs a script on a host by ssh, or on this machine if the address names none."""
    if not address.host:
        return ["sh", "-c", script]
    options = [word for option in _SSH_OPTIONS for word in ("-o", option)]
    return [*_SSH, *options, *_port_option(address), "--", address.target, for_any_shell(script)]


def _by_srun(address: Address, script: str) -> list[str]:
    srun = shlex.join([*_SRUN, *address.option_arguments])
    return by_ssh(address, _ON_LOGIN_NODE.format(srun=srun, script=shlex.quote(script)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Launcher:
    """A way to start this program on a host.

    Attributes:
        command: Returns the local command for an address and a script. Start it in its own session, or Ctrl-C reaches
            it before this program can end a run.
        failures: What its errors mean: regular expressions over all lines of its output, each with a sentence, of which
            the first match counts; its placeholders are the groups, `label` and `by_hand`.
    """

    command: Callable[[Address, str], list[str]]
    failures: dict[str, str] = field(default_factory=dict)


def describe_wait(line: str) -> str | None:
    """Return what the launcher waits for, according to a line of stderr; None for any other line."""
    if match := re.fullmatch(r"srun: job (\d+) queued and waiting for resources\s*", line):
        return f"Slurm has queued job {match[1]}; it waits for a node."
    if match := re.fullmatch(r"srun: job (\d+) has been allocated resources\s*", line):
        return f"Slurm has allocated a node to job {match[1]}; the program starts there."
    return line.removeprefix(WAITS_MARK) if line.startswith(WAITS_MARK) else None


WAITS_MARK = "variantscope waits: "
"""The prefix of lines on stderr in which a Ray cluster's driver says what a run waits for."""


def explain_start(address: Address, program: str, error: OSError) -> str:
    """Return why a launcher's command could not start, in one sentence with what to do."""
    if isinstance(error, FileNotFoundError):
        package = {"ssh": "the package openssh-client", "docker": "Docker"}.get(program, program)
        return f"This machine has no {program}, which connects to {address.label}; install {package}."
    return f"{program}, which connects to {address.label}, cannot be started ({error.strerror})."


def explain_end(address: Address, exit_status: int, output: str) -> str:
    """Return why a launcher ended, in one sentence with what to do.

    A negative exit status is the signal that ended it. `output` is what it wrote to stderr, and to stdout apart from
    messages.
    """
    names = {"label": address.label, "by_hand": shlex.join(["ssh", *_port_option(address), address.target])}
    for pattern, sentence in (LAUNCHERS[address.kind].failures | PROGRAM_FAILURES).items():
        if match := re.search(pattern, output, re.MULTILINE):
            groups = {name: one_line(text or "") for name, text in match.groupdict().items()}
            return sentence.format(**names, **groups)
    if exit_status < 0:
        return f"The connection to {address.label} was ended here, by signal {-exit_status}."
    lines = [line for line in output.splitlines() if line.strip()]
    last = one_line(lines[-1]) if lines else "it printed nothing"
    return f"The connection to {address.label} ended with exit status {exit_status}: {last.rstrip('.')}."


SSH_FAILURES = {
    r"REMOTE HOST IDENTIFICATION HAS CHANGED(?:.|\n)*?"
    r"^Offending .*key in (?P<line>.*?)\r?$": "{label} shows another host key than before: it was reinstalled, or"
    " somebody is between you and it. Ask its administrator for the new key's fingerprint; only if it is right, remove"
    " the old key, line {line}.",
    r"\A(?P<line>.*?)\r?$(?:.|\n)*?(?:UNKNOWN port 65535|stdio forwarding failed)": "The jump host on the way to"
    " {label} cannot reach it ({line}); `{by_hand}` must work without a question.",
    "Host key verification failed|No .* host key is known for": "ssh does not know the host key of {label} yet:"
    " connect once by hand, `{by_hand}`, compare the key, and answer yes.",
    "Could not resolve hostname (?P<name>[^:]*):": "The name {name} cannot be resolved: check its spelling, your ssh"
    " config and this machine's network.",
    "Connection refused": "{label} refuses the connection: no ssh server listens on that port; check host and port, or"
    " start sshd there.",
    "connect to host .*(?:timed out|[Nn]o route to host|[Nn]etwork is unreachable|Host is down)|"
    "during banner exchange": "{label} does not answer: check that it is switched on and can be reached from here (a"
    " VPN?).",
    r"(?P<line>no such identity: .*?|Identity file .* not acc.*?|"
    r"Permissions \d+ for .* are too open)\.?\r?$": "{label} refused you, and ssh cannot use a key of your config"
    " ({line}): correct that, or choose another key.",
    r"Permission denied \((?P<methods>[^)]*)\)": "{label} accepts none of your keys (it takes {methods}), and"
    " passwords are never asked for: put your key there with ssh-copy-id, or give a key that has a passphrase to"
    " ssh-add; `{by_hand}` must work without a question.",
    r"Bad configuration option|Bad owner or permissions on|[Mm]issing argument|terminating, \d+ bad configuration|"
    r"ControlPath .*too long|too long for Unix domain socket": "ssh does not accept your ssh config; `{by_hand}` says"
    " which line.",
    "This account is (?:currently )?not available|nologin|allows sftp connections only|: restricted$|"
    "command not allowed|exec: not found": "{label} lets this user run no commands (a restricted shell or a forced"
    " command): ask for an account with a shell.",
}

_STEP = r"\*\*\* (?:JOB|STEP) (?P<job>\d+)\S* ON (?P<node>\S+) (?P<why>CANCELLED .*?) \*\*\*"
_DENIED = r"Unable to (?:allocate resources|create step for job \d+): "

SLURM_FAILURES = {
    r"\*\*\* (?:JOB|STEP) (?P<job>\d+)\S* ON (?P<node>\S+) CANCELLED AT \S+"
    " DUE TO TIME LIMIT": "Job {job} on {node} reached its time limit, and Slurm ended it: ask for more by time=MINUTES"
    " in the address.",
    r"Detected \d+ oom[-_]kill event|error: .*: Out Of Memory\s*$": "The job had no memory left, and Slurm killed what"
    " ran in it: ask for more in the address, such as mem=32G.",
    _STEP: "Slurm ended job {job} on {node}: {why}.",
    r"Job has been cancelled|Job allocation (?:\d+ )?has been revoked|Force Terminated": "The job was cancelled by"
    " scancel or an administrator before it ran.",
    "^variantscope: no srun": "{label} has no srun: name a login node of the cluster, or have your shell there find"
    " srun without a login.",
    rf"{_DENIED}(?P<why>.*?)\.?\s*$": "Slurm on {label} does not accept the job: {why}; `sinfo -o '%P %G %c %m'` there"
    " shows what it has.",
    r"s(?:run|batch): (?:error: |fatal: )?(?P<why>Invalid .*|unrecognized option .*|"
    r".*invalid option .*?)\.?\s*$": "Slurm on {label} does not accept an option in the address: {why}.",
}

RAY_FAILURES = {
    r"^variantscope ray: (?P<why>.*?)\.?$": "{why} ({label}).",
    "No module named|Packages that VariantScope needs are missing": "The Python that drives Ray on {label} lacks"
    " packages that the program needs: name the cluster's own in the address (?python=PATH), and install them there.",
}

PROGRAM_FAILURES = {
    "^variantscope: folder": "The program cannot be stored on {label}: ~/.cache/variantscope there is not writable, or"
    " another user's; set XDG_CACHE_HOME there.",
    "^variantscope: full": "The program cannot be stored on {label}: free some space in ~/.cache there, 20 MiB are"
    " needed.",
    "^variantscope: state": "The run cannot be stored on {label}: ~/.local/state/variantscope there is not writable, or"
    " another user's; set XDG_STATE_HOME there.",
    "^variantscope: damaged": "What was sent to {label} arrived damaged; try again.",
    "^variantscope: python": "{label} needs Python 3.11 or newer, and the one there is older or missing: name one in"
    " the host's address (?python=PATH).",
    "^variantscope: uv": "{label} has no uv, and another processor or system than this machine; install it there: `curl"
    " -LsSf https://astral.sh/uv/install.sh | sh`.",
    "No space left on device|[Dd]isk quota exceeded": "The disk of {label} is full: free some space in its home"
    " folder, for the program's files.",
    "Failed to fetch|Could not connect|error sending request|No solution found|dns error": "uv on {label} cannot get"
    " what the program needs: let it reach a package index (UV_DEFAULT_INDEX there), or name a Python that has all of"
    " it (?python=PATH).",
    r"No module named '(?P<module>[\w.]+)'|Packages that VariantScope needs are missing": "The Python that the address"
    " of {label} names lacks packages that the program needs: install them there, or leave python= out, and uv brings"
    " them.",
    r"^(?P<why>The program on .* (?:ends|was ended)\b.*)$": "{why}",
}

LAUNCHERS: Mapping[Kind, Launcher] = {
    "sh": Launcher(command=lambda _, script: ["sh", "-c", script]),
    "ssh": Launcher(command=by_ssh, failures=SSH_FAILURES),
    "docker": Launcher(command=lambda address, script: ["docker", "exec", "-i", address.host, "sh", "-c", script]),
    "slurm": Launcher(command=_by_srun, failures=SLURM_FAILURES | SSH_FAILURES),
    "ray": Launcher(command=by_ssh, failures=RAY_FAILURES | SSH_FAILURES),
}
