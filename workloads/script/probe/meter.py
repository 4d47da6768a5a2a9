"""Measures blocks of a program's training steps, as its hooks report them, and sends its findings to the worker.

Uses only the standard library, and of that only what programs import anyway (see `sitecustomize.py`).
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
import socket
import sys
import threading
import time
import weakref

TYPE_CHECKING = False  # avoids importing typing only for this
if TYPE_CHECKING:
    from typing import Any

_BLOCK_NS = 250_000_000
_GROWTH = 4
_LEAST_WARMUP_NS = 500_000_000
_BEAT_NS = 1_000_000_000
"""How often the worker hears at most that steps end, where none is measured."""
_LEAST_CALLS, _MOST_CALLS = 6, 3_000
"""The calls of optimizers within which a period must appear."""
_MOST_ALONE, _ALONE_NS = 300, 20_000_000_000
"""How many times, or how long, one optimizer may be called before another existing one must be called too."""
_MOST_CHANGES = 3
_MOST_NAMED = 6
_OFTEN = 0.1
"""An optimizer with this share of the most frequent one's calls belongs to every step."""
_EACH_STEP = 0.5
"""What happens in at least this share of the steps is part of a step and no interruption."""
_UNCERTAIN = 0.01
"""At most this share of a block may have passed on the host since its last step, which a device may still compute."""
_TRACED_STEPS = 3
_MOST_PASSES = 100
"""How many backward passes may come before a script's first optimizer."""
_BY_HAND = "a backward pass, as there is no optimizer"
_EPOCH = "the start of an epoch"
_COUNTS = ("steps", "measured_steps", "measured_ns", "all_steps", "waited_ns", "examples", "skipped")
"""The meter's counts in the last message."""
_RANKS = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")

_now = time.monotonic_ns


class _Link:
    """The connection to the worker; created after the first step, because a process may never run a step."""

    def __init__(self, path: str) -> None:
        opened = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # Where the script has closed its stderr, libraries in C would write into the link.
        self._socket = socket.socket(fileno=fcntl.fcntl(opened, fcntl.F_DUPFD_CLOEXEC, 3))
        opened.close()
        self._socket.settimeout(None)  # whatever the script's default is
        self._socket.connect(path)
        if self._socket.recv(1) != b"1":
            raise OSError("another process measures")
        threading.Thread(target=self._watch, name="variantscope", daemon=True).start()

    def _watch(self) -> None:
        # Without the worker, nobody would end this process.
        self._socket.recv(1)
        os._exit(1)

    def say(self, **message: Any) -> None:
        self._socket.sendall(json.dumps(message).encode() + b"\n")


class _Clock:
    """Times at which all work started so far has ended.

    PyTorch on a GPU records an event, whose time is read later, so that the launch queue does not run empty; otherwise
    the clock waits for all devices. One synchronisation at the start converts to the monotonic clock.
    """

    def __init__(self, how: str) -> None:
        torch = sys.modules.get("torch")
        self._how = how
        self._torch = torch if torch is not None and torch.cuda.is_initialized() else None
        self._stream = self._torch and self._torch.cuda.current_stream()  # events of two GPUs cannot be compared
        self.is_behind = self._torch is not None or any(module is not None for module in _used(how)[1:])
        self._last: Any = None

    def mark(self) -> Any:
        if self._torch is None:
            _synchronize(self._how)
            return _now()
        event = self._torch.cuda.Event(enable_timing=True)
        event.record(self._stream)
        if self._last is None:
            event.synchronize()
            self._last = event, _now()
        return event

    def time_ns(self, mark: Any) -> int:
        if self._torch is None:
            return int(mark)
        event, t_ns = self._last
        if mark is not event:
            mark.synchronize()
            self._last = mark, t_ns + max(1, round(1e6 * event.elapsed_time(mark)))
        return int(self._last[1])


def _used(how: str) -> tuple[Any, Any, Any]:
    """Return PyTorch, JAX and TensorFlow, each only if the program computes with it: asking would initialise it."""
    torch, jax, tensorflow = (sys.modules.get(name) for name in ("torch", "jax", "tensorflow"))
    bridge = sys.modules.get("jax._src.xla_bridge")
    is_keras = how != "optimizer" and hasattr(tensorflow, "config") and hasattr(tensorflow, "test")
    is_jax = bridge is not None and bridge.backends_are_initialized()
    return torch, jax if is_jax else None, tensorflow if is_keras else None


def _synchronize(how: str) -> None:
    torch, jax, tensorflow = _used(how)
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.synchronize()
    if jax is not None:
        for array in jax.live_arrays():
            if not array.is_deleted():
                array.block_until_ready()
    if tensorflow is not None:
        tensorflow.test.experimental.sync_devices()


def _is_in_backward() -> bool:
    """Return whether PyTorch's engine has called this thread; a checkpoint then begins another backward pass."""
    return bool(getattr(sys.modules.get("torch._C"), "_current_graph_task_id", lambda: -1)() != -1)


def _profiler(how: str, path: str) -> tuple[Any, Any]:
    """Return what begins a trace of the framework that computes steps, and what ends it and writes it beside `path`."""
    torch, jax, tensorflow = _used(how)
    keras: Any = sys.modules.get("keras.src.backend.config")
    folder = os.path.dirname(path)  # noqa: PTH120 - pathlib would be imported for this alone
    # A program may import frameworks for their loaders or logs alone.
    is_keras = how == "call" or "Keras" in how
    computes = "jax" if jax is not None and not is_keras else "torch" if keras is None else keras.backend()
    if torch is not None and (how in ("optimizer", _BY_HAND) or computes == "torch"):
        if _is_in_backward():  # a profiler would crash
            raise RuntimeError("the optimizer steps within the backward pass")
        profile = torch.profiler.profile(record_shapes=True)
        return profile.start, lambda: (profile.stop(), profile.export_chrome_trace(path))
    if computes == "jax":
        more: dict[str, Any] = {}
        if hasattr(jax.profiler, "ProfileOptions"):  # older versions have none
            more["profiler_options"] = jax.profiler.ProfileOptions()
            more["profiler_options"].python_tracer_level = 0
        return lambda: jax.profiler.start_trace(folder, **more), jax.profiler.stop_trace
    if tensorflow is None:
        raise RuntimeError("the steps are of no framework with a profiler")
    profiler = tensorflow.profiler.experimental
    return lambda: profiler.start(folder), profiler.stop


class Steps:
    """Finds where a step ends among calls, such as optimizers': after the last call of their period (a GAN: D D G)."""

    def __init__(self, meter: Meter, how: str) -> None:
        self._meter = meter
        self.how = how
        self._calls: list[int] = []
        self.created: list[weakref.ref[object]] = []
        self._numbers: dict[int, int] = {}
        self._called: list[weakref.ref[object]] = []
        self._first_ns = 0
        self._counts: dict[int, int] = {}
        self._changes = 0
        self._rarest: int | None = None
        self._phase = 0
        self.period: tuple[int, ...] = ()
        self.names: dict[int, tuple[str, str]] = {}
        self.calls = 0

    def note_created(self, optimizer: object) -> None:
        with self._meter.lock:
            self.created.append(weakref.ref(optimizer))
            if self._meter.how == _BY_HAND:
                self._meter.restart()

    def stepped(self, optimizer: object, method: str = "step") -> None:
        with self._meter.lock:
            self.calls += 1
            key = id(optimizer)
            if key not in self._numbers:
                self._take_in(optimizer, method)
            number = self._numbers[key]
            period = self.period
            if not period:
                self._look(number)
            elif period[self._phase] != number:
                self._changes += 1
                self.period, self._calls, self._phase, self._first_ns = (), [number], 0, _now()
                self._meter.restart()
            elif self._phase + 1 < len(period):
                self._phase += 1
            else:
                self._phase = 0
                self._meter.boundary(self.how)

    def _take_in(self, optimizer: object, method: str) -> None:
        """Number an optimizer; one that is created anew, as for each fold, takes the number of a deleted one."""
        name = getattr(optimizer, "__name__", type(optimizer).__name__), method
        numbers = (number for number, called in enumerate(self._called) if called() is None)
        number = next((number for number in numbers if self.names[number] == name), len(self._called))
        self._called[number : number + 1] = [weakref.ref(optimizer)]
        self._numbers[id(optimizer)], self.names[number] = number, name

    def _look(self, number: int) -> None:
        self._counts[number] = self._counts.get(number, 0) + 1
        if self._changes > _MOST_CHANGES:  # no pattern persists: a step ends with the rarest of the frequent ones
            if self._rarest is None:
                most = max(self._counts.values())
                frequent = [key for key, count in self._counts.items() if count > _OFTEN * most]
                self._rarest = min(frequent, key=self._counts.__getitem__)
            if number == self._rarest:
                self._meter.boundary(self.how)
            return
        calls = self._calls
        calls.append(number)
        self._first_ns = self._first_ns or _now()
        if len(calls) > _MOST_CALLS:
            self._changes = _MOST_CHANGES + 1
        is_slow = _now() - self._first_ns >= _ALONE_NS
        if is_slow:
            self._meter.boundary(self.how, 0)  # the worker hears of it, before a step is recognised
        if len(calls) < _LEAST_CALLS and (not is_slow or self._waits_for_another(calls)):
            return
        is_long = len(calls) >= _MOST_ALONE and not self._changes  # else epochs may alternate
        for length in range(1, len(calls) // 3 + 1):
            if calls[-1 - length] != number:
                continue
            period = calls[-length:]
            if calls[-3 * length :] == 3 * period and (is_long or is_slow or not self._waits_for_another(period)):
                self.period = tuple(period)
                self._meter.boundary(self.how, min(calls.count(key) // period.count(key) for key in period))
                return

    def _waits_for_another(self, period: list[int]) -> bool:
        """Return whether another optimizer exists: a critic that trains alone at first is not yet a GAN's period."""
        alive = (created() for created in (*self.created, *self._called))
        return any(optimizer is not None and self._numbers.get(id(optimizer)) not in period for optimizer in alive)

    def describe(self) -> str:
        if not self.period:
            return f"the call of the rarest of several {self.how}s"
        if len(set(self.period)) == 1:
            return f"a call of {'.'.join(self.names[self.period[0]])}"
        groups = [(number, len(list(calls))) for number, calls in itertools.groupby(self.period)]
        if len(groups) > _MOST_NAMED:
            return f"{len(self.period)} calls of {len(self._called)} {self.how}s in an order that repeats"
        return ", then ".join(f"{count} of {self.names[number][0]} {number + 1}" for number, count in groups)


class Meter:
    """Measures a script: warm-up, blocks between two moments of the clock, a trace, the end."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._settings = settings
        self._link: Any = None
        self._clock: Any = None
        self.on = True
        self._pid = os.getpid()
        self.lock = threading.RLock()
        self._thread = self._passes = 0
        self.how = ""
        self.epoch = _EPOCH
        self.optimizers, self.calls = Steps(self, "optimizer"), Steps(self, "call")
        self.skipped = self.compiled_by_jax = 0
        self.seen: dict[int, tuple[int, int]] = {}
        self.wait_ns = 0
        self.batch_size = self.next_batch_size = 0
        self._state = "warm-up"
        self._countdown = self._block_steps = 1
        self._first_ns = self._compiled_ns = self._stepped_ns = self._said_ns = 0
        self._compiled = self._steps = self._all_steps = 0
        self._block: Any = None
        self._pending: Any = None
        self._measured_steps = self._measured_ns = 0
        self._start_ns = self._last_ns = 0
        self._interruptions: dict[str, tuple[int, int]] = {}
        self._pause: Any = None
        self._lost: dict[str, float] = {}
        self._examples = self._waited_ns = self._skipped = 0
        self._warm_from = self._measured_from = self._traced_from = 0
        self._end_profile: Any = None

    def boundary(self, how: str, steps: int = 1) -> None:
        """Record the end of a step, or of several. Thread: any."""
        with self.lock:
            if not self.on or (how != self.how and not self._is_first(how)):
                return
            self._steps += steps
            self._stepped_ns, self._thread = _now(), threading.get_ident()
            self._countdown -= steps
            if self._countdown <= 0:
                self._decide()

    def pass_backward(self) -> None:
        """Count a backward pass as a step in a script that updates its weights by hand."""
        if not self.optimizers.created and not self.calls.calls and not _is_in_backward():
            self._passes += 1
            if self._passes > _MOST_PASSES:
                self.boundary(_BY_HAND)

    def is_training_thread(self) -> bool:
        """Return whether the calling thread ended the last step, or is the main one."""
        return threading.get_ident() in (self._thread, threading.main_thread().ident)

    def _is_first(self, how: str) -> bool:
        """Connect at the first step; return whether these hooks determine the steps. A marker outranks the others."""
        outranks = how == "marker" or self.how == _BY_HAND
        if self._link is not None and not (outranks and self._state == "warm-up"):
            return False
        if self._link is None:
            try:
                if any(os.environ.get(name, "0") != "0" for name in _RANKS) or _of_ranks("get_rank", 0):
                    raise OSError("rank 0 measures")
                self._link = _Link(self._settings["socket"])
            except ConnectionRefusedError:
                os._exit(1)  # the worker was killed: nobody else would end this process
            except OSError:
                self.on = False
                return False
            self.say_phase("warmup")
            if os.getpid() != self._pid and (util := sys.modules.get("multiprocessing.util")):
                util.Finalize(None, self.exit, exitpriority=0)  # its forked processes end without `atexit`
        self.how, self._warm_from = how, self._steps
        return True

    def restart(self) -> None:
        """Warm up again, because what counted as steps was wrong. What was measured by then cannot be withdrawn."""
        self._warm_from = self._steps
        if self.on and self._state != "warm-up":
            self._finish("changed")

    def _decide(self) -> None:
        self._countdown = 1
        if self._state != "measure" and _now() - self._said_ns > _BEAT_NS:
            self.say_phase("warmup")  # again, which shows that steps end
        if self._state == "warm-up":
            self._warm_up()
        elif self._state == "measure":
            self._end_block()
            # If most of the time goes to evaluation, three times the limit is enough.
            seconds = max(self._measured_ns, (self._last_ns - self._start_ns) / 3) / 1e9
            if seconds >= self._settings["seconds"]:
                self._begin_trace()
            else:
                self._begin_block()
        elif self._steps - self._traced_from >= _TRACED_STEPS:
            self._end_trace()

    def _warm_up(self) -> None:
        t_ns = _now()
        self._first_ns = self._first_ns or t_ns
        if (compiled := self._compilations()) != self._compiled:
            self._compiled, self._compiled_ns = compiled, t_ns
        quiet_ns = t_ns - max(self._first_ns, self._compiled_ns)
        if self._steps - self._warm_from >= self._settings["warmup"] and quiet_ns >= _LEAST_WARMUP_NS:
            self._state, self._clock = "measure", _Clock(self.how)
            self.say_phase("measure")
            self._skipped, self._measured_from = self.skipped, self._steps
            self._begin_block()
            self._start_ns = self._last_ns = self._clock.time_ns(self._block[0])

    def _begin_block(self) -> None:
        self._pause = None
        self._block = self._clock.mark(), self._steps, self.wait_ns, dict(self.seen), self._compiled
        self._countdown = self._block_steps

    def _end_block(self, reason: str = "") -> None:
        """End the block; its time is read when the next one ends. With a reason, an interruption follows."""
        if self._block is None:
            if self._pause:
                mark = self._clock.mark()
                self._read()
                before, from_ns = self._pause
                self._last_ns = self._clock.time_ns(mark)
                # This time also includes a step, at its end.
                step_ns = 0 if reason else self._measured_ns / max(1, self._measured_steps)
                self._lost[before] = self._lost.get(before, 0) + max(0, self._last_ns - from_ns - step_ns)
            return
        start, first, wait_ns, seen, compiled = self._block
        self._block, steps = None, self._steps - first
        self._compiled = self._compilations()
        # What a script does between a step's end and an interruption belongs to an unmeasured step.
        begun_ns = _now() - self._stepped_ns if reason else 0
        end = self._clock.mark()
        self._read()
        if steps and self._compiled != compiled:
            self._pending = start, end, begun_ns, 0, 0, 0
        elif steps:
            before = ((seen.get(key, (0, 0)), now) for key, now in self.seen.items())
            examples, batches = max(((now[0] - old[0], now[1] - old[1]) for old, now in before), default=(0, 0))
            if -batches % steps == 1:  # fetched ahead, before the block
                examples += round(examples / batches)
            elif not batches and self.seen:  # the batch of its only step was also fetched before
                total, count = max(self.seen.values())
                examples = round(steps * total / count)
            self._pending = start, end, begun_ns, steps, examples, self.wait_ns - wait_ns
        if reason or isinstance(end, int):
            self._read()

    def _read(self) -> None:
        """Report the block that ended last."""
        if self._pending is None:
            return
        (start, end, begun_ns, steps, examples, waited_ns), self._pending = self._pending, None
        start_ns = self._clock.time_ns(start)
        end_ns = max(self._clock.time_ns(end) - begun_ns, start_ns + 1)
        self._last_ns = end_ns
        if begun_ns > _UNCERTAIN * (end_ns - start_ns) and self._clock.is_behind:
            # The device worked on the steps for an unknown part of this; shorter blocks end before an epoch does.
            worked_ns = steps * self._measured_ns // max(1, self._measured_steps)
            self._last_ns = min(max(end_ns, start_ns + worked_ns), end_ns + begun_ns)
            self._block_steps = max(1, steps // 2)
            return
        if not steps:
            self._lost["compilation"] = self._lost.get("compilation", 0) + end_ns - start_ns
            return
        self._block_steps = max(1, min(round(_BLOCK_NS * steps / (end_ns - start_ns)), self._block_steps * _GROWTH))
        per_step = self._settings["examples"] or self.batch_size
        examples = per_step * steps if per_step else examples * _of_ranks("get_world_size", 1)
        self._examples += examples
        self._waited_ns += waited_ns
        counts = {"first_step": self._measured_steps, "steps": steps, "examples": examples or steps}
        self._link.say(type="block", phase="measure", start_ns=start_ns, end_ns=end_ns, **counts)
        self._measured_steps += steps
        self._measured_ns += end_ns - start_ns
        fraction = min(1.0, (end_ns - self._start_ns) / (self._settings["seconds"] * 1e9))
        self._link.say(type="progress", phase="measure", fraction=fraction, t_ns=end_ns)

    def interrupt(self, reason: str) -> None:
        """Record an interruption, which is not part of a step, unless it occurs in most steps or in another thread."""
        with self.lock:
            if not self.on or not self.is_training_thread():
                return
            last, count = self._interruptions.get(reason, (-1, 0))
            if last != self._steps:
                count += 1
                self._interruptions[reason] = self._steps, count
            # An evaluation passes over its own loaders.
            is_within = self._pause and self._pause[0] in (reason, "evaluation" if reason == _EPOCH else "")
            if self._state == "measure" and not is_within and count <= _EACH_STEP * self._steps:
                self._end_block(reason)
                self._pause = reason, self._last_ns
                self._countdown = 1

    def say_phase(self, phase: str) -> None:
        self._said_ns = _now()
        self._link.say(type="phase", phase=phase, t_ns=max(_now(), self._last_ns + 1))

    def _begin_trace(self) -> None:
        self._end_measuring()
        self.say_phase("evidence")
        self._state, self._traced_from = "trace", self._steps
        if not self._settings["trace"]:
            self._finish("done")
        try:
            begin, self._end_profile = _profiler(self.how, self._settings["trace"])
            begin()
        except Exception as error:  # noqa: BLE001 - the program's own profiler may run
            self._finish("done", trace_error=str(error).partition("\n")[0])

    def _end_measuring(self) -> None:
        self._read()
        self._all_steps, self._skipped = self._steps - self._measured_from, self.skipped - self._skipped
        if self.seen and self._measured_steps:
            ready_ns = max(1, self._measured_ns - self._waited_ns)
            self._link.say(type="data_ready", steps=self._measured_steps, time_ns=ready_ns)

    def _end_trace(self) -> None:
        _synchronize(self.how)
        try:
            self._end_profile()
        except Exception as error:  # noqa: BLE001 - as above
            self._finish("done", trace_error=str(error).partition("\n")[0])
        self._finish("done", traced_steps=self._steps - self._traced_from)

    def _finish(self, kind: str, **facts: Any) -> None:
        """Report the result and wait for the worker to end this process: the program stops here."""
        self.on = False
        self._say_end(kind, **facts)
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):  # the script's own, or none
                stream.flush()
        threading.Event().wait()

    def _say_end(self, kind: str, **facts: Any) -> None:
        loop = self._settings["loop"]
        marker = f"an iteration of the loop at {loop}" if loop else "a call of variantscope.step()"
        steps = {"optimizer": self.optimizers.describe(), "call": self.calls.describe(), "marker": marker}
        self._link.say(
            type="ending",
            kind=kind,
            how=steps.get(self.how, self.how),
            all_ns=self._last_ns - self._start_ns,
            lost_ns=self._lost,
            **{name: getattr(self, f"_{name}") for name in _COUNTS},
            **facts,
            **_describe_process(self._settings, self.how),
        )

    def _compilations(self) -> int:
        """Return how many graphs PyTorch and JAX have compiled so far."""
        counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", {})
        return int(counters.get("frames", {}).get("total", 0)) + self.compiled_by_jax

    def exit(self) -> None:
        """Report that the program ends early."""
        for steps in (self.optimizers, self.calls):
            if steps.calls and not self._steps:  # too few to find their period, or another optimizer was never called
                self.boundary(steps.how, steps.calls)
        with self.lock:
            if self.on and self._link is not None:
                self.on = False
                if self._state == "measure":
                    self._end_block("the end")
                    self._end_measuring()
                self._say_end("ended")

    def forked(self) -> None:
        self.lock = threading.RLock()  # a thread that is not in this process may have held the other
        self.on = self.on and self._link is None  # the process that claimed the measurement continues


def _of_ranks(name: str, alone: int) -> int:
    """Return the result of a function of PyTorch's process group; `alone` without a group."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(getattr(distributed, name)())
    return alone


def _describe_process(settings: dict[str, Any], how: str) -> dict[str, Any]:
    """Return versions and devices of this process, and the user's modules from outside the frozen tree."""
    (torch, jax, tensorflow), keras = _used(how), sys.modules.get("keras")
    environment = {"python": sys.version.partition(" ")[0]}
    for name, module in (("pytorch", torch), ("tensorflow", tensorflow), ("keras", keras), ("jax", jax)):
        if version := getattr(module, "__version__", None):
            environment[name] = str(version).partition("+")[0]
    devices = set()
    if torch is not None and torch.cuda.is_initialized():
        devices |= {f"GPU:{torch.cuda.current_device()}"}
        environment["pytorch_cuda"] = str(torch.version.cuda)
        cudnn = torch.backends.cudnn.version() or 0
        environment["pytorch_cudnn"] = f"{cudnn // 10_000}.{cudnn // 100 % 100}.{cudnn % 100}"
    if tensorflow is not None:
        devices |= {device.name for device in tensorflow.config.list_logical_devices("GPU")}
    if jax is not None:
        devices |= {str(device) for device in jax.devices() if device.platform != "cpu"}
    folder = settings["user_folder"] + os.sep
    files = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    outside = sorted(file for file in files if isinstance(file, str) and file.startswith(folder))
    site, own = f"{os.sep}site-packages{os.sep}", os.path.dirname(__file__)  # noqa: PTH120 - as above
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", {})
    return {
        "environment": environment,
        "gpus": len(devices),
        "ranks": _of_ranks("get_world_size", 1),
        "outside": [file for file in outside if not any(part in file for part in (site, own))][:20],
        "graphs": int(counters.get("stats", {}).get("unique_graphs", 0)),
        "graph_breaks": sum(counters.get("graph_break", {}).values()),
    }
