"""Addresses of hosts: what they say, and what is refused with what to write instead."""

from dataclasses import replace

import pytest

from app.hosts.book import Address, is_address, parse_address
from workloads.catalog import UsageError


@pytest.mark.parametrize(
    ("word", "address"),
    [
        ("ssh://gpu1", Address(kind="ssh", host="gpu1")),
        ("ssh://me@gpu1:22", Address(kind="ssh", host="gpu1", user="me", port=22)),
        ("ssh://GPU_1.lab", Address(kind="ssh", host="GPU_1.lab")),
        ("ssh://me%40corp@login", Address(kind="ssh", host="login", user="me@corp")),
        ("ssh://[::1]:2222", Address(kind="ssh", host="::1", port=2222)),
        ("ssh://me@[fe80::1%25eth0]", Address(kind="ssh", host="fe80::1%eth0", user="me")),
        (
            "ssh://gpu1?python=/opt/py3.12/bin/python3",
            Address(kind="ssh", host="gpu1", python="/opt/py3.12/bin/python3"),
        ),
        ("ssh://gpu1?interpreter=~/tf%20env/c++", Address(kind="ssh", host="gpu1", interpreter="~/tf env/c++")),
        (
            "slurm+ssh://login?gres=gpu:2&time=1-00:30:00&constraint=a100%7Ch100",
            Address(
                kind="slurm",
                host="login",
                options=(("gres", "gpu:2"), ("time", "1-00:30:00"), ("constraint", "a100|h100")),
            ),
        ),
        ("ray+ssh://head", Address(kind="ray", host="head")),
        ("ray:?gpu=H100&cpus=4", Address(kind="ray", options=(("gpu", "H100"), ("cpus", "4")))),
        ("docker://my-box.1", Address(kind="docker", host="my-box.1")),
        ("slurm:?gres=gpu:1", Address(kind="slurm", options=(("gres", "gpu:1"),))),
        ("sh:", Address(kind="sh")),
        ("sh:?python=python3.11", Address(kind="sh", python="python3.11")),
    ],
)
def test_an_address_says_where_and_how(word: str, address: Address) -> None:
    assert is_address(word)
    assert parse_address(word) == address
    assert parse_address(address.label) == replace(address, python="", interpreter="", options=())


@pytest.mark.parametrize(
    ("word", "part"),
    [
        ("ray://head:10001", "write ray+ssh://"),
        ("http://gpu1", "write ssh://me@gpu1"),
        ("gpu1", "write ssh://me@gpu1"),
        ("ssh:gpu1", "write ssh://me@gpu1"),
        ("ssh://", "names no host"),
        ("ssh://-oProxyCommand=touch%20x", "names no host"),
        ("ssh://a;reboot", "names no host"),
        ("ssh://a b", "names no host"),
        ("ssh://-l@gpu1", "names no host"),
        ("ssh://@gpu1", "names no host"),
        ("ssh://$(id)@gpu1", "names no host"),
        ("ssh://gpu1:", "more than user, host and port"),
        ("ssh://gpu1:0", "more than user, host and port"),
        ("ssh://gpu1:65536", "more than user, host and port"),
        ("ssh://gpu1:22222222222", "more than user, host and port"),
        ("ssh://gpu1:²2", "more than user, host and port"),
        ("ssh://::1", "write ssh://[::1]"),
        ("ssh://[gpu1]", "names no host"),
        ("ssh://[::1]22", "names no host"),
        ("ssh://gpu1/home/me", "more than user, host and port"),
        ("ssh://gpu1?gres=gpu:1", "after ? you can write python, interpreter"),
        ("slurm+ssh://login?prolog=/x", "gres"),
        ("slurm+ssh://login?gres=--uid", "gres takes"),
        ("slurm+ssh://login?time=30&time=40", "time twice"),
        ("ssh://gpu1?python=-c", "python takes"),
        ("ssh://gpu1?python=a%0Ab", "python takes"),
        ("ssh://gpu1?python=", "python takes"),
        ("docker://me@box", "write docker://container"),
        ("docker://box:22", "write docker://container"),
        ("docker://--privileged", "names no host"),
        ("sh:gpu1", "no name follows it"),
    ],
)
def test_a_wrong_address_is_refused_with_what_to_write(word: str, part: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_address(word)
    assert part in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("word", ["ssh://me:hunter2@gpu1", "ssh://me:hunter2@gpu1?x=1", "ssh://me:hunter2@gpu1/x"])
def test_a_password_is_refused_and_not_shown(word: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_address(word)
    assert "hunter2" not in str(refused.value)
