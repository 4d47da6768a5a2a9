"""Power of the processor packages through RAPL, where the kernel lets this user read it.

Linux power capping framework: `energy_uj` counts microjoules and wraps at `max_energy_range_uj`
(https://docs.kernel.org/power/powercap/powercap.html). Since 2020 most systems let only root read it.
"""

import time
from pathlib import Path

_POWERCAP = Path("/sys/class/powercap")


class RaplPower:
    """The mean power of all packages together since the reading before."""

    def __init__(self, folder: Path = _POWERCAP) -> None:
        self._packages = sorted(folder.glob("intel-rapl:[0-9]*/energy_uj"))
        self._packages = [path for path in self._packages if path.parent.name.count(":") == 1]
        self._before: tuple[int, list[int]] | None = None

    def why_absent(self) -> str | None:
        """The reason why there is no reading, or None when there is one."""
        if not self._packages:
            return "not supported"
        try:
            self._read()
        except PermissionError:
            return "no permission"
        except OSError as error:
            return str(error.strerror)
        return None

    def power_mw(self) -> int | None:
        """Milliwatts since the last call; None on the first, and where a counter wrapped in between."""
        if not self._packages:
            return None
        try:
            now = (time.monotonic_ns(), self._read())
        except OSError:
            return None
        before, self._before = self._before, now
        if before is None or now[0] == before[0]:
            return None
        used_uj = [after - start for after, start in zip(now[1], before[1], strict=True)]
        return None if min(used_uj) < 0 else int(sum(used_uj) * 1e6 / (now[0] - before[0]))

    def _read(self) -> list[int]:
        return [int(path.read_text()) for path in self._packages]
