"""Bring the agent to a host over the channel on which it will then speak, by the hash of its sources."""

import hashlib
import importlib.metadata
import io
import os
import re
import shlex
import shutil
import subprocess
import zipfile
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import msgspec

from app import units
from app.environments.packages import find_uv
from app.errors import UserError
from app.hosts.address import Address
from app.hosts.channel import Channel
from app.paths import ROOT
from app.plain import one_line
from workloads.catalog import DEFAULT_VARIABLE
from workloads.protocol import Bytes, Name, Text

MARK = "@variantscope-host@"

SCRIPT = """\
{variables}
set --
t='import sys; print("%d.%d" % sys.version_info[:2]); sys.exit(sys.version_info < (3, 11))'
for p in {pythons}; do
 v=$("$p" -c "$t" </dev/null 2>/dev/null) &&
 exec "$p" -P -c {loader} {arguments}
 [ -z "$v" ] || set -- "$@" "$v"
done
printf '\\n%s{{"error":"python","detail":"%s"}}\\n' {mark} "$*"
"""
"""`variables` are commands; `pythons`, `loader`, `arguments` and `mark` are quoted words of the shell."""

PYTHONS = (
    "python3.13",
    "python3.12",
    "python3.11",
    "python3",
    '"$HOME"/.local/bin/python3.1[1-9]',
    '"$HOME"/.local/share/uv/python/cpython-3.1[1-9]*/bin/python3',
    "/opt/python3.1[1-9]/bin/python3",
    "/usr/local/bin/python3.1[1-9]",
)
"""Words of the shell for Pythons that a host may have; a pattern that fits none is no program."""

LOADER = """\
import errno, fcntl, json, os, sys, time
from importlib.machinery import EXTENSION_SUFFIXES

mark, agent, libraries, *module = sys.argv[1:]
libraries = libraries.split(",")
root = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "variantscope", "agents")
umask = os.umask(0o077)


def say(**what):
    text = memoryview(("\\n" + mark + json.dumps(what) + "\\n").encode())
    while text:
        text = text[os.write(1, text):]


def fail(error, detail=""):
    say(error=error, detail=str(detail), folder=root)
    sys.exit(0)


def version(_module, distribution):
    # Without importing anything: what is here already is started within half a second.
    begin, end = distribution.replace("-", "_") + "-", ".dist-info"
    for folder in sys.path:
        for name in os.listdir(folder) if os.path.isdir(folder) else ():
            if name.lower().startswith(begin) and name.endswith(end):
                return name[len(begin):-len(end)]
    return ""


def read(size):
    parts = []
    while size > 0:
        part = os.read(0, min(size, 1 << 20))
        if not part:
            sys.exit(0)
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def read_line():
    line = b""
    while not line.endswith(b"\\n"):
        line += read(1)
    return json.loads(line)


def is_own(folder):
    status = os.lstat(folder)
    return status.st_uid in (0, os.geteuid()) and not status.st_mode & 0o022


def is_whole(name):
    # By its name, which is the beginning of the hash of its files; Python's own copies of them are not sent.
    import hashlib

    digest, folder, files = hashlib.sha256(), os.path.join(root, name), []
    for parent, folders, names in os.walk(folder):
        folders[:] = [child for child in folders if child != "__pycache__"]
        files += [os.path.join(parent, child) for child in names]
    for path, file in sorted((os.path.relpath(file, folder), file) for file in files):
        with open(file, "rb") as opened:
            data = opened.read()
        digest.update(("%s\\0%d\\0" % (path, len(data))).encode() + data)
    return is_own(folder) and digest.hexdigest().startswith(name)


def remove_damaged(names):
    import shutil

    for name in names:
        if os.path.isdir(os.path.join(root, name)) and not is_whole(name):
            shutil.rmtree(os.path.join(root, name), ignore_errors=True)


def unpack(name, data):
    import io, tempfile, zipfile

    with tempfile.TemporaryDirectory(prefix=".new-", dir=root) as folder:
        inner = os.path.join(folder, name)
        zipfile.ZipFile(io.BytesIO(data)).extractall(inner)
        try:
            os.rename(inner, os.path.join(root, name))
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST) or not is_whole(name):
                raise


def hold(name, how):
    file = os.open(os.path.join(root, name + ".lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(file, how)
        return file
    except OSError:
        os.close(file)
        return None


def remove_unused(used):
    import shutil

    for name in os.listdir(root):
        lock = os.path.join(root, name + ".lock")
        if name.endswith(".lock") or name.startswith(".") or name in used or not os.path.exists(lock):
            continue
        if time.time() - os.stat(lock).st_mtime > 30 * 86400:
            file = hold(name, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if file is not None:
                shutil.rmtree(os.path.join(root, name), ignore_errors=True)
                os.unlink(lock)
                os.close(file)


try:
    os.makedirs(root, exist_ok=True)
    if not is_own(root):
        fail("shared")
    disk = os.statvfs(root)
    names = [name for name in os.listdir(root) if not name.startswith(".") and not name.endswith(".lock")]
    remove_damaged(names)
    names = [name for name in names if os.path.isdir(os.path.join(root, name))]
except OSError as error:
    fail("folder", error.strerror)
say(
    python=sys.version.split()[0],
    executable=sys.executable,
    tag="%s %s" % (EXTENSION_SUFFIXES[0], os.uname().machine),
    libraries={name: version(*name.split("=")) for name in libraries},
    free_bytes=disk.f_bavail * disk.f_frsize,
    folder=root,
    known=names,
)
order = read_line()
used = [name for name in (agent, order["packages"]) if name]
try:
    for name, size, digest in order["files"]:
        data = read(size)
        import hashlib

        if hashlib.sha256(data).hexdigest() != digest:
            fail("damaged")
        unpack(name, data)
    for name in used:
        file = hold(name, fcntl.LOCK_SH | fcntl.LOCK_NB)
        if file is not None:
            os.utime(file)
            os.set_inheritable(file, True)
    if order["files"]:
        remove_unused(used)
except OSError as error:
    fail("full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "folder", error.strerror)
paths = [os.path.join(root, name) for name in used]
if order["files"]:
    sys.path[:0] = paths
    for name in libraries:
        try:
            __import__(name.split("=")[0])
        except Exception as error:
            fail("library", error)
paths += filter(None, [os.environ.get("PYTHONPATH")])
os.umask(umask)
say(ready=True)
environment = dict(os.environ, PYTHONPATH=os.pathsep.join(paths), PYTHONSAFEPATH="1")
os.execve(sys.executable, [sys.executable, "-m", *module], environment)
"""


_LIBRARIES = {"msgspec=msgspec": (0, 20), "psutil=psutil": (7,), "pynvml=nvidia-ml-py": (12,)}
"""What the agent imports besides Python's own, `module=distribution`, and the oldest version that will do."""
_IMPORT = re.compile(r"""^\s*(?:from|import) (app(?:\.\w+)*)(?: import (.*))?|"-m", "(app(?:\.\w+)*)""", re.MULTILINE)
"""What a source of the program imports of it, with the names, or what it starts."""
_AGENT = "app.agent"
_MOST_GARBAGE_BYTES = 64_000
_FETCH_S = 300.0
_NAME_DIGITS = 20

Files = Mapping[str, bytes]
"""The contents of files by their path in an archive."""


class HostFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the loader found on a host, or why it cannot go on.

    Attributes:
        python: Version of the Python that runs the agent.
        executable: Its path.
        tag: What compiled libraries have to be made for: its ABI, with the system, and the processor.
        libraries: Versions of the libraries that it has; "" for one that it lacks.
        free_bytes: In the folder of the agents.
        known: What is in that folder.
        ready: Whether the agent starts now.
        error: A word for what is wrong.
        detail: More about it, in the host's words.
    """

    python: Name = ""
    executable: Text = ""
    tag: Name = ""
    libraries: dict[Name, Name] = {}
    free_bytes: Bytes = 0
    known: tuple[Name, ...] = ()
    ready: bool = False
    error: Text = ""
    detail: str = ""
    folder: Text = ""


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """What was found on a host before its agent started, and how much was sent there."""

    facts: HostFacts
    sent_bytes: int


def script(address: Address, module: str = _AGENT) -> str:
    """Return the script of a POSIX shell that finds a Python, receives what is missing, and becomes the agent.

    The `python` of the address is the only one to try, its `interpreter` that of runs that name none. `module` is the
    agent's, with its arguments.
    """
    return SCRIPT.format(
        variables=f"export {DEFAULT_VARIABLE}={_quoted_path(address.interpreter)}" if address.interpreter else "",
        pythons=_quoted_path(address.python) if address.python else " ".join(PYTHONS),
        loader=shlex.quote(LOADER),
        arguments=shlex.join((MARK, agent_name(), ",".join(_LIBRARIES), *module.split())),
        mark=MARK,
    )


def _quoted_path(path: str) -> str:
    """Return a path of the host as a word of its shell, in which `~/` is the user's home."""
    return f'"$HOME"/{shlex.quote(path[2:])}' if path.startswith("~/") else shlex.quote(path)


def prepare(channel: Channel, lines: Iterator[bytes], name: str, notify: Callable[[str], None]) -> Prepared:
    """Send the host what it lacks; the next line is the agent's first.

    `lines` are what comes from the script. `notify` gets a sentence if something large is sent.

    Raises:
        UserError: The host cannot run the agent; with what to do.
    """
    facts = _hear(channel, lines, name)
    files: dict[str, bytes] = {}
    if agent_name() not in facts.known:
        files[agent_name()] = _archive(_agent_files())
    packages = None
    if not all(_is_enough(library, facts.libraries.get(library, "")) for library in _LIBRARIES):
        libraries = _libraries_for(facts, name, notify)
        packages = _name_of(libraries)
        if packages not in facts.known:
            files[packages] = _archive(libraries)
    sent_bytes = sum(map(len, files.values()))
    if files:
        notify(f"Sending the agent to {name} ({units.byte_size(sent_bytes)}) …")
    listed = [(library, len(data), hashlib.sha256(data).hexdigest()) for library, data in files.items()]
    order = msgspec.json.encode({"files": listed, "packages": packages})
    try:
        channel.write(b"\n".join((order, b"".join(files.values()))))
    except OSError as error:
        raise UserError(channel.why_ended()) from error
    _hear(channel, lines, name)
    return Prepared(facts=facts, sent_bytes=sent_bytes)


def _hear(channel: Channel, lines: Iterator[bytes], name: str) -> HostFacts:
    """Return what the loader says next; what a login shell prints before it is skipped. Raises `UserError`."""
    mark, output = MARK.encode(), b""
    for line in lines:
        if line.startswith(mark):
            try:
                facts = msgspec.json.decode(line.removeprefix(mark), type=HostFacts)
            except msgspec.DecodeError as error:
                raise UserError(f"{name} answered what nobody understands: {_excerpt(line)}") from error
            if facts.error:
                raise UserError(_sentence(facts, name))
            return facts
        output += line
        if len(output) > _MOST_GARBAGE_BYTES:
            raise UserError(
                f"{name} prints so much before a command runs that the agent cannot answer; its shell should print "
                f"nothing without a terminal: {_excerpt(output)}"
            )
    raise UserError(channel.why_ended(output.decode(errors="replace")))


def _excerpt(output: bytes) -> str:
    return one_line(output[:400].decode(errors="replace"))


def _sentence(facts: HostFacts, name: str) -> str:
    """Return what is wrong on a host and what to do."""
    detail = one_line(facts.detail)
    match facts.error:
        case "python":
            has = f"only {', '.join(sorted(set(detail.split())))}" if detail else "none"
            return (
                f"{name} needs Python 3.11 or newer and has {has}: install one, or name it in the host's address"
                " (?python=PATH)."
            )
        case "full":
            size = units.byte_size(3 * 2**20)
            return f"There is no space left on {name} for the agent, {size} in {facts.folder}: free some."
        case "folder":
            return (
                f"The agent cannot be stored on {name} in {facts.folder} ({detail}): make it writable, or set"
                " XDG_CACHE_HOME there."
            )
        case "shared":
            return (
                f"Others can write in {facts.folder} on {name}, so nothing is started from it: `chmod go-w` takes"
                " that from them, or set XDG_CACHE_HOME there."
            )
        case "library":
            return (
                f"A library of the agent cannot be loaded on {name} ({detail}): if {facts.folder} forbids programs"
                " (noexec), set XDG_CACHE_HOME there to a folder that allows them."
            )
        case "damaged":
            return f"What was sent to {name} arrived damaged; try again."
        case _:
            return f"{name} cannot run the agent: {one_line(facts.error)} {detail}"


def _is_enough(library: str, version: str) -> bool:
    numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:3])
    return bool(version) and numbers >= _LIBRARIES[library]


@cache
def agent_name() -> str:
    """Return the name of the agent's sources: the beginning of their hash."""
    return _name_of(_agent_files())


def _name_of(files: Files) -> str:
    digest = hashlib.sha256()
    for path, data in sorted(files.items()):
        digest.update(f"{path}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()[:_NAME_DIGITS]


def _agent_files() -> Files:
    """Return the sources of the agent: its package with all of the program that it imports, and `workloads`."""
    paths = sorted((ROOT / "app" / "agent").rglob("*.py"))
    files: dict[str, bytes] = {}
    for path in paths:
        name = path.relative_to(ROOT).as_posix()
        if name in files:
            continue
        files[name] = path.read_bytes()
        for imported, names, started in _IMPORT.findall(files[name].decode()):
            for module in (imported or started, *(f"{imported}.{child}" for child in re.findall(r"\w+", names))):
                paths += _module_files(module)
    files |= {path.relative_to(ROOT).as_posix(): path.read_bytes() for path in (ROOT / "workloads").rglob("*.py")}
    return files


def _module_files(module: str) -> list[Path]:
    """Return the file of a module and those of the packages that it lies in."""
    parts = module.split(".")
    packages = [ROOT.joinpath(*parts[:count], "__init__.py") for count in range(1, len(parts) + 1)]
    return [path for path in (*packages, ROOT.joinpath(*parts).with_suffix(".py")) if path.is_file()]


def _archive(files: Files) -> bytes:
    """Return a zip archive, the same for the same files."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as into:
        for path, data in sorted(files.items()):
            into.writestr(zipfile.ZipInfo(path), data, zipfile.ZIP_DEFLATED)
    return archive.getvalue()


def _own_tag() -> str:
    return f"{EXTENSION_SUFFIXES[0]} {os.uname().machine}"


def _libraries_for(facts: HostFacts, name: str, notify: Callable[[str], None]) -> Files:
    """Return the libraries for a host: this environment's where its Python is of the same kind, else fetched ones."""
    distributions = [importlib.metadata.distribution(library.partition("=")[2]) for library in _LIBRARIES]
    if facts.tag == _own_tag():
        files = (file for distribution in distributions for file in distribution.files or ())
        return {str(file): Path(str(file.locate())).read_bytes() for file in files if _is_needed(str(file))}
    requirements = [f"{distribution.name}=={distribution.version}" for distribution in distributions]
    folder = _fetched(facts, requirements, name, notify)
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {name: path.read_bytes() for path in paths if _is_needed(name := path.relative_to(folder).as_posix())}


def _is_needed(name: str) -> bool:
    return not name.startswith("..") and "__pycache__" not in name and not name.endswith((".pyi", "example.py"))


def _fetched(facts: HostFacts, requirements: list[str], name: str, notify: Callable[[str], None]) -> Path:
    """Return the folder with libraries for a host's Python, fetched once; raises `UserError`."""
    import platformdirs

    folder_name = re.sub(r"\W+", "-", f"{facts.tag} {requirements}")
    folder = platformdirs.user_cache_path("variantscope") / "libraries" / folder_name
    if folder.is_dir():
        return folder
    notify(f"Fetching the agent's libraries for the Python of {name} …")
    part = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    try:
        part.mkdir(parents=True)
        done = subprocess.run(
            [*_installer(facts), "--target", str(part), "--no-deps", *requirements],
            capture_output=True,
            text=True,
            timeout=_FETCH_S,
            check=False,
        )
        if done.returncode:
            raise UserError(_fetch_error(facts, name, requirements, (done.stderr.strip().splitlines() or [""])[-1]))
        part.rename(folder)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserError(_fetch_error(facts, name, requirements, str(error))) from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return folder


def _fetch_error(facts: HostFacts, name: str, requirements: list[str], reason: str) -> str:
    words = " ".join(requirements)
    return (
        f"{name} lacks {words}, and they could not be fetched here for its Python {facts.python}"
        f" ({one_line(reason)}): install them there with {facts.executable} -m pip install --user {words}"
    )


def _installer(facts: HostFacts) -> list[str]:
    """Return the command that installs for the host's Python and system; raises `InstallError`."""
    version = ".".join(facts.python.split(".")[:2])
    abi, _, machine = facts.tag.partition(" ")
    system = "apple-darwin" if "darwin" in abi else f"unknown-linux-{'musl' if 'musl' in abi else 'gnu'}"
    platform = f"{'aarch64' if machine == 'arm64' else machine}-{system}"
    target = ["--python-version", version, "--python-platform", platform]
    return [find_uv(), "pip", "install", *target, "--only-binary", ":all:"]
