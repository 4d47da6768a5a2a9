"""The probe: finds the training steps of an unmodified program, and times blocks of them.

Python imports this module when it starts, because its folder is on PYTHONPATH. It needs only the standard library, runs
the user's own `sitecustomize`, and imports nothing that the program does not: a framework gets its hooks once it is
imported. The process in which a step ends first claims the measurement over a socket; all others stay quiet. It sends
lines of the worker's protocol, and at the end one of its own (`workloads.script.runner`).
"""

from __future__ import annotations

import atexit
import functools
import importlib.machinery
import importlib.util
import json
import os
import sys
import threading
import time
import types

_VARIABLE = "VARIANTSCOPE_PROBE"
_FOLDER = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib would be imported for this alone
TYPE_CHECKING = False  # avoids importing typing only for this
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

METER: Any = None
_CALLS: dict[int, list[object]] = {}
"""The calls in progress, by their thread, that are steps if they update weights."""
_TRAINING: set[int] = set()
"""The ids of functions whose calls updated weights."""
_now = time.monotonic_ns


def _hook(owner: Any, name: str, act: Any, *, after: bool = False) -> None:
    """Call `act` with a function's arguments before it is called, or after."""
    call = getattr(owner, name)

    @functools.wraps(call)
    def called(*args: Any, **kwargs: Any) -> Any:
        if not after:
            act(*args)
        result = call(*args, **kwargs)
        if after:
            act(*args)
        return result

    setattr(owner, name, called)


def _of_optimizer(module: Any) -> None:
    stepped, begun = METER.optimizers.stepped, set[int]()

    def ended(optimizer: Any, *_: Any) -> None:
        if METER.on and id(optimizer) in begun:  # else a step of its base class was the end
            begun.discard(id(optimizer))
            stepped(optimizer)

    _hook(module.Optimizer, "__init__", lambda optimizer, *_: METER.optimizers.note_created(optimizer), after=True)
    module.register_optimizer_step_pre_hook(lambda optimizer, *_: begun.add(id(optimizer)))
    module.register_optimizer_step_post_hook(ended)


def _of_scaler(module: Any) -> None:
    calls: list[int] = []

    def after(_scaler: Any, optimizer: Any, *_: Any) -> None:
        if calls.pop() == METER.optimizers.calls and METER.on:  # infinite gradient: the optimizer was not called
            METER.skipped += 1
            METER.optimizers.stepped(optimizer)

    _hook(module.GradScaler, "step", lambda *_: calls.append(METER.optimizers.calls))
    _hook(module.GradScaler, "step", after, after=True)


def _of_loader(module: Any) -> None:
    loader = module._BaseDataLoaderIter  # noqa: SLF001
    advance, take = loader.__next__, loader._next_index  # noqa: SLF001

    def taken(self: Any) -> Any:
        indices = take(self)
        if METER.on and isinstance(indices, (list, tuple)) and indices and indices[0] is not None:  # not of iterables
            self.__dict__.setdefault("variantscope_lengths", []).append(len(indices))
        return indices

    def timed(self: Any) -> Any:
        if not METER.on:
            return advance(self)
        start_ns = _now()
        batch = advance(self)
        METER.wait_ns += (_now() - start_ns) * METER.is_training_thread()
        key = id(self._dataset)
        examples, batches = METER.seen.get(key, (0, 0))
        lengths = self.__dict__.get("variantscope_lengths")
        length = lengths.pop(0) if lengths else _length(batch) or getattr(self._index_sampler, "batch_size", 0) or 1
        METER.seen[key] = examples + length, batches + 1
        return batch

    loader.__next__, loader._next_index = timed, taken  # noqa: SLF001
    needs_gradients = sys.modules["torch"].is_grad_enabled
    reason = ("evaluation", METER.epoch)
    _hook(module.DataLoader, "__iter__", lambda *_: METER.interrupt(reason[needs_gradients()]))


def _length(batch: Any) -> int:
    """Return the first axis of a batch's first tensor; 0 without one among the first of its values."""
    if shape := getattr(batch, "shape", None):
        return int(shape[0])
    parts = batch.values() if isinstance(batch, dict) else batch if isinstance(batch, (list, tuple)) else ()
    return next(filter(None, map(_length, [*parts][:8])), 0)


def _of_module(module: Any) -> None:
    sizes: dict[int, int] = {}

    def watched(model: Any, *_: Any) -> None:
        if METER.on and METER.how and not model.training:
            if id(model) not in sizes:
                sizes[id(model)] = sum(parameter.numel() for parameter in model.parameters())
            if 2 * sizes[id(model)] >= max(sizes.values()) > 0:
                METER.interrupt("evaluation")

    _hook(module.Module, "train", watched, after=True)  # every `eval` calls it; some models have their own


def _of_keras(module: Any) -> None:
    first, length = [0], [1]

    def begun(callbacks: Any, batch: int, *_: Any) -> None:
        first[0] = batch
        batches = getattr(callbacks, "params", {}).get("steps") or 0
        if 2 * length[0] < batches <= batch + length[0]:  # it may be a smaller one, for which libraries compile anew
            METER.interrupt("the end of an epoch")

    def ended(_list: Any, batch: int, *_: Any) -> None:
        length[0] = max(1, batch - first[0] + 1)
        METER.boundary("a batch of Keras' fit", length[0])

    def trains(*_: Any) -> None:
        METER.batch_size = METER.next_batch_size

    lists = module.CallbackList
    _hook(lists, "on_train_begin", trains)
    _hook(lists, "on_train_batch_begin", begun)
    _hook(lists, "on_train_batch_end", ended, after=True)
    _hook(lists, "on_test_begin", lambda *_: METER.interrupt("evaluation"))
    _hook(lists, "on_epoch_begin", lambda *_: METER.interrupt(METER.epoch))


def _of_keras_data(module: Any) -> None:
    """Read the batch size of `fit`'s data, of which Keras makes the iterator before it calls `on_train_begin`."""

    def created(iterator: Any, *_: Any) -> None:
        METER.next_batch_size = getattr(iterator.data_adapter, "batch_size", None) or 0

    _hook(module.EpochIterator, "__init__", created, after=True)


def _of_keras_model(module: Any) -> None:
    _hook_call(module.Model, "train_on_batch")
    _hook(module.Model, "save", lambda *_: METER.interrupt("saving"))


def _of_keras_optimizer(module: Any) -> None:
    def applied(optimizer: Any, *_: Any) -> None:
        calls = _CALLS.get(threading.get_ident())
        if not calls and type(threading.current_thread()).__module__.startswith("tensorflow."):  # of a replica
            calls = next(filter(None, tuple(_CALLS.values())), None)
        jax = sys.modules.get("jax._src.core")
        if calls:  # once, where TensorFlow or JAX compiles what is called
            _TRAINING.add(id(calls[0]))
        elif jax is None or jax.trace_state_clean():  # else JAX compiles a function that nobody observes
            METER.calls.stepped(optimizer, "apply")

    _hook(module.BaseOptimizer, "apply", applied, after=True)


def _hook_call(owner: Any, name: str) -> None:
    """Count a call as a step if it updates weights; one within another belongs to that step."""
    call = getattr(owner, name)

    @functools.wraps(call)
    def called(self: Any, *args: Any, **kwargs: Any) -> Any:
        calls = _CALLS.setdefault(threading.get_ident(), [])
        calls.append(self)
        try:
            result = call(self, *args, **kwargs)
        finally:
            calls.pop()
        if not calls and id(self) in _TRAINING:
            METER.calls.stepped(self, name)
        return result

    setattr(owner, name, called)


def _on_jax_event(event: str, _seconds: float, **_more: Any) -> None:
    METER.compiled_by_jax += event.endswith("backend_compile_duration")


_LOADERS = {
    "torch.utils.data.dataloader": _of_loader,
    "torch.nn.modules.module": _of_module,
    "torch.serialization": lambda module: _hook(module, "save", lambda *_: METER.interrupt("saving")),
    "jax._src.monitoring": lambda module: module.register_event_duration_secs_listener(_on_jax_event),
}
_STEPS = {
    "torch.optim.optimizer": _of_optimizer,
    "torch.amp.grad_scaler": _of_scaler,
    "torch.autograd.graph": lambda module: _hook(module, "_engine_run_backward", lambda *_: METER.pass_backward()),
    "keras.src.callbacks.callback_list": _of_keras,
    "keras.src.models.model": _of_keras_model,
    "keras.src.trainers.epoch_iterator": _of_keras_data,
    "keras.src.optimizers.base_optimizer": _of_keras_optimizer,
    "tensorflow.python.eager.polymorphic_function.polymorphic_function": lambda module: _hook_call(
        module.Function, "__call__"
    ),
    "jax._src.profiler": lambda module: _hook(
        module.StepTraceAnnotation, "__enter__", lambda *_: METER.boundary("what JAX's StepTraceAnnotation marks")
    ),
}


class _Finder:
    """Adds the hooks to modules as they are imported, once each."""

    def __init__(self, hooks: Any) -> None:
        self._hooks = hooks

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name not in self._hooks:
            return None
        spec: Any = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            execute, hook = spec.loader.exec_module, self._hooks.pop(name)

            def executed(module: Any) -> None:
                execute(module)
                try:
                    hook(module)
                except Exception as error:  # noqa: BLE001 - another version: the program must go on all the same
                    print(f"variantscope: no hook in {name}: {error}", file=sys.stderr)  # noqa: T201

            spec.loader.exec_module = executed
        return spec


def _items(iterable: Iterable[Any]) -> Iterator[Any]:
    """Yield the items of a loop, and end a step after each."""
    METER.interrupt(METER.epoch)
    for value in iterable:
        yield value
        METER.boundary("marker")


def _start(settings: dict[str, Any]) -> None:
    global METER  # noqa: PLW0603 - the hooks look for it
    spec: Any = importlib.util.spec_from_file_location("variantscope_meter", f"{_FOLDER}/meter.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["variantscope_meter"] = module  # torch.compile looks it up
    spec.loader.exec_module(module)
    METER = module.Meter(settings)
    if os.access(os.path.dirname(settings["socket"]), os.W_OK):  # noqa: PTH120 - as above; not so for another user
        os.close(os.open(f"{settings['socket']}.loaded", os.O_CREAT, 0o600))  # shows the worker that a probe is active
    marker: Any = types.ModuleType("variantscope", "Marks the end of a step for VariantScope.")
    marker.step, marker.items = (lambda: METER.boundary("marker")), _items
    marker.test = lambda condition: METER.boundary("marker") or condition
    sys.modules["variantscope"] = marker
    sys.meta_path.insert(0, _Finder({**_LOADERS, **({} if settings["loop"] else _STEPS)}))
    os.register_at_fork(after_in_child=METER.forked)
    atexit.register(METER.exit)
    folder, tree = settings["user_folder"], settings["tree"]
    for number, path in enumerate(sys.path):
        frozen = tree + path[len(folder) :]
        is_below = path == folder or path.startswith(folder + os.sep)
        if is_below and "site-packages" not in path and os.path.isdir(frozen):  # noqa: PTH112
            sys.path[number] = frozen


sys.path[:] = [path for path in sys.path if os.path.abspath(path) != _FOLDER]  # noqa: PTH100
if _VARIABLE in os.environ:
    _start(json.loads(os.environ[_VARIABLE]))
_of_user = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
if _of_user is not None and _of_user.loader is not None:
    _of_user.loader.exec_module(importlib.util.module_from_spec(_of_user))
