"""Transfers the program: its wheel, named by its hash, and the script that starts the program on a host.

The sh script requests what its cache lacks by a line on stdout, and reads it from stdin; then it becomes the program.
uv installs the wheel's requirements, or the address's Python has them.
"""

import base64
import hashlib
import io
import platform
import shlex
import zipfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from app.environments.packages import find_uv
from app.hosts.book import Address
from app.hosts.detached import ORDERS, RECORDING, STDERR
from app.hosts.launchers import LAUNCHERS, by_ssh
from app.hosts.messages import PATH_VARIABLE
from app.paths import ROOT, checkout_root, program_version
from workloads.catalog import DEFAULT_VARIABLE

MARK = "@variantscope@"
"""The prefix of the script's lines: `send NAME` requests a file, `detached` says that a run has started."""
_LEFT_OUT = ("PySide6", "pyqtgraph")
"""Packages that only the window needs."""

_SCRIPT = """\
umask 077
cd
{interpreter}
c=${{XDG_CACHE_HOME:-$HOME/.cache}}/variantscope d=$c/{hash} w=$c/{hash}/{name}
fail() {{ echo "variantscope: $1" >&2; exit 1; }}
get() {{
  mkdir -p "$d" && [ -O "$d" ] || fail folder
  printf '\\n%s send %s\\n' {mark} "$1"
  head -c "$3" >"$2.$$" && [ $(wc -c <"$2.$$") -eq "$3" ] && mv -f "$2.$$" "$2" || {{ rm -f "$2.$$"; fail full; }}
}}
sum() {{ case $({{ sha256sum "$1" || shasum -a 256 "$1"; }} 2>/dev/null) in {hash}*) ;; *) return 1 ;; esac; }}
sum "$w" || {{ get wheel "$w" {size}; sum "$w" || fail damaged; }}
{find}
"""
"""Cache `c`, this version's folder `d` and wheel `w`, Python `p`, uv `u`, a detached run's `f`; `$@` starts it."""
_BY_PYTHON = """\
p={python}
"$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' </dev/null || fail python
[ -d "$d/py" ] || {{ "$p" -m zipfile -e "$w" "$d/py.$$" </dev/null && mv "$d/py.$$" "$d/py"; }} || fail full
set -- env PYTHONSAFEPATH=1 PYTHONPATH="$d/py${{PYTHONPATH:+:$PYTHONPATH}}" "$p" -m {words}
"""
_BY_UV = """\
for u in uv "$HOME/.local/bin/uv" "$HOME/.cargo/bin/uv" "$c/uv"; do command -v "$u" >/dev/null && break; u=; done
[ -n "$u" ] || {{
  [ "$(uname -sm)" = {system} ] || fail uv
  u=$c/uv
  get uv "$u" {uv_size}
  chmod 700 "$u"
}}
set -- env {path_variable}="$PATH" "$u" tool run --quiet --from "$w" variantscope run --events
"""
_DETACH = """\
f=${{XDG_STATE_HOME:-$HOME/.local/state}}/variantscope/detached/{uid}
mkdir -p "$f" || fail state
get orders "$f/{orders}" {size}
printf '#!/bin/sh\nf=$1\nshift\nexec "$@" <"$f/{orders}" >>"$f/{recording}"\n' >"$f/start"
set -- "$f" "$@" --detach
{start}
printf '\n%s detached\n' {mark}
"""
_IN_SESSION = f"""\
setsid nohup sh "$f/start" "$@" >/dev/null 2>"$f/{STDERR}" &
until [ -s "$f/{RECORDING}" ]; do
  kill -0 $! 2>/dev/null || {{ tail -n 1 "$f/{STDERR}" >&2; rm -r "$f"; exit 1; }}
  sleep 0.1
done"""
_BY_SBATCH = f"""\
: >"$f/{STDERR}"
sbatch --parsable %s --output="$f/{STDERR}" "$f/start" "$@" >&2 || {{ rm -r "$f"; exit 1; }}"""


def _requirements() -> tuple[str, list[str]]:
    if (root := checkout_root()) is not None:
        import tomllib

        project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        return project["requires-python"], project["dependencies"]
    import importlib.metadata

    metadata = importlib.metadata.metadata("variantscope")
    needs = [need for need in metadata.get_all("Requires-Dist") or () if "extra ==" not in need]
    return metadata["Requires-Python"], needs


@cache
def build_wheel() -> bytes:
    """Return the wheel of this program without its window; the same sources give the same bytes.

    https://packaging.python.org/en/latest/specifications/binary-distribution-format/
    """
    package = next(folder for folder in (ROOT / "variantscope", ROOT) if (folder / "__init__.py").is_file())
    paths = {path.relative_to(ROOT): path for name in ("app", "workloads") for path in (ROOT / name).rglob("*.py")}
    paths |= {Path("variantscope", path.name): path for path in package.glob("*.py")}
    names = {name.as_posix(): path for name, path in paths.items() if name.parts[:2] != ("app", "gui")}
    files = {name: path.read_bytes() for name, path in sorted(names.items())}
    info = f"variantscope-{program_version()}.dist-info"
    pythons, packages = _requirements()
    needs = [f"Requires-Dist: {package}\n" for package in packages if not package.startswith(_LEFT_OUT)]
    identity = f"Metadata-Version: 2.1\nName: variantscope\nVersion: {program_version()}\n"
    metadata = f"{identity}Requires-Python: {pythons}\n{''.join(needs)}"
    files |= {
        f"{info}/METADATA": metadata.encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: variantscope\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": b"[console_scripts]\nvariantscope = variantscope:main\n",
    }
    record = ""
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(data)}\n"
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    wheel = io.BytesIO()
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
    return wheel.getvalue()


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What starts on a host: the program, or with `detached_uid` one that continues without this program.

    Attributes:
        gpus: The GPUs of its runs, for a scheduler; None for telemetry.
        on_entry: Whether it starts on the entry node of a cluster, instead of a node that its scheduler chooses.
        orders: The whole stdin of a detached program.
    """

    address: Address
    gpus: int | None = None
    on_entry: bool = False
    detached_uid: str = ""
    orders: bytes = b""

    def command(self) -> list[str]:
        """Return the local command that starts it."""
        is_entry = self.on_entry and self.address.schedules
        start = by_ssh if is_entry else LAUNCHERS[self.address.kind].command
        return start(self.address, self.script())

    def script(self) -> str:
        """Return the sh script that receives missing files there, and becomes the program."""
        address, wheel, words = self.address, build_wheel(), ["app", "run", "--events"]
        if by_ray := address.kind == "ray" and not self.on_entry:
            gpus = "look" if self.gpus is None else str(self.gpus)
            words = ["app.hosts.ray_driver", gpus, *address.option_arguments]
        if address.python or by_ray:
            find = _BY_PYTHON.format(python=_quoted_path(address.python or "python3"), words=shlex.join(words))
        else:
            system = shlex.quote(f"{platform.system()} {platform.machine()}")
            size = Path(find_uv()).stat().st_size
            find = _BY_UV.format(path_variable=PATH_VARIABLE, system=system, uv_size=size)
        return _SCRIPT.format(
            interpreter=f"export {DEFAULT_VARIABLE}={_quoted_path(address.interpreter)}" if address.interpreter else "",
            hash=hashlib.sha256(wheel).hexdigest(),
            name=f"variantscope-{program_version()}-py3-none-any.whl",
            size=len(wheel),
            mark=MARK,
            find=find,
        ) + (self._detach() if self.detached_uid else 'exec "$@"\n')

    def _detach(self) -> str:
        is_batch = self.address.kind == "slurm"
        return _DETACH.format(
            uid=self.detached_uid,
            start=_BY_SBATCH % shlex.join(self.address.option_arguments) if is_batch else _IN_SESSION,
            mark=MARK,
            size=len(self.orders),
            orders=ORDERS,
            recording=RECORDING,
        )

    def requested(self, name: str) -> tuple[str, bytes]:
        """Return the title and the content of a file that the script requests."""
        if name == "orders":
            return "the run", self.orders
        return ("uv", Path(find_uv()).read_bytes()) if name == "uv" else ("the program", build_wheel())


def _quoted_path(path: str) -> str:
    """Return a path on the host as a word for its shell, in which `~/` is the user's home."""
    return f'"$HOME"/{shlex.quote(path[2:])}' if path.startswith("~/") else shlex.quote(path)
