"""Commands as workloads: placeholders, and the probe that finds their steps, with a worker and a GPU of this test."""

import contextlib
import importlib.util
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from tests.present import present
from workloads.protocol import Command, Variant
from workloads.schema import UsageError
from workloads.script import runner
from workloads.script.definitions import (
    command_line,
    command_names,
    describe_command,
    examples_per_step,
    fill_command,
    rank_count,
    script_name,
    script_options,
)
from workloads.script.evidence import Ending, script_evidence

PROBE = Path(runner.__file__).parent / "probe"


@pytest.mark.parametrize(
    ("words", "variant", "filled"),
    [
        (["a", "{x}"], {"{x}": 3}, ["a", "3"]),
        (["a", "--x={x}-{y}"], {"{x}": "1 2", "{y}": 0.5}, ["a", "--x=1 2-0.5"]),
        (["a", "{x?--amp --type bf16}"], {"{x}": True}, ["a", "--amp", "--type", "bf16"]),
        (["a", "{x?--amp}", "b"], {"{x}": False}, ["a", "b"]),
        (["a", "n{x?-fast}"], {"{x}": False}, ["a", "n"]),
        (["a", '{{"x": {x}}'], {"{x}": 1}, ["a", '{"x": 1}']),
        (["a", "{gpus}"], {"gpus": 2}, ["a", "2"]),
        (["a", ""], {}, ["a", ""]),
    ],
)
def test_a_variant_fills_the_words(words: list[str], variant: Variant, filled: list[str]) -> None:
    assert fill_command(Command(words=tuple(words)), variant) == filled


@pytest.mark.parametrize("word", ["{", "{x", "{x-y}", "{1}", "{x?{y}}", "{}"])
def test_a_brace_that_begins_nothing_is_refused(word: str) -> None:
    with pytest.raises(UsageError, match="has a brace that begins no"):
        command_names(Command(words=("a", word)))


def test_a_placeholder_is_a_switch_where_it_is_nothing_else() -> None:
    names = command_names(Command(words=("a", "{x?1}", "{y?2}", "{y}"), examples="{z}"))
    assert names == {"x": True, "y": False, "z": False}


@pytest.mark.parametrize(
    ("text", "examples"), [("", 0), ("32", 32), ("{x}*4", 32), ("({x} + 1) * 2", 18), ("{x}/4", 2), ("1", 1)]
)
def test_the_examples_of_a_step(text: str, examples: int) -> None:
    assert examples_per_step(Command(words=("a",), examples=text), {"{x}": 8}) == examples


@pytest.mark.parametrize("text", ["0", "{x}/3", "9**9", "9* *9", "x", "1/0", "(", "-1", "__import__('os')"])
def test_no_other_expression_is_computed(text: str) -> None:
    with pytest.raises(UsageError, match="The examples of a step are a formula"):
        examples_per_step(Command(words=("a",), examples=text), {"{x}": 8})


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("python train.py", "script:train.py"),
        ("torchrun --nproc-per-node 2 src/train.py", "script:train.py"),
        ("python -m package.train", "script:train"),
        ("python -m torch.distributed.run x.py", "script:x.py"),
        ("sh run.sh", "script:run.sh"),
        ("/usr/bin/train", "script:train"),
    ],
)
def test_the_name_of_a_command(words: str, name: str) -> None:
    assert script_name(tuple(words.split())) == name


def test_a_stored_variant_is_run_again_by_its_options() -> None:
    command = Command(words=("python", "t.py", "{x}", "{amp?--amp}"), loop="t.py:3", links={"data": "/data"})
    variant: Variant = {"gpus": 0, "{x}": "a b", "{amp}": False, "$N": "", "revision": "main@12ab", "source": "0f"}
    options, words = script_options(f"{describe_command(command)}\ngit: 12ab", variant)
    of_values = ["-s", "gpus=0", "-s", "x=a b", "-s", "amp=off", "-e", "N=", "--rev", "12ab"]
    assert options == ["--loop", "t.py:3", "--link", "data", *of_values]
    assert words == list(command.words)
    assert command_line(command, {**variant, "$N": "1"}) == "N=1 python t.py 'a b'"


class Worker:
    """Listens as the worker does, accepts one process, and keeps what that says."""

    def __init__(self, folder: Path) -> None:
        self.accepted = False
        self.address = str(folder / "socket")
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(self.address)
        self._listener.listen()
        self.lines: list[dict[str, Any]] = []
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        connection = self._listener.accept()[0]
        self.accepted = True
        # The test's end may be the connection's.
        with contextlib.suppress(OSError), connection, connection.makefile("rb") as file:
            connection.sendall(b"1")
            for line in file:
                self.lines.append(json.loads(line))
                if self.lines[-1]["type"] == "ending":
                    return

    def close(self) -> None:
        if not self.accepted:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
                client.connect(self.address)
        self._thread.join()
        self._listener.close()


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Worker]:
    opened = Worker(tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def meter(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The meter of a process that has no framework; its link's thread must not end the test's process."""
    spec = present(importlib.util.spec_from_file_location("variantscope_meter", PROBE / "meter.py"))
    module = importlib.util.module_from_spec(spec)
    present(spec.loader).exec_module(module)
    monkeypatch.setattr(module._Link, "_watch", lambda _link: None)
    settings = {"socket": worker.address, "seconds": 1e9, "warmup": 2, "trace": "", "loop": "", "examples": 0}
    meter = module.Meter({**settings, "user_folder": "/nowhere", "tree": "/nowhere"})
    yield meter
    if meter._link is not None:
        meter._link._socket.close()


class Optimizer:
    """One that somebody calls."""


def steps_of(meter: Any, calls: str) -> int:
    """How many steps a pattern of calls has; each letter is an optimizer."""
    optimizers = {name: Optimizer() for name in sorted(set(calls))}
    for optimizer in optimizers.values():
        meter.optimizers.note_created(optimizer)
    for name in calls:
        meter.optimizers.stepped(optimizers[name])
    steps: int = meter._steps
    return steps


@pytest.mark.parametrize(
    ("calls", "steps"),
    [
        ("A" * 30, 30),
        ("DDG" * 10, 10),
        ("DDDDDG" * 10, 10),
        ("DG" * 10, 10),
        ("D" * 100 + "DDG" * 10, 10),
        ("ABCDEFGHIJ" * 10, 10),
    ],
)
def test_a_step_is_a_period_of_the_optimizers_calls(meter: Any, calls: str, steps: int) -> None:
    assert steps_of(meter, calls) == steps


def test_a_critic_alone_for_long_is_a_step_by_itself(meter: Any) -> None:
    critic, generator = Optimizer(), Optimizer()
    meter.optimizers.note_created(critic)
    meter.optimizers.note_created(generator)
    for _ in range(299):
        meter.optimizers.stepped(critic)
    assert meter._steps == 0
    meter.optimizers.stepped(critic)
    assert meter._steps == 300
    of_next_stage = Optimizer()
    del critic, generator
    for _ in range(6):
        meter.optimizers.stepped(of_next_stage)
    assert meter._steps == 306


def test_three_slow_calls_are_steps_and_the_second_is_heard(meter: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(meter.boundary.__globals__, "_ALONE_NS", 0)
    assert steps_of(meter, "A") == 0
    assert meter.how == "optimizer"
    assert steps_of(meter, "AA") == 3


def test_calls_too_few_for_a_pattern_are_steps_at_the_end(meter: Any, worker: Worker) -> None:
    assert steps_of(meter, "AAAAA") == 0
    meter.exit()
    worker.close()
    assert (worker.lines[-1]["kind"], worker.lines[-1]["steps"]) == ("ended", 5)


@pytest.mark.parametrize("rounds", [[f"{'D' * number}G" for number in range(1, 9)], ["DG", "GD"]])
def test_calls_without_a_pattern_end_a_step_with_the_rarest_frequent_one(meter: Any, rounds: list[str]) -> None:
    assert 1_900 < steps_of(meter, "".join(Random(1).choices(rounds, k=2_000))) <= 2_000
    assert meter.optimizers.describe() == "the call of the rarest of several optimizers"


def test_a_long_period_is_told_in_short(meter: Any) -> None:
    steps_of(meter, ("DG" + "DDG" + "DDDG" + "DDDDG") * 4)
    assert meter.optimizers.describe() == "14 calls of 2 optimizers in an order that repeats"


def test_backward_passes_are_steps_as_long_as_there_is_no_optimizer(meter: Any) -> None:
    for _ in range(110):
        meter.pass_backward()
    assert (meter.how, meter._steps) == ("a backward pass, as there is no optimizer", 10)
    meter._state = "measure"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(meter, "_finish", lambda kind: meter.__dict__.update(_state="warm-up", kind=kind))
        assert steps_of(meter, "A" * 30) == 40
    assert meter.kind == "changed"
    meter.pass_backward()
    assert (meter.how, meter._steps) == ("optimizer", 40)


@pytest.mark.parametrize(
    ("traced", "said"), [(3, "The profiler could not be used: "), (0, "The script ended before a ")]
)
def test_a_trace_that_cannot_be_read_is_none_that_the_script_ended_before(
    tmp_path: Path, traced: int, said: str
) -> None:
    counts = ("steps", "measured_steps", "measured_ns", "all_steps", "all_ns", "waited_ns", "examples", "skipped")
    others: dict[str, Any] = dict.fromkeys((*counts, "gpus", "ranks", "graphs", "graph_breaks"), 1)
    ending = Ending(kind="done", how="a", lost_ns={}, outside=(), environment={}, traced_steps=traced, **others)
    notes = script_evidence({"evidence": "trace"}, ending, tmp_path / "trace.json", 0, others=0).notes
    assert [note.startswith(said) for note in notes if "ended before" in note or "profiler" in note] == [True]


def test_ranks_other_than_the_first_are_quiet(meter: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    assert steps_of(meter, "A" * 30) == 0
    assert not meter.on


class Event:
    """An event of a GPU whose clock is a list of times in ms."""

    times: ClassVar[list[float]] = []
    waited: ClassVar[list[float]] = []

    def __init__(self, *, enable_timing: bool) -> None:
        assert enable_timing

    def record(self, stream: str) -> None:
        assert stream == "of the clock's thread"
        self.at_ms = Event.times.pop(0)

    def synchronize(self) -> None:
        Event.waited.append(self.at_ms)

    def elapsed_time(self, later: "Event") -> float:
        return later.at_ms - self.at_ms


def test_a_block_on_a_gpu_is_read_when_the_next_one_has_ended(
    meter: Any, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda = SimpleNamespace(is_initialized=lambda: True, Event=Event, synchronize=lambda: None)
    cuda.current_stream = ["of another thread", "of the clock's thread"].pop
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda, __version__="0"))
    # A block's end, then the next one's begin.
    Event.times, Event.waited = [0.0, 250.0, 250.0, 500.0, 500.0, 2750.0], []
    meter.boundary("optimizer")
    meter._state, meter._first_ns, meter._settings["warmup"] = "warm-up", 1, 1
    meter.boundary("optimizer")
    assert meter._state == "measure"
    meter.boundary("optimizer")
    assert Event.waited == [0.0]
    meter.boundary("optimizer")
    assert Event.waited == [0.0, 250.0]
    meter._steps, meter._stepped_ns = meter._steps + 8, meter._stepped_ns - 400_000_000
    meter.interrupt("evaluation")  # the GPU may have worked on those for most of the time since
    assert meter._block_steps == 4
    assert meter._pause[1] - meter._start_ns == pytest.approx(2_500_000_000)  # 10 steps of 250 ms
    meter.on = False
    meter._link.say(type="ending")
    worker.close()
    blocks = [line for line in worker.lines if line["type"] == "block"]
    assert [block["end_ns"] - block["start_ns"] for block in blocks] == [250_000_000, 250_000_000]
    assert [block["first_step"] for block in blocks] == [0, 1]


def test_a_step_whose_batch_was_fetched_ahead_has_its_examples(meter: Any, worker: Worker) -> None:
    meter.boundary("optimizer")
    meter._state, meter._first_ns, meter._settings["warmup"] = "warm-up", 1, 1
    meter.boundary("optimizer")
    meter.seen[1] = (8, 1)
    meter.boundary("optimizer")
    meter._countdown = 1
    meter.boundary("optimizer")
    meter._link.say(type="ending")
    meter.on = False
    worker.close()
    assert [line["examples"] for line in worker.lines if line["type"] == "block"] == [8, 8]


def in_threads(number: int, act: Callable[[], object]) -> None:
    threads = [threading.Thread(target=act) for _ in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_what_other_threads_do_meanwhile_is_part_of_the_steps(meter: Any) -> None:
    meter.boundary("optimizer")
    in_threads(1, lambda: meter.interrupt("evaluation"))
    assert not meter._interruptions
    meter.interrupt("evaluation")
    assert meter._interruptions == {"evaluation": (1, 1)}

    def train() -> None:
        meter.boundary("optimizer")
        meter.interrupt("saving")

    in_threads(1, train)
    assert meter._interruptions["saving"] == (2, 1)


def test_each_step_of_several_threads_is_in_one_block(
    meter: Any, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    meter.boundary("optimizer")
    meter._state, meter._first_ns, meter._settings["warmup"] = "warm-up", 1, 1
    monkeypatch.setitem(meter.boundary.__globals__, "_BLOCK_NS", 1)
    seconds = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    in_threads(4, lambda: [meter.boundary("optimizer") for _ in range(200)])
    sys.setswitchinterval(seconds)
    meter._link.say(type="ending")
    meter.on = False
    worker.close()
    blocks = [line for line in worker.lines if line["type"] == "block"]
    assert [(block["first_step"], block["steps"]) for block in blocks] == [(step, 1) for step in range(799)]
    assert all(before["end_ns"] <= after["start_ns"] for before, after in pairwise(blocks))


def test_a_user_s_sitecustomize_runs_and_the_path_is_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import builtins\nbuiltins.OF_THE_USER = 1\n")
    program = "import builtins, sys; print(builtins.OF_THE_USER, sys.path)"
    bare, probed = (
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for paths in ([str(tmp_path)], [str(PROBE), str(tmp_path)])
    )
    assert probed == bare
    assert bare.startswith("1 ")


def test_the_probe_imports_no_framework(tmp_path: Path) -> None:
    settings = {"socket": f"{tmp_path}/socket", "loop": "", "user_folder": "/nowhere", "tree": "/nowhere"}
    environment = {**os.environ, "PYTHONPATH": str(PROBE), runner.PROBE_VARIABLE: json.dumps(settings)}
    program = "import sys; print({'msgspec', 'numpy', 'torch', 'typing', 'workloads'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
    assert (tmp_path / "socket.loaded").exists()


LOOPS = """
taken = []
for x in 1, 2:
    taken.append(x)
for letter in (
    "ä"
    "b"
): taken.append(letter)
while (n := len(taken)) < 6: taken.append(n)
for a, b in zip([7], [8]):
    taken += a, b
"""


@pytest.mark.parametrize(("line", "steps"), [(3, 2), (5, 2), (9, 3), (10, 1)])
def test_a_marked_loop_does_the_same_and_its_lines_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: int, steps: int
) -> None:
    (tmp_path / "x.py").write_text(LOOPS, encoding="utf-8")
    runner._mark_loop(Command(words=("python",), loop=f"x.py:{line}"), tmp_path)
    text = (tmp_path / "x.py").read_text(encoding="utf-8")
    marked: list[object] = []

    def items(values: Any) -> Iterator[Any]:
        for value in values:
            marked.append(value)
            yield value

    def test(value: object) -> object:
        marked.append(value)
        return value

    monkeypatch.setitem(sys.modules, "variantscope", SimpleNamespace(items=items, test=test))
    names: dict[str, Any] = {}
    exec(text, names)
    assert names["taken"] == [1, 2, "ä", "b", 4, 5, 7, 8]
    assert len(marked) == steps
    assert text.count("\n") == LOOPS.count("\n")


def test_what_lies_outside_a_copy_is_linked_beside_it_alone_and_not_changed(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("for x in 1, 2: pass\n")
    tree = tmp_path / "copy" / "tree"
    tree.mkdir(parents=True)
    (tree / "x.py").symlink_to(tmp_path / "own.py")
    with pytest.raises(UsageError, match=r"x\.py leads to .*/own\.py, which is no copy"):
        runner._mark_loop(Command(words=("python",), loop="x.py:1"), tree)
    runner._link(Command(words=("python",), links={"../data": str(tmp_path)}), tree)
    assert (tree.parent / "data").readlink() == tmp_path
    (tree / "data").mkdir()
    (tree / "data" / "own.py").touch()
    runner._link(Command(words=("python",), links={"data": str(tmp_path)}), tree)
    assert [path.name for path in (tree / "data").iterdir() if path.is_symlink()] == ["copy"]
    with pytest.raises(UsageError, match=r"\.\./\.\./data is too far up"):
        runner._link(Command(words=("python",), links={"../../data": str(tmp_path)}), tree)


@pytest.mark.parametrize(
    ("words", "ranks"),
    [
        (("torchrun", "--nproc-per-node", "4", "t.py"), 4),
        (("torchrun", "--nproc_per_node=2", "t.py"), 2),
        (("accelerate", "launch", "--num_processes", "8", "t.py"), 8),
        (("torchrun", "--nproc-per-node", "gpu", "t.py"), 0),
    ],
)
def test_the_ranks_that_a_command_starts(words: tuple[str, ...], ranks: int) -> None:
    assert rank_count(words) == ranks
