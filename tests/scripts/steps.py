"""A script without a framework that marks its own steps, and ends in whatever way it is told."""

import argparse
import atexit
import contextlib
import os
import signal
import subprocess
import sys
import time
from multiprocessing.shared_memory import SharedMemory

from helper import pause

import variantscope

parser = argparse.ArgumentParser()
parser.add_argument("--ms", type=float, default=2.0)
parser.add_argument("--steps", type=int, default=10**9)
parser.add_argument("--end", default="")
parser.add_argument("--slow", action="store_true")
parser.add_argument("--text", default="")
arguments = parser.parse_args()


def save() -> None:
    with open("checkpoint.txt", "a") as file:
        file.write("saved again\n")


def train() -> None:
    for step in range(arguments.steps):
        pause(arguments.ms + (5.0 if arguments.slow else 0.0))
        if arguments.end == "hang" and step == 3:
            time.sleep(10_000)
        if arguments.end == "fork" and step == 3:
            for _ in range(20):
                subprocess.Popen([sys.executable, "-c", "import time; time.sleep(10_000)"], start_new_session=True)
        if arguments.end == "daemon" and step == 3 and not os.fork():
            os.setsid()
            os.closerange(0, 3)
            if not os.fork():
                words = [sys.executable, "-c", "import time; time.sleep(10_000)", os.getcwd()]
                os.execve(words[0], words, {})
            os._exit(0)
        if arguments.end == "closed" and step == 0:
            os.close(2)
        variantscope.step()
        if arguments.end == "closed":
            with contextlib.suppress(OSError):
                os.write(2, b"as a library in C writes")


print("arguments", arguments, os.environ.get("OF_THE_TEST", "unset"), flush=True)
print("interrupt", signal.getsignal(signal.SIGINT) is signal.default_int_handler, flush=True)
if arguments.end == "shared":
    memory = SharedMemory(arguments.text, create=True, size=1)
if arguments.end == "before":
    sys.exit(3)
if arguments.end == "sigterm":
    signal.signal(signal.SIGTERM, lambda *_: save())
if arguments.end == "atexit":
    atexit.register(save)
try:
    train()
except BaseException:
    save()
finally:
    if arguments.end == "finally":
        save()
if arguments.end == "_exit":
    os._exit(0)
if arguments.end.startswith("SIG"):
    os.kill(os.getpid(), signal.Signals[arguments.end])
if arguments.end == "status":
    sys.exit(3)
