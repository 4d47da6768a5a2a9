"""A real sshd on a free port of this machine, as the user who tests, and an `ssh` on the PATH that knows it.

Nothing of the user's own is read or written: keys, known hosts, config and the home folder of a session are in a folder
of the test's. The hosts of the config:

* `gpu1`: this machine. So is `ssh://127.0.0.1:PORT`.
* `talkative`: the same; the login shell prints lines first.
* `restricted`: a forced command, in place of whatever was to be run.
* `stranger`: a key that sshd does not know.
* `unknown`: its host key is not known; `changed`: another one was known.
* `inner`: `gpu1`, by a jump over `gpu1`; `behind`: by a jump over a host that is not there.
* `closed`: nobody listens there.
"""

import contextlib
import getpass
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from app.runs.leases import FOLDER_VARIABLE
from tests.fakes.display import install

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
NO_SSHD = "" if SSHD and shutil.which("ssh") else "no sshd here: install openssh-server and openssh-client"
"""Why there is none; `python3 start.py test` calls `install`, as root."""

SYSTEMD = Path("/run/systemd/system")
"""Exists where systemd starts services."""
_TRIES = 10
"""A port that was free may be taken when sshd starts."""
_FORCED = {
    "talkative": r'command="echo Welcome to the lab; echo 2 mails; eval \"$SSH_ORIGINAL_COMMAND\""',
    "restricted": 'command="echo This service allows sftp connections only."',
    "gpu1": "",
}


@dataclass(slots=True)
class SshServer:
    """A running sshd; `folder` has `bin/ssh`, the `home` of sessions, `ssh_config` and `known_hosts`."""

    folder: Path
    port: int
    process: "subprocess.Popen[bytes]"

    @property
    def home(self) -> Path:
        return self.folder / "home"

    def sessions(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children()

    def kill_sessions(self) -> None:
        """Kill every connection's sshd, as a broken machine in between would end it, and nothing that runs there.

        For root too there are two processes of it from OpenSSH 10 on: the lower one holds the connection.
        """
        sessions = self.sessions()
        lower = [child for session in sessions for child in session.children() if child.name().startswith("sshd")]
        for process in (*sessions, *lower):
            process.kill()

    def stop(self) -> None:
        children = psutil.Process(self.process.pid).children(recursive=True)
        for child in children:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        # First: sshd is their parent, and takes note of their end at once.
        psutil.wait_procs(children, timeout=60)
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


@contextlib.contextmanager
def running_sshd(folder: Path, cache: Path) -> Iterator[SshServer]:
    """Start sshd with all of its files in a folder, and the cache of its sessions in another, and end it."""
    for name in ("home", "leases"):
        (folder / name).mkdir(parents=True)
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # the package's service makes it, and none runs in a container
    for name in ("host_key", "other_host_key", "stranger", *_FORCED):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    keys = [f"{options} {(folder / f'{name}.pub').read_text()}" for name, options in _FORCED.items()]
    (folder / "authorized_keys").write_text("".join(keys))
    server = _start(folder, cache)
    try:
        _write_client(server)
        yield server
    finally:
        server.stop()


def _start(folder: Path, cache: Path) -> SshServer:
    assert SSHD, NO_SSHD
    for _ in range(_TRIES):
        port = free_port()
        given = {"folder": folder, "cache": cache, "port": port, "path": os.environ["PATH"], "leases": FOLDER_VARIABLE}
        config = _SSHD_CONFIG.format(**given)
        (folder / "sshd_config").write_text(config)
        log = folder / "sshd.log"
        log.write_bytes(b"")
        words = [SSHD, "-D", "-f", str(folder / "sshd_config"), "-E", str(log)]
        server = SshServer(folder, port, subprocess.Popen(words, start_new_session=True))
        while server.process.poll() is None:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.05):
                return server
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.process.wait(0.02)
    raise AssertionError(f"sshd does not start: {log.read_text()}")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _write_client(server: SshServer) -> None:
    """Write the user's side: keys known to sshd, the config, known hosts, and the wrapper."""
    folder = server.folder
    host_key = (folder / "host_key.pub").read_text()
    known = {"gpu1": host_key, "changed": (folder / "other_host_key.pub").read_text()}
    (folder / "known_hosts").write_text("".join(f"{name} {key}" for name, key in known.items()))
    config = _SSH_CONFIG.format(folder=folder, port=server.port, user=getpass.getuser(), closed=free_port())
    (folder / "ssh_config").write_text(config)
    wrapper = folder / "bin" / "ssh"
    wrapper.parent.mkdir()
    wrapper.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {folder}/ssh_config "$@"\n')
    wrapper.chmod(0o755)


_SSHD_CONFIG = """\
ListenAddress 127.0.0.1
Port {port}
PidFile none
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/authorized_keys
# The folders above a test's own are not only the user's.
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin yes
MaxStartups 100
MaxSessions 100
SetEnv HOME={folder}/home XDG_CACHE_HOME={cache} {leases}={folder}/leases "PATH={path}"
"""
_SSH_CONFIG = """\
Host changed
    HostKeyAlias changed
Host unknown
    HostKeyAlias unknown
Host talkative restricted stranger
    IdentityFile {folder}/%n
Host gpu1 changed unknown inner closed 127.0.0.1
    IdentityFile {folder}/gpu1
Host inner
    ProxyJump gpu1
Host behind
    ProxyJump closed
Host closed
    Port {closed}
Host *
    HostName 127.0.0.1
    Port {port}
    HostKeyAlias gpu1
    User {user}
    IdentitiesOnly yes
    IdentityAgent none
    UserKnownHostsFile {folder}/known_hosts
    GlobalKnownHostsFile none
"""


if __name__ == "__main__" and not SYSTEMD.exists():  # which would start sshd as a service of this machine
    install(["openssh-server", "openssh-client"], NO_SSHD)
