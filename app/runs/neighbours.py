"""Who else used a run's GPUs while it ran."""

from collections.abc import Collection

from app.samples import GpuProcess, Processes


class Neighbours:
    """Processes other than the run's own worker on its GPUs, as the driver lists them every few seconds.

    Inside some containers the driver names processes by numbers of the host. A worker that is never listed is therefore
    taken to be one of those listed, and only what is beside it counts. It is none of those that were listed `before` it
    was started.
    """

    def __init__(self, worker_pid: int, before: Collection[int] = ()) -> None:
        self._worker_pid = worker_pid
        self._before = frozenset(before)
        self._worker_listed = False
        self._seen: dict[int, GpuProcess] = {}
        self._most_at_once = 0

    def note(self, listed: Processes) -> None:
        """Takes one list of one GPU."""
        others = {each.pid: each for each in listed.processes if each.pid != self._worker_pid}
        self._worker_listed |= len(others) < len(listed.processes)
        self._seen = self._seen | others
        self._most_at_once = max(self._most_at_once, len(others.keys() - self._before))

    @property
    def words(self) -> str:
        """The others, as `python3 (4242), ffmpeg (77)`, or how many where their numbers say nothing; "" if none."""
        told = self._seen.keys() if self._worker_listed else self._seen.keys() & self._before
        named = [f"{other.name} ({pid})" for pid, other in self._seen.items() if pid in told]
        more = 0 if self._worker_listed else self._most_at_once - 1
        counted = [f"{more} other {'process' if more == 1 else 'processes'}"] if more > 0 else []
        return ", ".join([*named, *counted])
