"""Who else used a run's GPUs while it ran."""

from app.records import GpuProcess, Processes


class Neighbours:
    """Processes other than the run's own worker on its GPUs, as the driver lists them every few seconds.

    Inside some containers the driver names processes by numbers of the host. A worker that is never listed is therefore
    taken to be one of those listed, and only what is beside it counts.
    """

    def __init__(self, worker_pid: int) -> None:
        self._worker_pid = worker_pid
        self._worker_listed = False
        self._seen: dict[int, GpuProcess] = {}
        self._most_at_once = 0

    def note(self, listed: Processes) -> None:
        """Takes one list of one GPU."""
        others = {each.pid: each for each in listed.processes if each.pid != self._worker_pid}
        self._worker_listed |= len(others) < len(listed.processes)
        self._seen = self._seen | others
        self._most_at_once = max(self._most_at_once, len(others))

    @property
    def words(self) -> str:
        """The others, as `python3 (4242), ffmpeg (77)`, or how many where their numbers say nothing; "" if none."""
        if self._worker_listed:
            return ", ".join(f"{other.name} ({other.pid})" for other in self._seen.values())
        others = self._most_at_once - 1
        return f"{others} other {'process' if others == 1 else 'processes'}" if others > 0 else ""
