"""`--install-desktop`: the program in the desktop's menu, its icon, and its types of files; and taking them away.

Sources: https://specifications.freedesktop.org/desktop-entry-spec/latest/ and
https://specifications.freedesktop.org/shared-mime-info-spec/latest/
"""

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import quoteattr

from app.errors import UserError, write_error
from app.paths import DESKTOP_NAME, PROGRAM, RESOURCES, ROOT, RUNS_SUFFIX, TRACE_SUFFIX, checkout_root
from app.storage.migrations import APPLICATION_ID
from workloads.catalog import UsageError

_RUNS_TYPE = "application/vnd.variantscope.runs+sqlite3"
_TRACE_TYPE = "application/vnd.variantscope.trace"

_ENTRY = """[Desktop Entry]
Type=Application
Name=VariantScope
GenericName=Profiler of training runs
Comment=Compare variants of training workloads on this GPU
Exec={command} %f
TryExec={program}
Icon={name}
Terminal=false
StartupNotify=true
StartupWMClass=VariantScope
Categories=Development;Profiling;
Keywords=TensorFlow;GPU;benchmark;profiling;
MimeType={types};
"""

_TYPES = """<?xml version="1.0" encoding="UTF-8"?>
<mime-info xmlns="http://www.freedesktop.org/standards/shared-mime-info">
  <mime-type type={runs}>
    <comment>Runs of VariantScope</comment>
    <sub-class-of type="application/vnd.sqlite3"/>
    <icon name={name}/>
    <glob pattern={runs_glob}/>
    <magic priority="60">
      <match type="string" value="SQLite format 3" offset="0">
        <match type="big32" value="{application_id}" offset="68"/>
      </match>
    </magic>
  </mime-type>
  <mime-type type={trace}>
    <comment>Telemetry of VariantScope</comment>
    <sub-class-of type="text/plain"/>
    <icon name={name}/>
    <glob pattern={trace_glob}/>
  </mime-type>
</mime-info>
"""

_UPDATES = (("update-mime-database", "mime"), ("update-desktop-database", "applications"))
"""What tells the desktop of new files, and the folder that it reads."""


def install_desktop() -> str:
    """Write the entry, the icon and the types of files for this user; return what was done in one line.

    Raises:
        UsageError: There is nothing to write: another system, or an install that does not stay.
        UserError: A file cannot be written.
    """
    _check_system()
    if checkout_root() is None and _is_temporary(Path(sys.prefix)):
        raise UsageError(
            "This start is from a cache that is emptied now and then; install the program first, "
            "with `uv tool install` or `pipx install`, then use --install-desktop."
        )
    data = _data_folder()
    for path, text in _files(data).items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise write_error(path, error) from None
    missing = _tell_desktop(data)
    note = f" {' and '.join(missing)} is missing here, so files may not know their program." if missing else ""
    return (
        f"VariantScope is in the desktop's menu and opens files that end in {RUNS_SUFFIX} or {TRACE_SUFFIX}; "
        f"`{PROGRAM} --uninstall-desktop` takes that away.{note}"
    )


def uninstall_desktop() -> str:
    """Delete what `install_desktop` wrote; return what was done in one line. Raises what that does."""
    _check_system()
    data = _data_folder()
    existing = [path for path in _files(data) if path.exists()]
    for path in existing:
        try:
            path.unlink()
        except OSError as error:
            raise UserError(
                f"{path} cannot be deleted ({error.strerror}); check the permissions of its folder."
            ) from None
    if not existing:
        return f"There is no entry in the desktop's menu; `{PROGRAM} --install-desktop` makes one."
    _tell_desktop(data)
    return "VariantScope is no longer in the desktop's menu; its databases and the program itself are untouched."


def _check_system() -> None:
    if sys.platform != "linux":
        raise UsageError("--install-desktop is for Linux desktops; elsewhere start the program from a terminal.")


def _is_temporary(prefix: Path) -> bool:
    """Return whether an environment is of `uvx` or `pipx run`, which delete it some day."""
    return any(part == ".cache" or part.startswith("archive-v") for part in prefix.parts)


def _data_folder() -> Path:
    """Return XDG_DATA_HOME (https://specifications.freedesktop.org/basedir-spec/latest/)."""
    import platformdirs

    return platformdirs.user_data_path()


def _files(data: Path) -> dict[Path, str]:
    """Return the text of each file by its path.

    A database of this program is known by its header: https://www.sqlite.org/fileformat.html#application_id
    """
    icon = RESOURCES / "icons" / f"{DESKTOP_NAME}.svg"
    return {
        data / "applications" / f"{DESKTOP_NAME}.desktop": desktop_entry(start_command()),
        data / "icons" / "hicolor" / "scalable" / "apps" / icon.name: icon.read_text(encoding="utf-8"),
        data / "mime" / "packages" / f"{DESKTOP_NAME}.xml": _TYPES.format(
            name=quoteattr(DESKTOP_NAME),
            runs=quoteattr(_RUNS_TYPE),
            runs_glob=quoteattr(f"*{RUNS_SUFFIX}"),
            trace=quoteattr(_TRACE_TYPE),
            trace_glob=quoteattr(f"*{TRACE_SUFFIX}"),
            application_id=f"{APPLICATION_ID:#x}",
        ),
    }


def start_command() -> list[str]:
    """Return the words that start this install from any folder: its script, or its Python and the checkout's module."""
    script = Path(sysconfig.get_path("scripts")) / "variantscope"
    if checkout_root() is None and script.exists():
        return [str(script)]
    return [sys.executable, str(ROOT / "variantscope.py")]


def desktop_entry(command: Sequence[str]) -> str:
    """Return the text of the entry that starts this command."""
    return _ENTRY.format(
        command=" ".join(map(_quote_argument, command)),
        program=_escape(command[0]),
        name=DESKTOP_NAME,
        types=f"{_RUNS_TYPE};{_TRACE_TYPE}",
    )


def _quote_argument(word: str) -> str:
    r"""Quote a word of the `Exec` key: `"`, `` ` ``, `$` and `\` get a backslash, and `%` is doubled."""
    escaped = "".join(f"\\{letter}" if letter in '"`$\\' else letter for letter in word.replace("%", "%%"))
    return _escape(f'"{escaped}"')


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _tell_desktop(data: Path) -> list[str]:
    """Let the desktop read its folders again; return the programs for this that are not installed."""
    missing = []
    for program, folder in _UPDATES:
        path = shutil.which(program)
        if path is None:
            missing.append(program)
        elif (data / folder).is_dir():
            # What it says of other programs' files is not of ours.
            subprocess.run([path, os.fspath(data / folder)], capture_output=True, check=False)
    return missing
