"""How it stands with files of the user's that workloads are in: one is being read, another one is no good."""

from pathlib import Path

from workloads.catalog import Workload


class OwnFiles:
    """What is to be said of each file: of the one told of last, else of the one that the workload chosen is in."""

    def __init__(self) -> None:
        self._told: dict[Path, tuple[str, bool]] = {}
        self._last: Path | None = None

    def tell(self, path: Path, words: str, *, wrong: bool) -> None:
        """Say this of a file from now on."""
        self._told[path] = words, wrong
        self._last = path

    def forget(self, path: Path) -> None:
        """There is nothing to say of it any more."""
        self._told.pop(path, None)

    def turn_away(self) -> None:
        """The user turned to another workload: only what concerns that one is said."""
        self._last = None

    def refusal(self, workload: Workload) -> str:
        """Why the workload cannot run now because of its file; "" where it can."""
        path = Path(workload.own.path) if workload.own else None
        if path is None or path not in self._told:
            return ""
        _, wrong = self._told[path]
        return f"{path.name} has to be {'put right' if wrong else 'read'} first."

    def words(self, workload: Workload) -> tuple[str, bool]:
        """What is to be said below the workload chosen, and whether something is wrong."""
        own = Path(workload.own.path) if workload.own else None
        told = (self._told[path] for path in (self._last, own) if path in self._told)
        return next(told, ("", False))
