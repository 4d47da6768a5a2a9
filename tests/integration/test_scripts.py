"""Training scripts as people write them: measured unmodified, and ended in every way that scripts end."""

import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import psutil
import pytest

from app.grants import read_grants
from app.hosts.book import HostEntry, add_host
from app.runs.experiment.queue import entry_plan
from app.runs.script import Script, script_variants
from app.storage.store import Store
from app.viewmodels.format.naming import short_name
from tests.fakes.command_line import LIMIT_S, ROOT, CommandLine
from tests.fakes.sshd import SshServer
from tests.present import present
from workloads.catalog import Machine
from workloads.machine import bytecode_folder, cache_folder
from workloads.protocol import Command

SCRIPTS = ROOT / "tests" / "scripts"
SHORT, SHORT_ON_GPU = (("-s", f"gpus={gpus}", "-s", "seconds=0.6", "-s", "warmup_steps=3") for gpus in (0, 1))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the scripts, which are a repository's by one commit."""
    folder = tmp_path / "work"
    shutil.copytree(SCRIPTS, folder, ignore=shutil.ignore_patterns("__pycache__"))
    git(folder, "init", "-q", "-b", "main")
    (folder / ".gitignore").write_text("data\n__pycache__\n")
    commit(folder)
    return folder


def git(folder: Path, *words: str) -> str:
    author = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    done = subprocess.run(["git", "-C", str(folder), *author, *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def commit(folder: Path) -> None:
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "one")


@pytest.fixture
def command(tmp_path: Path) -> CommandLine:
    # Whatever of a run finds its worker by this variable is its own.
    return CommandLine(tmp_path, {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"})


def write_program(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(("#!/bin/sh", *lines, "")))
    path.chmod(0o755)
    return path


def script_command(folder: Path, name: str, *arguments: str) -> tuple[str, ...]:
    return ("-C", str(folder), "--", sys.executable, name, *arguments)


def measured(document: dict[str, Any]) -> dict[str, str]:
    """What ran of a run that completed."""
    assert document["outcome"] == "completed", document["reason"]
    ran: dict[str, str] = document["evidence"]["ran"]
    return ran


def notes(document: dict[str, Any]) -> str:
    return " ".join(document["evidence"]["notes"])


def tree_hash(folder: Path) -> str:
    files = sorted(path for path in folder.rglob("*") if path.is_file() and ".git/" not in str(path))
    return hashlib.sha256(repr([(str(path), path.read_bytes()) for path in files]).encode()).hexdigest()


def test_a_script_runs_unmodified_with_its_own_steps(command: CommandLine, folder: Path) -> None:
    before = tree_hash(folder)
    options = ("--scale", "--accumulate", "2", "--workers", "2", "--evaluate", "20")
    words = script_command(folder, "plain.py", *options, "{amp?--amp}")
    document = command.read("run", *SHORT, "-s", "amp=on", *words)
    ran = measured(document)
    assert (ran["device"], ran["precision"], ran["compile"]) == ("CPU", "bfloat16", "off")
    assert document["evidence"]["match"] is None
    assert document["workload"] == "script:plain.py"
    assert document["variant"]["{amp}"] is True
    assert document["throughput"]["unit"] == "examples/s"
    # Two batches of 16 for each update.
    assert document["measured"]["examples"] == 32 * document["measured"]["steps"]
    assert "A step is a call of AdamW.step;" in notes(document)
    assert "waited for its loader in" in notes(document)
    assert ", evaluation " in notes(document)
    assert document["environment"]["script_command"].endswith(f"plain.py {' '.join(options)} --amp")
    assert tree_hash(folder) == before
    # Updates that its scaler skips are steps.
    skipped = int(notes(document).partition("A GradScaler skipped ")[2].partition(" ")[0].replace(",", ""))
    assert 0.2 < skipped / document["measured"]["steps"] < 0.6


def test_a_gan_s_step_is_the_period_of_its_optimizers(command: CommandLine, folder: Path) -> None:
    document = command.read("run", *SHORT, *script_command(folder, "gan.py", "--critic", "3", "--alone", "40"))
    measured(document)
    said = notes(document)
    assert "3 of Adam 1, then 1 of SGD 2" in said or "of SGD 2, then" in said


@pytest.mark.parametrize(
    ("kind", "sentences"),
    [
        (
            "backward",
            (
                "A step is 1 of SGD 1, then 1 of SGD 2, then 1 of SGD 3, then 1 of SGD 4;",
                "The profiler could not be used: the optimizer steps within the backward pass.",
            ),
        ),
        ("compiled", ("A step is a call of Adam.step;",)),
        ("folds", ("A step is a call of Adam.step;",)),
        ("ahead", ("saving ",)),
        ("by hand", ("A step is a backward pass, as there is no optimizer;",)),
    ],
)
def test_unusual_optimizers(command: CommandLine, folder: Path, kind: str, sentences: tuple[str, ...]) -> None:
    document = command.read("run", *SHORT, *script_command(folder, "unusual.py", kind))
    measured(document)
    for sentence in sentences:
        assert sentence in notes(document)
    if kind == "by hand":
        assert document["measured"]["examples"] == 4 * document["measured"]["steps"]
    if kind == "ahead":
        times = notes(document).partition("Of all time: ")[2].partition(". ")[0]
        shares = dict(re.findall(r"(\w[\w ]*) ([\d.]+) %", times))
        assert {"measured steps", "evaluation", "saving", "steps not measured"} <= shares.keys()
        assert sum(map(float, shares.values())) == pytest.approx(100, abs=0.05 * len(shares))
        # Of a first block of one step, whose batch was fetched before it, the examples are not known.
        assert 0 <= 8 * document["measured"]["steps"] - document["measured"]["examples"] < 8


def test_the_ranks_of_torchrun_are_one_run(command: CommandLine, folder: Path) -> None:
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    document = command.read("run", *SHORT, "-C", str(folder), "--", sys.executable, *torchrun, "ranks.py")
    assert measured(document)["ranks"] == "2 ranks"
    assert document["workload"] == "script:ranks.py"


@pytest.mark.tensorflow
@pytest.mark.parametrize("data", ["numpy", "jax"])
def test_keras_fit(command: CommandLine, folder: Path, data: str) -> None:
    """The last batch of an epoch, which may be smaller, is no step: libraries compile for its size."""
    document = command.read("run", *SHORT, *script_command(folder, "keras_fit.py", data))
    assert measured(document) == {"device": "CPU", "xla": "off"}
    assert (document["evidence"]["steps"], bool(document["evidence"]["kernels"])) == (3, True)
    assert "A step is a batch of Keras' fit;" in notes(document)
    assert document["measured"]["examples"] == 32 * document["measured"]["steps"]


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    ("kind", "step"),
    [("function", "a call of train.__call__"), ("batches", "2 of Sequential 1, then 1 of Sequential 2")],
)
def test_keras_without_fit(command: CommandLine, folder: Path, kind: str, step: str) -> None:
    document = command.read("run", *SHORT, *script_command(folder, "keras_calls.py", kind))
    measured(document)
    assert f"A step is {step};" in notes(document)


@pytest.mark.tensorflow
def test_an_update_that_jax_compiles_is_no_step(command: CommandLine, folder: Path) -> None:
    words = ("-e", "KERAS_BACKEND=jax", *script_command(folder, "keras_in_jax.py"))
    assert command.read("run", *SHORT, *words, status=1)["reason"].startswith("No step was seen")


@pytest.mark.parametrize("kind", ["plain", "profiled"])
def test_steps_that_jax_marks_are_traced_unless_the_script_profiles_itself(
    command: CommandLine, folder: Path, kind: str
) -> None:
    document = command.read("run", *SHORT, *script_command(folder, "jax_annotated.py", kind))
    assert "A step is what JAX's StepTraceAnnotation marks;" in notes(document)
    assert measured(document).get("xla", "") == ("on" if kind == "plain" else "")
    assert ("The profiler could not be used: " in notes(document)) == (kind == "profiled")


def test_a_loop_is_marked_in_the_copy(command: CommandLine, folder: Path) -> None:
    before = tree_hash(folder)
    document = command.read("run", *SHORT, "--loop", "jax_loop.py:14", *script_command(folder, "jax_loop.py"))
    assert measured(document) == {"device": "CPU", "precision": "float32", "xla": "on"}
    assert "A step is an iteration of the loop at jax_loop.py:14;" in notes(document)
    assert tree_hash(folder) == before
    refused = command.read("run", *SHORT, "--loop", "jax_loop.py:15", *script_command(folder, "jax_loop.py"), status=1)
    assert refused["outcome"] == "refused"
    assert refused["reason"] == "jax_loop.py:15 is no for or while loop; jax_loop.py has those at line 14."
    write_program(folder / "run").write_text("#!/bin/sh\r\n")
    windows = command.read("run", *SHORT, "-C", str(folder), "--", "./run", status=1)
    assert windows["reason"].startswith("The program in the first line of ./run cannot be run in")
    bare = command.read("run", *SHORT, "-C", str(folder), "--", "run", status=1)
    assert bare["reason"].endswith("(there is no such program in PATH; write ./run).")


ENDINGS = {
    "before": "The command ended with exit status 3 before its steps could be measured; see its log.",
    "status": "The command ended with exit status 3; see its log.",
    "SIGKILL": "The command ended with signal 9 (Killed, often because memory ran out) before its steps could be",
    "few": "The command ended after 5 steps, 0.0 s of 0.6 s measured; let it train longer.",
    "_exit": "No step was seen in a process with the command's environment: no update by an optimizer of PyTorch or",
    "hang": "The script completed no further step for 6 s, and was ended; see its log. If a step takes longer, set "
    "first_step_limit=12.",
}


@pytest.mark.parametrize("end", ENDINGS)
def test_an_early_end_is_one_sentence(command: CommandLine, folder: Path, end: str) -> None:
    words = script_command(folder, "steps.py", "--steps", "5", "--end", end)
    document = command.read("run", *SHORT, "-s", "first_step_limit=6", *words, status=1)
    assert document["outcome"] == "failed"
    assert document["reason"].startswith(ENDINGS[end])


def test_slow_steps_count_as_progress_during_the_warm_up(command: CommandLine, folder: Path) -> None:
    limits = ("-s", "seconds=0.6", "-s", "warmup_steps=4", "-s", "first_step_limit=3")
    measured(command.read("run", "-s", "gpus=0", *limits, *script_command(folder, "steps.py", "--ms", "1200")))


def test_the_first_process_that_trains_for_long_is_measured(command: CommandLine, folder: Path) -> None:
    runs = [f"{sys.executable} steps.py {arguments}" for arguments in ("--steps 5", "--steps 9 --end SIGKILL", "")]
    (folder / "run.sh").write_text("\n".join(runs))
    document = command.read("run", *SHORT, "-C", str(folder), "--", "sh", "run.sh")
    measured(document)
    assert document["measured"]["steps"] > 100
    assert "of one process alone" not in notes(document)
    (folder / "run.sh").write_text(f"{sys.executable} steps.py --slow & {sys.executable} steps.py --slow")
    document = command.read("run", *SHORT, "-C", str(folder), "--", "sh", "run.sh")
    assert "of one process alone; 1 more of the command trained, too." in notes(document)


@pytest.mark.parametrize("words", [(sys.executable, "-I"), ("env", "PYTHONPATH=.", sys.executable)])
def test_a_command_that_keeps_the_probe_out_is_told_so(
    command: CommandLine, folder: Path, words: tuple[str, ...]
) -> None:
    (folder / "train.py").write_text("print('a loss')\n")
    document = command.read("run", *SHORT, "-C", str(folder), "--", *words, "train.py", status=1)
    assert "PYTHONPATH=src:$PYTHONPATH" in document["reason"]


@pytest.mark.parametrize("end", ["", "finally", "atexit", "sigterm", "fork", "daemon", "closed"])
def test_what_a_script_would_do_at_its_end_is_not_done(command: CommandLine, folder: Path, end: str) -> None:
    before = tree_hash(folder)
    document = command.read("run", *SHORT, *script_command(folder, "steps.py", "--end", end))
    measured(document)
    assert "A step is a call of variantscope.step();" in notes(document)
    cache = os.environ["VARIANTSCOPE_CACHE"]
    assert not list(Path(cache).rglob("checkpoint.txt"))
    assert tree_hash(folder) == before
    assert not processes_that_name(folder)
    assert not processes_that_name(Path(cache, "scripts"))


def processes_that_name(folder: Path) -> list[int]:
    """The processes with this folder in their environment or arguments."""
    pids = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if str(folder) in f"{process.environ()} {process.cmdline()}":
                pids.append(process.pid)
    return pids


def test_the_shared_memory_of_a_killed_script_is_freed(command: CommandLine, folder: Path) -> None:
    name = f"of-a-test-{os.getpid()}"
    measured(command.read("run", *SHORT, *script_command(folder, "steps.py", "--end", "shared", "--text", name)))
    assert "leaked shared_memory" in command.inside("show", "1", "--log").stdout
    assert not Path("/dev/shm", name).exists()


def test_a_stop_ends_the_script(command: CommandLine, folder: Path) -> None:
    words = ("run", "-s", "gpus=0", "-s", "seconds=600", *script_command(folder, "steps.py", "--end", "finally"))
    process = command.start(*words)
    for line in present(process.stderr):
        if line.strip() == "measure":
            process.send_signal(signal.SIGINT)
            break
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "stopped" in out


def test_five_milliseconds_more_are_found(command: CommandLine, folder: Path) -> None:
    words = script_command(folder, "steps.py", "--ms", "5", "{slow?--slow}")
    document = command.read("experiment", "--no-gate", *SHORT, "-s", "slow=off,on", "--repeats", "2", *words)
    assert [row["label"] for row in document["rows"]] == ["slow off", "slow on"]
    # Nothing says the examples of a step.
    assert {row["throughput"]["unit"] for row in document["rows"]} == {"steps/s"}
    assert "steps/s" in command.inside("compare", "1", "2").stdout
    assert "examples/s" not in command.inside("list").stdout
    by_flag: dict[bool, list[float]] = {False: [], True: []}
    for number in range(1, 5):
        run = command.read("show", str(number))
        by_flag[run["variant"]["{slow}"]].append(run["step_ms"]["p50"])
    # A busy machine adds to a sleep, to each more or less.
    assert 4.0 < min(by_flag[True]) - min(by_flag[False]) < 15.0


def test_the_code_is_frozen_and_a_module_beside_it_is_a_part_of_it(command: CommandLine, folder: Path) -> None:
    words = script_command(folder, "steps.py", "--ms", "20")
    first = command.read("run", *SHORT, *words)
    (folder / "helper.py").write_text("import time\n\n\ndef pause(ms):\n    time.sleep(ms / 500)\n")
    second = command.read("run", *SHORT, *words)
    assert first["variant"]["source"] != second["variant"]["source"]
    assert second["step_ms"]["p50"] > 1.5 * first["step_ms"]["p50"]
    by_commit = command.read("run", *SHORT, "--rev", "main", *words)
    assert by_commit["variant"]["revision"] == f"main@{git(folder, 'rev-parse', 'HEAD')[:12]}"
    assert by_commit["step_ms"]["p50"] < 0.8 * second["step_ms"]["p50"]


def test_what_changes_meanwhile_reaches_no_run(command: CommandLine, folder: Path) -> None:
    words = script_command(folder, "steps.py", "--ms", "{ms}")
    process = command.start("experiment", "--no-gate", *SHORT, "-s", "ms=2,4", "--repeats", "1", "--json", *words)
    for line in present(process.stderr):
        if "measure" in line:
            shutil.rmtree(folder)
            break
    out, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, err
    assert [row["outcomes"] for row in json.loads(out)["rows"]] == [["completed"], ["completed"]]
    # The program and its worker keep their bytecode in the cache folder; the script writes none, as by hand.
    assert [list(bytecode_folder().rglob(f"{name}.*.pyc")) != [] for name in ("commands", "runner")] == [True, True]
    assert list(cache_folder().rglob("helper.*.pyc")) == []


def test_a_terminated_program_leaves_nothing_running(command: CommandLine, folder: Path) -> None:
    words = ("run", "-s", "gpus=0", "-s", "seconds=600", *script_command(folder, "steps.py", "--end", "fork"))
    process = command.start(*words)
    for line in present(process.stderr):
        if line.strip() == "measure":
            break
    ranks = {child.pid for child in psutil.Process(process.pid).children(recursive=True)}
    assert len(processes_that_name(folder)) > 20
    process.terminate()
    process.communicate(timeout=60)
    psutil.wait_procs([psutil.Process(pid) for pid in ranks if psutil.pid_exists(pid)], timeout=20)
    assert not processes_that_name(folder)


def test_a_script_whose_program_was_killed_ends_at_its_first_step(command: CommandLine, folder: Path) -> None:
    process = command.start("run", *SHORT, *script_command(folder, "steps.py", "--ms", "2000"))
    for line in present(process.stderr):
        if line.strip() == "import":
            break
    while not (scripts := set(processes_that_name(folder)) - {process.pid}):
        threading.Event().wait(0.05)
    trains = [psutil.Process(pid) for pid in scripts]
    process.kill()
    process.communicate()
    assert psutil.wait_procs(trains, timeout=60)[1] == []


def test_environment_variables_links_and_an_interrupt_reach_the_script(command: CommandLine, folder: Path) -> None:
    (folder / "data").mkdir()
    words = ("-e", "OF_THE_TEST=a b", "--link", "data", *script_command(folder, "steps.py", "--text", "{{x} {text}"))
    run = command.read("run", *SHORT, "-s", "text=1.50", *words)["run"]
    log = command.inside("show", str(run), "--log").stdout
    assert "text='{x} 1.50'" in log
    assert log.count(") a b") == 1
    assert "interrupt True" in log


@pytest.mark.parametrize("revisions", [(), ("main",)])
def test_freezing_runs_no_program_that_the_folder_s_git_names(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, revisions: tuple[str, ...]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    marker = tmp_path / "marker"
    program = write_program(tmp_path / "program", f"echo run >> {marker}", "[ $# != 0 ] || cat")
    named = ("core.fsmonitor", "filter.theirs.smudge", "filter.theirs.clean", "diff.theirs.textconv", "diff.external")
    for key in named:
        git(tmp_path, "config", "--file", "included", key, str(program))
    # A repository within has a configuration of its own; a revision has none of its files.
    repositories = (folder,) if revisions else (folder / "library", folder)
    for repository in repositories:
        git(tmp_path, "init", "-q", "-b", "main", str(repository))
        (repository / "net.py").write_text("")
        (repository / ".gitattributes").write_text("*.py filter=theirs diff=theirs\n")
        commit(repository)
    for repository in repositories:
        write_program(repository / ".git" / "hooks" / "post-index-change", f"echo run >> {marker}")
        git(repository, "config", "include.path", str(tmp_path / "included"))
        (repository / "net.py").write_text("changed\n")
        git(repository, "diff")
        assert marker.exists()  # the program works
        marker.unlink()
    for repository in repositories:
        (repository / "net.py").write_text("changed again\n")
    script = Script(command=Command(words=("python", "steps.py")), folder=folder, revisions=revisions)
    assert script_variants(script, {}, Machine(), tmp_path / "profiles.db")
    assert not marker.exists()


def test_freezing_a_revision_uses_the_filters_of_the_user(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VARIANTSCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    (folder / ".gitattributes").write_text("weights filter=large\n")
    (folder / "weights").write_text("pointer\n")
    commit(folder)
    git(folder, "remote", "add", "origin", "https://example.org/weights.git")
    # As Git LFS does: what it needs to fetch from is the repository's, the filter is the user's.
    smudge = write_program(tmp_path / "smudge", "git remote get-url origin", "cat")
    git(folder, "config", "--global", "filter.large.smudge", str(smudge))
    script = Script(command=Command(words=("python", "steps.py")), folder=folder, revisions=("main",))
    assert script_variants(script, {}, Machine(), tmp_path / "profiles.db")
    (weights,) = (tmp_path / "cache").glob("scripts/*/weights")
    assert weights.read_text() == "https://example.org/weights.git\npointer\n"


def test_nothing_runs_before_it_is_granted(command: CommandLine, folder: Path) -> None:
    words = script_command(folder, "steps.py", "--ms", "{ms}")
    dry = command.inside("experiment", *SHORT, "-s", "ms=1,2.5", "--rev", "main", "--dry-run", *words)
    head = git(folder, "rev-parse", "HEAD")[:12]
    assert dry.stdout.splitlines() == [
        f"cd {folder}",
        f"{sys.executable} steps.py --ms 1    # main@{head}",
        f"{sys.executable} steps.py --ms 2.5    # main@{head}",
    ]
    before = len(read_grants())
    command.read("run", *SHORT, "-s", "ms=1", *words)
    granted = [grant for grant in read_grants()[before:] if grant.kind == "script"]
    assert [grant.path for grant in granted] == [f"{sys.executable} steps.py --ms 1 in {folder}"]


def test_a_host_runs_the_frozen_tree(tmp_path: Path, folder: Path, host_cache: Path, sshd: SshServer) -> None:
    add_host(HostEntry(name="gpu1", address=f"ssh://gpu1?python={sys.executable}"))
    command = CommandLine(tmp_path)
    trees = host_cache / "variantscope" / "scripts"
    (folder / "data").mkdir()
    words = ("--link", "data", *script_command(folder, "steps.py", "--ms", "{ms}"))
    document = command.read("experiment", "--on", "gpu1", "--no-gate", *SHORT, "-s", "ms=2,4", "--repeats", "1", *words)
    assert [row["label"] for row in document["rows"]] == ["ms 2", "ms 4"]
    run = command.read("show", "1")
    assert run["environment"]["host"] == "gpu1"
    (tree,) = (path for path in trees.iterdir() if "." not in path.name)
    assert (tree / "steps.py").read_bytes() == (folder / "steps.py").read_bytes()
    (folder / "helper.py").write_text("import time\n\n\ndef pause(ms):\n    time.sleep(ms / 500)\n")
    detached = command.read("run", "--on", "gpu1", "--detach", *SHORT, "-s", "ms=2", *words)
    uid = detached["detached"]["uid"]
    command.read("hosts", "fetch", "gpu1", uid)
    fetched = command.read("show", "3")
    measured(fetched)
    assert fetched["variant"]["source"] != run["variant"]["source"]
    assert len([path for path in trees.iterdir() if "." not in path.name]) == 2


def test_a_python_stands_for_the_command_s_first_word(command: CommandLine, folder: Path) -> None:
    python = ("-s", f"interpreter={sys.executable}")
    words = ("-C", str(folder), "--", "python3", "steps.py")
    document = command.read("run", *SHORT, *python, *words)
    assert document["environment"]["script_command"] == f"{sys.executable} steps.py"
    assert "A step is a call of variantscope.step();" in notes(document)
    with_packages = ("-s", "interpreter=3.12", "-s", "packages=numpy==2.* six", *words)
    dry = command.inside("run", *SHORT, "--dry-run", *with_packages).stdout.splitlines()
    assert dry[1] == "uv run --python 3.12 '--with=numpy==2.*' --with=six python steps.py"
    refused = command.inside("run", *SHORT, *python, "-C", str(folder), "--", "torchrun", "steps.py")
    assert refused.returncode == 2
    assert "torchrun is not a Python" in refused.stderr


@pytest.mark.parametrize(
    ("baseline", "first"),
    [("slow=on", "· slow ·"), ("OF_THE_TEST=b", "OF_THE_TEST b"), ("rev=HEAD", "HEAD@"), ("slow=7", "")],
)
def test_the_baseline_is_named_as_typed(command: CommandLine, folder: Path, baseline: str, first: str) -> None:
    (folder / "helper.py").write_text("import time\n\n\ndef pause(ms):\n    time.sleep(ms / 500)\n")
    commit(folder)
    varied = ("-e", "OF_THE_TEST=a,b", "-s", "slow=off,on", "--rev", "HEAD~1,HEAD")
    words = script_command(folder, "steps.py", "{slow?--slow}")
    queued = command.inside("experiment", "--queue", "--baseline", baseline, *SHORT, *varied, *words)
    if not first:
        assert (queued.returncode, "has slow=7" in queued.stderr) == (2, True)
        return
    with Store.open(command.database) as store:
        (entry,) = store.queue.entries()
    assert first in short_name(entry_plan(entry).variants[0])


def test_a_gate_in_a_shallow_clone(command: CommandLine, folder: Path, tmp_path: Path) -> None:
    (folder / "helper.py").write_text("import time\n\n\ndef pause(ms):\n    time.sleep(ms / 500)\n")
    commit(folder)
    git(folder, "checkout", "-q", "-b", "change")
    (folder / "helper.py").write_text("import time\n\n\ndef pause(ms):\n    time.sleep(ms / 250)\n")
    commit(folder)
    # As actions/checkout has it: one commit of one branch.
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", "--depth", "1", "--branch", "change", f"file://{folder}", str(clone))
    gate = ("experiment", *SHORT, "--rev", "origin/main,HEAD", "--fail-if-slower", "3%")
    words = script_command(clone, "steps.py", "--ms", "4")
    refused = command.inside(*gate, *words)
    assert refused.returncode == 2
    fetch = "git fetch --depth=1 origin +refs/heads/main:refs/remotes/origin/main"
    assert f"The clone is shallow: `{fetch}` " in refused.stderr
    git(clone, *fetch.split()[1:])
    planned = command.inside(*gate, "--dry-run", *words).stdout.splitlines()
    assert [re.search(r"# .+@", line) is not None for line in planned] == [False, True, True]
