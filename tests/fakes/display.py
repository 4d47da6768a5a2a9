"""A screen of its own for a test: Xvfb with a window manager, and a mouse and a keyboard that go through the X server.

`python3 start.py test` calls `install`, as root.
"""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence

import start

SCREEN = (1400, 900)
PACKAGES = ("xvfb", "openbox", "xdotool")
NO_DISPLAY = "" if all(map(shutil.which, ("Xvfb", "openbox", "xdotool"))) else f"no screen here: install {PACKAGES}"
"""Why there is none."""


@contextlib.contextmanager
def running_display() -> Iterator[str]:
    """Start an X server and its window manager; yield the server's name for `DISPLAY`, and end both."""
    read, write = os.pipe()
    size = "{}x{}x24".format(*SCREEN)
    words = ["Xvfb", "-displayfd", str(write), "-screen", "0", size, "-nolisten", "tcp", "-noreset"]
    with subprocess.Popen(words, pass_fds=(write,), stderr=subprocess.DEVNULL) as server:
        os.close(write)
        with os.fdopen(read) as answer:
            name = f":{answer.readline().strip()}"
        environment = {**os.environ, "DISPLAY": name}
        with subprocess.Popen(["openbox", "--sm-disable"], env=environment, stderr=subprocess.DEVNULL) as manager:
            try:
                yield name
            finally:
                manager.terminate()
                manager.wait()
                server.terminate()


def install(packages: Sequence[str], reason: str) -> None:
    """Install packages as root, for a reason, if there is one."""
    host = start.Host(root=os.geteuid() == 0, apt=shutil.which("apt-get") is not None, uv=None)
    if reason and host.root and host.apt:
        for command in start.apt_commands(packages, reason, host):
            subprocess.run(command, check=False)


if __name__ == "__main__":
    install(PACKAGES, NO_DISPLAY)
