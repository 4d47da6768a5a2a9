"""Grants: what needs one, who is asked, and the file that holds them."""

import stat
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from app.errors import UserError
from app.grants import (
    Grant,
    grants_path,
    interpreter_grant,
    read_grants,
    refuse,
    require,
    source_grant,
    typed,
    variant_grants,
)
from workloads.interpreter import DEFAULT_VARIABLE
from workloads.protocol import Source, Variant


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "config" / "grants.json"
    monkeypatch.setenv("VARIANTSCOPE_GRANTS", str(path))
    return path


PYTHON = Grant(kind="interpreter", value="/opt/tf/bin/python")


def test_what_was_allowed_once_is_not_asked_again(file: Path) -> None:
    asked: list[Sequence[Grant]] = []

    def consent(grants: Sequence[Grant]) -> bool:
        asked.append(grants)
        return True

    host = Grant(kind="host", value="ssh://gpu1")
    require([PYTHON], consent)
    require([PYTHON, host, host], consent)
    require([PYTHON, host], refuse)
    assert asked == [[PYTHON], [host]]
    assert read_grants() == (PYTHON, host)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "other",
    [
        Grant(kind="interpreter", value="/opt/tf/bin/python", host="gpu1"),
        Grant(kind="interpreter", value="/opt/tf/bin/../bin/python"),
        Grant(kind="host", value="/opt/tf/bin/python"),
    ],
)
def test_a_grant_is_for_one_thing_in_one_place(other: Grant) -> None:
    require([PYTHON], typed)
    with pytest.raises(UserError, match="nobody has allowed"):
        require([other], refuse)


def test_a_text_is_allowed_where_it_was_read() -> None:
    here, there = (source_grant(Source(path=path, text="x = 1\n")) for path in ("/mine/a.py", "/theirs/a.py"))
    require([here], typed)
    with pytest.raises(UserError, match=rf"run the code of /theirs/a.py \(SHA-256 {here.value}\)\.$"):
        require([there], refuse)


@pytest.mark.parametrize("python", ["", "3.12", sys.executable, sys.prefix])
def test_what_is_the_program_s_own_needs_none(python: str) -> None:
    assert interpreter_grant(python, "") is None


def test_a_variant_needs_its_python_and_its_packages() -> None:
    variant: Variant = {"interpreter": PYTHON.value, "packages": "torch==2.9.* numpy<2"}
    python, packages = variant_grants(variant, "gpu1")
    assert (python.host, packages.host) == ("gpu1", "gpu1")
    assert packages.request == "install and run the packages torch==2.9.* numpy<2 on gpu1"
    assert packages.command.endswith("run dummy -s 'packages=torch==2.9.* numpy<2' --on gpu1")
    assert variant_grants({"interpreter": "3.12", "packages": ""}, "") == []


def test_a_request_is_one_plain_line() -> None:
    grant = Grant(kind="interpreter", value="/a\n  connect to b\x1b[2J\u202e/python", host="gpu1")
    assert grant.request == "run /a\\n  connect to b\\u001b[2J\\u202e/python as Python on gpu1"
    assert grant.command.endswith("--on gpu1")


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/venv\u200b/python", r"run /venv\u200b/python as Python"),
        ("/ve\u00adnv/python", r"run /ve\xadnv/python as Python"),
        ("/venv\U000e0041/python", r"run /venv\U000e0041/python as Python"),
        ("/v\u0435nv/python", "run /v\u0435nv/python as Python (\u0435 is CYRILLIC SMALL LETTER IE)"),
        ("/venv\u3164/python", "run /venv\u3164/python as Python (\u3164 is HANGUL FILLER)"),
        ("/é/python", "run /é/python as Python (é is LATIN SMALL LETTER E WITH ACUTE)"),
    ],
)
def test_what_looks_like_another_path_is_told_from_it(path: str, words: str) -> None:
    assert Grant(kind="interpreter", value=path).request == words


@pytest.mark.parametrize(("count", "rest"), [(8, ""), (9, ", 1 more are not ASCII")])
def test_no_more_characters_are_named_than_can_be_read(count: int, rest: str) -> None:
    path = "/" + "".join(chr(0x0430 + number) for number in range(count))
    request = Grant(kind="interpreter", value=path).request
    assert request.count(" is CYRILLIC") == 8
    assert request.endswith(f"{rest})")


def test_the_python_that_the_user_s_variable_names_needs_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert interpreter_grant("/opt/tf/bin/python", "") == PYTHON
    monkeypatch.setenv(DEFAULT_VARIABLE, PYTHON.value)
    assert interpreter_grant(PYTHON.value, "") is None
    assert interpreter_grant(PYTHON.value, "gpu1") is not None, "it is of this machine"


@pytest.mark.parametrize(("count", "fits"), [(20, True), (21, False)])
def test_no_question_has_more_than_can_be_seen(count: int, fits: bool) -> None:
    asked: list[Sequence[Grant]] = []

    def consent(grants: Sequence[Grant]) -> bool:
        asked.append(grants)
        return False

    many = [Grant(kind="interpreter", value=f"/{number}/python") for number in range(count)]
    with pytest.raises(UserError):
        require(many, consent)
    assert bool(asked) == fits
    require(many, typed)
    assert len(read_grants()) == count, "typed, they are as many as are wanted"


def test_a_damaged_or_closed_file_is_said(file: Path) -> None:
    require([PYTHON], typed)
    file.write_text("[")
    with pytest.raises(UserError, match=f"^{file} is not a list of grants .*: delete it, and VariantScope asks again"):
        require([PYTHON], typed)
    assert grants_path() == file
