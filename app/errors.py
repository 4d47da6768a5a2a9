"""Errors in the user's world, shown in one sentence with what to do. Everything else is a bug and crashes."""

from pathlib import Path


def bug_message(error: BaseException) -> str:
    """Return the text for a bug where a traceback alone is not enough."""
    description = f"{type(error).__name__}: {error}".removesuffix(": ")
    return f"This is a bug in VariantScope ({description}); what is stored is kept. Please report it."


class UserError(Exception):
    """Something in the user's world is wrong (a file, a disk, a device): one sentence with what to do."""

    may_pass = False
    """Whether a retry may soon succeed: a lock or a full disk may clear, a deleted run does not come back."""


class DatabaseError(UserError):
    """The database cannot be opened, read or written."""

    may_pass = True

    def __init__(self, sentence: str, in_window: str = "") -> None:
        """Store the sentence; `in_window` is the window's sentence, if that names no command."""
        super().__init__(sentence)
        self.in_window = in_window or sentence

    def for_window(self) -> "DatabaseError":
        return type(self)(self.in_window)


class DatabaseLockedError(DatabaseError):
    """Another program keeps the database locked."""


class DatabaseGoneError(DatabaseError):
    """The database is no longer the same: it is damaged, or another file has replaced it."""


class DatabaseMissingError(DatabaseGoneError):
    """The database was open or chosen in Settings, and its file no longer exists."""


class DatabaseReplacedError(DatabaseGoneError):
    """The database was open, and another database is now at its path."""


class TelemetryError(UserError):
    """There is no telemetry at all; a single absent field or device is no error."""


def write_error(path: Path, error: OSError) -> UserError:
    return UserError(f"{path} cannot be written ({error.strerror}); name another place.")


def read_error(path: Path, error: OSError) -> UserError:
    return UserError(f"{path} cannot be read ({error.strerror}); put it back, or name another file.")
