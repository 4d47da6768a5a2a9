"""What an install will download, from a dry run of the installer; and how far it is, from what it prints."""

import json
import re
import tomllib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from app.environments.steps import install_command

_SIZE_S = 10.0
_SIZES_AT_ONCE = 16
_BYTES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}

_PIP_FILE = re.compile(r"^ *(?:Downloading|Using cached|Processing) (\S+)")
_PIP_BYTES = re.compile(r"^Progress ([0-9]+) of ")
_UV_BYTES = re.compile(r"([A-Za-z0-9][\w.-]*) +-{5,} +([0-9.]+) ([KMG]?i?B)/")
_UV_DONE = re.compile(r"^ *Downloaded ([A-Za-z0-9][\w.-]*)")
_ALL_DONE = re.compile("^(?:Installing collected packages|Prepared [0-9]+ package|Installed [0-9]+ package)")


@dataclass(frozen=True, slots=True)
class Download:
    """A package that an install needs; `size_bytes` is None where the index does not say it."""

    name: str
    version: str
    file: str
    size_bytes: int | None

    @property
    def pin(self) -> str:
        """Return the requirement of this version alone."""
        return f"{self.name}=={self.version}"


def total_bytes(downloads: Sequence[Download]) -> int | None:
    """Return the size of all, None if one is unknown."""
    sizes = [each.size_bytes for each in downloads]
    return None if None in sizes else sum(size for size in sizes if size is not None)


def dry_run_command(folder: Path, requirements: Sequence[str], uv: str | None, pip: Sequence[str]) -> list[str]:
    """Return the command that finds what an install into an empty environment needs; it writes a file into its folder.

    Args:
        folder: The environment.
        requirements: What is to be installed.
        uv: Path of uv, which is used where there is one; else pip.
        pip: The command of another environment's pip, in place of its own.
    """
    python = folder / "bin" / "python"
    if uv:
        listed = folder / "requirements.in"
        listed.write_text("".join(f"{each}\n" for each in requirements), encoding="utf-8")
        return [
            *(uv, "pip", "compile", "--quiet", "--no-header", "--format", "pylock.toml"),
            *("--python", str(python), "--output-file", str(_report(folder, uv)), str(listed)),
        ]
    # Of packages of an index that has no metadata beside them, only a part is read.
    options = ["--quiet", "--dry-run", "--ignore-installed", "--use-feature=fast-deps"]
    return install_command(python, requirements, None, *options, "--report", str(_report(folder, uv)), pip=pip)


def _report(folder: Path, uv: str | None) -> Path:
    # uv writes files of no other name: https://packaging.python.org/specifications/pylock-toml
    return folder / ("pylock.toml" if uv else "report.json")


def read_downloads(folder: Path, uv: str | None) -> list[Download]:
    """Return what the dry run found, with the sizes that the index says."""
    report = _report(folder, uv).read_text(encoding="utf-8")
    found = _read_lock(report) if uv else _read_report(report)
    with ThreadPoolExecutor(_SIZES_AT_ONCE) as pool:
        sizes = pool.map(lambda each: _largest(map(_size_bytes, each[2])), found)
        return [
            Download(name, version, _file_name(urls[0]) if urls else name, size)
            for (name, version, urls), size in zip(found, sizes, strict=True)
        ]


def _largest(sizes: Iterable[int | None]) -> int | None:
    return max((size for size in sizes if size is not None), default=None)


_Found = tuple[str, str, list[str]]
"""Name, version, and the files of which one is fetched."""


def _read_report(text: str) -> list[_Found]:
    """Read pip's report (https://pip.pypa.io/en/stable/reference/installation-report)."""
    items = [(item["metadata"], item["download_info"]["url"]) for item in json.loads(text)["install"]]
    return [(metadata["name"], metadata["version"], [url]) for metadata, url in items]


def _read_lock(text: str) -> list[_Found]:
    """Read a lock file: uv lists all wheels that fit this machine, of which the largest counts."""
    packages = tomllib.loads(text).get("packages", [])
    return [
        (each["name"], each.get("version", ""), [_location(file) for file in each.get("wheels") or _other_files(each)])
        for each in packages
    ]


def _other_files(package: dict[str, dict[str, str]]) -> list[dict[str, str]]:
    return [package[kind] for kind in ("sdist", "archive") if kind in package]


def _location(file: dict[str, str]) -> str:
    return file.get("url") or file.get("path", "")


def _file_name(url: str) -> str:
    return unquote(urlsplit(url).path).rpartition("/")[2]


def _size_bytes(url: str) -> int | None:
    """Return the size of a file, asked of its server with the user's proxies; None where that does not say it."""
    from urllib.request import Request, urlopen  # here, for they take their time

    parts = urlsplit(url)
    try:
        if parts.scheme in ("", "file"):
            return Path(unquote(parts.path)).stat().st_size
        if parts.scheme not in ("http", "https"):
            return None
        with urlopen(Request(url, method="HEAD"), timeout=_SIZE_S) as answer:  # noqa: S310 - the scheme is checked
            size = answer.headers.get("Content-Length", "")
    except (OSError, ValueError):
        return None
    return int(size) if size.isdecimal() else None


class DownloadProgress:
    """Reads from an installer's output how many bytes have come."""

    def __init__(self, downloads: Sequence[Download], report: Callable[[str, int, int | None], None]) -> None:
        """Take the downloads, and what gets the title, the bytes that have come and those of all."""
        self._sizes = {each.file: each.size_bytes or 0 for each in downloads}
        self._by_name = {each.name: each.size_bytes or 0 for each in downloads}
        self._total = total_bytes(downloads)
        self._report = report
        self._title = "Downloading"
        self._come: dict[str, int] = {}
        self._current = ""

    def __call__(self, text: str, _seconds: int) -> None:
        """Take what was printed anew."""
        for line in text.splitlines():
            self._take(line)
        come = sum(self._come.values())
        self._report(self._title, come if self._total is None else min(come, self._total), self._total)

    def _take(self, line: str) -> None:
        if file := _PIP_FILE.match(line):
            self._come[self._current] = self._sizes.get(self._current, 0)
            self._current = _file_name(file[1])
        elif part := _PIP_BYTES.match(line):
            self._come[self._current] = int(part[1])
        elif done := _UV_DONE.match(line):
            self._come[done[1]] = self._by_name.get(done[1], 0)
        elif _ALL_DONE.match(line):
            self._come = dict(self._by_name)
            self._title = "Installing"
        else:
            for name, number, unit in _UV_BYTES.findall(line):
                self._come[name] = int(float(number) * _BYTES.get(unit, 1))
