"""Virtual environments for tests: made by `python -m venv`, with packages that the test adds."""

import site
import subprocess
import sys
from pathlib import Path


class VirtualEnvironment:
    """An empty virtual environment in `folder`, its Python that of these tests; nothing is downloaded."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-m", "venv", "--without-pip", str(folder)]
        subprocess.run(command, check=True, timeout=240.0)
        self.folder = folder
        self.python = folder / "bin" / "python"
        (self.packages,) = folder.glob("lib/python*/site-packages")

    def see_ours(self) -> None:
        """Let it import what these tests can."""
        (self.packages / "ours.pth").write_text("\n".join(site.getsitepackages()))

    def at_start(self, code: str) -> None:
        """Let its Python execute a line before any program; Debian's has a `sitecustomize` that hides others."""
        (self.packages / "at_start.pth").write_text(f"import sys; {code}\n")

    def add(self, name: str, version: str, code: str = "") -> None:
        """Add a package, which precedes packages of `see_ours`."""
        (self.packages / f"{name}.py").write_text(code)
        metadata = self.packages / f"{name}-{version}.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
