"""Two processes write whole lines to one pipe, and one that is killed within a line spoils no other's."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from app.agent_protocol import CUT
from app.paths import ROOT, python_environment
from app.telemetry.sampler_process import Output, PipeLock

OTHER = """
import os, signal, sys
from app.telemetry.sampler_process import sampler_output
output = sampler_output(sys.argv[1:])
"""
LONG = 300_000
"""Bytes of a line: more than a pipe holds, so that each line is written in pieces."""


@contextmanager
def shared_pipe(code: str) -> "Iterator[tuple[BinaryIO, Output, subprocess.Popen[bytes]]]":
    """The reading end of a pipe, an output to it here, and another process that has one, too."""
    read_end, write_end = os.pipe()
    lock = PipeLock.create()
    command = [sys.executable, "-c", OTHER + code, lock.word]
    with (
        os.fdopen(read_end, "rb") as reader,
        os.fdopen(write_end, "wb") as writer,
        subprocess.Popen(command, stdout=writer, pass_fds=(lock.file,), cwd=ROOT, env=python_environment()) as other,
    ):
        yield reader, Output(writer, lock), other
    os.close(lock.file)


def test_long_lines_of_two_processes_do_not_mix() -> None:
    others = f"for _ in range(20): output.write_lines(b'b' * {LONG} + b'\\n')"
    with shared_pipe(f"output.write_lines(b'begun\\n')\n{others}") as (reader, output, _):
        assert reader.readline() == b"begun\n"

        def write() -> None:
            for _ in range(20):
                output.write_lines(b"a" * LONG + b"\n")

        writing = threading.Thread(target=write)
        writing.start()
        said = reader.read(40 * (LONG + 1))
        writing.join()
    assert set(said.splitlines()) == {b"a" * LONG, b"b" * LONG}


def test_a_line_whose_writer_was_killed_is_marked() -> None:
    killed = (
        "output._pipe_lock.__enter__(); os.write(output._pipe.fileno(), b'half'); os.kill(os.getpid(), signal.SIGKILL)"
    )
    with shared_pipe(killed) as (reader, output, other):
        assert other.wait() == -9
        output.write_lines(b"one\n")
        output.write_lines(b"two\n")
        assert [reader.readline() for _ in range(3)] == [b"half" + CUT, b"one\n", b"two\n"]
