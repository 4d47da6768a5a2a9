"""The queue on the command line: shown, ordered, resumed, moved to another machine."""

import json
import signal
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from app.cli.main import main
from app.errors import TelemetryError
from app.runs.launcher import Launcher, Post, Worker
from app.runs.leases import CPU, FOLDER_VARIABLE, Leases
from app.storage.queue import Queue
from app.storage.store import Store
from tests.fakes.command_line import LIMIT_S, CommandLine, dummy_arguments
from tests.present import present
from workloads.protocol import Start

EXPERIMENT = ("experiment", "--no-gate", "--repeats", "1")
AT_ONCE = (*EXPERIMENT, "--no-standby")
SHORT = (*EXPERIMENT, *dummy_arguments(steps=5, batch_size="1,2"))
LONGER = (*AT_ONCE, *dummy_arguments(steps=0, seconds="0.1,600"))
ENTRY_1_ELSEWHERE = (
    "Another program runs entry 1 of the queue at this moment: `python -m app queue` shows how far it is.\n"
)


@dataclass(frozen=True)
class Said:
    status: int
    out: str
    err: str


Say = Callable[..., Said]


@pytest.fixture
def say(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Say:
    """The command line within this process, on a database and with leases of its own."""
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    Store.open(tmp_path / "profiles.db").close()

    def command(*words: str, database: Path = tmp_path / "profiles.db") -> Said:
        capsys.readouterr()
        status = main([*words, "--db", str(database)])
        return Said(status, *capsys.readouterr())

    return command


def queue(said: Said) -> list[tuple[int, str, int, int]]:
    """Number, state, done and planned runs of every entry."""
    found = json.loads(said.out)["queue"]
    return [(each["entry"], each["state"], each["done"], each["planned"]) for each in found]


def test_what_is_only_added_says_what_of_it_cannot_run_and_what_the_rest_takes(say: Say) -> None:
    added = say(
        *EXPERIMENT, "lstm", "-s", "implementation=cudnn,standard", "-s", "gpus=0", "-s", "seconds=3", "--queue"
    )
    refused, planned, takes, order = added.err.splitlines()
    assert refused.startswith("Cannot run here: cuDNN. ")
    assert planned == "2 runs planned."
    assert takes.startswith("This takes ")
    assert order.startswith("Every round but the first has its own order")


def test_entries_are_added_ordered_and_made(say: Say) -> None:
    assert "The queue is empty: no experiment is unfinished." in say("queue").out
    for words in (SHORT, (*SHORT, "--again"), (*SHORT, "--baseline", "batch_size=2")):
        added = say(*words, "--queue")
    assert (added.status, added.out) == (0, "Entry 3 of the queue: `python -m app queue run 3` runs it.\n")
    assert json.loads(say(*SHORT, "--queue", "--json").out) == {"entry": 1}, "it is there already"
    waiting = [(entry, "waiting", 0, 2) for entry in (1, 2, 3)]
    assert queue(say("queue", "--json")) == waiting
    for words, order in (
        (("move", "3", "--first"), [3, 1, 2]),
        (("move", "2", "--before", "1"), [3, 2, 1]),
        (("move", "3"), [2, 1, 3]),
        (("move", "3", "1", "--first"), [3, 1, 2]),
        (("move", "1", "3"), [2, 1, 3]),
        (("pause", "1"), [2, 1, 3]),
        (("remove", "3"), [2, 1]),
    ):
        assert [number for number, *_ in queue(say("queue", *words, "--json"))] == order
    shown = say("queue")
    assert [line.count(" 0/2 ") for line in shown.out.splitlines()[1:]] == [1, 1]
    assert shown.err.startswith("0 of 4 runs done, ")
    made = json.loads(say("queue", "run", "--no-standby", "--json").out)["experiments"]
    assert [(each["state"], each["done"]) for each in made] == [("complete", 2)], "what is paused rests"
    assert queue(say("queue", "--json")) == [(1, "paused", 2, 2)], "its runs are stored meanwhile"
    assert say("queue").err == "2 of 2 runs done; `python -m app queue run 1` shows their results.\n"
    nothing = say("queue", "run", "--json")
    assert json.loads(nothing.out) == {"experiments": []}
    sentence = "Nothing waits in the queue. To resume a paused experiment, name it: `python -m app queue run 1`.\n"
    assert nothing.err == sentence
    named = say("queue", "run", "1", "--no-standby")
    assert (named.status, named.out.splitlines()[0]) == (0, "dummy: Batch size 1, 2 · step time 1 ms:")
    assert queue(say("queue", "--json")) == []


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("queue", "move"), "queue move needs the number of an entry"),
        (("queue", "pause", "7"), "The queue has no entry 7;"),
        (("queue", "list", "7"), "queue list shows all entries;"),
        (("queue", "--first"), "--first and --before go with"),
        (("queue", "run", "7"), "The queue has no entry 7;"),
        (("queue", "--notify"), "--notify and --report go with `queue run`."),
        (("queue", "pause", "7", "--report", "x.html"), "--notify and --report go with `queue run`."),
        (("export", "-o", "x.db"), "export needs the numbers of runs, or --queue"),
        (("export", "--queue", "-o", "x.db"), "The queue is empty"),
        (("export", "--queue", "--format", "csv"), "--queue goes with -o FILE.vscope"),
    ],
)
def test_wrong_words(say: Say, words: tuple[str, ...], sentence: str) -> None:
    said = say(*words)
    assert said.status != 0
    assert said.out == ""
    assert sentence in said.err


def test_cut_off_on_one_machine_it_goes_on_on_another(say: Say, tmp_path: Path) -> None:
    process = CommandLine(tmp_path).start(*LONGER)
    while present(process.stderr).readline() != "[2/2] measure\n":
        assert process.poll() is None
    assert queue(say("queue", "--json")) == [(1, "running", 1, 2)]
    assert "Another program runs this very experiment at this moment, as entry 1" in say(*LONGER).err
    assert ENTRY_1_ELSEWHERE in say("queue", "run", "1").err
    assert "”, is running: stop it first." in say("export", "--queue", "-o", "x.db").err
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=LIMIT_S)
    assert "or `python -m app queue run 1`." in err
    assert queue(say("queue", "--json")) == [(1, "waiting", 1, 2)]

    file, there = tmp_path / "queue.db", tmp_path / "there" / "profiles.db"
    there.parent.mkdir()
    assert say("export", "--queue", "-o", str(file)).out.startswith("Wrote 2 runs and 1 unfinished experiment to ")
    imported = say("import", str(file), database=there)
    assert imported.out.startswith("1 unfinished experiment joined the queue: `python -m app queue run 1` cont")
    assert queue(say("queue", "--json", database=there)) == [(1, "paused", 1, 2)]
    with Store.open(there) as store:
        store.add_environment(1, {"cpu": "The other machine's processor"})
    words = "1 run was measured on another machine, with another CPU: it counts nevertheless."
    assert words in say("queue", database=there).err
    going = CommandLine(tmp_path / "there").start("queue", "run", "1", "--no-standby")
    said: list[str] = []
    while not said or not said[-1].startswith("[2/2] run 3"):
        said.append(present(going.stderr).readline())
        assert going.poll() is None
    assert f"{words}\n" in said
    going.kill()
    going.communicate(timeout=LIMIT_S)
    assert queue(say("queue", "--json", database=there)) == [(1, "waiting", 1, 2)], "killed, it waits for the next"


def test_more_repeats_that_a_second_program_asks_for_are_made_by_the_first(say: Say, tmp_path: Path) -> None:
    words = (*EXPERIMENT, *dummy_arguments(steps=5, step_ms="1,2"))
    processor = Leases(tmp_path).take([CPU], 1)
    assert processor is not None, "its first run waits for it until all is asked"
    first = CommandLine(tmp_path).start(*words, "--no-standby")
    while [state for _, state, *_ in queue(say("queue", "--json"))] != ["running"]:
        assert first.poll() is None
    sentence = "Another program runs this very experiment at this moment, as entry 1 of the queue, with 2 repeats: "
    assert sentence in say(*words, "--repeats", "2", "--queue").out
    assert sentence in say(*words, "--no-standby").err, "fewer are no reason to make fewer"
    processor.release()
    _, err = first.communicate(timeout=LIMIT_S)
    assert first.returncode == 0
    assert err.endswith("Complete: 4 of 4 runs done.\n")
    assert len(json.loads(say("list", "--json").out)["runs"]) == 4


def test_at_the_end_reports_are_written_and_somebody_is_told(
    say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # where no notify-send is
    end = ("--no-standby", "--notify")
    say(*SHORT, "--queue")
    one = say("queue", "run", "1", *end, "--report", str(tmp_path / "one.html"))
    assert one.status == 0
    assert f"Written to {tmp_path / 'one.html'}.\nNobody was notified: " in one.err
    assert "batch_size" in (tmp_path / "one.html").read_text()
    for baseline in (1, 2):
        say(*SHORT, "--baseline", f"batch_size={baseline}", "--queue")
    (tmp_path / "all-2.md").mkdir()
    both = say("queue", "run", *end, "--report", str(tmp_path / "all.md"))
    assert f"{tmp_path / 'all-2.md'} cannot be written (Is a directory); name another place.\n" in both.err
    assert f"Written to {tmp_path / 'all-3.md'}.\n" in both.err, "what is wrong with one file is not with the next"
    assert both.status == 1
    with Store.open(tmp_path / "profiles.db") as store:
        store.queue.add(name="newer", preset=None, plan='{"variants": []}')
    assert "runs done" not in say("queue").err, "nobody knows how many it asks for"
    say(*SHORT, "--queue")
    past = say("queue", "run", *end)
    assert "Entry 4 of the queue cannot be read by this version" in past.err
    assert past.out.startswith("dummy: Batch size"), "the others go on, and are reported"
    named = "To resume a paused experiment, name it: `python -m app queue run 4`.\n"
    assert named in past.err
    assert past.status == 1
    nothing = say("queue", "run", *end)
    assert f"Nothing waits in the queue. {named}" in nothing.err
    assert "Nobody was notified" not in nothing.err


def test_an_experiment_that_cannot_go_on_names_its_entry(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object, **_given: object) -> None:
        raise TelemetryError("The telemetry process does not answer; start the program again.")

    with monkeypatch.context() as patch:
        patch.setattr("app.runs.experiment.session.read_experiment", gone)
        failed = say(*SHORT)
    assert failed.status == 1
    assert failed.err.endswith(
        "The telemetry process does not answer; start the program again. "
        "To resume a paused experiment, name it: `python -m app queue run 1`.\n"
    )
    assert queue(say("queue", "--json")) == [(1, "paused", 0, 2)]


def test_the_same_command_goes_on_with_an_unfinished_experiment(say: Say) -> None:
    words = (*AT_ONCE, *dummy_arguments(steps=0, seconds=2, step_ms="1,2"), "--again")
    assert say(*words, "--budget", "3.9s").status == 1
    assert queue(say("queue", "--json")) == [(1, "paused", 1, 2)], "its time is spent"
    second = say(*words)
    assert second.status == 0
    assert "This experiment is already in the queue, as entry 1." in second.err
    assert queue(say("queue", "--json")) == []
    assert len(json.loads(say("list", "--json").out)["runs"]) == 2, "made anew once, not twice"


def test_what_was_completed_meanwhile_on_either_machine_is_unfinished_on_none(say: Say, tmp_path: Path) -> None:
    file, back, there = tmp_path / "queue.db", tmp_path / "back.db", tmp_path / "there" / "profiles.db"
    there.parent.mkdir()
    say(*EXPERIMENT, *dummy_arguments(steps=5, batch_size="1,2"), "--queue")
    say("queue", "pause", "1")
    say("export", "--queue", "-o", str(file))
    say("import", str(file), database=there)
    say("queue", "run", "1", "--no-standby", database=there)
    say("export", "1", "2", "-o", str(back), database=there)
    again = say("import", str(file), database=there)
    assert again.out == "Nothing was imported: the file has no new runs.\n"
    assert queue(say("queue", "--json", database=there)) == []
    home = say("import", str(back))
    assert home.out.startswith("Completed by these runs and removed from the queue: 1 experiment.\nImported 2 runs")
    assert queue(say("queue", "--json")) == []


def at_launches(monkeypatch: pytest.MonkeyPatch, *moments: Callable[[], object]) -> None:
    """Has one of these happen as each worker is started, in turn."""
    launch, left = Launcher.launch, iter(moments)

    def launch_then(launcher: Launcher, start: Start, post: Post) -> Worker:
        next(left, int)()
        return launch(launcher, start, post)

    monkeypatch.setattr(Launcher, "launch", launch_then)


def test_what_another_program_completed_after_it_was_left_is_complete_at_the_end(
    say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database, other = tmp_path / "profiles.db", CommandLine(tmp_path / "leases")
    (tmp_path / "leases").mkdir()
    words = (*EXPERIMENT, *dummy_arguments(steps=5, batch_size="1,2"), "--again")
    say(*words, "--queue")
    say(*SHORT, "--queue")
    others: list[str] = []

    def put_second_first() -> None:
        with Store.open(database) as store:
            store.queue.move(2, 1)

    def have_the_first_made() -> None:
        others.append(other(*words, "--no-standby", database=database).stderr)

    at_launches(monkeypatch, put_second_first, have_the_first_made)
    made = say("queue", "run", "--no-standby")
    assert others[0].endswith("Complete: 2 of 2 runs done.\n")
    assert (made.status, made.err.count("Complete: 2 of 2 runs done")) == (0, 2)
    assert "queue run 1" not in made.err
    assert queue(say("queue", "--json")) == []


def test_what_another_program_goes_on_with_at_the_end_is_said_to_be_that_one_s(
    say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    say(*EXPERIMENT, *dummy_arguments(steps=5, batch_size="1,2"), "--again", "--queue")
    say(*SHORT, "--queue")

    def leave_and_lose(change: Callable[[Queue], object]) -> None:
        with Store.open(tmp_path / "profiles.db") as store:
            change(store.queue)

    moments = (lambda queue: queue.move(2, 1), lambda queue: queue.claim(1))
    at_launches(monkeypatch, *(partial(leave_and_lose, moment) for moment in moments))
    made = say("queue", "run", "--no-standby")
    assert ENTRY_1_ELSEWHERE in made.err
    assert "Stopped" not in made.err
    assert made.status == 0


OWN = """
    [gpu]
    question = "?"
    repeats = 1
    matrix = [{ workload = "dummy", settings = { gpus = 0, steps = 5, step_ms = 1.0, batch_size = [1, 2] } }]
    [cpu]
    question = "?"
    repeats = 1
    matrix = [{ workload = "dummy", settings = { gpus = 0, steps = 5, step_ms = 1.0, batch_size = [1, 2] } }]
    [article]
    title = "An article of one's own"
    [[article.effects]]
    workload = "dummy"
    setting = "batch_size"
    before = 1
    figure = "step_p50"
    values = [{ after = 2, ratio = 2, says = "they say" }]
"""


def test_a_preset_of_one_s_own_stands_beside_what_is_published_from_the_queue_too(say: Say, tmp_path: Path) -> None:
    file = tmp_path / "quick.toml"
    file.write_text(OWN, encoding="utf-8")
    words = ("experiment", "--no-gate", "--again", "--preset", str(file), "--queue")
    end = ("queue", "run", "--no-standby")
    say(*words)
    assert json.loads(say("queue", "--json").out)["queue"][0]["preset"] == str(file), "not the one in the box"
    assert "2×, they say" in say(*end).out
    say(*words)
    file.write_text(OWN.replace("before = 1", "before = 3"), encoding="utf-8")
    changed = say(*end)
    assert (changed.status, changed.out.splitlines()[0]) == (0, "An article of one's own:")
    assert "they say" not in changed.out, "what no longer fits is left out"
