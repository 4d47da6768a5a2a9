"""Workloads of the user's own: files read by real processes, what is kept of them, and what is said of bad ones."""

import os
import sys
import time
from pathlib import Path

import pytest

from app.errors import UserError
from app.grants import refuse, typed
from app.runs.custom import (
    ReadOptions,
    load_custom_workloads,
    recent_files,
    resolve_workload,
    save_recent_files,
    stored_source,
)
from app.runs.experiment.queue import enqueue, queue_progress
from app.runs.leases import CPU, Leases
from app.runs.session import RunSession
from app.storage.store import Store
from app.telemetry.feed import TelemetryFeed
from app.values.plan import Plan
from tests.fakes.processes import has_ended
from tests.fakes.sessions import services
from tests.present import present
from tests.unit.viewmodels.events import CPU_INVENTORY
from workloads.catalog import Machine, UsageError, Workload, fill_defaults, refusal_of_text
from workloads.custom.source import describe_file
from workloads.protocol import Source

TEXT = """
import os
from pathlib import Path

print("noise on stdout", flush=True)
os.write(1, b'{"type":"declined","reason":"noise"}')
with Path(__file__).with_name("read-by").open("a") as file:
    file.write(f"{os.getpid()}\\n")


def small(batch_size: int = 4, units: int = 8):
    '''A small one.'''


def other(batch_size: int = 4): ...
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(TEXT)
    return path


@pytest.fixture
def reading(tmp_path: Path) -> ReadOptions:
    return ReadOptions(consent=typed, leases=Leases(tmp_path))


def readers(file: Path) -> list[int]:
    """The processes that imported the file."""
    return [int(line) for line in file.with_name("read-by").read_text().splitlines()]


def names(workloads: tuple[Workload, ...]) -> list[str]:
    return [workload.name for workload in workloads]


def test_the_file_is_imported_by_another_process_and_once(
    file: Path, database_path: Path, reading: ReadOptions
) -> None:
    before = set(sys.modules)
    workloads = load_custom_workloads(file, "", database_path, reading)
    assert names(workloads) == ["mine.py:small", "mine.py:other"]
    assert load_custom_workloads(file, "", database_path, reading) == workloads
    assert load_custom_workloads(file, "small", database_path, reading) == workloads[:1]
    (reader,) = readers(file)
    assert reader != os.getpid()
    assert not {name for name in set(sys.modules) - before if "own_workload" in name or name == "mine"}


def test_a_changed_file_is_another_one_and_the_old_text_stays(
    file: Path, database_path: Path, reading: ReadOptions
) -> None:
    (small,) = load_custom_workloads(file, "small", database_path, reading)
    old = fill_defaults(small, {"gpus": 0}, Machine())
    file.write_text(TEXT + "\n# changed\n")
    (changed,) = load_custom_workloads(file, "small", database_path, reading)
    new = fill_defaults(changed, {"gpus": 0}, Machine())
    assert old.workload == new.workload
    assert old.variant["source"] != new.variant["source"]
    for spec, text in ((old, TEXT), (new, TEXT + "\n# changed\n")):
        source = present(stored_source(spec, database_path))
        assert (source.path, source.text) == (str(file), text)


def test_entries_of_one_name_are_told_apart_by_the_text_they_are_of(
    file: Path, database_path: Path, reading: ReadOptions
) -> None:
    with Store.open(database_path) as store:
        for text in (TEXT, TEXT + "\n# changed\n"):
            file.write_text(text)
            (small,) = load_custom_workloads(file, "small", database_path, reading)
            variants = [fill_defaults(small, {"gpus": 0, "batch_size": size}, Machine()) for size in (1, 2)]
            enqueue(store, Plan(name="the same", variants=tuple(variants), repeats=1))
        old, new = queue_progress(store, CPU_INVENTORY)
        assert old.message == "Entry 1 uses the workload's file as it was when queued; the file has changed since."
        assert new.message == ""
        file.unlink()
        assert [each.message for each in queue_progress(store, CPU_INVENTORY)] == ["", ""], "no newer text is there"


def test_a_file_that_moved_is_the_same_workload_at_its_new_place(
    file: Path, database_path: Path, reading: ReadOptions
) -> None:
    load_custom_workloads(file, "", database_path, reading)
    moved = file.with_name("moved.py")
    file.rename(moved)
    (small,) = load_custom_workloads(moved, "small", database_path, reading)
    source = stored_source(fill_defaults(small, {"gpus": 0}, Machine()), database_path)
    assert (small.name, source.path if source else "") == ("moved.py:small", str(moved))
    assert len(readers(moved)) == 1


def test_a_word_names_a_workload_of_the_program_or_of_a_file(
    file: Path, database_path: Path, reading: ReadOptions
) -> None:
    assert resolve_workload("lstm", database_path, None).name == "lstm"
    assert resolve_workload(f"{file}:other", database_path, reading).title == "other · mine.py"
    with pytest.raises(UsageError, match=rf"several workloads in .*; name one: {file}:small, {file}:other"):
        resolve_workload(str(file), database_path, reading)
    with pytest.raises(UserError, match=r"^mine.py: There is no function smal in it. It has small, other.$"):
        resolve_workload(f"{file}:smal", database_path, reading)
    with pytest.raises(UsageError, match="cannot be read"):
        resolve_workload(f"{file.parent}/nothing.py:small", database_path, reading)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("def f(batch_size=4):\n    return (\n", r"^mine.py:2: SyntaxError: '\(' was never closed$"),
        (
            "x = 1\nimport nothing_such\n",
            rf"^mine.py:2: .*: No module named 'nothing_such': install the package that has it for {sys.executable}\.$",
        ),
        (
            "import beside\n",
            "^mine.py:1: .*: No module named 'beside', which is next to the file, where Python does not look: ",
        ),
        (
            "import importlib\nimportlib.import_module('jax_is_not_here', importlib.import_module('numpy.nothing'))\n",
            "^mine.py:2: ModuleNotFoundError: No module named 'numpy.nothing'$",
        ),
        ("import os\nos._exit(3)\n", "^mine.py was not read to its end. The .* exit status 3: it printed nothing.$"),
        (
            "x = bytes(2**60)\n",
            "^mine.py: memory ran out while the file was read; move what needs it into its functions.$",
        ),
        (
            "import os\nfor _ in range(40): os.write(2, b'x' * 2**20)\nraise ValueError('at last')\n",
            "^mine.py:3: ValueError: at last$",
        ),
    ],
)
def test_a_bad_file_is_told_in_one_sentence(
    file: Path, database_path: Path, reading: ReadOptions, text: str, sentence: str
) -> None:
    file.with_name("beside.py").touch()
    file.write_text(f"{text}def f(batch_size=4): ...\n")
    with pytest.raises(UserError, match=sentence):
        load_custom_workloads(file, "", database_path, reading)


def test_a_missing_framework_is_told_with_the_command_that_installs_it(
    file: Path, database_path: Path, reading: ReadOptions
) -> None:
    file.write_text(f"import sys\nsys.path[:] = []\nimport torch\n{TEXT}")
    with pytest.raises(UserError) as refused:
        load_custom_workloads(file, "", database_path, reading)
    missing, command = "mine.py:3: ModuleNotFoundError: No module named 'torch'", "-m pip install 'torch>=2.9'"
    assert str(refused.value) == f"{missing}: install with `{sys.executable} {command}`."


FUNCTION = "def net(batch_size=4): ...\n"
GUARD = "if __name__ == '__main__':\n    main()\n"


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("for epoch in range(3): print(epoch)", "mine.py: none of its functions is a workload. Write one"),
        ("def main(epochs=3): ...\nmain()", "mine.py: none of its functions is a workload. "),
        ("def main(batch_size): ...", "mine.py: none of its functions is a workload. "),
        ("def loader(root, batch_size=4): ...", "mine.py: none of its functions is a workload. "),
        ("def loader(*, root, batch_size=4): ...", "mine.py: none of its functions is a workload. "),
        ("def loader(batch_size=4, **more): ...", "mine.py: none of its functions is a workload. "),
        ("def batches(batch_size=4):\n    for i in x: yield i", "mine.py: none of its functions is a workload. "),
        ("class Data:\n    def __init__(self, batch_size=4): ...", "mine.py: none of its functions is a workload. "),
        ("def main(batch_size=4): ...\nmain()", "mine.py:2: `main()` runs whenever"),
        (FUNCTION + "def train(x): ...\nfor epoch in x:\n    train(x)", "mine.py:4: `train(x)` runs whenever"),
        ("import numpy\nimport jax", "mine.py:2: custom workloads cannot use JAX yet"),
        ("import torch\ndef f():\n    import keras", "mine.py:3: the file imports TensorFlow as well as PyTorch"),
        (FUNCTION + "model.fit(x, y)", "mine.py:2: `model.fit(x, y)` runs whenever the file is read, so the file was"),
        (FUNCTION + "for x in y:\n    loss(x).backward()", "mine.py:3: `loss(x).backward()` runs whenever"),
        (FUNCTION + "while a:\n    with b:\n        optimizer.step()", "mine.py:4: `optimizer.step()`"),
        (FUNCTION + "args = argparse.ArgumentParser().parse_args()", "mine.py:2: `argparse.ArgumentParser().parse"),
        (FUNCTION + "def main():\n    inner()\ndef inner():\n    m.fit(x)\nmain()", "mine.py:5: `m.fit(x)`"),
        (FUNCTION + "class T:\n    def go(self):\n        m.fit(x)\nT().go()", "mine.py:4: `m.fit(x)`"),
        (FUNCTION + "class T:\n    def __init__(self):\n        m.fit(x)\nT()", "mine.py:4: `m.fit(x)`"),
        (FUNCTION + "SFTTrainer(m).train()", "mine.py:2: `SFTTrainer(m).train()`"),
        (FUNCTION + "epochs = int(sys.argv[1])", "mine.py:2: `sys.argv`"),
        (FUNCTION + "import torch.multiprocessing as mp\nmp.spawn(main)", "mine.py:3: `mp.spawn(main)`"),
        (FUNCTION + "if __name__ != '__main__':\n    m.fit(x)", "mine.py:3: `m.fit(x)`"),
        (FUNCTION + "if '__main__' == __name__:\n    pass\nelse:\n    m.fit(x)", "mine.py:5: `m.fit(x)`"),
    ],
)
def test_a_training_script_is_refused_before_anybody_is_asked_whether_to_run_it(
    file: Path, database_path: Path, text: str, start: str
) -> None:
    file.write_text(text)
    with pytest.raises(UserError) as refused:
        load_custom_workloads(file, "", database_path, ReadOptions(consent=refuse))
    assert str(refused.value).startswith(start)


@pytest.mark.parametrize(
    "text",
    [
        FUNCTION + "def main():\n    m.fit(x)\n" + GUARD,
        FUNCTION + "def main():\n    m.fit(x)\nif __name__ == '__main__' and True:\n    main()",
        "def net(batch_size=4):\n    def train(): m.fit(x)\n    train()",
        FUNCTION + "class M:\n    def step(self):\n        self.loss.backward()\n    def __init__(self): ...\nM()",
        FUNCTION + "import os\nclass M:\n    def get(self):\n        self.loss.backward()\nos.environ.get('A')",
        "try:\n    import nothing\nexcept ImportError:\n    def net(*, batch_size=4): ...",
        "net = lambda batch_size=4: None\nnet.__name__ = 'net'",
        "def maker(width):\n    def net(batch_size=4): ...\n    return net\nnet = maker(3)",
        FUNCTION + "model = None\nif model: model.train()",
        "def net(batch_size=4):\n    def examples():\n        yield 1\n    return examples",
    ],
)
def test_a_file_that_only_defines_is_read(file: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", sys.stdin)  # of which a file that is read gets none
    assert refusal_of_text(str(file), text) is None
    (net,) = describe_file(Source(path=str(file), text=text)).workloads
    assert net.name == "net"


def test_a_helper_that_cannot_be_a_workload_is_left_out_with_its_reason(
    file: Path, database_path: Path, tmp_path: Path
) -> None:
    file.write_text("def loader(root, batch_size=4): ...\ndef other(x=None, batch_size=4): ...\n" + FUNCTION)
    notices: list[str] = []
    reading = ReadOptions(consent=typed, leases=Leases(tmp_path), notify=notices.append)
    with pytest.raises(UserError) as error:
        load_custom_workloads(file, "other", database_path, reading)
    refusal = str(error.value)
    notices.clear()
    assert names(load_custom_workloads(file, "", database_path, reading)) == ["mine.py:net"]
    assert notices == [
        "Reading mine.py …",
        "mine.py:1: root needs a default, such as root: int = 64. It is left out.",
        f"{refusal} It is left out.",
    ]
    with pytest.raises(UserError, match=r"^mine.py:1: root needs a default"):
        load_custom_workloads(file, "loader", database_path, reading)


def test_a_file_that_never_ends_is_given_up(file: Path, database_path: Path, tmp_path: Path) -> None:
    file.write_text("while True: pass\ndef f(batch_size=4): ...\n")
    start_s = time.monotonic()
    with pytest.raises(UserError, match=r"mine.py was not read within 1\xa0s; move what it computes on import"):
        load_custom_workloads(file, "", database_path, ReadOptions(consent=typed, limit_s=1.0, leases=Leases(tmp_path)))
    assert time.monotonic() - start_s < 50, "the usual limit is a minute"


def test_what_a_file_starts_ends_when_it_was_read(file: Path, database_path: Path, reading: ReadOptions) -> None:
    leaves = "subprocess.Popen(['sleep', '600'], start_new_session=True).pid"
    file.write_text(f"import subprocess\nwith open(__file__ + '.pid', 'w') as told: told.write(str({leaves}))\n{TEXT}")
    assert names(load_custom_workloads(file, "", database_path, reading)) == ["mine.py:small", "mine.py:other"]
    assert has_ended(int(file.with_name("mine.py.pid").read_text()))


def test_no_file_is_read_while_a_run_measures_on_the_processor(file: Path, database_path: Path, tmp_path: Path) -> None:
    lease = present(Leases(tmp_path).take([CPU], 1))
    notices: list[str] = []

    def stopped(seconds: float) -> bool:
        if seconds:
            lease.release()
        return False

    load_custom_workloads(
        file,
        "",
        database_path,
        ReadOptions(consent=typed, leases=Leases(tmp_path), notify=notices.append, wait_for_stop=stopped),
    )
    assert notices == ["Reading mine.py …", "mine.py will be read when the run on the CPU ends …"]


def test_files_chosen_before_are_remembered_as_long_as_they_are_there(file: Path, database_path: Path) -> None:
    assert recent_files(database_path) == []
    save_recent_files(database_path, [file, file.with_name("gone.py")])
    assert recent_files(database_path) == [file]


def test_a_variant_whose_file_was_never_opened_here_is_not_run(
    file: Path, database_path: Path, reading: ReadOptions, tmp_path: Path, feed: TelemetryFeed
) -> None:
    (small,) = load_custom_workloads(file, "small", tmp_path / "another.db", reading)
    spec = fill_defaults(small, {"gpus": 0}, feed.wait_inventory().machine)
    with pytest.raises(UserError, match=r"The file of mine.py:small was never opened here in that version"):
        RunSession(spec, services(tmp_path, feed)).run()
    with Store.open(database_path) as store:
        assert store.list_runs() == []


def test_a_run_that_crashes_names_the_file(file: Path, tmp_path: Path, feed: TelemetryFeed) -> None:
    ends = services(tmp_path, feed, command=(sys.executable, "-c", ""))
    (small,) = load_custom_workloads(file, "small", ends.database, ReadOptions(consent=typed, leases=ends.host.leases))
    outcome = RunSession(fill_defaults(small, {"gpus": 0}, Machine()), ends).run()
    assert outcome.name == "crashed"
    assert (outcome.reason or "").startswith("mine.py: ")
