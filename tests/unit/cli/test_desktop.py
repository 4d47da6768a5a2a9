"""The desktop's menu entry, icon and types of files, written under a folder of the test's own."""

import configparser
import shlex
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from app.cli.desktop import desktop_entry, start_command
from app.cli.main import main
from app.storage.store import Store

SPACE = "{http://www.freedesktop.org/standards/shared-mime-info}"
FILES = {
    "applications/variantscope.desktop",
    "icons/hicolor/scalable/apps/variantscope.svg",
    "mime/packages/variantscope.xml",
}


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make XDG_DATA_HOME a folder of the test's own, which does not exist yet."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path / "data"


def written(data: Path) -> set[str]:
    """Return the files there that are ours by their name; tools of the desktop add their own."""
    return {path.relative_to(data).as_posix() for path in data.rglob("variantscope.*")}


def entry_of(text: str) -> configparser.SectionProxy:
    parser = configparser.RawConfigParser(delimiters="=", comment_prefixes="#")
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(text)
    return parser["Desktop Entry"]


def test_it_is_installed_and_taken_away_again(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--install-desktop"]) == 0
    assert capsys.readouterr().out.startswith(
        "VariantScope is in the desktop's menu and opens files that end in .vscope"
    )
    assert written(data) == FILES
    assert main(["--install-desktop"]) == 0
    assert main(["--uninstall-desktop"]) == 0
    assert written(data) == set()
    assert main(["--uninstall-desktop"]) == 0
    assert "There is no entry in the desktop's menu" in capsys.readouterr().out


def test_the_entry_starts_this_program_from_any_folder(data: Path, tmp_path: Path) -> None:
    assert main(["--install-desktop"]) == 0
    entry = entry_of((data / "applications" / "variantscope.desktop").read_text())
    *command, field = shlex.split(entry["Exec"])
    assert (command, field) == (start_command(), "%f")
    assert Path(entry["TryExec"]).is_absolute()
    (icon,) = data.rglob("*.svg")
    assert icon.stem == entry["Icon"]
    done = subprocess.run(
        [*command, "--version"], cwd=tmp_path, capture_output=True, text=True, timeout=240, check=True
    )
    assert done.stdout.startswith("VariantScope ")


@pytest.mark.skipif(shutil.which("desktop-file-validate") is None, reason="needs desktop-file-validate")
def test_the_entry_is_valid(data: Path) -> None:
    assert main(["--install-desktop"]) == 0
    entry = data / "applications" / "variantscope.desktop"
    done = subprocess.run(["desktop-file-validate", entry], capture_output=True, text=True, timeout=240, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_an_odd_path_is_quoted_as_the_specification_says() -> None:
    entry = entry_of(desktop_entry([r'/a b/$x"y\z/100%/variantscope']))
    assert entry["Exec"] == r'"/a b/\\$x\\"y\\\\z/100%%/variantscope" %f'
    assert entry["TryExec"] == r'/a b/$x"y\\z/100%/variantscope'


def test_every_type_of_the_entry_is_described(data: Path, database_path: Path) -> None:
    assert main(["--install-desktop"]) == 0
    types = ElementTree.parse(data / "mime" / "packages" / "variantscope.xml").getroot()
    named = {each.get("type") for each in types.findall(f"{SPACE}mime-type")}
    entry = entry_of((data / "applications" / "variantscope.desktop").read_text())
    assert set(entry["MimeType"].rstrip(";").split(";")) == named
    assert {each.get("pattern") for each in types.iter(f"{SPACE}glob")} == {"*.vscope", "*.vtrace"}
    Store.open(database_path).close()
    (header,) = (each for each in types.iter(f"{SPACE}match") if each.get("type") == "big32")
    start = int(header.get("offset", ""))
    assert int(header.get("value", ""), 16) == int.from_bytes(database_path.read_bytes()[start : start + 4], "big")


def test_a_start_from_a_cache_is_refused(
    data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("app.cli.desktop.checkout_root", lambda: None)
    monkeypatch.setattr(sys, "prefix", "/somewhere/uv/archive-v0/AbC")
    assert main(["--install-desktop"]) == 2
    assert "install the program first, with `uv tool install`" in capsys.readouterr().err
    assert not data.exists()


def test_a_folder_that_cannot_be_written_is_named(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data.write_text("a file")
    assert main(["--install-desktop"]) == 1
    assert capsys.readouterr().err.startswith(f"{data}/applications/variantscope.desktop cannot be written (Not a dir")


def test_a_file_opens_in_the_window(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from app.cli.commands import UpperLayers

    opened: list[object] = []

    def window(database: Path | None, sample_ms: float | None, first: object) -> int:
        opened.append((database, first))
        return 0

    file = tmp_path / "list"
    file.write_text("")
    upper = UpperLayers(open_window=window, has_display=True)
    assert main([str(file)], upper) == 0
    assert main(["--db", "other.db", "open", str(file)], upper) == 0
    assert opened == [(None, file), (Path("other.db"), file)]
    assert main(["open", str(tmp_path / "none")], upper) == 1
    assert main([str(tmp_path / "none.vscope")], upper) == 1
    assert main([str(file)]) == 1
    said = capsys.readouterr().err
    assert f"There is no file {tmp_path / 'none'}.\n" in said
    assert f"There is no file {tmp_path / 'none.vscope'}.\n" in said
    assert f"`python -m app import {file}` adds the runs" in said
