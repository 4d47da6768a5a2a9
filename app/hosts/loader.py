"""What runs on a host before the agent is there: finds a Python, receives what is missing, becomes the agent.

`SCRIPT` is for a POSIX shell, `LOADER` for the Python that it finds. They speak in lines that begin with `MARK`; what a
login shell prints before the first is nobody's. Arguments of the loader: the mark, the name of the agent's sources, the
libraries that it needs (`module=distribution,…`), the agent's module and its arguments.
"""

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

    found, folder, files = hashlib.sha256(), os.path.join(root, name), []
    for place, folders, names in os.walk(folder):
        folders[:] = [each for each in folders if each != "__pycache__"]
        files += [os.path.join(place, each) for each in names]
    for path, file in sorted((os.path.relpath(file, folder), file) for file in files):
        with open(file, "rb") as opened:
            data = opened.read()
        found.update(("%s\\0%d\\0" % (path, len(data))).encode() + data)
    return is_own(folder) and found.hexdigest().startswith(name)


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
    known = [name for name in os.listdir(root) if not name.startswith(".") and not name.endswith(".lock")]
    remove_damaged(known)
    known = [name for name in known if os.path.isdir(os.path.join(root, name))]
except OSError as error:
    fail("folder", error.strerror)
say(
    python=sys.version.split()[0],
    executable=sys.executable,
    tag="%s %s" % (EXTENSION_SUFFIXES[0], os.uname().machine),
    libraries={name: version(*name.split("=")) for name in libraries},
    free_bytes=disk.f_bavail * disk.f_frsize,
    folder=root,
    known=known,
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
