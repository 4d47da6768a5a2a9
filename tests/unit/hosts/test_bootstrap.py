"""What happens on a host before the agent is there: finding a Python, receiving what is missing, and what is wrong."""

import stat
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from app import units
from app.errors import UserError
from app.hosts import bootstrap
from app.hosts.address import parse_address
from app.hosts.bootstrap import HostFacts, agent_name
from app.hosts.carriers import Carrier
from app.hosts.channel import ProcessChannel


def prepare(
    environment: Mapping[str, str], *, python: str = sys.executable, prefix: tuple[str, ...] = ("sh", "-c")
) -> tuple[bootstrap.Prepared, list[str], list[bytes]]:
    """Prepare this machine; return what was found, what was told, and what came after: a module that prints a line."""
    sentences: list[str] = []
    address = replace(parse_address("sh:"), python=python)
    carrier = Carrier(address=address, prefix=prefix, environment=environment)
    channel = ProcessChannel(carrier, bootstrap.script(address, "platform"))
    try:
        lines = channel.lines()
        prepared = bootstrap.prepare(channel, lines, "gpu1", sentences.append)
        return prepared, sentences, list(lines)
    finally:
        channel.cut()


@pytest.fixture
def cache(tmp_path: Path) -> Mapping[str, str]:
    return {"XDG_CACHE_HOME": str(tmp_path / "cache")}


def test_the_agent_is_sent_once_and_nobody_else_can_read_it(cache: Mapping[str, str], tmp_path: Path) -> None:
    prepared, sentences, lines = prepare(cache)
    assert prepared.sent_bytes > 100_000
    assert sentences == [f"Sending the agent to gpu1 ({units.byte_size(prepared.sent_bytes)}) …"]
    assert lines, "the module has begun, on the same channel"
    folder = tmp_path / "cache" / "variantscope" / "agents"
    assert (folder / agent_name() / "app" / "telemetry" / "sampler.py").is_file()
    assert (folder / agent_name() / "workloads" / "entry.py").is_file()
    assert not (folder / agent_name() / "app" / "gui").exists()
    assert not [path for path in folder.rglob("*") if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO)]
    assert prepare(cache)[0].sent_bytes == 0, "it is there"
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []


def test_a_damaged_or_changed_agent_is_sent_anew(cache: Mapping[str, str], tmp_path: Path) -> None:
    sent_bytes = prepare(cache)[0].sent_bytes
    agent = tmp_path / "cache" / "variantscope" / "agents" / agent_name()
    entry = agent / "workloads" / "entry.py"
    (agent / "app" / "agent" / "__main__.py").unlink()
    assert prepare(cache)[0].sent_bytes == sent_bytes
    text = entry.read_text()
    entry.write_text("raise SystemExit('planted')\n")
    assert prepare(cache)[0].sent_bytes == sent_bytes
    assert entry.read_text() == text
    assert prepare(cache)[0].sent_bytes == 0


def test_nothing_is_started_from_a_folder_that_others_can_write(cache: Mapping[str, str], tmp_path: Path) -> None:
    sent_bytes = prepare(cache)[0].sent_bytes
    folder = tmp_path / "cache" / "variantscope" / "agents"
    (folder / agent_name()).chmod(0o777)
    assert prepare(cache)[0].sent_bytes == sent_bytes
    folder.chmod(0o777)
    with pytest.raises(UserError, match=f"^Others can write in {folder} on gpu1"):
        prepare(cache)


def test_what_a_login_shell_prints_is_skipped(cache: Mapping[str, str]) -> None:
    chatty = ("sh", "-c", "echo Welcome; printf 'no end of line'; exec sh -c \"$0\"")
    assert prepare(cache, prefix=chatty)[2]


def test_one_that_prints_without_end_is_not_listened_to(cache: Mapping[str, str]) -> None:
    with pytest.raises(UserError, match="gpu1 prints so much before a command runs"):
        prepare(cache, prefix=("sh", "-c", 'yes Welcome; exec sh -c "$0"'))


def test_a_host_without_a_python_says_what_it_has(cache: Mapping[str, str], tmp_path: Path) -> None:
    old = tmp_path / "python3.8"
    old.write_text("#!/bin/sh\necho 3.8\nexit 1\n")
    old.chmod(0o700)
    with pytest.raises(UserError, match=r"gpu1 needs Python 3\.11 or newer and has only 3\.8: install one"):
        prepare(cache, python=str(old))
    with pytest.raises(UserError, match=r"gpu1 needs Python 3\.11 or newer and has none"):
        prepare(cache, python="no-such-python")


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"The agent cannot be stored on gpu1 in .*agents \(Not a directory\)"):
        prepare({"XDG_CACHE_HOME": str(tmp_path / "file")})


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        ("full", "There is no space left on gpu1 for the agent, 3.0\xa0MiB in /u/me/.cache: free some."),
        ("damaged", "What was sent to gpu1 arrived damaged; try again."),
        ("library", "A library of the agent cannot be loaded on gpu1"),
        ("new", "gpu1 cannot run the agent: new"),
    ],
)
def test_what_goes_wrong_there_is_a_sentence(error: str, sentence: str) -> None:
    facts = HostFacts(error=error, detail="failed to map segment", folder="/u/me/.cache")
    assert bootstrap._sentence(facts, "gpu1").startswith(sentence)


def test_the_archive_is_the_same_each_time() -> None:
    files = bootstrap._agent_files()
    assert bootstrap._archive(files) == bootstrap._archive(dict(sorted(files.items(), reverse=True)))
    assert {"app/agent/__main__.py", "app/telemetry/sampler.py", "workloads/worker.py"} <= files.keys()
    assert not [name for name in files if name.startswith(("app/gui", "app/cli", "app/viewmodels"))]


def test_libraries_that_are_missing_are_sent_from_here(cache: Mapping[str, str], tmp_path: Path) -> None:
    """The host's Python is bare, and of the same kind as this one."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True)
    prepared, _, lines = prepare({**cache, "PYTHONPATH": ""}, python=str(tmp_path / "bare" / "bin" / "python"))
    assert set(prepared.facts.libraries.values()) == {""}
    assert lines
    folder = tmp_path / "cache" / "variantscope" / "agents"
    assert {path.name for path in folder.glob("*/*")} >= {"msgspec", "psutil", "pynvml.py"}


@pytest.mark.parametrize(
    ("tag", "platform"),
    [
        (".cpython-312-x86_64-linux-gnu.so x86_64", "x86_64-unknown-linux-gnu"),
        (".cpython-312-aarch64-linux-musl.so aarch64", "aarch64-unknown-linux-musl"),
        (".cpython-313-darwin.so arm64", "aarch64-apple-darwin"),
    ],
)
def test_other_systems_get_wheels_of_their_own(tag: str, platform: str) -> None:
    command = bootstrap._installer(HostFacts(python="3.12.1", tag=tag))
    assert command[command.index("--python-version") + 1] == "3.12"
    assert command[command.index("--python-platform") + 1] == platform


def test_where_nothing_can_be_fetched_the_host_can_be_helped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(bootstrap, "_installer", lambda _: ["false"])
    facts = HostFacts(python="3.12.1", executable="/usr/bin/python3.12", tag=".cpython-312-other-linux-gnu.so other")
    with pytest.raises(UserError, match=r"with /usr/bin/python3\.12 -m pip install --user msgspec=="):
        bootstrap._libraries_for(facts, "gpu1", lambda _: None)
