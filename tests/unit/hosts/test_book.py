"""The user's hosts: names, the file that holds them, and what is refused."""

from pathlib import Path

import pytest

from app.errors import UserError
from app.grants import typed
from app.hosts.book import FILE_VARIABLE, HostEntry, add_host, find_host, read_hosts, remove_hosts
from workloads.catalog import UsageError

GPU1 = HostEntry(name="gpu1", address="ssh://me@gpu1?python=python3.11")


@pytest.fixture(autouse=True)
def book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "config" / "hosts.json"
    monkeypatch.setenv(FILE_VARIABLE, str(path))
    return path


def test_hosts_are_kept_in_a_file_that_only_the_user_reads(book: Path) -> None:
    assert read_hosts() == ()
    add_host(GPU1)
    add_host(HostEntry(name="box", address="docker://box"))
    assert [entry.name for entry in read_hosts()] == ["gpu1", "box"]
    assert find_host("gpu1") == GPU1
    assert GPU1.full_address.python == "python3.11"
    assert book.stat().st_mode & 0o077 == 0
    remove_hosts(["box"])
    assert read_hosts() == (GPU1,)


def test_an_address_is_a_host_without_adding_it() -> None:
    word = "ssh://me@gpu1:22?python=python3.12"
    with pytest.raises(
        UserError,
        match=r"nobody has allowed VariantScope to connect to "
        r"ssh://me@gpu1:22\?python=python3.12\.$",
    ):
        find_host(word)
    entry = find_host(word, typed)
    assert find_host(word) == entry, "it stays allowed"
    with pytest.raises(UserError, match="nobody has allowed"):
        find_host("ssh://me@gpu1:22?python=./evil")
    assert (entry.name, entry.full_address.port) == ("ssh://me@gpu1:22", 22)


def test_an_unknown_host_names_the_one_that_is_meant() -> None:
    add_host(GPU1)
    with pytest.raises(UsageError, match=r"no host 'gpu'\. Did you mean gpu1\?"):
        find_host("gpu")
    with pytest.raises(UsageError, match="no host 'ssh://gpu1'"):
        remove_hosts(["ssh://gpu1"])


@pytest.mark.parametrize(
    ("entry", "part"),
    [
        (GPU1, "already"),
        (HostEntry(name="-x", address="ssh://x"), "is not a host name"),
        (HostEntry(name="ssh://x", address="gpu2"), "the address comes second"),
        (HostEntry(name="x", address="x"), "not an address of a host"),
    ],
)
def test_a_wrong_host_is_not_added(entry: HostEntry, part: str) -> None:
    add_host(GPU1)
    with pytest.raises(UsageError, match=part):
        add_host(entry)
    assert read_hosts() == (GPU1,)


@pytest.mark.parametrize("text", ["{", "[1]", '[{"name": "gpu1"}]', "\xff"])
def test_a_damaged_file_is_said(book: Path, text: str) -> None:
    book.parent.mkdir()
    book.write_bytes(text.encode("latin-1"))
    with pytest.raises(UserError, match="correct it, or delete it"):
        read_hosts()
    with pytest.raises(UserError):
        add_host(GPU1)
    assert book.read_bytes() == text.encode("latin-1")
