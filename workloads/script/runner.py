"""Runs a user's command in a copy of its frozen tree, forwards its probe's messages, and ends all its processes."""

import ast
import contextlib
import ctypes
import fcntl
import itertools
import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import psutil

from workloads.errors import RefusedError
from workloads.framework import FRAMEWORK, recorded_variables
from workloads.machine import bytecode_folder
from workloads.protocol import (
    MOST_MESSAGE_BYTES,
    Block,
    Command,
    EnvironmentInfo,
    Finished,
    PhaseStarted,
    ProtocolError,
    Source,
    Start,
    UserModule,
    WorkerOutcome,
    decode_message,
    plain,
    sentence,
)
from workloads.schema import UsageError
from workloads.script.definitions import (
    command_line,
    examples_per_step,
    fill_command,
    names_python,
    rank_count,
    variables,
)
from workloads.script.evidence import Ending, script_evidence
from workloads.training import Report

PROBE_VARIABLE = "VARIANTSCOPE_PROBE"
"""The environment variable by which a command's processes find the worker."""
_PROBE = Path(__file__).parent / "probe"
_PROGRAM = str(Path(__file__).parents[2])
_LOOK_S = 0.05
_ALIVE_S = 60.0
_KILL_S, _TIDY_S = 5.0, 1.0
_TIDIES = ("multiprocessing.resource_tracker", "torch_shm_manager")
"""Processes that free the shared memory of those that were killed, and then end."""
_PR_SET_CHILD_SUBREAPER = 36
_LEAST_BLOCKS = 3
"""This many measured blocks are a result even if the command ended early."""
_LOOP = "the loop whose iterations are steps (--loop train.py:42; in the window, Loop of steps)"
_NO_STEP = {
    True: "No step was seen in a process with the command's environment: no update by an optimizer of PyTorch or "
    f"Keras, no step that JAX's StepTraceAnnotation marks. Name {_LOOP}, or call variantscope.step() at the end of "
    "each.",
    False: "No step was seen, as no Python of the command imports what watches it: leave out -I, -S, -E, and env -i; "
    "where it sets PYTHONPATH, keep what is there, as PYTHONPATH=src:$PYTHONPATH.",
}
"""By whether the probe was imported: why no step was observed."""
_CHANGED = (
    "The pattern of the optimizers' calls changed after {steps} steps, while it was measured: let more steps pass "
    f"before, with warmup_steps={{more}}, or name {_LOOP}."
)
_TOO_FEW = "The command ended after {steps} steps, {ran_s:.1f} s of {seconds:g} s measured; let it train longer."


class ScriptRun:
    """One run of a command, from its start to its end."""

    def __init__(self, start: Start, report: Report, stopped: Callable[[], bool]) -> None:
        assert start.source is not None, "an order of a command has its tree"
        assert start.source.command is not None, "as above"
        self._start, self._source, self._command = start, start.source, start.source.command
        self._variant = start.spec.variant
        self._report = report
        self._stopped = stopped
        self._blocks = self._others = 0
        self._phases: set[str] = set()
        self._ending: Ending | None = None
        self._broken = ""
        self._begin_ns = time.monotonic_ns()
        self._loaded = Path()

    def run(self) -> Finished:
        """Execute the run and return its end; raises `RefusedError` if it cannot begin."""
        with _copy(self._source) as tree, TemporaryDirectory(prefix="variantscope-") as scratch:
            folder, trace, address = tree / self._command.folder, Path(scratch, "trace.json"), f"{scratch}/socket"
            self._loaded = Path(f"{address}.loaded")
            try:
                _link(self._command, tree)
                _mark_loop(self._command, tree)
                examples = examples_per_step(self._command, self._variant)
            except (UsageError, OSError) as error:
                raise RefusedError(str(error)) from error
            settings = {
                "socket": address,
                "seconds": self._variant["seconds"],
                "warmup": self._variant["warmup_steps"],
                "trace": str(trace) if self._variant["evidence"] == "trace" else "",
                "loop": self._command.loop,
                "examples": examples,
                "user_folder": str(_root(self._source)),
                "tree": str(tree),
            }
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
                listener.bind(address)
                listener.listen()
                process = self._begin(folder, json.dumps(settings))
                try:
                    reason = self._follow(process, listener)
                    exit_code = process.poll() or 0
                finally:
                    _end_processes(process)
            return self._finish(reason, exit_code, trace)

    def _begin(self, folder: Path, settings: str) -> "subprocess.Popen[bytes]":
        words = fill_command(self._command, self._variant)
        user_folder = Path(self._source.path)
        named = self._variant.get("interpreter") or self._variant.get("packages") or os.sep not in words[0]
        if self._start.python and named and names_python(words[0]):
            words[:1] = self._start.python
        elif os.sep in words[0] and not (folder / words[0]).exists():  # git ignores it, as .venv/bin/python
            words[0] = str(user_folder / words[0])
        environment = self._environment()
        others = {name: value for name, value in environment.items() if name not in variables(self._variant)}
        facts = {"script_command": command_line(self._command, self._variant), **recorded_variables(others)}
        self._report(PhaseStarted(phase="import", t_ns=time.monotonic_ns()))
        self._report(EnvironmentInfo(environment={name: plain(text) for name, text in facts.items()}))
        if sys.platform == "linux":  # the parent of its orphans, whatever their session and environment (prctl(2))
            ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        paths = (str(_PROBE), *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep)))
        environment |= {"PYTHONPATH": os.pathsep.join(paths), PROBE_VARIABLE: settings}
        try:
            # A separate group can be killed as a whole. Its output is the run's log.
            return subprocess.Popen(
                words, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=2, process_group=0
            )
        except OSError as error:
            name, why, is_missing = words[0], error.strerror, isinstance(error, FileNotFoundError)
            is_file = (folder / name).is_file()
            if is_missing and os.sep not in name:
                remedy = f"; write {'python ' if name.endswith('.py') else './'}{name}" if is_file else ""
                why = f"there is no such program in PATH{remedy}"
            elif is_missing and is_file:
                name = f"The program in the first line of {name}"
            raise RefusedError(f"{name} cannot be run in {user_folder} ({why}).") from error

    def _environment(self) -> dict[str, str]:
        """Return the user's environment, as it was before the program pointed its own Python to its libraries."""
        # None of the variables that a backend sets: the script is to run as it does by hand.
        replace(FRAMEWORK, default_variables={}).prepare_environment(self._start.gpu_uuids)
        paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path not in ("", _PROGRAM)]
        led = {"PYTHONSAFEPATH": "", "PYTHONPATH": os.pathsep.join(paths)}
        if os.environ.get("PYTHONPYCACHEPREFIX") == str(bytecode_folder()):
            led |= {"PYTHONPYCACHEPREFIX": "", "PYTHONDONTWRITEBYTECODE": "1"}
        led |= variables(self._variant)
        return {name: value for name, value in {**os.environ, **led}.items() if value or name not in led}

    def _follow(self, process: "subprocess.Popen[bytes]", listener: socket.socket) -> str:
        """Forward messages until the command or its measurement ends; return a reason if neither does."""
        limit_s = float(self._variant["first_step_limit"])
        heard_s = alive_s = time.monotonic()
        claimed, received = False, b""
        with selectors.DefaultSelector() as selector, contextlib.ExitStack() as connections:
            selector.register(listener, selectors.EVENT_READ)
            while self._ending is None or self._ending.kind == "ended":
                is_over = process.poll() is not None
                events = selector.select(0.0 if is_over else _LOOK_S)
                for key, _ in events:
                    if key.fileobj is listener:
                        connection = connections.enter_context(listener.accept()[0])
                        with contextlib.suppress(OSError):
                            connection.sendall(b"0" if claimed else b"1")
                        self._others += claimed
                        if not claimed:
                            selector.register(connection, selectors.EVENT_READ)
                        claimed = True
                        continue
                    data = b""
                    with contextlib.suppress(OSError):  # its process was killed
                        data = os.read(key.fd, 65_536)
                    if not data:  # its process has ended; if none of it was measured, the next that trains may be
                        selector.unregister(key.fileobj)
                        claimed, received = self._blocks > 0, b""
                    *lines, received = (received + data).split(b"\n")
                    for line in lines:
                        self._take(line)
                    heard_s = time.monotonic()
                if self._broken or (is_over and not events):
                    return self._broken
                now_s = time.monotonic()
                if self._stopped():
                    return "stopped"
                if now_s - heard_s > limit_s:
                    late = f"Within {limit_s:g} s no step ended. {_NO_STEP[self._loaded.exists()]}"
                    if self._phases:
                        late = f"The script completed no further step for {limit_s:g} s, and was ended; see its log."
                    longer = f"If a step takes longer, set first_step_limit={2 * limit_s:g}."
                    return "" if self._ending and self._blocks else f"{late} {longer}"
                if now_s - alive_s > _ALIVE_S:
                    alive_s = now_s
                    self._report(EnvironmentInfo(environment={}))
        return ""

    def _take(self, line: bytes) -> None:
        """Forward a message of the probe; its last one is for the worker."""
        try:
            if line.startswith(b'{"type": "ending"'):
                self._ending = msgspec.json.decode(line, type=Ending)
                return
            if len(line) > MOST_MESSAGE_BYTES:
                raise ProtocolError("it is too long")
            message = decode_message(line)
        except (ProtocolError, msgspec.MsgspecError) as error:
            self._broken = f"The probe in the script sent something that is not a message: {error}."
            return
        self._blocks += isinstance(message, Block)
        if isinstance(message, PhaseStarted):
            if message.phase in self._phases:  # again, or of the process before, which trained too little
                return
            self._phases.add(message.phase)
        self._report(message)

    def _finish(self, reason: str, exit_code: int, trace: Path) -> Finished:
        """Report what ran; return how the run ends."""
        ending, seconds = self._ending, float(self._variant["seconds"])
        if ending is not None and ending.measured_steps:
            self._report(script_evidence(self._variant, ending, trace, self._begin_ns, others=self._others))
        if ending is not None:
            self._report(EnvironmentInfo(environment={name: plain(text) for name, text in ending.environment.items()}))
        if reason == "stopped":
            return _finished("stopped", "Stopped before its end, as asked.")
        if reason:
            return _finished("failed", reason)
        if ending is not None and ending.kind == "changed":
            return _finished("failed", _CHANGED.format(steps=ending.steps, more=10 * (ending.steps // 10 + 2)))
        if ending is not None and (ending.kind == "done" or (not exit_code and self._blocks >= _LEAST_BLOCKS)):
            self._report(PhaseStarted(phase="finish", t_ns=time.monotonic_ns()))
            return _finished("completed", None)
        if exit_code:
            number, why = -exit_code, ", often because memory ran out" if exit_code == -signal.SIGKILL else ""
            how = f"signal {number} ({signal.strsignal(number)}{why})" if number > 0 else f"exit status {exit_code}"
            seen = "" if ending is not None or self._blocks else " before its steps could be measured"
            gpus, ranks = len(self._start.gpu_uuids), rank_count(fill_command(self._command, self._variant))
            few = f" It starts {ranks} ranks, but the run has {gpus} GPUs: give it gpus={ranks}."
            also = few if 0 < gpus < ranks else ""
            return _finished("failed", f"The command ended with {how}{seen}; see its log.{also}")
        if ending is None:
            by_itself = "The command has ended by itself; see its log."
            return _finished("failed", f"{_NO_STEP[self._loaded.exists()]} {by_itself}")
        return _finished("failed", _TOO_FEW.format(steps=ending.steps, ran_s=ending.measured_ns / 1e9, seconds=seconds))


def _root(source: Source) -> Path:
    """Return the root of the user's tree; a command may run in a folder below it."""
    assert source.command is not None, "as above"
    return [Path(source.path), *Path(source.path).parents][len(Path(source.command.folder).parts)]


def _finished(outcome: WorkerOutcome, reason: str | None) -> Finished:
    return Finished(outcome=outcome, t_ns=time.monotonic_ns(), reason=reason and sentence(reason))


@contextlib.contextmanager
def _copy(source: Source) -> Iterator[Path]:
    """Yield a fresh copy of the frozen tree, in a folder of a folder that no other run uses, until the next run.

    Raises:
        RefusedError: The frozen tree was deleted or changed.
    """
    for module in source.modules:
        if UserModule.read(module.name, module.path).sha256 != module.sha256:
            raise RefusedError(f"{module.path} of the frozen tree is gone, or changed; start the command again.")
    if not source.modules:
        with TemporaryDirectory(prefix="variantscope-tree-") as empty:
            (tree := Path(empty, "tree")).mkdir()
            yield tree
        return
    first = source.modules[0]
    frozen = Path(first.path.removesuffix(first.name))
    for number in itertools.count(1):
        copy = frozen.with_name(f"{frozen.name}.{number}")
        with copy.with_name(f"{copy.name}.lock").open("w", encoding="utf-8") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            shutil.rmtree(copy, ignore_errors=True)
            if copy.exists():  # a script wrote what the user cannot delete, such as a folder that is read-only
                continue
            yield shutil.copytree(frozen, copy / _root(source).name, symlinks=True)
            return


def _link(command: Command, tree: Path) -> None:
    for name, target in command.links.items():
        path = Path(os.path.normpath(tree / command.folder / name))
        if not Path(target).exists():
            raise UsageError(f"{target}, which is to be linked, does not exist.")
        if not path.exists():
            if not path.is_relative_to(tree.parent):
                raise UsageError(f"{name} is too far up to be linked: give the script the path {target}.")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.symlink_to(target)
        elif path.is_dir() and not path.is_symlink():  # git tracks some of its files
            others = {f"{name}/{entry.name}": str(entry) for entry in Path(target).iterdir() if entry.exists()}
            _link(msgspec.structs.replace(command, links=others), tree)


def _mark_loop(command: Command, tree: Path) -> None:
    """Insert a marker into the copy's loop without adding a line; raises `UsageError`.

    A function that marks each iteration wraps the items of a `for`, or the condition of a `while`.
    """
    if not command.loop:
        return
    file, _, number = command.loop.rpartition(":")
    path = (tree / command.folder / file).resolve()
    if path.exists() and not path.is_relative_to(tree.resolve()):
        raise UsageError(f"{file} leads to {path}, which is no copy: call variantscope.step() in its loop.")
    if not number.isdecimal() or not path.is_file():
        raise UsageError(f"A loop is named by its file and line, such as train.py:42, not {command.loop!r}.")
    text = path.read_bytes()
    try:
        module = ast.parse(text)
    except (SyntaxError, ValueError) as error:
        raise UsageError(f"{file} cannot be read as Python ({error}).") from error
    loops = {node.lineno: node for node in ast.walk(module) if isinstance(node, ast.For | ast.While)}
    loop = loops.get(int(number))
    if loop is None:
        others = f"those at line {', '.join(map(str, sorted(loops)))}" if loops else "none"
        raise UsageError(f"{command.loop} is no for or while loop; {file} has {others}.")
    function, marked = ("items", loop.iter) if isinstance(loop, ast.For) else ("test", loop.test)
    lines = text.splitlines(keepends=True)
    begin, end, column = marked.lineno - 1, (marked.end_lineno or 1) - 1, marked.end_col_offset
    lines[end] = lines[end][:column] + b"))" + lines[end][column:]
    call = f'__import__("variantscope").{function}(('.encode()
    lines[begin] = lines[begin][: marked.col_offset] + call + lines[begin][marked.col_offset :]
    path.write_bytes(b"".join(lines))


def _end_processes(process: "subprocess.Popen[bytes]") -> None:
    """Kill every process below this one, to which orphans come too."""
    began_s = time.monotonic()
    while (left := psutil.Process().children(recursive=True)) and (took_s := time.monotonic() - began_s) < _KILL_S:
        for number, child in itertools.product((signal.SIGSTOP, signal.SIGKILL), left):  # none reacts to another's end
            with contextlib.suppress(psutil.Error):
                if took_s > _TIDY_S or not any(name in " ".join(child.cmdline()) for name in _TIDIES):
                    child.send_signal(number)
        psutil.wait_procs(left, _LOOK_S)
    process.wait()
