"""The carrier of Slurm: what it asks srun for, how it waits in the queue, and what Slurm's texts mean."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from app.hosts.address import parse_address
from app.hosts.carriers import Carrier
from app.hosts.slurm import describe_wait, login_script, slurm_carrier
from tests.fakes.slurm import Cluster, install

_ECHO = "echo $SLURM_JOB_ID $CUDA_VISIBLE_DEVICES; while read -r line; do echo \"got '$line'\"; done"


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    """A cluster of one node."""
    return install(tmp_path / "slurm")


def start(cluster: Cluster, carrier: Carrier, script: str = _ECHO) -> "subprocess.Popen[str]":
    """Start the carrier's command as the program does."""
    return subprocess.Popen(
        carrier.command(script),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **cluster.environment},
        start_new_session=True,
    )


def wait_until(process: "subprocess.Popen[str]", carrier: Carrier, says: Callable[[str], bool]) -> str:
    """Return the first sentence of the carrier's stderr for which this is true."""
    assert process.stderr is not None
    return next(said for line in process.stderr if (said := carrier.on_stderr(line)) and says(said))


def here(options: str) -> Carrier:
    """The carrier of this machine's own Slurm."""
    return slurm_carrier(parse_address(f"slurm:?{options}"))


def test_a_job_waits_in_the_queue_with_its_place_and_then_has_stdin_and_gpus(cluster: Cluster) -> None:
    cluster.hold_queue(41, 42)
    carrier = here("gres=gpu:2&time=30")
    with start(cluster, carrier) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write("sent while it waits\n")
        process.stdin.flush()
        place = wait_until(process, carrier, lambda said: "place" in said)
        (job,) = cluster.jobs
        assert place == (
            f"Job {job} waits in the queue of Slurm's partition gpu: place 3 of 3 (Resources);"
            " expected to start at 2026-11-22 23:05:00 there."
        )
        cluster.release_queue()
        assert process.stdout.readline() == f"{job} 0,1\n"
        process.stdin.close()
        assert process.stdout.read() == "got 'sent while it waits'\n"
        process.stderr.read()
    assert (process.returncode, cluster.jobs) == (0, [])


@pytest.mark.parametrize(("chars", "shown"), [(60, "r" * 60), (61, "r" * 59 + "…")])
def test_a_part_of_the_queue_s_line_is_short(chars: int, shown: str) -> None:
    said = describe_wait(f"variantscope-queue 7|gpu|{'r' * chars}|N/A|2|3")
    assert said == f"Job 7 waits in the queue of Slurm's partition gpu: place 2 of 3 ({shown})."


def test_a_program_that_goes_away_leaves_no_job_in_the_queue(cluster: Cluster) -> None:
    cluster.hold_queue(41)
    carrier = here("gres=gpu:1")
    with start(cluster, carrier) as process:
        wait_until(process, carrier, lambda said: "place" in said)
        process.communicate(timeout=60)
    assert cluster.jobs == []


@pytest.mark.parametrize("late", [False, True])
def test_a_job_that_runs_ends_by_the_end_of_its_stdin(cluster: Cluster, late: bool) -> None:
    """Also where squeue knows of it only when it is asked again, two seconds later."""
    if late:
        cluster.answer_late()
    carrier = here("gres=gpu:1")
    with start(cluster, carrier, f"{_ECHO}; sleep {3 if late else 0.2}; echo ended by itself") as process:
        assert process.stdout is not None
        assert process.stdout.readline().endswith(" 0\n"), "it runs"
        said, _ = process.communicate("one\n", timeout=60)
    assert said.splitlines() == ["got 'one'", "ended by itself"]
    assert process.returncode == 0


def test_an_end_that_slurm_makes_is_said(cluster: Cluster) -> None:
    carrier = here("gres=gpu:1")
    with start(cluster, carrier) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        cluster.end_job("preemption")
        said = process.stderr.read()
    assert "on node1 was preempted" in carrier.explain(process.wait(), said)


def test_a_job_that_slurm_refuses_says_why(cluster: Cluster) -> None:
    carrier = here("gres=gpu:9")
    with start(cluster, carrier) as process:
        _, said = process.communicate()
    assert "no node with such GPUs" in carrier.explain(process.returncode, said)


_STEP = "slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-11-22T20:00:00"
_DENIED = "srun: error: Unable to allocate resources:"


@pytest.mark.parametrize(
    ("said", "part"),
    [
        (f"{_STEP} DUE TO TIME LIMIT ***\nsrun: error: n1: task 0: Terminated", "Job 7 on n1 reached its time limit"),
        (f"{_STEP} DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***", "Node n1 failed"),
        ("srun: error: Node failure on n1", "Node n1 failed"),
        (f"{_STEP} DUE TO JOB REQUEUE ***", "back into its queue"),
        (f"{_STEP} DUE to SIGNAL Terminated ***", "cancelled by scancel or an administrator"),
        (f"{_STEP} ***", "cancelled by scancel or an administrator"),
        ("srun: error: n1: task 0: Out Of Memory", "mem=32G"),
        ("srun: Job has been cancelled", "before it ran"),
        ("srun: Job allocation 7 has been revoked", "before it ran"),
        ("variantscope-queue no srun", "slurm+ssh://me@login has no srun"),
        (f"{_DENIED} Invalid account or account/partition combination specified", "sacctmgr"),
        (f"{_DENIED} Invalid partition name specified", "no such partition"),
        (f"{_DENIED} Invalid generic resource (gres) specification", "knows no such GPUs"),
        (f"{_DENIED} Requested time limit is invalid (missing or exceeds some limit)", "ask for less time"),
        (f"{_DENIED} Unable to contact slurm controller (connect failure)", "does not answer"),
        (f"{_DENIED} Invalid qos specification", "accept the job: Invalid qos specification."),
        ("srun: error: Invalid --time specification", "an option in the address: Invalid --time specification."),
        ("ssh: Could not resolve hostname login: Name or service not known", "There is no host login"),
    ],
)
def test_each_text_of_slurm_is_one_sentence(said: str, part: str) -> None:
    carrier = slurm_carrier(parse_address("slurm+ssh://me@login?gres=gpu:1"))
    assert part in carrier.explain(1, f"srun: job 7 queued and waiting for resources\n{said}\n")


def test_over_ssh_the_login_node_gets_the_script_and_the_options_as_one_word_each() -> None:
    address = parse_address("slurm+ssh://me@login?gres=gpu:1&constraint=a100%7Ch100")
    *ssh, script = slurm_carrier(address).command("echo 'a b'")
    assert ssh[0] == "ssh"
    assert ssh[-2:] == ["--", "me@login"]
    assert script.startswith("exec sh -c")
    words = login_script(address, "echo 'a b'")
    assert "--gres=gpu:1 --constraint='a100|h100' " in words
    assert "--unbuffered" not in words
    assert "--label" not in words


def test_without_slurm_it_is_said_where_srun_is_missing() -> None:
    carrier = here("gres=gpu:1")
    command = carrier.command("true")
    made = subprocess.run(command, capture_output=True, text=True, env={"PATH": "/usr/bin:/bin"}, check=False)
    assert "slurm: has no srun" in carrier.explain(made.returncode, made.stderr)
