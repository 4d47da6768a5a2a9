"""The agent's scratch folder: the files that jobs read and that jobs and workers write, by name."""

import contextlib
import os
from pathlib import Path

import msgspec

from app.agent_protocol import FILE_PIECE_BYTES, FilePart, ReadFile, WriteFile
from app.errors import UserError
from workloads.job_protocol import ComputeGradients, JobRequest, TryWeights


class Scratch:
    """Files of the program in a folder of the agent's own, which the guard removes.

    Thread: any.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()

    def path(self, name: str) -> str:
        """Return the path of a file, whose folder is there then; raises `UserError` for a name that leads elsewhere."""
        path = self._find(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        return str(path)

    def with_paths(self, request: JobRequest) -> JobRequest:
        """Return a job with paths in place of names; raises `UserError`."""
        match request:
            case TryWeights(weights_path=name):
                return msgspec.structs.replace(request, weights_path=self.path(name))
            case ComputeGradients(path=name, start_path=start):
                start_path = None if start is None else self.path(start)
                return msgspec.structs.replace(request, path=self.path(name), start_path=start_path)
            case _:
                return request

    def read(self, order: ReadFile) -> FilePart:
        """Return a piece of a file; raises `UserError`."""
        try:
            with self._find(order.name).open("rb") as file:
                file.seek(order.offset)
                data = file.read(FILE_PIECE_BYTES)
                return FilePart(number=order.number, data=data, size=os.fstat(file.fileno()).st_size)
        except OSError as error:
            raise _file_error(order.name, error) from error

    def write(self, order: WriteFile) -> FilePart:
        """Write a piece of a file; raises `UserError`."""
        path = self.path(order.name)
        try:
            with Path(path).open("r+b" if order.offset else "wb") as file:
                file.seek(order.offset)
                file.write(order.data)
                file.flush()
                return FilePart(number=order.number, size=os.fstat(file.fileno()).st_size)
        except OSError as error:
            raise _file_error(order.name, error) from error

    def remove(self, name: str) -> None:
        """Remove a file, if it is there; raises `UserError`."""
        try:
            self._find(name).unlink(missing_ok=True)
        except OSError as error:
            raise _file_error(name, error) from error

    def _find(self, name: str) -> Path:
        try:
            path = (self._folder / name).resolve()
            is_inside = path != self._folder and path.is_relative_to(self._folder)
            with contextlib.suppress(FileNotFoundError):
                path.stat()  # of a loop of links `resolve` says nothing from Python 3.13 on
        except (OSError, ValueError, RuntimeError):  # too long, a NUL, a loop of links
            is_inside = False
        if not is_inside:
            raise UserError(f"{name[:200]!r} is no name of a file in the agent's folder.")
        return path


def _file_error(name: str, error: OSError) -> UserError:
    return UserError(f"{name} in the agent's folder cannot be used on the host ({error.strerror}).")
