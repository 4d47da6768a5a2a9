"""Tags and notes of runs, as the dialogs edit them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from app.records import RunRow
from app.viewmodels.history.labels import format_run_count


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotations:
    """Tags and notes of chosen runs. `tags` has every tag there is: whether all of them have it, None where only some.

    `note` is what all of them say, None where they differ.
    """

    runs: tuple[int, ...]
    tags: dict[str, bool | None]
    note: str | None

    @property
    def runs_label(self) -> str:
        """The runs in words: `run 12`, `3 runs`."""
        return runs_label(self.runs)


def runs_label(runs: Sequence[int]) -> str:
    """Return runs in words: `run 12`, `3 runs`."""
    return f"run {runs[0]}" if len(runs) == 1 else format_run_count(len(runs))


def collect_annotations(rows: Sequence[RunRow], known_tags: Iterable[str]) -> Annotations:
    """Return tags and note of these runs; `known_tags` are those of any run."""
    having = {tag: sum(tag in row.tags for row in rows) for tag in known_tags}
    notes = {row.note for row in rows}
    return Annotations(
        runs=tuple(row.run for row in rows),
        tags={tag: count == len(rows) if count in (0, len(rows)) else None for tag, count in having.items()},
        note=notes.pop() if len(notes) == 1 else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TagChange:
    """Tags that some runs get and others they lose."""

    runs: tuple[int, ...]
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


def parse_tags(text: str) -> tuple[str, ...]:
    """Return the comma-separated tags of a text, each once whatever its case."""
    found: dict[str, str] = {}
    for word in filter(None, map(str.strip, text.split(","))):
        found.setdefault(word.lower(), word)
    return tuple(found.values())


def tag_change(run: int, before: Iterable[str], text: str) -> TagChange:
    """Return what typing tags in place of others changes; case makes no difference."""
    had = {tag.lower(): tag for tag in before}
    wanted = {tag.lower(): tag for tag in parse_tags(text)}
    return TagChange(
        runs=(run,),
        added=tuple(tag for key, tag in wanted.items() if key not in had),
        removed=tuple(tag for key, tag in had.items() if key not in wanted),
    )


def apply_tag_change(tags: Iterable[str], change: TagChange) -> tuple[str, ...]:
    """Return the tags of a run after a change, in order."""
    return tuple(sorted({*tags, *change.added} - set(change.removed), key=str.lower))
