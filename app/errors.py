"""Errors of the user's world: shown in one sentence with what to do. Everything else is a bug and crashes."""


class UserError(Exception):
    """Something in the user's world is wrong (a file, a disk, a device): one sentence with what to do."""


class DatabaseError(UserError):
    """The database cannot be opened, read or written."""


class TelemetryError(UserError):
    """Telemetry cannot be had at all (never for one absent field or device)."""
