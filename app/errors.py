"""Errors of the user's world: shown in one sentence with what to do. Everything else is a bug and crashes."""

from pathlib import Path


def bug_message(error: BaseException) -> str:
    """Return what to show of a bug where a traceback alone is not enough."""
    description = f"{type(error).__name__}: {error}".removesuffix(": ")
    return f"This is a bug in VariantScope ({description}); what is stored is kept. Please report it."


class UserError(Exception):
    """Something in the user's world is wrong (a file, a disk, a device): one sentence with what to do."""

    may_pass = False
    """Whether the same may soon succeed: a lock or a full disk goes, a run that is gone does not come back."""


class DatabaseError(UserError):
    """The database cannot be opened, read or written."""

    may_pass = True

    def __init__(self, sentence: str, in_window: str = "") -> None:
        """Say what is wrong and what to do; `in_window` is the sentence for the window, where that names no command."""
        super().__init__(sentence)
        self.in_window = in_window or sentence

    def for_window(self) -> "DatabaseError":
        return type(self)(self.in_window)


class DatabaseLockedError(DatabaseError):
    """Another program keeps the database locked."""


class DatabaseGoneError(DatabaseError):
    """The database is no longer what it was: damaged, or another file has taken its place."""


class DatabaseMissingError(DatabaseGoneError):
    """The database was open or chosen in Settings, and there is no file at its path any more."""


class DatabaseReplacedError(DatabaseGoneError):
    """The database was open, and there is another database at its path now."""


class TelemetryError(UserError):
    """There is no telemetry at all (never for one absent field or device)."""


def write_error(path: Path, error: OSError) -> UserError:
    return UserError(f"{path} cannot be written ({error.strerror}); name another place.")


def read_error(path: Path, error: OSError) -> UserError:
    return UserError(f"{path} cannot be read ({error.strerror}); put it back, or name another file.")
